"""The kinds that are stored and served, and how each is named.

One entry here gives a kind its routes, its discovery entry and its type checks. Kinds that are only
ever posted to a subresource (``Binding``, ``Eviction``, ``Scale``) are not listed: they have wire
types but no collection of their own.
"""

from typing import Final

import msgspec

from clusterstate.objects import wire_types


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object.

    ``version`` is what is given out; ``versions`` is everything that requests may use, where older
    ones have the same shape. ``plural`` is the resource name in paths and messages.
    """

    name: str
    plural: str
    singular: str
    wire_type: type[msgspec.Struct]
    group: str = ""
    version: str = "v1"
    versions: tuple[str, ...] = ("v1",)
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of objects: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The ``kind`` of lists."""
        return f"{self.name}List"

    @property
    def resource(self) -> str:
        """The resource as error messages name it: ``pods``, ``deployments.apps``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_ALL: Final = (
    Kind(
        name="Pod",
        plural="pods",
        singular="pod",
        wire_type=wire_types.Pod,
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction"),
    ),
    Kind(
        name="Node",
        plural="nodes",
        singular="node",
        wire_type=wire_types.Node,
        short_names=("no",),
        namespaced=False,
        subresources=("status",),
    ),
    Kind(
        name="Namespace",
        plural="namespaces",
        singular="namespace",
        wire_type=wire_types.Namespace,
        short_names=("ns",),
        namespaced=False,
        subresources=("status", "finalize"),
    ),
    Kind(
        name="Event",
        plural="events",
        singular="event",
        wire_type=wire_types.Event,
        short_names=("ev",),
    ),
    Kind(
        name="Service",
        plural="services",
        singular="service",
        wire_type=wire_types.Service,
        short_names=("svc",),
        categories=("all",),
        subresources=("status",),
    ),
    Kind(
        name="ReplicationController",
        plural="replicationcontrollers",
        singular="replicationcontroller",
        wire_type=wire_types.ReplicationController,
        short_names=("rc",),
        categories=("all",),
        subresources=("status", "scale"),
    ),
    Kind(
        name="ResourceQuota",
        plural="resourcequotas",
        singular="resourcequota",
        wire_type=wire_types.ResourceQuota,
        short_names=("quota",),
        subresources=("status",),
    ),
    Kind(
        name="LimitRange",
        plural="limitranges",
        singular="limitrange",
        wire_type=wire_types.LimitRange,
        short_names=("limits",),
    ),
    Kind(
        name="Deployment",
        plural="deployments",
        singular="deployment",
        wire_type=wire_types.Deployment,
        group="apps",
        short_names=("deploy",),
        categories=("all",),
        subresources=("status", "scale"),
    ),
    Kind(
        name="ReplicaSet",
        plural="replicasets",
        singular="replicaset",
        wire_type=wire_types.ReplicaSet,
        group="apps",
        short_names=("rs",),
        categories=("all",),
        subresources=("status", "scale"),
    ),
    Kind(
        name="StatefulSet",
        plural="statefulsets",
        singular="statefulset",
        wire_type=wire_types.StatefulSet,
        group="apps",
        short_names=("sts",),
        categories=("all",),
        subresources=("status", "scale"),
    ),
    Kind(
        name="DaemonSet",
        plural="daemonsets",
        singular="daemonset",
        wire_type=wire_types.DaemonSet,
        group="apps",
        short_names=("ds",),
        categories=("all",),
        subresources=("status",),
    ),
    Kind(
        name="RuntimeClass",
        plural="runtimeclasses",
        singular="runtimeclass",
        wire_type=wire_types.RuntimeClass,
        group="node.k8s.io",
        namespaced=False,
    ),
    Kind(
        name="PriorityClass",
        plural="priorityclasses",
        singular="priorityclass",
        wire_type=wire_types.PriorityClass,
        group="scheduling.k8s.io",
        short_names=("pc",),
        namespaced=False,
    ),
    Kind(
        name="PodDisruptionBudget",
        plural="poddisruptionbudgets",
        singular="poddisruptionbudget",
        wire_type=wire_types.PodDisruptionBudget,
        group="policy",
        versions=("v1", "v1beta1"),
        short_names=("pdb",),
        subresources=("status",),
    ),
    Kind(
        name="Lease",
        plural="leases",
        singular="lease",
        wire_type=wire_types.Lease,
        group="coordination.k8s.io",
    ),
)

ALL_KINDS: Final[tuple[Kind, ...]] = _ALL
"""Every kind, once."""

KINDS: Final[dict[tuple[str, str] | str, Kind]] = {
    **{(kind.group, kind.plural): kind for kind in _ALL},
    **{kind.name: kind for kind in _ALL},
}
"""Every kind, under (group, plural) and under its name."""
