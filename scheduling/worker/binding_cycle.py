"""Runs PreBind, Bind and PostBind plugins on threads of their own, because they may take long.

A *task* here is the work of such a thread, started by Celery (``tasks.run_bindings``) or by the
process itself (``processes.duties``). A task takes, one after the other, the reservations whose
plugins have work, and skips those that another task works on. It has an advisory lock in its
database session while it works. When a worker is killed, its session ends and the lock with it;
another task then runs the plugins of that reservation again from the beginning, so PreBind, Bind
and PostBind must be idempotent. Several tasks work at the same time, but one thread of the worker
is always left for the controllers. A task writes its result as the reservation's next step
(``clusterstate.actions.scheduler.reservations``) and wakes the scheduler.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

import structlog

from clusterstate.actions.scheduler import reservations as actions
from clusterstate.actions.scheduler.reservations import Refusal
from clusterstate.change_log import lineage, wake
from clusterstate.database import locks
from clusterstate.objects.values.actor import KUBE_SCHEDULER, acts_as
from clusterstate.objects.values.errors import StatusError
from clusterstate.processes import memory
from clusterstate.queries.loops.loading import load_classes
from clusterstate.queries.scheduler import reservations
from clusterstate.queries.scheduler.reservations import BINDING, BOUND, WAITING, Reservation
from scheduling.engine.snapshot.requirements import from_stored_class
from scheduling.framework.interface import CycleState
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.framework.status import Code, Status
from scheduling.framework.types import PodInfo
from scheduling.plugins.catalogue import build_framework
from scheduling.plugins.held_profile import why_held
from scheduling.worker import measuring, profiles
from scheduling.worker.device_store import DeviceStore
from scheduling.worker.stored_pods import StoredPods
from scheduling.worker.volume_store import VolumeStore

logger = structlog.get_logger(__name__)

AT_ONCE: Final = 12
"""The most binding cycles at once in one process; its other threads are for the controllers."""
_slots = threading.BoundedSemaphore(AT_ONCE)
_meter: Final = measuring.PluginMeter()


def may_begin() -> bool:
    """Return whether this process has a thread free for one more task."""
    if not _slots.acquire(blocking=False):
        return False
    _slots.release()
    return True


@acts_as(KUBE_SCHEDULER)
def run(*, stopping: Callable[[], bool] = lambda: False) -> int:
    """Run every binding cycle that no other thread runs; return their number."""
    if not _slots.acquire(blocking=False):
        return 0
    done = 0
    lineage.kept_after()  # after a restore of the database, cached class ids are invalid
    try:
        while not stopping():
            with _claimed() as reservation:
                if reservation is None:
                    break
                _work(reservation)
            done += 1
    finally:
        _slots.release()
    return done


@contextmanager
def _claimed() -> Iterator[Reservation | None]:
    """Lock the next reservation with work and yield it, or ``None``; then unlock it."""
    waiting = reservations.with_work()
    for place, pod_id in enumerate(waiting):
        key = locks.binding_cycle(pod_id)
        if not locks.take(key):
            continue
        try:
            found = reservations.find(pod_id)
            if found is None or found.step not in (BINDING, BOUND):
                continue  # another task was quicker
            if place + 1 < len(waiting):
                wake.send_binding()  # one more task works at the same time
            yield found
        finally:
            locks.give_back(key)
        return
    yield None


def _work(reservation: Reservation) -> None:
    try:
        framework = _framework(reservation.profile_revision, reservation.profile)
    except (ConfigurationError, StatusError) as error:
        _end(reservation, Status(Code.ERROR, (str(error),)))
        return
    if not reservation.uid or (reservation.step == BINDING and not reservation.alive):
        status = Status(Code.ERROR, ("the pod is gone, finished or being deleted",))
        _end(reservation, status)
        return
    state, info = _state(reservation), _info(reservation.class_id)
    if reservation.step == BOUND:
        for failure in framework.post_bind(state, info, reservation.node_name):
            logger.error("post_bind_failed", plugin=failure.plugin, error=failure.message)
        if waiting := state.take_pods_to_activate():
            actions.informed(reservation.pod_id, activate=waiting)
        else:
            actions.drop([reservation.pod_id])
        return
    try:
        status = framework.pre_bind(state, info, reservation.node_name)
        if status.ok:
            status = framework.bind(state, info, reservation.node_name)
    except PluginFailed as failure:
        status = failure.status
        logger.warning(
            "plugin_failed", plugin=status.plugin, error=status.message, pod=state.pod_name
        )
    if status.code is Code.WAIT:
        actions.wait_on(reservation.pod_id, notes=state.plain_notes())
    elif status.ok:
        actions.worked(reservation.pod_id, notes=state.plain_notes())
    else:
        if status.code is Code.SKIP:
            status = Status(Code.ERROR, ("no Bind plugin took the pod",))
        _end(reservation, status)


def _end(reservation: Reservation, status: Status) -> None:
    if reservation.step == BOUND:
        actions.drop([reservation.pod_id])
    elif reservation.pod_node_name == reservation.node_name and reservation.pod_node_name:
        actions.worked(reservation.pod_id, notes=reservation.notes)
    else:
        actions.fail(
            Refusal(
                pod_id=reservation.pod_id,
                plugin=status.plugin,
                message=status.message,
                code=int(status.code),
            )
        )


def _state(reservation: Reservation) -> CycleState:
    state = CycleState(pod_key=reservation.pod_id)
    state.pod_name = f"{reservation.namespace}/{reservation.name}"
    state.pod_uid = reservation.uid
    for key, value in reservation.notes.items():
        state.write(key, value)
    return state


@lru_cache(maxsize=64)
def _framework(revision: int, name: str) -> Framework:
    """Return a profile with its plugins, one for all threads of this process. May query.

    Raises:
        ConfigurationError: the profile or one of its plugins no longer exists.
        Expired: the configuration of this revision was deleted.
    """
    profile = profiles.at(revision).profile(name)
    if profile is None:
        raise ConfigurationError(f"profile {name} of revision {revision} cannot be used")
    if why := why_held(profile):  # without its plugins nothing may be bound under it
        raise ConfigurationError(why)
    return build_framework(
        profile,
        waiting_pods=StoredWaitingPods(),
        stored_pods=StoredPods(),
        volume_store=VolumeStore(),
        device_store=DeviceStore(),
        meter=_meter,
    )


memory.when_replaced(_framework.cache_clear)


@lru_cache(maxsize=4096)
def _info(class_id: int) -> PodInfo:
    (row,) = load_classes([class_id])
    return from_stored_class(row.id, row.spec)


memory.when_replaced(_info.cache_clear)


# --- Waiting pods, for plugins -----------------------------------------------------------------


class StoredWaitingPod:
    """A pod that waits on Permit, read from its row (``handles.WaitingPod``)."""

    def __init__(self, row: Reservation) -> None:
        self._row = row
        self.name = f"{row.namespace}/{row.name}"
        self.uid = row.uid
        self.node_name = row.node_name

    @property
    def pod(self) -> PodInfo:
        """The pod's scheduling class."""
        return _info(self._row.class_id)

    @property
    def pending_plugins(self) -> Sequence[str]:
        """Names of the plugins that have not allowed the pod yet, sorted."""
        return sorted(self._row.waits)

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin."""
        if actions.allow([(self._row.pod_id, plugin)]):
            actions.wake()

    def reject(self, plugin: str, message: str) -> bool:
        """Send the pod back to the queue; return whether it was still waiting."""
        return self._refuse(plugin, message, Code.UNSCHEDULABLE)

    def preempt(self, plugin: str, message: str) -> bool:
        """Let the pod be tried again after its backoff; return whether it was still waiting."""
        return self._refuse(plugin, message, Code.ERROR)

    def _refuse(self, plugin: str, message: str, code: Code) -> bool:
        refusal = Refusal(pod_id=self._row.pod_id, plugin=plugin, message=message, code=int(code))
        refused = actions.refuse([refusal], steps=(WAITING,))
        if refused:
            actions.wake()
        return bool(refused)


class StoredWaitingPods:
    """The pods that wait on Permit, read from their rows (``handles.WaitingPods``)."""

    def all(self) -> Sequence[StoredWaitingPod]:
        """Return all waiting pods, the longest waiting first. Queries once."""
        return [StoredWaitingPod(row) for row in reservations.waiting()]

    def get(self, uid: str) -> StoredWaitingPod | None:
        """Return the waiting pod with this uid, ``None`` if there is none. Queries once."""
        return next((pod for pod in self.all() if pod.uid == uid), None)
