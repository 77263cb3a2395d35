"""ResourceQuotas: nothing is stored beyond them, and their status is exact."""

from typing import Any

import pytest

from clusterstate import catalogue
from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.cluster.collection import delete_collection
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.pods.status import fail_pods
from clusterstate.actions.writing import quotas
from clusterstate.actions.writing.transactions import rehearsal
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.rules.usage import UNCOUNTED
from clusterstate.objects.values.errors import AlreadyExists, Forbidden, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, get_manifest
from scheduling.controllers import quotas as controller
from tests import roundtrips
from tests.clusterstate.support import LATER, NOW
from tests.creating import create_pod

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)


def quota(hard: dict[str, Any], name: str = "q", namespace: str = "team", **spec: Any) -> Manifest:
    manifest = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    stored = objects.create("ResourceQuota", namespace, manifest, now=NOW)
    return decode_object(stored.manifest)


def used(name: str = "q", namespace: str = "team") -> dict[str, str]:
    status = get_manifest("ResourceQuota", namespace, name)["status"]
    amounts: dict[str, str] = status["used"]
    return amounts


def manifest(name: str, spec: Manifest | None = None, **resources: Any) -> Manifest:
    containers = [{"name": "main", "image": "i", "resources": resources}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **(spec or {})}}


def pod(name: str, spec: Manifest | None = None, namespace: str = "team", **asks: Any) -> int:
    requests = {"requests": {key.replace("_", "-"): value for key, value in asks.items()}}
    create_pod(manifest(name, spec, **(requests if asks else {})), namespace=namespace, now=NOW)
    row = sql.fetch_one("SELECT id FROM pod WHERE namespace = %s AND name = %s", (namespace, name))
    assert row is not None
    return int(row[0])


def delete(kind: str, name: str, namespace: str = "team", **options: Any) -> None:
    objects.delete(kind, namespace, name, options, now=NOW)


def settled() -> dict[str, str]:
    controller.settle(LATER)
    assert quotas.wrong_accounts("team") == []
    return used()


def test_a_quota_counts_what_is_there_already() -> None:
    pod("one", cpu="250m", memory="1Gi")
    pod("two", cpu="1", memory="512Mi")
    made = quota({"pods": 5, "requests.cpu": "2", "memory": "2Gi", "services": "1"})
    assert made["status"] == {
        "hard": {"pods": "5", "requests.cpu": "2", "memory": "2Gi", "services": "1"},
        "used": {"pods": "2", "requests.cpu": "1250m", "memory": "1536Mi", "services": "0"},
    }
    assert get_manifest("ResourceQuota", "team", "q") == made


def test_what_does_not_fit_is_refused_in_kubernetes_words() -> None:
    quota({"cpu": "3"})
    for name in ("a", "b", "c"):
        pod(name, cpu="1")
    with pytest.raises(Forbidden) as refused:
        pod("x", cpu="1")
    assert refused.value.message == (
        'pods "x" is forbidden: exceeded quota: q, requested: cpu=1, used: cpu=3, limited: cpu=3'
    )
    assert used() == {"cpu": "3"}


def test_what_a_quota_limits_must_be_stated() -> None:
    quota({"limits.cpu": "3", "requests.memory": "1Gi"})
    with pytest.raises(Forbidden) as refused:
        create_pod(
            manifest(
                "x", {"initContainers": [{"name": "init", "image": "i"}]}, limits={"cpu": "1"}
            ),
            namespace="team",
            now=NOW,
        )
    assert refused.value.message == (
        'pods "x" is forbidden: failed quota: q: must specify limits.cpu for: init;'
        " requests.memory for: init,main"
    )


def test_a_list_is_created_wholly_or_not_at_all() -> None:
    quota({"pods": "3"})
    pods = [manifest(name) for name in ("a", "b", "c", "d")]
    with pytest.raises(Forbidden, match='pods "d" is forbidden: exceeded quota: q'):
        create_pods(pods, namespace="team", now=NOW)
    assert used() == {"pods": "0"}
    create_pods(pods[:3], namespace="team", now=NOW)
    assert used() == {"pods": "3"}


