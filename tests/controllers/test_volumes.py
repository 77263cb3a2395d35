"""Claims and volumes, end to end: bound, made by the hollow driver, waited for, given back."""

import datetime as dt
import time
from typing import Any

import pytest

from clusterstate.actions import objects
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.storage import SELECTED_NODE
from clusterstate.processes import steady_clock
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.pods import find_pod
from scheduling.controllers import garbage
from scheduling.controllers.pods import deletion
from scheduling.controllers.volumes import follower
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker import binding_cycle, profiles
from scheduling.worker.scheduler import Scheduler
from tests import roundtrips
from tests.clock import NOW
from tests.controllers.support import make_node, set_labels

pytestmark = pytest.mark.django_db(transaction=True)
ZONE = "topology.kubernetes.io/zone"


def make(kind: str, name: str, *, namespace: str = "", **body: Any) -> None:
    api = (
        "v1"
        if kind in ("PersistentVolume", "PersistentVolumeClaim", "Pod")
        else "storage.k8s.io/v1"
    )
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    objects.create(
        kind, namespace, {"apiVersion": api, "kind": kind, "metadata": meta, **body}, now=NOW
    )


def storage_class(name: str, mode: str = "WaitForFirstConsumer", **parameters: str) -> None:
    make(
        "StorageClass", name, provisioner="stowage.dev/hollow", volumeBindingMode=mode,
        parameters=parameters, allowVolumeExpansion=True,
    )  # fmt: skip


def claim(name: str, size: str = "1Gi", **spec: Any) -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    make("PersistentVolumeClaim", name, namespace="default", spec={**asked, **spec})


def volume(name: str, size: str = "1Gi", **spec: Any) -> None:
    body = {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
        "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/x"}, **spec,
    }  # fmt: skip
    make("PersistentVolume", name, spec=body)


def pod(name: str, *volumes: dict[str, Any], **spec: Any) -> None:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}
    body = {"containers": [container], "volumes": list(volumes), **spec}
    make("Pod", name, namespace="default", spec=body)


