"""The package's own client and command line, against a live service."""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stowage.client import APIError, AsyncClient, Client, Connection, NoConnection, State
from stowage.client.exchange import SUBMISSION
from tests.forms import few
from tests.live import ROOT, Service, node, pod

pytestmark = [pytest.mark.db, pytest.mark.slow, pytest.mark.real_clock]
RECIPES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/client.md").read_text(), re.DOTALL)


@pytest.fixture
def client(live: Service) -> Iterator[Client]:
    for number in range(3):
        live.request("POST", "/api/v1/nodes", node(f"wide-{number}", cpu="64", pods="6000"))
    connection = Connection(server=f"http://127.0.0.1:{live.http_port}", token=live.token)
    with Client(connection, patience=30) as client:
        yield client


def run(live: Service, *command: str, stdin: str = "") -> tuple[int, str, str]:
    """Run the command line; return its exit code, what it printed, and what it said beside."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(live.state.parent),
        "KUBECONFIG": str(live.state / "kubeconfig"),
        "STOWAGE_STATE": str(live.state),
        "COLUMNS": "300",
    }
    done = subprocess.run(
        [sys.executable, "-m", "stowage", *command],
        cwd=ROOT, env=environment, input=stdin, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_each_pod_is_told_once_where_it_is(client: Client) -> None:
    given = [pod(f"many-{number}", cpu="1m") for number in range(1200)]
    placed = list(client.place(given, timeout=60))
    assert sorted(one.name for one in placed) == sorted(one["metadata"]["name"] for one in given)
    assert {one.state for one in placed} == {State.PLACED}
    stored, _ = client.list_all("/api/v1/namespaces/default/pods", labelSelector=SUBMISSION)
    nodes = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in stored}
    assert {one.name: one.node for one in placed}.items() <= nodes.items()


def test_a_query_counts_wherever_it_stands(client: Client) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    for name, team in (("one", "a"), ("two", "a"), ("three", "b"), ("four", "b")):
        labels = {"team": team, "drawn": "yes"}
        client.create(path, {"metadata": {"name": name, "labels": labels}, "kind": "ConfigMap"})

    def names(*, where: str = "", **params: str) -> list[str]:
        found, _ = client.list_all(path + where, labelSelector="drawn", **params)
        return sorted(one["metadata"]["name"] for one in found)

    assert names(where="?fieldSelector=metadata.name%3Done") == ["one"]
    client.delete(f"{path}?labelSelector=team%3Da")
    assert names() == ["four", "three"]
    client.delete(f"{path}?labelSelector=team%3Db", fieldSelector="metadata.name=three")
    assert names() == ["four"]


def test_one_wrong_pod_keeps_none_of_the_others_away(client: Client) -> None:
    given = [pod(f"fine-{number}") for number in range(7)]
    given[3] = pod("Wrong_Name")
    placed = {one.name: one for one in client.place(given, timeout=60)}
    assert placed.pop("Wrong_Name").state is State.REFUSED
    assert {one.state for one in placed.values()} == {State.PLACED}
    again = list(client.place(given[:1], timeout=5))
    assert [(one.state, one.message) for one in again] == [
        (State.REFUSED, 'pods "fine-0" already exists')
    ]


def test_pods_that_have_no_room_are_told_with_the_reason(client: Client) -> None:
    (told,) = client.place([pod("too-large", cpu="10000")], timeout=3)
    assert told.state is State.WAITING
    assert "Insufficient cpu" in told.message
    client.delete("/api/v1/namespaces/default/pods/too-large")
    client.delete("/api/v1/namespaces/default/pods/too-large")  # gone already


def test_what_may_not_be_read_is_an_error(live: Service) -> None:
    nobody = Connection(server=f"http://127.0.0.1:{live.http_port}", token="nobody's")
    with Client(nobody) as client, pytest.raises(APIError) as refused:
        list(client.place([pod("never")], timeout=5))
    assert refused.value.code == 401


def test_changes_of_many_clients_are_all_made(client: Client, live: Service) -> None:
    client.create("/api/v1/namespaces", {"metadata": {"name": "counted"}})
    path = "/api/v1/namespaces/counted"

    async def count() -> None:
        found = Connection(server=f"http://127.0.0.1:{live.http_port}", token=live.token)

        def add(manifest: dict[str, Any]) -> None:
            notes = manifest["metadata"].setdefault("annotations", {})
            notes["count"] = str(int(notes.get("count", "0")) + 1)

        async with AsyncClient(found, rng=random.Random(1)) as counting:
            await asyncio.gather(*(counting.change(path, add) for _ in range(8)))

    asyncio.run(count())
    assert client.get(path)["metadata"]["annotations"]["count"] == "8"


@pytest.mark.parametrize("recipe", few(RECIPES, 2), ids=range(len(RECIPES)))
def test_a_recipe_of_the_documentation_runs(
    client: Client, live: Service, tmp_path: Path, recipe: str
) -> None:
    recipe = recipe.replace("10_000", "1_000")
    environment = {
        **os.environ, "KUBECONFIG": str(live.state / "kubeconfig"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    environment.pop("STOWAGE_SERVER", None)
    done = subprocess.run(
        [sys.executable, "-c", recipe],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout
    client.delete("/api/v1/namespaces/default/pods")


def test_the_command_submits_a_file_and_waits(client: Client, live: Service) -> None:
    file = (
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: submitted}\n---\n"
        "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-, namespace: submitted}\n"
        "spec: {containers: [{name: a, image: b}]}\n"
    )
    code, said, told = run(live, "submit", "-", "--wait", "-o", "json", stdin=file)
    assert code == 0, told
    (placed,) = json.loads(said)
    assert (placed["namespace"], placed["state"]) == ("submitted", "Placed")
    code, said, told = run(live, "why", f"submitted/{placed['pod']}")
    assert (code, said.splitlines()[0]) == (
        0, f"submitted/{placed['pod']}: Placed on {placed['node']}",
    ), told  # fmt: skip
    code, said, _ = run(live, "decisions", "-n", "submitted", "--csv")
    assert code == 0
    assert f"submitted/{placed['pod']},scheduled,{placed['node']}" in said


def test_exit_codes_say_what_happened(client: Client, live: Service, tmp_path: Path) -> None:
    large = json.dumps(pod("exit-large", cpu="9999"))
    assert run(live, "submit", "-", "--wait", "--timeout", "2", stdin=large)[0] == 4
    assert run(live, "submit", "-", stdin=large)[0] == 1  # already exists
    assert run(live, "why", "no-such-pod")[0] == 1
    assert run(live, "why")[0] == 2
    assert run(live, "--kubeconfig", str(tmp_path / "none"), "why", "a")[0] == 3
    client.delete("/api/v1/namespaces/default/pods/exit-large")


@pytest.mark.parametrize(
    ("command", "expected"),
    few(
        [
            ("top --once", "3 nodes"),
            ("plan drain wide-0", "leaving"),
            ("config get", "kind: KubeSchedulerConfiguration"),
            ("tokens list", "admin"),
            ("top -o csv", "wide-1,Ready"),
            ("config effective -o wide", "NodeResourcesFit"),
            ("config canary list -o json", "CanaryList"),
            ("doctor", "ready on port"),
            ("completion bash", "_STOWAGE_COMPLETE"),
            ("manage help", "createtoken"),
            ("simulate --help", "--tie-break"),
        ],
        4,
    ),
)
def test_a_command_answers(client: Client, live: Service, command: str, expected: str) -> None:
    code, said, told = run(live, *command.split())
    assert code == 0, told
    assert expected in said + told


def test_a_configuration_is_compared_and_put_in_force(
    client: Client, live: Service, tmp_path: Path
) -> None:
    before = client.configuration()
    file = tmp_path / "mine.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- plugins: {score: {disabled: [{name: ImageLocality}]}}\n"
    )
    code, said, told = run(live, "config", "diff", str(file), "-o", "json")
    assert code == 0, told
    assert {(one["plugin"], one["now"], one["then"]) for one in json.loads(said)} == {
        ("ImageLocality", "weight 1", "-")
    }
    assert run(live, "config", "set", str(file), "--dry-run")[0] == 0
    assert client.configuration()["metadata"] == before["metadata"]
    assert run(live, "config", "set", str(file))[0] == 0
    assert client.configuration()["metadata"] != before["metadata"]
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    assert run(live, "config", "set", str(file))[0] == 0


def test_a_kubeconfig_with_a_program_for_tokens_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://x:1'}}]\n"
        "users: [{name: u, user: {exec: {command: aws}}}]\n"
    )
    with pytest.raises(NoConnection, match="user u: exec is not supported by this client"):
        Connection.find(kubeconfig=str(file))
