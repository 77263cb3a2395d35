"""The database connection of a request thread: kept open, and checked without a round trip.

Django's own health check sends a statement before each request's first one. Here the socket is
checked instead: nothing is outstanding between two requests, so a readable socket means that the
server has closed it. That costs two microseconds and also detects a restarted server.
"""

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.signals import request_started
from django.db import OperationalError, connection
from psycopg.errors import ConnectionTimeout

from api.server import health
from clusterstate.change_log import changes

RECONNECT_SECONDS = 8.0
"""How long requests wait for a database that is being restarted: all together, not each of them."""


def check(*, away_since: float = 0.0) -> None:
    """Drop this thread's connection if the server has closed it, and wait for a new one.

    After a crash the server gives out no revisions until they are secured. This reads the
    watermark, which secures them, so that the request does not fail for that reason. Gives up
    silently after ``RECONNECT_SECONDS``, counted from ``away_since`` (monotonic) if the database is
    known to be away, and at once if a host does not answer at all: the request then fails with its
    own statement.
    """
    inner = connection.connection
    if inner is not None:
        if not inner.closed and not _readable(inner.fileno()):
            return
        connection.close()
    deadline = (away_since or time.monotonic()) + RECONNECT_SECONDS
    while True:
        try:
            connection.ensure_connection()
            if inner is not None:
                changes.watermark()
            return
        except OperationalError as error:
            connection.close()
            if not away_since:
                away_since = time.monotonic()
                health.look()
            if time.monotonic() > deadline or isinstance(error.__cause__, ConnectionTimeout):
                return
            time.sleep(0.1)


def release() -> None:
    """End this thread's use of its connection: drop a broken one."""
    if connection.errors_occurred:
        connection.close_if_unusable_or_obsolete()


@contextmanager
def used() -> Iterator[None]:
    """Check the connection before, release it after."""
    check(away_since=health.away_since())
    try:
        yield
    finally:
        release()


def _readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def _trust_the_check(sender: object, **_: object) -> None:
    """Keep Django from its own check: ``check`` has just checked the socket."""
    connection.health_check_done = True  # type: ignore[attr-defined]  # not in the stubs


request_started.connect(_trust_the_check)
