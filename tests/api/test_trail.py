"""Who changed an object: its trail over HTTP, and who preempted whom, linked both ways."""

import uuid
from typing import Any

import pytest
from django.db import transaction

from api import clock
from clusterstate.actions import objects
from clusterstate.actions.past import history
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.scheduler import decisions
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.actor import KUBE_SCHEDULER, Actor, acting
from clusterstate.queries import past
from clusterstate.queries.past import provenance, trail
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler.decisions import Turn
from scheduling.controllers.evictions import timekeeper
from tests.api.conftest import Api, make_token
from tests.builders import make_node, make_pod
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

PODS = "/api/v1/namespaces/ns/pods"
CHANGES = "/apis/stowage.dev/v1/changes"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
AS_ANN = {"HTTP_IMPERSONATE_USER": "ann", "HTTP_IMPERSONATE_GROUP": "system:masters"}
OF_POD = f"{CHANGES}?kind=Pod&namespace=ns&name=p"


def test_the_trail_of_a_pod_tells_who_did_what(api: Api) -> None:
    given = str(uuid.uuid4())
    api.post(PODS, POD).ok(201)
    api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, **AS_ANN).ok()
    api.post("/api/v1/nodes", {"metadata": {"name": "n1"}}).ok(201)
    with acting(KUBE_SCHEDULER):
        pod_id = find_pod_id("ns", "p")
        bind_pods([Binding(pod_id, "n1")], snapshot_revision=1 << 40, now=NOW)
    api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0}).ok()
    answer = api.get(OF_POD).ok()
    steps = [
        (one["type"], one["user"].get("username"), one["user"].get("impersonatedBy"))
        for one in answer["items"]
    ]
    assert steps == [
        ("DELETED", "operator", None),
        ("MODIFIED", "system:kube-scheduler", None),
        ("MODIFIED", "ann", "operator"),
        ("ADDED", "operator", None),
    ]
    deleted, bound, labelled, _ = answer["items"]
    assert labelled["fields"] == ["metadata.labels"]
    assert "spec.nodeName" in bound["fields"]
    assert bound["nodeName"] == "n1"
    assert "auditID" not in bound
    assert uuid.UUID(deleted["auditID"]) != uuid.UUID(given)
    assert answer["complete"] is True
    assert answer["metadata"] == {}


def test_a_change_of_the_spec_is_no_change_of_the_condition(api: Api) -> None:
    """It keeps saying for which generation it was made, until the scheduler decides again."""
    api.post(PODS, POD).ok(201)
    api.post("/api/v1/nodes", {"metadata": {"name": "n1"}}).ok(201)
    pod_id = find_pod_id("ns", "p")
    assert pod_id is not None
    refusal = Unschedulable(pod_id=pod_id, message="0/1 nodes are available.")
    assert set_unschedulable([refusal], now=NOW)
    api.patch(f"{PODS}/p", {"spec": {"activeDeadlineSeconds": 9}}).ok()
    assert set_unschedulable([refusal], now=NOW)
    assert bind_pods([Binding(pod_id, "n1")], snapshot_revision=1 << 40, now=NOW)
    api.patch(f"{PODS}/p", {"spec": {"activeDeadlineSeconds": 8}}).ok()
    steps = [one.get("fields", []) for one in api.get(OF_POD).ok()["items"]]
    assert steps == [
        ["spec.activeDeadlineSeconds"],
        ["spec.nodeName", "status.conditions"],
        ["status.conditions"],
        ["spec.activeDeadlineSeconds"],
        ["status.conditions"],
        [],
    ]


def test_a_trail_goes_on_where_the_answer_before_ended(api: Api) -> None:
    api.post("/api/v1/nodes", {"metadata": {"name": "n1"}}).ok(201)
    for number in range(4):
        api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"a": str(number)}}}).ok()
    path = f"{CHANGES}?kind=Node&name=n1&limit=2"
    seen, token = [], ""
    for _ in range(3):
        answer = api.get(f"{path}&continue={token}").ok()
        seen += [one["resourceVersion"] for one in answer["items"]]
        token = answer["metadata"].get("continue", "")
    assert len(seen) == 5
    assert seen == sorted(seen, key=int, reverse=True)
    assert token == ""
    assert answer["complete"] is True


