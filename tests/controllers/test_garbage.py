"""What deleting an owner means for what it owned: Background, Foreground, Orphan."""

import json
from typing import Any

import pytest
from django.db import OperationalError, transaction

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import bind_pod
from clusterstate.actions.pods.create import create_pods
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.health import aside
from clusterstate.objects.values.errors import NotFound
from clusterstate.processes import memory
from clusterstate.queries.loops.controllers import pending_work
from clusterstate.queries.objects import decode_object, dependents, find_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import garbage, manager
from scheduling.controllers.workloads import follower as workloads
from tests.controllers.support import NOW, after, make_node, make_owner, make_pod, pod_manifest
from tests.creating import create_pod
from tests.forms import few
from tests.roundtrips import counted

pytestmark = pytest.mark.django_db

WORKLOADS = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet")


def settle(rounds=6):
    for _ in range(rounds):
        workloads.follow(NOW)
        garbage.follow(NOW)


def exists(kind, name, namespace="default"):
    return find_object(kind, namespace if kind != "Node" else "", name) is not None


def get(kind, name, namespace="default"):
    return get_manifest(kind, namespace if kind != "Node" else "", name)


def names(kind):
    found = [decode_object(item) for item in list_page(kind, "default").items]
    return sorted(one["metadata"]["name"] for one in found)


def delete(kind, name, policy=None, **options):
    if policy:
        options["propagationPolicy"] = policy
    return objects.delete(kind, "" if kind == "Node" else "default", name, options, now=NOW)


def reference(kind, name, *, uid=None, controller=True, blocks=True):
    versions = {"Pod": "v1", "Node": "v1", "ReplicationController": "v1", "Service": "v1"}
    return {
        "apiVersion": versions.get(kind, "apps/v1"),
        "kind": kind,
        "name": name,
        "uid": uid or get(kind, name)["metadata"]["uid"],
        "controller": controller,
        "blockOwnerDeletion": blocks,
    }


def workload(kind, name="web", **metadata: Any):
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
    }
    core = kind == "ReplicationController"
    spec: dict[str, Any] = {"template": template}
    spec["selector"] = labels if core else {"matchLabels": labels}
    if kind == "StatefulSet":
        spec["serviceName"] = "s"
    if kind != "DaemonSet":
        spec["replicas"] = 0
    manifest = {
        "apiVersion": "v1" if core else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": spec,
    }
    objects.create(kind, "default", manifest, now=NOW)


def owned_pod(name, *refs, **metadata):
    create_pod(pod_manifest(name, metadata={"ownerReferences": list(refs), **metadata}), now=NOW)


def owners(kind, name):
    return [one["name"] for one in get(kind, name)["metadata"].get("ownerReferences", ())]


def finalizers(kind, name):
    return get(kind, name)["metadata"].get("finalizers", [])


# Policies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WORKLOADS)
def test_in_the_background_the_owner_goes_first(kind):
    workload(kind)
    owned_pod("p", reference(kind, "web"))
    garbage.follow(NOW)
    assert delete(kind, "web", "Background").gone
    assert exists("Pod", "p")
    garbage.follow(NOW)
    assert not exists("Pod", "p")


