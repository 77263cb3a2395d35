"""Lock and progress names of one of several schedulers, by its number.

As many work as ``STOWAGE_ACTIVE_SCHEDULERS`` says, with the numbers from ``FIRST`` on. Whatever is
one scheduler's has its number in it, and is named here, so that two collide in nothing:

    ``loop``              the loop in ``loop_progress``
    ``holder``            the name under which its binds stand in ``binder`` and ``node_binder``
    ``locks.cycle``       the session's advisory lock of the loop
    ``scheduler.id``      the row with the scheduler's epoch and the end of its lease; decision
                          records name all three

What only nudges is ``FIRST``'s for all of them: the Redis channel that wakes the loops, the Celery
queue of the task that runs cycles. In heartbeats, which tell of a process, and among what is set
aside, which none of them can read, the loop is ``FIRST``'s, too.

Number 0 has the names that were in use before there were numbers, so that during an upgrade
schedulers of both versions exclude each other and find their rows.
"""

from typing import Final

FIRST: Final = 0
"""The number of the scheduler that works alone, or does what is done once for all."""


def _numbered(name: str, shard: int) -> str:
    return f"{name}-{shard}" if shard else name


def loop(shard: int) -> str:
    """Return a scheduler's name in heartbeats, progress rows and the list of what is set aside."""
    return _numbered("scheduler", shard)


def standby(shard: int) -> str:
    """Return the name in heartbeats of a process that waits to take over from a scheduler."""
    return _numbered("standby", shard)


def channel(shard: int) -> str:
    """Return the Redis channel on which a scheduler is woken."""
    return _numbered("stowage:scheduler", shard)


def queue(shard: int) -> str:
    """Return the Celery queue of the task that runs a scheduler's cycles."""
    return _numbered("scheduling", shard)


def holder(shard: int, life: str) -> str:
    """Return the name of one run of a scheduler in its bindings; ``life`` is unique."""
    return f"scheduler-{shard}-{life}"
