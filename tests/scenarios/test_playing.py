"""What happens in a scenario: who comes, waits, leaves and comes back, and when."""

from typing import Any

import pytest

from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest
from scheduling.framework.configuration.documents import default_configuration
from scheduling.scenarios import document, durations
from scheduling.scenarios.outcome import Outcome, PodEnd, PodTimeline
from scheduling.scenarios.playing import play
from tests.builders import make_node, make_pod

NODES = [make_node().named(name).offers(cpu=4, pods=10).manifest for name in ("a", "b")]
POD = make_pod().asks(cpu=3).manifest


def run(*steps: Manifest, objects: Any = NODES, **spec: Any) -> Outcome:
    whole = {"kind": "Scenario", "spec": {"objects": objects, "steps": list(steps), **spec}}
    return play(document.read(whole), default_configuration(), title="test")


def fates(found: Outcome) -> dict[str, PodTimeline]:
    return {fate.pod.removeprefix("default/"): fate for fate in found.fates}


def arrivals(**more: Any) -> list[Manifest]:
    return [{"pod": POD, **more}]


def test_pods_come_run_and_leave_room_for_those_that_wait() -> None:
    found = run({"at": "10s", "arrivals": arrivals(count=3, runs="1m")})
    bound = sorted((fate.bound_at, fate.left_at) for fate in found.fates)
    assert bound[:2] == [(10.0, 70.0), (10.0, 70.0)]
    last = bound[2][0]
    assert last is not None
    assert 70.0 <= last <= 71.0, "room is free at 70 s, and its backoff is long over"
    assert {fate.end for fate in found.fates} == {PodEnd.FINISHED}


def test_a_pod_that_fits_nowhere_says_why_and_does_not_keep_the_scenario_alive() -> None:
    found = run({"create": [make_pod().named("big").asks(cpu=64).manifest]})
    (fate,) = found.fates
    assert (fate.status, fate.bound_at) == ("unschedulable", None)
    assert "2 Insufficient cpu" in fate.message
    assert found.summary()["neverBound"] == 1


def test_a_node_fails_and_its_pods_leave_when_their_toleration_ends() -> None:
    """Admission gives pods 300 s of toleration for an unreachable node."""
    found = run(
        {"arrivals": arrivals(comesBack=True)},
        {"at": "100s", "cordon": [{"nodes": ["a", "b"]}]},
        {"at": "110s", "fail": [{"nodes": ["a", "b"]}]},
        {"at": "600s", "recover": [{"nodes": ["a"]}], "uncordon": [{"nodes": ["a"]}]},
        until="20m",
    )
    first, again = found.fates
    assert (first.end, first.left_at) == (PodEnd.EVICTED, 410.0)
    assert first.by == "taint node.kubernetes.io/unreachable"
    assert again.pod == f"{first.pod}-again-1"
    assert (again.came_at, again.node) == (410.0, "a")
    assert again.bound_at is not None
    assert again.bound_at >= 600.0


def test_a_taint_that_goes_in_time_moves_nobody() -> None:
    taint = {"key": "maintenance", "effect": "NoExecute"}
    tolerant = {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 60}
    pod = make_pod().with_("spec", "tolerations", value=[tolerant]).manifest
    both = [{"nodes": ["a", "b"], "taints": [taint]}]
    found = run(
        {"create": [pod]},
        {"at": "10s", "taint": both},
        {"at": "50s", "untaint": both},
        until="10m",
    )
    assert [fate.end for fate in found.fates] == [PodEnd.STAYS]


def test_a_deleted_node_takes_its_pods_along() -> None:
    found = run(
        {"create": [make_pod().named("x").manifest]},
        {"at": 5, "delete": [{"kind": "Node", "name": name} for name in ("a", "b")]},
        until=60,
    )
    (fate,) = found.fates
    assert (fate.end, fate.left_at) == (PodEnd.LOST, 5.0)
    assert found.samples[-1].nodes == 0