@pytest.mark.parametrize("kind", WORKLOADS)
def test_orphans_stay_and_nobody_owns_them(kind):
    """kubectl delete --cascade=orphan."""
    workload(kind)
    owned_pod("p", reference(kind, "web"))
    garbage.follow(NOW)
    assert not delete(kind, "web", "Orphan").gone
    assert finalizers(kind, "web") == ["orphan"]
    assert get(kind, "web")["metadata"]["deletionTimestamp"]
    settle()
    assert not exists(kind, "web")
    assert exists("Pod", "p")
    assert owners("Pod", "p") == []
    assert "deletionTimestamp" not in get("Pod", "p")["metadata"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_in_the_foreground_the_owner_goes_last(kind):
    workload(kind)
    make_node("n1")
    owned_pod("p", reference(kind, "web"))
    bind_pod("default", "p", "n1", now=NOW)
    assert not delete(kind, "web", "Foreground").gone
    assert finalizers(kind, "web") == ["foregroundDeletion"]
    garbage.follow(NOW)
    assert get("Pod", "p")["metadata"]["deletionTimestamp"]
    garbage.follow(NOW)
    assert exists(kind, "web"), "its pod is still ending"
    delete("Pod", "p", gracePeriodSeconds=0)
    garbage.follow(NOW)
    assert not exists(kind, "web")


def test_a_dependent_that_does_not_block_is_not_waited_for():
    workload("ReplicaSet")
    make_node("n1")
    owned_pod("p", reference("ReplicaSet", "web", blocks=False))
    bind_pod("default", "p", "n1", now=NOW)
    delete("ReplicaSet", "web", "Foreground")
    garbage.follow(NOW)
    assert not exists("ReplicaSet", "web")
    assert get("Pod", "p")["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("kind", "stays"), [(kind, kind == "ReplicationController") for kind in WORKLOADS]
)
def test_who_says_nothing_gets_what_the_kind_always_did(kind, stays):
    """Replication controllers of core/v1 leave their pods; all others take theirs along."""
    workload(kind)
    owned_pod("p", reference(kind, "web"))
    delete(kind, "web")
    settle()
    assert not exists(kind, "web")
    assert exists("Pod", "p") == stays


def test_a_finalizer_that_is_there_decides_and_an_option_decides_over_it():
    """Rule: shouldOrphanDependents."""
    for name, policy, stays in (("a", None, True), ("b", "Background", False)):
        workload("ReplicaSet", name, finalizers=["orphan"])
        owned_pod(f"of-{name}", reference("ReplicaSet", name))
        delete("ReplicaSet", name, policy)
        settle()
        assert not exists("ReplicaSet", name)
        assert exists("Pod", f"of-{name}") == stays


def test_a_second_deletion_may_change_its_mind():
    workload("ReplicaSet", finalizers=["example.com/mine"])
    delete("ReplicaSet", "web", "Foreground")
    assert finalizers("ReplicaSet", "web") == ["example.com/mine", "foregroundDeletion"]
    delete("ReplicaSet", "web", "Orphan")
    assert finalizers("ReplicaSet", "web") == ["example.com/mine", "orphan"]
    delete("ReplicaSet", "web", "Background")
    assert finalizers("ReplicaSet", "web") == ["example.com/mine"]
    settle()
    assert exists("ReplicaSet", "web")


@pytest.mark.parametrize("policy", ["Orphan", "Foreground"])
@pytest.mark.parametrize("kind", ["Pod", "Node", "Service"])
def test_an_object_that_owns_nothing_goes_all_the_same(kind, policy):
    if kind == "Pod":
        make_pod("web")
    elif kind == "Node":
        make_node("web")
    else:
        objects.create(
            "Service", "default",
            {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}, now=NOW,
        )  # fmt: skip
    delete(kind, "web", policy)
    settle(1)
    assert not exists(kind, "web")


# Chains, several owners, owners that never were ---------------------------------------------------


@pytest.mark.parametrize("policy", [None, "Background", "Foreground"])
def test_a_deployment_takes_its_replica_sets_and_their_pods_along(policy):
    make_owner("Deployment", "web", 3)
    settle()
    assert len(names("Pod")) == 3
    delete("Deployment", "web", policy)
    settle()
    assert names("Deployment") == names("ReplicaSet") == names("Pod") == []


def test_an_orphaned_replica_set_keeps_its_pods_alive():
    make_owner("Deployment", "web", 3)
    settle()
    before = names("Pod")
    delete("Deployment", "web", "Orphan")
    settle()
    assert names("Deployment") == []
    (left,) = names("ReplicaSet")
    assert owners("ReplicaSet", left) == []
    assert names("Pod") == before
    delete("Pod", before[0])
    settle()
    assert len(names("Pod")) == 3
    delete("ReplicaSet", left, "Orphan")
    settle()
    assert names("ReplicaSet") == []
    assert len(names("Pod")) == 3


def test_foreground_goes_down_the_chain_before_it_goes_up():
    make_owner("Deployment", "web", 1)
    settle()
    (replica_set,) = names("ReplicaSet")
    (pod,) = names("Pod")
    make_node("n1")
    bind_pod("default", pod, "n1", now=NOW)
    delete("Deployment", "web", "Foreground")
    settle()
    assert finalizers("ReplicaSet", replica_set) == ["foregroundDeletion"]
    assert get("Pod", pod)["metadata"]["deletionTimestamp"]
    assert exists("Deployment", "web")
    assert len(names("Pod")) == 1, "nobody replaces what is on its way"
    delete("Pod", pod, gracePeriodSeconds=0)
    settle()
    assert names("Deployment") == names("ReplicaSet") == names("Pod") == []


@pytest.mark.parametrize(
    "kinds",
    [
        ("Pod", "Pod", "Pod"), ("Pod", "Pod"), ("ReplicaSet",) * 5,
        ("Deployment", "ReplicaSet", "Pod"), ("Pod", "ReplicaSet"), ("StatefulSet", "Pod", "Pod"),
    ],
    ids="-".join,
)  # fmt: skip
@pytest.mark.parametrize("start", few([0, 1]))
@pytest.mark.parametrize("policy", ["Foreground", "Background"])
def test_objects_that_own_each_other_in_a_circle_do_not_wait_for_each_other(kinds, start, policy):
    """``should not be blocked by dependency circle``, test/e2e/apimachinery, of any kinds."""
    members = [(kind, f"m{number}") for number, kind in enumerate(kinds)]
    for kind, name in members:
        if kind == "Pod":
            owned_pod(name)
        else:
            workload(kind, name)
    for place, (kind, name) in enumerate(members):
        owner = reference(*members[place - 1])

        def owned(old: Any, owner: Any = owner) -> Any:
            return {**old, "metadata": {**old["metadata"], "ownerReferences": [owner]}}

        objects.update(kind, "default", name, owned, now=NOW)
    owned_pod("beside")
    garbage.follow(NOW)
    assert all(exists(*one) for one in members)
    delete(*members[start], policy)
    for _ in range(6):
        garbage.follow(NOW)  # alone: a controller would release what it does not select
    assert [one for one in members if exists(*one)] == []
    assert exists("Pod", "beside")


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_one_owner_that_is_there_keeps_a_dependent(policy):
    workload("ReplicaSet", "a")
    workload("ReplicaSet", "b")
    refs = [reference("ReplicaSet", "a"), reference("ReplicaSet", "b", controller=False)]
    owned_pod("p", *refs)
    delete("ReplicaSet", "a", policy)
    settle()
    assert not exists("ReplicaSet", "a")
    assert owners("Pod", "p") == ["b"]
    delete("ReplicaSet", "b", policy)
    settle()
    assert not exists("Pod", "p")


@pytest.mark.parametrize("dependent", ["Pod", "ReplicaSet"])
def test_who_comes_with_an_owner_that_is_not_there_goes(dependent):
    refs = [reference("ReplicaSet", "gone", uid="0c1f3c63-0000-4000-8000-000000000000")]
    if dependent == "Pod":
        owned_pod("p", *refs)
    else:
        workload("ReplicaSet", "p", ownerReferences=refs)
    garbage.follow(NOW)
    assert not exists(dependent, "p")


def test_an_owner_is_told_by_its_uid():
    """One of the same name, made later or meant by another uid, is another owner."""
    workload("ReplicaSet")
    owned_pod("wrong", reference("ReplicaSet", "web", uid="0c1f3c63-0000-4000-8000-000000000000"))
    owned_pod("right", reference("ReplicaSet", "web"))
    garbage.follow(NOW)
    assert names("Pod") == ["right"]
    delete("ReplicaSet", "web", "Background")
    workload("ReplicaSet")
    owned_pod("new", reference("ReplicaSet", "web"))
    garbage.follow(NOW)
    assert names("Pod") == ["new"]


def test_an_owner_of_a_kind_that_nobody_knows_keeps_what_it_owns():
    unknown = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "1"}
    owned_pod("p", unknown)
    workload("ReplicaSet")
    owned_pod("q", unknown, reference("ReplicaSet", "web", controller=False))
    delete("ReplicaSet", "web", "Background")
    settle()
    assert names("Pod") == ["p", "q"]