def test_a_trail_goes_on_at_no_change_of_another_object(api: Api) -> None:
    api.post(PODS, POD).ok(201)
    api.post("/api/v1/namespaces", {"metadata": {"name": "hidden"}}).ok(201)
    other = api.post("/api/v1/namespaces/hidden/pods", POD).ok(201)["metadata"]["resourceVersion"]
    api.get(f"{OF_POD}&continue={other}").fails(404, "NotFound")


def test_a_lease_that_is_renewed_without_a_change_in_the_log_has_a_trail(api: Api) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 10}
    api.post(leases, {"metadata": {"name": "l"}, "spec": spec}).ok(201)
    api.patch(f"{leases}/l", {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}).ok()
    answer = api.get(f"{CHANGES}?kind=Lease&namespace=ns&name=l").ok()
    assert [one["type"] for one in answer["items"]][-1] == "ADDED"


def test_who_preempted_a_pod_and_whom_a_pod_preempted_is_told_on_both_sides(api: Api) -> None:
    strong = api.post(PODS, {**POD, "metadata": {"name": "strong"}}).ok(201)
    api.post(PODS, POD).ok(201)
    made_room = Actor(KUBE_SCHEDULER.name, cause=uuid.UUID(strong["metadata"]["uid"]))
    with acting(made_room):
        objects.delete("Pod", "ns", "p", now=NOW)
    victim = api.get(OF_POD).ok()["items"][0]
    assert victim["preemptedFor"] == {
        "uid": strong["metadata"]["uid"], "namespace": "ns", "name": "strong",
    }  # fmt: skip
    assert victim["user"] == {"username": "system:kube-scheduler"}
    other = api.get(f"{CHANGES}?kind=Pod&namespace=ns&name=strong").ok()
    assert [(one["namespace"], one["name"]) for one in other["preempted"]] == [("ns", "p")]


def test_what_is_gone_is_found_by_an_index_of_the_log(api: Api) -> None:
    """Only deletions are indexed; without these indexes each question reads the whole log."""
    uid = str(uuid.uuid4())
    pod = (KINDS["Pod"].code, "ns", "p")
    asked: list[tuple[str, tuple[Any, ...], str]] = [
        (provenance._VICTIMS, (uid,), "change_gone_for"),
        (trail._DELETION, pod, "change_gone"),
        (past._present("Pod"), (*pod, 5, *pod[1:], 5, 5, *pod[1:], 5, 5), "change_gone"),
    ]
    with transaction.atomic():
        sql.run("SET LOCAL enable_seqscan = off")
        for statement, parameters, index in asked:
            plan = "\n".join(row[0] for row in sql.fetch(f"EXPLAIN {statement}", parameters))
            assert f"{index} on change" in plan, plan
            assert "Seq Scan on change" not in plan, plan


