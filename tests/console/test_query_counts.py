"""How often each page of the console waits for the database: as often for many objects as for few.

The numbers stand in ``query_counts.json``; ``QUERY_COUNTS=write`` writes them anew, for the
difference to be looked at.
"""

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
import time_machine
from django.test import Client

from api.console.fleet import node_list
from api.console.live import shared_answers
from clusterstate.actions import brakes, objects
from clusterstate.actions.past import audit_log
from clusterstate.actions.past.audit_log import AuditLine
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.scheduler import canaries, decisions, scheduler_configuration
from clusterstate.actions.scheduler.decisions import Turn
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.queries.evictions.brakes import Share
from clusterstate.queries.nodes.fleet import FleetNode
from clusterstate.queries.past import trail
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler.decisions import of_pod
from scheduling.controllers.evictions import timers
from scheduling.engine.reference.record import Body
from tests import roundtrips
from tests.clock import NOW, after, moment
from tests.clusterstate.support import bind, create_node, new_pod
from tests.console import served
from tests.console.conftest import text
from tests.console.test_change import form_of
from tests.controllers.support import set_taints, taint, tolerates

KEPT = Path(__file__).with_name("query_counts.json")
MOST = 60
SLACK = 2
"""A page that has a plan made drops old ones now and then; ten objects more are ten asked for."""
PAGES = {
    "fleet": "",
    "fleet-beside": "fleet/beside",
    "fleet-columns": "fleet/columns",
    "fleet-pace": "fleet/pace",
    "nodes": "nodes/",
    "nodes, searched": "nodes/?q=zone%3Da+cpu%3E1%25&sort=-cpu&columns=cpu,labels,leaving",
    "nodes-csv": "nodes/csv",
    "node": "nodes/n1/",
    "devices": "devices/",
    "change": "change?do=cordon&node=n1",
    "plans": "plans/",
    "plan": "plans/{plan}/",
    "plan-yaml": "plans/{plan}/yaml",
    "what-if": "what-if/",
    "what-if-yaml": "what-if/yaml",
    "pods": "pods/",
    "pods, waiting": "pods/?waiting=yes",
    "pods, of a node": "pods/?node=n1&q=m",
    "submit": "pods/new",
    "pod": "pods/default/m0/",
    "pod, waiting": "pods/default/big-0/",
    "why": "pods/default/big-0/why",
    "why-helps": "pods/default/big-0/why/helps",
    "why-columns": "pods/default/big-0/why/columns",
    "pod-group": "groups/default/gang/",
    "decision": "pods/default/m0/decisions/{decision}",
    "decisions": "decisions/",
    "decisions-csv": "decisions/csv",
    "waiting": "waiting/",
    "evictions": "evictions/",
    "brake": "evictions/brakes/zone.a/",
    "audit": "audit/",
    "changes": "changes/",
    "create": "new",
    "policies": "policies/",
    "who-can": "policies/who-can",
    "revisions": "policies/revisions",
    "plugins": "policies/plugins",
    "comparisons": "policies/comparisons",
    "node-advice": "nodes/advice",
    "canaries": "policies/canaries/",
    "canary": "policies/canaries/m0/",
    "objects-csv": "objects/Pod/csv",
    "objects": "objects/Pod/",
    "objects, nodes": "objects/Node/",
    "object": "objects/Node/-/n1/",
    "difference": "objects/Node/-/n1/changes/{change}",
    "find": "find?q=m",
    "find, actions": "find?q=delete+m",
    "account": "account",
    "here": "here",
    "then: fleet": "?at={then}",
    "then: fleet-columns": "fleet/columns?at={then}",
    "then: fleet-beside": "fleet/beside?at={then}",
    "then: nodes": "nodes/?at={then}",
    "then: node": "nodes/n1/?at={then}",
    "then: pods": "pods/?at={then}",
    "then: pods, waiting": "pods/?waiting=yes&at={then}",
    "then: pod": "pods/default/m0/?at={then}",
    "then: devices": "devices/?at={then}",
    "then: decisions": "decisions/?at={then}",
    "then: policies": "policies/?at={then}",
    "then: objects": "objects/Pod/?at={then}",
    "then: object": "objects/Node/-/n1/?at={then}",
}  # fmt: skip


