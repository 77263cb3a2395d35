"""A pod with a reservation, in the scheduler's memory."""

from collections.abc import Sequence

import msgspec

from clusterstate.queries.scheduler.reservations import BINDING, WAITING
from scheduling.framework.interface import CycleState
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status
from scheduling.framework.types import PodInfo


class ReservedPod(msgspec.Struct, eq=False, kw_only=True):
    """A pod with a reservation; Permit plugins see it as ``handles.WaitingPod``.

    ``pod``: its scheduling class. ``revision``: of the configuration that has its profile.
    ``since``: when it was reserved, ``waits``: deadlines by plugin; seconds since the epoch.
    ``stored``: whether it has a row. ``submitted``: whether it is being bound.
    """

    pod_id: int
    pod: PodInfo
    node_name: str
    framework: Framework | None
    revision: int
    state: CycleState
    step: str
    since: float
    waits: dict[str, float]
    stored: bool
    refused: Status | None = None
    allowed_by: set[str] = msgspec.field(default_factory=set)
    submitted: bool = False
    works: bool = False
    """Whether plugins have work to do before this pod is bound."""

    @property
    def is_nominated(self) -> bool:
        """Whether the pod waits on Permit or PreBind, and so is nominated for its node."""
        framework = self.framework
        return self.step == WAITING or (
            self.step == BINDING and framework is not None and bool(framework.pre_bind_plugins)
        )

    @property
    def name(self) -> str:
        """The pod's ``namespace/name``."""
        return self.state.pod_name

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.state.pod_uid

    @property
    def pending_plugins(self) -> Sequence[str]:
        """Names of the plugins that have not allowed the pod yet, sorted."""
        return sorted(self.waits)

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin."""
        if self.waits.pop(plugin, None) is not None:
            self.allowed_by.add(plugin)

    def reject(self, plugin: str, message: str) -> bool:
        """Send the pod back to the queue; return False if it was sent back before."""
        return self._refuse(Status(Code.UNSCHEDULABLE, (message,), plugin))

    def preempt(self, plugin: str, message: str) -> bool:
        """Let the pod be tried again after its backoff; return False if it was sent back before."""
        return self._refuse(Status(Code.ERROR, (message,), plugin))

    def _refuse(self, status: Status) -> bool:
        if self.refused is not None:
            return False
        self.refused = status
        return True
