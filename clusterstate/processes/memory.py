"""This process's caches of database rows, and the one place that clears them.

Ids, names and revisions mean the rows of one history (`clusterstate.change_log.lineage`). After a
restore or a failover the same id may be another row's. Each module that keeps rows, or what it
derived from rows, from one call to the next says here how it forgets them::

    _rules: dict[int, Rules] = {}
    memory.when_replaced(_rules.clear)

Followers pass the history that they read from (`belongs_to`); when the history is another one, all
memories are emptied. Memories therefore must bear to be emptied between two lookups by another
thread. A memory that is derived from its key alone (a parsed text) needs no entry.
"""

import threading
import uuid
from collections.abc import Callable

_emptying: list[Callable[[], None]] = []
_lock = threading.Lock()
_history: list[uuid.UUID] = []


def when_replaced(empty: Callable[[], None]) -> None:
    """Register a function that empties a memory of rows."""
    _emptying.append(empty)


def forget() -> None:
    """Empty every memory of rows in this process, after tables were emptied or loaded again."""
    for empty in tuple(_emptying):
        empty()


def belongs_to(history: uuid.UUID | None) -> None:
    """Note the history that rows were read from; empty every memory if it is another one."""
    if history is None:
        return
    with _lock:
        previous = _history[:]
        _history[:] = [history]
    if previous and previous != [history]:
        forget()
