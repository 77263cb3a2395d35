"""A group is placed as one: enough of it or nothing, in one domain, with victims or without."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.objects.values.workloads import PodDisruptionBudget
from scheduling.engine.deciding import Decider
from scheduling.engine.fast import fast_lane
from scheduling.engine.groups import GroupDecision, schedule_group
from scheduling.engine.preemption import row_program
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.reference.decision import Decisions
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.configuration.plugin_args import GangSchedulingArgs
from scheduling.framework.pod_groups import (
    GANG_SCHEDULING,
    GroupOutcome,
    MemberResult,
    best_placement,
    try_members,
)
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.simulation.gangs import shortfall
from tests.builders import PodBuilder, make_node, make_pod
from tests.engine import lanes
from tests.forms import many
from tests.harness import build_snapshot, kubernetes_framework, place, to_place

RACK = "rack"


def group(name: str = "g", count: int = 0, **spec: Any) -> PodGroup:
    policy = {"gang": {"minCount": count}} if count else {"basic": {}}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingPolicy": policy, **spec},
        },
        PodGroup,
    )


def member(name: str, cpu: str = "1", of: str = "g") -> PodBuilder:
    return make_pod(name).asks(cpu=cpu).with_("spec", "schedulingGroup", value={"podGroupName": of})


def cluster(*sizes: str, racks: tuple[str, ...] = (), pods: Any = ()) -> Snapshot:
    nodes = []
    for number, cpu in enumerate(sizes):
        node = make_node(f"n{number}").offers(cpu=cpu, memory="64Gi", pods="110")
        nodes.append(node.labelled({RACK: racks[number]}) if racks else node)
    return build_snapshot(
        {"nodes": [one.manifest for one in nodes], "pods": [one.manifest for one in pods]}
    )


def decide(
    snapshot: Snapshot,
    made: PodGroup,
    *pods: PodBuilder,
    decider: bool = False,
    seed: int = 1,
    now: float | None = None,
) -> GroupDecision:
    snapshot.groups.set(made)
    framework = kubernetes_framework()
    return schedule_group(
        snapshot, framework, made.key, [to_place(snapshot, one.build()) for one in pods],
        Options(seed=seed), decider=Decider(snapshot, framework) if decider else None, now=now,
    )  # fmt: skip


def nodes_of(snapshot: Snapshot, decision: GroupDecision) -> dict[str, str]:
    return {
        str(one.key).partition("/")[2]: snapshot.node_of(one.key) or ""
        for one in decision.decisions
    }


def test_a_gang_that_fits_is_assumed_as_a_whole():
    snapshot = cluster("2", "2")
    found = decide(snapshot, group(count=3), *(member(f"p{n}") for n in range(3)))
    assert found.placed
    assert min(nodes_of(snapshot, found).values()) != ""
    assert snapshot.assumed_count == 3


def test_a_gang_that_lacks_room_for_one_pod_leaves_nothing_behind_and_says_what_it_lacks():
    snapshot = cluster("1", "1")
    before = snapshot.requested.copy()
    found = decide(snapshot, group(count=3), *(member(f"p{n}") for n in range(3)))
    assert not found.placed
    assert snapshot.assumed_count == 0
    assert (snapshot.requested == before).all()
    assert found.status.message.startswith("2 of 3 needed pods of group g have a place: 0/2 nodes")
    told = {one.message for one in found.decisions}
    assert "2 of 3 needed pods of group g have a place" in " ".join(told)
    assert all(GANG_SCHEDULING in one.rejected_by for one in found.decisions)


def test_pods_beyond_the_minimum_need_no_place():
    snapshot = cluster("2")
    found = decide(snapshot, group(count=2), *(member(f"p{n}") for n in range(3)))
    assert found.placed
    assert [one.scheduled for one in found.decisions].count(True) == 2


def test_a_late_member_counts_those_that_are_placed():
    placed = [member(f"p{n}").on("n0") for n in range(2)]
    snapshot = cluster("3", pods=placed)
    late = decide(snapshot, group(count=3), member("p2"))
    assert late.placed
    full = cluster("2", pods=placed)
    assert not decide(full, group(count=3), member("p2")).placed


def test_of_domains_that_hold_a_group_1_36_takes_the_first_and_later_versions_the_smallest():
    for version, expected in ((Compatibility.V1_36, {"n0", "n1"}), (Compatibility.V1_37, {"n2"})):
        snapshot = cluster("2", "2", "2", racks=("x", "x", "y"))
        snapshot.compatibility = version
        found = decide(snapshot, group(count=2, **in_rack()), member("p0"), member("p1"))
        assert set(nodes_of(snapshot, found).values()) <= expected


def test_a_basic_group_places_what_fits():
    snapshot = cluster("1")
    found = decide(snapshot, group(), member("p0"), member("p1"))
    assert [one.scheduled for one in found.decisions] == [True, False]
    assert found.placed


def in_rack(**more: Any) -> dict[str, Any]:
    return {"schedulingConstraints": {"topology": [{"key": RACK}]}, **more}


@pytest.mark.parametrize("decider", [False, True])
def test_all_pods_go_to_one_domain_the_smallest_that_holds_them(decider: bool) -> None:
    racks = ("a", "a", "b", "b", "c")
    snapshot = cluster("4", "4", "2", "1", "1", racks=racks)
    pods = [member(f"p{n}") for n in range(3)]
    found = decide(snapshot, group(count=3, **in_rack()), *pods, decider=decider)
    assert found.placed
    assert set(nodes_of(snapshot, found).values()) <= {"n2", "n3"}
    assert snapshot.assumed_count == 3
    record = snapshot.pod("default/p0")
    assert record is not None
    assert record.info is snapshot.intern(to_place(snapshot, pods[0].build()).info)


def test_no_domain_that_holds_the_gang_is_a_refusal_of_all():
    snapshot = cluster("2", "2", "2", racks=("a", "b", "c"))
    found = decide(snapshot, group(count=3, **in_rack()), *(member(f"p{n}") for n in range(3)))
    assert not found.placed
    assert snapshot.assumed_count == 0
    assert found.status.code is Code.UNSCHEDULABLE
    nowhere = best_placement([], lambda place: GroupOutcome(SUCCESS), lambda tried: [])
    assert nowhere.status.reasons == ("no feasible placements found",)


def test_placed_members_fix_the_domain():
    placed = [member("p0").on("n1")]
    snapshot = cluster("9", "2", racks=("a", "b"), pods=placed)
    found = decide(snapshot, group(count=2, **in_rack()), member("p1"))
    assert nodes_of(snapshot, found) == {"p1": "n1"}
    full = cluster("9", "1", racks=("a", "b"), pods=placed)
    assert not decide(full, group(count=2, **in_rack()), member("p1")).placed


def low(name: str, node: str, cpu: str = "1", **more: Any) -> PodBuilder:
    return make_pod(name).asks(cpu=cpu).on(node).with_("spec", "priority", value=0)


def high(name: str) -> PodBuilder:
    return member(name).with_("spec", "priority", value=100)


def victims_of(found: GroupDecision) -> set[str]:
    return {str(record.key) for one in found.decisions for record in one.victims}


def test_a_group_displaces_as_many_as_all_of_it_needs_and_no_more():
    pods = [low("a", "n0"), low("b", "n0"), low("c", "n1"), low("d", "n1")]
    snapshot = cluster("2", "2", pods=pods)
    found = decide(snapshot, group(count=3), *(high(f"p{n}") for n in range(3)))
    assert not found.placed
    assert len(victims_of(found)) == 3
    nominated = [one.nomination.node_name for one in found.decisions if one.nomination]
    assert sorted(nominated).count("n0") in (1, 2)
    assert len(nominated) == 3
    assert snapshot.assumed_count == 0
    assert snapshot.pod_total == 4


@settings(max_examples=many(15, 200), deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 3), max_size=4), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.booleans(),
)
def test_victims_come_back_by_sums_as_they_do_by_all_filters(there, wants, decider):
    """Pods with host ports are asked of every filter, pods without by their sums alone."""
    placed = [
        low(f"v{node}-{number}", f"n{node}", str(cpu))
        for node, sizes in enumerate(there)
        for number, cpu in enumerate(sizes)
    ]
    found = []
    for with_ports in (False, True):
        pods = [
            member(f"p{n}", str(cpu)).with_("spec", "priority", value=100)
            for n, cpu in enumerate(wants)
        ]
        if with_ports:
            pods = [one.host_port(8000 + n) for n, one in enumerate(pods)]
        snapshot = cluster(*(str(max(sum(sizes), 1)) for sizes in there), pods=placed)
        before = snapshot.requested.copy()
        decision = decide(snapshot, group(count=len(wants)), *pods, decider=decider)
        found.append(victims_of(decision))
        if not decision.placed:
            assert (snapshot.requested == before).all()
    assert found[0] == found[1]


def test_nobody_leaves_for_a_group_that_would_not_fit_then():
    pods = [low("a", "n0"), low("b", "n0")]
    snapshot = cluster("2", pods=pods)
    before = snapshot.requested.copy()
    found = decide(snapshot, group(count=3), *(high(f"p{n}") for n in range(3)))
    assert victims_of(found) == set()
    assert (snapshot.requested == before).all()


def test_a_group_that_leaves_together_leaves_as_a_whole_or_is_spared():
    gang = [low(f"g{n}", f"n{n}") for n in range(2)]
    gang = [one.with_("spec", "schedulingGroup", value={"podGroupName": "t"}) for one in gang]
    snapshot = cluster("1", "1", "1", pods=[*gang, low("single", "n2")])
    snapshot.groups.set(group("t", 2, disruptionMode={"all": {}}))
    found = decide(snapshot, group(count=1), high("p0"))
    assert victims_of(found) == {"default/single"}
    found = decide(snapshot, group(count=2), high("p0"), high("p1"))
    assert victims_of(found) == {"default/g0", "default/g1"} or len(victims_of(found)) == 3


@pytest.mark.parametrize(("lost", "leaves"), [({}, "b"), ({"b": "7200"}, "a"), ({"a": "60"}, "a")])
def test_the_group_that_loses_the_least_work_leaves(lost, leaves):
    """One started an hour ago, the other half an hour ago; the annotation takes the place of it."""
    pods = []
    for number, (name, at) in enumerate((("a", "11:00"), ("b", "11:30"))):
        started = low(name, f"n{number}").with_("status", "startTime", value=f"2026-03-01T{at}:00Z")
        pods.append(started.with_("spec", "schedulingGroup", value={"podGroupName": name}))
    snapshot = cluster("1", "1", pods=pods)
    for name in "ab":
        made = group(name, 1, disruptionMode={"all": {}})
        notes = {"stowage.dev/lost-work": lost[name]} if name in lost else {}
        meta = msgspec.structs.replace(made.metadata, annotations=notes)
        snapshot.groups.set(msgspec.structs.replace(made, metadata=meta))
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    found = decide(snapshot, group(count=1), high("p0"), now=noon)
    assert victims_of(found) == {f"default/{leaves}"}


def test_a_budget_that_counts_groups_counts_one_that_leaves_once():
    """The group is less important than the pod beside it, and the budget lets one group leave."""
    of = {"podGroupName": "t"}
    gang = [low(f"g{n}", "n0").with_("spec", "schedulingGroup", value=of) for n in range(2)]
    gang = [one.labelled({"app": "t"}) for one in gang]
    beside = low("single", "n1").asks(cpu="2").with_("spec", "priority", value=50)
    for unit, leaving in (("PodGroup", {"default/g0", "default/g1"}), ("Pod", {"default/single"})):
        snapshot = cluster("2", "2", pods=[*gang, beside])
        snapshot.groups.set(group("t", 2, disruptionMode={"all": {}}))
        budget = {
            "metadata": {"name": "b", "namespace": "default",
                         "annotations": {"stowage.dev/disruption-unit": unit}},
            "spec": {"selector": {"matchLabels": {"app": "t"}}},
            "status": {"disruptionsAllowed": 1},
        }  # fmt: skip
        snapshot.set_budget(msgspec.convert(budget, PodDisruptionBudget))
        found = decide(snapshot, group(count=1), high("p0").asks(cpu="2"))
        assert victims_of(found) == leaving


def test_each_pod_of_a_group_that_a_budget_holds_back_is_displaced_last():
    """Pods that leave one by one, and less important than the pod beside them."""
    of = {"podGroupName": "t"}
    gang = [low(f"g{n}", f"n{n}").with_("spec", "schedulingGroup", value=of) for n in range(2)]
    gang = [one.labelled({"app": "t"}) for one in gang]
    beside = low("single", "n2").with_("spec", "priority", value=50)
    snapshot = cluster("1", "1", "1", pods=[*gang, beside])
    snapshot.groups.set(group("t", 2))
    budget = {
        "metadata": {"name": "b", "namespace": "default",
                     "annotations": {"stowage.dev/disruption-unit": "PodGroup"}},
        "spec": {"selector": {"matchLabels": {"app": "t"}}},
        "status": {"disruptionsAllowed": 0},
    }  # fmt: skip
    snapshot.set_budget(msgspec.convert(budget, PodDisruptionBudget))
    assert victims_of(decide(snapshot, group(count=1), high("p0"))) == {"default/single"}


NOT_READY = "node.kubernetes.io/not-ready"
NOON = datetime(2026, 7, 29, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("taints", "cpu", "seconds", "now", "waits"),
    [
        ([NOT_READY], "2", 90, NOON + 60, True),
        ([NOT_READY], "2", 0, NOON + 60, False),
        ([NOT_READY], "2", 90, NOON + 90, False),
        ([NOT_READY], "2", 90, None, False),
        ([NOT_READY, "other"], "2", 90, NOON, False),
        ([NOT_READY], "1", 90, NOON, False),
    ],
    ids=["waits", "off", "too old", "no time", "another taint", "too small"],
)
@pytest.mark.parametrize("decider", [False, True])
def test_a_group_displaces_nobody_while_a_node_starts_that_would_take_it(
    taints: list[str], cpu: str, seconds: int, now: float | None, waits: bool, decider: bool
) -> None:
    snapshot = cluster("2", pods=[low("a", "n0"), low("b", "n0")])
    starting = make_node("n1").offers(cpu=cpu, memory="64Gi", pods="110")
    starting = starting.with_("metadata", "creationTimestamp", value="2026-07-29T12:00:00Z")
    for taint in taints:
        starting = starting.tainted(taint)
    row = snapshot.set_node(starting.build())
    framework = kubernetes_framework()
    framework.gang_args = GangSchedulingArgs(starting_node_seconds=seconds)
    made = group(count=2)
    snapshot.groups.set(made)
    pods = [to_place(snapshot, high(f"p{n}").build()) for n in range(2)]
    found = schedule_group(
        snapshot, framework, made.key, pods, Options(seed=1),
        decider=Decider(snapshot, framework) if decider else None, now=now,
    )  # fmt: skip
    assert not found.placed
    assert bool(victims_of(found)) is not waits
    assert found.again_at == (NOON + 90 if waits else None)
    assert [taint.key for taint in snapshot.node(row).spec.taints] == taints
    text = (
        "preemption: not before 2026-07-29T12:01:30Z, since the group fits once starting nodes are"
        " ready: n1"
    )
    assert (text in found.status.message) is waits
    assert all(one.message.endswith(text) for one in found.decisions) is waits
    lacks = shortfall(snapshot, framework, made.key, pods, now)
    assert lacks is not None
    assert lacks.message.endswith(f"as on 1 free node; {text}") is waits


def test_a_group_that_never_preempts_displaces_nobody():
    snapshot = cluster("1", pods=[low("a", "n0")])
    never = group(count=1, preemptionPolicy="Never")
    assert victims_of(decide(snapshot, never, high("p0"))) == set()


@settings(max_examples=many(15, 300), deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(0, 9),
)
def test_the_fast_way_comes_to_what_the_rule_comes_to(sizes, wants, count, seed):
    """A group is placed just where Kubernetes' rule, pod by pod, says so; else nothing changed."""
    pods = [member(f"p{n}", cpu=str(cpu)) for n, cpu in enumerate(wants)]
    outcomes = []
    for decider in (False, True):
        snapshot = cluster(*map(str, sizes))
        before = snapshot.requested.copy()
        found = decide(snapshot, group(count=count), *pods, decider=decider, seed=seed)
        there = list(nodes_of(snapshot, found).values())
        outcomes.append((found.placed, sorted(there)))
        if not found.placed:
            assert (snapshot.requested == before).all()
    plain = cluster(*map(str, sizes))
    plain.groups.set(group(count=count))
    placed = 0

    def attempt(builder: PodBuilder) -> MemberResult:
        nonlocal placed
        alone = decide(
            plain,
            group("alone"),
            builder.with_("spec", "schedulingGroup", value={"podGroupName": "alone"}),
            seed=seed,
        )
        if not alone.placed:
            return MemberResult(status=Status(Code.UNSCHEDULABLE))
        placed += 1
        waits = None if placed >= count else Status(Code.WAIT)
        return MemberResult(host="n", permit=waits)

    rule = try_members(pods, attempt)
    assert outcomes[0] == outcomes[1]
    if len(set(wants)) == 1:
        assert outcomes[0][0] == rule.status.ok


