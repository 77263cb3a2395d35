"""Where pods wait in the queue of the scheduler that works, as of a question's revision.

The rows say which pods were rejected, by which plugins, when, and until when they wait. Later
changes of the log move them as in the live queue (``worker.mirror.waiting_as_of``). The revision to
which a pod was found still waiting is kept, so the next question reads only what came after it.
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
"""By pod: the revision of its refusal, and the last one up to which nothing helped it."""
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
    """Return the places of waiting pods by id. Queries once or twice where pods were refused.

    Args:
        rows: of the pods, read after ``snapshot``.
        snapshot: the cluster; classes of pods in the events become known to it.
        revision: of the snapshot.
        configuration: revision of the configuration that decides: refusals hold under the one that
            they were made under.
        registrations: the events that may help against each plugin.
        backoff: of that configuration.
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
    """Return the row with the refusal moved to the last look, if nothing had helped it by then."""
    refused, until = _looked_at.get(row.id, (0, 0))
    if refused != row.refused_revision or until <= refused:
        return row
    return msgspec.structs.replace(row, refused_revision=until)
