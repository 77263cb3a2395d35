"""Waiting for something that another process does; the only place in the tests that sleeps."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

Found = TypeVar("Found")

BLOCKED: Final = """
SELECT pid FROM pg_locks WHERE NOT granted AND pid IN (
  SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database
  WHERE datname = current_database())
"""
"""The sessions that wait for a lock and hold one in this database, or wait for one there.

`pg_locks` shows all databases, also those of other workers of the tests. `pg_stat_activity` would
name the database, but answers the same all through a transaction.
"""


def until(look: Callable[[], Found], *, seconds: float = 60, what: str = "") -> Found:
    """Return the first true answer of `look`; fail when there is none in time.

    The longer it has waited, the longer it pauses, by a tenth: to ask costs who is asked, too.
    """
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what or look}"
        time.sleep(min(max(waited / 10, 0.005), 0.2))
    return found


def running(pid: int) -> bool:
    """Return whether a process with this pid is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
