"""Lock and progress names of one of several schedulers, by its number.

``STOWAGE_ACTIVE_SCHEDULERS`` schedulers work, numbered from ``FIRST`` on. The names here contain
the number, so that no two schedulers share one:

    ``loop``              the loop in ``loop_progress``
    ``holder``            the scheduler in the rows of ``binder`` and ``bind_batch``
    ``locks.cycle``       the session's advisory lock of the loop
    ``scheduler.id``      the row with the scheduler's epoch and the end of its lease; decision
                          records have all three

Hints use ``FIRST``'s names for all schedulers: the Redis channel that wakes the loops, the Celery
queue of the task that runs cycles. So do heartbeats, which describe a process, and the list of
objects that were set aside, which no scheduler can process.

Number 0 has the names from before there were numbers, so that during an upgrade schedulers of both
versions exclude each other and find their rows.
"""

from typing import Final

FIRST: Final = 0
"""The number of the scheduler that works alone, or does work that is needed only once."""


def _numbered(name: str, shard: int) -> str:
    return f"{name}-{shard}" if shard else name


def loop(shard: int) -> str:
    """Return a scheduler's name in heartbeats, progress rows and the list of set-aside objects."""
    return _numbered("scheduler", shard)


def standby(shard: int) -> str:
    """Return the heartbeat name of a process that waits to take over from a scheduler."""
    return _numbered("standby", shard)


def channel(shard: int) -> str:
    """Return the Redis channel that wakes a scheduler."""
    return _numbered("stowage:scheduler", shard)


def queue(shard: int) -> str:
    """Return the Celery queue of the task that runs a scheduler's cycles."""
    return _numbered("scheduling", shard)


def holder(shard: int, life: str) -> str:
    """Return the name of one run of a scheduler in its bindings; ``life`` is unique to the run."""
    return f"scheduler-{shard}-{life}"