def test_pods_of_a_class_that_fits_again_are_not_diagnosed_before_they_are_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot, framework = cluster("2"), kubernetes_framework()
    decider = Decider(snapshot, framework)
    pods = [to_place(snapshot, make_pod(f"p{n}").asks(cpu="1").build()) for n in range(5)]

    def decide_these(*pods: PodToPlace) -> Decisions:
        return schedule_batch(snapshot, framework, pods, Options(seed=1), decider=decider)

    with lanes.only(fast_lane, row_program):
        assert [one.scheduled for one in decide_these(*pods[:3])] == [True, True, False]
        snapshot.forget(pods[0].key)
        assert decide_these(pods[3])[0].scheduled
        snapshot.forget(pods[1].key)
        diagnosed: list[object] = []
        monkeypatch.setattr(decider, "_diagnose", lambda pod, *rest: diagnosed.append(pod.key))
        assert decide_these(pods[4])[0].scheduled
    assert diagnosed == []


def test_place_keeps_pods_of_groups_by_group():
    snapshot = cluster("4")
    place(snapshot, member("p0").on("n0").build())
    assert [one.key for one in snapshot.members_of(("default", "g"))] == ["default/p0"]


BLOCK, LEVELS = "block", {"stowage.dev/preferred-topology": "block, rack"}


