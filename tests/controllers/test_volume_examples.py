"""Workloads with volumes that the field's guides show, in this project's words: where they run.

A ring of databases with a claim for each (cassandra), an object store with one claim (minio), a
set with a volume in each zone, and a volume that a provisioner of another project makes on the
node (local-path).
"""

from typing import Any

import pytest
import yaml

from clusterstate.actions import objects
from clusterstate.objects.values.storage import SELECTED_NODE, STORAGE_PROVISIONER
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.workloads import follower as workloads
from tests.clock import NOW
from tests.controllers.support import make_node
from tests.controllers.test_volumes import ZONE, Cluster, condition, get, node_of, storage_class

pytestmark = pytest.mark.django_db(transaction=True)
NO_CLASS = "pod has unbound immediate PersistentVolumeClaims"
SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {name}, namespace: default}}
spec:
  serviceName: {name}
  replicas: 3
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: main
        image: example.com/{name}:1
        resources: {{requests: {{cpu: 500m, memory: 1Gi}}, limits: {{cpu: 500m, memory: 1Gi}}}}
        volumeMounts: [{{name: data, mountPath: /data}}]
      affinity: {affinity}
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: fast
      resources: {{requests: {{storage: 1Gi}}}}
"""
APART_BY_ZONE = (
    "{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: "
    "topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: ring}}}]}}"
)
STORE = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: store, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Gi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: store, namespace: default}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      containers:
      - {name: store, image: example.com/store, volumeMounts: [{name: data, mountPath: /data}]}
      volumes: [{name: data, persistentVolumeClaim: {claimName: store}}]
"""


@pytest.fixture(autouse=True)
def _cluster() -> None:
    for number, zone in enumerate("abc"):
        make_node(f"n{number}", labels={ZONE: zone, "kubernetes.io/hostname": f"n{number}"})


def apply(text: str) -> None:
    for one in yaml.safe_load_all(text):
        objects.create(one["kind"], one["metadata"].get("namespace", ""), one, now=NOW)


def settle(cluster: Cluster, turns: int = 4) -> dict[str, str]:
    """Let everybody work; return the node of each pod."""
    for _ in range(turns):
        workloads.follow(cluster.now)
        cluster.turn(1)
    names = [decode_object(one)["metadata"]["name"] for one in list_page("Pod").items]
    return {name: node_of(name) for name in names}


def test_a_ring_of_databases_runs_where_its_class_makes_volumes() -> None:
    apply(SET.format(name="ring", affinity="{}"))
    cluster = Cluster()
    found = settle(cluster)
    assert found == {f"ring-{number}": "" for number in range(3)}
    assert all(NO_CLASS in condition(name) for name in found), "as where no class fast is"
    storage_class("fast", "Immediate")
    found = settle(cluster, 8)
    assert all(found.values()), [condition(name) for name in found]
    assert get("PersistentVolumeClaim", "data-ring-0", "default")["status"]["phase"] == "Bound"


def test_a_set_gets_a_volume_in_each_zone_and_stays_there() -> None:
    storage_class("fast", topologyKey=ZONE)
    apply(SET.format(name="ring", affinity=APART_BY_ZONE))
    cluster = Cluster()
    found = settle(cluster, 6)
    assert sorted(found.values()) == ["n0", "n1", "n2"]
    gone = found["ring-1"]
    objects.delete("Pod", "default", "ring-1", {"gracePeriodSeconds": 0}, now=NOW)
    objects.update(
        "Node", "", gone,
        lambda one: {**one, "spec": {**(one.get("spec") or {}), "unschedulable": True}}, now=NOW,
    )  # fmt: skip
    found = settle(cluster, 4)
    assert found["ring-1"] == "", "its volume is in the zone of the node that is shut"
    said = condition("ring-1")
    assert said.startswith("0/3 nodes are available:")
    assert "1 node(s) were unschedulable" in said
    assert "2 node(s) didn't match PersistentVolume's node affinity" in said


@pytest.mark.parametrize("has_default", [False, True])
def test_an_object_store_takes_the_default_class_or_waits(has_default: bool) -> None:
    if has_default:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        made = {"metadata": {"name": "standard", "annotations": default}}
        made |= {"provisioner": "stowage.dev/hollow", "volumeBindingMode": "WaitForFirstConsumer"}
        objects.create("StorageClass", "", made, now=NOW)
    apply(STORE)
    ((name, node),) = settle(Cluster(), 6).items()
    assert bool(node) is has_default
    assert has_default or NO_CLASS in condition(name)


def test_a_provisioner_of_another_project_makes_the_volume_on_the_chosen_node() -> None:
    """Its provisioner sees the node and makes a volume of it; until then the pod is not bound."""
    of = {"provisioner": "example.com/local-path", "volumeBindingMode": "WaitForFirstConsumer"}
    objects.create("StorageClass", "", {"metadata": {"name": "local-path"}, **of}, now=NOW)
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "128Mi"}}}
    asked["storageClassName"] = "local-path"
    meta = {"name": "local-path", "namespace": "default"}
    objects.create("PersistentVolumeClaim", "default", {"metadata": meta, "spec": asked}, now=NOW)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "local-path"}}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    objects.create("Pod", "default", {"metadata": {**meta, "name": "p"}, "spec": spec}, now=NOW)
    cluster = Cluster()
    assert settle(cluster) == {"p": ""}
    told = get("PersistentVolumeClaim", "local-path", "default")
    chosen = told["metadata"]["annotations"][SELECTED_NODE]
    assert told["metadata"]["annotations"][STORAGE_PROVISIONER] == "example.com/local-path"
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [chosen]}
    made = {
        "capacity": {"storage": "128Mi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local-path", "hostPath": {"path": "/opt/volumes/1"},
        "claimRef": {**meta, "kind": "PersistentVolumeClaim", "uid": told["metadata"]["uid"]},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }  # fmt: skip
    objects.create("PersistentVolume", "", {"metadata": {"name": "pv"}, "spec": made}, now=NOW)
    assert settle(cluster) == {"p": chosen}
