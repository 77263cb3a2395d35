"""Rows that thousands of tests begin with: written once in a run, and put in again as they were.

A user, a token and a namespace take 45 ms of CPU through the API, and 2 ms as rows.
"""

from collections.abc import Callable

from django.db import connection, transaction

from clusterstate.processes import memory
from tests import emptying


def written(write: Callable[[], None]) -> dict[str, str]:
    """Return by table the rows that a function adds, for ``put``; nothing of it stays.

    To be called between tests, outside of transactions.
    """
    rows = {}
    with transaction.atomic(), connection.cursor() as cursor:
        before = {table: emptying.written_by(cursor, table) for table in emptying.tables()}
        write()
        for table, (writers, count) in before.items():
            cursor.execute(
                "SELECT (array_agg(one) FILTER (WHERE is_new))::text,"
                " count(*) FILTER (WHERE NOT is_new) FROM"
                f" (SELECT one, NOT xmin = ANY (%s::text::xid[]) AS is_new FROM {table} one) found",
                [writers],
            )
            added, as_before = cursor.fetchone()
            assert as_before == count, f"a row of {table} was changed, which cannot be put in again"
            if added:
                rows[table] = added
        transaction.set_rollback(True)
    memory.forget()
    return rows


def put(rows: dict[str, str]) -> None:
    """Insert the rows. Of actors, who are committed at once, there may be some already.

    The epoch advances, so that no thread goes on with admission's catalogue of the empty tables.
    """
    inserted = ", ".join(
        f"to_{table} AS (INSERT INTO {table}"
        f" SELECT one.* FROM unnest(%({table})s::text::{table}[]) one ON CONFLICT DO NOTHING)"
        for table in rows
    )
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {inserted} SELECT", rows)
        cursor.execute("SELECT nextval('admission_epoch')")