def test_in_a_batch_each_has_its_own_answer() -> None:
    quota({"pods": "3"})
    pod("taken")
    pods = [manifest(name) for name in ("a", "taken", "b", "c")]
    results = create_pods(pods, namespace="team", now=NOW, all_or_nothing=False)
    assert [getattr(result, "reason", "") for result in results] == [
        "", "AlreadyExists", "Forbidden", "Forbidden",
    ]  # fmt: skip
    assert used() == {"pods": "2"}
    assert settled() == {"pods": "2"}


def test_a_rehearsal_charges_nothing_and_is_refused_alike() -> None:
    quota({"pods": "1"})
    with rehearsal():
        create_pod(manifest("a"), namespace="team", now=NOW)
    assert used() == {"pods": "0"}
    pod("a")
    with pytest.raises(Forbidden), rehearsal():
        create_pod(manifest("b"), namespace="team", now=NOW)


@pytest.mark.parametrize("end", ["deleted", "evicted", "failed", "collection", "statement"])
def test_room_comes_back_at_once_whichever_way_a_pod_ends(end: str) -> None:
    quota({"pods": "1", "count/pods": "2", "cpu": "1"})
    pod_id = pod("a", cpu="1")
    with pytest.raises(Forbidden):
        pod("b", cpu="1")
    if end == "deleted":
        delete("Pod", "a")
    elif end == "evicted":
        evict_pod("team", "a", {}, now=NOW)
    elif end == "failed":
        fail_pods([(pod_id, "Why", "because")], now=NOW)
    elif end == "collection":
        assert delete_collection("Pod", "team", now=NOW) == 1
    else:
        sql.run("DELETE FROM pod WHERE name = 'a'")
    pod("b", cpu="1")
    kept = "2" if end == "failed" else "1"
    assert used() == {"pods": "1", "count/pods": kept, "cpu": "1"}


def test_the_controller_shows_what_ended_where_nothing_is_created() -> None:
    quota({"pods": "5", "services": "5"})
    pod("a")
    objects.create("Service", "team", service("s"), now=NOW)
    assert used() == {"pods": "1", "services": "1"}
    delete("Pod", "a")
    delete("Service", "s")
    assert settled() == {"pods": "0", "services": "0"}
    assert sql.fetch("SELECT 1 FROM usage_change") == []


def service(name: str, **spec: Any) -> Manifest:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_services_are_counted_by_what_they_take() -> None:
    hard = {"services": "3", "services.nodeports": "2", "services.loadbalancers": "1"}
    quota(hard)
    two = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    objects.create("Service", "team", service("s"), now=NOW)
    objects.create("Service", "team", service("n", type="NodePort", ports=two), now=NOW)
    assert used() == {"services": "2", "services.nodeports": "2", "services.loadbalancers": "0"}

    def typed(type_: str) -> Any:
        return lambda m: {**m, "spec": {**m["spec"], "type": type_}}

    with pytest.raises(Forbidden, match='services "s" is forbidden: exceeded quota: q'):
        objects.update("Service", "team", "s", typed("NodePort"), now=NOW)
    objects.update("Service", "team", "n", typed("ClusterIP"), now=NOW)
    objects.update("Service", "team", "s", typed("LoadBalancer"), now=NOW)
    assert used() == {"services": "2", "services.nodeports": "1", "services.loadbalancers": "1"}
    delete("Service", "s")
    assert settled() == {
        "services": "1", "services.nodeports": "0", "services.loadbalancers": "0",
    }  # fmt: skip


def test_objects_of_every_kind_can_be_counted() -> None:
    counted = [kind for kind in ALL_KINDS if kind.namespaced and kind.name not in UNCOUNTED]
    made = quota({f"count/{kind.resource}": "0" for kind in counted if kind.name != "Pod"})
    assert made["status"]["used"] == {
        f"count/{kind.resource}": "1" if kind.name == "ResourceQuota" else "0"
        for kind in counted
        if kind.name != "Pod"
    }
    with pytest.raises(Forbidden, match=r"requested: count/leases\.coordination"):
        objects.create("Lease", "team", {"metadata": {"name": "x"}, "spec": {}}, now=NOW)
    with pytest.raises(Forbidden, match="exceeded quota: q, requested: count/resourcequotas=1"):
        quota({"pods": "1"}, name="second")


