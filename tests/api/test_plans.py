"""Plans over HTTP: foretold, applied, paused, cancelled, taken back, finished after a kill."""

from collections import Counter
from datetime import timedelta

import pytest
from django.db import transaction

from api.server import audit
from clusterstate.actions import plans
from clusterstate.actions.pods import places as places_held
from clusterstate.actions.pods.create import create_pods
from clusterstate.database import sql
from clusterstate.objects.values.errors import NotFound
from clusterstate.processes import steady_clock
from clusterstate.queries.evictions.brakes import count_asked
from clusterstate.queries.scheduler.plans import PLACES, find_plan, latest_plans
from scheduling.controllers import held_places, operations
from scheduling.controllers.budgets import statuses
from scheduling.processes import duties, rounds
from scheduling.processes.loop import Loop
from tests import roundtrips
from tests.api.conftest import Api, grant, make_token
from tests.builders import make_node, make_pod
from tests.clock import after
from tests.simulation.test_gangs import pod_group

STOWAGE = "/apis/stowage.dev/v1"
PLANS = f"{STOWAGE}/plans"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "u",
    "controller": True,
}


@pytest.fixture
def cluster(api):
    """Two nodes; forty pods of a ReplicaSet on the first."""
    for name in ("n1", "n2"):
        api.post("/api/v1/nodes", make_node(name).offers(cpu="64", pods="110").manifest).ok(201)
    for number in range(40):
        pod = make_pod(f"pod-{number:02}").in_namespace("ns").on("n1").manifest
        pod["metadata"]["ownerReferences"] = [OWNER]
        api.post("/api/v1/namespaces/ns/pods", pod).ok(201)
    return api


def post(api, *changes, **query):
    path = PLANS + "".join(f"?{key}={value}" for key, value in query.items())
    document = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": {"changes": list(changes)}}
    return api.post(path, document).ok(201)


def act(api, plan, what, **query):
    suffix = "".join(f"?{key}={value}" for key, value in query.items())
    return api.post(f"{PLANS}/{plan['metadata']['name']}/{what}{suffix}", {})


def operation(api, plan):
    return api.get(f"{PLANS}/{plan['metadata']['name']}").ok()["status"]["operation"]


def leaving(api):
    items = api.get("/api/v1/namespaces/ns/pods").ok()["items"]
    return sorted(i["metadata"]["name"] for i in items if "deletionTimestamp" in i["metadata"])


DRAIN = {"drain": {"nodes": ["n1"]}}


def carry_out(name, batches=1000, at=None):
    done = 0
    while batches and (count := operations.carry_out(find_plan(name).id, at or after(1))):
        done += count
        batches -= 1
    return done


def _kill_in_the_middle(name, at=1):
    """Do a batch whose transaction is never committed."""
    with transaction.atomic():
        assert operations.carry_out(find_plan(name).id, after(at))
        raise KeyboardInterrupt


def test_a_drain_is_foretold_and_changes_nothing(cluster):
    plan = post(cluster, DRAIN)
    assert plan["status"]["summary"]["leaving"] == 40
    assert {one["landing"]["nodeName"] for one in plan["status"]["leaving"]} == {"n2"}
    assert plan["status"]["operation"] == {
        "state": "Planned", "steps": 41, "done": 0, "held": 0, "failed": 0,
    }  # fmt: skip
    assert leaving(cluster) == []
    listed = cluster.get(PLANS).ok()["items"]
    assert [one["metadata"]["name"] for one in listed] == [plan["metadata"]["name"]]
    assert "leaving" not in listed[0]["status"]
    dry = post(cluster, DRAIN, dryRun="All")
    assert dry["status"]["summary"] == plan["status"]["summary"]
    assert len(cluster.get(PLANS).ok()["items"]) == 1


def test_a_plan_tells_its_steps_and_what_became_of_each(cluster):
    foreseen = post(cluster, DRAIN, dryRun="All")["status"]["steps"]
    plan = post(cluster, DRAIN)
    assert plan["status"]["steps"] == foreseen
    assert foreseen[0]["subject"] == "node n1"
    assert len(foreseen) == 41

    def states():
        told = cluster.get(f"{PLANS}/{plan['metadata']['name']}").ok()["status"]["steps"]
        assert [{**one, "state": None} for one in told] == [
            {**one, "state": None} for one in foreseen
        ]
        return Counter(one["state"] for one in told)

    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"], batches=1)
    assert states() == {"Done": operations.BATCH, "ToDo": 41 - operations.BATCH}
    act(cluster, plan, "cancel").ok(201)
    assert states() == {"Done": operations.BATCH, "Dropped": 41 - operations.BATCH}
    (listed,) = cluster.get(PLANS).ok()["items"]
    assert "steps" not in listed["status"]


def test_an_applied_drain_goes_on_where_a_killed_worker_left_it(cluster):
    plan = post(cluster, DRAIN)
    name = plan["metadata"]["name"]
    begun = act(cluster, plan, "apply").ok(201)
    assert begun["status"]["operation"]["state"] == "Running"
    assert carry_out(name, batches=1) == operations.BATCH
    first = leaving(cluster)
    assert len(first) == operations.BATCH - 1
    with pytest.raises(KeyboardInterrupt):
        _kill_in_the_middle(name)
    assert leaving(cluster) == first
    assert operation(cluster, plan)["done"] == operations.BATCH
    assert carry_out(name) == 41 - operations.BATCH
    assert len(leaving(cluster)) == 40
    found = operation(cluster, plan)
    assert (found["state"], found["done"], found["failed"]) == ("Done", 41, 0)
    assert cluster.get("/api/v1/nodes/n1").ok()["spec"]["unschedulable"]
    act(cluster, plan, "apply").fails(409, "Conflict")


def places(api):
    return api.get(f"/api/v1/namespaces/{PLACES}/pods").ok()["items"]


def place_all(api):
    """Bind what holds places, as the scheduler does."""
    for one in places(api):
        if one["spec"].get("nodeName"):
            continue
        values = one["spec"]["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"][0]["matchFields"][0]["values"]
        target = {"kind": "Node", "name": values[0]}
        binding = {"metadata": {"name": one["metadata"]["name"]}, "target": target}
        api.post(f"/api/v1/namespaces/{PLACES}/bindings", binding).ok(201)


def instead(*names, **owner):
    """Return pods that a controller makes in the stead of those that left."""
    pods = [make_pod(name).in_namespace("ns").manifest for name in names]
    for one in pods:
        one["metadata"]["ownerReferences"] = [{**OWNER, **owner}]
    return pods


