"""`manage.py simulate` with scenarios and a cluster's export, `manage.py replay` with a trace."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from clusterstate.objects.values.meta import Manifest
from tests.builders import make_node, make_pod
from tests.scenarios.test_openb import NODES, PODS


def run(command: str, *arguments: object, **options: Any) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(command, *map(str, arguments), stdout=out, stderr=err, **options)
    return out.getvalue(), err.getvalue()


def stored(pod: Manifest, phase: str) -> Manifest:
    """A pod as a server shows it, with a class that its file need not have."""
    pod["metadata"] |= {"uid": f"uid-{pod['metadata']['name']}", "resourceVersion": "7"}
    pod["spec"] |= {"priority": 5, "priorityClassName": "elsewhere", "runtimeClassName": "kata"}
    return {**pod, "status": {"phase": phase}}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """What `kubectl get nodes,pods,... -o json` prints, and something that nobody knows here."""
    items = [
        make_node().manifest,
        stored(make_pod().named("there").on("node-1").asks(cpu=3).manifest, "Running"),
        stored(make_pod().named("over").on("node-1").asks(cpu=4).manifest, "Succeeded"),
        stored(make_pod().named("waits").asks(cpu=1).manifest, "Pending"),
        {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "x"}},
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return file


def test_the_pods_that_wait_in_an_export_are_placed(export: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    more.write_text("".join(json.dumps(make_pod().named(n).manifest) + "\n" for n in ("x", "y")))
    out, err = run("simulate", export, more, output="jsonl")
    told = {one["pod"]: one["status"] for one in map(json.loads, out.splitlines())}
    assert told == {
        "default/waits": "scheduled",
        "default/x": "scheduled",
        "default/y": "scheduled",
    }
    assert "1 Gadget" in err


def test_a_table_says_who_took_whose_place(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    low = make_pod().named("low").asks(cpu=3).on("node-1")
    new = make_pod().named("new").asks(cpu=3).with_("spec", "priorityClassName", value="high")
    objects = [make_node().manifest, high, low.manifest, new.manifest]
    file.write_text("\n".join(map(json.dumps, objects)))
    performed, _ = run("simulate", file)
    assert "took the place of default/low" in performed
    described, _ = run("simulate", file, preemption="describe")
    assert "Would make room on node-1: default/low" in described


def test_a_scenario_is_played_in_the_world_of_the_other_files(export: Path, tmp_path: Path) -> None:
    scenario, report = tmp_path / "scenario.yaml", tmp_path / "report.html"
    scenario.write_text(
        "kind: Scenario\nmetadata: {name: later}\nspec:\n  until: 1h\n  steps:\n"
        "  - {at: 10m, delete: [{kind: Pod, name: there}]}\n"
    )
    out, err = run("simulate", export, scenario, policy=["least", "packing"], report=str(report))
    assert out.splitlines()[0].split() == ["least", "packing"]
    assert "Wrote" in err
    waits = report.read_text().rsplit("<figure>", 1)[1]
    assert "H708.0" in waits, "pods that wait equally long are a line across the chart"
    lines, _ = run("simulate", export, scenario, output="jsonl", quiet=True)
    pods = {one["pod"]: one for one in map(json.loads, lines.splitlines()) if one["type"] == "pod"}
    assert pods["default/there"]["left"] == "deleted"
    assert pods["default/waits"]["boundAt"] == 0.0


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(NODES)
    pods.write_text(PODS)
    out, _ = run("replay", trace=["openb", nodes, pods], policy=["most", "fragmentation"])
    assert out.splitlines()[0].split() == ["most", "fragmentation"]
    assert "fragmented" in out or "bound" in out
    with pytest.raises(CommandError, match="formats are openb"):
        run("replay", trace=["borg", nodes, pods])


@pytest.mark.parametrize(
    ("policy", "problem"),
    [("nonsense", "neither a file nor one of"), ("fragmentation", "no typical pods")],
)
def test_a_policy_that_cannot_be_is_an_error(tmp_path: Path, policy: str, problem: str) -> None:
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps({"kind": "Scenario", "spec": {}}))
    with pytest.raises(CommandError, match=problem):
        run("simulate", scenario, policy=[policy])


def test_a_wrong_scenario_names_every_field(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps({"kind": "Scenario", "spec": {"until": "x", "seed": -1}}))
    with pytest.raises(CommandError, match=r"(?s)spec\.seed.*spec\.until|spec\.until.*spec\.seed"):
        run("simulate", scenario)
