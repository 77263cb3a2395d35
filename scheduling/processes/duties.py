"""The work of the process with the controllers, in three loops that ``loops`` starts.

``run_duties`` checks nodes and starts due work each second: the controllers, binding plugins, the
landings of pods that leave, webhooks, and each minute the deletion of old rows. The workload
controllers start at once after a write of a Deployment or another workload, so that a command to
undo a change finds the change's revision; so does the controller of claims after a write of pods
for which it makes claims. All of these have threads of their own, since any of them
may take long: the rollout of a large Deployment must not delay the checks of nodes.
``carry_out_plans`` and ``pack_and_seal`` have loops of their own, because a round of them may take
long. Modules that need NumPy and the plugins are imported at the first use.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from django.conf import settings

from clusterstate.actions import brakes, past, plans, webhooks
from clusterstate.actions.loops import progress
from clusterstate.actions.past import audit_log, history, housekeeping
from clusterstate.actions.scheduler import decision_checks, decisions, seals
from clusterstate.change_log import wake
from clusterstate.database import sql
from clusterstate.health import heartbeats
from clusterstate.processes import collector, priority, steady_clock
from clusterstate.queries.evictions.eviction_timers import unforeseen
from clusterstate.queries.scheduler import reservations
from clusterstate.telemetry.troubles import Trouble
from scheduling import passes
from scheduling.controllers import manager, operations
from scheduling.controllers.nodes import lifecycle
from scheduling.controllers.pods import unclaimed
from scheduling.controllers.webhooks import delivery
from scheduling.processes.loop import Loop, attempt_seconds
from scheduling.processes.own_thread import OwnThread

logger = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
_LISTEN_SECONDS = 2.0
_PROMPT = frozenset({manager.WORKLOADS, manager.CLAIMS})
_GATHER_SECONDS = wake.WORKLOADS_GATHER_SECONDS
_PROMPT_SHARE = 4.0
"""How many times the duration of their last pass controllers pause before a change starts one."""
_EARLY = 0.9
"""The share of its period after which a duty is due: a pause of a second may end a little early."""
_TRIM_SECONDS = 60.0
_UNCLAIMED_SECONDS = 10.0
_REST = 4.0
"""The pause after compressing a chunk of old changes, as a multiple of its duration."""
_DELIVERING_AT_ONCE = 4
"""The most webhooks to which events are delivered at the same time."""
_NOTHING_TO_KEEP_SECONDS = 15.0
_FORESEE_AHEAD = timedelta(seconds=30)


def run_duties(loop: Loop) -> None:
    """Do or start each duty when it is due, until the process stops."""
    reporter = progress.Reporter(loop.name)
    binding_cycles = _BindingCycles(loop)
    controllers = Controllers()
    landings, rounds, trimming = OwnThread("landings"), OwnThread("rounds"), OwnThread("trim")
    deliveries = ThreadPoolExecutor(_DELIVERING_AT_ONCE, thread_name_prefix="webhook")
    delivering: set[int] = set()
    duties = (
        _Duty(_LOOK_SECONDS, controllers.begin),
        _Duty(settings.NODE_MONITOR_PERIOD_SECONDS, lambda: lifecycle.run(steady_clock.now())),
        _Duty(_LOOK_SECONDS, binding_cycles.begin),
        _Duty(_LOOK_SECONDS, lambda: _foresee_landings(landings)),
        _Duty(_LOOK_SECONDS, lambda: _begin_rounds(rounds)),
        _Duty(_LOOK_SECONDS, lambda: _deliver_webhooks(deliveries, delivering)),
        _Duty(_UNCLAIMED_SECONDS, lambda: unclaimed.tell(steady_clock.now())),
        _Duty(_TRIM_SECONDS, lambda: trimming.begin(trim)),
    )
    pause = min(_LOOK_SECONDS, settings.NODE_MONITOR_PERIOD_SECONDS)
    news = _News(loop)
    try:
        while not loop.stopping():
            patience = pause
            if news.came() and (rest := controllers.rest_left()) > 0:
                patience = min(patience, rest)
            elif news.taken():
                passes.attempt(loop.name, controllers.begin_promptly, raises_if_away=True)
            failed = [duty for duty in duties if not duty.run_if_due(loop)]
            if len(failed) < len(duties):
                reporter.note()
            heartbeats.beat(loop.name)
            loop.pause(patience)
    finally:
        news.end()
        binding_cycles.end()
        controllers.end()
        landings.end()
        rounds.end()
        trimming.end()
        deliveries.shutdown(wait=False, cancel_futures=True)  # a receiver may take its time


class Controllers:
    """The controllers of ``manager``, each on a thread of its own."""

    def __init__(self) -> None:
        self._threads = {name: OwnThread(manager.work_of(name)) for name in manager.CONTROLLERS}
        self._rests: dict[str, float] = {}
        """Until when, in monotonic seconds, a write does not start another pass."""

    def begin(self) -> list[str]:
        """Start a pass of each idle controller with work; return their names. Queries once."""
        return self._begin(manager.with_work(steady_clock.now()))

    def begin_promptly(self) -> list[str]:
        """Start a pass of the controllers of workloads and of claims alone. Queries once."""
        return self._begin(_PROMPT.intersection(manager.with_work(steady_clock.now())))

    def rest_left(self) -> float:
        """Return for how many seconds ``begin_promptly`` is not to be called.

        The workload controllers pause after a pass in proportion to its duration, so that clients
        that write all the time do not keep them busy.
        """
        if not all(self._threads[name].wait(0) for name in _PROMPT):
            return _GATHER_SECONDS
        return self._rests.get(manager.WORKLOADS, 0.0) - time.monotonic()

    def _begin(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self._threads[name].begin(partial(self._run_duty, name))]

    def _run_duty(self, name: str) -> None:
        began = time.monotonic()
        try:
            manager.run_pass(name, steady_clock.now())
        finally:
            ended = time.monotonic()
            self._rests[name] = ended + _PROMPT_SHARE * (ended - began)

    def wait(self, seconds: float) -> bool:
        """Wait for running passes, at most ``seconds`` each; return whether all have ended."""
        return all(thread.wait(seconds) for thread in self._threads.values())

    def end(self) -> None:
        """Let the threads end after their present passes; returns at once."""
        for thread in self._threads.values():
            thread.end()


class _News:
    """A thread that ends a loop's pause when something was written for ``_PROMPT`` controllers."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._came = threading.Event()
        self._ended = threading.Event()
        threading.Thread(target=self._listen, name="workload-news", daemon=True).start()

    def came(self) -> bool:
        """Return whether something was written since ``taken`` was last called."""
        return self._came.is_set()

    def taken(self) -> bool:
        """Return whether something was written since the last call."""
        came = self._came.is_set()
        self._came.clear()
        return came

    def end(self) -> None:
        """Let the thread end; returns at once."""
        self._ended.set()

    def _listen(self) -> None:
        with wake.Subscription(wake.WORKLOADS) as subscription:
            while not self._ended.is_set():
                if subscription.wait(_LISTEN_SECONDS):
                    self._came.set()
                    self._loop.nudge()


