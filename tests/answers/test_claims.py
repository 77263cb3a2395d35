"""What is answered about pods with claims is what then happens: simulations, headroom, plans."""

from typing import Any

import msgspec
import pytest

from clusterstate.actions import objects
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.scheduler import decisions
from scheduling.answers import advisor
from scheduling.controllers.pods import resource_claims
from scheduling.controllers.volumes import follower
from scheduling.processes.decision_checks import check
from tests.answers.test_plans import OWNER, ask, leaving, owned
from tests.clock import NOW
from tests.controllers.support import make_node, make_pod, pod_manifest, schedule
from tests.controllers.test_volumes import Cluster

pytestmark = pytest.mark.django_db
DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
CLAIMING: dict[str, Any] = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
}


@pytest.fixture(autouse=True)
def _cluster(db: None) -> None:
    for name in ("n1", "n2"):
        make_node(name, labels={"kubernetes.io/hostname": name})
    make("DeviceClass", "gpu", spec={})
    make("ResourceClaimTemplate", "one", namespace="default", spec={"spec": DEVICES})
    for node, count in (("n1", 2), ("n2", 1)):
        slice_ = {
            "driver": "gpu.example.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        }  # fmt: skip
        make("ResourceSlice", node, spec=slice_)


def make(kind: str, name: str, *, namespace: str = "", **body: Any) -> None:
    api = {
        "DeviceClass": "resource.k8s.io/v1", "ResourceClaimTemplate": "resource.k8s.io/v1",
        "ResourceSlice": "resource.k8s.io/v1", "StorageClass": "storage.k8s.io/v1",
        "CSINode": "storage.k8s.io/v1",
    }.get(kind, "v1")  # fmt: skip
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    manifest = {"apiVersion": api, "kind": kind, "metadata": meta, **body}
    objects.create(kind, namespace, manifest, now=NOW)


def happens() -> dict[str, tuple[str, str]]:
    """Let the controller of claims and the scheduler work; return node and message of each pod."""
    resource_claims.follow(NOW)
    schedule(NOW)
    found = {}
    for item in list_page("Pod").items:
        pod = msgspec.json.decode(item)
        told = pod["status"].get("conditions") or ()
        why = [one.get("message", "") for one in told if one["type"] == "PodScheduled"]
        found[pod["metadata"]["name"]] = (pod["spec"].get("nodeName", ""), "".join(why))
    return found


def simulated(*pods: dict[str, Any]) -> dict[str, tuple[str, str]]:
    spec = {"pods": [*pods], "seed": 7, "explain": "none"}
    document = {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": spec}
    results = advisor.ask("simulation", document)["status"]["results"]
    return {one["pod"].partition("/")[2]: (one["nodeName"], one["message"]) for one in results}


def test_a_simulation_answers_what_the_scheduler_then_does():
    pods = [pod_manifest(f"p{number}", **CLAIMING) for number in range(4)]
    foretold = simulated(*pods)
    for pod in pods:
        make_pod(pod["metadata"]["name"], **CLAIMING)
    found = happens()
    assert sorted(node for node, _ in found.values()) == ["", "n1", "n1", "n2"]
    assert foretold == found


def test_headroom_counts_the_devices_that_are_free():
    make_pod("holds", **CLAIMING)
    ((node, _),) = happens().values()
    document = {"spec": {"pod": pod_manifest("p", **CLAIMING)}}
    status = advisor.ask("headroom", document)["status"]
    left = {"n1": 2, "n2": 1}
    left[node] -= 1
    assert (status["fits"], status["nodes"]) == (2, {k: v for k, v in left.items() if v})
    assert status["blockers"][0]["plugin"] == "DynamicResources"


def test_a_drained_pod_gets_another_device_and_whoever_waits_gets_none():
    for name in ("a", "b"):
        owned(name, **CLAIMING)
    at = {name: node for name, (node, _) in happens().items()}
    if set(at.values()) == {"n1"}:  # both may be on the node with two
        status = ask({"drain": {"nodes": ["n1"]}})
        assert sorted(landing for _, _, landing in leaving(status).values()) == ["", "n2"]
        assert len(status["stuck"]) == 1
    else:
        status = ask({"drain": {"nodes": ["n2"]}})
        (moves,) = (name for name, node in at.items() if node == "n2")
        assert leaving(status)[moves][2] == "n1"


def test_a_device_that_is_freed_is_taken_by_whom_it_helps():
    for number in range(3):
        make_pod(f"p{number}", **CLAIMING)
    assert all(node for node, _ in happens().values())
    make_pod("waits", **CLAIMING)
    node, message = happens()["waits"]
    assert not node
    assert "cannot allocate all claims" in message
    asked = {"namespace": "default", "name": "waits"}
    (told,) = advisor.ask("why", asked)["status"]["shortages"]
    title, _, said = told.partition("-gpu-")
    assert title == "claim default/waits"
    assert "request gpu: 3 of 3 devices suit class gpu; 3 are held by " in said
    assert all(f"p{number} (1)" in said for number in range(3))
    (group,) = advisor.ask("waiting-groups", {"remedies": True})["items"]
    assert group["status"]["shortages"] == [told]
    freed = next(name for name, (at, _) in happens().items() if at == "n2")
    status = ask({"evict": {"pods": [f"default/{freed}"], "disableEviction": True}})
    placed = {one["pod"]: one["nodeName"] for one in status["placed"]}
    assert placed == {"default/waits": "n2"}, status


def test_a_decision_about_a_device_is_made_again_on_the_devices_of_then():
    for number in range(4):
        make_pod(f"p{number}", **CLAIMING)
    happens()
    records = [one for n in range(4) for one in decisions.of_pod("default", f"p{n}", limit=9)]
    assert sorted(record.outcome for record in records) == ["scheduled"] * 3 + ["unschedulable"]
    for name in ("n1", "n2"):
        objects.delete("ResourceSlice", "", name, now=NOW)
    assert [check(record) for record in records] == [("same", [])] * 4


def test_a_decision_about_volumes_is_made_again_on_the_volumes_of_then():
    local = {"provisioner": "kubernetes.io/no-provisioner"}
    hollow = {"provisioner": "stowage.dev/hollow"}
    for name, of in (("local", local), ("hollow", hollow)):
        make("StorageClass", name, volumeBindingMode="WaitForFirstConsumer", **of)
    for node in ("n1", "n2"):
        driver = {"name": "hollow.stowage.dev", "nodeID": node, "allocatable": {"count": 1}}
        make("CSINode", node, spec={"drivers": [driver]})
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        spec = {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "local": {"path": "/x"}, "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }  # fmt: skip
        make("PersistentVolume", f"on-{node}", spec=spec)
    follower.follow(NOW)
    for number in range(6):
        of = "local" if number < 3 else "hollow"
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        asked["storageClassName"] = of
        make("PersistentVolumeClaim", f"c{number}", namespace="default", spec=asked)
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        make_pod(f"p{number}", volumes=[volume])
    cluster = Cluster()
    for _ in range(2):
        cluster.turn()  # in one batch: what the first take the others must not get
    cluster.scheduler.binder.write_records(NOW.timestamp())
    found = happens()
    assert sorted(node for node, _ in found.values()) == ["", "", "n1", "n1", "n2", "n2"]
    records = [one for n in range(6) for one in decisions.of_pod("default", f"p{n}", limit=9)]
    for name in ("on-n1", "on-n2"):
        objects.delete("PersistentVolume", "", name, now=NOW)
    made = [(record.name, check(record)) for record in records]
    assert len(made) > 6
    assert [one for one in made if one[1] != ("same", [])] == []


def test_a_volume_that_nobody_makes_is_a_remedy_that_helps_when_applied():
    of = {"provisioner": "kubernetes.io/no-provisioner"}
    make("StorageClass", "local", volumeBindingMode="WaitForFirstConsumer", **of)
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}}}
    asked["storageClassName"] = "local"
    make("PersistentVolumeClaim", "c", namespace="default", spec=asked)
    spec = {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/x"}, "storageClassName": "local",
    }  # fmt: skip
    make("PersistentVolume", "for-default-c", spec=spec)  # left of a smaller claim of that name
    make_pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])
    cluster = Cluster()
    cluster.turn()
    question = {"namespace": "default", "name": "p", "remedies": True}
    (told,) = advisor.ask("why", question)["status"]["remedies"]
    assert told["target"] == "PersistentVolume"
    assert told["text"] == f"make a volume of 3Gi of class local on the node {told['names'][0]}"
    objects.create("PersistentVolume", "", told["patch"], now=NOW)
    for _ in range(2):
        cluster.turn(4, seconds=10)
    assert happens()["p"][0] == told["names"][0]