def test_quotas_of_a_namespace_are_charged_together_or_not_at_all() -> None:
    quota({"cpu": "4"}, name="a")
    quota({"pods": "1"}, name="b")
    pod("one", cpu="1")
    with pytest.raises(Forbidden, match="exceeded quota: b"):
        pod("two", cpu="1")
    assert (used("a"), used("b")) == ({"cpu": "1"}, {"pods": "1"})


def test_scopes_choose_the_pods() -> None:
    spec = {"value": 7, "metadata": {"name": "high"}}
    objects.create("PriorityClass", "", spec, now=NOW)
    quota({"pods": "9"}, name="terminating", scopes=["Terminating"])
    quota({"pods": "9"}, name="lasting", scopes=["NotTerminating"])
    quota({"pods": "9"}, name="best", scopes=["BestEffort"])
    quota({"pods": "9"}, name="better", scopes=["NotBestEffort"])
    high = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    quota({"pods": "9"}, name="high", scopeSelector={"matchExpressions": [high]})
    cross = {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}
    quota({"pods": "0"}, name="cross", scopeSelector={"matchExpressions": [cross]})
    names = ("terminating", "lasting", "best", "better", "high", "cross")

    def counts() -> list[str]:
        return [used(name)["pods"] for name in names]

    pod("a", {"activeDeadlineSeconds": 60, "priorityClassName": "high"})
    assert counts() == ["1", "0", "1", "0", "1", "0"]
    pod("b", cpu="1")
    assert counts() == ["1", "1", "1", "1", "1", "0"]
    term = {"topologyKey": "zone", "namespaces": ["x"], "labelSelector": {}}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    with pytest.raises(Forbidden, match="exceeded quota: cross"):
        pod("c", {"affinity": {"podAffinity": rule}})
    delete("Pod", "a")
    controller.settle(LATER)
    assert counts() == ["0", "1", "0", "1", "0", "0"]
    assert quotas.wrong_accounts("team") == []

    def hurried(stored: Manifest) -> Manifest:
        return {**stored, "spec": {**stored["spec"], "activeDeadlineSeconds": 60}}

    objects.update("Pod", "team", "b", hurried, now=NOW)
    controller.settle(LATER)
    assert counts() == ["1", "0", "0", "1", "0", "0"]
    assert quotas.wrong_accounts("team") == []


def test_a_pod_that_gets_a_deadline_must_fit_among_those_that_have_one() -> None:
    quota({"pods": "0"}, scopes=["Terminating"])
    pod("a")

    def hurried(stored: Manifest) -> Manifest:
        labels = {"labels": {"x": "y"}}
        return {
            **stored,
            "metadata": {**stored["metadata"], **labels},
            "spec": {**stored["spec"], "activeDeadlineSeconds": 60},
        }

    with pytest.raises(Forbidden, match='pods "a" is forbidden: exceeded quota: q'):
        objects.update("Pod", "team", "a", hurried, now=NOW)

    def allow(stored: Manifest) -> Manifest:
        return {**stored, "spec": {**stored["spec"], "hard": {"pods": "1"}}}

    objects.update("ResourceQuota", "team", "q", allow, now=NOW)
    objects.update("Pod", "team", "a", hurried, now=NOW)
    assert settled() == {"pods": "1"}


def test_a_changed_quota_is_counted_again_and_never_takes_anything_away() -> None:
    quota({"pods": "5"})
    pod("a", cpu="1")
    pod("b", cpu="2")

    def other(stored: Manifest) -> Manifest:
        return {**stored, "spec": {"hard": {"requests.cpu": "1", "pods": "2"}}}

    stored = objects.update("ResourceQuota", "team", "q", other, now=NOW)
    status = decode_object(stored.manifest)["status"]
    assert status["used"] == {"requests.cpu": "3", "pods": "2"}
    delete("Pod", "b")
    with pytest.raises(Forbidden, match=r"used: requests\.cpu=1, limited: requests\.cpu=1"):
        create_pods([manifest("c", requests={"cpu": "1"}), manifest("d", requests={"cpu": "1"})],
                    namespace="team", now=NOW)  # fmt: skip


