"""Lock and progress names of one of several schedulers, by its number.

One scheduler works today, ``FIRST``. Whatever is *the* scheduler's has its number in it, and is
named here, so that a second one collides with nothing:

    ``loop``              the loop in heartbeats, ``loop_progress`` and among what is set aside
    ``channel``           the Redis channel that wakes the loop
    ``queue``             the Celery queue of the task that runs cycles
    ``holder``            the name under which its binds stand in the row ``binder``
    ``locks.cycle``       the session's advisory lock of the loop
    ``scheduler.id``      the row with the scheduler's epoch; decision records name all three

Number 0 has the names that were in use before there were numbers, so that during an upgrade
schedulers of both versions exclude each other and find their rows.
"""

from typing import Final

FIRST: Final = 0
"""The number of the one scheduler that there is."""


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
    """Return the name of one life of a scheduler in the row ``binder``; ``life`` is unique."""
    return f"scheduler-{shard}-{life}"
