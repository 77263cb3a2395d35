"""Backup of the whole database to a file, and restore.

A backup is one snapshot: rows of all tables as of one moment, while the service runs. A restore is
one transaction that holds all tables, so no reader sees half of it, and a failure changes nothing.
It begins a new history (`clusterstate.change_log.lineage`), above all revisions that either side
ever gave out: each follower, in a process or over the network, gets Expired and reads anew, and
decisions on the old state are refused. The admission epoch invalidates the catalogues in processes.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import IO

import psycopg
from django.db import OperationalError, connection, transaction
from psycopg import sql as composed

from clusterstate.actions import past
from clusterstate.actions.scheduler import decisions
from clusterstate.change_log import changes, lineage
from clusterstate.database import archive, locks, sql

Progress = Callable[[str, int], object]
"""Gets a table's name and how many of its rows are done."""

_NOT_SAVED = {"django_migrations", "metric_total", "process_metric"}
"""The migrations are in the head: a backup goes only into tables of the same shape. What processes
counted is not the cluster's state, and must not run backwards when a backup is put back."""
_PARTITIONED = ("decision", "past_block")
"""Tables that Django does not make, each saved as one whatever its partitions are."""
_OTHER = "The backup has other {} than the database: restore it with Stowage {}."
_LOCK_TRIES = 30
_LOCK_SECONDS = 2


class CannotRestore(Exception):
    """The backup does not fit, or another session locks the tables; a sentence."""


def shape() -> dict[str, list[str]]:
    """Return the columns of the service's tables, by table name. Queries twice.

    Other tables in the same database are neither saved nor touched.
    """
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    names += _PARTITIONED
    rows = sql.fetch(
        """
        SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace
          AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
          AND c.relname = ANY(%s)
        GROUP BY c.relname ORDER BY c.relname
        """,
        (sql.Texts(sorted(set(names) - _NOT_SAVED)),),
    )
    return dict(rows)


def migrations() -> list[str]:
    """Return the migrations that made the tables. Queries once."""
    rows = sql.fetch("SELECT app || '.' || name FROM django_migrations ORDER BY 1")
    return [row[0] for row in rows]


def _sequences(tables: Iterable[str]) -> dict[str, int]:
    """Return the values of the id sequences; `lineage` handles those of revisions."""
    rows = sql.fetch(
        """
        WITH ours AS MATERIALIZED (
            SELECT s.oid, s.relname::text AS name
            FROM pg_depend d
            JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
            JOIN pg_class t ON t.oid = d.refobjid
            WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
              AND d.deptype IN ('a', 'i') AND t.relname = ANY(%s)
              AND t.relnamespace = current_schema()::regnamespace
            UNION ALL SELECT 'decision_id'::regclass::oid, 'decision_id'
            UNION ALL SELECT 'past_block_id'::regclass::oid, 'past_block_id')
        SELECT name, coalesce(pg_sequence_last_value(oid), 1) FROM ours
        """,
        (sql.Texts(list(tables)),),
    )
    return dict(rows)


def write(file: IO[bytes], *, version: str, now: datetime, progress: Progress) -> archive.Head:
    """Write everything to ``file``, as of one moment. Returns the head."""
    mark = changes.watermark()
    with transaction.atomic():
        sql.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        tables = shape()
        head = archive.Head(
            version=version,
            taken_at=now.isoformat(),
            history=lineage.identity()["uid"],
            mark=mark,
            migrations=migrations(),
            tables=tables,
            decided_at=decisions.moments(),
            packed_at=past.moments(),
        )
        writer = archive.Writer(file, head)
        for name, columns in tables.items():
            writer.begin(name)
            writer.end(_save_table(writer, name, columns, progress))
        # Read last, so that no row of the snapshot has an id above its sequence.
        writer.close(_sequences(tables))
    return head


def _save_table(writer: archive.Writer, name: str, columns: list[str], progress: Progress) -> int:
    rows = 0
    statement = composed.SQL("COPY (SELECT {1} FROM {0}) TO STDOUT").format(
        *_identifiers(name, columns)
    )
    with (
        connection.wrap_database_errors,
        psycopg.Cursor(sql.raw()) as cursor,
        cursor.copy(statement) as copy,
    ):
        for data in copy:
            writer.rows(data)
            rows += 1
            if rows % 5000 == 0:
                progress(name, rows)
    progress(name, rows)
    return rows


def _identifiers(name: str, columns: list[str]) -> tuple[composed.Identifier, composed.Composed]:
    return (
        composed.Identifier(name),
        composed.SQL(", ").join(composed.Identifier(column) for column in columns),
    )