def test_overhead_counts() -> None:
    """R140."""
    runtime_class = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
    }
    objects.create("RuntimeClass", "", runtime_class, now=NOW)
    quota({"requests.cpu": "1", "requests.memory": "1Gi", "limits.cpu": "4"})
    asks = {"requests": {"cpu": "500m", "memory": "100Mi"}, "limits": {"cpu": "1"}}
    create_pod(manifest("a", {"runtimeClassName": "kata"}, **asks), namespace="team", now=NOW)
    assert used() == {"requests.cpu": "750m", "requests.memory": "220Mi", "limits.cpu": "1250m"}
    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: requests\.cpu=750m"):
        create_pod(manifest("b", {"runtimeClassName": "kata"}, **asks), namespace="team", now=NOW)


def test_extended_resources_and_storage_count() -> None:
    hard = {"requests.example.com/gpu": "2", "requests.ephemeral-storage": "1Gi"}
    quota(hard)
    asks = {"example.com/gpu": "1", "ephemeral-storage": "100Mi"}
    create_pod(manifest("a", requests=asks, limits=asks), namespace="team", now=NOW)
    assert used() == {"requests.example.com/gpu": "1", "requests.ephemeral-storage": "100Mi"}


def test_what_nothing_counts_has_no_usage() -> None:
    hard = {"count/widgets.example.com": "1", "count/events": "5", "pods": "1"}
    manifest = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    stored = objects.create("ResourceQuota", "team", manifest, now=NOW)
    assert used() == {"pods": "0"}
    assert stored.warnings == [
        f"spec.hard[{name}]: this service does not count this resource, so it is not limited"
        for name in ("count/events", "count/widgets.example.com")
    ]


def test_other_namespaces_are_not_charged_and_a_deleted_quota_holds_no_longer() -> None:
    quota({"pods": "0"})
    pod("elsewhere", namespace="kube-public")
    delete("ResourceQuota", "q")
    pod("free")
    delete("Pod", "free")
    controller.settle(LATER)
    assert sql.fetch("SELECT 1 FROM usage_change") == []


def test_clients_cannot_write_what_is_used() -> None:
    quota({"pods": "2"})
    pod("a")

    def lied(stored: Manifest) -> Manifest:
        return {**stored, "status": {"hard": {"pods": "9"}, "used": {"pods": "0"}}}

    objects.update("ResourceQuota", "team", "q", lied, now=NOW, subresource="status")
    status = get_manifest("ResourceQuota", "team", "q")["status"]
    assert status == {"hard": {"pods": "9"}, "used": {"pods": "1"}}
    controller.settle(LATER)
    status = get_manifest("ResourceQuota", "team", "q")["status"]
    assert status == {"hard": {"pods": "2"}, "used": {"pods": "1"}}


def test_a_quota_that_was_never_counted_refuses_until_it_is() -> None:
    quota({"pods": "2"})
    sql.run("DELETE FROM usage_change")
    row = sql.fetch_one("SELECT document_id FROM resource_quota")
    assert row is not None
    sql.run(
        "UPDATE document SET text = regexp_replace(text, ',\"status\":.*', '}') WHERE id = %s", row
    )
    with pytest.raises(Forbidden, match="status unknown for quota: q, resources: pods"):
        pod("a")
    quotas.count_again("team")
    controller.settle(LATER)
    pod("a")
    assert used() == {"pods": "1"}


def test_a_quota_that_this_process_does_not_know_of_yet_holds() -> None:
    """The catalogue of this process is older than the quota: it is read again."""
    known = catalogue.current()
    quota({"pods": "0"})
    catalogue._memory.catalogue = known
    with pytest.raises(Forbidden, match="exceeded quota"):
        pod("a")
    catalogue._memory.catalogue = known
    with pytest.raises(StatusError, match="exceeded quota"):
        create_pods([manifest("b")], namespace="team", now=NOW)


def test_every_table_notes_what_is_removed_from_it() -> None:
    rows = sql.fetch("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE '%%usage%%'")
    noting = {row[0] for row in rows}
    counted = {kind.table for kind in ALL_KINDS if kind.namespaced and kind.name not in UNCOUNTED}
    assert counted <= noting


