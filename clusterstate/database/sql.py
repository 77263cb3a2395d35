"""Statements on the connection itself: prepared, with binary parameters and results.

The hot paths of ``actions``, ``changes`` and ``queries`` use this instead of Django's cursor: the
server keeps the plan, a thousand rows travel as a few binary arrays, and no text is parsed on
either side (measured: Django's and psycopg's own list parameters cost 20 times as much).

Statements belong to Django's transaction: outside ``atomic`` each one commits by itself. Errors are
Django's (`django.db.IntegrityError` ...), with psycopg's as ``__cause__``.
"""

import struct
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from django.conf import settings
from django.db import InterfaceError, OperationalError, close_old_connections, connection
from psycopg.adapt import Dumper
from psycopg.pq import ExecStatus, Format

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LOADS = " loads"
"""Ends the ``application_name`` of a session that reads the whole cluster in one transaction."""
KEEPER = "+"
"""Part of the ``application_name`` of a keeper's session (``sessions``), between its process's sign
and the factor by which the process is slow."""
METADATA = "split_part(d.text, chr(1), 1)"
"""The text of a document ``d`` up to the end of its metadata: the first slot ends it. Searches for
an object's own fields, such as finalizers, use it, since a template in the spec may have fields of
the same names."""
FINALIZERS = f"""substring({METADATA} FROM '"finalizers":(\\[[^]]*\\])')"""
"""The finalizers of a document ``d`` as JSON text; NULL: it has none."""
CREATED = (
    f"substring({METADATA} FROM"
    """ '(?:"metadata":\\{|\\},)"creationTimestamp":"([^"]*)"')"""
)
"""When the object of a document ``d`` was created, as text. An annotation before it may have the
same name, but only this field follows the end of an object, or begins one."""
IS_LEAVING = (
    f"""(strpos({METADATA}, '"deletionTimestamp":"') > 0 AND {METADATA} ~"""
    """ '"deletionGracePeriodSeconds":-?[0-9]+,"deletionTimestamp":"')"""
)
"""Whether the pod of a document ``d`` is being deleted. A label may have the same name, but the
field before a label is a text and not a number."""
_HEADER = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i").pack
_INT8 = struct.Struct(">iq").pack
_INT4 = struct.Struct(">ii").pack
_NULL = b"\xff\xff\xff\xff"
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UUID_LENGTH = _LENGTH(16)
_LONG = 100
"""With arrays longer than this a statement is planned anew for their values."""

Row = tuple[Any, ...]


class Array:
    """A one-dimensional array parameter; ``None`` entries are NULL. Subclasses name the type.

    Integers may be a NumPy array, or one object repeated; both are faster than other lists.
    """

    __slots__ = ("values",)

    def __init__(self, values: "Sequence[Any] | npt.NDArray[np.integer]") -> None:
        self.values = values


class Texts(Array):
    """``text[]``."""

    __slots__ = ()


class Int8s(Array):
    """``bigint[]``."""

    __slots__ = ()


class Int4s(Array):
    """``integer[]``."""

    __slots__ = ()


class Uuids(Array):
    """``uuid[]``."""

    __slots__ = ()


class Byteas(Array):
    """``bytea[]``."""

    __slots__ = ()


class Times(Array):
    """``timestamptz[]`` from aware datetimes."""

    __slots__ = ()


class _ArrayDumper(Dumper):
    format = Format.BINARY
    element_oid = 0

    def dump(self, obj: Array) -> bytes:
        values = obj.values
        count = len(values)
        if not count:
            return struct.pack(">iiI", 0, 0, self.element_oid)
        # The second field announces NULLs; the server checks it for 0 or 1 and nothing more.
        header = _HEADER.pack(1, 1, self.element_oid, count, 1)
        if not isinstance(values, list | tuple):
            return header + self.packed(values)
        first = values[0]
        if first is values[-1] and all(value is first for value in values):
            return header + b"".join(self.elements((first,))) * count
        return header + b"".join(self.elements(values))

    def packed(self, values: Any) -> bytes:
        """Return the elements of a NumPy array in PostgreSQL's binary format."""
        return b"".join(self.elements(values.tolist()))

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        raise AssertionError("each subclass encodes its own element type")


class _TextsDumper(_ArrayDumper):
    oid = 1009
    element_oid = 25

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        parts: list[bytes] = []
        for value in values:
            if value is None:
                parts.append(_NULL)
            else:
                data = value.encode()
                parts.append(_LENGTH(len(data)))
                parts.append(data)
        return parts


class _IntsDumper(_ArrayDumper):
    packed_as = ""

    def packed(self, values: Any) -> bytes:
        import numpy as np

        found = np.empty(len(values), [("length", ">i4"), ("value", self.packed_as)])
        found["length"] = found.dtype["value"].itemsize
        found["value"] = values
        return found.tobytes()


class _Int8sDumper(_IntsDumper):
    oid = 1016
    element_oid = 20
    packed_as = ">i8"

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [_NULL if value is None else _INT8(8, value) for value in values]


class _Int4sDumper(_IntsDumper):
    oid = 1007
    element_oid = 23
    packed_as = ">i4"

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [_NULL if value is None else _INT4(4, value) for value in values]


class _UuidsDumper(_ArrayDumper):
    oid = 2951
    element_oid = 2950

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [_NULL if value is None else _UUID_LENGTH + value.bytes for value in values]


class _ByteasDumper(_ArrayDumper):
    oid = 1001
    element_oid = 17

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [_NULL if value is None else _LENGTH(len(value)) + value for value in values]


