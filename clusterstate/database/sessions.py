"""Ends sessions that block the service: of stopped processes, lost hosts, stuck clients.

A transaction may lock the log's watermark, placement or rows; a session may have the lock under
which a loop or a controller works alone. If such a session stops, it must lose the lock within five
seconds, and its process must not go on as if nothing had happened when it wakes. So the *session*
is ended: PostgreSQL releases its locks, and its owner's next statement fails.

Two time-outs find most cases. The server ends a transaction whose client is silent
(``idle_in_transaction_session_timeout``, see the settings). The client closes a session that does
not answer a statement (``sql.patience``). This module finds the others:

- A process that has locks *between* transactions is silent while it computes, too. So each process
  with such a loop has a *keeper*: a session that sends a statement every second and that the server
  ends if it does not (``idle_session_timeout``). All sessions of the process have its sign in their
  ``application_name``. Sessions without a keeper belong to a process that is stopped or lost. Two
  other keepers, the *judges*, watch all sessions and end these. They see whether a process of the
  same machine is stopped. If a judge is gone, another keeper replaces it.
- A session that its own process has closed, because no answer came, may keep its locks behind a
  network that drops everything. The process's own keeper ends it.
- A client that does not read its answer is active for ever, and no time-out of the server's applies
  while it writes. If it has a lock of this service and is seen several times in the same state, it
  is ended.
- Other clients' transactions (``psql``, a shell) are ended if they are idle and have such a lock,
  or rows or tables for which a session of this service waits: a person who selects a row FOR UPDATE
  and goes to lunch must not stop the scheduler.
- A statement queued for a table lock blocks all later ones: behind a report that reads for an hour,
  VACUUM FULL or ALTER TABLE would stop the service for that hour, though the report itself blocks
  nobody. Such a statement of others is cancelled while it waits; its session stays.

A process that gets little CPU is slow, not stuck; ending its session would make it begin again, and
be slower still. So the time-out of each process depends on how slow it is at the moment:

- A keeper writes the factor by which its process is slow (``slowness``) into its session's name and
  time-out. The judges multiply their time-outs by it.
- On a busy machine the judging process is slow, too: its own factor extends the time-outs for all.
- A process of the same machine that used a processor since the last look works, even if its keeper
  sends nothing.
- A session that loads the cluster (``sql.LOADS``) computes for long within its transaction, and
  blocks nobody: it is not ended for that while its process works.
- A process that was ended while it worked requests twice the time. ``loop_patience`` stores that
  for the next process with the same loop.

Commands that change the schema, save or restore the database have no time-outs (``UNHURRIED``): a
migration may compute for minutes between two statements. They are never ended, and no session is
ended because they wait: ``pg_dump`` with several jobs is silent in the transaction that locks its
tables, and a migration that needs one of these can wait for it.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import psycopg
import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection

from clusterstate.database import locks, sql
from clusterstate.database.postgres.base import closed_backends, open_backends
from clusterstate.objects.values.numbers import natural
from clusterstate.telemetry import slowness
from clusterstate.telemetry.troubles import Trouble, reason_of

logger = structlog.get_logger(__name__)

UNHURRIED: Final = f"{settings.SESSION_SIGN}-unhurried"
"""The ``application_name`` of a session that works without time-outs."""
_EVERY_SECONDS = 1.0
_KEEPER_SILENCE_MS = 2500
_STUCK_SECONDS = 3.0
"""A session of the service, or with one of its locks, is stuck after so long without a change."""
_STUCK_LOOKS = 3
"""The observations that must agree, since the observing process may have been slow itself."""
_UNSEEN_SECONDS = 60.0
"""How many seconds a process may work while its keeper is silent."""
_WAITED_SECONDS = 2.0
"""How long this service may wait behind a statement that waits itself, by observation."""

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
  AND (split_part(a.application_name, '-', 3) <> ''
       OR a.pid IN (SELECT pid FROM holding) OR a.pid IN (SELECT pid FROM blocking))
"""
_JUDGE = "SELECT CASE WHEN pg_try_advisory_lock(%s) THEN true ELSE pg_try_advisory_lock(%s) END"
_END = "SELECT pid, pg_terminate_backend(pid) FROM unnest(%s) AS i(pid)"
_CANCEL = "SELECT pid, pg_cancel_backend(pid) FROM unnest(%s) AS i(pid)"


