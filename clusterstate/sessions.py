"""Ending sessions that hold up everybody else: of stopped processes, lost hosts, deaf clients.

A transaction may hold the log's watermark, the placement lock or rows; a session may hold the lock
under which a loop or a controller works alone. A session that has one and stops must lose it within
five seconds, and must not go on as if nothing had happened when it wakes. So the *session* is
ended: its locks go with it, and its owner's next statement fails.

Three ways lead there. The server ends a transaction whose client is silent
(``idle_in_transaction_session_timeout``, see the settings). The client gives up a statement that
the server does not answer (``sql.patience``). What neither sees is found here:

- A process that holds locks *between* transactions is silent while it computes, too. So each
  process with such a loop has a *keeper*: a session that speaks every second and that the server
  ends when it does not (``idle_session_timeout``). All sessions of the process carry its sign in
  their ``application_name``. Sessions whose keeper is gone belong to a process that is stopped or
  lost: the keepers of the others end them all.
- A session that its own process has given up, because no answer came, may live on with its locks
  behind a network that swallows everything. The process's own keeper ends it.
- A client that does not read its answer is active for ever, and no time-out of the server's applies
  while it writes. Seen with a lock of ours several times in the same state, it is ended.
- So are transactions of others (``psql``, a shell) that hold such a lock and are silent, or that
  hold rows or tables which a session of ours waits for: somebody who looks at a row FOR UPDATE and
  goes to lunch must not stop the scheduler.
- A statement of others that waits for a table lets nobody pass who comes later: behind a report
  that reads for an hour, VACUUM FULL or ALTER TABLE would stop the service for that hour, though
  the report itself is in nobody's way. Such a statement is cancelled while it waits; its session
  stays.

Commands that change the database's shape, save it or put it back work without time-outs
(``UNHURRIED``): a migration may compute for minutes between two statements. They are never ended,
and nobody is ended because they wait: ``pg_dump`` with several jobs is silent in the transaction
that keeps its tables, and a migration that wants one of these can wait for it.
"""

import threading
import time
from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection

from clusterstate import locks, sql
from clusterstate.troubles import Trouble, reason_of

logger = structlog.get_logger(__name__)

KEEPER_SUFFIX: Final = "+"
"""Ends the ``application_name`` of a keeper's session; before it stands its process's sign."""
UNHURRIED: Final = f"{settings.SESSION_SIGN}-unhurried"
"""The ``application_name`` of a session that works without time-outs."""
_EVERY_SECONDS = 1.0
_KEEPER_SILENCE = "2500ms"
_STUCK_SECONDS = 3.0
"""A session of ours, or with a lock of ours, that has not moved for so long is stuck."""
_WAITED_SECONDS = 2.0
"""How long ours may wait behind a statement that waits itself, as far as looks tell."""

_LOOK = f"""
WITH holding AS MATERIALIZED (
    SELECT DISTINCT l.pid FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND (l.classid::bigint >> 16) BETWEEN {locks.REVISION_TAG} AND {locks.LAST_TAG}),
blocking AS MATERIALIZED (
    SELECT DISTINCT b.pid FROM pg_stat_activity w, unnest(pg_blocking_pids(w.pid)) AS b(pid)
    WHERE w.datname = current_database() AND w.wait_event_type = 'Lock'
      AND starts_with(w.application_name, '{settings.SESSION_SIGN}-')
      AND w.application_name <> '{UNHURRIED}'
      AND w.query_start < clock_timestamp() - interval '500 ms')
SELECT a.pid, coalesce(a.application_name, ''), coalesce(a.state, ''),
       coalesce(a.wait_event_type, ''),
       extract(epoch FROM clock_timestamp() - coalesce(a.state_change, a.backend_start))::float8,
       md5(concat_ws('/', a.backend_start, a.query_start)),
       a.pid IN (SELECT pid FROM holding), a.pid IN (SELECT pid FROM blocking)
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.usename = current_user
  AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
  AND a.application_name IS DISTINCT FROM '{UNHURRIED}'
"""
_END = "SELECT pid, pg_terminate_backend(pid) FROM unnest(%s) AS i(pid)"
_CANCEL = "SELECT pid, pg_cancel_backend(pid) FROM unnest(%s) AS i(pid)"


class Session(msgspec.Struct, frozen=True):
    """A session as ``pg_stat_activity`` shows it.

    ``quiet_seconds`` is the time since its state changed, ``at`` names its present statement,
    ``locks``: whether it holds an advisory lock of this service, and ``blocks``: whether a session
    of this service waits for a row or a table that it holds.
    """

    pid: int
    application: str
    state: str
    waits_for: str
    quiet_seconds: float
    at: str
    locks: bool
    blocks: bool


