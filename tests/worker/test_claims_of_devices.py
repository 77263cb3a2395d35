"""Pods that claim devices: what the scheduler decides and writes."""

from typing import Any

import msgspec
import numpy as np
import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.bind import Binding, BindRefusal, OtherSchedulers, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.status import fail_pods
from clusterstate.actions.scheduler.claiming import bind_in_order, release
from clusterstate.actions.scheduler.decisions import begin_epoch
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.dra.attempt import ALLOCATED_HERE, Release
from clusterstate.objects.rules.footprint import Footprint
from clusterstate.objects.values.errors import Conflict
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id, pods_by_id
from clusterstate.queries.scheduler.reaching import reach
from scheduling.controllers.evictions import devices as device_taints
from scheduling.controllers.pods import resource_claims
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests import roundtrips
from tests.clock import after
from tests.controllers.support import NOW, make_node, pod_manifest, schedule

pytestmark = pytest.mark.django_db
V1 = "resource.k8s.io/v1"


def make(kind: str, namespace: str, name: str, **members: Any) -> None:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    manifest = {"apiVersion": V1, "kind": kind, "metadata": meta, **members}
    objects.create(kind, namespace, manifest, now=NOW)


def offer(node: str, *devices: str) -> None:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {
        "driver": "gpu.example.com", "nodeName": node, "pool": pool,
        "devices": [{"name": name, "attributes": {"fast": {"bool": True}}} for name in devices],
    }  # fmt: skip
    make("ResourceSlice", "", f"slice-{node}", spec=spec)


def claim(name: str, count: int = 1) -> None:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    make("ResourceClaim", "default", name, spec=spec)


def claiming(name: str, *claims: str) -> dict[str, Any]:
    entries = [{"name": f"c{n}", "resourceClaimName": one} for n, one in enumerate(claims)]
    return pod_manifest(name, resourceClaims=entries)


def stored(kind: str) -> dict[str, Any]:
    found = [msgspec.json.decode(one) for one in list_page(kind).items]
    return {one["metadata"]["name"]: one for one in found}


def nodes_of() -> dict[str, str]:
    return {name: pod["spec"].get("nodeName", "") for name, pod in stored("Pod").items()}


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    for name in ("n1", "n2"):
        make_node(name)
    selector = {"cel": {"expression": 'device.attributes["gpu.example.com"].fast'}}
    make("DeviceClass", "", "gpu", spec={"selectors": [selector], "extendedResourceName": "e.io/g"})


def devices_of(name: str) -> list[str]:
    allocation = stored("ResourceClaim")[name]["status"]["allocation"]
    return [one["device"] for one in allocation["devices"]["results"]]