class Session(msgspec.Struct, frozen=True):
    """A session as ``pg_stat_activity`` shows it.

    ``quiet_seconds`` is the time since its state changed, ``at`` identifies its present statement.
    ``locks``: it has an advisory lock of this service. ``blocks``: a session of this service waits
    for a row or a table that it has locked.
    """

    pid: int
    application: str
    state: str
    waits_for: str
    quiet_seconds: float
    at: str
    locks: bool
    blocks: bool

    @property
    def sign(self) -> str:
        """The part of the name that identifies its process: all its sessions have the same."""
        return self.application.partition(sql.KEEPER)[0].removesuffix(sql.LOADS)


class Watch:
    """What a judge saw of another process, to tell whether that process is stuck."""

    def __init__(self, sign: str, now: float) -> None:
        self._token = sign.rpartition("-")[2]
        self._kept_at = self._worked_at = now
        self._ticks = -1
        self._stopped_since: float | None = None
        self.factor = 1
        self.is_kept = True

    def look(self, keepers: Sequence[Session], now: float) -> None:
        """Record the state of the process's keepers (at times there are two) and of ``/proc``."""
        self.is_kept = bool(keepers)
        if keepers:
            self._kept_at = now
            factors = (one.application.partition(sql.KEEPER)[2] for one in keepers)
            self.factor = max(natural(one) or 1 for one in factors)
        state, ticks = slowness.process_state(self._token) or ("", -1)
        if ticks != self._ticks:
            self._ticks, self._worked_at, self._stopped_since = ticks, now, None
        if state not in ("T", "t"):
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now

    def is_stopped(self, now: float) -> bool:
        """Return whether the process has been stopped for long, without any work meanwhile."""
        since = self._stopped_since
        return since is not None and now - since >= _STUCK_SECONDS - _EVERY_SECONDS

    def works(self, now: float) -> bool:
        """Return whether the process works: it has a keeper, or used a processor recently."""
        if self.is_kept:
            return True
        is_alive = self._ticks >= 0 and now - self._worked_at < _STUCK_SECONDS - _EVERY_SECONDS
        return is_alive and now - self._kept_at < _UNSEEN_SECONDS


