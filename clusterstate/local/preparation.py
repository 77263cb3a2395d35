"""Preparing a database: migrations by one process at a time, and checks of its version.

Used by `manage.py prepare`, `up`, `backup` and `restore`. Several hosts may start at once: each
waits for its turn by repeated short statements. One long statement would keep a snapshot open, for
which CREATE INDEX CONCURRENTLY waits in turn.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from django.conf import settings
from django.core.management.base import CommandError
from django.db import Error as DatabaseError
from django.db import OperationalError, connection, connections
from django.db.migrations.loader import MigrationLoader

from clusterstate.database import locks, sessions

POSTGRES_VERSION = 18
"""The oldest major version that works."""

_POLL_SECONDS = 0.1
_FEW = 3
_TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
)


@contextmanager
def alone(say: Callable[[str], object] | None = None) -> Iterator[None]:
    """Wait for the advisory lock under which the database is migrated; release it after the block.

    ``say`` gets one sentence if another process has the lock. The lock is taken on a connection of
    its own and ends with it, so a killed process leaves no lock behind.
    """
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            waiting = False
            while True:
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [locks.PREPARATION])
                if cursor.fetchone() == (True,):
                    break
                if not waiting and say is not None:
                    say("another process prepares, saves or restores this database: waiting for it")
                waiting = True
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        other.close()


@contextmanager
def unhurried() -> Iterator[None]:
    """Within the block, lift the time-outs of this thread's connection, which are for requests.

    The serving processes do not end its session either, even if others wait for it.
    """
    with connection.cursor() as cursor:
        for name in _TIMEOUTS:
            cursor.execute(f"SET {name} = 0")
        cursor.execute(f"SET application_name = '{sessions.UNHURRIED}'")
    try:
        yield
    finally:
        if connection.connection is not None and not connection.connection.closed:
            with connection.cursor() as cursor:
                for name in (*_TIMEOUTS, "application_name"):
                    cursor.execute(f"RESET {name}")


def require_server() -> None:
    """Check that the server runs, is new enough and not a replica.

    Raises:
        CommandError: it does not; the message says what to do.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('server_version_num')::int,"
                " current_setting('server_version'), pg_is_in_recovery()"
            )
            row = cursor.fetchone()
    except OperationalError as error:
        reason = str(error).strip().split("\n", 1)[0]
        if "unrecognized configuration parameter" in reason:
            # PostgreSQL before 17 has no `transaction_timeout`, and refuses sessions that set it.
            require_version(*_version_without_options())
        if settings.DATABASE_FOLDER is not None and "FATAL" in reason:  # a server that answers
            raise CommandError(
                f"The embedded database of {settings.STATE_DIR} does not let this command in:"
                f" {reason.partition('FATAL:')[2].strip()}."
            ) from error
        if settings.DATABASE_FOLDER is not None:
            raise CommandError(
                f"The embedded database of {settings.STATE_DIR} does not run: start the service"
                " (manage.py up), or name another database in DATABASE_URL."
            ) from error
        raise CommandError(f"DATABASE_URL: cannot connect: {reason}") from error
    assert row is not None
    number, version, is_replica = row
    require_version(number, version)
    if is_replica:
        raise CommandError(
            "DATABASE_URL leads to a replica, which only reads: name the primary, or promote it"
            " (SELECT pg_promote()). With several hosts in DATABASE_URL add"
            " target_session_attrs=read-write."
        )


def _version_without_options() -> tuple[int, str]:
    """Return the server's ``server_version_num`` and version, over a connection without options."""
    params = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname", "connect_timeout", "sslmode")
    with psycopg.connect("", **{name: params[name] for name in names if name in params}) as plain:
        return plain.info.server_version, plain.info.parameter_status("server_version") or ""


def sessions_allowed() -> int:
    """Return how many sessions the server and the role allow, without those for superusers.

    Queries once.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT least(current_setting('max_connections')::int"
            " - current_setting('superuser_reserved_connections')::int"
            " - current_setting('reserved_connections')::int,"
            " (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),"
            " (SELECT nullif(datconnlimit, -1) FROM pg_database"
            " WHERE datname = current_database()))"
        )
        row = cursor.fetchone()
    assert row is not None
    allowed: int = row[0]
    return allowed


def require_version(number: int, version: str) -> None:
    """Check a server's ``server_version_num`` (180004); ``version`` is the text for messages.

    Raises:
        CommandError: it is too old.
    """
    if number // 10_000 < POSTGRES_VERSION:
        raise CommandError(
            f"DATABASE_URL leads to PostgreSQL {version}; Stowage needs {POSTGRES_VERSION} or"
            " newer: upgrade the server (pg_upgrade), or save there and restore here"
            " (manage.py backup, manage.py restore)."
        )


def unknown_migrations(loader: MigrationLoader) -> list[str]:
    """Return the migrations in the database that this version does not have."""
    return sorted(
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in loader.migrated_apps
        and (app, name) not in loader.graph.nodes
        # Several migrations may have been squashed into one since.
        and (app, name) not in _replaced(loader)
    )


def _replaced(loader: MigrationLoader) -> set[tuple[str, str]]:
    return {old for migration in loader.replacements.values() for old in migration.replaces}


def missing_migrations(loader: MigrationLoader) -> list[str]:
    """Return the migrations of this version that the database lacks."""
    missing = set(loader.graph.nodes) - set(loader.applied_migrations)
    return sorted(f"{app}.{name}" for app, name in missing)


def require_known_migrations(loader: MigrationLoader) -> None:
    """Check that no newer version of Stowage has prepared this database.

    Raises:
        CommandError: a newer version has.
    """
    if unknown := unknown_migrations(loader):
        raise CommandError(
            "This database was prepared by a newer version of Stowage, which made"
            f" {', '.join(unknown)}: start that version, or restore a backup made by this one."
        )


def require_prepared() -> None:
    """Check that the database has all the tables of this version, and no others. Queries.

    Raises:
        CommandError: it has not; the message says what to do.
    """
    loader = MigrationLoader(connection)
    require_known_migrations(loader)
    if missing := missing_migrations(loader):
        named = ", ".join(missing) if len(missing) <= _FEW else f"{len(missing)} migrations"
        raise CommandError(f"The database lacks {named}: run manage.py prepare first.")


def what_is_wrong() -> str | None:
    """Return why no command can work with this database, and the remedy; ``None`` if one can.

    For a command that failed on the database. Queries on a new connection.
    """
    connection.close()
    try:
        require_server()
        require_prepared()
    except CommandError as error:
        return str(error)
    except DatabaseError:
        return None
    return None