class _Duty:
    """Work that is due every so many seconds; the failure of one duty stops no other."""

    def __init__(self, seconds: float, do: Callable[[], object]) -> None:
        self._seconds = seconds
        self._do = do
        self._due = 0.0
        self._trouble = Trouble()

    def run_if_due(self, loop: Loop) -> bool:
        """Do the work if it is due; return False if it failed. It is next due a period later.

        Raises:
            django.db.Error: the database is away (`sql.is_away`).
        """
        if time.monotonic() < self._due:
            return True
        self._due = time.monotonic() + self._seconds * _EARLY
        loop.busy()
        done = passes.attempt(loop.name, self._do, raises_if_away=True, trouble=self._trouble)
        if done:
            progress.step(loop.name)
        return done


def carry_out_plans(loop: Loop) -> None:
    """Carry out applied plans, round after round while steps are left, else once a second.

    It has a loop apart from the controllers, because these replace the pods that a plan evicts:
    neither may wait for the other.
    """
    while not loop.stopping():
        loop.busy()
        sql.drop_dead_connection()
        done = operations.run(steady_clock.now, stopping=loop.stopping)
        heartbeats.beat(loop.name, _LOOK_SECONDS + attempt_seconds())
        if not done:
            loop.pause(_LOOK_SECONDS)


