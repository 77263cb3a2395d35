"""A script: the world at the beginning, and what happens in it when.

Scenarios of people (``document``), public traces (``traces``) and the history of the live service
(``scheduling.answers.recorded``) all become one, so that the same may be played under several
configurations.
"""

from collections.abc import Sequence

import msgspec

from clusterstate.objects.values.meta import Manifest
from scheduling.framework.configuration import KubeSchedulerConfiguration


class Arrival(msgspec.Struct, frozen=True):
    """A pod that comes.

    ``runs``: seconds from its binding until it leaves by itself, ``None`` for ever. ``comes_back``:
    whether another one comes in its place when it is evicted or lost, as its owner would have it.
    ``recorded_node`` and ``recorded_wait``: where it went and after how many seconds, as the source
    tells; empty and ``None`` where it does not.
    """

    manifest: Manifest
    runs: float | None = None
    comes_back: bool = False
    recorded_node: str = ""
    recorded_wait: float | None = None


class Gone(msgspec.Struct, frozen=True):
    """An object that is deleted."""

    kind: str
    namespace: str
    name: str


class NodeChange(msgspec.Struct, frozen=True):
    """A change of nodes: those named, and those with all of the labels (none: no node).

    ``add`` and ``remove`` are taints as manifests; of ``remove`` key and, where given, effect and
    value count. ``unschedulable`` ``None``: as it is.
    """

    names: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    add: tuple[Manifest, ...] = ()
    remove: tuple[Manifest, ...] = ()
    unschedulable: bool | None = None


class Step(msgspec.Struct, frozen=True):
    """The events of one moment, in this order.

    ``at``: seconds from the beginning. ``objects`` are added or replaced.
    """

    at: float
    gone: tuple[Gone, ...] = ()
    objects: tuple[Manifest, ...] = ()
    node_changes: tuple[NodeChange, ...] = ()
    arrivals: tuple[Arrival, ...] = ()


class Script(msgspec.Struct, frozen=True):
    """``objects``: the world at the beginning. ``until``: seconds, ``None``: until all is quiet.

    ``began_at``: the moment of second 0, seconds since the epoch. ``grace``: seconds from the
    eviction of a pod until it is gone. ``scored``: the resources that figures are about.
    """

    title: str
    objects: Sequence[Manifest]
    steps: Sequence[Step]
    until: float | None = None
    began_at: float = 0.0
    grace: float = 0.0
    seed: int = 0
    admission: bool = True
    configuration: KubeSchedulerConfiguration | None = None
    scored: tuple[str, ...] = ("cpu", "memory")
    is_typed: bool = False
    """Whether a person wrote it. Then a change of an object that is not there is a warning, and
    owners replace the pods that they lose. In a record the replacements are arrivals themselves."""

    @property
    def pod_count(self) -> int:
        """How many pods come."""
        return sum(len(step.arrivals) for step in self.steps)