class Judge:
    """Decides which sessions must end, from a series of observations."""

    def __init__(self, ours: str) -> None:
        """Judge for the process with session sign ``ours``; its own sessions are not judged."""
        self._ours = ours
        self._deaf: dict[tuple[int, str], _Since] = {}
        self._lost: dict[str, float] = {}
        self._unowned: dict[int, _Since] = {}
        self._blocking: set[int] = set()
        self._waiting: dict[tuple[int, str], float] = {}
        self._watches: dict[str, Watch] = {}

    def hinder(self, sessions: Sequence[Session], now: float) -> set[int]:
        """Return the pids of foreign sessions whose waiting statement blocks this service too long.

        The service's own statements are left out; their waits end by ``lock_timeout``.
        """
        waiting = {
            (one.pid, one.at): now
            for one in sessions
            if one.blocks
            and one.state == "active"
            and one.waits_for == "Lock"
            and not one.application.startswith(f"{settings.SESSION_SIGN}-")
        }
        self._waiting = {key: self._waiting.get(key, at) for key, at in waiting.items()}
        return {pid for (pid, _), since in self._waiting.items() if now - since >= _WAITED_SECONDS}

    def condemn(
        self,
        sessions: Sequence[Session],
        now: float,
        own: Collection[int] | None = None,
        factor: int = 1,
    ) -> dict[int, str]:
        """Return the pids of sessions that must end, with reasons; ``now`` is monotonic.

        ``own`` are the pids of the judging process's sessions, ``factor`` is how slow that process
        is.

        A session is taken for lost or stuck only after two observations, since a keeper whose
        session broke has opened another by the second.
        """
        ended: dict[int, str] = {}
        watches = self._known_processes(sessions, now)

        def patience(one: Session) -> float:
            """Return how many seconds the session may be idle."""
            watch = watches.get(one.sign)
            return _STUCK_SECONDS * max(factor, 1 if watch is None else watch.factor)

        def loads(one: Session) -> bool:
            """Return whether the session loads the whole cluster for a process that works."""
            watch = watches.get(one.sign)
            alive = one.sign == self._ours or (watch is not None and watch.works(now))
            return alive and one.application.endswith(sql.LOADS)

        deaf = {
            (one.pid, one.at): one
            for one in sessions
            if one.locks and one.state == "active" and one.waits_for == "Client" and not loads(one)
        }
        self._deaf = {key: self._deaf.get(key) or _Since(now) for key in deaf}
        for key, one in deaf.items():
            if self._deaf[key].lasts(now, patience(one)):
                ended[one.pid] = "does not read its answer"
        # A session that drops a table waits shortly for its readers, by design (the query omits it
        # if it can): one observation is not enough.
        blocking = {one.pid for one in sessions if one.blocks and one.pid in self._blocking}
        self._blocking = {one.pid for one in sessions if one.blocks}
        for one in sessions:
            in_transaction = one.state.startswith("idle in transaction")
            if (
                (one.locks or one.pid in blocking)
                and in_transaction
                and one.quiet_seconds > patience(one)
                and not loads(one)
            ):
                ended[one.pid] = "is silent in a transaction"
        gone = self._gone(sessions, watches, now, factor)
        for one in sessions:
            if one.sign in gone:
                ended[one.pid] = "belongs to a process that is stopped or lost"
        unowned = {
            one.pid
            for one in sessions
            if own is not None
            and one.sign == self._ours
            and sql.KEEPER not in one.application
            and one.pid not in own
        }
        self._unowned = {pid: self._unowned.get(pid) or _Since(now) for pid in unowned}
        for pid, since in self._unowned.items():
            if since.lasts(now, _STUCK_SECONDS * factor):
                ended[pid] = "was given up by its process"
        return ended

    def _known_processes(self, sessions: Sequence[Session], now: float) -> Mapping[str, Watch]:
        """Update and return the observations of other processes of this service, by their signs."""
        keepers: dict[str, list[Session]] = {
            one.sign: []
            for one in sessions
            if one.application.startswith(f"{settings.SESSION_SIGN}-")
            and one.sign.count("-") > 1
            and one.sign != self._ours
            and one.application != UNHURRIED
        }
        for one in sessions:
            if sql.KEEPER in one.application and one.sign in keepers:
                keepers[one.sign].append(one)
        watches = self._watches
        self._watches = {sign: watches.get(sign) or Watch(sign, now) for sign in keepers}
        for sign, watch in self._watches.items():
            watch.look(keepers[sign], now)
        return self._watches

    def _gone(
        self, sessions: Sequence[Session], watches: Mapping[str, Watch], now: float, factor: int
    ) -> set[str]:
        """Return the signs (``slowness.sign``) of processes that are stopped or lost."""
        quiet: dict[str, float] = {}
        for one in sessions:
            if one.sign in watches and sql.KEEPER not in one.application:
                before = quiet.get(one.sign, one.quiet_seconds)
                quiet[one.sign] = min(before, one.quiet_seconds)
        lost = {
            sign
            for sign, seconds in quiet.items()
            if not watches[sign].works(now)
            and seconds > (_STUCK_SECONDS - _EVERY_SECONDS) * max(factor, watches[sign].factor)
        }
        self._lost = {sign: self._lost.get(sign, now) for sign in lost}
        gone = {sign for sign, since in self._lost.items() if since < now}
        return gone | {sign for sign, watch in watches.items() if watch.is_stopped(now)}


class _Since:
    """The time since which a state is observed, and the number of observations."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._looks = 0

    def lasts(self, now: float, seconds: float) -> bool:
        """Count an observation; return whether there are enough, over ``seconds`` at least."""
        self._looks += 1
        return now - self._at >= seconds and self._looks > _STUCK_LOOKS


def find_sessions() -> list[Session]:
    """Return the other sessions of this database and user that may have to end. Queries once.

    These are the sessions of processes with a keeper, and sessions that have locks or block others,
    without the unhurried ones.
    """
    return [Session(*row) for row in sql.fetch(_LOOK)]


def end(pids: Collection[int]) -> None:
    """End sessions. Queries once."""
    sql.fetch(_END, (sql.Int4s(sorted(pids)),))


def cancel(pids: Collection[int]) -> None:
    """Cancel the statements that sessions execute. Queries once."""
    sql.fetch(_CANCEL, (sql.Int4s(sorted(pids)),))


_ENDED: Final = {"57P01", "57P05", "25P03"}
"""SQLSTATEs of a session that an administrator, a judge here, or an idle time-out ended."""


def note_end(error: BaseException) -> bool:
    """Request more time if the server ended this process's session; return whether it did.

    Only a process that used CPU meanwhile requests it. One that was stopped does not, so that its
    next stop is noticed as early.
    """
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.sqlstate not in _ENDED:
        return False
    if not slowness.worked(*_round.lately()):
        return False
    slowness.own.ask(2 * slowness.own.factor())
    return True


class _Round:
    """The start times of the keeper's last two rounds, and the CPU time used by then."""

    def __init__(self) -> None:
        self._before = self._last = time.monotonic(), time.process_time()

    @staticmethod
    def _since(moment: tuple[float, float]) -> tuple[float, float]:
        return time.monotonic() - moment[0], time.process_time() - moment[1]

    def lately(self) -> tuple[float, float]:
        """Return the seconds and CPU seconds since the last but one round began."""
        return self._since(self._before)

    def begin(self) -> None:
        """Measure the last round, and begin another."""
        slowness.own.measure(*self._since(self._last))
        self._before, self._last = self._last, (time.monotonic(), time.process_time())


