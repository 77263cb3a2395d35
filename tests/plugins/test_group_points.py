"""Plugins of other packages place groups: where, whether, how well, and who leaves for them."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clusterstate.objects.values.pod_group import PodGroup
from scheduling.engine.deciding import Decider
from scheduling.engine.groups import GroupDecision, schedule_group
from scheduling.engine.reference.cycle import Options
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.configuration import EXTENSION_POINTS, PluginUse
from scheduling.framework.runtime import Framework
from scheduling.framework.status import SUCCESS, Code, Status, unschedulable
from scheduling.framework.types import Nomination, PodInfo
from scheduling.framework.v1 import NodeTable, Placement
from scheduling.plugins import installed
from tests.builders import make_node, make_pod
from tests.harness import build_snapshot, kubernetes_framework, to_place
from tests.plugins.packages import on_path, write_guide

RACK = "example.com/rack"


def cluster(*racks: str, cpu: str = "2") -> Snapshot:
    nodes = [
        make_node(f"n{number}")
        .offers(cpu=cpu, memory="64Gi", pods="110")
        .labelled({RACK: rack})
        .manifest
        for number, rack in enumerate(racks)
    ]
    return build_snapshot({"nodes": nodes, "pods": []})


def with_plugin(plugin: Any) -> Framework:
    """Return the default profile with a plugin at the points of groups whose methods it has."""
    built = kubernetes_framework()
    known = {
        one.name: one
        for one in (
            *built.filter_plugins, *built.pre_filter_plugins, *built.score_plugins,
            *built.post_filter_plugins, *built.queue_sort, *built.pre_enqueue_plugins,
            *built.bind_plugins,
        )
    }  # fmt: skip
    points = dict(built.profile.points)
    for point in EXTENSION_POINTS[-4:]:
        if hasattr(plugin, installed.METHODS[point][0][0]):
            points[point] = (PluginUse(plugin.name),)
    profile = msgspec.structs.replace(built.profile, points=points)
    return Framework(profile, {**known, plugin.name: plugin})


def decide(snapshot: Snapshot, plugin: Any, count: int, *, quick: bool = True, **spec: Any):
    policy = {"schedulingPolicy": {"gang": {"minCount": count}}, **spec}
    manifest = {"metadata": {"name": "g", "namespace": "default"}, "spec": policy}
    group = msgspec.convert(manifest, PodGroup)
    snapshot.groups.set(group)
    framework = with_plugin(plugin)
    pods = [
        make_pod(f"p{n}")
        .asks(cpu="1")
        .with_("spec", "schedulingGroup", value={"podGroupName": "g"})
        .build()
        for n in range(count)
    ]
    return schedule_group(
        snapshot, framework, group.key, [to_place(snapshot, one) for one in pods],
        Options(seed=1), decider=Decider(snapshot, framework) if quick else None,
    )  # fmt: skip


def nodes(found: GroupDecision) -> list[str]:
    return sorted(one.node_name for one in found.decisions)


@pytest.mark.parametrize("quick", [False, True])
def test_the_example_of_the_guide_places_a_group(tmp_path: Path, quick: bool) -> None:
    write_guide(tmp_path)
    with on_path(tmp_path):
        plugin = importlib.import_module("quiet_racks").QuietRacks()
    # Rack a takes one pod, b all on one node, c on two.
    snapshot = build_snapshot(
        {
            "nodes": [
                make_node(name)
                .offers(cpu=cpu, memory="64Gi", pods="110")
                .labelled({RACK: rack})
                .manifest
                for name, cpu, rack in
                (("a1", "1", "a"), ("b1", "4", "b"), ("c1", "1", "c"), ("c2", "1", "c"))
            ],
            "pods": [],
        }
    )  # fmt: skip
    found = decide(snapshot, plugin, 2, quick=quick)
    assert nodes(found) == ["c1", "c2"]
    assert snapshot.assumed_count == 2
    refused = decide(cluster("a", "b"), plugin, 2)
    assert not refused.placed
    assert "all pods would be on one node" in refused.status.message


class Chooser:
    """Names two racks, and scores the second one higher."""

    name = "Chooser"

    def generate_placements(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: NodeTable
    ) -> Sequence[Placement]:
        return [Placement.of({RACK: rack}, len(pods)) for rack in ("a", "b")]

    def score_placement(
        self, group: PodGroup, placed: Sequence[tuple[PodInfo, str]], snapshot: NodeTable
    ) -> int:
        return 9 if all(node == "n1" for _, node in placed) else 1


def test_the_best_placement_is_taken_and_no_constraint_is_broken():
    snapshot = cluster("a", "b", "c")
    assert nodes(decide(snapshot, Chooser(), 2)) == ["n1", "n1"]
    assert snapshot.assumed_count == 2
    constraint = {"topology": [{"key": "zone"}]}
    broken = decide(cluster("a", "b"), Chooser(), 2, schedulingConstraints=constraint)
    assert not broken.placed


class Room:
    """Nominates the first pod for n0."""

    name = "Room"

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer

    def pod_group_post_filter(
        self, group: PodGroup, pods: Sequence[PodInfo], snapshot: NodeTable, status: Status
    ) -> tuple[Sequence[Nomination | None], Status]:
        if self.answer is not None:
            found: tuple[Sequence[Nomination | None], Status] = self.answer
            return found
        return [Nomination(node_name="n0"), *[None] * (len(pods) - 1)], SUCCESS


def test_a_group_without_a_place_gets_the_nominations_of_a_plugin():
    snapshot = cluster("a", cpu="1")
    found = decide(snapshot, Room(), 3)
    assert not found.placed
    assert snapshot.nominated_node_of("default/p0") == "n0"
    assert "waiting for preemption" in found.status.message
    declined = decide(cluster("a", cpu="1"), Room(([], unschedulable("no"))), 3)
    assert "preemption" not in declined.status.message


def test_a_plugin_that_misbehaves_fails_the_group_and_leaves_nothing_behind():
    snapshot = cluster("a")
    wrong = Room(([None], SUCCESS))
    found = decide(snapshot, wrong, 3)
    assert found.status.code is Code.ERROR
    assert 'running PodGroupPostFilter plugin "Room"' in found.status.message

    class Raises:
        name = "Raises"

        def placement_feasible(self, *arguments: object) -> Status:
            raise RuntimeError("broken")

    found = decide(snapshot, Raises(), 2)
    assert found.status.code is Code.ERROR
    assert "RuntimeError: broken" in found.decisions[0].message
    assert snapshot.assumed_count == 0