def test_triggers_and_actions_agree_on_the_lock_and_the_codes() -> None:
    source = sql.fetch("SELECT prosrc FROM pg_proc WHERE proname = 'quota_lock'")[0][0]
    (key,) = sql.fetch(f"SELECT {source.split('shared(', 1)[1].rsplit(')', 1)[0]}")[0]
    assert key == locks.QUOTAS
    rows = sql.fetch(
        "SELECT tgrelid::regclass::text, encode(tgargs, 'escape') FROM pg_trigger"
        " WHERE tgname LIKE '%%usage_removed' AND tgnargs = 1"
    )
    codes = {kind.table: kind.code for kind in ALL_KINDS}
    assert rows
    assert all(codes[table] == int(argument.removesuffix("\\000")) for table, argument in rows)


def created(*names: str, namespace: str = "team") -> list[str]:
    """Create pods as one list; return how each ended."""
    wanted = [manifest(name, requests={"cpu": "1"}) for name in names]
    results = create_pods(wanted, namespace=namespace, now=NOW, all_or_nothing=False)
    return [type(one).__name__ for one in results]


def test_a_charged_creation_waits_for_the_database_three_times() -> None:
    """Once for the books, once for its rows and the statuses together, once for the commit."""
    quota({"pods": "10", "count/configmaps": "10"})
    quota({"requests.cpu": "10"}, name="second")
    created("first")  # whose scheduling class is known then
    with roundtrips.counted() as trips:
        assert created("second", "third") == ["StoredObject", "StoredObject"]
    assert trips.number == 3
    with roundtrips.counted() as trips:
        objects.create("ConfigMap", "team", {"metadata": {"name": "one"}}, now=NOW)
    assert trips.number == 3
    with roundtrips.counted() as trips:
        assert created("free", namespace="default") == ["StoredObject"]
    assert trips.number == 1
    assert used() == {"pods": "3", "count/configmaps": "1"}
    assert quotas.wrong_accounts("team") == []


def test_a_taken_name_is_charged_to_nobody() -> None:
    quota({"pods": "10", "count/configmaps": "10"})
    assert created("a", "b", "a") == ["StoredObject", "StoredObject", "AlreadyExists"]
    assert created("b", "c") == ["AlreadyExists", "StoredObject"]
    objects.create("ConfigMap", "team", {"metadata": {"name": "one"}}, now=NOW)
    with pytest.raises(AlreadyExists):
        objects.create("ConfigMap", "team", {"metadata": {"name": "one"}}, now=NOW)
    with pytest.raises(AlreadyExists):
        pod("a")
    assert used() == {"pods": "3", "count/configmaps": "1"}
    assert quotas.wrong_accounts("team") == []


