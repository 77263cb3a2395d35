"""What is kept of rows between two searches for victims leads where a new search leads."""

import random

import msgspec
import numpy as np
import pytest

from clusterstate.objects.values.workloads import PodDisruptionBudget
from scheduling.engine.preemption.row_program import RowPrograms
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState
from scheduling.framework.types import PodInfo, Victims
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.harness import kubernetes_framework

NODES = 90
FRAMEWORK = kubernetes_framework()


def budget(chance: random.Random) -> PodDisruptionBudget:
    selector = {"matchLabels": {"app": chance.choice(("web", "db"))}}
    manifest = {
        "metadata": {"name": f"b{chance.randrange(3)}", "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": chance.randrange(4)},
    }
    return msgspec.convert(manifest, PodDisruptionBudget)


def change(chance: random.Random, snapshot: Snapshot, infos: list[PodInfo], step: int) -> None:
    """Let something happen that changes who would have to leave, or what that costs."""
    key = f"default/pod-{chance.randrange(4 * NODES)}"
    node = f"node-{chance.randrange(NODES):03}"
    match chance.randrange(7):
        case 0:
            snapshot.remove_pod(key)
        case 1:
            snapshot.add_pod(f"default/more-{step}", chance.choice(infos), node, start_time=7.0)
        case 2 if snapshot.knows(key):
            info = next(one.info for one in snapshot.pods() if one.key == key)
            snapshot.confirm(key, info, snapshot.node_of(key), start_time=chance.random())
        case 3 if snapshot.knows(key):
            started = np.array([chance.choice((chance.random(), np.nan))])
            snapshot.confirm_all([key], snapshot.slots_of([key]), started)
        case 4:
            snapshot.set_budget(budget(chance))
        case 5:
            snapshot.nominate(f"default/waits-{step % 5}", chance.choice(infos), node)
        case _:
            offers = make_node(node).offers(cpu=chance.choice(("2", "4")), pods=6)
            snapshot.set_node(offers.build())


def search(
    programs: RowPrograms, info: PodInfo, snapshot: Snapshot, begin: int, wanted: int, *, new: bool
) -> Victims:
    """Search, by what is kept or by looking at the rows again, which tells all candidates."""
    state = CycleState(pod_key="default/asks")
    state.tells_candidates = new
    begun = FRAMEWORK.pre_filter(state, info, snapshot)
    found = programs.find_victims(state, info, begun.rows, begin=begin, enough=wanted)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_kept_rows_name_the_candidate_that_a_new_search_names(seed: int) -> None:
    chance = random.Random(seed)
    snapshot = Snapshot()
    for number in range(NODES):
        offers = make_node(f"node-{number:03}").offers(cpu=chance.choice(("2", "4")), pods=6)
        snapshot.set_node(offers.build())
    kinds = [
        make_pod("p").labelled(app=app).asks(cpu=cpu).priority(priority)
        for app in ("web", "db") for cpu in ("500m", "1") for priority in (0, 0, 3, 9)
    ]  # fmt: skip
    infos = [snapshot.intern(from_pod(kind.build())) for kind in kinds]
    for number in range(4 * NODES):
        snapshot.add_pod(
            f"default/pod-{number}", chance.choice(infos), f"node-{number % NODES:03}",
            start_time=chance.choice((None, 1.0, 2.0)), terminating=chance.random() < 0.1,
        )  # fmt: skip
    asking = [
        snapshot.intern(from_pod(make_pod("asks").asks(cpu=cpu).priority(priority).build()))
        for cpu, priority in (("1", 5), ("2", 20), ("3", 4), ("9", 20))
    ]
    seen = set()
    with lanes.only():
        kept = RowPrograms(snapshot, FRAMEWORK)
        for step in range(60):
            change(chance, snapshot, infos, step)
            info, begin = chance.choice(asking), chance.randrange(NODES)
            wanted = chance.choice((1, 5, 40, NODES))
            found = search(kept, info, snapshot, begin, wanted, new=False).best
            expected = search(
                RowPrograms(snapshot, FRAMEWORK), info, snapshot, begin, wanted, new=True
            ).best
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert found.node_name == expected.node_name
                assert found.pdb_violations == expected.pdb_violations
                assert [v.key for v in found.victims] == [v.key for v in expected.victims]
                seen.add(found.node_name)
    assert len(seen) > 10