def test_a_pod_that_was_refused_often_asks_no_more_often_for_its_victims(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = api.post(PODS, {**POD, "metadata": {"name": "strong"}}).ok(201)["metadata"]["uid"]
    api.post(PODS, POD).ok(201)
    pod_id = find_pod_id("ns", "strong")
    assert pod_id is not None
    refusal = decisions.NewDecision(
        pod_id=pod_id, at=NOW, class_id=1, snapshot_revision=1, profile="default-scheduler",
        profile_revision=0, seed=1, draw=0, start=0, outcome="unschedulable", node_name="",
        total=0, margin=None, ties=0, node_count=1, evaluated=1, feasible=0, message="", body=b"x",
    )  # fmt: skip
    decisions.record_many([refusal] * 30, Turn(0, 1, 1))
    with acting(Actor(KUBE_SCHEDULER.name, cause=uuid.UUID(uid))):
        objects.delete("Pod", "ns", "p", now=NOW)
    statements = []
    fetch = sql.fetch

    def counted(*arguments: Any) -> Any:
        statements.append(arguments[0])
        return fetch(*arguments)

    monkeypatch.setattr(sql, "fetch", counted)
    assert [one.name for one in provenance.victims_of("ns", "strong", pod_id)] == ["p"]
    assert len(statements) <= 4


def test_the_names_of_pods_in_other_namespaces_are_told_to_those_who_may_get_them(
    api: Api,
) -> None:
    api.post("/api/v1/namespaces", {"metadata": {"name": "other"}}).ok(201)
    strong = {**POD, "metadata": {"name": "strong"}}
    uid = api.post("/api/v1/namespaces/other/pods", strong).ok(201)["metadata"]["uid"]
    api.post(PODS, POD).ok(201)
    with acting(Actor(KUBE_SCHEDULER.name, cause=uuid.UUID(uid))):
        objects.delete("Pod", "ns", "p", now=NOW)
    ann = Api(make_token("ann", ["team"]))
    binding = {
        "metadata": {"name": "ann"}, "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "ann"}],
    }  # fmt: skip
    api.post("/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings", binding).ok(201)
    assert ann.get(OF_POD).ok()["items"][0]["preemptedFor"] == {"uid": uid}
    assert api.get(OF_POD).ok()["items"][0]["preemptedFor"]["namespace"] == "other"


def test_only_who_may_get_an_object_reads_its_trail(api: Api) -> None:
    api.post(PODS, POD).ok(201)
    stranger = Api(make_token("stranger", []))
    stranger.get(OF_POD).fails(403, "Forbidden")
    reader = Api(make_token("reader", ["stowage:readers"]))
    reader.get(OF_POD).ok()
    reader.get(f"{CHANGES}?kind=Secret&namespace=ns&name=p").fails(403, "Forbidden")


@pytest.mark.parametrize(
    "query",
    ["", "kind=Pod", "kind=Pod&name=p", "kind=Nothing&name=p", "kind=Node&name=n&limit=x",
     "kind=Node&name=n&continue=x"],
)  # fmt: skip
def test_a_question_that_names_no_object_is_refused(api: Api, query: str) -> None:
    api.get(f"{CHANGES}?{query}").fails(400, "BadRequest")


def test_an_object_that_the_log_does_not_know_is_not_found(api: Api) -> None:
    api.get(f"{CHANGES}?kind=Node&name=nobody").fails(404, "NotFound")


# Preemption, evictions, and what lies in blocks --------------------------------------------------


def test_a_real_preemption_is_told_on_both_sides(api: Api, runner: Any, settings: Any) -> None:
    settings.PAST_HOURS = 168
    api.post("/api/v1/nodes", make_node("n1").offers(cpu="4").manifest).ok(201)
    weak = [make_pod(f"weak-{n}").asks(cpu="2").in_namespace("ns") for n in range(2)]
    for one in weak:
        api.post(PODS, one.manifest).ok(201)
    runner.turn()
    strong = make_pod("strong").asks(cpu="3").in_namespace("ns").manifest
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.post(classes, {"metadata": {"name": "high"}, "value": 100}).ok(201)
    strong["spec"]["priorityClassName"] = "high"
    api.post(PODS, strong).ok(201)
    runner.turn()

    def both_sides() -> None:
        side = api.get(f"{CHANGES}?kind=Pod&namespace=ns&name=strong").ok()
        gone = sorted(one["name"] for one in side["preempted"])
        assert gone == ["weak-0", "weak-1"]
        for name in gone:
            trail = api.get(f"{CHANGES}?kind=Pod&namespace=ns&name={name}").ok()["items"]
            (left,) = [one for one in trail if "preemptedFor" in one]
            assert left["preemptedFor"]["name"] == "strong"
            number = left["preemptedFor"]["decision"]
            decision = api.get(f"{PODS}/strong/decisions/{number}").ok()
            assert decision["outcome"] == "unschedulable"
            told = sorted(one["name"] for one in decision["preemption"]["pods"])
            assert told == gone
            bound = trail[-2] if trail[-2].get("nodeName") else trail[-1]
            assert bound["nodeName"] == "n1"

    both_sides()
    history.trim(now=clock.now(), keep_seconds=-7200)
    both_sides()


def test_an_eviction_names_the_taint_and_who_brought_it(api: Api, settings: Any) -> None:
    settings.PAST_HOURS = 168
    api.post("/api/v1/nodes", {"metadata": {"name": "n1"}}).ok(201)
    pod = {**POD, "spec": {**POD["spec"], "nodeName": "n1"}}  # type: ignore[dict-item]
    api.post(PODS, pod).ok(201)
    taint = {"key": "broken", "value": "disk", "effect": "NoExecute"}
    api.patch("/api/v1/nodes/n1", {"spec": {"taints": [taint]}}, **AS_ANN).ok()
    api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}}).ok()
    timekeeper.run(
        longest=60.0, clock=lambda: clock.now().timestamp() + 5, stopping=lambda: gone(api)
    )

    def names_ann() -> None:
        items = api.get(OF_POD).ok()["items"]
        (evicted,) = [one for one in items if "evictedFor" in one]
        assert evicted["user"]["username"].endswith("taint-eviction-controller")
        cause = evicted["evictedFor"]
        assert cause["taint"] == taint
        assert (cause["nodeName"], cause["user"]) == (
            "n1", {"username": "ann", "impersonatedBy": "operator"},
        )  # fmt: skip
        assert uuid.UUID(cause["auditID"])
        node = api.get(f"{CHANGES}?kind=Node&name=n1").ok()["items"]
        brought = [one for one in node if one["resourceVersion"] == cause["resourceVersion"]]
        assert "spec.taints" in brought[0]["fields"]

    names_ann()
    history.trim(now=clock.now(), keep_seconds=-7200)
    names_ann()


