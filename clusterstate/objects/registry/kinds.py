"""The registry of kinds: everything that is stored and served, one entry for each kind.

An entry gives a kind its routes, discovery, type checks, rows, watch and selectors. A kind without
columns of its own needs nothing else: its objects are rows of the shared table. Kinds that are only
ever posted to a subresource (``Binding``, ``Eviction``, ``Scale``) are not listed: they have wire
types but no collection of their own.
"""

import itertools
from collections.abc import Mapping
from typing import Final

import msgspec

from clusterstate.objects.registry import columns, wire_types
from clusterstate.objects.registry.kind import Column, Kind, Part
from clusterstate.objects.registry.stored_kinds import STORED_KINDS
from clusterstate.objects.registry.strategies import (
    DaemonSetStrategy,
    DeploymentStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PodStrategy,
    QuotaStrategy,
    ServiceStrategy,
)

METADATA_FIELDS: Final[Mapping[str, str]] = {"metadata.name": "", "metadata.namespace": ""}
"""What objects of every kind can be selected by."""


_ALL: Final = (
    Kind(
        name="Pod",
        code=1,
        table="pod",
        short_names=("po",),
        categories=("all",),
        subresources=("status", "binding", "eviction", "resize"),
        counts_generation=True,
        selectable={
            "spec.nodeName": "t.node_name",
            "spec.restartPolicy": "",
            "spec.schedulerName": "t.scheduler_name",
            "spec.serviceAccountName": "",
            "spec.hostNetwork": "",
            "status.phase": "t.phase",
            "status.podIP": "",
            "status.nominatedNodeName": "t.nominated_node_name",
        },
        has_slots=True,
        returns_deleted=True,
        strategy=PodStrategy(),
        names_creators=False,
    ),
    Kind(
        name="Node",
        code=2,
        table="node",
        short_names=("no",),
        namespaced=False,
        subresources=("status",),
        status_at_creation=True,
        columns=(
            Column("unschedulable", "boolean", columns.unschedulable),
            Column("cpu_milli", "bigint", columns.cpu_milli),
            Column("memory_bytes", "bigint", columns.memory_bytes),
            Column("ephemeral_bytes", "bigint", columns.ephemeral_bytes),
            Column("pods", "bigint", columns.pods),
            Column("extended", "text::jsonb", columns.extended),
        ),
        selectable={"spec.unschedulable": "CASE WHEN t.unschedulable THEN 'true' ELSE 'false' END"},
        guards_placement=True,
        parts=(
            Part(
                "taint",
                "node_id",
                (
                    Column("key", "text", columns.taint_key),
                    Column("value", "text", columns.taint_value),
                    Column("effect", "text", columns.taint_effect),
                    Column("added_at", "timestamptz", columns.taint_added_at),
                ),
                columns.taints,
            ),
        ),
        strategy=NodeStrategy(),
    ),
    Kind(
        name="Namespace",
        code=3,
        table="namespace",
        short_names=("ns",),
        namespaced=False,
        deleted_together=False,
        subresources=("status", "finalize"),
        in_catalogue=True,
        columns=(Column("phase", "text", columns.namespace_phase),),
        selectable={"status.phase": "t.phase", "name": "t.name"},
        strategy=NamespaceStrategy(),
    ),
    Kind(
        name="Event",
        code=15,
        created_by_update=True,
        table="event",
        short_names=("ev",),
        is_composed=True,
        selectable={
            "involvedObject.kind": "t.involved_kind",
            "involvedObject.namespace": "t.involved_namespace",
            "involvedObject.name": "t.involved_name",
            "involvedObject.uid": "t.involved_uid",
            "involvedObject.apiVersion": "t.involved_api_version",
            "involvedObject.resourceVersion": "t.involved_resource_version",
            "involvedObject.fieldPath": "t.involved_field_path",
            "reason": "t.reason",
            "reportingComponent": "t.component",
            "source": "t.component",
            "type": "t.type",
        },
        names_creators=False,
    ),
    Kind(
        name="Service",
        code=7,
        created_by_update=True,
        table="service",
        short_names=("svc",),
        categories=("all",),
        subresources=("status",),
        selectable={"spec.clusterIP": "", "spec.type": ""},
        strategy=ServiceStrategy(),
        new_status={"loadBalancer": {}},
    ),
    Kind(
        name="ReplicationController",
        code=8,
        table="replication_controller",
        short_names=("rc",),
        categories=("all",),
        subresources=("status", "scale"),
        has_plain_selector=True,
        counts_generation=True,
        selectable={"status.replicas": ""},
        new_status={"replicas": 0},
    ),
    Kind(
        name="ResourceQuota",
        code=16,
        table="resource_quota",
        short_names=("quota",),
        in_catalogue=True,
        strategy=QuotaStrategy(),
        subresources=("status",),
    ),
    Kind(
        name="LimitRange",
        code=14,
        created_by_update=True,
        table="limit_range",
        short_names=("limits",),
        in_catalogue=True,
    ),
    Kind(
        name="Deployment",
        code=12,
        table="deployment",
        group="apps",
        short_names=("deploy",),
        categories=("all",),
        subresources=("status", "scale"),
        counts_generation=True,
        strategy=DeploymentStrategy(),
    ),
    Kind(
        name="ReplicaSet",
        code=9,
        table="replica_set",
        group="apps",
        short_names=("rs",),
        categories=("all",),
        subresources=("status", "scale"),
        counts_generation=True,
        selectable={"status.replicas": ""},
        new_status={"replicas": 0},
    ),
    Kind(
        name="StatefulSet",
        code=10,
        table="stateful_set",
        group="apps",
        short_names=("sts",),
        categories=("all",),
        subresources=("status", "scale"),
        counts_generation=True,
        new_status={"replicas": 0, "availableReplicas": 0},
    ),
    Kind(
        name="DaemonSet",
        code=11,
        table="daemon_set",
        group="apps",
        short_names=("ds",),
        categories=("all",),
        subresources=("status",),
        counts_generation=True,
        strategy=DaemonSetStrategy(),
        new_status={
            "currentNumberScheduled": 0,
            "desiredNumberScheduled": 0,
            "numberMisscheduled": 0,
            "numberReady": 0,
        },
    ),
    Kind(
        name="RuntimeClass",
        code=4,
        created_by_update=True,
        versions_updates=True,
        table="runtime_class",
        group="node.k8s.io",
        namespaced=False,
        in_catalogue=True,
        columns=(Column("handler", "text", columns.handler),),
    ),
    Kind(
        name="PriorityClass",
        code=5,
        table="priority_class",
        group="scheduling.k8s.io",
        short_names=("pc",),
        namespaced=False,
        counts_generation=True,
        in_catalogue=True,
        columns=(
            Column("value", "integer", columns.priority_value),
            Column("global_default", "boolean", columns.global_default),
        ),
    ),
    Kind(
        name="PodDisruptionBudget",
        code=6,
        versions_updates=True,
        table="pod_disruption_budget",
        group="policy",
        versions=("v1", "v1beta1"),
        short_names=("pdb",),
        subresources=("status",),
        counts_generation=True,
        new_status={
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "disruptionsAllowed": 0,
            "expectedPods": 0,
        },
    ),
    Kind(
        name="Lease",
        code=13,
        created_by_update=True,
        versions_updates=True,
        table="lease",
        group="coordination.k8s.io",
        columns=(
            Column("holder", "text", columns.lease_holder),
            Column("renewed_at", "timestamptz", columns.renewed_at),
        ),
        skips_change_log=True,
        strategy=LeaseStrategy(),
        names_creators=False,
    ),
    Kind(name="Role", code=80, created_by_update=True, group="rbac.authorization.k8s.io"),
    Kind(
        name="ClusterRole",
        code=81,
        created_by_update=True,
        group="rbac.authorization.k8s.io",
        namespaced=False,
    ),
    Kind(name="RoleBinding", code=82, created_by_update=True, group="rbac.authorization.k8s.io"),
    Kind(
        name="ClusterRoleBinding",
        code=83,
        created_by_update=True,
        group="rbac.authorization.k8s.io",
        namespaced=False,
    ),
)

