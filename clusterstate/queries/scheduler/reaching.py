"""The scheduling classes with hard rules about other pods (`actions.pods.bind`)."""

from collections.abc import Collection

from django.db import transaction

from clusterstate.database import locks, sql


def reach() -> int:
    """Return how often a class with rules about other pods was stored or deleted. Queries once."""
    row = sql.fetch_one("SELECT last_value FROM reach_seq")
    return 0 if row is None else int(row[0])


def reaching_classes(
    known: Collection[int] = (),
) -> tuple[int, list[tuple[int, str]], frozenset[int]]:
    """Return ``reach()``, the classes with rules about other pods, and the deleted of ``known``.

    A class is its id and its reduced Pod manifest as JSON; those whose ids are ``known`` are left
    out. Some only look as if they had such rules. Waits for transactions that store or delete such
    a class: they hold the placement lock, shared. Queries four times in one transaction.
    """
    ids = sql.Int8s(list(known))
    with transaction.atomic():
        sql.run(f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})")
        number = reach()
        rows = sql.fetch(
            "SELECT id, spec FROM scheduling_class WHERE class_reaches(spec) AND NOT id = ANY (%s)",
            (ids,),
        )
        gone = sql.fetch(
            "SELECT k FROM unnest(%s) k WHERE k NOT IN (SELECT id FROM scheduling_class"
            " WHERE class_reaches(spec))",
            (ids,),
        )
    return number, [(class_id, spec) for class_id, spec in rows], frozenset(row[0] for row in gone)
