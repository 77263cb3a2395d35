"""PrioritySort: pods of higher priority first, then those that wait longer.

Rule: plugins/queuesort/priority_sort.go, v1.36 (R152).
"""

from scheduling.framework.types import PodInfo

NAME = "PrioritySort"


class PrioritySort:
    """Order of the active queue."""

    name = NAME

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        """Return (negated priority, time of queueing); lower goes first."""
        return (-pod.priority, queued_at)
