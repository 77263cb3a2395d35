"""Counts how many more pods of a class every node takes, at once instead of one by one.

If a pod of the class affects only its own node, each node takes as many as fit together, in any
order. The numbers are estimated from the free amounts that the filters compare
(``framework.terms.RequestFilter``) and then proved by the filters: with that many copies counted on
every node no node takes another one, and with one fewer each of these nodes does. A filter that
rejects a node also rejects it with more pods, so the proof suffices. If the proof fails there is no
answer, and the pods must be placed one by one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from scheduling.engine.preemption.filter_program import UNLIMITED
from scheduling.engine.preemption.row_program import RowPrograms
from scheduling.engine.reference.cycle import Options, PodToPlace, new_state, schedule_pod
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.terms import RequestFilter
from scheduling.framework.types import PodInfo


class Room(msgspec.Struct, frozen=True):
    """How many pods of a class fit: ``counts[i]`` on the node ``rows[i]``.

    ``next``: the decision about the first pod that does not fit.
    """

    rows: Rows
    counts: Int64
    next: Decision

    @property
    def total(self) -> int:
        """How many pods fit on all nodes."""
        return int(self.counts.sum())


def room_for(snapshot: Snapshot, framework: Framework, pod: PodToPlace) -> Room | None:
    """Return how many pods of a class fit, ``None`` if only placing them can tell.

    The snapshot is changed and restored: no other thread may read it meanwhile.

    Raises:
        PluginFailed: a plugin failed.
    """
    info = pod.info
    state = new_state(pod, Options(), 0)
    begun = framework.pre_filter(state, info, snapshot)
    rows = snapshot.rows()
    counts = np.zeros(len(rows), np.int64)
    options = Options(tie_break="first", preempt=False)
    if not begun.status.ok or not len(rows):
        return Room(rows, counts, schedule_pod(snapshot, framework, pod, options))
    program = RowPrograms(snapshot, framework).program(state, info)
    limits = None if program is None else program.own_limits()
    if limits is None:
        return None
    feasible = framework.filter(state, info, snapshot, begun.rows).feasible
    counts[np.searchsorted(rows, feasible)] = np.minimum(
        limits[feasible], _free(snapshot, framework, pod, feasible)
    )
    if (counts >= UNLIMITED).any() or (counts[np.searchsorted(rows, feasible)] < 1).any():
        return None
    some = rows[counts > 0]
    with _copies(snapshot, info, some, counts[counts > 0] - 1):
        if not _all_pass(snapshot, framework, pod, some):
            return None
    with _copies(snapshot, info, some, counts[counts > 0]):
        decision = schedule_pod(snapshot, framework, pod, options)
    return None if decision.scheduled else Room(rows, counts, decision)


def _free(snapshot: Snapshot, framework: Framework, pod: PodToPlace, rows: Rows) -> Int64:
    """Return how many pods fit the free amounts of each row, nominated pods counted."""
    with snapshot.counting_nominated(snapshot.nominated_pods(pod.info.priority, pod.key)):
        found: Int64 = snapshot.allowed_pods[rows] - snapshot.pod_count[rows]
        for plugin in framework.filter_plugins:
            if isinstance(plugin, RequestFilter):
                for amount, column in plugin.request_checks(pod.info, snapshot):
                    free = snapshot.allocatable[rows, column] - snapshot.requested[rows, column]
                    found = np.minimum(found, free // amount)
    return found


def _all_pass(snapshot: Snapshot, framework: Framework, pod: PodToPlace, rows: Rows) -> bool:
    state = new_state(pod, Options(), 0)
    if not framework.pre_filter(state, pod.info, snapshot).status.ok:
        return False
    return len(framework.filter(state, pod.info, snapshot, rows).feasible) == len(rows)


@contextmanager
def _copies(snapshot: Snapshot, info: PodInfo, rows: Rows, counts: Int64) -> Iterator[None]:
    """Context in which ``counts`` more pods of a class are counted on rows."""
    _count(snapshot, info, rows, counts, 1)
    try:
        yield
    finally:
        _count(snapshot, info, rows, counts, -1)


def _count(snapshot: Snapshot, info: PodInfo, rows: Rows, counts: Int64, sign: int) -> None:
    vector = snapshot.request_vector(info)
    snapshot.requested[rows] += sign * counts[:, None] * vector[None, : snapshot.requested.shape[1]]
    snapshot.pod_count[rows] += sign * counts
    weights = snapshot.counted_by(info)
    if weights:
        there = np.repeat(rows, counts).astype(np.int32)
        for counter, weight in weights:
            counter.bump_all(there, sign * weight)