def test_pods_of_one_batch_never_get_one_device():
    offer("n1", "a")
    offer("n2", "b")
    for name in ("c1", "c2", "c3"):
        claim(name)
    create_pods([claiming(f"p{n}", f"c{n}") for n in (1, 2, 3)], now=NOW)
    schedule(NOW)
    placed = {name: node for name, node in nodes_of().items() if node}
    assert sorted(placed.values()) == ["n1", "n2"]
    for name, node in placed.items():
        kept = stored("ResourceClaim")[f"c{name[1]}"]
        assert devices_of(f"c{name[1]}") == [{"n1": "a", "n2": "b"}[node]]
        assert kept["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        user = {"resource": "pods", "name": name, "uid": stored("Pod")[name]["metadata"]["uid"]}
        assert kept["status"]["reservedFor"] == [user]
    left = next(name for name, node in nodes_of().items() if not node)
    conditions = stored("Pod")[left]["status"]["conditions"]
    assert "2 cannot allocate all claims" in conditions[0]["message"]
    assert not stored("ResourceClaim")[f"c{left[1]}"].get("status")


def test_a_pod_without_its_claim_waits_for_it():
    offer("n2", "b")
    create_pods([claiming("p1", "c1"), pod_manifest("plain")], now=NOW)
    schedule(NOW)
    found = nodes_of()
    assert not found["p1"]
    assert found["plain"]
    conditions = stored("Pod")["p1"]["status"]["conditions"]
    assert 'resourceclaim.resource.k8s.io "c1" not found' in conditions[0]["message"]


def test_two_pods_share_a_claim_on_its_node():
    offer("n2", "b")
    claim("c1")
    create_pods([claiming("p1", "c1")], now=NOW)
    schedule(NOW)
    create_pods([claiming("p2", "c1")], now=NOW)
    schedule(NOW)
    assert nodes_of() == {"p1": "n2", "p2": "n2"}
    users = stored("ResourceClaim")["c1"]["status"]["reservedFor"]
    assert [one["name"] for one in users] == ["p1", "p2"]


def test_devices_serve_an_extended_resource():
    offer("n2", "a", "b")
    asked = {"requests": {"e.io/g": "2"}, "limits": {"e.io/g": "2"}}
    create_pods(
        [pod_manifest("p1", containers=[{"name": "main", "image": "i", "resources": asked}])],
        now=NOW,
    )
    schedule(NOW)
    assert nodes_of() == {"p1": "n2"}
    told = stored("Pod")["p1"]["status"]["extendedResourceClaimStatus"]
    assert [one["containerName"] for one in told["requestMappings"]] == ["main"]
    assert sorted(devices_of(told["resourceClaimName"])) == ["a", "b"]


def decided(name: str, *, here: bool) -> Binding:
    """Return the binding of a pod to n2 with device b for c1; ``here``: found for this pod."""
    of = {"driver": "gpu.example.com", "pool": "n2", "device": "b", "request": "r"}
    given = {
        **stored("ResourceClaim")["c1"],
        "status": {"allocation": {"devices": {"results": [of]}}},
    }
    mark = {ALLOCATED_HERE: True} if here else {}
    return Binding(find_pod_id("default", name), "n2", claims=({**given, **mark},))


@pytest.mark.parametrize("here", [True, False])
def test_a_claim_that_was_freed_meanwhile_is_not_allocated_again(here: bool):
    offer("n2", "b")
    claim("c1")
    create_pods([claiming("p1", "c1")], now=NOW)
    binding = decided("p1", here=here)
    found = bind_in_order([binding], snapshot_revision=changes.watermark(), now=NOW, binder="one")
    assert found.refused == ({} if here else {binding.pod_id: BindRefusal.CLAIMED})
    assert nodes_of() == {"p1": "n2" if here else ""}
    assert bool(stored("ResourceClaim")["c1"].get("status")) is here


def test_a_pod_with_claims_has_to_know_all_binds_on_its_node():
    offer("n2", "b")
    claim("c1")
    create_pods([claiming("p1", "c1"), pod_manifest("other")], now=NOW)
    snapshot, beside = changes.watermark(), OtherSchedulers(reach(), 5, begin_epoch(5))
    other = Binding(find_pod_id("default", "other"), "n2")
    assert bind_pods(
        [other], snapshot_revision=snapshot, now=NOW, binder="one", beside=beside
    ).bound
    (class_id,) = sql.fetch("SELECT class_id FROM pod WHERE name = 'p1'")[0]
    binding = msgspec.structs.replace(
        decided("p1", here=True), footprint=Footprint(class_id=class_id)
    )
    for known, why in [(snapshot, {binding.pod_id: BindRefusal.OVERTAKEN}), (None, {})]:
        found = bind_in_order(
            [binding], snapshot_revision=known or changes.watermark(), now=NOW, binder="two",
            beside=beside,
        )  # fmt: skip
        assert found.refused == why


def test_a_claim_that_is_gone_or_allocated_elsewhere_binds_nobody():
    offer("n2", "a", "b")
    claim("c1")
    create_pods([claiming(name, "c1") for name in ("p1", "p2", "p3")], now=NOW)
    first, second, third = (decided(name, here=True) for name in ("p1", "p2", "p3"))
    other = msgspec.json.decode(msgspec.json.encode(second.claims).replace(b'"b"', b'"a"'))
    second = msgspec.structs.replace(second, claims=tuple(other))
    found = bind_in_order(
        [first, second], snapshot_revision=changes.watermark(), now=NOW, binder="one"
    )
    assert [pod_id for pod_id, _ in found.bound] == [first.pod_id]
    assert found.refused == {second.pod_id: BindRefusal.CLAIMED}
    changed = {**third.claims[0], "metadata": {**third.claims[0]["metadata"], "uid": "another"}}
    third = msgspec.structs.replace(third, claims=(changed,))
    found = bind_in_order([third], snapshot_revision=changes.watermark(), now=NOW, binder="one")
    assert found.refused == {third.pod_id: BindRefusal.CLAIMED}
    assert nodes_of() == {"p1": "n2", "p2": "", "p3": ""}
    assert devices_of("c1") == ["b"]


def test_who_waits_for_devices_is_woken_when_some_come_or_are_given_back():
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(NOW.timestamp())

    def go_on(seconds: float) -> dict[str, str]:
        now = after(seconds).timestamp()
        while scheduler.cycle(now):
            scheduler.binder.finish_batch(now)
        scheduler.binder.finish_batch(now)
        return nodes_of()

    offer("n2", "a")
    claim("c1")
    claim("c2")
    asked = {"requests": {"e.io/g": "1"}, "limits": {"e.io/g": "1"}}
    extended = [{"name": "main", "image": "i", "resources": asked}]
    create_pods([claiming("p1", "c1")], now=NOW)
    assert go_on(0) == {"p1": "n2"}
    create_pods([claiming("p2", "c2"), pod_manifest("p3", containers=extended)], now=NOW)
    assert go_on(1) == {"p1": "n2", "p2": "", "p3": ""}
    assert len(scheduler.mirror.queue) == 2
    fail_pods([(find_pod_id("default", "p1"), "Gone", "it failed")], now=after(60))
    resource_claims.follow(after(60))
    found = go_on(120)
    assert sorted((found["p2"], found["p3"])) == ["", "n2"]
    offer("n1", "b")
    found = go_on(240)
    assert sorted((found["p2"], found["p3"])) == ["n1", "n2"]
    held = [
        device for name in stored("ResourceClaim") if name != "c1" for device in devices_of(name)
    ]
    assert sorted(held) == ["a", "b"]
    assert not scheduler.mirror.snapshot.devices.is_taken
    assert not scheduler.mirror.snapshot.devices.in_flight


def begun() -> Scheduler:
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(NOW.timestamp())
    return scheduler


def go_on(scheduler: Scheduler, seconds: float, cycles: int = 9) -> dict[str, str]:
    """Let a scheduler work after so many seconds; return the pods' nodes."""
    now = after(seconds).timestamp()
    for _ in range(cycles):
        scheduler.cycle(now)
        scheduler.binder.finish_batch(now)
    scheduler.binder.write_refused(now + 60)
    return nodes_of()


def test_who_waits_for_devices_is_woken_when_an_older_class_serves_them_again():
    scheduler = begun()
    offer("n1", "a")
    nothing = {"cel": {"expression": "false"}}
    make("DeviceClass", "", "g", spec={"selectors": [nothing], "extendedResourceName": "e.io/g"})
    asked = {"requests": {"e.io/g": "1"}, "limits": {"e.io/g": "1"}}
    containers = [{"name": "main", "image": "i", "resources": asked}]
    create_pods([pod_manifest("p", containers=containers)], now=NOW)
    assert go_on(scheduler, 1) == {"p": ""}
    objects.delete("DeviceClass", "", "g", now=after(60))
    assert go_on(scheduler, 120) == {"p": "n1"}


def bind_to(name: str, node: str) -> None:
    binding = Binding(find_pod_id("default", name), node)
    assert bind_pods([binding], snapshot_revision=changes.watermark(), now=NOW).bound


def only_on(name: str, node: str) -> None:
    """Allocate a claim for a node, with nobody who uses it, as a driver or an admin may."""
    of = {"driver": "gpu.example.com", "pool": node, "device": "a", "request": "r"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {"devices": {"results": [of]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    objects.update(
        "ResourceClaim", "default", name,
        lambda old: {**old, "status": {"allocation": allocation}}, now=NOW, subresource="status",
    )  # fmt: skip


def test_an_idle_claim_is_given_back_when_its_pod_fits_nowhere_with_it():
    """Rule: dynamicresources.go ``PostFilter``, v1.36; the message is kube-scheduler's."""
    offer("n1", "a")
    offer("n2", "a")
    for name in ("idle", "used"):
        claim(name)
        only_on(name, "n1" if name == "idle" else "n2")
    create_pods([pod_manifest("full"), claiming("p1", "idle")], now=NOW)
    bind_to("full", "n1")
    objects.update("Node", "", "n1", cordoned, now=NOW)
    scheduler = begun()
    assert go_on(scheduler, 0, cycles=1)["p1"] == ""
    assert not stored("ResourceClaim")["idle"].get("status")
    message = stored("Pod")["p1"]["status"]["conditions"][0]["message"]
    assert message == (
        "0/2 nodes are available: 1 node(s) were unschedulable, 1 resourceclaim not available on"
        " the node. deallocation of ResourceClaim completed, preemption: 0/2 nodes are available:"
        " 2 Preemption is not helpful for scheduling."
    )
    assert stored("ResourceClaim")["used"]["status"]["allocation"]
    objects.update("ResourceClaim", "default", "used", freed, now=NOW, subresource="status")
    assert go_on(scheduler, 30)["p1"] == "n2"


def cordoned(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "spec": {**old.get("spec", {}), "unschedulable": True}}


def freed(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "status": {}}


def test_a_claim_that_others_use_or_that_changed_meanwhile_is_kept():
    offer("n1", "a")
    claim("c1")
    only_on("c1", "n1")
    create_pods([claiming("user", "c1"), claiming("p1", "c1")], now=NOW)
    scheduler = begun()
    before = stored("ResourceClaim")["c1"]
    was = Release(before, {**before, "status": {}})
    binding = Binding(find_pod_id("default", "user"), "n1", claims=(before,))
    assert bind_in_order(
        [binding], snapshot_revision=changes.watermark(), now=NOW, binder="one"
    ).bound
    with pytest.raises(Conflict):
        release(was, now=NOW)
    objects.update("Node", "", "n1", cordoned, now=NOW)
    assert go_on(scheduler, 1)["p1"] == ""
    message = stored("Pod")["p1"]["status"]["conditions"][0]["message"]
    assert "node. still not schedulable, preemption: " in message
    assert stored("ResourceClaim")["c1"]["status"]["reservedFor"][0]["name"] == "user"


def test_a_claim_that_is_left_from_an_earlier_attempt_is_deleted():
    claim("left")
    only_on("left", "n1")
    kept = ["resource.kubernetes.io/delete-protection"]
    objects.update(
        "ResourceClaim", "default", "left",
        lambda old: {**old, "metadata": {**old["metadata"], "finalizers": kept}}, now=NOW,
    )  # fmt: skip
    release(Release(stored("ResourceClaim")["left"], None), now=NOW)
    assert not stored("ResourceClaim")


@pytest.mark.parametrize("by_claims", [True, False])
def test_what_many_confirmed_pods_were_given_is_counted_once(by_claims: bool):
    offer("n2", *(f"d{n}" for n in range(20)))
    asked = {"requests": {"e.io/g": "1"}, "limits": {"e.io/g": "1"}}
    extended = [{"name": "main", "image": "i", "resources": asked}]
    for n in range(20):
        claim(f"c{n}")
    pods = [
        claiming(f"p{n}", f"c{n}") if by_claims else pod_manifest(f"p{n}", containers=extended)
        for n in range(20)
    ]
    create_pods(pods, now=NOW)
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(NOW.timestamp())
    for _ in range(4):
        scheduler.cycle(NOW.timestamp())
        scheduler.binder.finish_batch(NOW.timestamp())
    scheduler.mirror.refresh(NOW.timestamp())
    assert set(nodes_of().values()) == {"n2"}
    told = [one for one in stored("ResourceClaim").values() if one.get("status")]
    held = [device for one in told for device in devices_of(one["metadata"]["name"])]
    assert len(set(held)) == len(held) == 20
    assert not scheduler.mirror.snapshot.devices.is_taken
    assert not scheduler.mirror.snapshot.devices.in_flight


def test_pods_that_are_confirmed_together_give_up_what_was_assumed():
    offer("n2", "a", "b")
    claim("c1")
    asked = {"requests": {"e.io/g": "1"}, "limits": {"e.io/g": "1"}}
    extended = [{"name": "main", "image": "i", "resources": asked}]
    create_pods([claiming("p1", "c1"), pod_manifest("p2", containers=extended)], now=NOW)
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(NOW.timestamp())
    scheduler.cycle(NOW.timestamp())
    snapshot = scheduler.mirror.snapshot
    keys = [find_pod_id("default", name) for name in ("p1", "p2")]
    assert len(snapshot.devices.in_flight) == 2
    snapshot.confirm_all(keys, snapshot.slots_of(keys), np.zeros(2))
    assert not snapshot.devices.is_taken
    (left,) = snapshot.devices.in_flight.values()
    assert left["metadata"]["name"] == "c1"  # it is not read yet
    scheduler.binder.finish_batch(NOW.timestamp())


# --- the controller -------------------------------------------------------------------------------


def template(name: str) -> None:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    make("ResourceClaimTemplate", "default", name, spec=spec)


def test_claims_of_templates_live_as_long_as_their_pods():
    offer("n2", "b")
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    create_pods([pod_manifest(name, resourceClaims=[entry]) for name in ("p1", "p2")], now=NOW)
    schedule(NOW)
    assert set(nodes_of().values()) == {""}
    resource_claims.follow(NOW)
    resource_claims.follow(NOW)
    assert len(stored("ResourceClaim")) == 2
    for name, pod in stored("Pod").items():
        (told,) = pod["status"]["resourceClaimStatuses"]
        made = stored("ResourceClaim")[told["resourceClaimName"]]
        assert made["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        assert made["metadata"]["name"].startswith(f"{name}-gpu-")
    schedule(NOW)
    first = next(name for name, node in nodes_of().items() if node)
    assert sorted(nodes_of().values()) == ["", "n2"]
    (pod_id,) = (number for number, row in pods_by_id([find_pod_id("default", first)]).items())
    fail_pods([(pod_id, "Gone", "it failed")], now=NOW)
    resource_claims.follow(NOW)
    (left,) = stored("ResourceClaim").values()
    assert not left["metadata"]["name"].startswith(first)
    schedule(NOW)
    assert set(nodes_of().values()) == {"n2"}


def test_one_pod_without_its_template_keeps_no_other_from_its_claim_and_none_is_written_twice():
    template("t")
    entries = [{"name": "gpu", "resourceClaimTemplateName": name} for name in ("t", "none", "t")]
    create_pods([pod_manifest(f"p{n}", resourceClaims=[one]) for n, one in enumerate(entries)],
                now=NOW)  # fmt: skip
    resource_claims.follow(NOW)
    first = stored("ResourceClaim")
    assert sorted(name.partition("-")[0] for name in first) == ["p0", "p2"]
    make("ResourceClaimTemplate", "default", "other", spec={"spec": {}})
    resource_claims.follow(NOW)
    assert stored("ResourceClaim") == first


def test_a_pod_is_not_tried_before_its_claims_are_made():
    """As in kube-scheduler no attempt, no condition and no backoff: PreEnqueue holds it."""
    offer("n2", "b")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    create_pods([pod_manifest("p1", resourceClaims=[entry])], now=NOW)
    scheduler = Scheduler(default_configuration(), lambda: 1)
    scheduler.load(NOW.timestamp())
    pod_id = find_pod_id("default", "p1")
    assert not scheduler.cycle(NOW.timestamp())
    place = scheduler.mirror.queue.place(pod_id)
    assert (place.stage.value, place.rejected_by, place.attempts) == (
        "gated", ("DynamicResources",), 0,
    )  # fmt: skip
    scheduler.binder.write_records(NOW.timestamp())
    assert "conditions" not in stored("Pod")["p1"]["status"]
    template("t")
    resource_claims.follow(NOW)
    scheduler.mirror.refresh(NOW.timestamp())
    while scheduler.cycle(NOW.timestamp()):
        pass
    assert nodes_of() == {"p1": "n2"}
    scheduler.binder.close()


def test_pods_for_which_claims_are_to_be_made_wake_their_controller(
    monkeypatch: pytest.MonkeyPatch,
):
    told: list[set[str]] = []
    monkeypatch.setattr(changes, "announce", lambda revision, kinds, **_: told.append(set(kinds)))
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    create_pods([pod_manifest("p1", resourceClaims=[entry])], now=NOW)
    create_pods([claiming("p2", "c1")], now=NOW)
    assert told == [{"Pod", "ResourceClaimTemplate"}, {"Pod"}]


@pytest.fixture
def whole_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often all claims of a namespace are read."""
    reads: list[str] = []

    def counted(kind: str, namespace: str) -> Any:
        reads.append(namespace)
        return list_page(kind, namespace)

    monkeypatch.setattr(resource_claims, "list_page", counted)
    return reads


def test_a_pass_reads_what_changed_alone(whole_reads: list[str]):
    offer("n1", *"abcd")
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    resource_claims.follow(NOW)
    first = len(whole_reads)
    for turn in range(2):
        create_pods([pod_manifest(f"p{turn}", resourceClaims=[entry])], now=NOW)
        resource_claims.follow(NOW)
    schedule(NOW)
    resource_claims.follow(NOW)
    assert len(whole_reads) == first
    assert len(stored("ResourceClaim")) == 2
    assert set(nodes_of().values()) == {"n1"}


@pytest.mark.parametrize("how", ["named", "extended"])
def test_a_claim_is_free_when_its_pod_is_deleted(how: str, whole_reads: list[str]):
    offer("n2", "a", "b")
    claim("c1")
    asked = {"requests": {"e.io/g": "2"}, "limits": {"e.io/g": "2"}}
    container = {"name": "main", "image": "i", "resources": asked}
    pods = {"named": claiming("p1", "c1"), "extended": pod_manifest("p1", containers=[container])}
    create_pods([pods[how]], now=NOW)
    schedule(NOW)
    resource_claims.follow(NOW)
    first = len(whole_reads)
    held = [one for one in stored("ResourceClaim").values() if one.get("status")]
    (name,) = (one["metadata"]["name"] for one in held)
    objects.delete("Pod", "default", "p1", {"gracePeriodSeconds": 0}, now=NOW)
    resource_claims.follow(NOW)
    freed = stored("ResourceClaim")[name]
    assert not freed.get("status")
    assert "finalizers" not in freed["metadata"]
    assert len(whole_reads) == first


def test_a_claim_of_another_controller_is_used_though_the_pod_lost_its_name():
    """A pod that lacks a claim and is not new may have one that no status names."""
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    create_pods([pod_manifest("p1", resourceClaims=[entry])], now=NOW)
    resource_claims.follow(NOW)
    resource_claims.follow(NOW)
    before = stored("ResourceClaim")

    def forgotten(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "status": {**old["status"], "resourceClaimStatuses": []}}

    objects.update("Pod", "default", "p1", forgotten, now=NOW, subresource="status")
    resource_claims.follow(NOW)
    assert stored("ResourceClaim") == before
    assert stored("Pod")["p1"]["status"]["resourceClaimStatuses"]


@pytest.mark.parametrize("bound_first", [True, False])
def test_a_pod_that_a_client_bound_is_among_the_users_of_its_claim(bound_first: bool):
    """Whether the claim is allocated before or after; rule: controller.go ``syncPod``, v1.36."""
    offer("n1", "a")
    claim("c1")
    create_pods([claiming("p1", "c1")], now=NOW)
    resource_claims.follow(NOW)
    steps = [lambda: bind_to("p1", "n1"), lambda: only_on("c1", "n1")]
    for step in steps if bound_first else reversed(steps):
        step()
        resource_claims.follow(NOW)
    users = stored("ResourceClaim")["c1"]["status"]["reservedFor"]
    assert [one["name"] for one in users] == ["p1"]


def test_a_claim_that_was_deleted_before_its_pod_ran_is_made_again():
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    create_pods([pod_manifest(name, resourceClaims=[entry]) for name in ("p1", "p2")], now=NOW)
    resource_claims.follow(NOW)
    resource_claims.follow(NOW)
    old = stored("Pod")["p1"]["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    objects.delete("ResourceClaim", "default", old, now=NOW)
    resource_claims.follow(NOW)
    (told,) = stored("Pod")["p1"]["status"]["resourceClaimStatuses"]
    assert told["resourceClaimName"] != old
    assert told["resourceClaimName"] in stored("ResourceClaim")
    assert len(stored("ResourceClaim")) == 2


def test_a_claim_that_could_not_be_released_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    offer("n2", "b")
    claim("c1")
    create_pods([claiming("p1", "c1")], now=NOW)
    schedule(NOW)
    resource_claims.follow(NOW)
    fail_pods([(find_pod_id("default", "p1"), "Gone", "it failed")], now=NOW)

    def fails(*of: Any, **options: Any) -> None:
        raise ValueError("not now")

    with monkeypatch.context() as broken:
        broken.setattr(objects, "rewrite_each", fails)
        resource_claims.follow(NOW)
    for seconds, is_held in ((30, True), (61, False)):
        resource_claims.follow(after(seconds))
        assert bool(stored("ResourceClaim")["c1"].get("status")) is is_held


@pytest.mark.django_db(transaction=True)
def test_claims_of_many_pods_are_freed_by_as_many_statements_as_those_of_few():
    offer("n1", *(f"d{number}" for number in range(40)))
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    trips = []
    for turn, many in enumerate((3, 3, 30)):
        names = [f"p{turn}-{number}" for number in range(many)]
        create_pods([pod_manifest(name, resourceClaims=[entry]) for name in names], now=NOW)
        resource_claims.follow(NOW)
        schedule(NOW)
        resource_claims.follow(NOW)
        fail_pods([(find_pod_id("default", one), "Gone", "it failed") for one in names], now=NOW)
        with roundtrips.counted() as counted:
            resource_claims.follow(NOW)
        trips.append(counted.number)
        assert not stored("ResourceClaim")
    assert trips[2] == trips[1]


@pytest.mark.django_db(transaction=True)  # a savepoint would be a statement
def test_claims_of_many_pods_take_as_many_statements_as_those_of_few():
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    trips = []
    for turn, many in enumerate((3, 3, 3, 30)):  # at first something is prepared
        names = [f"p{turn}-{number}" for number in range(many)]
        create_pods([pod_manifest(name, resourceClaims=[entry]) for name in names], now=NOW)
        with roundtrips.counted() as counted:
            resource_claims.follow(NOW)
        trips.append(counted.number)
    assert len(stored("ResourceClaim")) == 39
    assert trips[3] == trips[2]


def test_a_claim_that_cannot_be_stored_keeps_no_other_pod_from_its_own():
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    create_pods([pod_manifest(f"p{n}", resourceClaims=[entry]) for n in range(3)], now=NOW)
    sql.run("SET CONSTRAINTS ALL IMMEDIATE")
    sql.run(
        "ALTER TABLE generic_object ADD CONSTRAINT odd CHECK (name NOT LIKE 'p1-gpu-%%') NOT VALID"
    )
    resource_claims.follow(NOW)
    assert sorted(name[:2] for name in stored("ResourceClaim")) == ["p0", "p2"]
    aside = {(one["involvedObject"]["kind"], one["involvedObject"]["name"])
             for one in stored("Event").values() if one["reason"] == "SetAside"}  # fmt: skip
    assert aside == {("Pod", "p1")}
    count = "SELECT count(*) FROM set_aside WHERE follower = %s"
    assert sql.fetch(count, (resource_claims.NAME,)) == [(1,)]
    sql.run("ALTER TABLE generic_object DROP CONSTRAINT odd")
    make("ResourceClaimTemplate", "default", "other", spec={"spec": {}})  # news of the namespace
    resource_claims.follow(NOW)
    assert sorted(name[:2] for name in stored("ResourceClaim")) == ["p0", "p1", "p2"]
    assert sql.fetch(count, (resource_claims.NAME,)) == [(0,)], "it is set aside no longer"


def test_a_claim_that_a_quota_refused_is_tried_again_and_an_event_says_why():
    hard = {"count/resourceclaims.resource.k8s.io": "0"}
    objects.create("ResourceQuota", "default", {"metadata": {"name": "q"}, "spec": {"hard": hard}},
                   now=NOW)  # fmt: skip
    template("t")
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    create_pods([pod_manifest("p1", resourceClaims=[entry])], now=NOW)
    resource_claims.follow(NOW)
    resource_claims.follow(NOW)
    (told,) = stored("Event").values()
    assert (told["reason"], "exceeded quota: q" in told["message"]) == (
        "FailedResourceClaimCreation", True,
    )  # fmt: skip
    objects.delete("ResourceQuota", "default", "q", now=NOW)
    for seconds, made in ((30, 0), (61, 1)):
        resource_claims.follow(after(seconds))
        assert len(stored("ResourceClaim")) == made


# --- taints of devices ----------------------------------------------------------------------------


def taint_rule(name: str, effect: str, **selector: str) -> None:
    taint = {"key": "e.io/broken", "value": "yes", "effect": effect}
    make("DeviceTaintRule", "", name, spec={"deviceSelector": selector, "taint": taint})


def tolerating(name: str, seconds: int | None) -> None:
    toleration: dict[str, Any] = {"key": "e.io/broken", "operator": "Exists"}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds
    exactly = {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
        "tolerations": [toleration],
    }  # fmt: skip
    make(
        "ResourceClaim", "default", name,
        spec={"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    )  # fmt: skip


def leaving() -> set[str]:
    return {name for name, pod in stored("Pod").items() if pod["metadata"].get("deletionTimestamp")}


def test_pods_leave_devices_with_taints_when_their_tolerations_end():
    """A restart in between loses nothing: when they leave follows from what is stored."""
    offer("n1", "a", "b")
    offer("n2", "c")
    for name, seconds in (("soon", 30), ("never", None)):
        tolerating(name, seconds)
    claim("none")
    create_pods([claiming(f"p-{one}", one) for one in ("soon", "never", "none")], now=NOW)
    schedule(NOW)
    assert all(nodes_of().values())
    device_taints.follow(NOW)
    assert leaving() == set()
    taint_rule("r", "NoExecute", driver="gpu.example.com")
    device_taints.follow(after(1))
    assert leaving() == {"p-none"}
    (condition,) = [
        one for one in stored("Pod")["p-none"]["status"]["conditions"]
        if one["type"] == "DisruptionTarget"
    ]  # fmt: skip
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    device_taints.follow(after(29))
    assert leaving() == {"p-none"}
    device_taints.follow(after(30))
    assert leaving() == {"p-none", "p-soon"}
    device_taints.follow(after(9999))
    assert leaving() == {"p-none", "p-soon"}


def test_a_pod_leaves_a_device_that_serves_its_extended_resource():
    offer("n1", "a")
    asked = {"requests": {"e.io/g": "1"}, "limits": {"e.io/g": "1"}}
    containers = [{"name": "main", "image": "i", "resources": asked}]
    create_pods([pod_manifest("p", containers=containers)], now=NOW)
    schedule(NOW)
    assert nodes_of() == {"p": "n1"}
    make("DeviceTaintRule", "", "of-none", spec={"taint": {"key": "e.io/x", "effect": "NoExecute"}})
    device_taints.follow(after(1))
    assert leaving() == set(), "a rule without a selector taints no device"
    taint_rule("r", "NoExecute", device="a")
    device_taints.follow(after(2))
    assert leaving() == {"p"}


def test_a_rule_that_goes_in_time_keeps_the_pod():
    offer("n1", "a")
    tolerating("c", 30)
    create_pods([claiming("p", "c")], now=NOW)
    schedule(NOW)
    taint_rule("r", "NoExecute", device="a")
    device_taints.follow(after(1))
    objects.delete("DeviceTaintRule", "", "r", now=after(2))
    device_taints.follow(after(40))
    assert leaving() == set()


def test_a_slice_whose_taint_says_no_time_is_tainted_from_then_on():
    offer("n1", "a")
    claim("c")
    create_pods([claiming("p", "c")], now=NOW)
    schedule(NOW)

    def tainted(old: dict[str, Any]) -> dict[str, Any]:
        device = {"name": "a", "taints": [{"key": "k", "effect": "NoExecute"}]}
        return {**old, "spec": {**old["spec"], "devices": [device]}}

    objects.update("ResourceSlice", "", "slice-n1", tainted, now=after(5))
    (device,) = stored("ResourceSlice")["slice-n1"]["spec"]["devices"]
    assert device["taints"][0]["timeAdded"] == after(5).strftime("%Y-%m-%dT%H:%M:%SZ")
    device_taints.follow(after(5))
    assert leaving() == {"p"}


def test_nobody_gets_a_device_that_a_rule_taints_until_the_rule_goes():
    offer("n1", "a")
    claim("c")
    taint_rule("r", "NoSchedule", pool="n1")
    create_pods([claiming("p", "c")], now=NOW)
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(NOW.timestamp())

    def cycle(seconds: float) -> dict[str, str]:
        now = after(seconds).timestamp()
        scheduler.cycle(now)
        scheduler.binder.finish_batch(now)
        return nodes_of()

    assert cycle(0) == {"p": ""}
    objects.delete("DeviceTaintRule", "", "r", now=after(30))
    assert cycle(60) == {"p": "n1"}
