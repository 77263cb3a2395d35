"""Every page of the console at full size: CPU with the database's, bytes, statements.

A throw-away database holds nodes, pods on them and pods that wait; then a part of the pods ends, a
part is told to leave and each node reports its status, so that there is a past. Pages are asked in
this process, without a server, as the console's process would make them. ``cpu_ms`` is of the
process and of the database's side of its connection together: what a page takes on a machine that
has nothing else to do. The first look and the best of the later ones are told apart.
"""

import gzip
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from api.console.page import time_travel as past
from clusterstate import catalogue
from clusterstate.actions import brakes, objects
from clusterstate.actions import past as packing
from clusterstate.actions.past import history
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.scheduler import canaries, decisions, scheduler_configuration
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.processes import collector
from clusterstate.queries.evictions.brakes import Share
from clusterstate.queries.past import trail
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler.decisions import of_pod
from scheduling.engine.reference.record import Body
from tests import roundtrips
from tests.perf import rehearsal
from tests.perf.workloads import Manifest, node, pod

PAGE_MS, PAGE_BYTES, FLEET_BYTES = 200, 100_000, 150_000
_CLASSES = 50
_WAITING = 500
_TIMES = 4
_NODE, _POD = "node-7", "copy-7"
PAGES = (
    "/console/",
    "/console/fleet/columns",
    "/console/fleet/beside",
    "/console/fleet/pace",
    "/console/nodes/",
    "/console/nodes/?sort=-cpu",
    "/console/nodes/?q=zone%3Dzone1+cpu%3E1%25",
    f"/console/nodes/{_NODE}/",
    "/console/nodes/advice",
    "/console/pods/",
    "/console/pods/?waiting=yes",
    "/console/pods/?q=copy-77",
    f"/console/pods/?node={_NODE}",
    f"/console/pods/default/{_POD}/",
    "/console/groups/default/bench/",
    "/console/pods/default/wait-7/",
    "/console/pods/default/wait-7/why",
    "/console/pods/default/wait-7/why/helps",
    "/console/pods/default/wait-7/why/columns",
    f"/console/pods/default/{_POD}/why/columns?world=now",
    "/console/pods/new",
    "/console/decisions/",
    "/console/waiting/",
    "/console/evictions/",
    "/console/devices/",
    "/console/plans/",
    "/console/what-if/",
    "/console/audit/",
    "/console/changes/",
    "/console/new",
    "/console/policies/",
    "/console/policies/revisions",
    "/console/policies/who-can",
    "/console/objects/Pod/",
    "/console/objects/Node/",
    f"/console/objects/Node/-/{_NODE}/",
    f"/console/objects/Node/-/{_NODE}/changes/{{change}}",
    "/console/find?q=copy-777",
    f"/console/change?do=cordon&node={_NODE}",
    f"/console/change?do=drain&node={_NODE}",
    "/console/nodes/csv",
    "/console/decisions/csv",
    "/console/objects/Pod/csv",
    "/console/plans/{plan}/",
    "/console/plans/{plan}/yaml",
    "/console/what-if/yaml",
    f"/console/pods/default/{_POD}/decisions/{{decision}}",
    "/console/evictions/brakes/zone.zone1/",
    "/console/policies/plugins",
    "/console/policies/comparisons",
    "/console/policies/canaries/",
    "/console/policies/canaries/bench/",
    "/console/account",
    "/console/here",
)
"""All pages of the console (``tests.console.served``); names in braces are made as it begins."""
_EXPORTS = ("/console/nodes/csv", "/console/objects/Pod/csv")
"""These hold all rows there are, however many."""
PAST = (
    "/console/",
    "/console/fleet/columns",
    "/console/fleet/beside",
    "/console/nodes/",
    f"/console/nodes/{_NODE}/",
    "/console/pods/",
    "/console/pods/?q=copy-77",
    "/console/pods/?waiting=yes",
    f"/console/pods/default/{_POD}/",
    "/console/decisions/",
    "/console/policies/",
    "/console/objects/Node/",
)
"""Each of these is asked as the first page of a moment."""


