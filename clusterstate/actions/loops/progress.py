"""Writes the progress of a loop, for all processes to read (``health.progress``).

A loop has a ``Reporter`` and reports finished work to it, also from inside long work, and from
threads that do a part of it. The row is written every two seconds at most; the process's keeper
(``clusterstate.database.sessions``) writes later reports, so a row is never old while work is done.
"""

import math
import os
import socket
import threading
import time
from typing import Final

from clusterstate.database import sql
from clusterstate.telemetry import slowness

_EVERY_SECONDS = 2.0
"""Well below ``health.progress.SILENT_SECONDS``: each report is a commit."""
_REPORT = """
    INSERT INTO loop_progress AS p (name, at, revision, holder, backend_pid, backend_start)
    SELECT %s, clock_timestamp(), %s::bigint, %s, a.pid, a.backend_start
    FROM pg_stat_get_activity(pg_backend_pid()) a
    ON CONFLICT (name) DO UPDATE
    SET at = excluded.at, revision = excluded.revision, holder = excluded.holder,
        backend_pid = excluded.backend_pid, backend_start = excluded.backend_start
"""
_STEP = "UPDATE loop_progress SET at = clock_timestamp() WHERE name = ANY(%s) AND holder = %s"
_HOLDER: Final = socket.gethostname()


def _holder() -> str:
    return f"{_HOLDER}:{os.getpid()}"


def holder(loop: str) -> int:
    """Return the pid of the process that wrote the loop's row; 0 for this one or another host.

    Queries once.
    """
    row = sql.fetch_one("SELECT holder FROM loop_progress WHERE name = %s", (loop,))
    host, _, pid = str(row[0] if row else "").rpartition(":")
    return int(pid) if host == _HOLDER and int(pid) != os.getpid() else 0


class Reporter:
    """Writes one loop's row at intervals; its caller holds the lock that the loop works under.

    The loop calls ``note`` when it has done its work, never while it only waits for its turn. A
    written row also shows that the database accepts writes. The connection stays open for the life
    of the process.
    """

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._told_at = -_EVERY_SECONDS
        _steps.begin(loop)

    def note(self, revision: int = 0) -> None:
        """Write that the loop works, and the revision up to which it has followed the log."""
        now = time.monotonic()
        if now - self._told_at < _EVERY_SECONDS:
            return
        sql.run(_REPORT, (self._loop, revision, _holder()))
        self._told_at = now
        _steps.mark_written(self._loop)


class _Steps:
    """The loops of this process whose progress is not written yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._untold: set[str] = set()
        self._told_at: dict[str, float] = {}

    def begin(self, loop: str) -> None:
        """Start counting for a loop that starts, or starts again."""
        with self._lock:
            self._untold.discard(loop)
            self._told_at.pop(loop, None)

    def step(self, loop: str) -> None:
        self._untold.add(loop)  # one operation, without a lock: each call of a plugin passes here

    def mark_written(self, loop: str) -> None:
        with self._lock:
            self._untold.discard(loop)
            self._told_at[loop] = time.monotonic()

    def due(self) -> list[str]:
        """Return the loops whose progress is to be written now, and mark them as written."""
        now = time.monotonic()
        with self._lock:
            due = [
                loop
                for loop in tuple(self._untold)
                # Before the first report another process may hold the loop's lock.
                if now - self._told_at.get(loop, math.inf) >= _EVERY_SECONDS
            ]
            self._untold.difference_update(due)
            self._told_at.update(dict.fromkeys(due, now))
        return due


_steps: Final = _Steps()


def step(loop: str) -> None:
    """Note that a loop of this process has done a part of its work; writes nothing itself."""
    _steps.step(loop)


def tell_steps() -> None:
    """Write the progress of loops that worked since their rows were written.

    Queries once; not at all if there is nothing to write or it was written within a second.
    """
    if due := _steps.due():
        sql.run(_STEP, (sql.Texts(due), _holder()))


_RECALL = """
    SELECT factor * 0.5 ^ (extract(epoch FROM clock_timestamp() - at)::float8 / 60)
    FROM loop_patience WHERE name = %s
"""
_REMEMBER = """
    INSERT INTO loop_patience (name, factor, at) VALUES (%s, %s::float8, clock_timestamp())
    ON CONFLICT (name) DO UPDATE SET factor = excluded.factor, at = excluded.at
"""


class Memory:
    """Stores a process's progress in rows (implements ``sessions.Memory``)."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._stored = 0.0

    def recall(self) -> float:
        """Return the factor that a process with this loop requested; 0 if none did."""
        row = sql.fetch_one(_RECALL, (self._loop,))
        self._stored = 0.0 if row is None else float(row[0])
        return self._stored

    def keep(self) -> None:
        """Store the factor that this process requests, if it has changed, and its progress."""
        factor = slowness.own.requested_factor()
        if factor > 1 and factor != self._stored:
            sql.run(_REMEMBER, (self._loop, factor))
            self._stored = factor
        tell_steps()