def claim(name: str, *requests: Manifest) -> Manifest:
    listed = [{"name": f"r{number}", **one} for number, one in enumerate(requests)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": listed}}}


def test_devices_of_a_class_are_counted_by_what_claims_may_come_to() -> None:
    gpus, nics = (f"{name}.deviceclass.resource.k8s.io/devices" for name in ("gpu", "nic"))
    quota({gpus: "40", nics: "4", "count/resourceclaims.resource.k8s.io": "9"})
    gpu, nic = {"deviceClassName": "gpu"}, {"deviceClassName": "nic"}
    either = [
        {"name": "a", **gpu, "count": 2, "allocationMode": "ExactCount"},
        {"name": "b", **gpu, "count": 3, "allocationMode": "ExactCount"},
        {"name": "c", **nic, "count": 4, "allocationMode": "ExactCount"},
    ]
    every = claim("all", {"exactly": {**gpu, "allocationMode": "All"}})
    objects.create("ResourceClaim", "team", every, now=NOW)
    mixed = claim("mixed", {"exactly": gpu}, {"firstAvailable": either})
    objects.create("ResourceClaim", "team", mixed, now=NOW)
    counted = {gpus: "36", nics: "4", "count/resourceclaims.resource.k8s.io": "2"}
    assert used() == counted
    with pytest.raises(Forbidden, match=f"exceeded quota: q, requested: {nics}=1, used: {nics}=4"):
        objects.create("ResourceClaim", "team", claim("more", {"exactly": nic}), now=NOW)
    assert used() == counted
    delete("ResourceClaim", "all")
    assert settled() == {gpus: "4", nics: "4", "count/resourceclaims.resource.k8s.io": "1"}


BY_CLASS, BY_RESOURCE = (
    "requests.deviceclass.resource.kubernetes.io/gpu",
    "requests.example.com/gpu",
)
BY_CLAIMS = "gpu.deviceclass.resource.k8s.io/devices"


def device_class(name: str, resource: str = "") -> Manifest:
    spec = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": name}, "spec": spec}


def known_as(resource: str) -> None:
    objects.update(
        "DeviceClass",
        "",
        "gpu",
        lambda stored: {**stored, "spec": {"extendedResourceName": resource}},
        now=NOW,
    )


def asks(count: int) -> Manifest:
    return {"exactly": {"deviceClassName": "gpu", "count": count}}


def test_devices_count_under_each_name_of_their_class() -> None:
    """Rule: evaluator/core/resource_claims.go and pods.go, v1.36."""
    objects.create("DeviceClass", "", device_class("gpu", "example.com/gpu"), now=NOW)
    quota({BY_CLASS: "6", BY_RESOURCE: "6", BY_CLAIMS: "9"})
    objects.create("ResourceClaim", "team", claim("three", asks(3)), now=NOW)
    assert used() == {BY_CLASS: "3", BY_RESOURCE: "3", BY_CLAIMS: "3"}
    # A pod counts for what it names alone; the scheduler's claim for it does the rest.
    by_class = BY_CLASS.removeprefix("requests.")
    pod("by-class", **{by_class: "1"})
    create_pod(
        manifest("by-resource", requests={"example.com/gpu": 2}, limits={"example.com/gpu": 2}),
        namespace="team",
        now=NOW,
    )
    assert used() == {BY_CLASS: "4", BY_RESOURCE: "5", BY_CLAIMS: "3"}
    made = claim("made", asks(2))
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "by-resource",
        "uid": "u",
        "controller": True,
    }
    made["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    objects.create("ResourceClaim", "team", made, now=NOW)
    assert used() == {BY_CLASS: "6", BY_RESOURCE: "5", BY_CLAIMS: "5"}
    with pytest.raises(Forbidden, match=f"requested: {BY_CLASS}=1, used: {BY_CLASS}=6"):
        pod("more", **{by_class: "1"})
    with pytest.raises(Forbidden, match=f"{BY_RESOURCE}=2, used: {BY_CLASS}=6,{BY_RESOURCE}=5"):
        objects.create("ResourceClaim", "team", claim("more", asks(2)), now=NOW)
    assert quotas.wrong_accounts("team") == []
    delete("ResourceClaim", "three")
    assert settled() == {BY_CLASS: "3", BY_RESOURCE: "2", BY_CLAIMS: "2"}
    delete("Pod", "by-resource", gracePeriodSeconds=0)
    delete("ResourceClaim", "made")
    assert settled() == {BY_CLASS: "1", BY_RESOURCE: "0", BY_CLAIMS: "0"}


@pytest.mark.parametrize("first", ["class", "claim", "quota"])
def test_claims_count_by_the_name_that_their_class_has_now(first: str) -> None:
    makers = {
        "class": lambda: objects.create("DeviceClass", "", device_class("gpu"), now=NOW),
        "claim": lambda: objects.create("ResourceClaim", "team", claim("two", asks(2)), now=NOW),
        "quota": lambda: quota({BY_RESOURCE: "9", "requests.other.com/gpu": "9"}),
    }
    for name in sorted(makers, key=lambda one: one != first):
        makers[name]()
    nothing = {BY_RESOURCE: "0", "requests.other.com/gpu": "0"}
    assert settled() == nothing
    known_as("example.com/gpu")
    assert settled() == nothing | {BY_RESOURCE: "2"}
    known_as("other.com/gpu")
    objects.create("ResourceClaim", "team", claim("one", asks(1)), now=NOW)  # not counted again yet
    assert settled() == nothing | {"requests.other.com/gpu": "3"}
    delete("ResourceClaim", "one")
    delete("DeviceClass", "gpu", namespace="")
    assert settled() == nothing
    objects.create("DeviceClass", "", device_class("gpu", "example.com/gpu"), now=NOW)
    assert settled() == nothing | {BY_RESOURCE: "2"}


def test_classes_of_one_name_count_together_and_alternatives_once() -> None:
    for name in ("gpu", "half"):
        objects.create("DeviceClass", "", device_class(name, "example.com/gpu"), now=NOW)
    quota({BY_CLASS: "9", BY_RESOURCE: "9"})
    either = [
        {"name": name, "deviceClassName": "gpu", "count": count, "allocationMode": "ExactCount"}
        for name, count in (("a", 1), ("b", 3))
    ]
    half = {"exactly": {"deviceClassName": "half", "count": 2}}
    mixed = claim("mixed", {"firstAvailable": either}, half)
    objects.create("ResourceClaim", "team", mixed, now=NOW)
    assert used() == {BY_CLASS: "3", BY_RESOURCE: "5"}


# Resizes: test/e2e/node/pod_resize.go, v1.36 --------------------------------------------------


def resize(name: str, cpu: str, memory: str) -> None:
    amounts = {"cpu": cpu, "memory": memory}

    def change(stored: Manifest) -> Manifest:
        container = {**stored["spec"]["containers"][0], "resources": {"requests": amounts}}
        return {**stored, "spec": {**stored["spec"], "containers": [container]}}

    objects.update("Pod", "team", name, change, now=NOW, subresource="resize")


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        ("600m", "400Mi", "requested: cpu=300m, used: cpu=600m, limited: cpu=800m"),
        ("250m", "750Mi", "requested: memory=450Mi, used: memory=600Mi, limited: memory=800Mi"),
        (
            "600m",
            "750Mi",
            (
                "requested: cpu=300m,memory=450Mi, used: cpu=600m,memory=600Mi,"
                " limited: cpu=800m,memory=800Mi"
            ),
        ),
    ],
)
def test_a_resize_beyond_the_quota_is_refused(cpu: str, memory: str, expected: str) -> None:
    quota({"cpu": "800m", "memory": "800Mi"})
    pod("one", cpu="300m", memory="300Mi")
    pod("other", cpu="300m", memory="300Mi")
    with pytest.raises(Forbidden, match=f"exceeded quota: q, {expected}"):
        resize("one", cpu, memory)
    assert used() == {"cpu": "600m", "memory": "600Mi"}


