"""A pod refused by an earlier refusal hears what a fresh look says, whatever happened between."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import PodDisruptionBudget
from scheduling.engine.deciding import Decider
from scheduling.engine.preemption import row_program
from scheduling.engine.reference.cycle import (
    Options,
    PodToPlace,
    assume_or_nominate,
    schedule_batch,
    schedule_pod,
)
from scheduling.engine.reference.decision import Decision
from scheduling.engine.reference.record import pack, pack_table, unpack_table
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from tests import strategies
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.forms import many
from tests.harness import build_snapshot, kubernetes_framework
from tests.properties.test_recorded_worlds import facts_of

Manifest = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(row_program):
        yield


def everything(decision: Decision, snapshot: Snapshot) -> Manifest:
    """What is written down of a decision: the record, its body, its table."""
    found = facts_of(decision)
    if not decision.scheduled and decision.node_count:
        found["body"] = pack(decision)
        found["table"] = unpack_table(pack_table(decision, snapshot)).nodes
    return found


_one = st.integers(0, 3)
steps = strategies.happenings(
    _one, fewest=6, most=30,
    ask=3, remove=30, replace_node=4, remove_node=4, nominate=11, unnominate=11, budget=2,
    namespace=1, class_=3,
)  # fmt: skip


@settings(max_examples=many(20, 400), deadline=None)
@given(
    strategies.clusters(most_nodes=4, most_pods=8),
    st.lists(strategies.pods(), min_size=4, max_size=4),
    steps,
    st.data(),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_a_refusal_that_is_kept_equals_a_fresh_one(
    world: Manifest,
    templates: list[Manifest],
    happenings: list[tuple[str, int]],
    data: st.DataObject,
    seed: int,
    preempt: bool,
) -> None:
    snapshot, framework = build_snapshot(world), kubernetes_framework()
    decider = Decider(snapshot, framework)
    infos = [snapshot.intern(from_pod(msgspec.convert(t, Pod))) for t in templates]
    placed: list[str] = [str(record.key) for record in snapshot.pods()]
    options = Options(seed=seed, preempt=preempt)
    draw = start = 0
    for number, (what, which) in enumerate(happenings):
        if what in ("place", "ask"):
            # Three sisters, one after the other; those that are placed stay where "place" says so.
            for sister in range(3):
                key = f"default/new-{number}-{sister}"
                pod = PodToPlace(key, infos[which], snapshot.nominated_node_of(key))
                draw += 1
                fresh = schedule_pod(snapshot, framework, pod, options, draw=draw, start=start)
                kept = decider.refused(pod, options, draw=draw, start=start)
                if kept is not None:
                    assert everything(kept, snapshot) == everything(fresh, snapshot)
                cached = decider.decide(pod, options, draw=draw, start=start)
                assert everything(cached, snapshot) == everything(fresh, snapshot)
                decider.keep(pod, options, cached, start=start)
                start = fresh.next_start
                if what == "place":
                    assume_or_nominate(snapshot, pod, cached)
                    if cached.scheduled:
                        placed.append(key)
        elif what == "remove" and placed:
            snapshot.remove_pod(placed.pop(which % len(placed)))
        elif what == "replace node":
            snapshot.set_node(msgspec.convert(data.draw(strategies.nodes(which)), Node))
        elif what == "remove node":
            snapshot.remove_node(f"node-{which}")
        elif what == "nominate":
            snapshot.nominate(f"default/waits-{which}", infos[which % 4], f"node-{which % 5}")
        elif what == "unnominate":
            snapshot.unnominate(f"default/waits-{which}")
        elif what == "budget":
            selector = {"matchLabels": {"app": "web"}}
            manifest = {
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"selector": selector},
                "status": {"disruptionsAllowed": which},
            }
            snapshot.set_budget(msgspec.convert(manifest, PodDisruptionBudget))
        elif what == "namespace":
            snapshot.set_namespace("default", {"team": str(which)})
        elif what == "class ":
            snapshot.intern(from_pod(msgspec.convert(data.draw(strategies.pods()), Pod)))


def cluster(count: int = 30, *, zone_of: int = 3) -> Snapshot:
    snapshot = Snapshot()
    for number in range(count):
        zone = f"z{number % zone_of}"
        node = make_node(f"node-{number}").labelled({"topology.kubernetes.io/zone": zone})
        snapshot.set_node(node.build())
    return snapshot


def huge(name: str = "huge") -> Any:
    return make_pod(name).asks(cpu="900")


def test_sisters_are_refused_without_a_look() -> None:
    snapshot, framework = cluster(), kubernetes_framework()
    decider = Decider(snapshot, framework)
    info = snapshot.intern(from_pod(huge().build()))
    pods = [PodToPlace(f"default/p-{i}", info) for i in range(50)]
    decisions = list(schedule_batch(snapshot, framework, pods, Options(seed=3), decider=decider))
    assert {d.message for d in decisions} == {decisions[0].message}
    assert all(d.judged is decisions[0].judged for d in decisions), "each was diagnosed again"
    assert [d.key for d in decisions] == [pod.key for pod in pods]
    assert [d.draw for d in decisions] == list(range(50))


def test_easy_pods_between_do_not_make_a_class_be_diagnosed_again() -> None:
    snapshot, framework = cluster(), kubernetes_framework()
    decider = Decider(snapshot, framework)
    refused = snapshot.intern(from_pod(huge().build()))
    easy = snapshot.intern(from_pod(make_pod("easy").asks(cpu="10m").build()))
    pods = [PodToPlace(f"default/p-{i}", (refused, easy)[i % 2]) for i in range(60)]
    decisions = list(schedule_batch(snapshot, framework, pods, Options(seed=3), decider=decider))
    assert all(d.scheduled for d in decisions[1::2])
    assert all(d.judged is decisions[2].judged for d in decisions[4::2]), "diagnosed again"


@pytest.mark.parametrize("what", ["room", "label", "node", "priority below", "nomination"])
def test_a_change_that_matters_is_looked_at(what: str) -> None:
    snapshot, framework = cluster(1), kubernetes_framework()
    decider = Decider(snapshot, framework)
    options = Options(seed=1)
    filler = snapshot.intern(from_pod(make_pod("filler").asks(cpu="3").priority(5).build()))
    snapshot.add_pod("default/filler", filler, "node-0")
    big = make_pod("big").asks(cpu="3").priority(5)
    if what == "label":
        big = make_pod("big").asks(cpu="10m").priority(5).selects(disk="ssd")
    info = snapshot.intern(from_pod(big.build()))

    def ask() -> list[Decision]:
        pods = [PodToPlace(f"default/p-{i}", info) for i in range(2)]
        made = list(schedule_batch(snapshot, framework, pods, options, decider=decider))
        for decision in made:
            if decision.scheduled:
                snapshot.forget(decision.key)
        return made

    before = ask()
    assert not any(d.scheduled for d in before)
    if what == "room":
        snapshot.remove_pod("default/filler")
    elif what == "label":
        snapshot.set_node(make_node("node-0").labelled({"disk": "ssd"}).build())
    elif what == "node":
        snapshot.set_node(make_node("node-1").build())
    elif what == "priority below":
        small = snapshot.intern(from_pod(make_pod("s").asks(cpu="3").priority(0).build()))
        snapshot.remove_pod("default/filler")
        snapshot.add_pod("default/small", small, "node-0")
    elif what == "nomination":
        snapshot.remove_pod("default/filler")
        snapshot.nominate("default/other", filler, "node-0")
    first = ask()[0]
    fresh = schedule_pod(snapshot, framework, PodToPlace("default/p-0", info), options)
    assert everything(first, snapshot) == everything(fresh, snapshot)
    assert first.scheduled == (what in ("room", "label", "node"))
    assert (first.nomination is not None and first.nomination.node_name != "") == (
        what == "priority below"
    )


def test_a_nomination_that_adds_a_reason_is_told() -> None:
    snapshot, framework = Snapshot(), kubernetes_framework()
    snapshot.set_node(make_node("node-0").offers(cpu="1", memory="1Gi", pods="1").build())
    decider = Decider(snapshot, framework)
    info = snapshot.intern(from_pod(huge().build()))
    small = snapshot.intern(from_pod(make_pod("small").asks(cpu="1m").build()))
    options, pod = Options(seed=1, preempt=False), PodToPlace("default/huge", info)
    (before,) = schedule_batch(snapshot, framework, [pod], options, decider=decider)
    snapshot.nominate("default/small", small, "node-0")
    (after,) = schedule_batch(snapshot, framework, [pod], options, decider=decider)
    fresh = schedule_pod(snapshot, framework, pod, options)
    assert "Too many pods" in after.message != before.message
    assert everything(after, snapshot) == everything(fresh, snapshot)


def refuse_in_turns(decider: Decider, classes: int) -> list[Decision]:
    """Refuse a pod of each of some classes, place another pod, and refuse the next ones."""
    snapshot = decider.snapshot
    kinds = [huge().labelled(app=f"app-{number}").build() for number in range(classes)]
    infos = [snapshot.intern(from_pod(kind)) for kind in kinds]
    easy = snapshot.intern(from_pod(make_pod("easy").asks(cpu="1").build()))
    found: list[Decision] = []
    for turn in range(3):
        pods = [PodToPlace(f"default/{turn}-{info.index}", info) for info in infos]
        pods.append(PodToPlace(f"default/easy-{snapshot.pod_total}", easy))
        found += schedule_batch(
            snapshot, decider.framework, pods, Options(seed=1), draw=turn, decider=decider
        )
        assert found[-1].scheduled
    return found


def test_hundreds_of_refused_classes_are_not_judged_anew_because_a_pod_is_placed() -> None:
    decider = Decider(cluster(), kubernetes_framework())
    refuse_in_turns(decider, 400)
    kept = dict(decider._programs._programs)
    refuse_in_turns(decider, 400)
    again = decider._programs._programs
    assert len(kept) >= 400
    assert all(again[index] is program for index, program in kept.items())


def test_programs_take_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go, and decisions are what they are with room for all."""
    with_room = refuse_in_turns(Decider(cluster(), kubernetes_framework()), 20)
    monkeypatch.setattr(row_program.RowPrograms, "_MOST_BYTES", 100_000)
    decider = Decider(cluster(), kubernetes_framework())
    without = refuse_in_turns(decider, 20)
    assert [facts_of(one) for one in without] == [facts_of(one) for one in with_room]
    programs = decider._programs
    assert 1 < len(programs._programs) < 20
    sizes = [program.size for program in programs._programs.values()]
    assert programs._bytes == sum(sizes)
    assert 100_000 - max(sizes) < programs._bytes <= 100_000
    monkeypatch.setattr(row_program.RowPrograms, "_MOST_BYTES", 0)
    refuse_in_turns(decider, 20)
    assert len(programs._programs) == 1, "that of the last class stays"
