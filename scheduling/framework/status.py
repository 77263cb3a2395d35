"""Answers of plugins: a code that determines what happens next, with reasons for users.

Source: k8s.io/kube-scheduler ``framework/interface.go``, v1.36.
"""

from enum import IntEnum

import msgspec


class Code(IntEnum):
    """The code of a plugin's answer; values as in Kubernetes."""

    SUCCESS = 0
    """Go on. For Filter: the pod fits."""
    ERROR = 1
    """Internal failure: the attempt ends and the pod goes back to the queue with backoff."""
    UNSCHEDULABLE = 2
    """The pod does not fit; removing other pods might help, so preemption is tried."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """The pod does not fit and preemption cannot change that."""
    WAIT = 4
    """Permit only: the pod waits until it is allowed, rejected or timed out."""
    SKIP = 5
    """Bind: not mine. PreFilter/PreScore: leave out this plugin's Filter or Score."""
    PENDING = 6
    """Filter, Reserve and Permit: a rejection until something outside happens; an event that the
    plugin says is it has the pod tried at once, without a backoff. Preemption does not help."""

    @property
    def rejects(self) -> bool:
        """Whether the code means that the pod cannot be placed now."""
        return self in (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)

    @property
    def wire(self) -> str:
        """The code's name in Kubernetes, such as ``UnschedulableAndUnresolvable``."""
        return _WIRE[self]


_WIRE = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}


class Status(msgspec.Struct, frozen=True):
    """A plugin's answer. ``plugin`` is filled in by the runtime."""

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def ok(self) -> bool:
        """Whether the answer is Success."""
        return self.code is Code.SUCCESS

    @property
    def message(self) -> str:
        """The reasons, joined as Kubernetes joins them."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> "Status":
        """Return the same status attributed to ``plugin``."""
        return Status(self.code, self.reasons, plugin)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


def error(message: str, plugin: str = "") -> Status:
    """Return an Error status with one reason."""
    return Status(Code.ERROR, (message,), plugin)


def unschedulable(*reasons: str) -> Status:
    """Return an Unschedulable status."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Return an UnschedulableAndUnresolvable status."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)