def test_an_object_without_namespace_cannot_be_owned_by_one_in_a_namespace():
    workload("ReplicaSet")
    make_node("n1", ownerReferences=[reference("ReplicaSet", "web")])
    delete("ReplicaSet", "web", "Background")
    settle()
    assert exists("Node", "n1")


def test_any_kind_may_own_any_kind():
    """Pods own services, nodes own leases and pods, services own budgets."""
    make_node("n1")
    make_pod("boss")
    spec = {"ports": [{"port": 80}]}
    objects.create(
        "Service", "default",
        {
            "metadata": {
                "name": "s", "ownerReferences": [reference("Pod", "boss", controller=False)],
            },
            "spec": spec,
        },
        now=NOW,
    )  # fmt: skip
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    budget["metadata"] = {"name": "b", "ownerReferences": [reference("Service", "s")]}
    budget["spec"] = {"minAvailable": 1}
    objects.create("PodDisruptionBudget", "default", budget, now=NOW)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease["metadata"] = {"name": "n1", "ownerReferences": [reference("Node", "n1")]}
    objects.create("Lease", "default", lease, now=NOW)
    owned_pod("mirror", reference("Node", "n1"))
    garbage.follow(NOW)
    delete("Pod", "boss")
    settle(1)
    assert names("Service") == names("PodDisruptionBudget") == []
    assert names("Lease") == ["n1"]
    delete("Node", "n1")
    settle(1)
    assert names("Lease") == []
    assert names("Pod") == []


