"""The scheduling classes with hard rules about other pods (`actions.pods.bind`)."""

from collections.abc import Collection

from django.db import transaction

from clusterstate.database import locks, sql


def reach() -> int:
    """Return how many such classes there ever were. Queries once."""
    row = sql.fetch_one("SELECT last_value FROM reach_seq")
    return 0 if row is None else int(row[0])


def reaching_classes(known: Collection[int] = ()) -> tuple[int, list[tuple[int, str]]]:
    """Return that number, and the classes: each one's id and reduced Pod manifest as JSON.

    Some of these only look as if they had such rules. Classes whose ids are ``known`` and deleted
    ones are left out. Waits for transactions that store such a class: they hold the placement lock,
    shared. Queries twice in one transaction.
    """
    with transaction.atomic():
        sql.run(f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})")
        number = reach()
        rows = sql.fetch(
            "SELECT id, spec FROM scheduling_class WHERE class_reaches(spec) AND NOT id = ANY (%s)",
            (sql.Int8s(list(known)),),
        )
    return number, [(class_id, spec) for class_id, spec in rows]