def test_a_rebalance_is_kept_as_a_drain_whose_pods_leave_once_all_places_are_held(cluster):
    plan = post(cluster, {"rebalance": {}})
    assert plan["spec"] == {"changes": [DRAIN], "holdPlaces": True}
    act(cluster, plan, "apply").ok(201)
    name = plan["metadata"]["name"]
    carry_out(name)
    assert len(places(cluster)) == 40
    assert {one["spec"]["preemptionPolicy"] for one in places(cluster)} == {"Never"}
    assert leaving(cluster) == []
    assert "not completely reserved yet" in operation(cluster, plan)["message"]
    place_all(cluster)
    with pytest.raises(KeyboardInterrupt):
        _kill_in_the_middle(name, at=3)
    assert leaving(cluster) == []
    held_places.sweep(after(4000))
    carry_out(name, at=after(4001))
    assert len(leaving(cluster)) == 40
    cluster.post("/api/v1/namespaces/ns/pods", *instead("instead")).ok(201)
    create_pods(instead("b1", "b2", "b3"), now=after(4002))
    for one in ("instead", "b1", "b2", "b3"):
        found = cluster.get(f"/api/v1/namespaces/ns/pods/{one}").ok()
        assert found["status"]["nominatedNodeName"] == "n2"
    held_places.sweep(after(4060))
    assert len(places(cluster)) == 36
    held_places.sweep(after(4700))
    assert places(cluster) == []
    back = act(cluster, plan, "undo").ok(201)
    assert back["spec"]["changes"] == [{"uncordon": {"nodes": ["n1"]}}]


def test_places_are_told_from_other_pods_and_cost_a_batch_no_query_for_each_pod(cluster):
    """Owners' uids are what clients say: this one has dots."""
    (mover,) = instead("mover", uid="u.v.w")
    mover["spec"]["nodeName"] = "n1"
    cluster.post("/api/v1/namespaces/ns/pods", mover).ok(201)
    plan = cluster.post(
        PLANS,
        {
            "apiVersion": "stowage.dev/v1", "kind": "Plan",
            "spec": {"changes": [{"evict": {"pods": ["ns/mover"]}}], "holdPlaces": True},
        },
    ).ok(201)  # fmt: skip
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    place_all(cluster)
    for name in ("stranger", "u.stranger", "u.a.b.c"):
        stranger = make_pod(name).in_namespace(PLACES).manifest
        stranger["metadata"]["annotations"] = {places_held.MOVES: "nowhere"}
        cluster.post(f"/api/v1/namespaces/{PLACES}/pods", stranger).ok(201)
    carry_out(plan["metadata"]["name"], at=after(3))
    assert leaving(cluster) == ["mover"]

    def create(*names: str) -> int:
        with roundtrips.counted() as counted:
            create_pods(instead(*names), now=after(4))
        return counted.number

    assert create("one") == create("two", "three", "four")
    create_pods(instead("other", uid="u.v.w"), now=after(4))
    found = cluster.get("/api/v1/namespaces/ns/pods/other").ok()
    assert found["status"]["nominatedNodeName"] == plan["status"]["steps"][0]["place"]
    held_places.sweep(after(5000))
    assert len(places(cluster)) == 3
    with_none = create("five")
    held_places.sweep(after(5001))  # finds none, so nobody asks for places any more
    assert create("six") < with_none


def test_operations_that_would_move_the_same_pods_hold_one_place_for_each(cluster):
    evicted = {"evict": {"pods": [f"ns/pod-{number:02}" for number in range(12)]}}
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Plan",
        "spec": {"changes": [evicted], "holdPlaces": True},
    }  # fmt: skip
    first, second = (cluster.post(PLANS, document).ok(201) for _ in range(2))
    for plan in (first, second):
        act(cluster, plan, "apply").ok(201)
    for plan in (first, second):
        carry_out(plan["metadata"]["name"])
    assert len(places(cluster)) == 12
    assert "another plan has reserved room" in operation(cluster, second)["message"]
    place_all(cluster)
    carry_out(second["metadata"]["name"], at=after(3))
    assert leaving(cluster) == []
    with roundtrips.counted() as counted:
        carry_out(first["metadata"]["name"], at=after(4))
    assert len(leaving(cluster)) == 12
    assert counted.number < 12 * 40


def test_no_operation_changes_a_node_where_another_one_holds_places(cluster):
    evicted = {"evict": {"pods": ["ns/pod-00"]}}
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Plan",
        "spec": {"changes": [evicted], "holdPlaces": True},
    }  # fmt: skip
    moves = cluster.post(PLANS, document).ok(201)
    cordons = post(cluster, {"cordon": {"nodes": ["n2"]}})
    for plan in (moves, cordons):
        act(cluster, plan, "apply").ok(201)
    carry_out(moves["metadata"]["name"])

    def waits() -> bool:
        carry_out(cordons["metadata"]["name"])
        found = operation(cluster, cordons)
        assert (found["state"] == "Done") != ("reserved room there" in found.get("message", ""))
        return found["state"] == "Running"

    assert waits()
    place_all(cluster)
    assert waits()
    carry_out(moves["metadata"]["name"], at=after(3))
    assert leaving(cluster) == ["pod-00"]
    assert operation(cluster, moves)["state"] == "Done"
    assert waits()
    create_pods(instead("instead"), now=after(4))
    assert places(cluster) == []
    assert waits()
    binding = {"metadata": {"name": "instead"}, "target": {"kind": "Node", "name": "n2"}}
    cluster.post("/api/v1/namespaces/ns/bindings", binding).ok(201)
    assert not waits()
    assert cluster.get("/api/v1/nodes/n2").ok()["spec"]["unschedulable"]


def test_a_pod_with_rules_about_others_moves_beside_no_other_operation(cluster):
    """Its place was proved with the moves of its own plan alone."""
    cluster.post("/api/v1/nodes", make_node("n3").offers(cpu="64").manifest).ok(201)
    for number, node in enumerate(("n1", "n2")):
        apart = make_pod(f"apart-{number}").in_namespace("ns").labelled(app="apart").on(node)
        apart = apart.away_from("kubernetes.io/hostname", app="apart").manifest
        apart["metadata"]["ownerReferences"] = [OWNER]
        cluster.post("/api/v1/namespaces/ns/pods", apart).ok(201)

    def evicting(*names):
        change = {"evict": {"pods": [f"ns/{name}" for name in names]}}
        spec = {"changes": [change], "holdPlaces": True}
        document = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": spec}
        return cluster.post(PLANS, document).ok(201)

    alone, plain, late = evicting("apart-0"), evicting("pod-01"), evicting("apart-1")
    assert [one.get("alone") for one in alone["status"]["steps"]] == [True]
    assert [one.get("alone") for one in plain["status"]["steps"]] == [None]
    for plan in (alone, plain, late):
        act(cluster, plan, "apply").ok(201)
    for plan in (alone, plain, late):
        carry_out(plan["metadata"]["name"], at=after(2))
    assert len(places(cluster)) == 1
    assert operation(cluster, plain)["message"].endswith(
        f"waits for the end of plan {alone['metadata']['name']}"
    )
    assert operation(cluster, late)["state"] == "Paused"
    assert "moves pods too" in operation(cluster, late)["message"]
    told = act(cluster, late, "resume").fails(409, "Conflict")
    assert "make the plan again" in told["message"]
    assert operation(cluster, late)["state"] == "Paused"
    place_all(cluster)
    carry_out(alone["metadata"]["name"], at=after(4))
    assert leaving(cluster) == ["apart-0"]
    carry_out(plain["metadata"]["name"], at=after(6))
    assert "not completely reserved yet" in operation(cluster, plain)["message"]


