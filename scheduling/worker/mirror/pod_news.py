"""Many changes of pods at once, sorted by what they mean to a snapshot.

Every change states a pod's last state, so of several about one pod the last one counts, and changes
of different pods may be applied in any order. What most of them say can then be applied to all pods
alike: that pods are as the snapshot has them already, came to nodes, left, or wait. The rest is
left to the code that applies changes one by one.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.pod_log import PodChanges
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int32
from scheduling.framework.types import PodInfo


class Pods(msgspec.Struct, frozen=True):
    """Some of the pods, as columns; ``numbers``: their last changes, among those given.

    ``classes``: ``PodInfo.index`` of each. ``slots`` and ``rows``: of the snapshot, -1 if none.
    """

    numbers: list[int]
    ids: list[int]
    classes: Int32
    slots: Int32
    rows: Int32


class Sorted(msgspec.Struct, frozen=True):
    """What changes mean.

    ``same``: pods on nodes, as known. ``came``: to known nodes, unknown before. ``left``: known on
    nodes and not assumed, deleted or finished now. ``waiting``: on no node, and unknown. ``rest``:
    numbers of all changes of the other pods, in order: of one that was assumed and is gone, an
    earlier change may say that it was bound. ``first``: by the number of a pod's last change, of
    its first.
    """

    same: Pods
    came: Pods
    left: Pods
    waiting: Pods
    rest: list[int]
    first: npt.NDArray[np.intp]


def sort_out(pods: PodChanges, snapshot: Snapshot, known: Mapping[int, PodInfo]) -> Sorted:
    """Sort changes of pods; ``known`` are the classes by id, others' pods are in ``rest``."""
    count = len(pods)
    _, first, inverse = np.unique(pods.ids, return_index=True, return_inverse=True)
    last = np.zeros(len(first), np.intp)
    np.maximum.at(last, inverse, np.arange(count))
    firsts = np.zeros(count, np.intp)
    firsts[last] = first
    order = np.argsort(last)
    numbers = last[order]
    class_ids, of = np.unique(pods.classes[numbers], return_inverse=True)
    indices = [known[one].index if one in known else -1 for one in class_ids.tolist()]
    classes = np.array(indices, np.int32)[of]
    names = pods.node_names
    if len(numbers) < count:
        names = [names[number] for number in numbers.tolist()]
    ids = pods.ids[numbers]
    keys = ids.tolist()
    slots, rows = snapshot.slots_of(keys), snapshot.rows_of(names)
    gone, terminating = pods.gone[numbers], pods.terminating[numbers]
    readable, unknown = classes >= 0, slots < 0
    placed = readable & ~gone & (rows >= 0)
    same = placed & snapshot.are_unchanged(slots, classes, rows, terminating)
    came = placed & unknown & ~terminating
    on_none = np.fromiter((not name for name in names), np.bool_, len(names))
    waiting = readable & unknown & on_none & ~gone & ~terminating
    left = gone & ~unknown & snapshot.are_confirmed(keys, slots)

    def chosen(mask: npt.NDArray[np.bool_]) -> Pods:
        return Pods(
            numbers[mask].tolist(), ids[mask].tolist(), classes[mask], slots[mask], rows[mask]
        )

    others = np.zeros(len(numbers), np.bool_)
    others[order] = ~(same | came | waiting | left)
    rest = np.flatnonzero(others[inverse]).tolist()
    return Sorted(chosen(same), chosen(came), chosen(left), chosen(waiting), rest, firsts)


def seconds(pods: PodChanges, some: Pods) -> Float64:
    """Return since when some of the pods are on their nodes, NaN where unknown."""
    return pods.started[some.numbers]
