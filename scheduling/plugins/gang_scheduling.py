"""GangScheduling: a pod of a group is tried once its PodGroup is there, and enough of its gang.

The queue asks ``framework.pod_groups.pre_enqueue`` about pods of groups, since it knows the other
members; pods of no group are let in here. A profile without this plugin places such pods one by
one. Rule: plugins/gangscheduling/gangscheduling.go, v1.36.
"""

from scheduling.framework.pod_groups import GANG_SCHEDULING
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.types import PodInfo


class GangScheduling:
    """PreEnqueue on ``spec.schedulingGroup``."""

    name = GANG_SCHEDULING

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Let the pod in: if it is of a group, the queue has asked already."""
        return SUCCESS