def test_a_rebalance_on_a_schedule_begins_a_round_each_time_and_keeps_its_rate(cluster):
    def asked(**spec):
        document = {
            "apiVersion": "stowage.dev/v1", "kind": "Plan",
            "spec": {"changes": [{"rebalance": {}}], **spec},
        }  # fmt: skip
        return cluster.post(PLANS, document)

    assert "podsPerHour" in asked(schedule="@every 10m").fails(422, "Invalid")["message"]
    wrong = {
        "unrecognized descriptor": {"schedule": "@sometimes"},
        "needs a schedule": {"timeZone": "Europe/Berlin"},
    }
    for text, spec in wrong.items():
        assert text in asked(**spec, podsPerHour=3).fails(422, "Invalid")["message"]
    plan = asked(schedule="@every 10m", podsPerHour=39).ok(201)
    name = plan["metadata"]["name"]
    assert plan["spec"]["changes"] == [{"rebalance": {}}], "each round is predicted anew"
    begun = act(cluster, plan, "apply").ok(201)["status"]["operation"]
    assert (begun["state"], begun["steps"]) == ("Running", 0)
    carry_out(name)
    assert operation(cluster, plan)["state"] == "Running"
    now = steady_clock.now()
    assert rounds.begin_due(now) == 1
    assert rounds.begin_due(now) == 0
    assert operation(cluster, plan)["steps"] == 41
    carry_out(name, at=now)
    place_all(cluster)
    carry_out(name, at=now + timedelta(seconds=2))
    assert len(leaving(cluster)) == 39
    later = now + timedelta(hours=2)
    carry_out(name, at=later)
    assert len(leaving(cluster)) == 40
    told = operation(cluster, plan)
    assert (told["state"], told["steps"]) == ("Running", 0)
    assert "the next round begins at" in told["message"]
    assert rounds.begin_due(later + timedelta(seconds=500)) == 0
    assert rounds.begin_due(later + timedelta(seconds=700)) == 1
    assert "nothing to do" in operation(cluster, plan)["message"]
    act(cluster, plan, "cancel").ok(201)
    assert rounds.begin_due(later + timedelta(days=1)) == 0


def test_where_places_are_held_a_pod_stays_that_has_none(cluster):
    """Three may leave by the budget, and one fits on no other node."""
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "ns"},
        "spec": {"minAvailable": 37, "selector": {}},
    }  # fmt: skip
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    for number in range(40):
        path = f"/api/v1/namespaces/ns/pods/pod-{number:02}/status"
        cluster.patch(path, {"status": ready}, content_type="application/merge-patch+json").ok()
    cluster.post("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", budget).ok(201)
    statuses.follow(after(1))
    cluster.post("/api/v1/namespaces", {"metadata": {"name": "other"}}).ok(201)
    large = make_pod("large").in_namespace("other").asks(cpu="62").on("n1").manifest
    large["metadata"]["ownerReferences"] = [OWNER]
    cluster.post("/api/v1/namespaces/other/pods", large).ok(201)
    filler = make_pod("filler").in_namespace("other").asks(cpu="30").on("n2").manifest
    cluster.post("/api/v1/namespaces/other/pods", filler).ok(201)
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Plan",
        "spec": {"changes": [DRAIN], "holdPlaces": True},
    }  # fmt: skip
    status = cluster.post(PLANS, document).ok(201)["status"]
    moved = [one for one in status["steps"] if one["do"] == "evict"]
    assert [bool(one["place"]) for one in moved] == [True] * 3
    assert (status["stuck"], status["budgets"]) == ([], [])
    why = {one["pod"]: one["message"] for one in status["staying"]}
    assert len(why) == 38
    assert "no room can be reserved" in why["other/large"]
    assert "PodDisruptionBudget ns/all" in why["ns/pod-39"]


@pytest.mark.parametrize("by_node", [False, True])
def test_a_place_that_is_taken_meanwhile_pauses_the_plan_and_nobody_leaves(cluster, by_node):
    plan = post(cluster, {"rebalance": {}})
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    refused = places(cluster)[0]["metadata"]["name"]
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"phase": "Failed"} if by_node else {"conditions": [condition]}
    if by_node:
        place_all(cluster)
    cluster.patch(f"/api/v1/namespaces/{PLACES}/pods/{refused}/status", {"status": status}).ok()
    carry_out(plan["metadata"]["name"], at=after(3))
    found = operation(cluster, plan)
    assert found["state"] == "Paused"
    assert "there is no room for the replacement pod on node n2 any more" in found["message"]
    assert leaving(cluster) == []
    held_places.sweep(after(4))
    assert places(cluster) == []
    act(cluster, plan, "resume").ok(201)
    carry_out(plan["metadata"]["name"], at=after(5))
    assert len(places(cluster)) == 40
    act(cluster, plan, "cancel").ok(201)
    held_places.sweep(after(6))
    assert places(cluster) == []


def test_no_more_pods_leave_in_an_hour_than_a_plan_says(cluster):
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Plan",
        "spec": {"changes": [DRAIN], "podsPerHour": 3},
    }  # fmt: skip
    plan = cluster.post(PLANS, document).ok(201)
    act(cluster, plan, "apply").ok(201)
    for seconds, gone in ((1, 3), (1800, 3), (3602, 6), (3603, 6)):
        carry_out(plan["metadata"]["name"], at=after(seconds))
        assert len(leaving(cluster)) == gone
    assert "at most 3 pods leave in an hour" in operation(cluster, plan)["message"]
    wrong = {**document, "spec": {**document["spec"], "podsPerHour": 0}}
    assert "spec.podsPerHour" in str(cluster.post(PLANS, wrong).fails(422, "Invalid"))