class Judge:
    """Finds which sessions must end, from one look after another."""

    def __init__(self, ours: str) -> None:
        """``ours`` is the sign of the process that judges, whose keeper does not see itself."""
        self._ours = ours
        self._deaf: dict[tuple[int, str], float] = {}
        self._lost: dict[str, float] = {}
        self._left: dict[int, float] = {}
        self._blocking: set[int] = set()
        self._waiting: dict[tuple[int, str], float] = {}

    def hinder(self, seen: Sequence[Session], now: float) -> set[int]:
        """Return whose statement must be given up: it waits, and sessions of ours wait behind it.

        Ours wait for a few seconds by themselves (``lock_timeout``), and are not among them.
        """
        waiting = {
            (one.pid, one.at): now
            for one in seen
            if one.blocks
            and one.state == "active"
            and one.waits_for == "Lock"
            and not one.application.startswith(f"{settings.SESSION_SIGN}-")
        }
        self._waiting = {key: self._waiting.get(key, at) for key, at in waiting.items()}
        return {pid for (pid, _), since in self._waiting.items() if now - since >= _WAITED_SECONDS}

    def condemn(
        self, seen: Sequence[Session], now: float, kept: Collection[int] | None = None
    ) -> dict[int, str]:
        """Return who must end, and why; ``now`` is on a monotonic clock.

        ``kept`` are the sessions that the judging process knows for its own, by their pids.

        Two looks are needed before a session is taken for lost or stuck: a keeper whose session
        broke has made another by then.
        """
        ended: dict[int, str] = {}
        deaf = {(one.pid, one.at): now for one in seen if one.locks and _is_deaf(one)}
        self._deaf = {key: self._deaf.get(key, at) for key, at in deaf.items()}
        for (pid, _), since in self._deaf.items():
            if now - since >= _STUCK_SECONDS:
                ended[pid] = "does not read its answer"
        # Who drops a table waits for its readers, shortly, and by design (the look leaves that out,
        # as far as it can tell): one look is not enough.
        blocking = {one.pid for one in seen if one.blocks and one.pid in self._blocking}
        self._blocking = {one.pid for one in seen if one.blocks}
        for one in seen:
            in_transaction = one.state.startswith("idle in transaction")
            if (
                (one.locks or one.pid in blocking)
                and in_transaction
                and one.quiet_seconds > _STUCK_SECONDS
            ):
                ended[one.pid] = "is silent in a transaction"
        keepers = {
            one.application.removesuffix(KEEPER_SUFFIX)
            for one in seen
            if one.application.endswith(KEEPER_SUFFIX)
        } | {self._ours}
        lost = {
            one.application
            for one in seen
            if one.application.startswith(f"{settings.SESSION_SIGN}-")
            and one.application.count("-") > 1
            and not one.application.endswith(KEEPER_SUFFIX)
            and one.application not in keepers
            and one.quiet_seconds > _STUCK_SECONDS - _EVERY_SECONDS
        }
        self._lost = {sign: self._lost.get(sign, now) for sign in lost}
        gone = {sign for sign, since in self._lost.items() if since < now}
        for one in seen:
            if one.application in gone:
                ended[one.pid] = "belongs to a process that is stopped or lost"
        left = {
            one.pid
            for one in seen
            if kept is not None and one.application == self._ours and one.pid not in kept
        }
        self._left = {pid: self._left.get(pid, now) for pid in left}
        for pid, since in self._left.items():
            if now - since >= _STUCK_SECONDS:
                ended[pid] = "was given up by its process"
        return ended


def _is_deaf(one: Session) -> bool:
    return one.state == "active" and one.waits_for == "Client"


def look() -> list[Session]:
    """Return the other sessions of this database and user, but the unhurried. Queries once."""
    return [Session(*row) for row in sql.fetch(_LOOK)]


def end(pids: Collection[int]) -> None:
    """End sessions. Queries once."""
    sql.fetch(_END, (sql.Int4s(sorted(pids)),))


def cancel(pids: Collection[int]) -> None:
    """Cancel the statements that sessions execute. Queries once."""
    sql.fetch(_CANCEL, (sql.Int4s(sorted(pids)),))


def _keep() -> None:
    """Speak every second, and end who must end; for ever."""
    judge = Judge(settings.SESSION_NAME)
    ours = f"{settings.SESSION_NAME}{KEEPER_SUFFIX}"
    ready = False
    trouble = Trouble()
    while True:
        began = time.monotonic()
        try:
            if not ready:
                connection.close()
                sql.run("SELECT set_config('application_name', %s, false)", (ours,))
                sql.run(f"SET idle_session_timeout = '{_KEEPER_SILENCE}'")
                judge, ready = Judge(settings.SESSION_NAME), True
            with sql.patience(_STUCK_SECONDS):
                seen = look()
                condemned = judge.condemn(seen, time.monotonic(), sql.open_backends())
                if condemned:
                    end(condemned)
                if hindered := judge.hinder(seen, time.monotonic()):
                    cancel(hindered)
            for pid in hindered:
                logger.warning("statement_cancelled", pid=pid, reason="others waited behind it")
            for pid, reason in condemned.items():
                logger.warning("session_ended", pid=pid, reason=reason)
            trouble.tell_end(logger, "keeper")
        except DatabaseError as error:
            # Also when this process was stopped for long: then its sessions are gone, all of them.
            reason = reason_of(error)
            if failures := trouble.note(reason):
                logger.warning("keeper_lost_its_session", error=reason, failures=failures)
            ready = False
        except Exception as error:
            if failures := trouble.note(reason_of(error)):
                logger.exception("keeper_failed", failures=failures)
            ready = False
        time.sleep(max(0.0, _EVERY_SECONDS - (time.monotonic() - began)))


_thread: list[threading.Thread] = []


def keep() -> None:
    """Start this process's keeper, once; needed where locks are held between transactions."""
    if not _thread:
        _thread.append(threading.Thread(target=_keep, name="keeper", daemon=True))
        _thread[0].start()
