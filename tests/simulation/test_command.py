"""`manage.py simulate` as a process of its own, with no database to be found."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.builders import make_node, make_pod
from tests.simulation.builders import document

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    "REDIS_URL": "redis://127.0.0.1:1",
}


def run(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", "simulate", *arguments],
        cwd=ROOT,
        env={**os.environ, **NOWHERE},
        input=text,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_plain_objects_are_placed_and_shown(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps({"kind": "NodeList", "items": [make_node().manifest]}))
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "apiVersion: v1\nkind: Pod\n"
        "metadata: {name: small, creationTimestamp: 2026-01-01T00:00:00Z}\n"
        "spec: {containers: [{name: main, image: app}]}\n---\n"
        "apiVersion: v1\nkind: Pod\nmetadata: {name: large}\nspec:\n  containers:\n"
        "  - {name: main, image: app, resources: {requests: {cpu: 16}}}\n"
    )
    shown = run(str(nodes), str(pods))
    assert shown.returncode == 0, shown.stderr
    header, small, large = shown.stdout.splitlines()
    assert header.split() == ["POD", "STATUS", "NODE", "TOTAL", "WHY"]
    assert small.split()[:3] == ["default/small", "scheduled", "node-1"]
    assert large.split()[:3] == ["default/large", "unschedulable", "-"]
    assert "1 Insufficient cpu" in large


def test_a_wrong_file_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(document([make_node().tainted("a", effect="Never")])))
    refused = run(str(file))
    assert refused.returncode == 1
    assert "spec.objects[0]" in refused.stderr
    assert "Never" in refused.stderr


def test_the_live_world_needs_the_database(tmp_path: Path) -> None:
    file = tmp_path / "live.json"
    file.write_text(json.dumps(document(base="live")))
    refused = run(str(file))
    assert refused.returncode == 1
    assert "To read the live cluster, the database is needed" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_lines_are_answered_one_by_one_and_bad_ones_end_nothing() -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "simulate", "--jsonl"],
        cwd=ROOT,
        env={**os.environ, **NOWHERE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(line: str) -> dict[str, object]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        answer: dict[str, object] = json.loads(process.stdout.readline())["status"]
        return answer

    try:
        fine = json.dumps(document([make_node()], [make_pod()]))
        assert ask(fine)["results"][0]["nodeName"] == "node-1"  # type: ignore[index]
        for bad, reason in [
            ("{", "BadRequest"),
            ("[" * 100_000, "BadRequest"),
            ("null", "Invalid"),
            (json.dumps(document(base="live")), "BadRequest"),
            (json.dumps(document(base="elsewhere")), "Invalid"),
        ]:
            answer = ask(bad)
            assert (answer["results"], answer["reason"]) == ([], reason)
            assert answer["message"]
        assert ask(fine)["results"][0]["nodeName"] == "node-1"  # type: ignore[index]
    finally:
        process.stdin.close()
        assert process.wait(30) == 0
        process.stdout.close()
