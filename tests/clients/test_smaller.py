"""PyPI's lightkube, kr8s and pykube-ng, each in the idioms of its own documentation."""

import kr8s
import pykube
import pytest
import yaml
from kr8s.objects import Deployment as Kr8sDeployment
from kr8s.objects import Node as Kr8sNode
from kr8s.objects import Pod as Kr8sPod
from lightkube import ApiError, Client, KubeConfig, codecs
from lightkube.generic_resource import create_global_resource
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Node, Pod
from lightkube.types import CascadeType, PatchType

from tests.clients.conftest import Background
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.db,
    pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported:UserWarning"),
]


# ------------------------------------------------------------------------------------ lightkube


@pytest.fixture
def light(cluster):
    found = KubeConfig.from_file(str(cluster.kubeconfig))
    with Client(config=found.get(), namespace=cluster.namespace, field_manager="light") as api:
        yield api


def test_lightkube_creates_patches_in_four_ways_and_deletes(light):
    made = light.create(ConfigMap(metadata=ObjectMeta(name="light"), data={"a": "1"}))
    assert made.metadata.uid
    light.patch(ConfigMap, "light", {"data": {"b": "2"}})  # a strategic merge
    light.patch(ConfigMap, "light", {"data": {"a": None}}, patch_type=PatchType.MERGE)
    operations = [{"op": "add", "path": "/data/c", "value": "3"}]
    light.patch(ConfigMap, "light", operations, patch_type=PatchType.JSON)
    applied = ConfigMap(
        apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="light"), data={"d": "4"}
    )
    assert light.apply(applied).data == {"b": "2", "c": "3", "d": "4"}
    made.data = {"late": "yes"}
    with pytest.raises(ApiError) as stale:
        light.replace(made)
    assert stale.value.status.code == 409
    assert stale.value.status.reason == "Conflict"
    assert [one.metadata.name for one in light.list(ConfigMap, fields={"metadata.name": "light"})]
    light.delete(ConfigMap, "light")
    with pytest.raises(ApiError) as missing:
        light.get(ConfigMap, "light")
    assert missing.value.status.code == 404


def test_lightkube_waits_for_a_deployment_scales_and_watches_it(light, cluster):
    (manifest,) = codecs.load_all_yaml(yaml.safe_dump(cluster.deployment("light", 2)))
    light.create(manifest)
    ready = light.wait(Deployment, "light", for_conditions=["Available"])
    assert ready.status.readyReplicas == 2
    scale = light.get(Deployment.Scale, "light")
    scale.spec = ScaleSpec(replicas=1)
    light.replace(scale)
    for _, seen in light.watch(Deployment, fields={"metadata.name": "light"}):
        if seen.status.replicas == 1 and seen.status.observedGeneration == seen.metadata.generation:
            break
    pods = [one.spec.nodeName for one in light.list(Pod, labels={"app": "light"})]
    assert set(pods) == {cluster.node}
    light.delete(Deployment, "light", cascade=CascadeType.FOREGROUND)
    until(lambda: not list(light.list(Pod, labels={"app": "light"})), what="its pods to be gone")


def test_lightkube_reads_what_only_this_service_has(light, cluster):
    """A kind without a model of its own: ``stowage.dev`` through its generic resources."""
    zones = create_global_resource("stowage.dev", "v1", "Zone", "zones")
    found = list(light.list(zones))
    assert all(one.status["state"] and one.metadata.name is not None for one in found)
    assert light.get(Node, cluster.node).status.allocatable["cpu"] == "4"


# ----------------------------------------------------------------------------------------- kr8s


@pytest.fixture
def eight(cluster):
    return kr8s.api(kubeconfig=str(cluster.kubeconfig), namespace=cluster.namespace)


def test_kr8s_makes_a_pod_waits_labels_and_deletes_it(eight, cluster):
    assert eight.whoami() == "admin"
    assert eight.version()["major"] == "1"
    pod = Kr8sPod(cluster.pod("eight", app="eight"), api=eight)
    assert not pod.exists()
    pod.create()
    pod.wait("condition=Ready", timeout=30)
    assert pod.ready()
    assert pod.spec.nodeName == cluster.node
    pod.label(color="blue")
    pod.annotate({"example.org/why": "because"})
    pod.refresh()
    assert pod.labels["color"] == "blue"
    assert pod.annotations["example.org/why"] == "because"
    pod.remove_label("color")
    assert "color" not in pod.labels
    (found,) = kr8s.get("pods", namespace=cluster.namespace, label_selector="app=eight", api=eight)
    assert found.metadata.uid == pod.metadata.uid
    pod.delete()
    pod.wait("delete", timeout=30)
    assert not pod.exists()


