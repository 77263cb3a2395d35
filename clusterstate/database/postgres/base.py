"""Sessions of the database: waits for an answer end if the server does not respond at all.

A host that freezes keeps its sockets open: its kernel acknowledges packets, so neither keepalives
nor ``tcp_user_timeout`` end a session, and no time-out of the server can fire. Only the client can
notice, by its own clock. But a long statement is silent, too: a migration, an archive, a report. So
when a session has had no answer for ``SILENT_SECONDS``, the process *asks* the server over another
connection to the same address whether it runs, and in which state this process's sessions are::

    no answer within ASK_SECONDS    the host is frozen or gone: the session is closed, and so is
                                    every session of this process that was opened there before
    the session is unknown          a proxy or a moved address leads to another server now, or the
    or idle there                   answer was lost: the session is closed
    the statement runs              wait on, ask again after as long a silence

One thread asks for the whole process. A wait thus ends within 16 seconds, whatever the statement; a
statement that the server works on may take what the server's own time-outs allow (``limit_seconds``
is longer than these, for a single process of the server that is stuck).

New sessions: a thread of its own tries a host that did not answer every ``AGAIN_SECONDS``; until
the host answers, opening a session there fails at once. The host that answered last is tried first.
Other hosts of the URL are tried as libpq does.
"""

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Collection, Generator, Iterator
from typing import Any, ClassVar, Final

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.postgresql import base
from django.utils.asyncio import async_unsafe
from psycopg import IsolationLevel, errors
from psycopg._preparing import PrepareManager
from psycopg.errors import ConnectionTimeout, _WaitTimeout
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

SILENT_SECONDS = 6.0
"""Seconds without an answer after which a session checks whether the server responds."""
ASK_SECONDS = 7
"""Seconds in which the server must accept a new session, also under heavy load."""
AGAIN_SECONDS = 2.0
_ANSWER_SECONDS = 3.0
_LOST_SECONDS = 1.0
"""Seconds in which an answer on its way arrives."""
_WORKS = "SELECT pid, state FROM pg_stat_activity WHERE pid = ANY(%s) AND state IS NOT NULL"

Address = tuple[str, str, str]
"""Host, numeric address and port for libpq; each may be empty."""


class _Silent(Exception):
    """A server does not answer."""


class _Server:
    """The state of one database address in this process; times are monotonic."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_replica = False
        self.answered_at = 0.0
        self.silent_since = 0.0
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._asked_at = 0.0
        self._states: dict[int, str] | None = None

    def __str__(self) -> str:
        host, numeric, port = self.address
        return f"{host or numeric or 'the local server'}{port and ':'}{port}"

    def fell_silent(self, parameters: dict[str, Any]) -> None:
        """Note that the server does not answer; a thread retries it with libpq's ``parameters``."""
        with self._lock:
            if self.silent_since:
                return
            self.silent_since = time.monotonic()
        threading.Thread(
            target=self._ask_again, args=(parameters,), name="silent-server", daemon=True
        ).start()

    def _ask_again(self, parameters: dict[str, Any]) -> None:
        while self.silent_since:
            time.sleep(AGAIN_SECONDS)
            try:
                _Asking.connect(**parameters | _ASKS).close()
            except ConnectionTimeout:
                continue
            except psycopg.OperationalError:
                pass  # it refuses, so it speaks
            self.silent_since = 0.0

    def states(self, session: "Session", since: float) -> dict[int, str]:
        """Return the states of this process's sessions, by pid, as the server reports them.

        Empty: the server answers, but refuses the connection that asks. ``since`` is when the
        silence began; an answer that another thread got after that is used again.

        Raises:
            _Silent: it does not answer.
        """
        with self._asking:
            if self._asked_at < since:
                began = time.monotonic()
                try:
                    self._states = self._ask(session)
                except ConnectionTimeout:
                    # Another session may have got an answer while the server refuses new ones.
                    self._states = {} if self.answered_at > began else None
                self._asked_at = time.monotonic()
            if self._states is None:
                raise _Silent
            return self._states

    def _ask(self, session: "Session") -> dict[int, str]:
        """Return the states of this process's sessions, by pid. Opens a session for the query."""
        try:
            with _Asking.connect(**session.same_server()) as asking:
                return dict(asking.execute(_WORKS, [sorted(_backends(self))]).fetchall())
        except ConnectionTimeout:
            raise
        except psycopg.OperationalError as error:
            # No room for another session, or it starts, or it ends: it speaks.
            if error.sqlstate is not None or "FATAL" in str(error):
                return {}
            raise ConnectionTimeout(str(error)) from error


_ASKS: Final[dict[str, Any]] = {
    "connect_timeout": str(ASK_SECONDS),
    "target_session_attrs": "any",
    "application_name": f"{settings.SESSION_SIGN}-asks",
}


