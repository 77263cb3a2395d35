"""One pass of a loop, a thread, a duty or a controller: what is done before it, and when it fails.

``attempt`` is the only place that decides what a failed pass logs and what becomes of its database
session. Who asks for the pass decides when it is tried again.
"""

from collections.abc import Callable

import structlog
from django.db import Error as DatabaseError
from django.db import connection

from clusterstate import sql

logger = structlog.get_logger(__name__)


def attempt(work: str, do: Callable[[], object], *, raises_if_away: bool = False) -> bool:
    """Call ``do`` in a database session that is not dead; return whether it ended without an error.

    An error is logged with ``work``, the name of the loop, thread or controller, and closes the
    session: ``lost_the_database`` in one line while the database is away (`sql.is_away`), else
    ``pass_failed`` with a traceback. ``raises_if_away``: the pass is part of another one, which
    would fail as well.

    Raises:
        django.db.Error: the database is away, and ``raises_if_away``.
    """
    try:
        sql.drop_dead_connection()
        do()
    except Exception as error:
        if not sql.is_away(error):
            logger.exception("pass_failed", work=work)
        elif raises_if_away:
            raise
        else:
            logger.warning("lost_the_database", work=work, error=str(error).strip())
        hang_up()
        return False
    return True


def hang_up() -> None:
    """Close this thread's connection, whatever state it is in; does nothing in a transaction."""
    if connection.in_atomic_block:
        return
    try:
        connection.close()
    except DatabaseError:
        logger.debug("connection_close_failed")
