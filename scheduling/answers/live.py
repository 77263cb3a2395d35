"""The live cluster for questions: copies of a mirror that follows the change log.

``Live`` owns the mirror. In an advisor its loop calls ``follow`` all the time, so that a question
has few changes to read; in another process the first question loads the mirror. A question gets a
``LiveWorld``: the cluster at one revision, which includes all writes acknowledged before the
question (``changes.settled``), so users see their own writes. A question works on a copy, so
questions do not wait for each other and the mirror does not change. The mirror can be dropped at
any moment: the next question loads it again.
"""

import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from clusterstate import catalogue
from clusterstate.admission.request import AdmissionSettings
from clusterstate.change_log import changes, replica
from clusterstate.objects.values.errors import TooLarge, TooManyRequests
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import collector, memory
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.pods import find_pod_id, find_pod_ids, pods_by_id
from scheduling.engine.queue.pending import Backoff
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.simulation import Base
from scheduling.worker import profiles
from scheduling.worker.mirror import FOLLOWED, Mirror

_TAKES_TOO_LONG: Final = (
    "the advisors had no answer in time: ask again when they are less busy, or about fewer objects"
)
ANSWER_SECONDS = 60.0
"""Seconds that a question may take (kube-apiserver's ``--request-timeout``)."""
_MOST_KEPT = 256
_REPLICA_SECONDS = 0.5
"""How long a question waits until a replica has what the primary has written."""
_UNSETTLED = "a write is under way that the answer would have to include; try again"

Known = TypeVar("Known")


class Live:
    """The mirror of this process, and a cache of results for its present revision."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._mirror: Mirror | None = None
        self._profiles: set[str] = set()
        self._version = 0
        self._cache: tuple[int, dict[Hashable, Any]] = (0, {})

    def forget(self) -> None:
        """Drop the mirror."""
        with self._lock:
            self._mirror = None
            self._version += 1

    def follow(self, *, mark: int | None = None) -> int:
        """Bring the mirror up to date, to ``mark`` at least if given; return its revision.

        It is loaded again if other profiles are in force. Queries four times, a dozen times if it
        loads. Reads a replica, if there is one, as soon as that has come up to ``mark``.
        """
        with self._lock:
            return replica.read(
                lambda: self._follow(mark), least=mark or 0, patience=_REPLICA_SECONDS
            )

    def _follow(self, mark: int | None) -> int:
        with self._lock:
            now = time.time()
            mirror, self._mirror = self._mirror, None
            # Stored again only at the end: after a failure the mirror is loaded again.
            configuration = profiles.in_force()[1]
            names = {profile.scheduler_name for profile in configuration.profiles}
            if mirror is not None:
                mirror.compatibility = configuration.compatibility
            replaces = mirror is not None and (mirror.has_outgrown or names != self._profiles)
            if mirror is None or replaces:
                mirror = None
                self._cache = 0, {}
                mirror = Mirror({name: {} for name in names}, Backoff())
                mirror.compatibility = configuration.compatibility
                mirror.load(now)
                self._profiles = names
                self._version += 1
                if replaces:
                    collector.calm()  # the old snapshot was frozen, and would stay for ever
            else:
                reserved = mirror.reserved
                mirror.follow_reservations()
                if mirror.refresh(now, mark=mark) or mirror.reserved != reserved:
                    self._version += 1
            mirror.arrivals.clear()
            mirror.failed_objects.clear()  # the scheduler sets them aside
            self._mirror = mirror
            return mirror.cursor

    def settled(self) -> int:
        """Bring the mirror up to every write that was acknowledged; return its revision.

        Raises:
            TooManyRequests: some writes cannot be read yet, because an earlier transaction is still
                open after the wait of ``changes.settled``.
        """
        # Before the lock, so that no question waits for another one's wait.
        settled = changes.settled(FOLLOWED)
        if settled.lacking:
            raise TooManyRequests(_UNSETTLED, {"retryAfterSeconds": 1})
        return self.follow(mark=settled.mark)

    def look(self, use: Callable[[Mirror, int], Known]) -> Known:
        """Return ``use(mirror, version)`` of the up-to-date mirror, under its lock."""
        self.settled()
        with self._lock:
            if self._mirror is None:  # another thread's look failed meanwhile
                self.follow()
            assert self._mirror is not None
            return use(self._mirror, self._version)

    def keep(self, version: int, key: Hashable, make: Callable[[], Known]) -> Known:
        """Return the result of ``make`` for this key, cached until the version changes."""
        with self._lock:
            if self._cache[0] != version or len(self._cache[1]) > _MOST_KEPT:
                self._cache = version, {}
            cache = self._cache[1]
        if key not in cache:
            cache[key] = make()
        return cast("Known", cache[key])


_live = Live()
memory.when_replaced(_live.forget)


def follow() -> int:
    """Bring this process's mirror up to date; return its revision. Queries four times."""
    return _live.follow()