def of_claim(name: str) -> dict[str, Any]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def get(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    found = find_object(kind, namespace, name)
    assert found is not None, f"{kind} {name} is gone"
    return decode_object(found)


def node_of(name: str) -> str:
    found = find_pod("default", name)
    assert found is not None
    return decode_object(found)["spec"].get("nodeName", "")


def condition(name: str) -> str:
    found = decode_object(find_pod("default", name) or b"{}")
    told = [one for one in found["status"].get("conditions") or () if one["type"] == "PodScheduled"]
    return told[0].get("message", "") if told else ""


class Cluster:
    """The scheduler, the binding tasks and the controllers, in turn."""

    def __init__(self, *, several: bool = False) -> None:
        self.now = NOW
        self.scheduler = Scheduler(default_configuration(), lambda: 7, several=several)
        self.scheduler.load(self.now.timestamp())

    def turn(self, turns: int = 4, *, seconds: float = 2.0) -> None:
        """Let everybody work several times, with time passing between."""
        for _ in range(turns):
            at = self.now.timestamp()
            while self.scheduler.cycle(at):
                self.scheduler.binder.finish_batch(at)
            self.scheduler.binder.finish_batch(at)
            self.scheduler.binder.write_refused(at + 60)
            look_again()
            binding_cycle.run()
            follower.follow(self.now)
            self.now += dt.timedelta(seconds=seconds)


def look_again() -> None:
    """Do not wait for the second until PreBind is asked again."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("UPDATE reservation SET due_at = NULL WHERE step = 'binding'")


def zones() -> None:
    make_node("node-a", labels={ZONE: "a", "kubernetes.io/hostname": "node-a"})
    make_node("node-b", labels={ZONE: "b", "kubernetes.io/hostname": "node-b"})


def test_a_claim_gets_the_smallest_volume_that_suits():
    volume("large", "10Gi")
    volume("small", "2Gi")
    volume("tiny", "500Mi")
    claim("data", "1Gi", storageClassName="")
    follower.follow(NOW)
    follower.follow(NOW)
    bound = get("PersistentVolumeClaim", "data", "default")
    assert bound["spec"]["volumeName"] == "small"
    assert bound["status"]["phase"] == "Bound"
    assert bound["status"]["capacity"] == {"storage": "2Gi"}
    small = get("PersistentVolume", "small")
    assert small["status"]["phase"] == "Bound"
    assert small["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    assert get("PersistentVolume", "large")["status"]["phase"] == "Available"


def test_who_is_bound_beforehand_gets_each_other():
    volume("mine", "5Gi", claimRef={"namespace": "default", "name": "wanted"})
    volume("named", "5Gi")
    claim("wanted", storageClassName="")
    claim("naming", storageClassName="", volumeName="named")
    follower.follow(NOW)
    follower.follow(NOW)
    assert get("PersistentVolumeClaim", "wanted", "default")["spec"]["volumeName"] == "mine"
    assert get("PersistentVolumeClaim", "naming", "default")["status"]["phase"] == "Bound"


def test_a_claim_that_waits_gets_a_volume_in_the_zone_of_its_pod():
    zones()
    storage_class("fast", topologyKey=ZONE)
    claim("data", storageClassName="fast")
    cluster = Cluster()
    cluster.turn(1)
    assert get("PersistentVolumeClaim", "data", "default")["status"]["phase"] == "Pending"
    pod("web", of_claim("data"), nodeSelector={ZONE: "b"})
    cluster.turn()
    assert node_of("web") == "node-b"
    bound = get("PersistentVolumeClaim", "data", "default")
    assert bound["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node-b"
    made = get("PersistentVolume", bound["spec"]["volumeName"])
    terms = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == ["b"]
    # A pod that comes later has to go there, too.
    pod("next", of_claim("data"))
    pod("elsewhere", of_claim("data"), nodeSelector={ZONE: "a"})
    cluster.turn(2)
    assert node_of("next") == "node-b"
    assert not node_of("elsewhere")
    assert "didn't match PersistentVolume's node affinity" in condition("elsewhere")


def test_a_missing_claim_and_an_immediate_one_that_is_not_bound_keep_a_pod_waiting():
    zones()
    claim("unbound", storageClassName="")
    pod("lost", of_claim("nowhere"))
    pod("waits", of_claim("unbound"))
    pod("plain")
    cluster = Cluster()
    cluster.turn(1)
    assert node_of("plain")
    assert 'persistentvolumeclaim "nowhere" not found' in condition("lost")
    assert "unbound immediate PersistentVolumeClaims" in condition("waits")
    volume("late", "1Gi")
    cluster.turn(4)
    assert node_of("waits"), "the claim was bound, which wakes the pod"
    claim("nowhere", storageClassName="")
    volume("later", "1Gi")
    cluster.turn(4)
    assert node_of("lost")


def test_two_pods_never_get_one_volume():
    zones()
    make("StorageClass", "local", provisioner="kubernetes.io/no-provisioner",
         volumeBindingMode="WaitForFirstConsumer")  # fmt: skip
    here = {"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-b"]}]}]}}  # fmt: skip
    volume("only", storageClassName="local", nodeAffinity=here)
    follower.follow(NOW)
    claim("one", storageClassName="local")
    claim("two", storageClassName="local")
    pod("first", of_claim("one"))
    pod("second", of_claim("two"))
    cluster = Cluster()
    cluster.turn()
    placed = {name: node_of(name) for name in ("first", "second")}
    assert sorted(placed.values()) == ["", "node-b"]
    loser = next(name for name, node in placed.items() if not node)
    assert "didn't find available persistent volumes to bind" in condition(loser)


def test_a_failure_of_the_driver_has_the_pod_tried_again():
    zones()
    storage_class("flaky", failures="1", delay="3s")
    claim("data", storageClassName="flaky")
    pod("web", of_claim("data"))
    cluster = Cluster()
    cluster.turn(14, seconds=3)
    assert node_of("web")
    bound = get("PersistentVolumeClaim", "data", "default")
    assert bound["metadata"]["annotations"]["stowage.dev/provisioning-failures"] == "1"
    assert bound["status"]["phase"] == "Bound"


def test_room_is_counted_by_segment():
    zones()
    storage_class("scarce", topologyKey=ZONE, capacity="3Gi", **{"capacity.a": "1Gi"})
    cluster = Cluster()
    cluster.turn(2)
    for name in ("one", "two"):
        claim(name, "2Gi", storageClassName="scarce")
        pod(name, of_claim(name))
    cluster.turn(5)
    assert sorted(map(node_of, ("one", "two"))) == ["", "node-b"]
    waiting = next(name for name in ("one", "two") if not node_of(name))
    assert "did not have enough free storage" in condition(waiting)


def test_what_is_given_back_is_deleted_or_kept_as_the_class_says():
    storage_class("now", mode="Immediate")
    claim("made", storageClassName="now")
    volume("kept", "1Gi")
    claim("found", storageClassName="")
    for _ in range(3):
        follower.follow(NOW)
    made = get("PersistentVolumeClaim", "made", "default")["spec"]["volumeName"]
    for name in ("made", "found"):
        objects.delete("PersistentVolumeClaim", "default", name, now=NOW)
    for _ in range(3):
        garbage.follow(NOW)
        follower.follow(NOW)
    assert find_object("PersistentVolumeClaim", "default", "made") is None
    assert find_object("PersistentVolume", "", made) is None
    assert get("PersistentVolume", "kept")["status"]["phase"] == "Released"


def test_an_ephemeral_volume_has_a_claim_of_its_pod_and_is_attached_where_it_runs():
    zones()
    storage_class("fast")
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                         "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    pod("web", {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
    cluster = Cluster()
    cluster.turn(6)
    made = get("PersistentVolumeClaim", "web-scratch", "default")
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "web", True)
    assert node_of("web")
    attached = [one for one in attachments() if one["spec"]["nodeName"] == node_of("web")]
    assert [one["status"]["attached"] for one in attached] == [True]


def test_an_ephemeral_claim_that_a_quota_refused_is_tried_again():
    hard = {"persistentvolumeclaims": "0"}
    objects.create("ResourceQuota", "default", {"metadata": {"name": "q"}, "spec": {"hard": hard}},
                   now=NOW)  # fmt: skip
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                         "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    pod("web", {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
    follower.follow(NOW)
    objects.delete("ResourceQuota", "default", "q", now=NOW)
    for seconds, is_made in ((1, False), (6, True)):
        follower.follow(NOW + dt.timedelta(seconds=seconds))
        found = find_object("PersistentVolumeClaim", "default", "web-scratch")
        assert (found is not None) == is_made


def attachments() -> list[dict[str, Any]]:
    from clusterstate.queries.objects.lists import list_page

    return [decode_object(item) for item in list_page("VolumeAttachment").items]


def test_a_bound_claim_grows_where_its_class_allows():
    storage_class("now", mode="Immediate")
    claim("data", storageClassName="now")
    for _ in range(2):
        follower.follow(NOW)

    def sized(stored: dict[str, Any], size: str) -> dict[str, Any]:
        wanted = {**stored["spec"], "resources": {"requests": {"storage": size}}}
        return {**stored, "spec": wanted}

    objects.update(
        "PersistentVolumeClaim", "default", "data", lambda one: sized(one, "3Gi"), now=NOW
    )
    follower.follow(NOW)
    grown = get("PersistentVolumeClaim", "data", "default")
    assert grown["status"]["capacity"] == {"storage": "3Gi"}
    with pytest.raises(Invalid, match=r"field can not be less than status.capacity"):
        objects.update(
            "PersistentVolumeClaim", "default", "data", lambda one: sized(one, "1Gi"), now=NOW
        )
    volume_name = grown["spec"]["volumeName"]
    assert get("PersistentVolume", volume_name)["spec"]["capacity"] == {"storage": "3Gi"}


def statements_of_a_pass() -> int:
    """Return how many statements a pass takes after a node was relabelled."""
    set_labels("node-a", **{ZONE: "a", "seen": str(time.monotonic_ns())})
    with roundtrips.counted() as trips:
        follower.follow(NOW)
    return trips.number


def test_a_pass_asks_and_writes_no_more_where_there_are_more_claims():
    zones()
    storage_class("fast", "Immediate")
    found = []
    for first, last in ((0, 3), (3, 30)):
        for number in range(first, last):
            claim(f"data-{number}", storageClassName="fast")
            claim(f"waits-{number}", storageClassName="")
        for _ in range(3):
            follower.follow(NOW)
        found.append(statements_of_a_pass())
    assert get("PersistentVolumeClaim", "data-29", "default")["status"]["phase"] == "Bound"
    assert found[0] == found[1]


def test_a_pod_without_claims_is_no_reason_for_a_pass_and_a_change_of_others_is_seen():
    zones()
    claim("data", storageClassName="")
    follower.follow(NOW)
    follower.follow(NOW)
    pod("plain")
    with roundtrips.counted() as trips:
        follower.follow(NOW)
    pod("plain-2")
    with roundtrips.counted() as again:
        follower.follow(NOW)
    assert trips.number == again.number < statements_of_a_pass()
    volume("late", "2Gi")
    follower.follow(NOW)
    follower.follow(NOW)
    assert get("PersistentVolumeClaim", "data", "default")["spec"]["volumeName"] == "late"


def test_a_pod_whose_volumes_take_too_long_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    """Rule: plugins/volumebinding ``BindPodVolumes``, v1.36: ``bindTimeoutSeconds``."""
    args = {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 30}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [args]}],
    }
    text, _ = scheduler_configuration.check(document)
    scheduler_configuration.store(document=text, by="somebody", now=NOW)
    revision, configuration = profiles.in_force()
    cluster = Cluster()
    cluster.scheduler = Scheduler(configuration, lambda: 7, revision=revision)
    zones()
    waiting = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    make("StorageClass", "slow", **waiting)
    claim("data", storageClassName="slow")
    pod("p", of_claim("data"))
    cluster.scheduler.load(NOW.timestamp())
    times = {"now": NOW}
    monkeypatch.setattr(steady_clock, "now", lambda: times["now"])
    cluster.turn()
    assert (
        SELECTED_NODE in get("PersistentVolumeClaim", "data", "default")["metadata"]["annotations"]
    )
    times["now"] = NOW + dt.timedelta(seconds=29)
    cluster.turn()
    assert "deadline" not in condition("p")
    times["now"] = NOW + dt.timedelta(seconds=31)
    cluster.turn()
    assert not node_of("p")
    assert "binding volumes: context deadline exceeded" in condition("p")


def test_a_pod_that_wants_a_claim_alone_preempts_who_has_it():
    """Rule: plugins/volumerestrictions, v1.36: the node of a ReadWriteOncePod claim's user."""
    zones()
    storage_class("fast")
    for name, value in (("low", 1), ("high", 10)):
        meta = {"metadata": {"name": name}, "value": value}
        objects.create("PriorityClass", "", meta, now=NOW)
    claim("data", storageClassName="fast", accessModes=["ReadWriteOncePod"])
    pod("first", of_claim("data"), priorityClassName="low")
    cluster = Cluster()
    cluster.turn()
    node_name = node_of("first")
    assert node_name
    pod("equal", of_claim("data"), priorityClassName="low")
    cluster.turn()
    assert not node_of("equal")
    assert "ReadWriteOncePod access mode already in-use by another pod" in condition("equal")
    pod("second", of_claim("data"), priorityClassName="high")
    cluster.turn(8)
    deletion.finish(cluster.now)
    cluster.turn(8)
    assert find_pod("default", "first") is None
    assert node_of("second") == node_name
