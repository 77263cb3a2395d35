"""Impossible dates: no way of writing stores one, and those that were stored are mended."""

import importlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from clusterstate.actions.past import history
from tests.api.builders import node
from tests.api.conftest import APPLY, JSON_PATCH, STRATEGIC
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
DATE = "2026-02-30T00:00:00Z"
CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": DATE}
TAINT = {"key": "a", "effect": "NoExecute", "timeAdded": DATE}


def refused(answer: Any) -> None:
    assert answer.status in (400, 422), (answer.status, answer.raw[:300])
    assert "RFC 3339" in answer.json["message"], answer.json


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({"status": {"conditions": [CONDITION]}}, "/status/conditions/0/lastTransitionTime"),
        ({"spec": {"taints": [TAINT]}}, "/spec/taints/0/timeAdded"),
    ],
)
def test_no_way_of_writing_stores_an_impossible_date(api: Any, part: Any, path: str) -> None:
    refused(api.post(NODES, {**node("n"), **part}))
    yaml = json.dumps({**node("n"), **part}).encode()
    refused(api.post(NODES, yaml, content_type="application/yaml"))
    right = json.loads(json.dumps(part).replace("02-30", "02-28"))
    made = api.post(NODES, {**node("n"), **right}).ok(201)
    below = "/status" if "status" in part else ""
    one = f"{NODES}/n"
    refused(api.put(one + below, {**made, **part}))
    refused(
        api.put(one + below, json.dumps({**made, **part}).encode(), content_type="application/yaml")
    )
    refused(api.patch(one + below, part))
    refused(api.patch(one + below, part, content_type=STRATEGIC))
    step = {"op": "replace", "path": path, "value": DATE}
    refused(api.patch(one + below, [step], content_type=JSON_PATCH))
    applied = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, **part}
    refused(api.patch(f"{one}{below}?fieldManager=m&force=true", applied, content_type=APPLY))
    assert api.get(one).ok()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_lease_is_renewed_at_a_time(api: Any) -> None:
    body = {"metadata": {"name": "l"}, "spec": {"renewTime": DATE}}
    refused(api.post(LEASES, body))
    body["spec"]["renewTime"] = "2026-02-28T01:00:00.25+01:00"
    made = api.post(LEASES, body).ok(201)
    assert made["spec"]["renewTime"] == "2026-02-28T00:00:00.250000Z"
    refused(api.patch(f"{LEASES}/l", {"spec": {"acquireTime": DATE}}))


def test_dates_that_a_version_of_before_stored_are_mended(api: Any) -> None:
    right = json.loads(json.dumps({"status": {"conditions": [CONDITION]}}).replace("30T", "27T"))
    made = api.post(NODES, {**node("n"), **right}).ok(201)
    notes = {"annotations": {"startTime": DATE}}
    pods = "/api/v1/namespaces/ns/pods"
    pod = {
        "metadata": {"name": "p", **notes},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    api.post(pods, pod).ok(201)
    waiting = {
        "type": "PodScheduled",
        "status": "False",
        "lastTransitionTime": DATE[:8] + "27T00:00:00Z",
    }
    api.patch(f"{pods}/p/status", {"status": {"conditions": [waiting]}}).ok()
    with connection.cursor() as cursor:
        for table, _, column in migration.TEXTS:
            cursor.execute(
                f"UPDATE {table} SET {column} = replace({column}, '2026-02-27T', '2026-02-30T')"
            )
    assert api.get(f"{NODES}/n").ok()["status"]["conditions"][0]["lastTransitionTime"] == DATE

    migration.mend_all(None, SimpleNamespace(connection=connection))

    assert api.get(f"{NODES}/n").ok()["status"]["conditions"][0] == {
        **CONDITION, "lastTransitionTime": "2026-02-28T00:00:00Z",
    }  # fmt: skip
    found = api.get(f"{pods}/p").ok()
    assert found["metadata"]["annotations"]["startTime"] == DATE
    assert found["status"]["conditions"][0]["lastTransitionTime"] == "2026-02-28T00:00:00Z"
    assert (
        api.get(f"{NODES}/n").ok()["metadata"]["resourceVersion"]
        == (made["metadata"]["resourceVersion"])
    )


def test_dates_in_the_packed_past_are_mended(api: Any, settings: Any) -> None:
    """Lists at a revision, ``?at=`` and histories read what was packed long ago."""
    settings.PAST_HOURS = 168
    stored, spaced = "2026-02-27T00:00:00Z", "2026-02-27T01:00:00Z"
    told = [
        {**CONDITION, "lastTransitionTime": stored},
        {**CONDITION, "type": "Other", "lastTransitionTime": spaced},
    ]
    for name in ("a", "n", "z"):
        api.post(NODES, node(name)).ok(201)
    api.patch(f"{NODES}/n/status", {"status": {"conditions": told}}).ok()
    were = [api.get(f"{NODES}/{name}").ok() for name in ("a", "n", "z")]
    at = were[1]["metadata"]["resourceVersion"]
    for name in ("a", "n", "z"):
        api.patch(f"{NODES}/{name}", {"metadata": {"labels": {"since": "later"}}}).ok()
    with connection.cursor() as cursor:  # a version of before took these; the second is longer
        for right, wrong in ((stored, DATE), (spaced, "2026-13-45T24:61:60Z ")):
            cursor.execute("UPDATE document SET text = replace(text, %s, %s)", (right, wrong))
    assert history.trim(now=NOW, keep_seconds=-3600).changes
    exact = f"?resourceVersion={at}&resourceVersionMatch=Exact"
    assert DATE in api.get(f"{NODES}{exact}").raw.decode()

    importlib.import_module("migrations.0052_possible_times_packed").mend_all(
        None, SimpleNamespace(connection=connection)
    )

    told[0]["lastTransitionTime"] = "2026-02-28T00:00:00Z"
    told[1]["lastTransitionTime"] = "2026-12-31T23:59:59Z"
    were[1]["status"]["conditions"] = told
    for manifest in were:
        del manifest["apiVersion"], manifest["kind"]
    assert api.get(NODES + exact).ok()["items"] == were
    named = api.get(f"{NODES}{exact}&fieldSelector=metadata.name%3Dz").ok()
    assert named["items"] == were[2:]


migration = importlib.import_module("migrations.0047_possible_times")