class _Asking(psycopg.Connection[Any]):
    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, _ANSWER_SECONDS if timeout is None else timeout)
        except _WaitTimeout:
            self.pgconn.finish()
            raise ConnectionTimeout("no answer") from None


class _PreparedStatements(PrepareManager):
    """The prepared statements of a session, which outlive a rollback as they do at the server.

    psycopg drops all of them at each rollback, since that may have undone a table or a type. Each
    refused request and each dry run would then cost parsing and planning of every statement. So a
    rollback drops them only if the session has changed the schema since it was last idle: a
    statement prepared after such a change depends on a schema that the rollback removes.
    """

    def __init__(self, session: PGconn) -> None:
        super().__init__()
        self._session = session
        self._changed_schema = False

    def _should_discard(self, prep: Any, results: Any, *rest: Any) -> bool:
        if any((result.command_status or b"").startswith(_SCHEMA_CHANGES) for result in results):
            self._changed_schema = True
        return super()._should_discard(prep, results, *rest)

    def clear(self) -> bool:
        """Drop the statements if the session has changed the schema; psycopg calls this."""
        if not self._changed_schema:
            return False
        self._changed_schema = self._session.transaction_status != TransactionStatus.IDLE
        return self.drop()

    def drop(self) -> bool:
        """Drop the statements; the server does so after the next statement that succeeds."""
        return super().clear()


_SCHEMA_CHANGES: Final = (b"CREATE", b"ALTER", b"DROP", b"DISCARD", b"DEALLOCATE")
"""Command tags of statements after which prepared ones may be out of date."""
_OUT_OF_DATE: Final = (errors.FeatureNotSupported, errors.InvalidSqlStatementName)
"""Errors of a prepared statement whose columns changed with the schema, and of one that the server
does not have. Both recur until the statement is prepared again."""


class Session(psycopg.Connection[Any]):
    """A connection to PostgreSQL in which every wait for an answer ends."""

    limit_seconds: float = settings.DATABASE_ANSWER_SECONDS
    """The longest wait, also if the server responds to other sessions."""
    server: _Server
    servers: ClassVar[dict[Address, _Server]] = {}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._prepared: _PreparedStatements = _PreparedStatements(self.pgconn)

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """Send statements together, as psycopg does."""
        try:
            with super().pipeline() as found:
                yield found
        except psycopg.Error:
            self._prepared.drop()  # some may have been left out with what was not executed
            raise

    @classmethod
    def connect(cls, conninfo: str = "", **given: Any) -> "Session":
        """Connect to the first of the given hosts that accepts.

        Raises:
            psycopg.OperationalError: none does; ConnectionTimeout: one of them did not answer.
        """
        servers = [cls.servers.setdefault(one, _Server(one)) for one in _addresses(conninfo, given)]
        servers.sort(key=lambda one: (bool(one.silent_since), -one.answered_at))
        failures_by_server: list[tuple[_Server, psycopg.OperationalError]] = []
        for server in servers:
            if server.silent_since:
                seconds = time.monotonic() - server.silent_since
                error = ConnectionTimeout(f"has not answered for {seconds:.0f} s")
                failures_by_server.append((server, error))
                continue
            names = ("host", "hostaddr", "port")
            one_host = {k: v for k, v in zip(names, server.address, strict=True) if v}
            try:
                found = super().connect(conninfo, **given | one_host)
            except psycopg.OperationalError as failed:
                failures_by_server.append((server, failed))
                if isinstance(failed, ConnectionTimeout):
                    texts = {k: v for k, v in given.items() if k not in _NOT_FOR_LIBPQ}
                    server.fell_silent({"conninfo": conninfo} | texts | one_host)
                continue
            found.server = server
            server.answered_at = time.monotonic()
            with _opening:
                _opened.add(found)
                _unsure.add(found.info.backend_pid)
            return found
        failures = [error for _, error in failures_by_server]
        if len(failures_by_server) == 1 and not isinstance(failures[0], ConnectionTimeout):
            raise failures[0]
        is_silent = any(isinstance(error, ConnectionTimeout) for error in failures)
        raise (ConnectionTimeout if is_silent else psycopg.OperationalError)(
            "; ".join(f"{server}: {str(error).strip()}" for server, error in failures_by_server)
        )

    def same_server(self) -> dict[str, Any]:
        """Return libpq's parameters for another connection to this session's server."""
        parameters: dict[str, Any] = self.info.get_parameters() | {
            "password": self.info.password,
            "host": self.pgconn.host.decode(),
            "hostaddr": self.pgconn.hostaddr.decode(),
            "port": self.pgconn.port.decode(),
        }
        return {name: one for name, one in parameters.items() if one} | _ASKS

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Run a generator of psycopg's until it returns or the server is taken for lost.

        Raises:
            psycopg.OperationalError: the server does not answer; the session is closed.
        """
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        began = time.monotonic()
        since, waiting = began, gen
        while True:
            seconds = began + self.limit_seconds - since
            try:
                answer = super().wait(waiting, interval, min(SILENT_SECONDS, seconds))
            except _WaitTimeout:
                pass
            except _OUT_OF_DATE:
                self._prepared.drop()
                raise
            else:
                if not self.pgconn.pipeline_status:  # in one, a statement may only have been sent
                    self.server.answered_at = time.monotonic()
                return answer
            if time.monotonic() - began >= self.limit_seconds:
                raise self._given_up(began)
            try:
                states = self.server.states(self, since)
            except _Silent:
                self.server.fell_silent(self.same_server())
                _cut_all(self.server)
                raise self._given_up(began) from None
            waiting = _going_on(gen)
            if states and states.get(self.info.backend_pid, "idle").startswith("idle"):
                try:
                    return super().wait(waiting, interval, _LOST_SECONDS)
                except _WaitTimeout:
                    raise self._given_up(began) from None
            since = time.monotonic()

    def _given_up(self, began: float) -> psycopg.OperationalError:
        """Close the session, since a late answer would be taken for another's; return the error."""
        self.pgconn.finish()
        seconds = time.monotonic() - began
        return psycopg.OperationalError(f"the database did not answer within {seconds:.0f} s")