def with_group(cluster):
    """Post a PodGroup that leaves as a whole, and its three pods on n1."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}},
    }  # fmt: skip
    cluster.post("/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups", group).ok(201)
    for number in range(3):
        pod = make_pod(f"g-{number}").in_namespace("ns").on("n1").manifest
        pod["metadata"]["ownerReferences"] = [OWNER]
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        cluster.post("/api/v1/namespaces/ns/pods", pod).ok(201)


def test_a_group_that_leaves_as_a_whole_counts_as_its_pods_in_an_hour(cluster):
    with_group(cluster)
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Plan",
        "spec": {"changes": [{"evict": {"pods": ["ns/pod-00", "ns/g-0"]}}], "podsPerHour": 3},
    }  # fmt: skip
    plan = cluster.post(PLANS, document).ok(201)
    act(cluster, plan, "apply").ok(201)
    for seconds, gone in ((1, ["pod-00"]), (3602, ["g-0", "g-1", "g-2", "pod-00"])):
        carry_out(plan["metadata"]["name"], at=after(seconds))
        assert leaving(cluster) == gone


def test_no_pod_of_a_group_leaves_before_all_of_them_have_a_place(cluster, monkeypatch):
    """Another operation may have taken the last places."""
    with_group(cluster)
    document = {
        "apiVersion": "stowage.dev/v1", "kind": "Plan",
        "spec": {"changes": [{"evict": {"pods": ["ns/g-0"]}}], "holdPlaces": True},
    }  # fmt: skip
    plan = cluster.post(PLANS, document).ok(201)
    assert sum("place" in one for one in plan["status"]["steps"]) == 3
    act(cluster, plan, "apply").ok(201)
    for most, at, gone in ((2, 1, []), (3, 100, ["g-0", "g-1", "g-2"])):
        monkeypatch.setattr(held_places, "MOST", most)
        for seconds in (at, at + 3, at + 70):
            carry_out(plan["metadata"]["name"], at=after(seconds))
            place_all(cluster)
        assert leaving(cluster) == gone


def test_a_rebalance_that_came_to_nothing_is_kept_as_what_it_comes_to_when_it_is_applied(cluster):
    plan = post(cluster, {"rebalance": {"selector": "pool=spot"}})
    assert plan["spec"]["changes"] == [{"rebalance": {"selector": "pool=spot"}}]
    cluster.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"pool": "spot"}}}).ok()
    told = act(cluster, plan, "apply").fails(409, "Conflict")
    (other,) = [one for one in cluster.get(PLANS).ok()["items"] if one["spec"] != plan["spec"]]
    assert other["spec"]["changes"] == [DRAIN]
    assert other["metadata"]["name"] in str(told)


def test_every_change_names_who_applied_the_plan(cluster):
    plan = post(cluster, DRAIN)
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    user = operation(cluster, plan)["appliedBy"]
    path = "/apis/stowage.dev/v1/changes?kind={}&namespace={}&name={}"
    for kind, namespace, name in (("Node", "", "n1"), ("Pod", "ns", "pod-07")):
        items = cluster.get(path.format(kind, namespace, name)).ok()["items"]
        assert user
        assert user in {one["user"]["username"] for one in items}


def test_who_leaves_for_a_plan_names_it_and_the_plan_names_who_left(cluster):
    plan = post(cluster, DRAIN)
    act(cluster, plan, "apply").ok(201)
    assert carry_out(plan["metadata"]["name"], batches=1)
    uid = plan["metadata"]["uid"]
    evicted = cluster.get(f"{STOWAGE}/changes?kind=Pod&namespace=ns&name=pod-07").ok()["items"][0]
    (because,) = evicted["because"]
    assert (because["kind"], because["name"], because["uid"]) == (
        "Plan",
        plan["metadata"]["name"],
        uid,
    )
    assert because["user"] == {"username": operation(cluster, plan)["appliedBy"]}
    assert "auditID" not in evicted
    table = cluster.get(f"{STOWAGE}/changes?kind=Pod&namespace=ns&name=pod-07&format=table")
    assert f"because Plan {plan['metadata']['name']} was applied" in table.raw.decode()
    found = cluster.get(f"{STOWAGE}/changes?cause={uid}").ok()
    assert sorted(one["name"] for one in found["items"]) == leaving(cluster)
    assert found["because"] == [because]
    assert found["complete"]
    taken = audit.opened({"headers": [(b"audit-id", uid.encode())]}).id
    assert taken != uid, "no request is given the uid of a plan"
    cluster.get(f"{STOWAGE}/changes?cause=plan-1").fails(400, "BadRequest")


def test_what_happens_to_a_plan_is_recorded(cluster):
    plan = post(cluster, DRAIN)
    act(cluster, plan, "apply").ok(201)
    act(cluster, plan, "pause").ok(201)
    act(cluster, plan, "resume").ok(201)
    act(cluster, plan, "cancel").ok(201)
    path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=Plan"
    found = {one["reason"]: one["message"] for one in cluster.get(path).ok()["items"]}
    assert found.keys() == {"PlanBegun", "PlanPaused", "PlanResumed", "PlanCancelled"}
    assert found["PlanCancelled"].endswith("cancelled the plan after 0 steps")


def test_a_brake_holds_the_steps_of_a_plan_back_until_it_is_approved(cluster, settings):
    """Half of the pods of the namespace go, the others when somebody approved that."""
    settings.BRAKE_NAMESPACE_PERCENT = 50
    plan = post(cluster, DRAIN)
    name = plan["metadata"]["name"]
    act(cluster, plan, "apply").ok(201)
    carry_out(name)
    found = operation(cluster, plan)
    assert (found["state"], found["done"], found["held"]) == ("Running", 21, 20)
    assert "The brake namespace.ns holds evictions back" in found["message"]
    (held,) = cluster.get(f"{STOWAGE}/brakes").ok()["items"]
    assert held["metadata"]["name"] == "namespace.ns"
    assert "uid" not in held["metadata"]
    plan_id = find_plan(name).id
    for seconds in (40, 80):
        assert operations.carry_out(plan_id, after(seconds)) in (0, operations.BATCH)
        assert count_asked(after(seconds - 30)) >= 20, "the brake is told that they still wait"
    eviction = {"metadata": {"name": "pod-39"}}
    refused = cluster.post("/api/v1/namespaces/ns/pods/pod-39/eviction", eviction)
    refused.fails(429, "TooManyRequests")
    approved = cluster.post(f"{STOWAGE}/brakes/namespace.ns/approve", {}).ok(201)
    assert approved["metadata"]["uid"]
    assert operations.carry_out(plan_id, after(81)) == operations.BATCH
    assert operation(cluster, plan)["state"] == "Done"


def test_a_plan_that_was_applied_is_not_foretold_once_more(cluster):
    plan = post(cluster, {"cordon": {"nodes": ["n1"]}})
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    status = act(cluster, plan, "apply").fails(409, "Conflict")
    assert status["message"].endswith("it is Done")
    assert len(cluster.get(PLANS).ok()["items"]) == 1, "and no other plan was made instead"


def test_a_plan_that_holds_no_more_is_refused_with_the_new_one(cluster):
    plan = post(cluster, DRAIN)
    late = make_pod("late").in_namespace("ns").on("n1").manifest
    late["metadata"]["ownerReferences"] = [OWNER]
    cluster.post("/api/v1/namespaces/ns/pods", late).ok(201)
    status = act(cluster, plan, "apply").fails(409, "Conflict")
    details = status["details"]
    assert [one["message"].partition(":")[0] for one in details["causes"]] == ["ns/late"]
    new = details["plan"]
    assert new["status"]["summary"]["leaving"] == 41
    assert operation(cluster, plan)["state"] == "Planned"
    assert act(cluster, new, "apply").ok(201)["status"]["operation"]["state"] == "Running"


def test_other_landings_refuse_a_plan_unless_they_do_not_matter(cluster):
    plan = post(cluster, DRAIN)
    cluster.delete("/api/v1/nodes/n2").ok()
    cluster.post("/api/v1/nodes", make_node("n3").offers(cpu="64", pods="110").manifest).ok(201)
    act(cluster, plan, "apply").fails(409, "Conflict")
    act(cluster, plan, "apply", holding="who").fails(400, "BadRequest")
    act(cluster, plan, "apply", holding="leaving").ok(201)


def test_an_operation_is_paused_resumed_and_cancelled(cluster):
    plan = post(cluster, DRAIN)
    name = plan["metadata"]["name"]
    act(cluster, plan, "pause").fails(409, "Conflict")
    act(cluster, plan, "apply").ok(201)
    carry_out(name, batches=1)
    assert act(cluster, plan, "pause").ok(201)["status"]["operation"]["state"] == "Paused"
    assert carry_out(name) == 0
    act(cluster, plan, "resume").ok(201)
    assert carry_out(name, batches=1) == operations.BATCH
    act(cluster, plan, "cancel").ok(201)
    assert carry_out(name) == 0
    found = operation(cluster, plan)
    assert (found["state"], found["done"]) == ("Cancelled", 2 * operations.BATCH)
    assert len(leaving(cluster)) == 2 * operations.BATCH - 1


def test_changes_of_nodes_are_taken_back(cluster):
    before = cluster.get("/api/v1/nodes/n1").ok()
    plan = post(
        cluster,
        {"cordon": {"nodes": ["n1"]}},
        {"label": {"nodes": ["n1"], "set": {"disk": "ssd"}}},
        {"taint": {"nodes": ["n1"], "taints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"resize": {"nodes": ["n1"], "amounts": {"cpu": "8"}}},
    )
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    changed = cluster.get("/api/v1/nodes/n1").ok()
    assert changed["metadata"]["labels"]["disk"] == "ssd"
    assert changed["status"]["allocatable"]["cpu"] == "8"
    assert {taint["key"] for taint in changed["spec"]["taints"]} >= {"a"}
    undo = act(cluster, plan, "undo").ok(201)
    act(cluster, undo, "apply").ok(201)
    carry_out(undo["metadata"]["name"])
    after_all = cluster.get("/api/v1/nodes/n1").ok()
    assert after_all["spec"] == before["spec"]
    assert after_all["metadata"].get("labels") == before["metadata"].get("labels")
    assert after_all["status"]["allocatable"] == before["status"]["allocatable"]
    evicting = post(cluster, {"pods": {"objects": [make_pod("x").in_namespace("ns").manifest]}})
    act(cluster, evicting, "undo").fails(409, "Conflict")


def test_a_node_is_taken_back_to_what_it_was_when_the_step_was_done(cluster):
    plan = post(
        cluster, {"label": {"nodes": ["n1"], "set": {"disk": "ssd"}}}, {"cordon": {"nodes": ["n2"]}}
    )
    label = {"metadata": {"labels": {"disk": "tape"}}}
    cluster.patch("/api/v1/nodes/n1", label).ok()
    cluster.patch("/api/v1/nodes/n2", {"spec": {"unschedulable": True}}).ok()
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    undo = act(cluster, plan, "undo").ok(201)
    assert undo["spec"]["changes"] == [{"label": {"nodes": ["n1"], "set": {"disk": "tape"}}}]


def test_an_import_and_a_scale_are_carried_out_and_replicas_taken_back(cluster):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}}
    path = "/apis/apps/v1/namespaces/ns/replicasets"
    cluster.post(path, {**owner, "spec": spec}).ok(201)
    scale = {"kind": "ReplicaSet", "namespace": "ns", "name": "web", "replicas": 3}
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 7,
    }
    plan = post(cluster, {"import": {"objects": [urgent]}}, {"scale": scale})
    rights = [
        {"apiGroups": ["stowage.dev"], "resources": ["plans/apply"], "verbs": ["create"]},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"],
         "verbs": ["create"]},
    ]  # fmt: skip
    refused = act(grant(cluster, "importer", rights), plan, "apply").fails(403, "Forbidden")
    assert "replicasets/scale" in refused["message"]
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    assert operation(cluster, plan)["state"] == "Done"
    assert cluster.get(f"{path}/web").ok()["spec"]["replicas"] == 3
    assert cluster.get("/apis/scheduling.k8s.io/v1/priorityclasses/urgent").ok()["value"] == 7
    undo = act(cluster, plan, "undo").ok(201)
    assert undo["spec"]["changes"] == [{"scale": {**scale, "replicas": 1}}]
    events = cluster.get("/api/v1/namespaces/default/events").ok()["items"]
    told = {one["reason"] for one in events if one["involvedObject"].get("kind") == "Plan"}
    assert told == {"PlanBegun", "PlanDone"}


def test_steps_are_read_once_however_many_batches_they_take(cluster):
    """A plan of a whole cluster has megabytes of them, and twenty are done at a time."""
    plan = post(cluster, DRAIN)
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"], batches=1)
    sql.run("UPDATE plan SET steps = '[]' WHERE name = %s", (plan["metadata"]["name"],))
    carry_out(plan["metadata"]["name"])
    assert len(leaving(cluster)) == 40
    assert find_plan(plan["metadata"]["name"]).state == "Done"
    assert operations._steps == {}


def test_the_steps_of_an_operation_that_rests_are_forgotten(cluster):
    plan = post(cluster, DRAIN)
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"], batches=1)
    assert [*operations._steps] == [plan["metadata"]["name"]]
    act(cluster, plan, "pause").ok(201)
    operations.run(lambda: after(2))
    assert operations._steps == {}
    act(cluster, plan, "resume").ok(201)
    carry_out(plan["metadata"]["name"])
    assert len(leaving(cluster)) == 40


def test_operations_take_turns_and_one_that_fails_as_a_whole_is_set_aside(cluster, monkeypatch):
    """A drain of forty pods, a plan whose step cannot be read any more, and a small plan."""
    large, broken, small = plans_ = [
        post(cluster, change)
        for change in (
            DRAIN,
            {"label": {"nodes": ["n2"], "set": {"a": "b"}}},
            {"label": {"nodes": ["n2"], "set": {"disk": "ssd"}}},
        )
    ]
    for plan in plans_:
        act(cluster, plan, "apply").ok(201)
    sql.run("UPDATE plan SET steps = '[{}]' WHERE name = %s", (broken["metadata"]["name"],))
    monkeypatch.setattr(operations, "_ROUND_SECONDS", 600.0)  # also on a slow machine
    turns = iter([False] * 3 + [True] * 9)
    operations.run(lambda: after(1), stopping=lambda: next(turns))
    assert operation(cluster, small)["state"] == "Done", "it did not wait for the large one"
    assert operation(cluster, large)["done"] == operations.BATCH
    told = operation(cluster, broken)
    assert (told["state"], told["done"]) == ("Paused", 0)
    assert "set aside" in told["message"]
    carry_out(large["metadata"]["name"])
    assert operation(cluster, large)["state"] == "Done"


def test_who_may_not_list_pods_reads_no_names_of_pods(cluster):
    plan = post(cluster, DRAIN)
    rules = [
        {"apiGroups": ["stowage.dev"], "resources": ["plans"], "verbs": ["get"]},
        {"apiGroups": ["stowage.dev"], "resources": ["simulations", "nodeadvice"],
         "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
    ]  # fmt: skip
    stranger = grant(cluster, "stranger", rules)
    path = f"{PLANS}/{plan['metadata']['name']}"
    assert "pod-01" in str(cluster.get(path).ok())
    told = stranger.get(path).ok()
    assert "pod-01" not in str(told)
    assert told["status"]["summary"]["leaving"] == 40
    vip = make_pod("vip").in_namespace("ns").asks(cpu="60")
    vip = vip.with_("spec", "priorityClassName", value="system-node-critical").manifest
    for number in range(6):
        pod = make_pod(f"full-{number}").in_namespace("ns").on("n2").asks(cpu="10").manifest
        cluster.post("/api/v1/namespaces/ns/pods", pod).ok(201)
    cluster.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok()
    for asked in ({}, {"preemption": "perform"}):
        document = {"spec": {"base": "live", "pods": [vip], **asked}}
        status = cluster.post(f"{STOWAGE}/simulations", document).ok(201)["status"]
        victims = status["results"][0]["preemption"]["victims"]
        assert victims
        assert victims[0].startswith("ns/full-")
        status = stranger.post(f"{STOWAGE}/simulations", document).ok(201)["status"]
        assert status["results"][0]["preemption"]["victims"] == []
        assert status["results"][0]["preemption"]["otherVictims"] == len(victims)
        assert status.get("otherEvictions", 0) == (len(victims) if asked else 0)
        assert "full-" not in str(status)
    waits = make_pod("waits").in_namespace("ns").asks(cpu="64").manifest
    cluster.post("/api/v1/namespaces/ns/pods", waits).ok(201)
    offer = {"name": "big", "price": 1, "node": make_node("x").offers(cpu="64", pods="9").manifest}
    document = {"spec": {"catalogue": [offer]}}
    assert cluster.post(f"{STOWAGE}/nodeadvice", document).ok(201)["status"]["pods"] == ["ns/waits"]
    status = stranger.post(f"{STOWAGE}/nodeadvice", document).ok(201)["status"]
    assert (status["pods"], status["otherPods"]) == ([], 1)
    wrong = cluster.post(f"{STOWAGE}/nodeadvice", {**document, "extra": 1}).fails(422, "Invalid")
    assert [one["field"] for one in wrong["details"]["causes"]] == ["extra"]


def test_who_may_not_list_pods_reads_no_names_of_them_from_an_operation(cluster):
    """Whatever is asked of an operation that is held back tells no more than its plan does."""
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }  # fmt: skip
    for number in range(40):
        path = f"/api/v1/namespaces/ns/pods/pod-{number:02}/status"
        cluster.patch(path, {"status": {"phase": "Running"}}).ok()
    cluster.post("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", budget).ok(201)
    rules = [
        {"apiGroups": ["stowage.dev"], "verbs": ["*"],
         "resources": ["plans", "plans/apply", "plans/pause", "plans/resume", "plans/cancel"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
    ]  # fmt: skip
    stranger = grant(cluster, "stranger", rules)
    plan = post(cluster, DRAIN)
    told = [act(stranger, plan, "apply")]
    carry_out(plan["metadata"]["name"], batches=1)
    path = f"{PLANS}/{plan['metadata']['name']}"
    assert "pod-" in cluster.get(path).ok()["status"]["operation"]["message"]
    told += [act(stranger, plan, what) for what in ("pause", "resume", "cancel")]
    told += [stranger.get(path), stranger.get(PLANS)]
    for one in told:
        assert one.status in (200, 201), one.raw
        assert "pod-" not in one.raw.decode()
    taint = {"key": "a", "effect": "NoExecute"}
    plan = post(cluster, {"taint": {"nodes": ["n1"], "taints": [taint]}})
    cluster.delete("/api/v1/namespaces/ns/pods/pod-01").ok()
    changed = act(stranger, plan, "apply")
    assert "causes" in act(cluster, plan, "apply").fails(409, "Conflict")["details"]
    assert changed.fails(409, "Conflict")["details"]["plan"]["metadata"]["name"]
    assert "pod-" not in changed.raw.decode()


def test_what_was_not_done_is_not_taken_back(cluster):
    plan = post(
        cluster,
        {"add": {"objects": [make_node("n3").manifest, make_node("n4").manifest]}},
        {"label": {"nodes": ["n1"], "set": {"disk": "ssd"}}},
    )
    act(cluster, plan, "undo").fails(409, "Conflict")
    act(cluster, plan, "apply").ok(201)
    cluster.post("/api/v1/nodes", make_node("n3").manifest).ok(201)
    carry_out(plan["metadata"]["name"])
    assert operation(cluster, plan)["failed"] == 1
    undo = act(cluster, plan, "undo").ok(201)
    assert undo["spec"]["changes"] == [
        {"label": {"nodes": ["n1"], "remove": ["disk"]}},
        {"delete": {"nodes": ["n4"]}},
    ], "n3 is somebody else's"


def test_to_take_back_is_to_foretell_and_needs_the_right_to_read(cluster):
    plan = post(cluster, {"cordon": {"nodes": ["n1"]}})
    act(cluster, plan, "apply").ok(201)
    carry_out(plan["metadata"]["name"])
    rules = [{"apiGroups": ["stowage.dev"], "resources": ["plans/undo"], "verbs": ["create"]}]
    undoer = grant(cluster, "undoer", rules)
    status = act(undoer, plan, "undo").fails(403, "Forbidden")
    assert "cannot list" in status["message"]


def test_steps_that_a_budget_holds_back_are_not_tried_until_it_changes(cluster):
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    for number in range(40):
        path = f"/api/v1/namespaces/ns/pods/pod-{number:02}/status"
        cluster.patch(path, {"status": {"phase": "Running"}}).ok()
    cluster.post("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", budget).ok(201)
    plan = post(cluster, DRAIN)
    act(cluster, plan, "apply").ok(201)
    name = plan["metadata"]["name"]
    assert carry_out(name) == 41
    assert operation(cluster, plan)["held"] == 40
    plan_id = find_plan(name).id
    assert operations.carry_out(plan_id, after(10)) == 0, "the budget is as it was"
    again = [operations.carry_out(plan_id, after(100)) for _ in range(3)]
    assert again == [operations.BATCH, operations.BATCH, 0], "once a minute all are tried"
    budgets = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets"
    allows = {"status": {"disruptionsAllowed": 3, "observedGeneration": 1}}
    cluster.patch(f"{budgets}/web/status", allows).ok()
    assert operations.carry_out(plan_id, after(101)) == 4, "three are let go, one is refused"
    assert operations.carry_out(plan_id, after(102)) == 0
    assert (operation(cluster, plan)["done"], operation(cluster, plan)["held"]) == (4, 37)
    act(cluster, plan, "pause").ok(201)
    act(cluster, plan, "resume").ok(201)
    assert operations.carry_out(plan_id, after(103)) == operations.BATCH, "somebody wants it now"
    cluster.delete(f"{budgets}/web").ok()
    assert carry_out(name) == 37
    assert operation(cluster, plan)["state"] == "Done"


def test_a_step_is_not_held_back_for_another_pod_of_the_name(cluster):
    """As with StatefulSets: the pod that was to leave is gone, and a budget holds the new one."""
    plan = post(cluster, {"evict": {"pods": ["ns/pod-00"]}})
    act(cluster, plan, "apply").ok(201)
    path = "/api/v1/namespaces/ns/pods"
    cluster.delete(f"{path}/pod-00?gracePeriodSeconds=0").ok()
    cluster.post(path, make_pod("pod-00").in_namespace("ns").on("n1").manifest).ok(201)
    cluster.patch(f"{path}/pod-00/status", {"status": {"phase": "Running"}}).ok()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    cluster.post("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", budget).ok(201)
    assert carry_out(plan["metadata"]["name"]) == 1
    found = operation(cluster, plan)
    assert (found["state"], found["done"], found["held"]) == ("Done", 1, 0)
    assert leaving(cluster) == []


LARGE = 10**400
WRONG = {
    "a pod of a namespace that is not there": (
        {"pods": {"objects": [make_pod("x").in_namespace("nowhere").manifest]}}, "nowhere",
    ),
    "items that are no list": ({"add": {"objects": [{"kind": "List", "items": 5}]}}, "items"),
    "a grace period without end": (
        {"drain": {"nodes": ["n1"], "gracePeriodSeconds": LARGE}}, "gracePeriodSeconds",
    ),
    "an amount that no node may have": (
        {"resize": {"nodes": ["n1"], "amounts": {"pods": "1.5"}}}, "must be an integer",
    ),
    "a label that is none": ({"label": {"nodes": ["n1"], "set": {"no key!": "v"}}}, "no key!"),
    "a taint that is none": (
        {"taint": {"nodes": ["n1"], "taints": [{"key": "no key!", "effect": "NoExecute"}]}},
        "no key!",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_could_not_be_carried_out_is_refused_when_it_is_asked(cluster, what):
    change, told = WRONG[what]
    document = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": {"changes": [change]}}
    message = cluster.post(PLANS, document).fails(422, "Invalid")["message"]
    assert "spec.changes[0]" in message
    assert told in message


def test_a_horizon_without_end_is_refused(cluster):
    spec = {"changes": [DRAIN], "horizonSeconds": LARGE}
    document = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": spec}
    message = cluster.post(PLANS, document).fails(422, "Invalid")["message"]
    assert "spec.horizonSeconds" in message


def test_a_pod_that_names_its_node_is_not_passed_over_in_silence(cluster):
    plan = post(
        cluster, {"pods": {"objects": [make_pod("x").in_namespace("ns").on("n2").manifest]}}
    )
    (warning,) = plan["status"]["warnings"]
    assert warning.startswith("ns/x: is bound to node n2")


def test_a_budget_holds_steps_back_and_the_others_go_on(cluster):
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "ns"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "held"}}},
    }
    held = make_pod("held").in_namespace("ns").labelled(app="held").on("n1").manifest
    held["metadata"]["ownerReferences"] = [OWNER]
    cluster.post("/api/v1/namespaces/ns/pods", held).ok(201)
    running = {"status": {"phase": "Running"}}
    path = "/api/v1/namespaces/ns/pods/held/status"
    cluster.patch(path, running, content_type="application/merge-patch+json").ok()
    cluster.post("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", budget).ok(201)
    plan = post(cluster, DRAIN)
    assert plan["status"]["summary"]["held"] == 1
    act(cluster, plan, "apply").ok(201)
    name = plan["metadata"]["name"]
    carry_out(name)
    found = operation(cluster, plan)
    assert (found["state"], found["done"], found["held"]) == ("Running", 41, 1)
    assert "held" in found["message"]
    cluster.delete("/apis/policy/v1/namespaces/ns/poddisruptionbudgets/web").ok()
    assert operations.carry_out(find_plan(name).id, after(2)) == 1
    assert operation(cluster, plan)["state"] == "Done"


@pytest.mark.parametrize(
    ("unit", "policy", "may_go"),
    [
        ("PodGroup", "IfHealthyBudget", 0),
        ("PodGroup", "AlwaysAllow", 2),
        ("Pod", "IfHealthyBudget", 3),
        ("Pod", "AlwaysAllow", 0),
    ],
)
def test_a_plan_foretells_whom_a_budget_holds_back_as_evictions_then_find(
    cluster, unit, policy, may_go
):
    """Group a has one ready pod more than it needs, b just enough, c too few; d leaves together."""
    base = "/api/v1/namespaces/ns"
    for name, mode in (("a", "single"), ("b", "single"), ("c", "single"), ("d", "all")):
        group = pod_group(name, 3 if name == "c" else 2, disruptionMode={mode: {}})
        group["metadata"]["namespace"] = "ns"
        cluster.post("/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups", group).ok(201)
        for number in range(3):
            pod = make_pod(f"{name}{number}").in_namespace("ns").labelled(app="g").on("n2").manifest
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
            cluster.post(f"{base}/pods", pod).ok(201)
            ready = {"type": "Ready", "status": str(f"{name}{number}" not in ("b2", "c2"))}
            cluster.patch(
                f"{base}/pods/{name}{number}/status",
                {"status": {"phase": "Running", "conditions": [ready]}},
                content_type="application/merge-patch+json",
            ).ok()
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "annotations": {"stowage.dev/disruption-unit": unit}},
        "spec": {"maxUnavailable": may_go, "selector": {"matchLabels": {"app": "g"}},
                 "unhealthyPodEvictionPolicy": policy},
    }  # fmt: skip
    cluster.post("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", budget).ok(201)
    statuses.sync("ns", after(0))
    names = ["a0", "a1", "b0", "b2", "c0", "c2", "d0", "d1"]
    plan = post(cluster, {"evict": {"pods": [f"ns/{name}" for name in names]}})
    found = plan["status"]["leaving"]
    told = {one["pod"].removeprefix("ns/") for one in found if one.get("blockedBy")}
    refused = set()
    for name in names:
        if "deletionTimestamp" in cluster.get(f"{base}/pods/{name}").ok()["metadata"]:
            continue
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        answer = cluster.post(f"{base}/pods/{name}/eviction", eviction)
        refused |= {name} if answer.status == 429 else set()
    assert {one for one in told if one in names} == refused
    assert refused


def test_what_fails_is_told_and_stops_nothing_else(cluster):
    plan = post(
        cluster,
        {"add": {"objects": [make_node("n3").manifest]}},
        {"cordon": {"nodes": ["n2"]}},
    )
    act(cluster, plan, "apply").ok(201)
    cluster.post("/api/v1/nodes", make_node("n3").manifest).ok(201)
    carry_out(plan["metadata"]["name"])
    found = operation(cluster, plan)
    assert (found["state"], found["done"], found["failed"]) == ("Failed", 1, 1)
    assert "n3" in found["failures"][0]
    assert cluster.get("/api/v1/nodes/n2").ok()["spec"]["unschedulable"]


def test_an_operation_rests_only_when_nothing_is_left_to_do(cluster, monkeypatch):
    """A round is over after so many seconds, and the next one begins at once."""
    plan = post(cluster, DRAIN)
    act(cluster, plan, "apply").ok(201)
    name = plan["metadata"]["name"]
    states = []

    class Watched(Loop):
        def pause(self, seconds):
            states.append(find_plan(name).state)
            self.stop()

        def busy(self):
            states.append(find_plan(name).progress.count("d"))

    monkeypatch.setattr(operations, "_ROUND_SECONDS", 0.0)
    duties.carry_out_plans(Watched("operations", duties.carry_out_plans))
    assert states == [0, 20, 40, 41, "Done"]


def test_rights(cluster, reader):
    """To foretell it is enough to read; to apply, the right to every change is needed."""
    plan = post(cluster, DRAIN)
    reader.post(f"{PLANS}/{plan['metadata']['name']}/apply", {}).fails(403, "Forbidden")
    stranger = Api(make_token("stranger", ["team"]))
    stranger.post(PLANS, {"spec": {}}).fails(403, "Forbidden")
    stranger.get(PLANS).fails(403, "Forbidden")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "planner"},
        "rules": [
            {"apiGroups": ["stowage.dev"], "resources": ["plans", "plans/apply"],
             "verbs": ["get", "list", "create"]},
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "patch"]},
        ],
    }  # fmt: skip
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "planner"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "planner",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "planner"}],
    }  # fmt: skip
    cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).ok(201)
    cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).ok(201)
    planner = Api(make_token("planner", ["team"]))
    cordon = post(planner, {"cordon": {"nodes": ["n1"]}})
    act(planner, cordon, "apply").ok(201)
    status = act(planner, plan, "apply").fails(403, "Forbidden")
    assert "pods/eviction" in status["message"]
    assert 'in the namespace "ns"' in status["message"]


def test_who_may_not_list_pods_does_not_learn_from_a_refusal_where_they_leave(cluster):
    plan = post(cluster, DRAIN)
    applier = grant(
        cluster,
        "applier",
        [
            {"apiGroups": ["stowage.dev"], "resources": ["plans", "plans/apply", "plans/resume"],
             "verbs": ["get", "create"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
        ],
    )  # fmt: skip
    for what in ("apply", "resume"):
        status = act(applier, plan, what).fails(403, "Forbidden")
        assert 'cannot create resource "pods/eviction"' in status["message"]
        assert "namespace" not in status["message"]
        assert status["details"] == {
            "name": plan["metadata"]["name"], "group": "stowage.dev", "kind": "plans",
        }  # fmt: skip


def test_who_has_places_held_needs_the_right_to_create_pods_there(cluster):
    plan = post(cluster, {"rebalance": {}})
    may_drain = [
        {"apiGroups": ["stowage.dev"], "resources": ["plans/apply"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    ]
    drainer = grant(cluster, "drainer", may_drain)
    status = act(drainer, plan, "apply").fails(403, "Forbidden")
    assert f'cannot create resource "pods" in API group "" in the namespace "{PLACES}"' in str(
        status
    )
    act(drainer, post(cluster, DRAIN), "apply").ok(201)


def test_plans_are_dropped_after_a_week(cluster):
    plan = post(cluster, DRAIN)
    running = post(cluster, DRAIN)
    act(cluster, running, "apply").ok(201)
    assert plans.trim(now=after(6 * 86400)) == 0
    assert plans.trim(now=after(8 * 86400)) == 1
    cluster.get(f"{PLANS}/{plan['metadata']['name']}").fails(404, "NotFound")


def test_a_user_keeps_the_last_hundred_plans_that_nobody_applied(cluster):
    def stored(number, by):
        return plans.store({"spec": {}}, {"summary": {}}, by=by, now=after(number)).name

    other = stored(0, "other")
    first = [stored(number, "somebody") for number in range(plans.MOST_PLANNED)]
    plans.begin(first[0], by="somebody", impersonator="", now=after(1))
    late = [stored(number, "somebody") for number in (200, 201, 202)]
    for name in (other, first[0], first[3], *late):
        assert find_plan(name).name == name
    for name in first[1:3]:
        with pytest.raises(NotFound):
            find_plan(name)


def test_previews_go_for_previews_alone_and_are_listed_when_they_are_applied(cluster):
    kept = plans.store({"spec": {}}, {}, by="somebody", now=after(0)).name
    previews = [
        plans.store({"spec": {}}, {}, by="somebody", now=after(1), is_preview=True).name
        for _ in range(plans.MOST_PLANNED + 2)
    ]
    assert find_plan(kept).name == kept
    assert find_plan(previews[2]).name == previews[2]
    with pytest.raises(NotFound):
        find_plan(previews[1])
    assert [one.name for one in latest_plans(limit=9)] == [kept]
    plans.begin(previews[5], by="somebody", impersonator="", now=after(2))
    assert [one.name for one in latest_plans(limit=9)] == [previews[5], kept]


def test_lists_do_not_read_all_that_plans_foretold(cluster):
    post(cluster, DRAIN)
    (plan,) = latest_plans(limit=10)
    assert set(plan.prediction()) == {"at", "revision", "summary"}
    assert plan.to_do() == []
    (listed,) = cluster.get(PLANS).ok()["items"]
    assert listed["status"]["summary"]["leaving"] == 40
    assert listed["status"]["operation"]["steps"] == 41


def test_a_dry_run_of_a_pod_says_where_it_would_go_and_who_would_leave(cluster):
    path = "/api/v1/namespaces/kube-system/pods?dryRun=All"
    fits = make_pod("fits").in_namespace("kube-system").asks(cpu="30").manifest
    assert cluster.post(path, fits).ok(201)["spec"]["nodeName"] == "n2"
    small = make_pod("small").in_namespace("ns").asks(cpu="10").on("n1").manifest
    large = make_pod("large").in_namespace("kube-system").asks(cpu="64").manifest
    cluster.delete("/api/v1/nodes/n2").ok()
    larger = make_pod("larger").in_namespace("kube-system").asks(cpu="65").manifest
    waits = cluster.post(path, larger)
    assert "nodeName" not in waits.ok(201)["spec"]
    assert "would wait" in waits.headers["Warning"]
    large["spec"]["priorityClassName"] = "system-node-critical"
    cluster.post("/api/v1/namespaces/ns/pods", small).ok(201)
    answer = cluster.post(path, large)
    assert "nodeName" not in answer.ok(201)["spec"]
    assert "ns/small would leave" in answer.headers["Warning"]
    names_pods = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}]
    stranger = grant(cluster, "stranger", names_pods)
    told = stranger.post(path, large)
    told.ok(201)
    assert "another pod would leave" in told.headers["Warning"]
    assert "ns/small" not in told.headers["Warning"]
