"""The sums and lists of nominations by row agree with the nominations, whatever happens to both."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.engine.snapshot.requirements import from_pod
from tests.builders import make_node, make_pod
from tests.strategies import by_chance

LOWEST = -(2**31)
_steps = st.lists(
    st.tuples(
        st.sampled_from(("nominate", "nominate", "withdraw", "node", "no node", "place", "widen")),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=40,
)


def _check(snapshot: Snapshot) -> None:
    nominations = snapshot.nominations
    guests = snapshot.nominated_pods(LOWEST, None)
    for row in snapshot.rows().tolist():
        infos = list(guests.get(row, ()))
        wanted = sum((snapshot.request_vector(info) for info in infos), np.zeros(1, np.int64))
        assert (nominations.requested[row] == wanted).all()
        assert nominations.pods[row] == len(infos)
        listed, number = [], nominations.first.item(row)
        while number >= 0:
            listed.append(nominations.kind.item(number))
            number = nominations.following.item(number)
        assert sorted(listed) == sorted(info.index for info in infos)
    everybody = [info for there in nominations.of_node.values() for info in there.values()]
    assert nominations.lowest_priority == min((i.priority for i in everybody), default=2**31)


@by_chance
@given(_steps)
def test_sums_and_lists_follow_nominations_and_nodes(steps: list[tuple[str, int, int]]) -> None:
    snapshot = Snapshot(capacity=1)
    infos = [
        snapshot.intern(from_pod(make_pod(f"p{n}").asks(cpu=f"{n + 1}00m").priority(n).build()))
        for n in range(4)
    ]
    for what, key, other in steps:
        if what == "nominate" and not snapshot.knows(key):
            snapshot.nominate(key, infos[other], f"node-{key % 4}")
        elif what == "withdraw":
            snapshot.unnominate(key)
        elif what == "node":
            snapshot.set_node(make_node(f"node-{other}").build())
        elif what == "no node":
            snapshot.remove_node(f"node-{other}")
        elif what == "place":
            snapshot.add_pod(key, infos[other], f"node-{other}")
        elif what == "widen":
            snapshot.resource(f"example.com/thing-{key}")
        _check(snapshot)
    _check(copy_snapshot(snapshot))