def owned_by(owner: Any, name: str, **spec: Any) -> dict[str, Any]:
    reference = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": True,
    }  # fmt: skip
    return {"metadata": {"name": name, "ownerReferences": [reference]}, "spec": spec}


def by_controller(name: str) -> dict[str, str]:
    return {**AS_ANN, "HTTP_IMPERSONATE_USER": f"system:serviceaccount:kube-system:{name}"}


def because(api: Api, query: str = OF_POD) -> list[tuple[str, str, str, str]]:
    """Return kind, name, verb and user of what the newest change of an object followed from."""
    newest = api.get(f"{CHANGES}?kind={query}" if "?" not in query else query).ok()["items"][0]
    return [
        (one["kind"], one["name"], one["type"], one["user"]["username"].split(":")[-1])
        for one in newest.get("because", ())
    ]


def test_what_a_controller_deleted_names_the_change_that_it_followed_from(
    api: Api, settings: Any
) -> None:
    settings.PAST_HOURS = 168
    apps = "/apis/apps/v1/namespaces/ns"
    labels = {"app": "web"}
    workload = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": POD["spec"]},
        "replicas": 1,
    }
    web = {"metadata": {"name": "web"}, "spec": workload}
    deployment = api.post(f"{apps}/deployments", web).ok(201)
    replica_set = api.post(f"{apps}/replicasets", owned_by(deployment, "web-1", **workload)).ok(201)
    pod = owned_by(replica_set, "p", **POD["spec"])
    pod["metadata"]["labels"] = labels
    api.post(PODS, pod).ok(201)
    scale = {"spec": {"replicas": 0}}
    api.patch(f"{apps}/deployments/web", scale, **AS_ANN).ok()
    api.patch(f"{apps}/deployments/web", {"metadata": {"labels": {"a": "b"}}}).ok()
    rollout = by_controller("deployment-controller")
    api.patch(f"{apps}/replicasets/web-1", scale, **rollout).ok()
    api.patch(f"{apps}/replicasets/web-1", {"metadata": {"labels": labels}}).ok()
    now = {"gracePeriodSeconds": 0}
    api.delete(f"{PODS}/p", now, **by_controller("replicaset-controller")).ok()
    expected = [
        ("ReplicaSet", "web-1", "MODIFIED", "deployment-controller"),
        ("Deployment", "web", "MODIFIED", "ann"),
    ]
    assert because(api) == expected
    api.delete(f"{apps}/deployments/web", {"propagationPolicy": "Orphan"}, **AS_ANN)
    assert because(api) == expected, "what came later is no cause"
    history.trim(now=clock.now(), keep_seconds=-7200)
    assert because(api) == expected, "in what is packed"
    told = api.get(f"{OF_POD}&format=table").raw.decode().splitlines()
    assert [line.split("  ")[-1].strip() for line in told][:2] == ["WHAT", "deleted"]
    assert "because ReplicaSet web-1 was changed (spec.replicas)" in told[2]
    assert "because Deployment web was changed (spec.replicas) by ann" in told[3]
    assert told[4].endswith("created")
    api.get(f"{OF_POD}&format=odd").fails(400, "BadRequest")
    only_pods = Api(make_token("bob", ["team"]))
    for kind, group, plural in (("role", "", ["pods"]), ("sets", "apps", ["replicasets"])):
        role = {
            "metadata": {"name": kind},
            "rules": [{"apiGroups": [group], "resources": plural, "verbs": ["get"]}],
        }
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns"
        api.post(f"{rbac}/roles", role).ok(201)
        binding = {
            "metadata": {"name": kind}, "roleRef": {"kind": "Role", "name": kind},
            "subjects": [{"kind": "User", "name": "bob"}],
        }  # fmt: skip
        api.post(f"{rbac}/rolebindings", binding).ok(201)
    assert because(only_pods) == expected[:1], "nobody is told of what they may not get"


