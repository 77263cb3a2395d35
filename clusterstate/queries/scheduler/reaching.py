"""The scheduling classes with hard rules about other pods (`actions.pods.bind`)."""

from collections.abc import Collection

from clusterstate.database import locks, sql


def reach() -> int:
    """Return how often a class with rules about other pods was stored or deleted. Queries once."""
    row = sql.fetch_one("SELECT last_value FROM reach_seq")
    return 0 if row is None else int(row[0])


def reaching_classes(
    known: Collection[int] = (), since: int = 0
) -> tuple[int, list[tuple[int, str]], frozenset[int]]:
    """Return ``reach()``, the classes with rules about other pods, and the deleted of ``known``.

    A class is its id and its reduced Pod manifest as JSON; those whose ids are ``known`` are left
    out. Some only look as if they had such rules. ``since``: the number when those were read. Waits
    for transactions that store or delete such a class: they hold the placement lock, shared. One
    round trip, and two if classes were deleted.
    """
    ids = sql.Int8s(list(known))
    _, ((number,),), rows = sql.fetch_together(
        (f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})", ()),
        ("SELECT last_value FROM reach_seq", ()),
        (
            "SELECT id, spec FROM scheduling_class WHERE class_reaches(spec) AND NOT id = ANY (%s)",
            (ids,),
        ),
    )
    gone: frozenset[int] = frozenset()
    if known and number != since + len(rows):
        there = sql.fetch("SELECT id FROM scheduling_class WHERE id = ANY (%s)", (ids,))
        gone = frozenset(known) - {row[0] for row in there}
    return number, [(class_id, spec) for class_id, spec in rows], gone
