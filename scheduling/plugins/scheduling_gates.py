"""SchedulingGates: a pod with gates does not enter the active queue.

Rule: plugins/schedulinggates/scheduling_gates.go, v1.36.
"""

from scheduling.framework.status import SUCCESS, Status, unresolvable
from scheduling.framework.types import PodInfo

NAME = "SchedulingGates"


class SchedulingGates:
    """PreEnqueue on ``spec.schedulingGates``."""

    name = NAME

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return Success if the pod has no scheduling gate, else Unresolvable."""
        if not pod.gates:
            return SUCCESS
        return unresolvable(f"waiting for scheduling gates: [{' '.join(pod.gates)}]")
