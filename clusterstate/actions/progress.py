"""Saying how far a loop is, for everybody who can read the database (``clusterstate.progress``)."""

import os
import socket
import time

from clusterstate import sql

_EVERY_SECONDS = 1.0
_REPORT = """
    INSERT INTO loop_progress AS p (name, at, revision, holder, backend_pid, backend_start)
    SELECT %s, clock_timestamp(), %s::bigint, %s, a.pid, a.backend_start
    FROM pg_stat_get_activity(pg_backend_pid()) a
    ON CONFLICT (name) DO UPDATE
    SET at = excluded.at, revision = excluded.revision, holder = excluded.holder,
        backend_pid = excluded.backend_pid, backend_start = excluded.backend_start
"""


class Reporter:
    """Writes one loop's row, once a second at most; who reports holds what the loop works under.

    The loop calls it when it has done its work, never while it only waits for its turn. That the
    row was written shows that the database takes writes, too. The connection that writes it stays
    open for the life of the process.
    """

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        self._told_at = -_EVERY_SECONDS

    def note(self, revision: int = 0) -> None:
        """Write that the loop works, and what revision it has followed the log to."""
        now = time.monotonic()
        if now - self._told_at < _EVERY_SECONDS:
            return
        sql.run(_REPORT, (self._loop, revision, self._holder))
        self._told_at = now
