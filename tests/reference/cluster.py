"""The world that the reference rules look at: nodes with their pods, and what selects pods."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)


@dataclass(frozen=True)
class PlacedNode:
    """A node and the pods on it, those that are terminating included."""

    node: Node
    pods: tuple[Pod, ...] = ()

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return self.node.metadata.labels

    def with_pod(self, pod: Pod) -> "PlacedNode":
        """Return the node with one more pod."""
        return PlacedNode(self.node, (*self.pods, pod))

    def without_pod(self, pod: Pod) -> "PlacedNode":
        """Return the node without that very pod."""
        return PlacedNode(self.node, tuple(p for p in self.pods if p is not pod))


@dataclass(frozen=True)
class Cluster:
    """All nodes and the objects beside them; ``nominated`` are unbound pods by node name.

    ``version``: of Kubernetes, for rules that differ.
    """

    nodes: tuple[PlacedNode, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    services: tuple[Service, ...] = ()
    replication_controllers: tuple[ReplicationController, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    nominated: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    version: Compatibility = NEWEST

    def node(self, name: str) -> PlacedNode | None:
        """Return the node of that name, or None."""
        return next((node for node in self.nodes if node.name == name), None)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return a namespace's labels; those of an unknown one are empty."""
        return self.namespaces.get(name, {})


def build_cluster(
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    *,
    namespaces: Iterable[Namespace] = (),
    services: Sequence[Service] = (),
    replication_controllers: Sequence[ReplicationController] = (),
    replica_sets: Sequence[ReplicaSet] = (),
    stateful_sets: Sequence[StatefulSet] = (),
    budgets: Sequence[PodDisruptionBudget] = (),
    nominated: Iterable[Pod] = (),
    version: Compatibility = NEWEST,
) -> Cluster:
    """Return a cluster with each pod on the node that its ``spec.nodeName`` names.

    Pods on nodes that do not exist are left out. ``nominated`` pods count where their
    ``status.nominatedNodeName`` says.
    """
    placed: dict[str, list[Pod]] = {}
    for pod in pods:
        placed.setdefault(pod.spec.node_name, []).append(pod)
    expected: dict[str, tuple[Pod, ...]] = {}
    for pod in nominated:
        name = pod.status.nominated_node_name
        expected[name] = (*expected.get(name, ()), pod)
    return Cluster(
        nodes=tuple(PlacedNode(n, tuple(placed.get(n.metadata.name, ()))) for n in nodes),
        namespaces={n.metadata.name: n.metadata.labels for n in namespaces},
        services=tuple(services),
        replication_controllers=tuple(replication_controllers),
        replica_sets=tuple(replica_sets),
        stateful_sets=tuple(stateful_sets),
        budgets=tuple(budgets),
        nominated=expected,
        version=version,
    )