def test_an_owner_that_is_added_later_counts_and_one_that_is_taken_away_does_not():
    workload("ReplicaSet", "a")
    make_pod("p")
    make_pod("q")
    uid = get("ReplicaSet", "a")["metadata"]["uid"]

    def own(*refs):
        return lambda one: {
            **one, "metadata": {**one["metadata"], "ownerReferences": list(refs)},
        }  # fmt: skip

    garbage.follow(NOW)
    objects.update("Pod", "default", "p", own(reference("ReplicaSet", "a")), now=NOW)
    objects.update("Pod", "default", "q", own(reference("ReplicaSet", "a")), now=NOW)
    objects.update("Pod", "default", "q", own(), now=NOW)
    garbage.follow(NOW)
    delete("ReplicaSet", "a", "Background")
    garbage.follow(NOW)
    assert names("Pod") == ["q"]
    lost = reference("ReplicaSet", "a", uid=uid)
    objects.update("Pod", "default", "q", own(lost), now=NOW)
    garbage.follow(NOW)
    assert names("Pod") == []


# Robustness -------------------------------------------------------------------------------------


def test_a_collector_that_starts_anew_finds_what_another_left():
    """A crash between any two writes, and a log that was trimmed meanwhile."""
    make_owner("Deployment", "web", 2)
    settle()
    delete("Deployment", "web", "Foreground")
    workload("ReplicationController", "rc")
    owned_pod("free", reference("ReplicationController", "rc"))
    delete("ReplicationController", "rc")
    owned_pod("lost", reference("ReplicaSet", "gone", uid="0c1f3c63-0000-4000-8000-000000000000"))
    for _ in range(6):
        memory.forget()
        garbage.follow(NOW)
    assert names("Deployment") == names("ReplicaSet") == names("ReplicationController") == []
    assert names("Pod") == ["free"]


def test_more_dependents_than_a_pass_looks_at(monkeypatch):
    monkeypatch.setattr(garbage, "BURST", 3)
    for policy, left in (("Background", 0), ("Orphan", 10), ("Foreground", 0)):
        workload("ReplicaSet", "many")
        refs = reference("ReplicaSet", "many")
        manifests = [
            pod_manifest(f"{policy.lower()}-{number}", metadata={"ownerReferences": [refs]})
            for number in range(10)
        ]
        create_pods(manifests, now=NOW)
        delete("ReplicaSet", "many", policy)
        settle()
        assert not exists("ReplicaSet", "many")
        assert len([one for one in names("Pod") if one.startswith(policy.lower())]) == left