def fill(numbers: range) -> None:
    """Add to everything that pages list."""
    for number in numbers:
        name = f"m{number}"
        create_node(name, labels={"topology.kubernetes.io/zone": "ab"[number % 2]})
        pod = new_pod(name, cpu="10m", tolerations=[tolerates("gone", seconds=3600)])
        assert bind(pod, "n1")
        waits = new_pod(f"big-{number}", cpu="64")
        words = f"0/{number} nodes are available: Insufficient cpu."
        refusal = Unschedulable(pod_id=waits, message=words, rejected_by=("NodeResourcesFit",))
        set_unschedulable([refusal], now=NOW)
        new_pod(f"gang-{number}", cpu="10m", schedulingGroup={"podGroupName": "gang"})
        objects.create("Namespace", "", {"metadata": {"name": name}}, now=NOW)
        quota = {"metadata": {"name": name}, "spec": {"hard": {"pods": "4", "requests.cpu": "1"}}}
        objects.create("ResourceQuota", name, quota, now=NOW)
        role = {"metadata": {"name": name}, "rules": []}
        objects.create("ClusterRole", "", role, now=NOW)
        event = {"auditID": str(uuid.UUID(int=number)), "requestURI": "/", "sourceIPs": ["::1"]}
        line = (NOW, uuid.UUID(int=number), "ann", "get", "nodes", "", name, 200, json.dumps(event))
        audit_log.append([AuditLine(*line)])
        made = decisions.NewDecision(
            pod_id=pod, at=NOW, class_id=1, snapshot_revision=7, profile="default",
            profile_revision=0, seed=1, draw=0, start=0, outcome="scheduled", node_name="n1",
            total=9, margin=None, ties=1, node_count=3, evaluated=3, feasible=1, message="",
            body=msgspec.msgpack.encode(Body()),
        )  # fmt: skip
        decisions.record_many([made], Turn(0, 1, number + 1))
        scheduler_configuration.store(document=CONFIGURATION, by="ann", now=after(number))
        canaries.create(
            name=name, document=CONFIGURATION, guard_seconds=60, most_failures=1, slow_seconds=1,
            by="ann", now=NOW,
        )  # fmt: skip
    timers.follow(after(1))


CONFIGURATION = json.dumps(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler"}],
    }
)


@pytest.fixture
def known(operator: Client, cluster: None) -> dict[str, str]:
    """Let there be a little of everything; return what addresses name."""
    set_taints("n1", taint("gone"), now=NOW)
    spec = {"schedulingPolicy": {"gang": {"minCount": 50}}}
    objects.create("PodGroup", "default", {"metadata": {"name": "gang"}, "spec": spec}, now=NOW)
    fill(range(2))
    page = operator.get("/console/change?do=cordon&node=n2")
    assert page.status_code == 200, text(page)[:2000]
    brakes.settle([(Share("zone", "a", 1, 2), 0.1)], now=after(1))
    (record,) = of_pod("default", "m0", limit=1)
    plan = form_of(text(page)).split("/")[3]
    change = trail.trail_of(KINDS["Node"], "", "n1", limit=1).steps[0].revision
    return {
        "plan": plan, "then": moment(300), "decision": str(record.id), "change": str(change),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def later(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is written at the test's beginning is ten minutes old for the pages, all the time.

    What is remembered for some seconds stays remembered, however slow the machine is.
    """
    for limit in ("EVERY_SECONDS", "_LONGEST_SECONDS"):
        monkeypatch.setattr(shared_answers, limit, 3600.0)
    with time_machine.travel(after(600), tick=False):
        yield


def counts(client: Client, known: dict[str, str], pages: Iterable[str] = PAGES) -> dict[str, int]:
    """Return the statements of each page, of which everything is asked once before."""
    found = {}
    for name in pages:
        address = f"/console/{PAGES[name].format_map(known)}"
        for _ in range(2):
            with roundtrips.counted() as trips:
                answer = client.get(address)
            assert answer.status_code == 200, (address, text(answer)[:2000])
        found[name] = trips.number
    return found


def grown(few: dict[str, int], many: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return the pages that ask more often for many objects than for few."""
    return {name: (few[name], many[name]) for name in few if many[name] - few[name] > SLACK}


def test_pages_ask_as_often_as_is_written_down_and_not_for_each_object(
    operator: Client, known: dict[str, str]
) -> None:
    few = counts(operator, known)
    fill(range(2, 12))
    assert grown(few, counts(operator, known)) == {}
    if os.environ.get("QUERY_COUNTS") == "write":
        KEPT.write_text(json.dumps(few, indent=2) + "\n")
    written = json.loads(KEPT.read_text())
    assert written.keys() == few.keys()
    off = {name: (few[name], told) for name, told in written.items()}
    assert {name: pair for name, pair in off.items() if abs(pair[0] - pair[1]) > SLACK} == {}
    assert max(few.values()) <= MOST


def test_a_page_that_asks_for_each_object_is_found(
    operator: Client, known: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(node: FleetNode) -> tuple[str, ...]:
        find_pod_id("default", node.name)
        return ()

    monkeypatch.setattr(node_list, "status_of", asking)
    few = counts(operator, known, ["nodes", "audit"])
    fill(range(2, 12))
    found = grown(few, counts(operator, known, ["nodes", "audit"]))
    assert list(found) == ["nodes"]
    assert found["nodes"][1] == found["nodes"][0] + 10


def test_every_page_is_counted() -> None:
    assert {name.split(",")[0] for name in PAGES if ":" not in name} == served.pages()