def run(*, nodes: int, bound: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield one result for each page. The database must be empty and migrated.

    ``met`` tells whether the page keeps to 200 ms and 100 kB, gzipped (the fleet: 150 kB).
    """
    say(f"{nodes} nodes, {bound} pods")
    moment = _fill(nodes, bound)
    User.objects.create_superuser("bench", password=None)
    client = Client(HTTP_ACCEPT="text/html", HTTP_ACCEPT_ENCODING="gzip", HTTP_HOST="localhost")
    client.force_login(
        User.objects.get(username="bench"),
        backend="django.contrib.auth.backends.ModelBackend",
    )
    size = {"nodes": nodes, "pods": bound}
    names = _prepare(client)
    collector.calm()  # as the console's process does
    for path in PAGES:
        whole = _asked(client, path.format_map(names), say)
        yield size | whole
        part = _asked(client, path.format_map(names), say, headers={"HX-Request": "true"})
        if part["bytes"] != whole["bytes"]:
            yield size | part | {"part": True}
    say(f"{bound // 5} pods end, as many change, nodes report")
    _live_on(bound // 5)
    then = document.format_time(moment)
    for where in ("log", "blocks"):
        if where == "blocks":
            say("all that is packed, and the log trimmed")
            packing.pack_up_to(changes.watermark(), now=_now(), seconds=600.0)
            history.trim(now=_now() + timedelta(hours=2))
        for path in PAST:
            address = f"{path}{'&' if '?' in path else '?'}at={then}"
            yield size | {"past_in": where} | _asked(client, address, say, past._fleet.cache_clear)


def _prepare(client: Client) -> dict[str, str]:
    """Make what pages are about besides nodes and pods; return what their addresses name."""
    now = _now()
    text, _ = scheduler_configuration.check(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler"}],
        }
    )
    scheduler_configuration.store(document=text, by="bench", now=now)
    canaries.create(
        name="bench", document=text, guard_seconds=600, most_failures=3, slow_seconds=1,
        by="bench", now=now,
    )  # fmt: skip
    brakes.settle([(Share("zone", "zone1", 3, 5), 0.1)], now=now)
    pod_id = find_pod_id("default", _POD)
    assert pod_id is not None
    made = decisions.NewDecision(
        pod_id=pod_id, at=now, class_id=1, snapshot_revision=1, profile="default-scheduler",
        profile_revision=0, seed=1, draw=0, start=0, outcome="scheduled", node_name=_NODE,
        total=9, margin=None, ties=1, node_count=1, evaluated=1, feasible=1, message="",
        body=msgspec.msgpack.encode(Body()),
    )  # fmt: skip
    decisions.record_many([made], decisions.Turn(0, 1, 1))
    (record,) = of_pod("default", _POD, limit=1)
    preview = client.get(f"/console/change?do=drain&node={_NODE}").content
    found = re.search(rb'action="/console/plans/([^"/]+)/act"', gzip.decompress(preview))
    assert found, "a preview has a plan"
    objects.update("Node", "", _NODE, _labelled, now=now)
    gang = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "spec": gang}
    objects.create("PodGroup", "default", group | {"metadata": {"name": "bench"}}, now=now)
    steps = trail.trail_of(KINDS["Node"], "", _NODE, limit=1).steps
    return {
        "plan": found.group(1).decode(),
        "decision": str(record.id),
        "change": str(steps[0].revision),
    }


def _labelled(node: Manifest) -> Manifest:
    metadata = node["metadata"]
    labels = {**(metadata.get("labels") or {}), "bench": "yes"}
    return {**node, "metadata": {**metadata, "labels": labels}}


def _asked(
    client: Client,
    path: str,
    say: Callable[[str], None],
    forget: Callable[[], None] = lambda: None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Ask for a page, ``forget`` before each time, so that each look is the first one."""
    say(path)
    spent: list[float] = []
    walls: list[float] = []
    body = b""
    for _ in range(_TIMES):
        forget()
        began = time.perf_counter()
        with _cpu(spent):
            answer = client.get(path, headers=headers)
        walls.append((time.perf_counter() - began) * 1000)
        body = answer.content
        if answer.status_code != 200:
            say(f"{answer.status_code}: {body[:300]!r}")
    forget()
    with roundtrips.counted() as trips:
        client.get(path, headers=headers)
    packed = answer.get("Content-Encoding") == "gzip"
    sent = len(body) if packed else len(gzip.compress(body, 6))
    best = min(spent[1:])
    of_fleet = path.startswith(("/console/?", "/console/fleet")) or path == "/console/"
    return {
        "mode": "console",
        "page": path,
        "code": answer.status_code,
        "first_cpu_ms": round(spent[0], 1),
        "cpu_ms": round(best, 1),
        "wall_ms": round(statistics.median(walls[1:]), 1),
        "gzipped": sent,
        "bytes": len(gzip.decompress(body)) if packed else len(body),
        "waits_for_database": trips.number,
        "met": answer.status_code == 200
        and best < PAGE_MS
        and (path in _EXPORTS or sent < (FLEET_BYTES if of_fleet else PAGE_BYTES)),
    }


@contextmanager
def _cpu(spent: list[float]) -> Iterator[None]:
    """Append the milliseconds of CPU that this process and its backend take meanwhile."""
    backend = int(sql.fetch("SELECT pg_backend_pid()")[0][0])
    begin = time.process_time() + _seconds_of(backend)
    yield
    spent.append((time.process_time() + _seconds_of(backend) - begin) * 1000)


def _seconds_of(pid: int) -> float:
    """Return the CPU time of a process, to the nanosecond."""
    return (
        sum(
            int((task / "schedstat").read_text().split()[0])
            for task in Path(f"/proc/{pid}/task").iterdir()
        )
        / 1e9
    )


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def _fill(nodes: int, bound: int) -> datetime:
    """Write the cluster, dated ten minutes ago; return a moment at which it was all there."""
    begin = _now() - timedelta(minutes=10)
    settings.PAST_HOURS = 168
    template = node(0)
    name = template["metadata"]["name"]
    offer = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "500Gi"}
    template["status"]["allocatable"] = template["status"]["capacity"] = offer
    objects.create("Node", "", template, now=begin)
    rehearsal.copy_node(name, "node-", nodes - 1)
    sql.run(
        "UPDATE node SET labels = labels || jsonb_build_object("
        "'topology.kubernetes.io/zone', 'zone' || id %% 3) WHERE name LIKE 'node-%%'"
    )
    catalogue.reload()
    create_pods([_on(f"kind-{i}", name, i) for i in range(_CLASSES)], now=begin)
    rehearsal.copy_pods("default", "copy-", bound, nodes=nodes - 1, node_prefix="node-", now=begin)
    create_pods([_waiting(f"wait-{i}", i) for i in range(_WAITING)], now=begin)
    words = "0/{} nodes are available: {} Insufficient cpu."
    ids = sql.fetch("SELECT pod_id FROM pending_pod ORDER BY pod_id")
    set_unschedulable(
        [
            Unschedulable(
                pod_id=one, message=words.format(nodes, nodes - at % 20),
                rejected_by=("NodeResourcesFit",),
            )
            for at, (one,) in enumerate(ids)
        ],
        now=begin,
    )  # fmt: skip
    sql.run("ANALYZE")
    return begin + timedelta(minutes=1)


