"""Metrics of objects: what kube-state-metrics would tell of them."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.queries.loops import state_metrics
from clusterstate.queries.loops.state_families import FAMILIES
from clusterstate.queries.loops.state_metrics import Selection
from tests.clock import NOW
from tests.controllers.support import bind, make_node, make_pod, pod_manifest
from tests.creating import create_pod
from tests.metrics.state_names import LABELS

pytestmark = pytest.mark.django_db(transaction=True)


def told(name: str, **selection: object) -> dict[tuple[str, ...], float]:
    """Return a metric's values by the values of its labels, without uids."""
    text, after = f"# TYPE {name} gauge\n", 0
    while True:
        last, lines = state_metrics.page(FAMILIES[name], Selection(**selection), after)  # type: ignore[arg-type]
        text += lines
        if last is None:
            break
        after = last
    (family,) = text_string_to_metric_families(text)
    return {
        tuple(value for label, value in sample.labels.items() if label != "uid"): sample.value
        for sample in family.samples
    }


def create(
    kind: str, api_version: str, name: str, namespace: str = "default", **more: object
) -> None:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}
    objects.create(kind, namespace, manifest, now=NOW)


def test_names_and_labels_are_those_of_kube_state_metrics() -> None:
    ours = {name: sorted(label for label, _ in one.labels) for name, one in FAMILIES.items()}
    assert ours == {name: sorted(labels.split()) for name, labels in LABELS.items()}


def test_r147_the_overhead_of_a_pod_is_a_metric() -> None:
    """R147: the metrics ``kube_pod_overhead_*`` of the seed's kata-fc pod (R142, R143)."""
    bootstrap.add_missing(now=NOW)
    create(
        "RuntimeClass", "node.k8s.io/v1", "kata-fc", "",
        handler="kata-fc", overhead={"podFixed": {"memory": "120Mi", "cpu": "250m"}},
    )  # fmt: skip
    make_pod("test-pod", runtimeClassName="kata-fc")
    make_pod("plain")
    assert told("kube_pod_overhead_cpu_cores") == {("default", "test-pod"): 0.25}
    assert told("kube_pod_overhead_memory_bytes") == {("default", "test-pod"): 120 * 1024**2}
    assert told("kube_pod_runtimeclass_name_info") == {("default", "test-pod", "kata-fc"): 1}


def test_pods_with_their_phase_node_and_requests() -> None:
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    amounts = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2", "ephemeral-storage": "1e3"}
    resources = {"requests": amounts, "limits": {**amounts, "cpu": "2"}}
    pod_id = make_pod("p", containers=[{"name": "c", "image": "i", "resources": resources}])
    scheduled = ("default", "p")
    assert told("kube_pod_status_scheduled")[*scheduled, "true"] == 0
    bind(pod_id, "n1")
    assert told("kube_pod_status_scheduled") == {
        (*scheduled, "true"): 1, (*scheduled, "false"): 0, (*scheduled, "unknown"): 0,
    }  # fmt: skip
    phases = told("kube_pod_status_phase")
    assert phases.pop(("default", "p", "Pending")) == 1
    assert list(phases.values()) == [0, 0, 0, 0]
    assert told("kube_pod_container_resource_requests") == {
        ("default", "p", "c", "n1", "cpu", "core"): 1.5,
        ("default", "p", "c", "n1", "memory", "byte"): 1024**3,
        ("default", "p", "c", "n1", "nvidia_com_gpu", "integer"): 2,
        ("default", "p", "c", "n1", "ephemeral_storage", "byte"): 1000,
    }
    assert told("kube_pod_container_resource_limits")["default", "p", "c", "n1", "cpu", "core"] == 2
    (info,) = told("kube_pod_info")
    assert info == ("default", "p", "", "", "n1", "", "", "", "false")
    assert told("kube_pod_created") == {("default", "p"): int(NOW.timestamp())}