@pytest.mark.parametrize(
    ("cpu", "memory", "after"),
    [
        ("350m", "300Mi", {"cpu": "650m", "memory": "600Mi"}),
        ("500m", "500Mi", {"cpu": "800m", "memory": "800Mi"}),
        ("100m", "100Mi", {"cpu": "400m", "memory": "400Mi"}),
    ],
)
def test_a_quota_counts_what_a_resized_pod_asks_for(
    cpu: str, memory: str, after: dict[str, str]
) -> None:
    quota({"cpu": "800m", "memory": "800Mi"})
    pod("one", cpu="300m", memory="300Mi")
    pod("other", cpu="300m", memory="300Mi")
    resize("one", cpu, memory)
    quotas.settle("team", now=NOW)
    assert used() == after
    assert quotas.wrong_accounts("team") == []
    resize("one", "300m", "300Mi")
    with pytest.raises(Forbidden):
        pod("third", cpu="300m", memory="100Mi")
    quotas.settle("team", now=NOW)
    assert used() == {"cpu": "600m", "memory": "600Mi"}


def test_a_resize_that_waits_counts_for_the_most_of_what_it_has_and_wants() -> None:
    status = {"allocatable": {"cpu": "500m", "memory": "1Gi", "pods": "10"}}
    objects.create("Node", "", {"metadata": {"name": "n"}, "status": status}, now=NOW)
    quota({"cpu": "1", "memory": "1Gi"})
    pod("one", {"nodeName": "n"}, cpu="200m", memory="300Mi")
    pod("other", {"nodeName": "n"}, cpu="200m", memory="300Mi")
    resize("one", "400m", "100Mi")
    quotas.settle("team", now=NOW)
    assert used() == {"cpu": "600m", "memory": "600Mi"}
    assert quotas.wrong_accounts("team") == []


def test_a_finished_pod_is_resized_beyond_any_quota() -> None:
    quota({"cpu": "800m", "memory": "800Mi"})
    fail_pods([(pod("one", cpu="300m", memory="300Mi"), "Gone", "")], now=NOW)
    resize("one", "2", "2Gi")
    quotas.settle("team", now=NOW)
    assert used() == {"cpu": "0", "memory": "0"}
