"""The scheduler's configuration: every version is kept, the last one is in force.

Its ``compatibility``, the version of Kubernetes to follow, is part of admission's catalogue, whose
epoch advances when it changes. The scheduler registers a function that checks documents
(``check_with``).
"""

from collections.abc import Callable
from datetime import datetime

import msgspec
from django.db import transaction

from clusterstate import catalogue
from clusterstate.database import locks, sql
from clusterstate.objects.values.errors import Conflict
from clusterstate.queries.scheduler import decisions

Checker = Callable[[object], tuple[str, list[str]]]
"""Returns canonical JSON and advice for people; takes a mapping, or YAML or JSON text.

Raises ``Invalid`` with every wrong field.
"""

_checkers: list[Checker] = []


def check_with(checker: Checker) -> None:
    """Register the function that checks documents; called once, when the applications are ready."""
    _checkers[:] = [checker]


def check(document: object) -> tuple[str, list[str]]:
    """Return the document as it would be stored, and advice for users.

    Raises:
        Invalid: with every wrong field.
    """
    (checker,) = _checkers
    return checker(document)


def store(*, document: str, by: str, now: datetime, replaces: int | None = None) -> int:
    """Store a new version; return its revision, or the present one when nothing changes.

    Args:
        document: the checked configuration as canonical JSON.
        by: the user.
        now: the time.
        replaces: the revision that the caller expects to replace, ``None`` for any.

    Raises:
        Conflict: another version is in force.
    """
    with transaction.atomic():
        sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.CONFIGURATION,))
        present = decisions.configuration()
        before = decisions.admission_rules()
        revision = 0 if present is None else present.revision
        if replaces is not None and replaces != revision:
            raise Conflict(
                "Operation cannot be fulfilled on the scheduler configuration: the object has been"
                " modified; please apply your changes to the latest version and try again"
            )
        if present is not None and present.document == document:
            return revision
        row = sql.fetch_one(
            "INSERT INTO scheduler_configuration (document, at, by)"
            " VALUES (%s, %s::timestamptz, %s) RETURNING revision",
            (document, now, by),
        )
        assert row is not None
        if decisions.admission_rules() != before:
            catalogue.lock_for_writing()
            catalogue.advance()
        stored: int = row[0]
        return stored


def note_use(*, revision: int, stored: int, problems: dict[str, str], is_usable: bool) -> None:
    """Store which revision the scheduler uses, and why it cannot use some profiles.

    Queries once, and writes only changes (`progress.configuration_use`).
    """
    sql.run(
        """
        INSERT INTO configuration_use AS u (id, revision, wanted, problems, is_usable, at)
        VALUES (1, %s::bigint, %s::bigint, %s::jsonb, %s, clock_timestamp())
        ON CONFLICT (id) DO UPDATE
        SET revision = excluded.revision, wanted = excluded.wanted, problems = excluded.problems,
            is_usable = excluded.is_usable, at = excluded.at
        WHERE (u.revision, u.wanted, u.problems, u.is_usable) IS DISTINCT FROM
            (excluded.revision, excluded.wanted, excluded.problems, excluded.is_usable)
        """,
        (revision, stored, msgspec.json.encode(problems).decode(), is_usable),
    )
