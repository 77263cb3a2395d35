"""How often this thread waits for the database: what a guard counts in place of a time."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.pq import PipelineStatus

from clusterstate.database import sql


class Count:
    """Statements that were waited for so far. A BEGIN counts with the statement after it.

    Statements that are sent together (``sql.fetch_together``) are waited for once.
    """

    def __init__(self) -> None:
        self.number = 0
        self.together = False


@contextmanager
def counted() -> Iterator[Count]:
    """Count what this thread's connection waits for: statements, savepoints and commits."""
    inner: Any = sql.raw()
    count = Count()
    wait = inner.wait

    def waited(exchange: Generator[Any, Any, Any], *arguments: Any, **keywords: Any) -> Any:
        before = count.together
        count.together = inner.pgconn.pipeline_status != PipelineStatus.OFF
        if before and count.together:
            return wait(exchange, *arguments, **keywords)
        return wait(_watched(exchange, count), *arguments, **keywords)

    inner.wait = waited
    try:
        yield count
    finally:
        del inner.wait


def _watched(exchange: Generator[Any, Any, Any], count: Count) -> Generator[Any, Any, Any]:
    """Pass an exchange with the server on; count it unless it was nothing but a change of state."""
    try:
        wanted = next(exchange)
        count.number += 1
        while True:
            wanted = exchange.send((yield wanted))
    except StopIteration as end:
        return end.value