def test_a_local_volume_pins_the_pod_that_comes_again():
    owner = {**OWNER, "apiVersion": "apps/v1", "kind": "StatefulSet"}
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    reached = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    for number in range(2):  # one with a local volume, one with a volume that all nodes reach
        spec = {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/x"}, **({"nodeAffinity": reached} if number else {}),
        }  # fmt: skip
        make("PersistentVolume", f"v{number}", spec=spec)
        bound = {**asked, "storageClassName": "", "volumeName": f"v{number}"}
        make("PersistentVolumeClaim", f"c{number}", namespace="default", spec=bound)
    for _ in range(3):
        follower.follow(NOW)
    for number in range(2):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        metadata = {"labels": {"app": "db"}, "ownerReferences": [owner]}
        make_pod(f"db-{number}", "n1", metadata=metadata, volumes=[volume])
    status = ask({"drain": {"nodes": ["n1"]}})
    assert {name: node for name, (_, _, node) in leaving(status).items()} == {
        "db-0": "n2", "db-1": "",
    }  # fmt: skip
    (stuck,) = status["stuck"]
    assert stuck["pod"] == "default/db-1"
    assert "didn't match PersistentVolume's node affinity" in str(status["leaving"])


def remedy_of(name: str) -> Any:
    """Return the first remedy of a waiting pod, whose preview lets the pod in."""
    question = {"namespace": "default", "name": name, "remedies": True}
    told = advisor.ask("why", question)["status"]["remedies"][0]
    status = advisor.ask("plan", told["plan"])["status"]
    assert [(one["pod"], one["nodeName"]) for one in status["placed"]] == [
        (f"default/{name}", told["names"][0])
    ]
    return told


