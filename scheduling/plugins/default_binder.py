"""DefaultBinder: leaves the binding to the caller of the scheduling cycle.

The scheduling worker binds in bulk, many pods by one statement (``worker.binder``), and a
simulation binds nothing. So the plugin only returns Success, which ends the calls of Bind plugins.
Rule: plugins/defaultbinder/default_binder.go, v1.36 (R166).
"""

from scheduling.framework.interface import CycleState
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.types import PodInfo

NAME = "DefaultBinder"


class DefaultBinder:
    """The last Bind plugin: it accepts every pod."""

    name = NAME

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return Success; the pod is bound afterwards, with others."""
        return SUCCESS
