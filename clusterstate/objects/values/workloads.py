"""Lenses over workloads, namespaces and disruption budgets: the fields that scheduling reads.

Default topology spreading counts the pods that a Service or controller selects
(plugins/helper/spread.go); preemption spares the pods of budgets if it can.
"""

import msgspec

from clusterstate.objects.values.meta import ObjectMeta, prepare
from clusterstate.objects.values.pod import LabelSelector


class Namespace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A namespace; inter-pod affinity selects namespaces by label."""

    metadata: ObjectMeta = ObjectMeta()


class MapSelectorSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A selector of exact labels; empty selects nothing."""

    selector: dict[str, str] = {}


class Service(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A service and the labels of its pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MapSelectorSpec = MapSelectorSpec()


class ReplicationController(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A replication controller and the labels of its pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MapSelectorSpec = MapSelectorSpec()


class LabelSelectorSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A label selector; absent selects nothing."""

    selector: LabelSelector | None = None


class ReplicaSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A replica set and the selector of its pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()


class StatefulSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A stateful set and the selector of its pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()


class PodDisruptionBudgetSpec(LabelSelectorSpec, frozen=True, kw_only=True, rename="camel"):
    """Which pods a budget selects, and its policy for unready pods."""

    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many pods may be evicted now, without ``disrupted_pods`` (name to time)."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A budget, the selector of its pods and what it allows."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


prepare(Namespace, Service, ReplicationController, ReplicaSet, StatefulSet, PodDisruptionBudget)