def test_what_went_with_its_owner_its_node_or_its_namespace_names_that_deletion(api: Api) -> None:
    config = {"metadata": {"name": "owner"}}
    owner = api.post("/api/v1/namespaces/ns/configmaps", config).ok(201)
    now = {"gracePeriodSeconds": 0}
    api.post("/api/v1/nodes", {"metadata": {"name": "n1"}}).ok(201)
    orphan = {**owned_by({**owner, "apiVersion": "v1", "kind": "ConfigMap"}, "p")}
    orphan["spec"] = {**POD["spec"], "nodeName": "n1"}
    api.post(PODS, orphan).ok(201)
    api.post(PODS, {**orphan, "metadata": {"name": "q"}}).ok(201)
    api.delete("/api/v1/namespaces/ns/configmaps/owner", **AS_ANN).ok()
    api.post("/api/v1/namespaces/ns/configmaps", config).ok(201)  # another one of that name
    api.delete(f"{PODS}/p", now, **by_controller("generic-garbage-collector")).ok()
    assert because(api) == [("ConfigMap", "owner", "DELETED", "ann")]
    api.delete("/api/v1/nodes/n1", **AS_ANN).ok()
    api.delete(f"{PODS}/q", now, **by_controller("pod-garbage-collector")).ok()
    assert because(api, "Pod&namespace=ns&name=q") == [("Node", "n1", "DELETED", "ann")]


def gone(api: Api) -> bool:
    answer = api.get(f"{PODS}/p")
    return answer.status == 404 or "deletionTimestamp" in answer.ok()["metadata"]


def test_a_trail_goes_on_in_what_was_packed(api: Api, settings: Any) -> None:
    settings.PAST_HOURS = 168
    api.post("/api/v1/nodes", {"metadata": {"name": "n1"}}).ok(201)
    for number in range(3):
        api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"a": str(number)}}}).ok()
    path = f"{CHANGES}?kind=Node&name=n1"
    before = api.get(path).ok()
    history.trim(now=clock.now(), keep_seconds=-7200)
    after = api.get(path).ok()
    assert after["complete"] is True
    assert [one["resourceVersion"] for one in after["items"]] == [
        one["resourceVersion"] for one in before["items"]
    ]
    assert after["items"] == before["items"]
    api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"a": "9"}}}).ok()
    seen, token = [], ""
    for _ in range(3):
        answer = api.get(f"{path}&limit=2&continue={token}").ok()
        seen += [one["resourceVersion"] for one in answer["items"]]
        token = answer["metadata"].get("continue", "")
    assert token == ""
    assert seen[1:] == [one["resourceVersion"] for one in before["items"]]
    api.delete("/api/v1/nodes/n1").ok()
    history.trim(now=clock.now(), keep_seconds=-7200)
    assert len(api.get(path).ok()["items"]) == len(seen) + 1