def test_kr8s_scales_a_deployment_and_cordons_a_node(eight, cluster):
    deployment = Kr8sDeployment(cluster.deployment("eight", 1), api=eight)
    deployment.create()
    deployment.wait("condition=Available", timeout=30)
    deployment.scale(2)
    until(lambda: len(list(deployment.pods())) == 2, what="two pods")
    until(deployment.ready, what="the deployment to be ready")
    node = Kr8sNode.get(cluster.node, api=eight)
    node.cordon()
    assert node.unschedulable
    node.taint("example.org/t", "v", effect="PreferNoSchedule")
    assert "example.org/t" in [one["key"] for one in node.taints]
    node.taint("example.org/t", "v", effect="PreferNoSchedule-")
    node.uncordon()
    assert not node.unschedulable
    deployment.delete(propagation_policy="Foreground")
    deployment.wait("delete", timeout=30)


def test_kr8s_watches_and_lists_every_kind(eight, cluster):
    def changes():
        Kr8sPod(cluster.pod("watched", app="watched"), api=eight).create()
        kr8s.get("pods", "watched", namespace=cluster.namespace, api=eight)

    named = {one["kind"] for one in eight.api_resources()}
    assert {"Pod", "Deployment", "Lease", "Role"} <= named
    beside = Background(changes)
    for event, pod in eight.watch("pods", namespace=cluster.namespace,
                                  label_selector={"app": "watched"}):  # fmt: skip
        assert event in ("ADDED", "MODIFIED")
        if pod.status.phase == "Running":
            break
    beside.join()


# ------------------------------------------------------------------------------------ pykube-ng


@pytest.fixture
def py(cluster):
    return pykube.HTTPClient(pykube.KubeConfig.from_file(str(cluster.kubeconfig)), timeout=30)


def test_pykube_makes_queries_updates_and_deletes(py, cluster):
    pod = pykube.Pod(py, cluster.pod("py", app="py"))
    assert not pod.exists()
    pod.create()
    pods = pykube.Pod.objects(py).filter(namespace=cluster.namespace, selector={"app": "py"})
    until(lambda: pods.get(name="py").ready, what="the pod to run")
    pod.reload()
    pod.labels["color"] = "blue"
    pod.update()
    pod.patch({"metadata": {"annotations": {"a": "b"}}})
    pod.reload()
    assert (pod.labels["color"], pod.annotations["a"]) == ("blue", "b")
    assert [one.name for one in pods] == ["py"]
    for event in pods.watch():
        assert event.object.name == "py"
        break
    pod.delete(propagation_policy="Background")
    until(lambda: not pod.exists(), what="the pod to be gone")


def _written(thing, write):
    """Do it, on the object as it is: pykube sends the revision that it has read along."""

    def done():
        thing.reload()
        try:
            write()
        except pykube.exceptions.HTTPError as error:
            if error.code != 409:
                raise
            return False
        return True

    until(done, what="a write between those of others")


def test_pykube_scales_a_deployment_and_cordons_a_node(py, cluster):
    deployment = pykube.Deployment(py, cluster.deployment("py", 1))
    deployment.create()

    def ready():
        deployment.reload()
        return "updatedReplicas" in deployment.obj["status"] and deployment.ready

    until(ready, what="the deployment")
    _written(deployment, lambda: deployment.scale(3))
    until(lambda: ready() and deployment.replicas == 3, what="three pods")
    node = pykube.Node.objects(py).get(name=cluster.node)
    _written(node, node.cordon)
    assert pykube.Node.objects(py).get(name=cluster.node).unschedulable
    _written(node, node.uncordon)
    assert not pykube.Node.objects(py).get(name=cluster.node).unschedulable
    deployment.delete(propagation_policy="Background")


def test_pykube_finds_kinds_by_discovery(py, cluster):
    leases = pykube.object_factory(py, "coordination.k8s.io/v1", "Lease")
    held = leases.objects(py).filter(namespace="kube-node-lease")
    assert cluster.node in {one.name for one in held}