def pack_and_seal(loop: Loop) -> None:
    """Seal decisions into the hash chain (``scheduler.seals``), and compress old changes.

    Nothing waits for either, so the thread has a low priority and takes a fifth of one processor at
    most. A failure of one does not stop the other.
    """
    priority.give_way()
    troubles = {"seal": Trouble(), "pack": Trouble()}
    while not loop.stopping():
        loop.busy()
        started = time.monotonic()
        counts: list[int] = []
        for work, keep in (("seal", seals.seal), ("pack", _pack)):
            note = partial(_note, counts, keep)
            passes.attempt(work, note, raises_if_away=True, trouble=troubles[work])
        rest = _REST * (time.monotonic() - started) if any(counts) else _NOTHING_TO_KEEP_SECONDS
        rest = max(rest, _LOOK_SECONDS)
        heartbeats.beat(loop.name, rest + attempt_seconds())
        loop.pause(rest)


def _note(counts: list[int], keep: Callable[[], int]) -> None:
    counts.append(keep())


def _pack() -> int:
    """Compress the next chunk of old changes, if history is stored; return their number."""
    return past.pack(now=steady_clock.now()).changes if past.is_kept() else 0


class _BindingCycles:
    """Threads for binding cycles (``worker.binding_cycle``), created when the first one waits."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._threads: ThreadPoolExecutor | None = None
        self._trouble = Trouble()

    def begin(self) -> None:
        """Start a thread if reservations have work and not all threads are busy. Queries once."""
        if not reservations.with_work():
            return
        from scheduling.worker import binding_cycle  # with NumPy and the plugins

        if self._threads is None:
            self._threads = ThreadPoolExecutor(binding_cycle.AT_ONCE, thread_name_prefix="binding")
        if binding_cycle.may_begin():
            run = partial(binding_cycle.run, stopping=self._loop.stopping)
            self._threads.submit(passes.attempt, "binding", run, trouble=self._trouble)

    def end(self) -> None:
        """Let the threads end after their present binding cycles, since a plugin may take long."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _deliver_webhooks(threads: ThreadPoolExecutor, busy: set[int]) -> None:
    """Start a thread for each due webhook; ``busy``: ids of those that a thread works on."""
    for number in delivery.due(steady_clock.now()):
        if number not in busy:
            busy.add(number)
            threads.submit(_deliver, number, busy)


_deliveries = Trouble()


def _deliver(number: int, busy: set[int]) -> None:
    """Deliver the events of one webhook on this thread; errors are logged and tried again later."""
    try:
        passes.attempt("webhook", partial(delivery.deliver, number), trouble=_deliveries)
    finally:
        busy.discard(number)


def _foresee_landings(thread: OwnThread) -> None:
    """Predict, on ``thread``, the new nodes of pods to be evicted soon for node labels."""
    if unforeseen(steady_clock.now() + _FORESEE_AHEAD, limit=1):
        thread.begin(_foresee_all)


def _foresee_all() -> None:
    from scheduling.processes import landings  # imports NumPy, so only when needed

    landings.foresee(steady_clock.now())


def _begin_rounds(thread: OwnThread) -> None:
    """Begin, on ``thread``, the due rounds of plans with a schedule."""
    if plans.due_rounds(now=steady_clock.now()):
        from scheduling.processes import rounds

        thread.begin(lambda: rounds.begin_due(steady_clock.now()))


_CLASSES_EVERY: Final = 10
"""Minutes between two deletions of unused scheduling classes."""


_DROPPED: Final[Sequence[Callable[..., object]]] = (
    history.trim,
    past.trim,
    decisions.trim,
    decision_checks.trim,
    housekeeping.drop_old_access,
    plans.trim,
    brakes.trim,
    audit_log.trim,
    webhooks.trim,
    housekeeping.drop_old_actors,
    housekeeping.drop_leftovers,
)


def trim() -> None:
    """Delete rows older than their retention time, and return unused memory to the system.

    If one table fails, the others are trimmed all the same; the error is raised at the end.
    """
    failed: list[Exception] = []
    for drop in _DROPPED:
        try:
            drop(now=steady_clock.now())
        except Exception as error:
            if sql.is_away(error):
                raise  # the other tables would fail, too
            logger.exception("trim_failed", what=f"{drop.__module__}.{drop.__name__}")
            failed.append(error)
    if steady_clock.now().minute % _CLASSES_EVERY == 0:  # it reads all decisions
        housekeeping.drop_unused_classes()
    collector.give_back()
    if failed:
        raise failed[0]
