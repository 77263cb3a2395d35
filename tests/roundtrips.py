"""How often this thread waits for the database: what a guard counts in place of a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clusterstate import sql


class Count:
    """Round trips to the database so far."""

    def __init__(self) -> None:
        self.number = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Count the round trips of this thread's connection: statements, BEGIN, COMMIT, savepoints."""
    inner: Any = sql.raw()
    count = Count()
    wait = inner.wait

    def waited(*arguments: Any, **keywords: Any) -> Any:
        count.number += 1
        return wait(*arguments, **keywords)

    inner.wait = waited
    try:
        yield count
    finally:
        del inner.wait
