"""PrioritySort: pods of higher priority first, then those that wait longer.

Rule: plugins/queuesort/priority_sort.go, v1.36 (R152). Of our own is ``agePointsPerMinute``: each
minute that a pod waits counts as so many points of priority, in the order of the queue and nowhere
else. Which pods may preempt which depends on their stated priorities alone.
"""

from scheduling.framework.configuration.plugin_args import PrioritySortArgs
from scheduling.framework.types import PodInfo

NAME = "PrioritySort"


class PrioritySort:
    """Order of the active queue."""

    name = NAME

    def __init__(self, args: PrioritySortArgs = PrioritySortArgs()) -> None:  # noqa: B008
        self.age_points_per_minute = args.age_points_per_minute

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        """Return (negated priority, time of queueing); lower goes first."""
        return (-pod.priority, queued_at)
