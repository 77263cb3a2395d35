"""Sorts many changes of pods by their effect on a snapshot.

Every change states a pod's last state, so of several about one pod the last one counts, and changes
of different pods may be applied in any order. Most of them can then be applied to many pods at
once: pods that are unchanged, came to nodes, left, or wait. The rest is applied one by one.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.change_log.pod_log import PodChanges
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int32, Int64, numbered
from scheduling.framework.types import PodInfo


class Pods(msgspec.Struct, frozen=True):
    """A part of the pods of a ``SortedChanges``, as columns.

    ``numbers``: index of each pod's last change in the given changes. ``classes``: its
    ``PodInfo.index``. ``slots`` and ``rows``: its slot and its node's row in the snapshot, -1 if
    none.
    """

    numbers: list[int]
    ids: list[int]
    classes: Int32
    slots: Int32
    rows: Int32


class SortedChanges(msgspec.Struct, frozen=True):
    """Changes of pods, sorted by their effect. "Unknown" are pods that are not in the snapshot.

    ``same``: pods on nodes, as in the snapshot. ``came``: unknown pods on known nodes. ``left``:
    pods in the snapshot, not assumed, that were deleted or finished; ``ending``: that began to
    terminate. ``waiting``: unknown pods on no node. ``unseen``: unknown pods that were deleted or
    finished. ``rest``: indices of all changes of the other pods, in order, such as of assumed pods
    that are gone: an earlier change may state their binding. ``first``: at the index of a pod's
    last change the index of its first.
    """

    same: Pods
    came: Pods
    left: Pods
    ending: Pods
    waiting: Pods
    unseen: Pods
    rest: list[int]
    first: npt.NDArray[np.intp]


def sort_out(pods: PodChanges, snapshot: Snapshot, infos: Mapping[int, PodInfo]) -> SortedChanges:
    """Sort changes of pods; ``infos``: classes by id. Pods of other classes go to ``rest``."""
    keys = pods.ids.tolist()
    count = len(keys)
    numbers = firsts = place_of = np.arange(count)
    if len(set(keys)) < count:
        numbers, firsts, place_of = _last_of_each(pods.ids)
        keys = pods.ids[numbers].tolist()
    class_ids, of = numbered(pods.classes[numbers])
    indices = [infos[one].index if one in infos else -1 for one in class_ids.tolist()]
    classes = np.array(indices, np.int32)[of]
    names = pods.node_names
    if len(numbers) < count:
        names = [names[number] for number in numbers.tolist()]
    slots, rows = snapshot.slots_of(keys), snapshot.rows_of(names)
    gone, terminating = pods.gone[numbers], pods.terminating[numbers]
    readable, unknown = classes >= 0, slots < 0
    placed = readable & ~gone & (rows >= 0)
    same = placed & snapshot.are_unchanged(slots, classes, rows, terminating)
    came = placed & unknown & ~terminating
    on_none = ~pods.placed[numbers]
    waiting = readable & unknown & on_none & ~gone & ~terminating
    unseen = readable & unknown & gone
    left = gone & ~unknown
    ending = placed & terminating & snapshot.are_unchanged(slots, classes, rows, ~terminating)
    if left.any() or ending.any():
        confirmed = snapshot.are_confirmed(keys, slots)
        left &= confirmed
        ending &= confirmed

    def chosen(mask: npt.NDArray[np.bool_]) -> Pods:
        if mask.all():
            return Pods(numbers.tolist(), keys, classes, slots, rows)
        there = np.flatnonzero(mask)
        chosen_keys = [keys[place] for place in there.tolist()]
        return Pods(numbers[there].tolist(), chosen_keys, classes[there], slots[there], rows[there])

    others = ~(same | came | left | ending | waiting | unseen)
    return SortedChanges(
        same=chosen(same),
        came=chosen(came),
        left=chosen(left),
        ending=chosen(ending),
        waiting=chosen(waiting),
        unseen=chosen(unseen),
        rest=np.flatnonzero(others[place_of]).tolist(),
        first=firsts,
    )


def _last_of_each(ids: Int64) -> tuple[Int64, Int64, Int64]:
    """Return three arrays: last changes (ids,), first changes (changes,), pods (changes,), int64.

    The first has the index of each id's last change, in order. The second has, at the place of an
    id's last change, the place of its first one; 0 elsewhere. The third has, for each change, the
    position of its id in the first array.
    """
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    last = np.zeros(len(first), np.int64)
    np.maximum.at(last, inverse, np.arange(len(ids)))
    firsts = np.zeros(len(ids), np.int64)
    firsts[last] = first
    order = np.argsort(last)
    place_of = np.zeros(len(order), np.int64)
    place_of[order] = np.arange(len(order))
    return last[order], firsts, place_of[inverse]


def seconds(pods: PodChanges, some: Pods) -> Float64:
    """Return since when some of the pods are on their nodes, epoch seconds; NaN if unknown."""
    return pods.started[some.numbers]
