"""Reads from a replica: where it has come up to, and when the primary is read instead.

``read(ask)`` runs a function whose queries only read. While it runs, this thread's default
connection is one to the replica (``REPLICA_DATABASE_URL``), so the function needs no change. The
replica is used if its mark, the watermark that the primary has written into the row ``history``
(`changes.keep_mark`), is at least

- the revision ``least`` that the caller needs, and
- the *floor*: the watermark that the primary had ``STOWAGE_REPLICA_LAG`` seconds ago, or, in a
  process that is younger, when it first looked.

Otherwise, and if the replica fails meanwhile, the function runs on the primary. So a replica that
hangs, is lost or falls behind costs a delay and no wrong answer. What is read there is complete up
to the mark: `changes.watermark` returns the mark on a replica.

A thread of each process that reads looks at both servers once a second. It keeps the primary's
watermarks with the time at which it read them, so it knows how far the replica is behind without
comparing clocks. A replica of another history (`lineage`) is not used.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import structlog
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connection, connections

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.telemetry.metrics import families

_T = TypeVar("_T")
logger = structlog.get_logger(__name__)

ALIAS: Final = "replica"
_EVERY_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 3.0
"""Seconds that the thread waits for an answer of either server."""
_POLL_SECONDS: Final = 0.01
_MARK: Final = "SELECT mark, uid::text FROM history WHERE id = 1"

_reads: Final = families.counter(
    "stowage_replica_reads_total",
    "Reads that a replica may answer, by the server that did: replica or primary.",
    "server",
)
_BY_REPLICA, _BY_PRIMARY = _reads.of("replica"), _reads.of("primary")


class _Sample:
    """A watermark of the primary, and when it was read (monotonic)."""

    __slots__ = ("at", "revision")

    def __init__(self, revision: int, at: float) -> None:
        self.revision = revision
        self.at = at


class Standing:
    """How far the replica is behind, as seen by one thread of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._samples: deque[_Sample] = deque(maxlen=3600)
        self._looked = threading.Event()
        self.uid = ""
        """The identity of the primary's history."""
        self.floor = 0
        self.failure = "was not asked yet"
        """Why the replica cannot be used; empty if only its mark may be too low."""
        self.lag_seconds: float | None = None
        """For how long the replica has lacked a revision of the primary; None if unknown."""

    def start(self) -> None:
        """Start the thread, once; a forked process starts its own."""
        if self._thread is not None and self._thread.is_alive():
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="replica", daemon=True)
                self._thread.start()

    def looked(self, seconds: float) -> bool:
        """Wait until the thread has checked the replica once; return whether it has."""
        self.start()
        return self._looked.wait(seconds)

    @property
    def problem(self) -> str:
        """Why reads go to the primary; empty if the replica answers them."""
        if self.failure:
            return f"{self.failure}; reads go to the primary"
        if (self.lag_seconds or 0.0) > settings.REPLICA_LAG_SECONDS:
            return f"is {self.lag_seconds:.0f} s behind; reads go to the primary"
        return ""

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                self.look()
            except Exception:  # the thread lives on: all reads of this process would stay away
                logger.exception("replica_look_failed")
            self._looked.set()
            time.sleep(max(0.0, began + _EVERY_SECONDS - time.monotonic()))

    def look(self) -> None:
        """Compare the replica with the primary once. Queries three times."""
        try:
            began = time.monotonic()
            with sql.patience(_PATIENCE_SECONDS):
                row = sql.fetch_one(_MARK)
                self._samples.append(_Sample(changes.watermark(), began))
            self.uid = row[1] if row else ""
        except Error:  # the replica may be used while the primary is away
            connection.close()
        oldest = time.monotonic() - settings.REPLICA_LAG_SECONDS
        first = self._samples[0].revision if self._samples else 0
        self.floor = max((one.revision for one in self._samples if one.at <= oldest), default=first)
        try:
            with _on_replica(), sql.patience(_PATIENCE_SECONDS):
                mark, uid = _mark()
        except Error as error:
            connections[ALIAS].close()
            cause = error.__cause__ or error
            self._judge(f"does not answer ({type(cause).__name__})", None)
            return
        since = next((one.at for one in self._samples if one.revision > mark), None)
        lag = 0.0 if since is None else time.monotonic() - since
        while len(self._samples) > 1 and self._samples[1].at <= oldest and not lag:
            self._samples.popleft()
        self._judge("" if uid == self.uid else "has another history", lag)

    def _judge(self, failure: str, lag: float | None) -> None:
        if failure != self.failure:
            logger.info("replica", problem=failure or "none")
        self.failure, self.lag_seconds = failure, lag


standing: Final = Standing()


@contextmanager
def _on_replica() -> Iterator[None]:
    """Let this thread's default connection be the replica's."""
    primary: Any = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[ALIAS]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = primary


def _mark() -> tuple[int, str]:
    row = sql.fetch_one(_MARK)
    return (0, "") if row is None else (row[0], row[1])


def _has_reached(least: int, patience: float) -> bool:
    """Return whether the replica's mark is ``least`` or more within ``patience`` seconds.

    It does not wait for a replica that is below the floor.
    """
    deadline = time.monotonic() + patience
    while True:
        mark, uid = _mark()
        if uid != standing.uid or mark < standing.floor:
            return False
        if mark >= least:
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)


def read(ask: Callable[[], _T], *, least: int = 0, patience: float = 0.0) -> _T:
    """Call ``ask`` on the replica if that has revision ``least``, else on the primary.

    ``ask`` may run twice and must not write. It waits at most ``patience`` seconds for the replica
    to come up to ``least``. Without a replica, inside a transaction, and inside another ``read``,
    this is ``ask()``. Queries once more on the replica.
    """
    if not settings.READS_FROM_REPLICA or connection.in_atomic_block or is_used():
        return ask()
    standing.start()
    if not standing.failure:
        try:
            with _on_replica():
                if _has_reached(least, patience):
                    found = ask()
                    _BY_REPLICA.add()
                    return found
        except Error as error:
            # Away, or not migrated yet, or an old row was removed while a long statement read it.
            # The primary has all, and raises what is the function's own fault.
            connections[ALIAS].close()
            logger.warning("replica_read_failed", error=type(error.__cause__ or error).__name__)
    _BY_PRIMARY.add()
    return ask()


def is_used() -> bool:
    """Return whether this thread's default connection is the replica's."""
    return bool(connections[DEFAULT_DB_ALIAS].alias == ALIAS)
