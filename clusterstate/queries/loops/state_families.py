"""Metrics of objects by kube-state-metrics' names (v2.17), each as the SQL that produces its lines.

A ``StateFamily`` reads one table. In its expressions ``t`` is the object's row, ``j`` its document
as jsonb (only where ``reads_document``), and ``more`` may join others; each row of the result is a
line. PostgreSQL composes the lines: the web process passes on text, a thousand objects at a time,
and holds no objects (``state_metrics``).
"""

from typing import Final

import msgspec

from clusterstate.objects.registry.kinds import KINDS

Labels = tuple[tuple[str, str], ...]


class StateFamily(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. ``labels`` maps names to SQL texts; ``value`` is SQL of a number.

    ``resource``: its name in the parameter ``resources=`` of a scrape. ``where`` excludes lines.
    ``mentions``: a text that every document with a line contains: a search for it costs a tenth of
    parsing the document.
    """

    name: str
    text: str
    resource: str
    table: str
    labels: Labels
    value: str = "1"
    more: str = ""
    where: str = "true"
    reads_document: bool = True
    mentions: str = ""
    namespaced: bool = True
    kind_code: int | None = None


def _quantity(text: str) -> str:
    """Return SQL for the number in a Kubernetes quantity; NULL for an invalid one."""
    return (
        f"(SELECT (q.p)[1]::numeric * (_units ->> (q.p)[2])::numeric FROM"
        f" (SELECT regexp_match({text}, '^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$') AS p) q)"
    ).replace(
        "_units",
        '\'{"":1,"n":1e-9,"u":1e-6,"m":0.001,"k":1e3,"M":1e6,"G":1e9,"T":1e12,'
        '"P":1e15,"E":1e18,"Ki":1024,"Mi":1048576,"Gi":1073741824,'
        '"Ti":1099511627776,"Pi":1125899906842624,"Ei":1152921504606846976}\'::jsonb',
    )


def _epoch(moment: str) -> str:
    return f"floor(extract(epoch FROM {moment}))"


_RESOURCE = "regexp_replace(r.key, '[^a-zA-Z0-9_]', '_', 'g')"
_UNIT = (
    "CASE WHEN r.key = 'cpu' THEN 'core' WHEN r.key IN ('memory', 'ephemeral-storage', 'storage')"
    " OR r.key LIKE 'hugepages-%%' OR r.key LIKE 'attachable-volumes-%%' THEN 'byte'"
    " ELSE 'integer' END"
)
_POD: Labels = (("namespace", "t.namespace"), ("pod", "t.name"), ("uid", "t.uid::text"))
_OWNER = (
    " LEFT JOIN LATERAL (SELECT o FROM jsonb_array_elements(j #> '{metadata,ownerReferences}') o"
    " WHERE (o ->> 'controller')::boolean LIMIT 1) own ON true"
)


def _pod(
    name: str,
    text: str,
    *labels: tuple[str, str],
    value: str = "1",
    more: str = "",
    where: str = "true",
    reads_document: bool = True,
    mentions: str = "",
) -> StateFamily:
    return StateFamily(
        name=f"kube_pod_{name}", text=text, resource="pods", table="pod", labels=(*_POD, *labels),
        value=value, more=more, where=where, reads_document=reads_document, mentions=mentions,
    )  # fmt: skip


def _amounts(name: str, text: str, what: str) -> StateFamily:
    return _pod(
        name,
        text,
        ("container", "c ->> 'name'"),
        ("node", "t.node_name"),
        ("resource", _RESOURCE),
        ("unit", _UNIT),
        value=_quantity("r.value"),
        more=(
            " CROSS JOIN LATERAL jsonb_array_elements(j #> '{spec,containers}') c"
            f" CROSS JOIN LATERAL jsonb_each_text(c #> '{{resources,{what}}}') r"
        ),
        mentions=f'"{what}":',
    )


def _node(
    name: str,
    text: str,
    *labels: tuple[str, str],
    value: str = "1",
    more: str = "",
    reads_document: bool = True,
) -> StateFamily:
    return StateFamily(
        name=f"kube_node_{name}", text=text, resource="nodes", table="node", namespaced=False,
        labels=(("node", "t.name"), *labels), value=value, more=more, reads_document=reads_document,
    )  # fmt: skip


def _states(condition: str) -> tuple[str, str]:
    """Return the join and the value of a condition's status, as three lines."""
    more = " CROSS JOIN unnest(ARRAY['true', 'false', 'unknown']) AS s (state)"
    return more, f"(s.state = lower({condition}))::int"


_CONDITIONS = " CROSS JOIN LATERAL jsonb_array_elements(j #> '{status,conditions}') c"
_STATES, _IS_STATE = _states("c ->> 'status'")


def _workload(kind: str, plural: str, table: str, numbers: dict[str, str]) -> list[StateFamily]:
    """Return numbers of a kind's documents: what follows ``kube_KIND_``, and the JSON path."""
    code = KINDS["Job"].code if kind == "job" else None
    labels = (("namespace", "t.namespace"), ("job_name" if kind == "job" else kind, "t.name"))
    found = [
        StateFamily(
            name=f"kube_{kind}_{name}", text=f"{path} of a {kind}.", resource=plural, table=table,
            kind_code=code, labels=labels,
            value=f"coalesce((j #>> '{{{path.replace('.', ',')}}}')::numeric, 0)",
        )
        for name, path in numbers.items()
    ]  # fmt: skip
    created = StateFamily(
        name=f"kube_{kind}_created", text=f"When a {kind} was created, in seconds since the epoch.",
        resource=plural, table=table, kind_code=code, labels=labels, value=_epoch("t.created_at"),
        reads_document=False,
    )  # fmt: skip
    return [created, *found]


_PHASES = "ARRAY['Pending', 'Succeeded', 'Failed', 'Unknown', 'Running']"
_SCHEDULED = _states("CASE WHEN t.node_name <> '' THEN 'true' ELSE 'false' END")

_PODS = [
    _pod(
        "info", "What a pod is and where.",
        ("host_ip", "coalesce(j #>> '{status,hostIP}', '')"),
        ("pod_ip", "coalesce(j #>> '{status,podIP}', '')"),
        ("node", "t.node_name"),
        ("created_by_kind", "coalesce(own.o ->> 'kind', '')"),
        ("created_by_name", "coalesce(own.o ->> 'name', '')"),
        ("priority_class", "coalesce(j #>> '{spec,priorityClassName}', '')"),
        ("host_network", "coalesce(j #>> '{spec,hostNetwork}', 'false')"),
        more=_OWNER,
    ),
    _pod(
        "owner", "What a pod belongs to.",
        ("owner_kind", "coalesce(own.o ->> 'kind', '')"),
        ("owner_name", "coalesce(own.o ->> 'name', '')"),
        ("owner_is_controller", "coalesce(own.o ->> 'controller', '')"),
        more=_OWNER,
    ),
    _pod(
        "created", "When a pod was created, in seconds since the epoch.",
        value=_epoch("t.created_at"), reads_document=False,
    ),
    _pod(
        "start_time", "When a pod was started, in seconds since the epoch.",
        value=_epoch("(j #>> '{status,startTime}')::timestamptz"), mentions='"startTime":',
    ),
    _pod(
        "status_phase", "Which phase a pod is in: 1 for that one, 0 for the others.",
        ("phase", "s.phase"),
        value="(s.phase = t.phase)::int", more=f" CROSS JOIN unnest({_PHASES}) AS s (phase)",
        reads_document=False,
    ),
    _pod(
        "status_scheduled", "Whether a pod has a node.", ("condition", "s.state"),
        value=_SCHEDULED[1], more=_SCHEDULED[0], reads_document=False,
    ),
    _pod(
        "status_unschedulable", "Pods that were refused by the scheduler.",
        where="t.unschedulable IS NOT NULL AND t.node_name = ''", reads_document=False,
    ),
    _pod(
        "status_ready", "Whether a pod is ready.", ("condition", "s.state"),
        value=_IS_STATE, more=_CONDITIONS + _STATES, where="c ->> 'type' = 'Ready'",
        mentions='"Ready"',
    ),
    _amounts("container_resource_requests", "What a container requests.", "requests"),
    _amounts("container_resource_limits", "What a container is limited to.", "limits"),
    _pod(
        "overhead_cpu_cores", "CPU that a pod takes beside its containers, in cores.",
        value=_quantity("j #>> '{spec,overhead,cpu}'"), mentions='"overhead":',
    ),
    _pod(
        "overhead_memory_bytes", "Memory that a pod takes beside its containers, in bytes.",
        value=_quantity("j #>> '{spec,overhead,memory}'"), mentions='"overhead":',
    ),
    _pod(
        "runtimeclass_name_info", "The RuntimeClass of a pod.",
        ("runtimeclass_name", "j #>> '{spec,runtimeClassName}'"),
        where="j #>> '{spec,runtimeClassName}' IS NOT NULL", mentions='"runtimeClassName":',
    ),
]  # fmt: skip

_INFO = "coalesce(j #>> '{status,nodeInfo,%s}', '')"
_INTERNAL_IP = (
    "coalesce((SELECT a ->> 'address' FROM jsonb_array_elements(j #> '{status,addresses}') a"
    " WHERE a ->> 'type' = 'InternalIP' LIMIT 1), '')"
)
_NODES = [
    _node(
        "info", "What a node is.",
        ("kernel_version", _INFO % "kernelVersion"),
        ("os_image", _INFO % "osImage"),
        ("container_runtime_version", _INFO % "containerRuntimeVersion"),
        ("kubelet_version", _INFO % "kubeletVersion"),
        ("kubeproxy_version", _INFO % "kubeProxyVersion"),
        ("pod_cidr", "coalesce(j #>> '{spec,podCIDR}', '')"),
        ("provider_id", "coalesce(j #>> '{spec,providerID}', '')"),
        ("system_uuid", _INFO % "systemUUID"),
        ("internal_ip", _INTERNAL_IP),
    ),
    _node(
        "created", "When a node was created, in seconds since the epoch.",
        value=_epoch("t.created_at"), reads_document=False,
    ),
    _node(
        "spec_unschedulable", "Whether a node takes no new pods.",
        value="t.unschedulable::int", reads_document=False,
    ),
    _node(
        "spec_taint", "The taints of a node.",
        ("key", "x.key"), ("value", "x.value"), ("effect", "x.effect"),
        more=" JOIN taint x ON x.node_id = t.id", reads_document=False,
    ),
    *(
        _node(
            f"status_{which}", f"The {which} resources of a node.",
            ("resource", _RESOURCE), ("unit", _UNIT),
            value=_quantity("r.value"),
            more=f" CROSS JOIN LATERAL jsonb_each_text(j #> '{{status,{which}}}') r",
        )
        for which in ("capacity", "allocatable")
    ),
    _node(
        "status_condition", "The conditions of a node.",
        ("condition", "c ->> 'type'"), ("status", "s.state"),
        value=_IS_STATE, more=_CONDITIONS + _STATES,
    ),
]  # fmt: skip

_REPLICAS = {
    "status_replicas": "status.replicas",
    "status_replicas_ready": "status.readyReplicas",
    "status_replicas_available": "status.availableReplicas",
    "status_replicas_updated": "status.updatedReplicas",
    "status_observed_generation": "status.observedGeneration",
    "metadata_generation": "metadata.generation",
}
_OF_SETS = {
    "spec_replicas": "spec.replicas",
    "status_replicas": "status.replicas",
    "status_ready_replicas": "status.readyReplicas",
    "status_fully_labeled_replicas": "status.fullyLabeledReplicas",
    "status_observed_generation": "status.observedGeneration",
    "metadata_generation": "metadata.generation",
}
_WORKLOADS = [
    *_workload("deployment", "deployments", "deployment", {
        **_REPLICAS,
        "status_replicas_unavailable": "status.unavailableReplicas",
        "spec_replicas": "spec.replicas",
    }),
    StateFamily(
        name="kube_deployment_spec_paused", text="Whether a deployment is paused.",
        resource="deployments", table="deployment",
        labels=(("namespace", "t.namespace"), ("deployment", "t.name")),
        value="coalesce((j #>> '{spec,paused}')::boolean, false)::int",
    ),
    StateFamily(
        name="kube_deployment_status_condition", text="The conditions of a deployment.",
        resource="deployments", table="deployment",
        labels=(
            ("namespace", "t.namespace"), ("deployment", "t.name"),
            ("reason", "coalesce(c ->> 'reason', '')"), ("condition", "c ->> 'type'"),
            ("status", "s.state"),
        ),
        value=_IS_STATE, more=_CONDITIONS + _STATES,
    ),
    *_workload("replicaset", "replicasets", "replica_set", _OF_SETS),
    *_workload("replicationcontroller", "replicationcontrollers", "replication_controller", {
        **_OF_SETS, "status_available_replicas": "status.availableReplicas",
    }),
    *_workload("statefulset", "statefulsets", "stateful_set", {
        **_REPLICAS,
        "status_replicas_current": "status.currentReplicas",
        "replicas": "spec.replicas",
    }),
    *_workload("daemonset", "daemonsets", "daemon_set", {
        "status_current_number_scheduled": "status.currentNumberScheduled",
        "status_desired_number_scheduled": "status.desiredNumberScheduled",
        "status_number_available": "status.numberAvailable",
        "status_number_misscheduled": "status.numberMisscheduled",
        "status_number_ready": "status.numberReady",
        "status_number_unavailable": "status.numberUnavailable",
        "status_updated_number_scheduled": "status.updatedNumberScheduled",
        "status_observed_generation": "status.observedGeneration",
        "metadata_generation": "metadata.generation",
    }),
    *_workload("job", "jobs", "generic_object", {
        "spec_parallelism": "spec.parallelism",
        "spec_completions": "spec.completions",
        "status_active": "status.active",
        "status_succeeded": "status.succeeded",
        "status_failed": "status.failed",
    }),
    *_workload("poddisruptionbudget", "poddisruptionbudgets", "pod_disruption_budget", {
        "status_current_healthy": "status.currentHealthy",
        "status_desired_healthy": "status.desiredHealthy",
        "status_pod_disruptions_allowed": "status.disruptionsAllowed",
        "status_expected_pods": "status.expectedPods",
        "status_observed_generation": "status.observedGeneration",
    }),
    StateFamily(
        name="kube_resourcequota", text="What a ResourceQuota allows, and what of it is used.",
        resource="resourcequotas", table="resource_quota",
        labels=(
            ("namespace", "t.namespace"), ("resourcequota", "t.name"), ("resource", "r.key"),
            ("type", "k.type"),
        ),
        value=_quantity("r.value"),
        more=(
            " CROSS JOIN (VALUES ('hard'), ('used')) AS k (type)"
            " CROSS JOIN LATERAL jsonb_each_text(j -> 'status' -> k.type) r"
        ),
    ),
]  # fmt: skip

FAMILIES: Final = {family.name: family for family in (*_NODES, *_PODS, *_WORKLOADS)}
RESOURCES: Final = frozenset(family.resource for family in FAMILIES.values())
