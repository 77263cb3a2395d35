"""The present cluster and its waiting pods, for questions about them.

``Present`` is a copy of the live snapshot for one question, with the classes of waiting pods and
the profiles in force.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from clusterstate.objects.values.errors import NotFound
from clusterstate.queries.loops.loading import load_classes
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods.waiting import WaitingPod, waiting
from scheduling.answers.live import LiveWorld
from scheduling.engine.queue.pending import aged_sort
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.snapshot.requirements import from_stored_class
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, digest_of
from scheduling.plugins.catalogue import build_framework
from scheduling.worker import profiles

GATED: Final = "gated"
IN_FLIGHT: Final = "inflight"
_HIGHEST_OF_USERS: Final = 1_000_000_000
"""Higher priorities are the system's (PriorityClass, v1.36)."""


class Present:
    """A copy of the live cluster, with the profiles in force."""

    def __init__(self, world: LiveWorld) -> None:
        self.world = world
        self.snapshot = world.snapshot()
        self._configuration: KubeSchedulerConfiguration = profiles.in_force()[1]
        self._frameworks: dict[str, Framework] = {}

    def info(self, class_id: int) -> PodInfo:
        """Return a stored scheduling class. Queries once if the snapshot does not know it.

        Raises:
            NotFound: the class is no longer stored.
        """
        cached = self.snapshot.known_class(digest_of(class_id))
        if cached is not None:
            return cached
        rows = load_classes([class_id])
        if not rows:
            raise NotFound(f"the pod's spec (scheduling class {class_id}) is no longer stored")
        return self.snapshot.intern(
            from_stored_class(class_id, rows[0].spec, self.snapshot.compatibility)
        )

    def framework(self, scheduler_name: str) -> Framework | None:
        """Return a profile in force with its plugins; ``None`` if no profile has the name."""
        found = self._frameworks.get(scheduler_name)
        if found is None:
            profile = self._configuration.profile(scheduler_name)
            if profile is None:
                return None
            found = self._frameworks[scheduler_name] = build_framework(profile)
        return found

    def frameworks(self) -> dict[str, Framework]:
        """Return the profiles in force with their plugins, by scheduler name."""
        names = (one.scheduler_name for one in self._configuration.profiles)
        found = ((name, self.framework(name)) for name in names)
        return {name: one for name, one in found if one is not None}

    def to_place(self, pod: WaitingPod) -> PodToPlace:
        """Return a waiting pod with its class and nominated node. May query once."""
        nominated = self.snapshot.nominated_node_of(pod.id)
        return PodToPlace(pod.id, self.info(pod.class_id), nominated)

    def queue(
        self,
        scheduler_name: str,
        pods: Sequence[WaitingPod] | None = None,
        *,
        most: int | None = None,
    ) -> list[PodToPlace]:
        """Return the waiting pods of a profile, in the order of the queue.

        The order is the default one, also if a plugin of another package sorts the queue. Pods with
        gates and reserved pods, which wait on Permit, are left out.

        Args:
            scheduler_name: that of the profile.
            pods: from ``queries.pods.waiting``; queried by default.
            most: the limit for queried pods: the first ones of the queue.
        """
        framework = self.framework(scheduler_name)
        points = 0 if framework is None else framework.age_points_per_minute
        if pods is None:
            # If priorities grow with age, the first pods are known only when all are.
            pods = waiting(scheduler_name=scheduler_name, most=None if points else most)
        found = [
            pod
            for pod in pods
            if pod.scheduler_name == scheduler_name
            and pod.stage not in (GATED, IN_FLIGHT)
            and not self.snapshot.knows(pod.id)
        ]
        if points:
            found.sort(key=lambda one: _aged(one, points))
        return [self.to_place(pod) for pod in found]


def _aged(pod: WaitingPod, points: int) -> tuple[float, ...]:
    since = pod.since.timestamp()
    return aged_sort(pod.priority, since, since, points)


class _Class(msgspec.Struct):
    """The name and value of a PriorityClass."""

    class Metadata(msgspec.Struct):
        """The name of a PriorityClass."""

        name: str

    metadata: Metadata
    value: int = 0


def priorities() -> list[tuple[int, str]]:
    """Return (value, name) of the PriorityClasses that users may use, ascending. Queries once."""
    found = [msgspec.json.decode(item, type=_Class) for item in list_page("PriorityClass").items]
    return sorted((one.value, one.metadata.name) for one in found if one.value <= _HIGHEST_OF_USERS)
