"""How many database sessions the processes may open at a time, by their names.

A thread has a session of its own while it queries, so these numbers are sums over threads. A thread
that has not queried for five minutes closes its session, the first of a kind after ten: an idle
service has a quarter of the sessions. ``manage.py up`` starts the embedded server with enough
sessions for all, and warns if an external one allows fewer: then a process may be refused a session
at the busiest moment.

``tests/platform/test_capacity.py`` derives the same numbers from the code, and fails for a thread
that is not counted.
"""

from collections.abc import Iterable
from typing import Final

from django.conf import settings

from clusterstate.local.parts import Part

SPARE: Final = 20
"""Sessions for commands, ``psql``, monitoring, and short connections (``actors``)."""
RESERVED: Final = 3
"""PostgreSQL's ``superuser_reserved_connections``, which no process may use."""
LEAST: Final = 150
MOST: Final = 2000
"""Minimum and maximum of the embedded server's ``max_connections``."""
_LANES_OF_ONE_THREAD: Final = 3
"""Lanes of a web process with as many threads as a setting says: watches, requests, questions."""
_OTHER_LANES: Final = 9
"""Threads for creations, deletions, reads, renewals and logins."""
_PAGES, _PAGES_OF_CONSOLE = 2, 4
_BESIDE_LANES: Final = 7
"""Health, the audit log, numbers, the reader of the change log, rights, the console's stream, and
the thread that compares a replica."""
_BESIDE_LOOPS: Final = 3
"""A worker process's keeper, its numbers, and Celery's thread for tasks."""
_TASKS_OF_WORKER: Final = 15
"""Additional threads for tasks in the worker process."""
_LOOPS_OF_WORKER: Final = 3
_LOOPS_OF_ADVISOR: Final = 3
"""Two loops, and the thread that compares a replica."""
_MARK: Final = 1
"""A loop writes the watermark for replicas."""
_CONTROLLERS: Final = 17
_DUTIES: Final = 3 + 4 + 12
"""Threads for landings, rounds of plans and trimming, webhooks, and binding cycles."""
_ADVISOR: Final = 4
"""Threads that answer questions."""
_BINDER: Final = 1
_LEASE: Final = 1
"""A thread renews the lease of a scheduler beside others."""


def of(process: str) -> int:
    """Return how many sessions one process may open, by its name (``STOWAGE_PROCESS``)."""
    if process in {"web", "http", "https", "console"}:
        pages = _PAGES_OF_CONSOLE if process == "console" else _PAGES
        lanes = _LANES_OF_ONE_THREAD * settings.WEB_THREADS + _OTHER_LANES + pages
        return lanes + _BESIDE_LANES
    loops = {
        "scheduler": 1 + _BINDER + _LEASE,
        "timers": settings.TIMER_CONNECTIONS + _MARK,
        "worker": _LOOPS_OF_WORKER + _CONTROLLERS + _DUTIES + _TASKS_OF_WORKER,
        "advisor": _LOOPS_OF_ADVISOR + _ADVISOR,
    }
    return loops[process] + _BESIDE_LOOPS if process in loops else 0


def needed(processes: Iterable[str]) -> int:
    """Return how many sessions a server must allow for these processes and a few commands."""
    return sum(of(process) for process in processes) + SPARE


def of_parts(parts: Iterable[Part]) -> int:
    """Return the connections that the parts of ``up`` need, one process twice as in a renewal."""
    names = [name for part in parts for name in [part.process] * part.workers]
    return needed(names) + max((of(name) for name in names), default=0)


def of_embedded(parts: Iterable[Part]) -> int:
    """Return the embedded server's ``max_connections``."""
    return min(MOST, max(LEAST, of_parts(parts) + RESERVED))
