"""The loops that a worker process runs for all its life, each on a thread of its own.

::

    scheduler worker    ``loop.run``           decide and bind
    timers worker       ``timekeeper.run``     evict what is due
    worker              ``_controllers``       everything that looks once a second
                        ``_remember``          pack the past, seal decisions
    advisor             ``advising.run``       answer questions about the cluster

Celery starts and stops the processes, hands out tasks and restarts what it is asked to; the loops
need none of its messages, so that nothing stands still while Redis is away, frozen or empty. A task
that asks for what a loop does (``tasks``) only nudges the loop of its own process.

A loop that fails is logged and begins again; one that hangs stops its heartbeat, and what
supervises the process replaces it (``clusterstate.heartbeats``). A loop whose lock another process
holds stands by and asks for it again and again.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, connection

from clusterstate import (
    collector,
    heartbeats,
    reservations,
    sessions,
    shards,
    sql,
    steady_clock,
    tracing,
)
from clusterstate.actions import (
    audit_log,
    brakes,
    decisions,
    history,
    housekeeping,
    past,
    plans,
    progress,
    seals,
    webhooks,
)
from clusterstate.actions.metrics import Adder
from clusterstate.queries.eviction_timers import unforeseen
from scheduling.controllers import manager, operations
from scheduling.controllers.evictions import timekeeper
from scheduling.controllers.nodes import lifecycle
from scheduling.controllers.webhooks import delivery
from scheduling.worker import binding_cycle

logger = structlog.get_logger(__name__)

_AWAY = (OperationalError, InterfaceError)
"""What is raised while the database is away, and by a session that was ended."""
_STANDBY_SECONDS = 0.25
"""Between two tries to take a lock that another process holds."""
_AFTER_FAILURE_SECONDS = 0.5
_ATTEMPT_SECONDS = settings.DATABASE_ANSWER_SECONDS + 30
"""How long it may take to find out that the database does not answer."""
_LOOK_SECONDS = 1.0
_EARLY = 0.9
"""A duty of a second is done at each pause of a second, however short that came out."""
_TRIM_SECONDS = 60.0
_PASS_SECONDS = 300.0
"""What one pass of a controller may take: it writes in pieces, but ten thousand pods are many."""
_REST = 4.0
"""How many times as long as packing a chunk took, the next one waits."""
_TELLING_AT_ONCE = 4
"""Webhooks that are delivered for at the same time."""
_NOTHING_TO_KEEP_SECONDS = 15.0
_FORESEE_AHEAD = timedelta(seconds=30)


class Loop:
    """One loop: a thread that calls ``run`` again and again until it is asked to stop.

    ``run`` returns when it has nothing to do for a while, when another process does the work, or
    when the process stops; it is given the loop to ask ``stopping`` and to ``pause``.
    """

    def __init__(self, name: str, run: Callable[["Loop"], None]) -> None:
        self.name = name
        self._run = run
        self._stop = threading.Event()
        self._nudged = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"loop-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stopping(self) -> bool:
        """Return whether the process was asked to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask it to stop; returns at once."""
        self._stop.set()
        self._nudged.set()

    def join(self, seconds: float) -> None:
        """Wait until it has stopped, but not for ever."""
        self._thread.join(seconds)

    def nudge(self) -> None:
        """End the present pause."""
        self._nudged.set()

    def busy(self) -> None:
        """Say that a pass begins, which may take long."""
        heartbeats.beat(self.name, _PASS_SECONDS)

    def pause(self, seconds: float) -> None:
        """Wait, unless there is a nudge or the process stops."""
        self._nudged.wait(seconds)
        self._nudged.clear()

    def _live(self) -> None:
        while not self.stopping():
            heartbeats.beat(self.name, _ATTEMPT_SECONDS)
            wait = _STANDBY_SECONDS
            try:
                sql.drop_dead_connection()
                self._run(self)
            except _AWAY as error:
                logger.warning("loop_lost_the_database", loop=self.name, error=str(error).strip())
                wait = _AFTER_FAILURE_SECONDS
                _hang_up()
            except Exception:
                logger.exception("loop_failed", loop=self.name)
                wait = _AFTER_FAILURE_SECONDS
                _hang_up()
            if not self.stopping():
                self.pause(wait)
        _hang_up()
        heartbeats.rest(self.name)


def _hang_up() -> None:
    try:
        connection.close()
    except DatabaseError:
        logger.debug("connection_close_failed")


# --- what the loops do ---------------------------------------------------------------------------


def _schedule(loop: Loop) -> None:
    # With NumPy and the compiled loops, which the other processes do without.
    from scheduling.worker import loop as worker

    worker.run(stopping=loop.stopping)
    while worker.stand_by(stopping=loop.stopping, pause=loop.pause):
        worker.run(stopping=loop.stopping)


def _evict(loop: Loop) -> None:
    timekeeper.run(stopping=loop.stopping)


def _advise(loop: Loop) -> None:
    from scheduling.answers import advising  # with NumPy and the engine

    advising.run(stopping=loop.stopping, pause=loop.pause)


def _controllers(loop: Loop) -> None:
    """Look once a second at what there is for the controllers, and for binding plugins."""
    reporter = progress.Reporter(loop.name)
    threads = ThreadPoolExecutor(binding_cycle.AT_ONCE + 1, thread_name_prefix="worker")
    foreseeing = threading.Lock()
    telling = ThreadPoolExecutor(_TELLING_AT_ONCE, thread_name_prefix="webhook")
    told: set[int] = set()
    duties = (
        _Duty(_LOOK_SECONDS, lambda: manager.run(steady_clock.now(), progress=loop.busy)),
        _Duty(settings.NODE_MONITOR_PERIOD_SECONDS, lambda: lifecycle.run(steady_clock.now())),
        _Duty(_LOOK_SECONDS, lambda: _bind(loop, threads)),
        _Duty(_LOOK_SECONDS, lambda: _foresee(threads, foreseeing)),
        _Duty(_LOOK_SECONDS, lambda: _tell(telling, told)),
        _Duty(_LOOK_SECONDS, lambda: operations.run(steady_clock.now, stopping=loop.stopping)),
        _Duty(_TRIM_SECONDS, trim),
    )
    pause = min(_LOOK_SECONDS, settings.NODE_MONITOR_PERIOD_SECONDS)
    try:
        while not loop.stopping():
            failed = [duty for duty in duties if not duty.attend(loop)]
            if len(failed) < len(duties):
                reporter.note()
            heartbeats.beat(loop.name)
            loop.pause(pause)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # a plugin may take its time
        telling.shutdown(wait=False, cancel_futures=True)  # and so may a receiver


class _Duty:
    """Something to do every so many seconds; that it fails stops none of the others."""

    def __init__(self, seconds: float, do: Callable[[], object]) -> None:
        self._seconds = seconds
        self._do = do
        self._due = 0.0

    def attend(self, loop: Loop) -> bool:
        """Do it if it is due; False if that failed. It is due again when its time has passed.

        Raises:
            OperationalError, InterfaceError: the database is away.
        """
        if time.monotonic() < self._due:
            return True
        self._due = time.monotonic() + self._seconds * _EARLY
        loop.busy()
        try:
            sql.drop_dead_connection()
            self._do()
        except _AWAY:
            raise  # the others would fail, too
        except Exception:
            logger.exception("controllers_failed")
            _hang_up()
            return False
        return True


def _remember(loop: Loop) -> None:
    """Pack the past and seal decisions, with a fifth of one processor at most; each by itself."""
    while not loop.stopping():
        loop.busy()
        started = time.monotonic()
        done = 0
        for keep in (seals.seal, _pack):
            try:
                done += keep()
            except _AWAY:
                raise  # the other would fail, too
            except Exception:
                logger.exception("past_not_kept", what=keep.__module__)
                _hang_up()
        rest = _REST * (time.monotonic() - started) if done else _NOTHING_TO_KEEP_SECONDS
        rest = max(rest, _LOOK_SECONDS)
        heartbeats.beat(loop.name, rest + _ATTEMPT_SECONDS)
        loop.pause(rest)


def _pack() -> int:
    """Pack the next chunk of the past, if it is kept; return how many changes that were."""
    return past.pack(now=steady_clock.now()).changes if past.is_kept() else 0


def _bind(loop: Loop, threads: ThreadPoolExecutor) -> None:
    """Have a thread do what binding plugins have to do, unless all of them are at it."""
    if binding_cycle.may_begin() and reservations.with_work():
        threads.submit(_on_thread, lambda: binding_cycle.run(stopping=loop.stopping))


def _tell(threads: ThreadPoolExecutor, busy: set[int]) -> None:
    """Have threads deliver for the webhooks that have something to do; one for each at a time."""
    for number in delivery.due(steady_clock.now()):
        if number not in busy:
            busy.add(number)
            threads.submit(
                _on_thread, partial(delivery.deliver, number), partial(busy.discard, number)
            )


def _foresee(threads: ThreadPoolExecutor, busy: threading.Lock) -> None:
    """Have a thread work out where pods will go that leave soon for node labels."""
    if unforeseen(steady_clock.now() + _FORESEE_AHEAD, limit=1) and busy.acquire(blocking=False):
        threads.submit(_on_thread, _foresee_all, busy.release)


def _foresee_all() -> None:
    from scheduling.answers import questions  # NumPy, which comes when it is needed

    questions.foresee(steady_clock.now())


def _on_thread(do: Callable[[], object], after: Callable[[], object] = lambda: None) -> None:
    """Do it; what fails is tried again when the loop finds it again."""
    try:
        sql.drop_dead_connection()
        do()
    except Exception:
        logger.exception("worker_thread_failed")
        _hang_up()
    finally:
        after()


_CLASSES_EVERY: Final = 10
"""Minutes between two looks for scheduling classes that nothing uses."""


_DROPPED: Final[Sequence[Callable[..., object]]] = (
    history.trim,
    past.trim,
    decisions.trim,
    housekeeping.drop_old_access,
    plans.trim,
    brakes.trim,
    audit_log.trim,
    webhooks.trim,
    housekeeping.drop_old_actors,
    housekeeping.drop_leftovers,
)


def trim() -> None:
    """Drop changes, documents, events, decisions and the past that are older than what is kept.

    And the memory that a burst left in this process. One table that cannot be trimmed does not let
    the others grow; its error is raised at the end.
    """
    failed: list[Exception] = []
    for drop in _DROPPED:
        try:
            drop(now=steady_clock.now())
        except _AWAY:
            raise  # the others would fail, too
        except Exception as error:
            logger.exception("trim_failed", what=f"{drop.__module__}.{drop.__name__}")
            failed.append(error)
    if steady_clock.now().minute % _CLASSES_EVERY == 0:  # it reads all decisions
        housekeeping.drop_unused_classes()
    collector.give_back()
    if failed:
        raise failed[0]


# --- the loops of this process -------------------------------------------------------------------

LOOPS: Final[Mapping[str, tuple[str, Callable[[Loop], None]]]] = {
    "scheduler": (shards.loop(shards.FIRST), _schedule),
    "timers": ("timers", _evict),
    "worker": ("controllers", _controllers),
    "advisor": ("advisor", _advise),
}
"""By the process's name (``STOWAGE_PROCESS``): its loop's name and what the loop does."""

BESIDE: Final[Mapping[str, tuple[str, Callable[[Loop], None]]]] = {"worker": ("past", _remember)}
"""A second loop of some processes, which nothing waits for."""

_running: dict[str, Loop] = {}
_adders: list[Adder] = []


def start(process: str) -> None:
    """Start the loop of a process of this name, if it has one."""
    if process not in LOOPS:
        return
    heartbeats.begin(settings.STATE_DIR, process)
    sessions.keep()
    for name, run in (LOOPS[process], *([BESIDE[process]] if process in BESIDE else [])):
        loop = _running[name] = Loop(name, run)
        loop.start()
    tracing.start()
    _adders.append(Adder())
    _adders[-1].start()


def nudge(name: str) -> bool:
    """Have a loop of this process look now; False if this process has no such loop."""
    loop = _running.get(name)
    if loop is None:
        return False
    loop.nudge()
    return True


def stop() -> None:
    """Ask this process's loops to stop; returns at once."""
    for loop in _running.values():
        loop.stop()


def join(seconds: float) -> None:
    """Wait for this process's loops to stop, and for what they counted to be added."""
    for loop in _running.values():
        loop.join(seconds)
    while _adders:
        _adders.pop().close()
    tracing.stop()
