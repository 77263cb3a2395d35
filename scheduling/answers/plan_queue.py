"""Restores the live scheduler's queue at a question's revision.

The rows state which pods were rejected, by which plugins, when, and until when they wait. Later
changes in the log move them as in the live queue (``worker.mirror.waiting_as_of``). For each pod
the last revision at which it still waited is cached, so the next question reads only later changes.
"""

from collections.abc import Mapping, Sequence

import msgspec

from clusterstate.processes import memory
from clusterstate.queries.pods.queue import WaitingPod
from scheduling.engine.queue.pending import Backoff, QueuePlace, Stage
from scheduling.engine.queue.waiting import Registrations
from scheduling.engine.snapshot import Snapshot
from scheduling.worker.mirror import waiting_as_of

_MOST_KEPT = 100_000
_looked_at: dict[int, tuple[int, int]] = {}
"""By pod: the revision of its refusal, and the last revision at which it still waited."""
memory.when_replaced(_looked_at.clear)


def places(
    rows: Sequence[WaitingPod],
    snapshot: Snapshot,
    *,
    revision: int,
    configuration: int,
    registrations: Registrations,
    backoff: Backoff,
    now: float,
) -> Mapping[int, QueuePlace]:
    """Return the queue places of waiting pods by id. Queries once or twice if pods were refused.

    Args:
        rows: the pods' rows, read after ``snapshot``.
        snapshot: the cluster; classes of pods in the changes are added to it.
        revision: that of the snapshot.
        configuration: revision of the configuration in use; refusals under others do not count.
        registrations: the events that may help against each plugin.
        backoff: that of the configuration.
        now: seconds since the epoch.
    """
    waiting = [_with_last_look(row) for row in rows]
    found = waiting_as_of(
        waiting,
        snapshot,
        revision=revision,
        configuration=configuration,
        registrations=registrations,
        backoff=backoff,
        now=now,
    )
    if len(_looked_at) > _MOST_KEPT:
        _looked_at.clear()
    for row in rows:
        place = found.get(row.id)
        waits = place is not None and place.stage is Stage.UNSCHEDULABLE
        if waits and row.refused_under == configuration and row.refused_revision <= revision:
            _looked_at[row.id] = row.refused_revision, revision
    return found


def _with_last_look(row: WaitingPod) -> WaitingPod:
    """Return the row, its refusal's revision raised to the last at which the pod still waited."""
    refused, until = _looked_at.get(row.id, (0, 0))
    if refused != row.refused_revision or until <= refused:
        return row
    return msgspec.structs.replace(row, refused_revision=until)
