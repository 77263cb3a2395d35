"""The scheduling classes with hard rules about other pods (`actions.pods.bind`)."""

from django.db import transaction

from clusterstate.database import locks, sql
from clusterstate.queries.loops.loading import ClassRow


def reach() -> int:
    """Return how many such classes there ever were. Queries once."""
    row = sql.fetch_one("SELECT last_value FROM reach_seq")
    return 0 if row is None else int(row[0])


def reaching_classes() -> tuple[int, list[ClassRow]]:
    """Return that number and the classes, some of which only look as if they had such rules.

    Waits for everybody who stores such a class now: they hold the placement lock, shared. Queries
    twice in one transaction.
    """
    with transaction.atomic():
        sql.run(f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})")
        known = reach()
        rows = sql.fetch("SELECT id, spec FROM scheduling_class WHERE class_reaches(spec)")
    return known, [ClassRow(id_, spec.encode()) for id_, spec in rows]
