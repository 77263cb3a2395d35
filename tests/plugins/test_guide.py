"""What `docs/plugins.md` shows is what happens: its packages are installed and its commands run."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduling.engine.deciding import Decider
from scheduling.engine.fast import fast_lane
from scheduling.engine.fast.run import Run
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration import PluginUse, Profile
from scheduling.framework.runtime import Framework
from scheduling.plugins import installed
from scheduling.plugins.priority_sort import PrioritySort
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.harness import framework_with
from tests.plugins.packages import ROOT, guide_blocks, install, on_path, write_guide


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the guide, as their first lines name them."""
    folder = tmp_path_factory.mktemp("guide")
    write_guide(folder)
    install(folder, folder / "installed")
    return folder


def test_the_example_gives_what_the_guide_shows(project: Path) -> None:
    blocks = guide_blocks()
    (at,) = [n for n, (kind, text) in enumerate(blocks) if kind == "sh" and "simulate" in text]
    command, shown = blocks[at][1].split(), blocks[at + 1][1]
    assert command[:3] == [".venv/bin/python", "manage.py", "simulate"]
    found = subprocess.run(
        [sys.executable, *command[1:3], str(project / command[3])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(project / "installed")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == shown


def test_the_packages_plugins_act_where_their_methods_say(project: Path) -> None:
    with on_path(project / "installed"):
        points = {
            name: sorted(one.info.points)
            for name, one in installed.plugins().items()
            if one.package != "stowage"
        }
    assert points == {
        "BlinkingLightScorer": ["score"],
        "DriverFirst": ["postBind"],
        "GangOfTwo": ["permit"],
        "QuietNodes": ["filter", "score"],
    }


def test_the_fast_plugin_says_the_truth_about_itself(project: Path) -> None:
    with on_path(project / "installed"):
        module = importlib.import_module("test_solar_power")
        module.test_what_it_says_about_itself_is_true()


def test_the_fast_plugins_pods_are_decided_by_the_loop(project: Path) -> None:
    with on_path(project / "installed"), lanes.only(fast_lane):
        plugin = importlib.import_module("solar_power").SolarPower()
        framework = framework_with(plugin)
        snapshot = Snapshot()
        for number in range(4):
            labels = {"example.com/watts": str(50 * number)}
            snapshot.set_node(make_node(f"n{number}").labelled(labels).build())
        info = snapshot.intern(from_pod(make_pod("p").asks(cpu="100m").build()))
        pods = [PodToPlace(number, info) for number in range(10)]
        decider = Decider(snapshot, framework)
        decided = schedule_batch(snapshot, framework, pods, Options(seed=1), decider=decider)
    assert [type(part) for part in decided.parts] == [Run]
    assert "n0" not in {decision.node_name for decision in decided}


def test_a_plugin_sees_annotations_of_the_pod_itself(project: Path) -> None:
    """R27: they are no part of the scheduling class, so it asks for the pod as it is stored."""
    stored = {"n": {"metadata": {"annotations": {"example.com/rack": "2"}}}, "m": {"metadata": {}}}

    class Pods:
        def manifests(self, keys: list[str]) -> dict[str, Any]:
            return {key: stored[key] for key in keys if key in stored}

    with on_path(project / "installed"):
        plugin = importlib.import_module("chosen_rack").ChosenRack()
        points = {"filter": (PluginUse(plugin.name),), "queueSort": (PluginUse("PrioritySort"),)}
        plugins = {plugin.name: plugin, "PrioritySort": PrioritySort()}
        framework = Framework(Profile(points=points), plugins)
        snapshot = Snapshot()
        for number in range(3):
            labels = {"example.com/rack": str(number)}
            snapshot.set_node(make_node(f"n{number}").labelled(labels).build())
        info = snapshot.intern(from_pod(make_pod("p").build()))
        asked = [PodToPlace(key, info) for key in ("n", "m", "gone")]

        def chosen() -> list[str]:
            return [schedule_pod(snapshot, framework, pod).node_name for pod in asked]

        assert chosen() == ["n0", "n0", "n0"]
        plugin.use_stored_pods(Pods())
        assert chosen() == ["n2", "n0", "n0"]
