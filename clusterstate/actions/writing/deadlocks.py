"""Retries a batch that PostgreSQL aborted to resolve a deadlock."""

from collections.abc import Callable
from typing import TypeVar

from django.db import OperationalError, connection
from psycopg.errors import DeadlockDetected

_MAX_DEADLOCK_TRIES = 5

_T = TypeVar("_T")


def again_after_deadlock(work: Callable[[], _T]) -> _T:
    """Run ``work`` again when PostgreSQL aborted it to resolve a deadlock.

    Batches lock many rows, and may deadlock with a writer that locks two of them.
    """
    if connection.in_atomic_block:
        return work()
    for _ in range(_MAX_DEADLOCK_TRIES):
        try:
            return work()
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected):
                raise
    return work()