class _TimesDumper(_ArrayDumper):
    oid = 1185
    element_oid = 1184

    def elements(self, values: Sequence[Any]) -> Iterable[bytes]:
        return [
            _NULL if value is None else _INT8(8, (value - _EPOCH) // _MICROSECOND)
            for value in values
        ]


_DUMPERS: dict[type[Array], type[_ArrayDumper]] = {
    Texts: _TextsDumper,
    Int8s: _Int8sDumper,
    Int4s: _Int4sDumper,
    Uuids: _UuidsDumper,
    Byteas: _ByteasDumper,
    Times: _TimesDumper,
}
_prepared_connections: "weakref.WeakSet[psycopg.Connection[Any]]" = weakref.WeakSet()


def raw() -> "psycopg.Connection[Any]":
    """Return this thread's psycopg connection, opened if need be, with array types registered."""
    inner: psycopg.Connection[Any] | None = connection.connection
    if inner is None:
        connection.ensure_connection()
        inner = connection.connection
        assert inner is not None
    if inner not in _prepared_connections:
        for array_type, dumper in _DUMPERS.items():
            inner.adapters.register_dumper(array_type, dumper)
        # Each statement exists in a few shapes; too small a cache would plan them again and again.
        inner.prepared_max = 300
        _prepared_connections.add(inner)
    return inner


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Within the block, wait at most this long for each answer to this thread's statements.

    A server that does not respond at all is given up earlier (`clusterstate.database.postgres`).
    """
    inner: Any = raw()
    before = getattr(inner, "limit_seconds", settings.DATABASE_ANSWER_SECONDS)
    inner.limit_seconds = seconds
    try:
        yield
    finally:
        inner.limit_seconds = before


_ENDS_THE_SESSION = ("FATAL", "PANIC")
_READ_ONLY = "25006"
_AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)


def is_away(error: BaseException) -> bool:
    """Return whether the database is away, ended the session, or is read-only.

    Then any other statement fails as well. Django raises OperationalError or InterfaceError for the
    first, and InternalError for the other two, as for errors of a single statement. psycopg's own
    errors are judged alike.
    """
    if isinstance(error, _AWAY):
        return True
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    return isinstance(cause, psycopg.Error) and (
        cause.sqlstate == _READ_ONLY or cause.diag.severity_nonlocalized in _ENDS_THE_SESSION
    )


def require_writes() -> None:
    """Check that the database takes writes. Queries once.

    Raises:
        OperationalError: it is away, a replica, or read-only.
    """
    if fetch("SELECT current_setting('transaction_read_only')::bool") == [(True,)]:
        raise OperationalError("the database is read-only: it is a replica, or was made one")


def drop_dead_connection() -> None:
    """Close this thread's connection if it is dead or too old; does nothing in a transaction.

    Django does this before each request; tasks and passes of loops call it before they begin.
    """
    if not connection.in_atomic_block:
        close_old_connections()


def _is_short(parameters: Sequence[Any]) -> bool:
    """Return whether no array is long, so that PostgreSQL's stored plan is good enough.

    A stored plan fits the tables as they were when it was made: it may scan a table, empty then,
    for each element. With long arrays and a full table that takes seconds; planning anew costs
    little.
    """
    return not any(isinstance(one, Array) and len(one.values) > _LONG for one in parameters)


def fetch(statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
    """Execute a statement and return all rows, as tuples."""
    inner = raw()
    with connection.wrap_database_errors:
        cursor = psycopg.Cursor(inner)
        cursor.execute(statement, parameters, prepare=_is_short(parameters), binary=True)
        rows: list[Row] = cursor.fetchall()
        cursor.close()
        return rows


def fetch_together(*statements: tuple[str, Sequence[Any]]) -> list[list[Row]]:
    """Execute statements in order, in one round trip; return the rows of each.

    They are one transaction. Each statement sees the writes of those before it and, as always in
    READ COMMITTED, everything that others committed before it began.
    """
    inner = raw()
    with connection.wrap_database_errors:
        cursors = []
        with inner.pipeline():
            for statement, parameters in statements:
                cursor = psycopg.Cursor(inner)
                cursor.execute(statement, parameters, prepare=_is_short(parameters), binary=True)
                cursors.append(cursor)
        # ``description`` would do as well, but makes an object for each column.
        rows = [cursor.fetchall() if _has_rows(cursor) else [] for cursor in cursors]
        for cursor in cursors:
            cursor.close()
        return rows


def _has_rows(cursor: "psycopg.Cursor[Any]") -> bool:
    """Return whether a statement returns rows, even if there are none."""
    return cursor.pgresult is not None and cursor.pgresult.status == ExecStatus.TUPLES_OK


def fetch_one(statement: str, parameters: Sequence[Any] = ()) -> Row | None:
    """Execute a statement and return the first row, or ``None``."""
    rows = fetch(statement, parameters)
    return rows[0] if rows else None


def run(statement: str, parameters: Sequence[Any] = ()) -> int:
    """Execute a statement that returns no rows; return how many rows it changed."""
    inner = raw()
    with connection.wrap_database_errors:
        cursor = psycopg.Cursor(inner)
        cursor.execute(statement, parameters, prepare=_is_short(parameters), binary=True)
        count = cursor.rowcount
        cursor.close()
        return count


def as_uuid(text: str) -> uuid.UUID:
    """Return a ``metadata.uid`` as a UUID."""
    return uuid.UUID(text)
