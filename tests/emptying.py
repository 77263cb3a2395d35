"""Emptying the database after a test that committed, by what the test has written.

Django's flush empties every table, makes all content types and permissions anew and fills the
database again: 150 ms of CPU after each of 1,400 tests. TRUNCATE of the tables that were written to
takes half of that: it makes new files of each table and index, and every session then plans all of
its statements anew. So the rows of tests are deleted, and those that a flush leaves stay.

The row of a flush is known by the transaction that wrote it (``xmin``): who changes it, writes
another one. Where one is missing afterwards, the table gets all of them from a copy. The state
afterwards is that after a flush, but for the history, which goes on.
"""

import functools
from typing import Any

import psycopg
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction
from django.test import TransactionTestCase

from clusterstate.change_log import lineage
from clusterstate.processes import memory

_COPIES = "of_a_flush"
"""The schema of the copies."""
_HISTORY = "history"
"""Tells how far revisions go, which do not go back: it is made anew."""
_MOST_BYTES = 8 << 20
"""Of tables that hold hardly any row. They are read as a whole, so then a flush makes new ones."""
_ATTEMPTS = 5

tables = functools.cache(
    lambda: connection.introspection.django_table_names(only_existing=True, include_views=False)
)
"""The models' tables: in a run they do not change, and to look for them takes a tenth of all."""
_first: dict[str, tuple[str, int]] = {}
"""Of each table with rows of a flush: the transactions that wrote them, and how many there are."""
_highest: list[int] = []
"""The highest revision of a flush. Tests of crashes let the sequence go back below it."""
_REVISION = "pg_sequence_last_value('change_revision')"
_SIZE = """
SELECT sum(pg_relation_size(oid))::int8 FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


def _quoted(table: str) -> str:
    return connection.ops.quote_name(table)


def written_by(cursor: Any, table: str) -> tuple[str, int]:
    """Return the transactions that wrote the rows of a table, as text of an array, and how many."""
    cursor.execute(
        f"SELECT coalesce(array_agg(DISTINCT xmin::text), '{{}}')::text, count(*)"
        f" FROM {_quoted(table)}"
    )
    found: tuple[str, int] = cursor.fetchone()
    return found


def _flush() -> None:
    """Flush as Django does, and copy what is there then."""
    call_command("flush", verbosity=0, interactive=False, reset_sequences=False)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"DROP SCHEMA IF EXISTS {_COPIES} CASCADE; CREATE SCHEMA {_COPIES}")
        found = {table: written_by(cursor, table) for table in tables()}
        _first.clear()
        _first.update({table: rows for table, rows in found.items() if rows[1]})
        for table in _first:
            copy = f"{_COPIES}.{_quoted(table)}"
            cursor.execute(f"CREATE TABLE {copy} AS TABLE {_quoted(table)}")
        cursor.execute(f"SELECT {_REVISION}")
        _highest[:] = cursor.fetchone()


@functools.cache
def _statements(first: tuple[str, ...]) -> tuple[str, str]:
    """Return what deletes the rows of tests, and what tells how many rows there are.

    The second one answers how many rows each of the given tables has, whether another one has any,
    the last revision, and how large all tables are.
    """
    others = [_quoted(table) for table in tables() if table not in first]
    deletions = [f"DELETE FROM {table}" for table in others] + [
        f"DELETE FROM {_quoted(table)} WHERE NOT xmin = ANY (%({table})s::text::xid[])"
        for table in first
    ]
    named = ", ".join(f"d{number} AS ({one})" for number, one in enumerate(deletions))
    counts = [f"(SELECT count(*) FROM {_quoted(table)})" for table in first]
    some = " OR ".join(f"EXISTS (SELECT FROM {table})" for table in others)
    return (
        f"WITH {named} SELECT",
        f"SELECT {', '.join(counts)}, {some}, {_REVISION}, ({_SIZE})",
    )


def _delete_rows_of_tests() -> bool:
    """Delete them, or return false: a flush has to do it.

    A transaction that is still open in another thread has a lock on what it writes to. All tables
    are locked before any is looked at, so it is waited for, and its rows go as well.
    """
    first = [table for table in tables() if table in _first]
    delete, look = _statements(tuple(first))
    with transaction.atomic(), connection.cursor() as cursor:
        names = ", ".join(map(_quoted, tables()))
        cursor.execute(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")
        cursor.execute(delete, {table: _first[table][0] for table in first})
        # Triggers may write what tells of the deletions; those that wait for the end come now.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")
        cursor.execute(look)
        *counts, others_have_rows, revision, size = cursor.fetchone()
        changed = [one for one, count in zip(first, counts, strict=True) if count != _first[one][1]]
        if _HISTORY in changed or revision < _highest[0] or size > _MOST_BYTES:
            return False
        for table in changed:
            cursor.execute(f"DELETE FROM {_quoted(table)}")
            cursor.execute(f"INSERT INTO {_quoted(table)} SELECT * FROM {_COPIES}.{_quoted(table)}")
            _first[table] = written_by(cursor, table)
        if others_have_rows:
            cursor.execute(delete, {table: _first[table][0] for table in first})
    memory.forget()
    lineage.establish()
    return True


def _empty() -> None:
    if not _first or not _delete_rows_of_tests():
        _flush()


def empty_database() -> None:
    """Empty the tables, again where a thread of a server in this process was reading them.

    The locks are taken in another order than by a statement that reads several tables.
    """
    for attempt in range(_ATTEMPTS):
        try:
            _empty()
        except (CommandError, OperationalError) as error:
            # A command tells what went wrong as its own error's cause.
            cause = error.__cause__
            if isinstance(cause, OperationalError):
                cause = cause.__cause__
            if attempt == _ATTEMPTS - 1 or not isinstance(cause, psycopg.errors.DeadlockDetected):
                raise
        else:
            return


def install() -> None:
    """Let every test that commits end so; here they all use one database with all its tables."""
    TransactionTestCase._fixture_teardown = (  # type: ignore[method-assign]
        lambda _case: empty_database()
    )
