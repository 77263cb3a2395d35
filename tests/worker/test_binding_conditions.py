"""Pods whose devices have to get ready are bound once they are, or tried anew with others.

Rule: plugins/dynamicresources ``PreBind``, v1.36 (``bindingConditions``, ``bindingTimeout``).
"""

import datetime as dt
from typing import Any

import pytest

from clusterstate.actions import objects
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import steady_clock
from scheduling.worker import profiles
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW
from tests.controllers.support import make_node, make_pod
from tests.controllers.test_volumes import Cluster, condition, get, node_of

pytestmark = pytest.mark.django_db(transaction=True)
READY, FAILED = "example.com/ready", "example.com/failed"


@pytest.fixture
def cluster() -> Cluster:
    make_node("n1")
    waits = {"bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}", **waits} for number in range(2)],
    }
    make("ResourceSlice", "n1", spec=spec)
    make("DeviceClass", "gpu", spec={})
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    make("ResourceClaim", "c", namespace="default", spec={"devices": {"requests": [request]}})
    made = Cluster()
    make_pod("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}], **asks("40"))
    made.scheduler.load(NOW.timestamp())
    return made


def asks(cpu: str) -> Manifest:
    resources = {"requests": {"cpu": cpu}}
    return {"containers": [{"name": "main", "image": "nginx:1", "resources": resources}]}


def make(kind: str, name: str, *, namespace: str = "", **body: Any) -> None:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    api = "resource.k8s.io/v1"
    manifest = {"apiVersion": api, "kind": kind, "metadata": meta, **body}
    objects.create(kind, namespace, manifest, now=NOW)


def claim_status() -> Manifest:
    found: Manifest = get("ResourceClaim", "c", "default").get("status") or {}
    return found


def driver_says(kind: str) -> str:
    """Report a condition of the device that the claim has, as its driver does; return its name."""
    (result,) = claim_status()["allocation"]["devices"]["results"]
    one = {"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": None}
    one["lastTransitionTime"] = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
    of = {key: result[key] for key in ("driver", "pool", "device")}

    def told(stored: Manifest) -> Manifest:
        return {**stored, "status": {**stored["status"], "devices": [{**of, "conditions": [one]}]}}

    objects.update("ResourceClaim", "default", "c", told, now=NOW, subresource="status")
    return str(result["device"])


def configured(timeout: str) -> Scheduler:
    """Store a configuration with this time for devices; return a scheduler that follows it."""
    args = {"name": "DynamicResources", "args": {"bindingTimeout": timeout}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [args]}],
    }
    text, _ = scheduler_configuration.check(document)
    scheduler_configuration.store(document=text, by="somebody", now=NOW)
    revision, configuration = profiles.in_force()
    return Scheduler(configuration, lambda: 7, revision=revision)


def test_the_pod_is_bound_once_its_device_is_ready(cluster: Cluster) -> None:
    cluster.turn()
    assert not node_of("p"), "the device is not ready"
    status = claim_status()
    assert status["reservedFor"][0]["name"] == "p"
    assert status["allocation"]["allocationTimestamp"]
    driver_says(READY)
    cluster.turn()
    assert node_of("p") == "n1"
    assert len(claim_status()["reservedFor"]) == 1


def test_a_device_that_failed_is_given_back(cluster: Cluster) -> None:
    cluster.turn()
    failed = driver_says(FAILED)
    cluster.turn(1)
    assert "allocation" not in claim_status()
    cluster.turn(1)
    assert not node_of("p")
    assert f"claim c binding failed: {FAILED}" in condition("p")
    cluster.turn(4, seconds=10)
    assert driver_says(READY) == failed, "it is the first one again, and well now"
    cluster.turn()
    assert node_of("p") == "n1"


def test_a_pod_that_a_client_put_there_meanwhile_leaves_no_room(cluster: Cluster) -> None:
    cluster.turn()
    make_pod("by-hand", nodeName="n1", **asks("40"))
    driver_says(READY)
    cluster.turn()
    assert get("Pod", "by-hand", "default")["status"]["phase"] == "Pending", "it fits"
    assert not node_of("p"), "64 cores have no room for both"
    assert "1 Insufficient cpu" in condition("p")
    objects.delete("Pod", "default", "by-hand", {"gracePeriodSeconds": 0}, now=NOW)
    cluster.turn(6, seconds=10)
    driver_says(READY)
    cluster.turn()
    assert node_of("p") == "n1"


@pytest.mark.parametrize("given", ["", "30s"])
def test_binding_waits_ten_minutes_or_as_long_as_the_profile_says(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    if given:
        cluster.scheduler = configured(given)
        cluster.scheduler.load(NOW.timestamp())
    times = {"now": NOW}
    monkeypatch.setattr(steady_clock, "now", lambda: times["now"])
    cluster.turn()
    limit = 30 if given else 600
    times["now"] = NOW + dt.timedelta(seconds=limit - 1)
    cluster.turn(1)
    assert "allocation" in claim_status()
    times["now"] = NOW + dt.timedelta(seconds=limit + 1)
    cluster.turn(2)
    assert "device binding timeout: claim=c" in condition("p")
