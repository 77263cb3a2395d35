"""Operations beside others who change the same rows."""

import threading

import pytest
from django.db import transaction

from clusterstate.actions import objects, plans
from clusterstate.actions.writing import stored_rows
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.plans import DONE, find_plan
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
