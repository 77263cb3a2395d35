"""DefaultBinder: publishes a decision through a function that the feeder of the cycle gives.

The live cycle binds in bulk, through the same function for a whole batch of pods; a simulation
binds nothing. Rule: plugins/defaultbinder/default_binder.go, v1.36 (R166).
"""

from collections.abc import Callable

from scheduling.framework.interface import CycleState
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.types import PodInfo

NAME = "DefaultBinder"

BindFunction = Callable[[CycleState, PodInfo, str], Status]


class DefaultBinder:
    """Bind with ``bind``; without one, every binding succeeds and nothing is published."""

    name = NAME

    def __init__(self, bind: BindFunction | None = None) -> None:
        self._bind = bind

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Publish the decision."""
        return SUCCESS if self._bind is None else self._bind(state, pod, node_name)