def _going_on(gen: Any) -> Generator[Any, Any, Any]:
    """Resume a psycopg generator whose wait timed out: tell it that the socket is not ready."""
    try:
        event = gen.send(0)
        while True:
            ready = yield event
            event = gen.send(ready)
    except StopIteration as done:
        return done.value


_NOT_FOR_LIBPQ = frozenset(
    ("autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory")
)


def _addresses(conninfo: str, parameters: dict[str, Any]) -> list[Address]:
    """Return the hosts to try, in order, as libpq reads the lists in its parameters."""
    texts = {name: one for name, one in parameters.items() if name not in _NOT_FOR_LIBPQ}
    merged = psycopg.conninfo.conninfo_to_dict(conninfo, **texts)
    lists = [str(merged.get(name) or "").split(",") for name in ("host", "hostaddr", "port")]
    most = max(map(len, lists))
    hosts, numerics, ports = [one * most if len(one) == 1 else one for one in lists]
    return list(zip(hosts, numerics, ports, strict=True))


_opening = threading.Lock()
_opened: "weakref.WeakSet[Session]" = weakref.WeakSet()
_unsure: set[int] = set()
"""The server's pids of all sessions of this process that the server may still have."""


def _sessions(server: _Server | None = None) -> list[Session]:
    """Return the sessions of all threads of this process, of one server or of all."""
    with _opening:
        return [one for one in _opened if server is None or one.server is server]


def _backends(server: _Server | None = None) -> set[int]:
    found = set()
    for one in _sessions(server):
        with contextlib.suppress(psycopg.OperationalError):  # its thread closed it meanwhile
            found.add(one.info.backend_pid)
    return found


def last_answer() -> float:
    """Return when (monotonic) the primary last answered this process; 0: never."""
    servers = Session.servers.values()
    return max((one.answered_at for one in servers if not one.is_replica), default=0.0)


def open_backends() -> set[int]:
    """Return the server's process ids of the open sessions of this process."""
    return _backends()


def closed_backends(at_server: Collection[int] | None = None) -> set[int]:
    """Return the pids of sessions that this process closed and the server may still have.

    ``at_server``: the pids that the server reported; the result is limited to these.
    """
    with _opening:
        once = frozenset(_unsure)
    closed = set(once - _backends())
    if at_server is not None:
        with _opening:
            _unsure.difference_update(closed.difference(at_server))
        closed.intersection_update(at_server)
    return closed


def _cut_all(server: _Server) -> None:
    """Make all sessions that were opened at a silent server fail at once, in any thread.

    Their own threads close them. This thread only does what is safe while another waits: it shuts
    the socket down in both directions, as if the server had closed it.
    """
    for session in _sessions(server):
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(session.pgconn.socket)) as ends,
        ):
            ends.shutdown(socket.SHUT_RDWR)


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's PostgreSQL connection wrapper, with a `Session` as its connection."""

    @async_unsafe
    def get_new_connection(self, conn_params: dict[str, Any]) -> psycopg.Connection[Any]:
        """Return a new session.

        Raises:
            psycopg.OperationalError: no host accepts one. Raised without a try while none answers.
        """
        self.isolation_level = IsolationLevel.READ_COMMITTED
        session = Session.connect(**conn_params)
        session.server.is_replica = self.alias != DEFAULT_DB_ALIAS
        return session
