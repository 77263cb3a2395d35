"""PrioritySort: orders pods by priority, then by how long they have waited.

Rule: plugins/queuesort/priority_sort.go, v1.36 (R152). ``agePointsPerMinute`` is Stowage's own: it
adds that many points of priority for each minute that a pod waits, in the order of the queue alone.
Preemption compares the stated priorities.
"""

from scheduling.framework.configuration.plugin_args import PrioritySortArgs
from scheduling.framework.types import PodInfo

NAME = "PrioritySort"


class PrioritySort:
    """QueueSort by priority and waiting time."""

    name = NAME

    def __init__(self, args: PrioritySortArgs = PrioritySortArgs()) -> None:  # noqa: B008
        self.age_points_per_minute = args.age_points_per_minute

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        """Return (negated priority, time of queueing); lower goes first."""
        return (-pod.priority, queued_at)
