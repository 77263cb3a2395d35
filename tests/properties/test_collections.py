"""Deleting a collection does to each object what deleting it alone does."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterstate.actions import objects
from clusterstate.actions.cluster import collection
from clusterstate.actions.cluster.collection import delete_collection
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.status import set_condition
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.queries.objects import decode_object, kind_of
from clusterstate.queries.objects.lists import list_page, matching_keys
from clusterstate.queries.pods import find_pod_id
from tests.clusterstate.support import LATER, NOW, create_node, pod
from tests.forms import many

pytestmark = pytest.mark.django_db(transaction=True)

Manifest = dict[str, Any]

finalizers = st.sampled_from([None, ["example.com/hold"], ["orphan"], ["foregroundDeletion"]])
pods = st.fixed_dictionaries(
    {
        "finalizers": finalizers,
        "labels": st.sampled_from([{}, {"half": "1"}]),
        "nodeName": st.sampled_from(["", "n"]),
        "phase": st.sampled_from(["Pending", "Succeeded"]),
        "terminationGracePeriodSeconds": st.sampled_from([None, 0, 5]),
        "leaving": st.booleans(),
        "disrupted": st.booleans(),
        "gated": st.booleans(),
    }
)
options = st.fixed_dictionaries(
    {},
    optional={
        "gracePeriodSeconds": st.sampled_from([-1, 0, 7]),
        "propagationPolicy": st.sampled_from(["Orphan", "Background", "Foreground"]),
    },
)


def make(worlds: list[Manifest]) -> None:
    create_node("n")
    for number, wanted in enumerate(worlds):
        parts = {key: wanted[key] for key in ("labels", "finalizers") if wanted[key]}
        if wanted["terminationGracePeriodSeconds"] is not None:
            parts["terminationGracePeriodSeconds"] = wanted["terminationGracePeriodSeconds"]
        if wanted["nodeName"]:
            parts["nodeName"] = wanted["nodeName"]
        elif wanted["gated"]:
            parts["schedulingGates"] = [{"name": "example.com/wait"}]
        name = f"p{number}"
        create_pods([pod(name, **parts)], now=NOW)
        if wanted["phase"] != "Pending":
            objects.update(
                "Pod", "default", name,
                lambda m: {**m, "status": {**m["status"], "phase": "Succeeded"}},
                subresource="status", now=NOW,
            )  # fmt: skip
        if wanted["disrupted"]:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "Test"}
            set_condition(find_pod_id("default", name) or 0, condition, now=NOW)
        if wanted["leaving"]:
            objects.delete("Pod", "default", name, now=NOW)


def outcome(delete: Callable[[], None]) -> Manifest:
    """Return what a deletion does, by pod, and undo it."""
    start = changes.watermark()
    with transaction.atomic():
        delete()
        left = {
            item["metadata"]["name"]: item for item in map(decode_object, list_page("Pod").items)
        }
        for item in left.values():
            del item["metadata"]["resourceVersion"]
        columns = (
            "p.name, p.node_name, p.phase, p.deletion_at, p.class_id, p.scheduled_at,"
            " p.unschedulable, p.nominated_node_name, p.bound_at, p.eviction"
        )
        rows = sql.fetch(
            f"SELECT {columns}, q.stage, t.deletion_at FROM pod p"
            " LEFT JOIN pending_pod q ON q.pod_id = p.id"
            " LEFT JOIN terminating_pod t ON t.pod_id = p.id ORDER BY p.name"
        )
        told: dict[str, list[tuple[Any, ...]]] = {}
        for name, *rest in sql.fetch(
            "SELECT c.name, c.verb, c.previous_revision IS NOT NULL, c.deletion_at, c.class_id,"
            " c.node_name, c.phase, d.text, p.text FROM change c"
            " LEFT JOIN document d ON d.id = c.document_id"
            " LEFT JOIN document p ON p.id = c.previous_document_id"
            " WHERE c.revision > %s::bigint ORDER BY c.revision",
            (start,),
        ):
            told.setdefault(name, []).append(tuple(rest))
        orphaned = sql.fetch(
            "SELECT count(*) FROM document d WHERE NOT EXISTS"
            " (SELECT FROM pod p WHERE p.document_id = d.id)"
            " AND NOT EXISTS (SELECT FROM superseded_document s WHERE s.document_id = d.id)"
            " AND NOT EXISTS (SELECT FROM node n WHERE n.document_id = d.id)"
            ' AND position(\'"kind":"Pod"\' in d.text) > 0'
        )
        transaction.set_rollback(True)
    return {"left": left, "rows": rows, "told": told, "orphaned": orphaned}


@settings(
    max_examples=many(8, 80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(worlds=st.lists(pods, min_size=1, max_size=7), how=options, selector=st.booleans())
def test_a_collection_goes_as_each_of_its_pods_would_alone(
    worlds: list[Manifest], how: Manifest, selector: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "CHUNK", 3)
    labels = "half=1" if selector else ""

    def alone() -> None:
        for namespace, name, _ in matching_keys(kind_of("Pod"), label_selector=labels):
            objects.delete("Pod", namespace, name, how, now=LATER)

    def together() -> None:
        delete_collection("Pod", "", how, label_selector=labels, now=LATER)

    with transaction.atomic():
        make(worlds)
        assert outcome(together) == outcome(alone)
        transaction.set_rollback(True)