def check(file: IO[bytes], *, progress: Progress) -> archive.Head:
    """Read the whole file and return its head; changes nothing.

    Raises:
        archive.Damaged: it is not a complete backup.
    """
    reader = archive.Reader(file)
    for name, pieces in reader.tables():
        rows = 0
        for piece in pieces:
            rows += piece.count(b"\n")
            progress(name, rows)
    return reader.head


def require_fit(head: archive.Head) -> None:
    """Check that a backup matches the present tables. Queries twice.

    Raises:
        CannotRestore: it was made by another version, with other tables.
    """
    ours = set(migrations())
    theirs = set(head.migrations)
    if theirs - ours:
        raise CannotRestore(
            f"The backup was made by a newer version of Stowage ({head.version}), with"
            f" {', '.join(sorted(theirs - ours))}: restore it with that version."
        )
    if ours - theirs:
        raise CannotRestore(
            f"The backup was made by an older version of Stowage ({head.version}), without"
            f" {', '.join(sorted(ours - theirs))}: restore it into an empty database with that"
            " version, then start this one, which brings it up to date."
        )
    if shape() != head.tables:
        raise CannotRestore(_OTHER.format("tables or columns", head.version))


def restore(file: IO[bytes], *, progress: Progress) -> int:
    """Replace all rows by those of the backup; return the first revision of the new history.

    All or nothing. Writers and readers wait meanwhile, or get an error that asks them to retry.

    Raises:
        archive.Damaged: the file is not a complete backup.
        CannotRestore: it does not fit, or the tables could not be locked.
    """
    with _all_tables_held():
        reader = archive.Reader(file)
        require_fit(reader.head)
        before = lineage.identity()["ceiling"]
        names = [composed.Identifier(name) for name in reader.head.tables]
        _run(composed.SQL("TRUNCATE {}").format(composed.SQL(", ").join(names)))
        decisions.make_partitions(reader.head.decided_at)
        past.make_partitions(reader.head.packed_at)
        for name, pieces in reader.tables():
            _load_table(name, reader.head.tables[name], pieces, progress)
        if unknown := reader.sequences.keys() - _sequences(reader.head.tables).keys():
            what = f"sequences ({', '.join(sorted(unknown))})"
            raise CannotRestore(_OTHER.format(what, reader.head.version))
        for name, last in reader.sequences.items():
            sql.fetch(
                "SELECT setval(quote_ident(%s::text)::regclass, greatest(%s::bigint, coalesce("
                "pg_sequence_last_value(quote_ident(%s::text)::regclass), 1)))",
                (name, last, name),
            )
        changes.advance_admission_epoch()
        # Above all revisions that this database, or the saved one, ever gave out.
        sql.run("UPDATE history SET ceiling = greatest(ceiling, %s) WHERE id = 1", (before,))
        return lineage.start_again()


def _load_table(name: str, columns: list[str], pieces: Iterator[bytes], progress: Progress) -> None:
    rows = 0
    progress(name, rows)
    statement = composed.SQL("COPY {} ({}) FROM STDIN").format(*_identifiers(name, columns))
    with (
        connection.wrap_database_errors,
        psycopg.Cursor(sql.raw()) as cursor,
        cursor.copy(statement) as copy,
    ):
        for piece in pieces:
            copy.write(piece)
            rows += piece.count(b"\n")
            progress(name, rows)


def _run(statement: composed.Composed) -> None:
    with connection.wrap_database_errors, psycopg.Cursor(sql.raw()) as cursor:
        cursor.execute(statement)


@contextlib.contextmanager
def _all_tables_held() -> Iterator[None]:
    """Run in a transaction that has all tables locked exclusively.

    It requests the locks again and again, each time for a moment: other sessions wait behind such a
    request, and two sessions that lock in different orders would deadlock.

    Raises:
        CannotRestore: another session did not release them in time.
    """
    names = [composed.Identifier(name) for name in shape()]
    lock = composed.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(
        composed.SQL(", ").join(names)
    )
    for _ in range(_LOCK_TRIES):
        with contextlib.ExitStack() as stack:
            stack.enter_context(transaction.atomic())
            try:
                with transaction.atomic():
                    sql.fetch(f"SELECT set_config('lock_timeout', '{_LOCK_SECONDS}s', true)")
                    sql.run("SELECT pg_advisory_xact_lock(%s)", (locks.ADMISSION,))
                    sql.run("SELECT pg_advisory_xact_lock(%s)", (locks.PLACEMENT,))
                    _run(lock)
            except OperationalError as error:
                if not isinstance(
                    error.__cause__,
                    psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected,
                ):
                    raise
                continue
            yield
            return
    raise CannotRestore(
        "The tables are in use: another session holds them in a long transaction."
        " Nothing was changed."
    )