class LiveWorld:
    """The live cluster for one question, read at the first use.

    ``revision``: up to where the answer has read the change log; 0 before that. ``until``: the
    deadline, in monotonic seconds.
    """

    def __init__(
        self, until: float | None = None, tell: Callable[[str, float], None] | None = None
    ) -> None:
        self.until = time.monotonic() + ANSWER_SECONDS if until is None else until
        self.revision = 0
        self._version = 0
        self._tell = tell

    def go_on(self) -> None:
        """Raise after the deadline; long computations call this in their loops.

        Raises:
            TooLarge: the deadline has passed.
        """
        if time.monotonic() > self.until:
            raise TooLarge(_TAKES_TOO_LONG)

    def tell(self, doing: str, share: float) -> None:
        """Publish for the asker the present step in words, and the share done, 0 to 1."""
        if self._tell is not None:
            self._tell(doing, share)

    def snapshot(self) -> Snapshot:
        """Return a copy of the present cluster, which the caller may change."""
        return self.look(lambda mirror: copy_snapshot(mirror.snapshot))

    def look(self, use: Callable[[Mirror], Known]) -> Known:
        """Return ``use(mirror)``, run under the mirror's lock; other questions wait meanwhile.

        ``use`` must be quick, must not change the mirror, and must not return parts of it.
        """

        def looked(mirror: Mirror, version: int) -> Known:
            self.revision, self._version = mirror.cursor, version
            return use(mirror)

        return _live.look(looked)

    def keep(self, key: Hashable, make: Callable[[], Known]) -> Known:
        """Return the result of ``make``, cached for the present version of the mirror.

        Call ``look`` or ``snapshot`` first: they set the version. The cached value must not be
        changed.
        """
        return _live.keep(self._version, key, make)


class TimedBase(Base):
    """An empty cluster as the base of a simulation, with a deadline."""

    def __init__(
        self,
        world: LiveWorld,
        *,
        settings: AdmissionSettings,
        configuration: KubeSchedulerConfiguration,
        snapshot: Snapshot | None = None,
    ) -> None:
        super().__init__(snapshot=snapshot, settings=settings, configuration=configuration)
        self.world = world

    def go_on(self) -> None:
        """Raise TooLarge after the deadline."""
        self.world.go_on()


class LiveBase(TimedBase):
    """The live cluster as the base of a simulation; queries what the snapshot does not have."""

    open_namespaces = False

    def __init__(self, world: LiveWorld, snapshot: Snapshot | None = None) -> None:
        super().__init__(
            world,
            snapshot=world.snapshot() if snapshot is None else snapshot,
            settings=catalogue.admission_settings(),
            configuration=profiles.in_force()[1],
        )
        cached = catalogue.current()
        self._catalogue = cached if catalogue.is_current(cached) else catalogue.reload()

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return an object of the live world, ``None`` if there is none. Queries once."""
        found = find_object(kind, namespace, name)
        return None if found is None else decode_object(found)

    def default_priority_class(self) -> Manifest | None:
        """Return the PriorityClass with ``globalDefault``, ``None`` if there is none."""
        return self._catalogue.default_priority_class()

    def limit_ranges(self, namespace: str) -> Sequence[Manifest]:
        """Return the LimitRanges of a namespace."""
        return self._catalogue.limit_ranges(namespace)

    def pod_key(self, namespace: str, name: str) -> Hashable | None:
        """Return the id of a pod that is on a node. Queries once."""
        found = find_pod_id(namespace, name)
        return found if found is not None and self.snapshot.pod(found) is not None else None

    def pod_keys(self, places: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], Hashable]:
        """Return the ids of those pods that are on nodes. Queries once."""
        found = find_pod_ids(places)
        return {place: id_ for place, id_ in found.items() if self.snapshot.knows(id_)}

    def pod_names(self, keys: Iterable[Hashable]) -> Mapping[Hashable, str]:
        """Return ``namespace/name`` of pods by id. Queries once."""
        ids = [key for key in keys if isinstance(key, int)]
        if not ids:
            return {}
        return {id_: f"{pod.namespace}/{pod.name}" for id_, pod in pods_by_id(ids).items()}


def empty_base(world: LiveWorld) -> TimedBase:
    """Return the empty world with this service's rules of admission. Queries."""
    return TimedBase(
        world, settings=catalogue.admission_settings(), configuration=profiles.in_force()[1]
    )
