"""This process's caches of database rows, and the function that clears all of them.

Ids, names and revisions belong to the rows of one history (`clusterstate.change_log.lineage`).
After a restore or a failover the same id may be another row's. Each module that caches rows, or
values derived from rows, registers here how to empty its cache::

    _rules: dict[int, Rules] = {}
    memory.when_replaced(_rules.clear)

Followers report the history that they read from (`belongs_to`); if it is another one, all caches
are emptied. A cache must therefore work if another thread empties it between two look-ups. A cache
whose values depend on the key alone (a parsed text) need not be registered.
"""

import threading
import uuid
from collections.abc import Callable

_emptying: list[Callable[[], None]] = []
_lock = threading.Lock()
_history: list[uuid.UUID] = []


def when_replaced(empty: Callable[[], None]) -> None:
    """Register a function that empties a cache of rows."""
    _emptying.append(empty)


def forget() -> None:
    """Empty every registered cache in this process, after tables were emptied or loaded again."""
    for empty in tuple(_emptying):
        empty()


def belongs_to(history: uuid.UUID | None) -> None:
    """Note the history that rows were read from; empty every cache if it is another one."""
    if history is None:
        return
    with _lock:
        previous = _history[:]
        _history[:] = [history]
    if previous and previous != [history]:
        forget()
