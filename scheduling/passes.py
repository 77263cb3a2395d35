"""Runs one pass of a loop, thread, duty or controller, and handles its failure.

``attempt`` alone decides what a failed pass logs and whether its database session is closed. The
caller decides when the pass is tried again.
"""

from collections.abc import Callable

import structlog
from django.db import Error as DatabaseError
from django.db import connection

from clusterstate.database import sessions, sql
from clusterstate.telemetry.troubles import Trouble, reason_of

logger = structlog.get_logger(__name__)


def attempt(
    work: str,
    do: Callable[[], object],
    *,
    raises_if_away: bool = False,
    trouble: Trouble | None = None,
) -> bool:
    """Call ``do`` in a live database session; return whether it ended without an error.

    An error is logged with ``work``, the name of the loop, thread or controller, and closes the
    session: ``lost_the_database`` in one line while the database is away (`sql.is_away`), else
    ``pass_failed`` with a traceback. ``raises_if_away``: the pass is part of another one, which
    would fail as well. ``trouble``: for a repeated pass; repeated failures for the same reason are
    logged once a minute, with their number in ``failures``.

    Raises:
        django.db.Error: the database is away, and ``raises_if_away``.
    """
    try:
        sql.drop_dead_connection()
        do()
    except Exception as error:
        is_away = sql.is_away(error)
        if is_away and raises_if_away:
            raise
        sessions.note_end(error)
        reason = reason_of(error)
        if failures := trouble.note(reason) if trouble is not None else 1:
            details = {"work": work, "error": reason, "failures": failures}
            if is_away:
                logger.warning("lost_the_database", **details)
            else:
                logger.exception("pass_failed", **details)
        hang_up()
        return False
    if trouble is not None:
        tell_end(work, trouble)
    return True


def tell_end(work: str, trouble: Trouble) -> None:
    """Log that the work succeeds again, if it failed more than once in a row."""
    trouble.tell_end(logger, work)


def hang_up() -> None:
    """Close this thread's connection, even a broken one; does nothing in a transaction."""
    if connection.in_atomic_block:
        return
    try:
        connection.close()
    except DatabaseError:
        logger.debug("connection_close_failed")