def tree(*sizes: tuple[str, str, str], pods: Any = ()) -> Snapshot:
    """Return nodes of so many CPUs in a block and a rack."""
    nodes = [
        make_node(f"n{number}")
        .offers(cpu=cpu, memory="64Gi", pods="110")
        .labelled({BLOCK: block, RACK: rack})
        .manifest
        for number, (cpu, block, rack) in enumerate(sizes)
    ]
    return build_snapshot({"nodes": nodes, "pods": [one.manifest for one in pods]})


def preferring(count: int, **spec: Any) -> PodGroup:
    made = group(count=count, **spec)
    metadata = msgspec.structs.replace(made.metadata, annotations=LEVELS)
    return msgspec.structs.replace(made, metadata=metadata)


def racks_of(snapshot: Snapshot, found: GroupDecision) -> list[str]:
    labels = [snapshot.node(one.row).metadata.labels for one in found.decisions if one.scheduled]
    return sorted(f"{one[BLOCK]}/{one[RACK]}" for one in labels)


@pytest.mark.parametrize("decider", [False, True])
@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, ["a/r2"]),  # the smallest rack that holds all; r1 of another block is another rack
        (4, ["b/r1"]),
        (5, ["a/r1", "a/r2"]),  # a block, and few of its racks
        (9, ["a/r1", "a/r2", "a/r3", "b/r1"]),  # no block holds all
    ],
)
def test_a_preferred_group_is_in_the_narrowest_domain_that_holds_it(
    count: int, expected: list[str], decider: bool
) -> None:
    nodes = [("3", "a", "r1"), ("2", "a", "r2"), ("4", "b", "r1"), ("1", "a", "r3")]
    snapshot = tree(*nodes)
    pods = [member(f"p{n}") for n in range(count)]
    found = decide(snapshot, preferring(count), *pods, decider=decider)
    assert found.placed
    assert sorted(set(racks_of(snapshot, found))) == expected
    assert snapshot.assumed_count == count


