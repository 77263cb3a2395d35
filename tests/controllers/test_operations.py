"""Operations beside others who change the same rows."""

import threading
from typing import Any

import pytest
from django.db import transaction

from clusterstate.actions import objects, plans
from clusterstate.actions.pods import places
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.writing import stored_rows
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import Conflict
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.plans import DONE, PAUSED, PLACES, find_plan
from scheduling.controllers import operations
from tests.builders import make_pod
from tests.clock import NOW
from tests.clusterstate.support import Worker, create_node, create_pod
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
BUDGET = KINDS["PodDisruptionBudget"]


def waiting_for_locks() -> bool:
    """Return whether a session of this database waits for a row of another one."""
    return bool(
        sql.fetch(
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


def set_status(kind: str, name: str, status: Manifest) -> None:
    def change(one: Manifest) -> Manifest:
        return {**one, "status": status}

    objects.update(kind, "default", name, change, subresource="status", now=NOW)


def test_a_plan_and_an_eviction_beside_it_never_wait_for_each_other() -> None:
    """The plan removes ``a``, then evicts ``b``; a client evicts ``a``: first its budget's row."""
    create_node("n")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    steps = []
    for name, what in (("a", "remove"), ("b", "evict")):
        uid = create_pod(make_pod(name).on("n").manifest, now=NOW).uid
        path = {"namespace": "default", "name": name, "uid": uid}
        steps.append({"do": what, "subject": f"pod default/{name}", **path})
        set_status("Pod", name, ready)
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {}},
    }
    objects.create("PodDisruptionBudget", "default", budget, now=NOW)
    set_status("PodDisruptionBudget", "web", {"disruptionsAllowed": 2, "observedGeneration": 1})
    plan = plans.store({}, {"steps": steps}, by="", now=NOW)
    plans.begin(plan.name, by="", impersonator="", now=NOW)
    begun, goes_on = threading.Event(), threading.Event()

    def evict_a() -> None:
        with transaction.atomic():
            stored_rows.lock_row(BUDGET, "default", "web")
            begun.set()
            assert goes_on.wait(60)
            sql.fetch("SELECT 1 FROM pod WHERE namespace = 'default' AND name = 'a' FOR UPDATE")

    client = Worker(evict_a)
    assert begun.wait(60)
    operation = Worker(lambda: operations.carry_out(plan.id, NOW))
    until(waiting_for_locks, what="the operation to wait for the budget")
    goes_on.set()
    client.result(60)
    assert operation.result(60) == 2
    assert find_plan(plan.name).state == DONE


def hold_places(*movers: str) -> None:
    """Make places for pods of the ReplicaSet ``uid`` that are gone."""
    create_node("n")
    namespace = {"metadata": {"name": PLACES, "annotations": {places.HELD: "held"}}}
    objects.create("Namespace", "", namespace, now=NOW)
    for name in movers:
        place = make_pod(f"uid.{name}.1.1").in_namespace(PLACES).on("n").manifest
        place["metadata"]["annotations"] = {places.MOVES: f"default/{name}"}
        create_pod(place, now=NOW)


def create_replacements(*names: str) -> None:
    pods = [make_pod(name).manifest for name in names]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "uid"}
    for one in pods:
        one["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    create_pods(pods, now=NOW)


def nominated() -> list[sql.Row]:
    return sorted(
        sql.fetch("SELECT name, nominated_node_name FROM pod WHERE namespace = 'default'")
    )


def test_new_pods_wait_for_whoever_has_locked_a_place_of_theirs() -> None:
    """For example an agent that reports its status, or a worker that was killed a moment ago."""
    hold_places("a", "b")
    begun, goes_on = threading.Event(), threading.Event()

    def lock_a_place() -> None:
        with transaction.atomic():
            sql.fetch("SELECT 1 FROM pod WHERE name = 'uid.a.1.1' FOR UPDATE")
            begun.set()
            assert goes_on.wait(60)

    other = Worker(lock_a_place)
    assert begun.wait(60)
    controller = Worker(lambda: create_replacements("c", "d"))
    until(lambda: waiting_for_locks() or not controller.is_alive(), what="the controller")
    goes_on.set()
    other.result(60)
    controller.result(60)
    assert nominated() == [("c", "n"), ("d", "n")]
    assert places.find_places() == []


def test_nobody_sees_a_new_pod_before_it_is_nominated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another transaction writes in between, and ends later."""
    hold_places("a")
    begun, goes_on = threading.Event(), threading.Event()
    others = []

    def write() -> None:
        with transaction.atomic():
            create_node("other")
            begun.set()
            assert goes_on.wait(60)

    def hand_over(*given: Any, **more: Any) -> None:
        others.append(Worker(write))
        assert begun.wait(60)
        inner(*given, **more)

    inner = places.hand_over
    monkeypatch.setattr(places, "hand_over", hand_over)
    create_replacements("c")
    seen = "SELECT 1 FROM change WHERE name = 'c' AND revision <= %s::bigint"
    early = sql.fetch(seen, (changes.watermark(),))
    goes_on.set()
    others[0].result(60)
    assert nominated() == [("c", "n")]
    assert early == []
    assert sql.fetch(seen, (changes.watermark(),))


def test_a_pause_ends_what_was_proved_about_pods_with_rules_about_others() -> None:
    move = {"do": "evict", "subject": "pod default/a", "namespace": "default", "name": "a"}
    outcome = {"steps": [{**move, "uid": "u", "place": "n", "alone": True}]}
    plan = plans.store({"spec": {}}, outcome, by="", now=NOW)
    plans.begin(plan.name, by="", impersonator="", now=NOW)
    plans.pause(plan.name, now=NOW)
    with pytest.raises(Conflict, match="cancel it, and make the plan again"):
        plans.resume(plan.name, now=NOW)
    assert find_plan(plan.name).state == PAUSED
    often = plans.store({"spec": {"schedule": "@every 10m"}}, {}, by="", now=NOW)
    plans.begin(often.name, by="", impersonator="", now=NOW)
    plans.begin_round(often, outcome, now=NOW)
    assert plans.due_rounds(now=NOW) == []
    plans.pause(often.name, now=NOW)
    plans.resume(often.name, now=NOW)
    assert [one.name for one in plans.due_rounds(now=NOW)] == [often.name]