def test_nodes_with_their_taints_and_amounts() -> None:
    bootstrap.add_missing(now=NOW)
    make_node("n1", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}])
    make_node("n2")
    taints = {key for key in told("kube_node_spec_taint") if key[1] == "a"}
    assert taints == {("n1", "a", "b", "NoSchedule")}
    amounts = told("kube_node_status_allocatable")
    assert amounts["n2", "cpu", "core"] == 64
    assert amounts["n2", "memory", "byte"] == 256 * 1024**3
    assert told("kube_node_spec_unschedulable") == {("n1",): 0, ("n2",): 0}
    assert {key[0] for key in told("kube_node_info")} == {"n1", "n2"}


def test_workloads_and_quotas_with_their_numbers() -> None:
    bootstrap.add_missing(now=NOW)
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    selector = {"matchLabels": {"a": "b"}}
    spec = {"selector": selector, "template": template}
    create("Deployment", "apps/v1", "d", spec={**spec, "replicas": 3})
    create("DaemonSet", "apps/v1", "ds", spec=spec)
    job = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    create("Job", "batch/v1", "j", spec={"template": job, "parallelism": 2})
    create("ResourceQuota", "v1", "q", spec={"hard": {"pods": "5", "requests.cpu": "2500m"}})
    assert told("kube_deployment_spec_replicas") == {("default", "d"): 3}
    assert told("kube_deployment_status_replicas") == {("default", "d"): 0}
    assert told("kube_daemonset_status_desired_number_scheduled") == {("default", "ds"): 0}
    assert told("kube_job_spec_parallelism") == {("default", "j"): 2}
    quota = told("kube_resourcequota")
    assert quota["default", "q", "requests.cpu", "hard"] == 2.5
    assert quota["default", "q", "pods", "hard"] == 5
    assert quota["default", "q", "pods", "used"] == 0


def test_every_metric_can_be_told() -> None:
    """Each statement is one that PostgreSQL takes, for a shard and for some namespaces too."""
    for name in FAMILIES:
        told(name)
        told(name, namespaces=("a", "b"), shard=1, shards=3)


def test_shards_and_namespaces_divide_what_is_told(monkeypatch) -> None:
    bootstrap.add_missing(now=NOW)
    create("Namespace", "v1", "other", "")
    for number in range(12):
        namespace = "other" if number > 7 else "default"
        create_pod(pod_manifest(f"p{number}", metadata={"namespace": namespace}), now=NOW)
    monkeypatch.setattr(state_metrics, "AT_ONCE", 5)
    everything = told("kube_pod_created")
    assert len(everything) == 12
    parts = [told("kube_pod_created", shard=shard, shards=3) for shard in range(3)]
    assert sum(len(part) for part in parts) == 12
    assert {key for part in parts for key in part} == everything.keys()
    assert {key[1] for key in told("kube_pod_created", namespaces=("other",))} == {
        "p8", "p9", "p10", "p11",
    }  # fmt: skip


def test_what_a_document_has_to_mention_leaves_out_no_line() -> None:
    bootstrap.add_missing(now=NOW)
    create(
        "RuntimeClass", "node.k8s.io/v1", "kata", "",
        handler="kata", overhead={"podFixed": {"memory": "120Mi", "cpu": "250m"}},
    )  # fmt: skip
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    make_pod("all", runtimeClassName="kata",
             containers=[{"name": "c", "image": "i", "resources": resources}])  # fmt: skip
    make_pod("none")
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": conditions}
    objects.update(
        "Pod", "default", "all", lambda one: {**one, "status": {**one["status"], **status}},
        subresource="status", now=NOW,
    )  # fmt: skip
    named = [one for one in FAMILIES.values() if one.mentions]
    assert len(named) >= 7
    for family in named:
        everything = msgspec.structs.replace(family, mentions="")
        lines = state_metrics.page(family, Selection(), 0)
        assert lines == state_metrics.page(everything, Selection(), 0), family.name
        assert 'pod="all"' in lines[1]
