"""A database of an earlier version is brought up to date, and the service goes on with it.

`upgrades/0.1.0.sql` is what version 0.1.0 left behind: objects of every kind, pods that wait, pods
that are bound, evictions under way, decisions, a log. It was dumped by pg_dump from a service that
had been driven over its API.
"""

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clusterstate.local import places
from tests.live import Service, pod, started
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.db, pytest.mark.timeout(600)]

DUMP = Path(__file__).parent / "upgrades" / "0.1.0.sql"
PODS = "/api/v1/namespaces/default/pods"
COLLECTIONS = {
    "/api/v1/nodes": {"n1", "n2", "n3"},
    "/api/v1/namespaces": {"default", "kube-node-lease", "kube-public", "kube-system", "team"},
    "/apis/node.k8s.io/v1/runtimeclasses": {"fast"},
    "/apis/scheduling.k8s.io/v1/priorityclasses": {
        "high", "system-cluster-critical", "system-node-critical",
    },
    "/apis/policy/v1/poddisruptionbudgets": {"b"},
    "/api/v1/services": {"s"},
    "/api/v1/replicationcontrollers": {"rc"},
    "/apis/apps/v1/deployments": {"d"},
    "/apis/apps/v1/statefulsets": {"ss"},
    "/apis/apps/v1/daemonsets": {"ds"},
    "/apis/coordination.k8s.io/v1/leases": {"n1"},
    "/api/v1/limitranges": {"l"},
    "/api/v1/resourcequotas": {"q"},
}  # fmt: skip
MADE_BY_ITSELF = {"kubernetes"}  # the Service, a moment after the start


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a database that version 0.1.0 has left."""
    servers_url = os.environ["DATABASE_URL"]
    name = f"upgrade_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(servers_url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        found = servers_url.replace(f"/{places.DATABASE}?", f"/{name}?")
        with psycopg.connect(found, autocommit=True) as old:
            old.execute(DUMP.read_text())
        try:
            yield found
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


def names(service: Service, path: str) -> set[str]:
    status, answer = service.request("GET", path)
    assert status == 200, answer
    return {item["metadata"]["name"] for item in answer["items"]}


def found(service: Service, name: str) -> Any:
    status, answer = service.request("GET", f"{PODS}/{name}")
    return answer if status == 200 else None


def used(service: Service) -> dict[str, str]:
    status, quota = service.request("GET", "/api/v1/namespaces/team/resourcequotas/q")
    assert status == 200, quota
    amounts: dict[str, str] = (quota.get("status") or {}).get("used") or {}
    return amounts


def test_a_database_of_0_1_0_goes_on(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET search_path TO public")
        rows = db.execute("SELECT name, revision FROM pod ORDER BY 1").fetchall()
        (told,) = db.execute("SELECT last_value FROM change_revision").fetchone()
        timers = db.execute(
            "SELECT p.name, t.due_at < now() FROM eviction_timer t JOIN pod p ON p.id = t.pod_id"
            " WHERE p.name LIKE 'leaves-%' ORDER BY 1"
        ).fetchall()
        assert [name for name, _ in timers] == ["leaves-late", "leaves-soon"]
    with started(DATABASE_URL=url) as service:
        for path, expected in COLLECTIONS.items():
            assert names(service, path) - MADE_BY_ITSELF == expected, path
        assert "rs" in names(service, "/apis/apps/v1/replicasets")
        stored = {name for name, _ in rows}
        assert {"web-1", "huge", "gated", "leaves-late"} <= stored
        # What was bound is where it was; what fits nowhere says so; a gate is a gate.
        assert found(service, "web-1")["spec"]["nodeName"] == "n1"
        assert "Insufficient cpu" in json.dumps(found(service, "huge")["status"])
        assert found(service, "gated")["spec"]["schedulingGates"]
        # What quotas count is counted again: the version before may have counted otherwise.
        until(lambda: "pods" in used(service), seconds=60, what="the quota to be counted")
        # The evictions that were under way are carried out when they are due, and not before.
        for name, is_due in timers:
            until(lambda name=name, is_due=is_due: _is_leaving(service, name) == is_due,
                  seconds=60, what=f"{name} to leave, or to stay")  # fmt: skip
        # The log goes on above what was told, and a watch takes up where it was.
        status, made = service.request("POST", PODS, pod("new", cpu="10m"))
        assert status == 201
        assert int(made["metadata"]["resourceVersion"]) > told
        until(lambda: found(service, "new")["spec"].get("nodeName"), what="it to be bound")
        patch = {"spec": {"schedulingGates": None}}
        path, kind = f"{PODS}/gated", "application/merge-patch+json"
        assert service.request("PATCH", path, patch, content_type=kind)[0] == 200
        until(lambda: found(service, "gated")["spec"].get("nodeName"), what="the gated one")
        assert service.request("DELETE", f"{PODS}/web-1?gracePeriodSeconds=0")[0] == 200
        with psycopg.connect(url) as db:
            db.execute("SET search_path TO public")
            (trimmed,) = db.execute("SELECT trimmed_revision FROM history").fetchone()
        assert trimmed <= int(made["metadata"]["resourceVersion"])


def _is_leaving(service: Service, name: str) -> bool:
    item = found(service, name)
    return item is None or "deletionTimestamp" in item["metadata"]