def apply(remedy: Any) -> None:
    for one in remedy["edits"]:
        objects.create(one["manifest"]["kind"], "", one["manifest"], now=NOW)


def test_devices_that_a_claim_lacks_are_a_remedy_that_helps_when_applied():
    three = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 3}}
    spec = {"spec": {"devices": {"requests": [three]}}}
    make("ResourceClaimTemplate", "three", namespace="default", spec=spec)
    entry = {"name": "gpus", "resourceClaimTemplateName": "three"}
    make_pod("p", **CLAIMING | {"resourceClaims": [entry]})
    assert happens()["p"][0] == ""
    told = remedy_of("p")
    (node,) = told["names"]
    many = {"n1": "a device", "n2": "2 devices"}[node]
    assert told["text"] == f"add {many} of class gpu to the node {node}"
    assert (told["target"], told["edits"][0]["action"]) == ("ResourceSlice", "CreateSlice")
    apply(told)
    assert happens()["p"][0] == node


def test_what_serves_no_claim_is_no_remedy():
    """Of a class that no device is of nobody knows how its devices would be."""
    make("DeviceClass", "none", spec={"selectors": [{"cel": {"expression": "false"}}]})
    asked = [{"name": "x", "exactly": {"deviceClassName": "none"}}]
    spec = {"spec": {"devices": {"requests": asked}}}
    make("ResourceClaimTemplate", "x", namespace="default", spec=spec)
    entry = {"name": "x", "resourceClaimTemplateName": "x"}
    make_pod("p", **CLAIMING | {"resourceClaims": [entry]})
    assert happens()["p"][0] == ""
    question = {"namespace": "default", "name": "p", "remedies": True}
    assert advisor.ask("why", question)["status"]["remedies"] == []


def test_a_volume_of_a_zone_without_room_is_a_remedy_that_helps_when_applied():
    for zone in "ab":
        make_node(f"in-{zone}", labels={"kubernetes.io/hostname": f"in-{zone}", "zone": zone})
    parameters = {"topologyKey": "zone", "capacity": "1Gi"}
    make(
        "StorageClass", "fast", volumeBindingMode="WaitForFirstConsumer",
        provisioner="stowage.dev/hollow", parameters=parameters,
    )  # fmt: skip
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}}}
    asked["storageClassName"] = "fast"
    make("PersistentVolumeClaim", "c", namespace="default", spec=asked)
    one = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    make_pod("p", volumes=[one], nodeSelector={"zone": "b"})
    cluster = Cluster()
    cluster.turn(3)
    told = remedy_of("p")
    assert told["text"] == "make a volume of 3Gi of class fast in zone=b"
    assert told["names"] == ["in-b"]
    apply(told)
    cluster.turn(4, seconds=10)
    cluster.turn(4, seconds=10)
    assert happens()["p"][0] == "in-b"


def test_a_pod_that_lacks_a_volume_and_a_device_is_told_both_together():
    of = {"provisioner": "kubernetes.io/no-provisioner"}
    make("StorageClass", "local", volumeBindingMode="WaitForFirstConsumer", **of)
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}}}
    asked["storageClassName"] = "local"
    make("PersistentVolumeClaim", "c", namespace="default", spec=asked)
    for number in range(3):
        make_pod(f"holds-{number}", **CLAIMING)
    assert all(node for node, _ in happens().values())
    one = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    make_pod("p", volumes=[one], **CLAIMING)
    assert happens()["p"][0] == ""
    told = remedy_of("p")
    assert [each["action"] for each in told["edits"]] == ["CreateVolume", "CreateSlice"]
    apply(told)
    cluster = Cluster()
    cluster.turn(4, seconds=10)
    assert happens()["p"][0] == told["names"][0]