def test_a_higher_priority_takes_the_place_of_a_lower_one() -> None:
    priorities: list[Manifest] = [
        {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("high", 1000), ("low", 10))
    ]
    low = make_pod().asks(cpu=3).with_("spec", "priorityClassName", value="low").manifest
    high = make_pod().asks(cpu=3).named("high")
    high = high.with_("spec", "priorityClassName", value="high")
    found = run(
        {"arrivals": [{"pod": low, "count": 2, "comesBack": True}]},
        {"at": "1m", "create": [high.manifest]},
        objects=[*NODES, *priorities],
        until="10m",
    )
    told = fates(found)
    assert told["high"].bound_at is not None
    assert told["high"].bound_at <= 62.0
    victims = [fate for fate in found.fates if fate.end is PodEnd.PREEMPTED]
    assert [fate.by for fate in victims] == ["default/high"]
    assert [fate.status for fate in found.fates if "again" in fate.pod] == ["unschedulable"]
    assert found.summary()["preempted"] == 1


def test_a_victim_keeps_its_room_as_long_as_its_grace() -> None:
    high = make_pod().named("high").asks(cpu=3).with_("spec", "priorityClassName", value="high")
    cls = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    found = run(
        {"create": [make_pod().named("low").asks(cpu=3).manifest]},
        {"at": "1m", "create": [high.manifest]},
        objects=[NODES[0], cls],
        grace="30s",
        until="10m",
    )
    told = fates(found)
    assert told["low"].left_at == 90.0
    assert told["high"].bound_at is not None
    assert told["high"].bound_at >= 90.0


def test_a_repeated_step_brings_its_own_pods_each_time() -> None:
    pod = make_pod().named("tick").manifest
    found = run({"at": "1m", "every": "30s", "times": 3, "create": [pod]})
    assert [(fate.pod, fate.came_at) for fate in found.fates] == [
        ("default/tick-0", 60.0),
        ("default/tick-1", 90.0),
        ("default/tick-2", 120.0),
    ]


def test_the_same_seed_plays_alike() -> None:
    nodes = [make_node().named(f"n{n}").manifest for n in range(20)]
    step = {"arrivals": arrivals(count=30, over="10m", random=True, runs="5m")}

    def told(seed: int) -> list[tuple[str, str, float]]:
        found = run(step, objects=nodes, seed=seed)
        return [(fate.pod, fate.node, fate.came_at) for fate in found.fates]

    assert told(7) == told(7)
    assert told(7) != told(8)


def test_pods_on_nodes_at_the_beginning_count_and_come_back() -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1",
              "controller": True}]  # fmt: skip
    there = make_pod().named("web-1").on("a").with_("metadata", "ownerReferences", value=owner)
    found = run(
        {"at": 5, "delete": [{"kind": "Node", "name": "a"}]},
        objects=[*NODES, there.manifest],
        until=60,
    )
    assert [(fate.pod, fate.node) for fate in found.fates] == [
        ("default/web-1", "a"),
        ("default/web-1-again-1", "b"),
    ]


def test_what_lasts_between_two_events_counts_as_long_as_it_lasts() -> None:
    """Ten seconds nothing, then two of eight CPUs until the end, which is long after."""
    pod = make_pod().asks(cpu=2).manifest
    late = {"at": "10s", "arrivals": [{"pod": pod}]}
    found = run(late, until="1000s").summary()
    assert found["used:cpu"] == pytest.approx(0.25 * 0.99)
    early = {"arrivals": [{"pod": pod}]}
    found = run(early, late, {"at": "900s", "arrivals": [{"pod": pod}]}, until="1000s").summary()
    assert found["used:cpu"] == pytest.approx(0.25 * 1.0 + 0.25 * 0.99 + 0.25 * 0.1)


def test_who_was_there_at_the_beginning_is_no_pod_that_came_and_waited_for_nothing() -> None:
    there = [make_pod().named(f"there-{n}").on("a").asks(cpu=1).manifest for n in range(3)]
    blocking = make_pod().named("blocking").on("b").asks(cpu=3).manifest
    gone = {"at": "1m", "delete": [{"kind": "Pod", "name": "blocking"}]}
    found = run(
        {"arrivals": arrivals()}, gone, objects=[*NODES, *there, blocking], until="2m"
    ).summary()
    assert (found["pods"], found["bound"], found["neverBound"]) == (1, 1, 0)
    assert found["waitP50"] == found["waitMean"] >= 60


