"""kube-state-metrics' metrics of objects: their labels, from its docs/metrics (v2.17)."""

_POD = "namespace pod uid"
_DEPLOYMENT = "namespace deployment"


def _all(prefix: str, labels: str, names: str) -> dict[str, str]:
    return {f"kube_{prefix}_{name}": labels for name in names.split()}


LABELS = {
    "kube_pod_info": (
        f"{_POD} host_ip pod_ip node created_by_kind created_by_name priority_class host_network"
    ),
    "kube_pod_owner": f"{_POD} owner_kind owner_name owner_is_controller",
    "kube_pod_status_phase": f"{_POD} phase",
    "kube_pod_status_scheduled": f"{_POD} condition",
    "kube_pod_status_ready": f"{_POD} condition",
    "kube_pod_container_resource_requests": f"{_POD} container node resource unit",
    "kube_pod_container_resource_limits": f"{_POD} container node resource unit",
    "kube_pod_runtimeclass_name_info": f"{_POD} runtimeclass_name",
    **_all(
        "pod", _POD,
        "created start_time status_unschedulable overhead_cpu_cores overhead_memory_bytes",
    ),
    "kube_node_info": (
        "node kernel_version os_image container_runtime_version kubelet_version kubeproxy_version"
        " pod_cidr provider_id system_uuid internal_ip"
    ),
    "kube_node_spec_taint": "node key value effect",
    "kube_node_status_capacity": "node resource unit",
    "kube_node_status_allocatable": "node resource unit",
    "kube_node_status_condition": "node condition status",
    **_all("node", "node", "created spec_unschedulable"),
    "kube_deployment_status_condition": f"{_DEPLOYMENT} reason condition status",
    **_all(
        "deployment", _DEPLOYMENT,
        "created metadata_generation spec_paused spec_replicas status_observed_generation"
        " status_replicas status_replicas_available status_replicas_ready"
        " status_replicas_unavailable status_replicas_updated",
    ),
    **_all(
        "replicaset", "namespace replicaset",
        "created metadata_generation spec_replicas status_fully_labeled_replicas"
        " status_observed_generation status_ready_replicas status_replicas",
    ),
    **_all(
        "replicationcontroller", "namespace replicationcontroller",
        "created metadata_generation spec_replicas status_available_replicas"
        " status_fully_labeled_replicas status_observed_generation status_ready_replicas"
        " status_replicas",
    ),
    **_all(
        "statefulset", "namespace statefulset",
        "created metadata_generation replicas status_observed_generation status_replicas"
        " status_replicas_available status_replicas_current status_replicas_ready"
        " status_replicas_updated",
    ),
    **_all(
        "daemonset", "namespace daemonset",
        "created metadata_generation status_current_number_scheduled"
        " status_desired_number_scheduled status_number_available status_number_misscheduled"
        " status_number_ready status_number_unavailable status_observed_generation"
        " status_updated_number_scheduled",
    ),
    **_all(
        "job", "namespace job_name",
        "created spec_completions spec_parallelism status_active status_failed status_succeeded",
    ),
    **_all(
        "poddisruptionbudget", "namespace poddisruptionbudget",
        "created status_current_healthy status_desired_healthy status_expected_pods"
        " status_observed_generation status_pod_disruptions_allowed",
    ),
    "kube_resourcequota": "namespace resourcequota resource type",
}  # fmt: skip
