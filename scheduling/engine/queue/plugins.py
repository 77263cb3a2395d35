"""QueueSort and PreEnqueue of the profiles, for a queue.

The scheduler and a cluster in virtual time both use this. All profiles have the same QueueSort. If
it fails, the pod is ordered by priority; if PreEnqueue fails, the pod is held back. Rules:
backend/queue/scheduling_queue.go (``runPreEnqueuePlugins``) and dynamicresources.go
(``PreEnqueue``), v1.36 (R151, R152).
"""

from collections.abc import Callable, Mapping

from scheduling.engine.queue.pending import (
    PendingPod,
    aged_sort,
    priority_sort,
    scheduling_gates,
)
from scheduling.framework.device_claims import DYNAMIC_RESOURCES, lacks_claims
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.pod_groups import GANG_SCHEDULING
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo


def ignore(failure: PluginFailed) -> None:
    """Do nothing: the default for ``failed``."""


class QueuePlugins:
    """Sort keys and PreEnqueue results for a queue (``pending.SortKey``, ``pending.HeldBy``).

    Args:
        frameworks: the profiles in force, by scheduler name; may be replaced later.
        info: returns a class's requirements by its id.
        failed: called with the failure of a plugin.
    """

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        info: Callable[[int], PodInfo],
        failed: Callable[[PluginFailed], None] = ignore,
    ) -> None:
        self.frameworks = frameworks
        self._info = info
        self._failed = failed
        self.lets_group_in: Callable[[PendingPod], bool] = lambda pod: True
        """Whether the group of a pod may be tried (``pod_groups.pre_enqueue``)."""
        self.holds_unclaimed = False
        """Whether a pod without a group is held back until the claims of its templates are made."""

    def sort_key(self, pod: PendingPod, queued_at: float, since: float) -> tuple[float, ...]:
        """Return the pod's sort key among the active ones; lower goes first."""
        framework = next(iter(self.frameworks.values()))
        if framework.sorts_by_itself:
            try:
                return framework.sort_key(self._info(pod.class_id), queued_at)
            except PluginFailed as failure:
                self._failed(failure)
        if points := framework.age_points_per_minute:
            return aged_sort(pod.priority, queued_at, since, points)
        return priority_sort(pod, queued_at, since)

    def held_by(self, pod: PendingPod) -> str:
        """Return the name of the plugin whose PreEnqueue rejects a pod, empty if none does."""
        framework = self.frameworks.get(pod.spec.spec.scheduler_name)
        if pod.spec.spec.scheduling_group is not None and framework is not None:
            gate = scheduling_gates(pod)
            if gate or not framework.schedules_groups:
                return gate
            if not self.lets_group_in(pod):
                return GANG_SCHEDULING
        elif (
            self.holds_unclaimed
            and pod.spec.spec.resource_claims
            and lacks_claims(pod.spec)
            and framework is not None
            and framework.claims_devices
        ):
            return scheduling_gates(pod) or DYNAMIC_RESOURCES
        if framework is None or framework.only_gates:
            return scheduling_gates(pod)
        try:
            return framework.pre_enqueue(self._info(pod.class_id)).plugin
        except PluginFailed as failure:
            self._failed(failure)
            return failure.status.plugin