def test_pods_of_two_templates_come_at_moments_of_their_own() -> None:
    coming = [
        {"pod": make_pod(name).asks(cpu="1m").manifest, "count": 5, "over": "1h", "random": True}
        for name in ("web", "job")
    ]
    moments = [fate.came_at for fate in run({"arrivals": coming}).fates]
    assert len(set(moments)) == 10


def test_pods_that_wait_without_any_node_do_not_keep_the_scenario_alive() -> None:
    """No plugin refuses them, so they are tried after each backoff and not after five minutes."""
    gone = [{"kind": "Node", "name": name} for name in ("a", "b")]
    found = run({"delete": gone}, {"at": "10s", "arrivals": arrivals(count=3)})
    assert {fate.status for fate in found.fates} == {"unschedulable"}
    assert found.seconds < 120


def test_a_pod_on_a_node_that_is_not_there_is_told() -> None:
    """As in an export that was taken while a node went."""
    lost = make_pod().named("lost").on("x").asks(cpu=1).manifest
    found = run({"arrivals": arrivals()}, objects=[*NODES, lost], until="1m")
    assert found.warnings == ("second 0: pod default/lost is on node x, which does not exist",)
    assert found.summary()["bound"] == 1


def test_a_deleted_namespace_takes_its_pods_along() -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    gone = {"kind": "Namespace", "name": "default"}
    found = run(
        {"create": [space], "arrivals": arrivals()}, {"at": "10s", "delete": [gone]}, until="1m"
    )
    (fate,) = found.fates
    assert (fate.end, fate.left_at) == (PodEnd.DELETED, 10.0)
    assert (found.samples[-1].running, found.samples[-1].used["cpu"]) == (0, 0.0)


def test_a_pod_that_names_its_node_takes_its_room_there() -> None:
    named = make_pod().on("a").asks(cpu=3).manifest
    lost = make_pod().on("nowhere").manifest
    found = run(
        {"arrivals": [{"pod": named, "runs": "1m"}, {"pod": lost}]},
        {"at": "10s", "arrivals": arrivals(count=2)},
        until="30m",
    )
    first, second, *others = found.fates
    assert (first.node, first.has_fixed_node, first.left_at) == ("a", True, 60.0)
    assert (second.status, second.bound_at) == ("skipped", None)
    assert "names nowhere, which does not exist" in second.message
    assert sorted(one.bound_at or 0.0 for one in others)[1] >= 60.0, "the room on a is taken"


def test_a_pod_that_is_sent_away_the_moment_it_comes_does_not_come_for_ever() -> None:
    """It bears the taint for no time at all: the loop of coming and going lets time go on."""
    taint = {"key": "maintenance", "effect": "NoExecute"}
    at_once = {**taint, "operator": "Exists", "tolerationSeconds": 0}
    pod = make_pod().with_("spec", "tolerations", value=[at_once]).manifest
    found = run(
        {"taint": [{"nodes": ["a", "b"], "taints": [taint]}]},
        {"at": "1s", "arrivals": [{"pod": pod, "comesBack": True}]},
        until="1h",
    )
    assert 10 < len(found.fates) < 30
    assert {fate.end for fate in found.fates} == {PodEnd.EVICTED}


def test_a_pod_that_is_put_on_a_node_later_came_later() -> None:
    placed = make_pod().named("placed").on("a").manifest
    found = run({"at": "50s", "create": [placed]}, until="2m")
    (fate,) = found.fates
    assert (fate.came_at, fate.bound_at, fate.node) == (50.0, 50.0, "a")