ALL_KINDS: Final[list[Kind]] = []
"""Every kind, once, in the order of registration."""

KINDS: Final[dict[tuple[str, str] | str, Kind]] = {}
"""Every kind, under (group, plural) and under its name."""

NAMES: Final[dict[int, str]] = {}
"""The name of each kind by its code."""


def register(kind: Kind) -> None:
    """Let a kind be stored and served. To be called before the process answers requests.

    Raises:
        ValueError: its name, its resource or its code is taken, or it has no code.
    """
    if kind.code <= 0:
        raise ValueError(f"kind {kind.name}: a stored kind has a code above 0")
    if kind.code in NAMES:
        owner, free = NAMES[kind.code], max(NAMES) + 1
        raise ValueError(f"kind {kind.name}: code {kind.code} is {owner}'s; take {free}")
    if kind.name in KINDS or (kind.group, kind.plural) in KINDS:
        raise ValueError(f"kind {kind.name}: its name or its resource is taken")
    ALL_KINDS.append(kind)
    KINDS[kind.name] = KINDS[kind.group, kind.plural] = kind
    NAMES[kind.code] = kind.name


VIEWS: Final[dict[tuple[str, str, str], Kind]] = {}
"""Kinds that a second group or an older version shows, too, in a form of its own, under (group,
version, plural); the objects are stored once."""

for _kind in (*_ALL, *STORED_KINDS):
    register(_kind)
VIEWS["events.k8s.io", "v1", "events"] = msgspec.structs.replace(
    KINDS["Event"], group="events.k8s.io", wire_type=wire_types.EventsV1Event
)
VIEWS["autoscaling", "v1", "horizontalpodautoscalers"] = msgspec.structs.replace(
    KINDS["HorizontalPodAutoscaler"],
    version="v1",
    wire_type=wire_types.AutoscalingV1HorizontalPodAutoscaler,
)
for _name, _version in itertools.product(("PodGroup", "Workload"), ("v1alpha3", "v1alpha2")):
    VIEWS["scheduling.k8s.io", _version, KINDS[_name].plural] = msgspec.structs.replace(
        KINDS[_name],
        version=_version,
        wire_type=getattr(wire_types, f"Scheduling{_version.title()}{_name}"),
    )