_round = _Round()


class Memory(Protocol):
    """Stores a process's factor and its loops' progress for the next process."""

    def recall(self) -> float:
        """Return the stored factor by which time limits are multiplied."""

    def keep(self) -> None:
        """Store the requested factor, and the progress of the loops."""


class _Keeper:
    """Reports in the database that this process lives, and ends stuck sessions of others."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._judge = Judge(settings.SESSION_NAME)
        self._judged_at = 0.0
        self._is_judge = False
        self._factor = 0
        self._is_ready = False

    def speak(self) -> None:
        """Report that this process lives, and end stuck sessions if it is a judge.

        It also ends sessions that this process has closed and the server may still have.

        Raises:
            django.db.Error: this session has ended, or the database is away.
        """
        if not self._is_ready:
            connection.close()
            self._factor, self._judged_at, self._is_judge = 0, 0.0, False
        factor = slowness.own.factor()
        if factor != self._factor:
            sql.fetch(
                "SELECT set_config('application_name', %s, false),"
                " set_config('idle_session_timeout', %s, false)",
                (
                    f"{settings.SESSION_NAME}{sql.KEEPER}{factor}",
                    f"{_KEEPER_SILENCE_MS * factor}ms",
                ),
            )
            self._factor = factor
        if not self._is_ready:
            self._remember(lambda: slowness.own.ask(self._memory.recall()))
            self._is_ready = True
        with sql.patience(_STUCK_SECONDS * factor):
            if not self._is_judge:
                ((self._is_judge,),) = sql.fetch(_JUDGE, locks.JUDGES)
            if self._is_judge or closed_backends():
                self._end_stuck()
            self._remember(self._memory.keep)

    def _end_stuck(self) -> None:
        sessions, now = find_sessions(), time.monotonic()
        closed_backends([one.pid for one in sessions])
        if now - self._judged_at > _STUCK_SECONDS * slowness.own.factor():
            # What was seen that long ago says nothing about the sessions of now.
            self._judge = Judge(settings.SESSION_NAME)
        self._judged_at = now
        condemned = self._judge.condemn(sessions, now, open_backends(), slowness.own.factor())
        if condemned:
            end(condemned)
        if hindered := self._judge.hinder(sessions, now):
            cancel(hindered)
        for pid in hindered:
            logger.warning("statement_cancelled", pid=pid, reason="others waited behind it")
        for pid, reason in condemned.items():
            (whose,) = (one.application for one in sessions if one.pid == pid)
            logger.warning("session_ended", pid=pid, whose=whose, reason=reason)

    @staticmethod
    def _remember(do: Callable[[], object]) -> None:
        """Call ``do``; log an error of a read-only or unprepared database.

        Raises:
            django.db.Error: this session has ended.
        """
        try:
            do()
        except DatabaseError as error:
            if connection.connection is None or connection.connection.closed:
                raise
            logger.debug("keeper_keeps_nothing", error=reason_of(error))

    def begin_anew(self) -> None:
        """Use another session from the next round on."""
        self._is_ready = False


def _keep(memory: Memory) -> None:
    """Run the keeper every second, for ever."""
    keeper = _Keeper(memory)
    trouble = Trouble()
    while True:
        began = time.monotonic()
        _round.begin()
        try:
            keeper.speak()
            trouble.tell_end(logger, "keeper")
        except DatabaseError as error:
            # Also when this process was stopped for long: then its sessions are gone, all of them.
            note_end(error)
            reason = reason_of(error)
            if failures := trouble.note(reason):
                logger.warning("keeper_lost_its_session", error=reason, failures=failures)
            keeper.begin_anew()
        except Exception as error:
            if failures := trouble.note(reason_of(error)):
                logger.exception("keeper_failed", failures=failures)
            keeper.begin_anew()
        time.sleep(max(0.0, _EVERY_SECONDS - (time.monotonic() - began)))


_thread: list[threading.Thread] = []


def keep(memory: Memory) -> None:
    """Start this process's keeper, once; needed where locks are kept between transactions."""
    if not _thread:
        slowness.own.begin()
        _thread.append(threading.Thread(target=_keep, args=(memory,), name="keeper", daemon=True))
        _thread[0].start()