def _on(name: str, node_name: str, kind: int) -> Manifest:
    manifest = pod(0, cpu=f"{10 + kind}m", labels={"app": f"bench-{kind}"}, nodeName=node_name)
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    return manifest


def _waiting(name: str, kind: int) -> Manifest:
    manifest = pod(0, cpu=str(200 + kind % 20), labels={"app": f"waits-{kind % 20}"})
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    return manifest


_COLUMNS = """revision, at, kind, object_id, namespace, name, document_id, previous_document_id,
    previous_revision, class_id, previous_class_id, node_name, previous_node_name, phase,
    previous_phase, scheduled_at, previous_scheduled_at, verb"""
_OF_POD = """rev, %s::timestamptz, 1, m.id, m.namespace, m.name, m.document_id, m.document_id,
    m.revision, m.class_id, m.class_id, m.node_name, m.node_name, m.phase, m.phase, m.scheduled_at,
    m.scheduled_at"""
_CHOSEN = """SELECT *, nextval('change_revision') AS rev FROM pod WHERE name LIKE 'copy-%%'
    AND id %% 5 = %s::int ORDER BY id LIMIT %s::bigint"""


def _live_on(pods: int) -> None:
    """End pods, change as many, and let all nodes report; as actions would write it."""
    late = _now() - timedelta(minutes=2)
    sql.run(
        f"WITH m AS MATERIALIZED ({_CHOSEN}), gone AS (DELETE FROM pod USING m WHERE pod.id = m.id)"
        f" INSERT INTO change ({_COLUMNS}) SELECT {_OF_POD}, 3 FROM m",
        (1, pods, late),
    )
    sql.run(
        f"WITH m AS MATERIALIZED ({_CHOSEN}), moved AS ("
        "    UPDATE pod SET revision = m.rev FROM m WHERE pod.id = m.id)"
        f" INSERT INTO change ({_COLUMNS}) SELECT {_OF_POD}, 2 FROM m",
        (2, pods, late),
    )
    sql.run(
        """
        WITH new AS MATERIALIZED (
            SELECT n.id, n.name, n.document_id AS before, n.revision AS was, d.text,
                   nextval('change_revision') AS revision, nextval('document_id_seq') AS doc
            FROM node n JOIN document d ON d.id = n.document_id),
        docs AS (INSERT INTO document (id, text) OVERRIDING SYSTEM VALUE SELECT doc, text FROM new),
        moved AS (UPDATE node n SET document_id = doc, revision = new.revision
                  FROM new WHERE n.id = new.id)
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision)
        SELECT revision, %s::timestamptz, 2, 2, id, '', name, doc, before, was FROM new
        """,
        (late,),
    )
    sql.run("ANALYZE change, document, node, pod")