def test_a_pass_that_finds_nothing_writes_nothing():
    make_owner("Deployment", "web", 2)
    settle()
    mark = changes.watermark()
    garbage.follow(after(1))
    memory.forget()
    garbage.follow(after(2))
    assert changes.watermark() == mark


def test_the_manager_runs_it():
    workload("ReplicaSet")
    owned_pod("p", reference("ReplicaSet", "web"))
    manager.run(NOW)
    delete("ReplicaSet", "web", "Orphan")
    assert "garbage" in manager.run(NOW)
    with pytest.raises(NotFound):
        get("ReplicaSet", "web")
    manager.run(NOW)
    assert "garbage" not in manager.run(NOW)


def test_a_dependent_that_cannot_be_read_does_not_keep_the_others():
    workload("ReplicaSet")
    for name in ("a", "broken", "c"):
        owned_pod(name, reference("ReplicaSet", "web"))
    garbage.follow(NOW)
    sql.run(
        "UPDATE document SET text = replace(text, '{\"apiVersion\"', '{apiVersion')"
        " WHERE id = (SELECT document_id FROM pod WHERE name = 'broken')"
    )
    delete("ReplicaSet", "web", "Background")
    garbage.follow(NOW)
    rows = sql.fetch("SELECT name FROM pod")
    assert rows == [("broken",)]
    assert len(aside.objects("garbage")) == 1


@pytest.mark.parametrize("number", [100, 1])
def test_an_owner_counts_among_many_and_whatever_another_is_called(number):
    """A list longer than 4,096 characters, and names with what ends a list in JSON."""
    workload("ReplicaSet")
    odd = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f'a]b"}}]c\\{i}', "uid": f"gone-{i}"}
        for i in range(number)
    ]
    owned_pod("p", *odd, reference("ReplicaSet", "web", controller=False))
    settle()
    assert owners("Pod", "p") == ["web"]
    owned_pod("q", *odd, reference("ReplicaSet", "web", controller=False))
    _, pods = dependents.everything()
    named = [{one.owner.name for one in part.references} for part in pods]
    assert {"web", *(one["name"] for one in odd)} in named
    delete("ReplicaSet", "web", "Background")
    settle()
    assert names("Pod") == []


def test_an_owner_counts_behind_others_that_fill_what_is_read_at_first():
    """What is read at first ends just behind the first owner, as a whole list would."""
    workload("ReplicaSet")
    first = {"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": "gone"}
    missing = 4096 - len(json.dumps(first, separators=(",", ":")))
    first["name"] = "x" * missing
    before = changes.watermark()
    owned_pod("p", first, reference("ReplicaSet", "web", controller=False))
    said = dependents.news(before, pod_owners=[])
    assert said is not None
    for found in (said.pods, dependents.everything()[1]):
        owners_read = {one.owner.name for part in found for one in part.references}
        assert owners_read == {first["name"], "web"}


def test_a_label_that_says_foreground_is_no_finalizer():
    labels = {"a": "foregroundDeletion"}
    workload("ReplicaSet", finalizers=["example.com/hold"], labels=labels)
    owner = get("ReplicaSet", "web")["metadata"]["uid"]
    delete("ReplicaSet", "web", "Background")
    key = dependents.Owner("ReplicaSet", "default", "web", owner)
    assert dependents.states([key]) == {key: dependents.State.SOLID}


@pytest.mark.parametrize("volume", ["persistentVolumeClaim", "ephemeral"])
def test_a_claim_stays_while_a_pod_on_a_node_uses_it(volume):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    protection = "kubernetes.io/pvc-protection"
    for name in ("p-data", "unused"):
        claim = {"metadata": {"name": name}, "spec": spec}
        objects.create("PersistentVolumeClaim", "default", claim, now=NOW)
    source = {"claimName": "p-data"} if volume != "ephemeral" else {
        "volumeClaimTemplate": {"spec": spec}
    }  # fmt: skip
    pod = pod_manifest("p")
    pod["spec"]["volumes"] = [{"name": "data", volume: source}]
    create_pod(pod, now=NOW)
    make_node("n")
    bind_pod("default", "p", "n", now=NOW)
    for name in ("p-data", "unused"):
        assert not delete("PersistentVolumeClaim", name).gone
    garbage.follow(NOW)
    assert names("PersistentVolumeClaim") == ["p-data"]
    garbage.follow(NOW)
    assert get("PersistentVolumeClaim", "p-data")["metadata"]["finalizers"] == [protection]
    delete("Pod", "p", gracePeriodSeconds=0)
    garbage.follow(NOW)
    assert names("PersistentVolumeClaim") == []


