"""Whether the database has the tables of this version, without which no process may serve.

``manage.py up`` prepares the database before it starts anything, and so does the composition. Where
processes are started by hand or by other means, one of a new version may come first. Its statements
would fail for a missing column, pass after pass and with a traceback each, without a hint at the
remedy. Tables newer than this version are allowed: during an upgrade processes of the previous
version go on (``docs/operations.md``).
"""

from functools import cache
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import OperationalError

from clusterstate.database import sql

_APP: Final = "clusterstate"
_FEW: Final = 3


class NotPrepared(OperationalError):
    """The database lacks tables of this version; the message says which, and the remedy.

    It counts as a database that is away (`sql.is_away`), since any statement may fail.
    """


@cache
def _migration_names() -> frozenset[str]:
    """Return the names of this version's migrations."""
    folder = Path(settings.BASE_DIR) / settings.MIGRATION_MODULES[_APP]
    return frozenset(one.stem for one in folder.glob("[0-9]*.py"))


def lacking(*, patience: float) -> str:
    """Return what the database lacks, and the remedy; empty if it lacks nothing. Queries twice.

    Waits for each answer at most ``patience`` seconds.
    """
    sql.drop_dead_connection()
    with sql.patience(patience):
        found = _applied()
    missing = sorted(_migration_names() - found)
    if not missing:
        return ""
    named = ", ".join(missing) if len(missing) <= _FEW else f"{len(missing)} migrations"
    return f"lacks {named}: run manage.py prepare"


def _applied() -> set[str]:
    if sql.fetch("SELECT to_regclass('django_migrations') IS NULL") == [(True,)]:
        return set()
    rows = sql.fetch("SELECT name FROM django_migrations WHERE app = %s", (_APP,))
    return {name for (name,) in rows}


def require() -> None:
    """Check that the database has the tables of this version. Queries twice.

    Raises:
        NotPrepared: a table or column is missing.
    """
    if missing := lacking(patience=settings.DATABASE_ANSWER_SECONDS):
        raise NotPrepared(f"the database {missing}")
