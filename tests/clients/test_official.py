"""The official Python client: its dynamic client over every kind, its typed one over a day's work.

PyPI: kubernetes.
"""

import copy
from typing import Any

import pytest
import yaml
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException

from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.api.bodies import body_of, named
from tests.forms import few
from tests.live import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.db]

EVERY = sorted(ALL_KINDS, key=lambda kind: kind.table == "generic_object")
"""Those with rows of their own come first."""
MERGE = "application/merge-patch+json"
AT_ONCE = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


@pytest.fixture(scope="module")
def api(cluster):
    return config.new_client_from_config(str(cluster.kubeconfig))


@pytest.fixture(scope="module")
def every(api, tmp_path_factory):
    cache = tmp_path_factory.mktemp("dynamic") / "discovery.json"
    return dynamic.DynamicClient(api, cache_file=str(cache))


def in_namespace(value: Any, namespace: str) -> Any:
    """Return a body with a namespace of the test's in place of ``ns``."""
    if isinstance(value, dict):
        return {
            key: namespace if key == "namespace" else in_namespace(one, namespace)
            for key, one in value.items()
        }
    return [in_namespace(one, namespace) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", few(EVERY, 8), ids=lambda kind: kind.name)
def test_an_object_of_every_kind_lives_through_the_dynamic_client(every, cluster, kind):
    """Created, read, listed, patched, applied, deleted; a watch from the start tells all of it."""
    resource = every.resources.get(api_version=kind.api_version, kind=kind.name)
    assert resource.name == kind.plural
    assert resource.namespaced is kind.namespaced
    word = f"{cluster.namespace}-one"
    name = named(kind, word)
    body = in_namespace(body_of(kind, word), cluster.namespace)
    body["metadata"].setdefault("labels", {})["test"] = word
    where = {"namespace": cluster.namespace} if kind.namespaced else {}
    of_test = {"label_selector": f"test={word}", **where}
    start = resource.get(**of_test).metadata.resourceVersion

    made = resource.create(body=copy.deepcopy(body), **where)
    assert made.metadata.uid
    assert made.kind == kind.name
    assert resource.get(name=name, **where).metadata.uid == made.metadata.uid
    (listed,) = resource.get(**of_test).items
    assert listed.metadata.uid == made.metadata.uid
    annotated = {"metadata": {"annotations": {"merged": "yes"}}}
    patched = resource.patch(name=name, body=annotated, content_type=MERGE, **where)
    assert patched.metadata.annotations.merged == "yes"
    applied = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name, "annotations": {"applied": "yes"}},
    }
    patched = resource.server_side_apply(
        body=applied, name=name, field_manager="dynamic", force_conflicts=True, **where
    )
    marks = patched.metadata.annotations.to_dict()
    assert marks.items() >= {"merged": "yes", "applied": "yes"}.items()
    resource.delete(name=name, body=AT_ONCE, **where)

    seen = []
    for event in resource.watch(
        resource_version=start, label_selector=f"test={word}", timeout=30, **where
    ):
        assert event["object"].kind == kind.name
        assert event["object"].metadata.uid == made.metadata.uid
        seen.append((event["type"], (event["object"].metadata.annotations or {}).get("applied")))
        if event["type"] == "DELETED":
            break
    assert seen[0] == ("ADDED", None)
    assert ("MODIFIED", "yes") in seen
    assert seen[-1] == ("DELETED", "yes")


def test_every_kind_that_discovery_names_can_be_listed(every):
    """Our own kinds are there as well as Kubernetes', and none of them is an empty promise."""
    listed = set()
    for resource in every.resources.search():
        if isinstance(resource, dynamic.resource.ResourceList) or "list" not in resource.verbs:
            continue
        answer = resource.get()
        assert answer.kind.endswith("List"), resource
        listed.add(resource.kind)
    assert listed >= {kind.name for kind in EVERY}
    assert "Event" in listed


def test_a_pod_is_made_watched_bound_and_deleted(api, cluster):
    core = client.CoreV1Api(api)
    made = core.create_namespaced_pod(cluster.namespace, cluster.pod("typed", app="typed"))
    assert made.spec.scheduler_name == "default-scheduler"
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_pod, cluster.namespace, label_selector="app=typed", timeout_seconds=120
    ):
        if event["object"].status.phase == "Running":
            stream.stop()
    found = core.read_namespaced_pod("typed", cluster.namespace)
    assert found.spec.node_name == cluster.node
    assert {one.type: one.status for one in found.status.conditions}["PodScheduled"] == "True"
    found.metadata.labels["more"] = "yes"
    core.replace_namespaced_pod("typed", cluster.namespace, found)
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_pod("typed", cluster.namespace, found)
    assert stale.value.status == 409
    gone = core.delete_namespaced_pod("typed", cluster.namespace, grace_period_seconds=0)
    assert gone.metadata.name == "typed"
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_pod("typed", cluster.namespace)
    assert missing.value.status == 404


def test_the_examples_are_created_from_their_files(api, cluster):
    """What the README applies with kubectl, by the client's own helper."""
    for file in ("pod-nginx.yaml", "pod-with-node-affinity.yaml", "pod-overhead.yaml"):
        manifest = yaml.safe_load((ROOT / "examples" / file).read_text())
        manifest["metadata"].pop("namespace", None)
        manifest["spec"].pop("runtimeClassName", None)
        (made,) = utils.create_from_dict(api, manifest, namespace=cluster.namespace)
        assert made.metadata.namespace == cluster.namespace
        assert made.status.phase == "Pending"


def test_a_pod_is_resized(api, cluster):
    core = client.CoreV1Api(api)
    manifest = yaml.safe_load((ROOT / "examples" / "pod-resizable.yaml").read_text())
    core.create_namespaced_pod(cluster.namespace, manifest)
    more = {"spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "500m"}}}]}}
    found = core.patch_namespaced_pod_resize("resizable", cluster.namespace, more)
    assert found.spec.containers[0].resources.requests == {"cpu": "500m", "memory": "128Mi"}
    found = core.read_namespaced_pod_resize("resizable", cluster.namespace)
    assert found.metadata.generation == 2
    found.metadata.resource_version = None  # it is placed and started meanwhile
    found.spec.containers[0].resources.requests["cpu"] = "300m"
    found = core.replace_namespaced_pod_resize("resizable", cluster.namespace, found)
    assert found.metadata.generation == 3
    found.metadata.resource_version = None
    found.spec.containers[0].resources.requests.clear()
    with pytest.raises(ApiException) as refused:
        core.replace_namespaced_pod_resize("resizable", cluster.namespace, found)
    assert refused.value.status == 422
    core.delete_namespaced_pod("resizable", cluster.namespace, grace_period_seconds=0)
