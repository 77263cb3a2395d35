"""Emptying the database after a test that committed, by what the test has written.

Django's flush empties every table, makes all content types and permissions anew and fills the
database again: 150 ms of CPU after each of 800 tests. Most tests write into a dozen of 70 tables.
So only tables that were written to are emptied, and content types and permissions stay while nobody
has changed them. The state afterwards is that after a flush.
"""

import functools
from typing import Any

import psycopg
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction
from django.test import TransactionTestCase
from django.utils import timezone

from clusterstate.actions.cluster import bootstrap
from clusterstate.processes import memory

_OF_DJANGO = ("django_content_type", "auth_permission")
"""Tables that a flush fills with the rows that they had; they refer to no other tables."""
_ATTEMPTS = 5

# A table has no page until its first row comes, and TRUNCATE takes all pages away. So this finds
# rows, also deleted ones, without looking at any.
_WRITTEN_TO = """
SELECT relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relname = ANY(%s) AND (
    relkind = 'r' AND pg_relation_size(oid) > 0 OR relkind = 'p' AND EXISTS (
        SELECT FROM pg_partition_tree(oid) part WHERE pg_relation_size(part.relid) > 0
    )
)
"""

_tables = functools.cache(
    lambda: connection.introspection.django_table_names(only_existing=True, include_views=False)
)
"""The models' tables: in a run they do not change, and to look for them takes a tenth of all."""
_filled_by_django: list[tuple[str, int, str]] = []


def _rows_of_django(cursor: Any) -> list[tuple[str, int, str]]:
    """Return a summary of each table that Django fills, another one whenever a row has changed."""
    cursor.execute(
        " UNION ALL ".join(
            f"SELECT '{table}', count(*), md5(string_agg(one::text, ' ' ORDER BY one.id))"
            f" FROM {table} one"
            for table in _OF_DJANGO
        )
    )
    return cursor.fetchall()


def _empty_what_was_written_to() -> bool:
    """Empty the tables and fill the database, or return false: Django's own rows have changed.

    A transaction that is still open in another thread has a lock on what it writes to. All tables
    are locked before any is looked at, so it is waited for, and its rows go as well.
    """
    quoted = connection.ops.quote_name
    names = _tables()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLE {', '.join(map(quoted, names))}")
        if _rows_of_django(cursor) != _filled_by_django:
            return False
        cursor.execute(_WRITTEN_TO, [[name for name in names if name not in _OF_DJANGO]])
        if found := [quoted(name) for (name,) in cursor.fetchall()]:
            # What refers to them has no rows that could be kept, and most of it has none at all.
            cursor.execute(f"TRUNCATE {', '.join(found)} CASCADE")
    # What `fill_database` does after it has looked whether all tables are there.
    memory.forget()
    bootstrap.ensure(now=timezone.now())  # noqa: TID251 - as in a command
    return True


def _empty() -> None:
    if not _filled_by_django or not _empty_what_was_written_to():
        call_command("flush", verbosity=0, interactive=False, reset_sequences=False)
        with connection.cursor() as cursor:
            _filled_by_django[:] = _rows_of_django(cursor)


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
