"""A script: the world at the beginning, and its events by time.

``Scenario`` documents (``document``), public traces (``traces``) and the history of the live
service (``scheduling.answers.recorded``) all become scripts, so that each can run under several
configurations.
"""

from collections.abc import Sequence

import msgspec

from clusterstate.objects.values.meta import Manifest
from scheduling.framework.configuration import KubeSchedulerConfiguration


class Arrival(msgspec.Struct, frozen=True):
    """A new pod.

    ``runs``: seconds from its binding until it leaves by itself, ``None`` for ever. ``comes_back``:
    whether its owner replaces it when it is evicted or lost. ``recorded_node`` and
    ``recorded_wait``: its node and its waiting seconds in the source; empty and ``None`` if
    unknown.
    """

    manifest: Manifest
    runs: float | None = None
    comes_back: bool = False
    recorded_node: str = ""
    recorded_wait: float | None = None


class Gone(msgspec.Struct, frozen=True):
    """An object to delete."""

    kind: str
    namespace: str
    name: str


class NodeChange(msgspec.Struct, frozen=True):
    """A change of nodes: the named ones, and those with all of ``labels`` (if there are any).

    ``add`` and ``remove`` are taints as manifests; ``remove`` compares the key and, if given,
    effect and value. ``unschedulable``: ``None`` for no change.
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
    """The world at the beginning (``objects``) and the steps until ``until``, seconds or ``None``.

    ``began_at``: the moment of second 0, seconds since the epoch. ``grace``: seconds from the
    eviction of a pod until it is gone. ``scored``: the resources to measure.
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
        """The number of pods in all steps."""
        return sum(len(step.arrivals) for step in self.steps)
