"""GangScheduling: a pod of a group is tried once its PodGroup and enough of its pods exist.

The queue calls ``framework.pod_groups.pre_enqueue`` for pods of groups, since it knows the other
members; this plugin accepts all pods. A profile without this plugin places such pods one by one.
Rule: plugins/gangscheduling/gangscheduling.go, v1.36.
"""

from scheduling.framework.pod_groups import GANG_SCHEDULING
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.types import PodInfo


class GangScheduling:
    """PreEnqueue on ``spec.schedulingGroup``."""

    name = GANG_SCHEDULING

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return Success: the queue has already checked pods that belong to a group."""
        return SUCCESS
