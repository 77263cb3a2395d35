"""Headroom counted at once is what placing pod after pod comes to, in worlds of chance."""

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.simulation.room import room_for
from tests import harness
from tests.builders import make_node, make_pod
from tests.conformance.cluster_cases import read_pod
from tests.strategies import ZONE, Manifest, by_chance, clusters, pods


@by_chance
@given(
    clusters(most_nodes=6, most_pods=8), pods(), st.lists(pods("waiting"), max_size=2), st.data()
)
def test_pods_that_are_counted_at_once_are_those_that_find_room(
    world: Manifest, pod: Manifest, waiting: list[Manifest], data: st.DataObject
) -> None:
    """On each node as many, for the same reasons in the end; and nothing stays behind."""
    names = st.sampled_from([node["metadata"]["name"] for node in world["nodes"]])
    nominated = [
        {
            **manifest,
            "metadata": {**manifest["metadata"], "name": f"waiting-{n}", "uid": f"waiting-{n}"},
            "status": {"nominatedNodeName": data.draw(names)},
        }
        for n, manifest in enumerate(waiting)
    ]
    case = {**world, "nominatedPods": nominated}
    snapshot = harness.build_snapshot(case)
    framework = harness.kubernetes_framework()
    info = harness.to_place(snapshot, read_pod({"pod": pod})).info
    before = snapshot.requested.copy(), snapshot.pod_count.copy()
    room = room_for(snapshot, framework, PodToPlace("one more", info))
    assert np.array_equal(before[0], snapshot.requested)
    assert np.array_equal(before[1], snapshot.pod_count)
    event("counted" if room is not None else "placed")
    if room is None or room.total > 500:
        return
    many = [PodToPlace(f"new-{n}", info) for n in range(room.total + 1)]
    decisions = list(schedule_batch(snapshot, framework, many, Options(preempt=False)))
    assert [one.scheduled for one in decisions] == [True] * room.total + [False]
    found = dict.fromkeys(range(len(room.rows)), 0)
    for one in decisions[:-1]:
        found[int(np.searchsorted(room.rows, one.row))] += 1
    assert list(found.values()) == room.counts.tolist()
    assert decisions[-1].message == room.next.message


def test_pods_that_keep_apart_by_a_label_that_no_node_has_are_counted_at_once() -> None:
    snapshot = Snapshot()
    for number in range(3):
        snapshot.set_node(make_node(f"n{number}").build())
    pod = make_pod("p").asks(cpu="1").labelled(app="web").away_from(ZONE, app="web")
    info = snapshot.intern(from_pod(pod.build()))
    room = room_for(snapshot, harness.kubernetes_framework(), PodToPlace("one more", info))
    assert room is not None
    assert (room.counts > 1).all()