def test_pods_are_not_asked_again_for_a_claim_that_is_used_until_one_of_them_leaves():
    """Reading all pods with claims in each pass, for each claim, would cost more with each."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    make_node("n")
    for name in ("a", "b", "c"):
        claim = {"metadata": {"name": name}, "spec": spec}
        objects.create("PersistentVolumeClaim", "default", claim, now=NOW)
        for pod in (f"{name}-first", f"{name}-second"):
            manifest = pod_manifest(pod)
            manifest["spec"]["volumes"] = [
                {"name": "data", "persistentVolumeClaim": {"claimName": name}}
            ]
            create_pod(manifest, now=NOW)
            bind_pod("default", pod, "n", now=NOW)

    def follow() -> int:
        with counted() as round_trips:
            garbage.follow(NOW)
        return round_trips.number

    delete("PersistentVolumeClaim", "a")
    follow()
    alone = follow()
    for name in ("b", "c"):
        delete("PersistentVolumeClaim", name)
    follow()
    assert follow() - alone == 2 * 3  # a look at each claim, within a savepoint
    delete("Pod", "a-second", gracePeriodSeconds=0)
    follow()
    assert names("PersistentVolumeClaim") == ["a", "b", "c"]
    delete("Pod", "a-first", gracePeriodSeconds=0)
    follow()
    assert names("PersistentVolumeClaim") == ["b", "c"]


def test_a_protected_volume_stays_while_a_claim_has_it():
    protection = "kubernetes.io/pv-protection"
    spec = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"},
    }  # fmt: skip
    for name in ("bound", "free"):
        metadata = {"name": name, "finalizers": [protection, "example.com/mine"]}
        objects.create("PersistentVolume", "", {"metadata": metadata, "spec": spec}, now=NOW)

    def say(phase):
        objects.update(
            "PersistentVolume", "", "bound", lambda old: {**old, "status": {"phase": phase}},
            subresource="status", now=NOW,
        )  # fmt: skip

    def left():
        found = [decode_object(one) for one in list_page("PersistentVolume").items]
        return {one["metadata"]["name"]: one["metadata"]["finalizers"] for one in found}

    say("Bound")
    for name in ("bound", "free"):
        objects.delete("PersistentVolume", "", name, now=NOW)
    garbage.follow(NOW)
    assert left() == {"bound": [protection, "example.com/mine"], "free": ["example.com/mine"]}
    say("Released")
    garbage.follow(NOW)
    assert left() == {"bound": ["example.com/mine"], "free": ["example.com/mine"]}


def refuse_deletions(what: str) -> None:
    """Have the database say at pods that are to go that it ends, or no longer."""
    if what == "begin":
        sql.run(
            "CREATE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE admin_shutdown; END$$"
        )
        sql.run(
            "CREATE TRIGGER fail BEFORE DELETE ON pod FOR EACH ROW EXECUTE FUNCTION pg_temp.fail()"
        )
    else:
        sql.run("DROP TRIGGER fail ON pod")


def test_what_a_pass_that_failed_was_about_is_collected_by_the_next_one() -> None:
    make_owner("ReplicaSet", "first", 1, app="first")
    make_owner("ReplicaSet", "second", 1, app="second")
    settle()
    assert len(names("Pod")) == 2
    delete("ReplicaSet", "first", "Background")
    delete("ReplicaSet", "second", "Background")
    refuse_deletions("begin")
    for _ in range(2):
        with pytest.raises(OperationalError), transaction.atomic():
            garbage.follow(NOW)
    refuse_deletions("end")
    assert garbage.has_work(pending_work([garbage.NAME]))
    garbage.follow(NOW)
    assert names("Pod") == []
    assert not garbage.has_work(pending_work([garbage.NAME]))