def test_a_preferred_level_stays_within_the_required_one_and_gives_way():
    nodes = [("2", "a", "r1"), ("2", "a", "r2"), ("9", "b", "r1")]
    snapshot = tree(*nodes, pods=[make_pod("x").asks(cpu="8").on("n2")])
    required = {"schedulingConstraints": {"topology": [{"key": BLOCK}]}}
    pods = [member(f"p{n}") for n in range(4)]
    found = decide(snapshot, preferring(4, **required), *pods)
    assert racks_of(snapshot, found) == ["a/r1", "a/r1", "a/r2", "a/r2"]
    full = tree(
        *nodes, pods=[make_pod("x").asks(cpu="8").on("n2"), make_pod("y").asks(cpu="1").on("n0")]
    )
    assert not decide(full, preferring(4, **required), *pods).placed
    assert decide(full, preferring(4), *pods).placed


def test_late_members_go_beside_the_others_where_they_fit():
    nodes = [("9", "b", "r1"), ("2", "a", "r1"), ("1", "a", "r2")]
    for late, expected in ((1, ["a/r1"]), (2, ["a/r1", "a/r2"])):
        snapshot = tree(*nodes, pods=[member("p0").on("n1")])
        pods = [member(f"q{n}") for n in range(late)]
        found = decide(snapshot, preferring(1), *pods)
        assert racks_of(snapshot, found) == expected