@pytest.mark.parametrize("comes", ["create", "arrivals", "replaced"])
def test_who_waits_for_a_pod_is_tried_when_that_is_put_on_a_node(comes: str) -> None:
    wanted = make_pod().named("wanted").on("a").labelled(app="x").manifest
    other = make_pod().named("wanted").on("a").manifest
    waits = make_pod().named("waits").near("kubernetes.io/hostname", app="x").manifest
    nodes = [make_node().named("a").labelled({"kubernetes.io/hostname": "a"}).manifest]
    came = {"arrivals": [{"pod": wanted}]} if comes == "arrivals" else {"create": [wanted]}
    found = run(
        {"create": [waits, *([other] if comes == "replaced" else [])]},
        {"at": "20s", **came},
        objects=nodes,
        until="2m",
    )
    assert fates(found)["waits"].bound_at == 20.0, "its backoff is over"


def test_the_latest_pod_of_a_name_is_deleted_and_what_is_not_there_is_told() -> None:
    web = make_pod().named("web").manifest
    gone = {"kind": "Pod", "name": "web"}
    found = run(
        {"create": [web]},
        {"at": "10s", "create": [web]},
        {"at": "20s", "delete": [gone]},
        {"at": "30s", "delete": [gone]},
        {
            "at": "40s",
            "delete": [gone, {"kind": "Node", "name": "c"}],
            "cordon": [{"nodes": ["d"]}],
        },
        until="1m",
    )
    assert [fate.left_at for fate in found.fates] == [30.0, 20.0]
    assert found.warnings == (
        "second 40: there is no pod default/web to delete",
        "second 40: there is no node c to delete",
        "second 40: there is no node d to change",
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"steps": [{"at": "soon"}]}, "spec.steps[0].at"),
        ({"steps": [{"times": 2}]}, "spec.steps[0].every"),
        ({"steps": [{"taint": [{"nodes": ["a"], "taints": [{"key": "x"}]}]}]}, "effect"),
        ({"steps": [{"cordon": [{}]}]}, "spec.steps[0].cordon[0].nodes"),
        ({"steps": [{"delete": [{"kind": "Gadget", "name": "a"}]}]}, "delete[0].kind"),
        ({"steps": [{"arrivals": [{"count": 2}]}]}, "arrivals[0].pod"),
        ({"steps": [{"arrivals": [{"pod": {"spec": 5}}]}]}, "arrivals[0].pod.spec"),
        ({"objects": [{"kind": "Node", "metadata": {}}]}, "spec.objects[0].metadata.name"),
        ({"configuration": {"profiles": 5}}, "spec.configuration.profiles"),
        ({"steps": [{"arrivals": [{"pod": POD, "count": 10**7}]}]}, "arrivals[0].count"),
        (
            {"steps": [{"times": 10**5, "every": 1, "arrivals": [{"pod": POD, "count": 11}]}]},
            "arrivals[0].count",
        ),
        ({"steps": [{"cordon": [{"matchLabels": {"a": True}}]}]}, "cordon[0].matchLabels.a"),
        ({"seed": -1}, "spec.seed"),
        ({"untli": "1h"}, "spec.untli"),
    ],
)
def test_every_wrong_field_is_named(spec: Manifest, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        document.read({"kind": "Scenario", "spec": spec})
    assert any(field in error.field for error in refused.value.errors), refused.value.errors


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("2d", 172800.0), (5, 5.0), ("250ms", 0.25),
     ("", None), ("h", None), ("1x", None), (-1, None), (True, None), ("5m x", None)],
)  # fmt: skip
def test_durations(text: object, seconds: float | None) -> None:
    assert durations.read(text) == seconds


def test_a_gang_waits_for_its_group_and_its_pods_and_comes_as_a_whole() -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }  # fmt: skip
    members = [
        make_pod().named(f"p{n}").asks(cpu=2).with_("spec", "schedulingGroup", value={
            "podGroupName": "g"}).manifest
        for n in range(3)
    ]  # fmt: skip
    found = run(
        {"create": members[:2]}, {"at": "10s", "create": [group]},
        {"at": "20s", "create": members[2:]},
    )  # fmt: skip
    assert {fate.bound_at for fate in found.fates} == {20.0}
