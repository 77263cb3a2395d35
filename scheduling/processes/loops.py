"""The loops that a worker process runs from its start to its end, each on a thread of its own.

::

    scheduler worker    ``loop.run``           decide and bind
    timers worker       ``timekeeper.run``     evict what is due
                        ``timekeeper.keep_mark``  tell replicas how far the log is complete
    worker              ``duties.run_duties``  controllers, nodes, binding plugins, webhooks
                        ``duties.carry_out_plans``
                        ``duties.pack_and_seal``
    advisor             ``advising.run``       answer questions about the cluster
                        ``decision_checks.run``  repeat decisions, and compare

Celery starts and stops the processes and distributes tasks; the loops need none of its messages, so
they run also while Redis is away, frozen or empty. A task for a loop's work (``tasks``) only nudges
the loop of its process. Each process imports only its own loop's modules: a third of the time until
it is ready.

A loop that fails is logged and begins again; one that hangs stops its heartbeat, and the supervisor
replaces the process (``clusterstate.health.heartbeats``). A loop whose lock another process has
stands by and tries to take it again and again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from django.conf import settings

from clusterstate.actions.loops import progress
from clusterstate.actions.loops.metrics import Adder
from clusterstate.database import sessions
from clusterstate.health import heartbeats
from clusterstate.processes import shards
from clusterstate.telemetry import tracing
from scheduling.processes.loop import Loop

# --- work of the loops ---------------------------------------------------------------------------

Work = Callable[[Loop], object]


def _scheduling() -> Work:
    from scheduling.worker import loop as worker  # with NumPy and the compiled loops

    def schedule(loop: Loop) -> None:
        worker.run(stopping=loop.stopping)
        while worker.stand_by(stopping=loop.stopping, pause=loop.await_turn):
            worker.run(stopping=loop.stopping)

    return schedule


def _evicting() -> Work:
    from scheduling.controllers.evictions import timekeeper

    return lambda loop: timekeeper.run(stopping=loop.stopping)


def _keeping_mark() -> Work:
    from scheduling.controllers.evictions import timekeeper

    return lambda loop: timekeeper.keep_mark(stopping=loop.stopping, pause=loop.pause)


def _advising() -> Work:
    from scheduling.answers import advising  # with NumPy and the engine

    return lambda loop: advising.run(stopping=loop.stopping, pause=loop.pause)


def _checking() -> Work:
    from scheduling.processes import decision_checks  # with NumPy and the engine

    return lambda loop: decision_checks.run(stopping=loop.stopping, pause=loop.pause)


def _controlling() -> Work:
    from scheduling.processes import duties  # with every controller

    return duties.run_duties


def _carrying_out() -> Work:
    from scheduling.processes import duties

    return duties.carry_out_plans


def _packing_and_sealing() -> Work:
    from scheduling.processes import duties

    return duties.pack_and_seal


# --- the loops of this process -------------------------------------------------------------------

LOOPS: Final[Mapping[str, tuple[str, Callable[[], Work]]]] = {
    "scheduler": (shards.loop(shards.FIRST), _scheduling),
    "timers": ("timers", _evicting),
    "worker": ("controllers", _controlling),
    "advisor": ("advisor", _advising),
}
"""By process name (``STOWAGE_PROCESS``): its loop's name, and a function that imports and returns
the loop's work."""

BESIDE: Final[Mapping[str, Sequence[tuple[str, Callable[[], Work]]]]] = {
    "timers": (("mark", _keeping_mark),),
    "worker": (("operations", _carrying_out), ("past", _packing_and_sealing)),
    "advisor": (("decision-checks", _checking),),
}
"""Further loops of a process, beside the one in ``LOOPS``."""

_running: dict[str, Loop] = {}
_adders: list[Adder] = []


def start(process: str) -> None:
    """Start the loops of a process by its name, if it has any."""
    if process not in LOOPS:
        return
    heartbeats.begin(settings.STATE_DIR, process)
    sessions.keep(progress.Memory(LOOPS[process][0]))
    for name, work in (LOOPS[process], *BESIDE.get(process, ())):
        # Work is imported here, on one thread: a thread may find a module that another one is still
        # importing.
        loop = _running[name] = Loop(name, work())
        loop.start()
    tracing.start()
    _adders.append(Adder())
    _adders[-1].start()


def nudge(name: str) -> bool:
    """End the pause of a loop of this process; return False if this process has no such loop."""
    loop = _running.get(name)
    if loop is None:
        return False
    loop.nudge()
    return True


def stop() -> None:
    """Stop this process's loops; returns at once."""
    for loop in _running.values():
        loop.stop()


def join(seconds: float) -> None:
    """Wait for this process's loops to stop and for their counters to be written."""
    for loop in _running.values():
        loop.join(seconds)
    while _adders:
        _adders.pop().close()
    tracing.stop()
