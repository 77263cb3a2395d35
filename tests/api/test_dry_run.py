"""Every write that there is, asked with ``dryRun=All``: answered as if done, and nothing is left.

The paths are those of the URL configuration and of the registry of kinds: one that is added and has
no example here fails the first test.
"""

import json
import re
from typing import Any

import pytest
from django.db import connection, transaction
from django.urls import URLPattern

from api import clock, urls
from api.kinds.views import StatusView
from api.server import batches
from clusterstate.actions import webhooks
from clusterstate.actions.scheduler import reservations
from clusterstate.actions.scheduler.reservations import NewReservation
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.values.actor import controller
from clusterstate.processes import memory
from clusterstate.queries.objects import find_object
from scheduling.controllers.workloads import promptly
from tests.api.bodies import CORE, body_of, collection, named, status_of
from tests.api.builders import binding, node, pod
from tests.api.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC
from tests.controllers.support import NOW, after
from tests.forms import few

BY_STORAGE = sorted(ALL_KINDS, key=lambda kind: kind.table == "generic_object")
"""The kinds, first those with rows of their own; the others share all code."""
WRITES = ("post", "put", "patch", "delete")
STOWAGE = "/apis/stowage.dev/v1"
PODS = f"{CORE}/namespaces/ns/pods"
Call = tuple[str, str, Any, str]
"""Method, path, body, content type."""


def calls_of(kind: Any) -> list[Call]:
    """Return every way to write objects of a kind; one called ``old`` is there."""
    many, one, json_ = (
        collection(kind),
        f"{collection(kind)}/{named(kind, 'old')}",
        "application/json",
    )
    labels = {"metadata": {"labels": {"changed": "yes"}}}
    replaced = body_of(kind, "old")
    replaced["metadata"].setdefault("labels", {})["changed"] = "yes"
    listed = {
        "apiVersion": kind.api_version,
        "kind": kind.list_kind,
        "items": [body_of(kind, "n1"), body_of(kind, "n2")],
    }
    found: list[Call] = [
        ("POST", many, body_of(kind, "new"), json_),
        ("POST", many, listed, json_),
        ("PUT", one, replaced, json_),
        ("PATCH", one, labels, MERGE),
        ("PATCH", one, labels, STRATEGIC),
        (
            "PATCH", one,
            [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}], JSON_PATCH,
        ),
        ("PATCH", f"{one}?fieldManager=me", replaced, APPLY),
        ("PATCH", f"{many}/{named(kind, 'new')}?fieldManager=me", body_of(kind, "new"), APPLY),
        ("DELETE", one, None, json_),
        ("DELETE", one, {"kind": "DeleteOptions", "apiVersion": "v1"}, json_),
        ("DELETE", one, {"propagationPolicy": "Foreground"}, json_),
        ("DELETE", one, {"propagationPolicy": "Orphan"}, json_),
    ]  # fmt: skip
    if kind.deleted_together:
        found.append(("DELETE", many, None, json_))
    if "status" in kind.subresources:
        status = {"status": status_of(kind)}
        found.append(("PATCH", f"{one}/status", status, MERGE))
        found.append(("PUT", f"{one}/status", {**body_of(kind, "old"), **status}, json_))
    if "scale" in kind.subresources:
        scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 5}}
        found.append(("PUT", f"{one}/scale", {**scale, "metadata": {"name": "old"}}, json_))
        found.append(("PATCH", f"{one}/scale", {"spec": {"replicas": 5}}, MERGE))
    if "finalize" in kind.subresources:
        found.append(("PUT", f"{one}/finalize", {**body_of(kind, "old"), "spec": {}}, json_))
    if "binding" in kind.subresources:
        found.append(("POST", f"{one}/binding", binding("old", "n"), json_))
    if "token" in kind.subresources:
        found.append(("POST", f"{one}/token", {"spec": {}}, json_))
    if "eviction" in kind.subresources:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "old"}}
        found.append(("POST", f"{one}/eviction", eviction, json_))
        found.append(("POST", f"{one}/eviction", None, json_))
    return found


CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "percentageOfNodesToScore": 37,
}
ASKED = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "ns"}}
REVIEWS = [
    ("SelfSubjectReview", "authentication.k8s.io/v1/selfsubjectreviews", {}),
    ("TokenReview", "authentication.k8s.io/v1/tokenreviews", {"token": "x"}),
    ("SelfSubjectAccessReview", "authorization.k8s.io/v1/selfsubjectaccessreviews", ASKED),
    (
        "SubjectAccessReview", "authorization.k8s.io/v1/subjectaccessreviews",
        {**ASKED, "user": "a"},
    ),
    (
        "LocalSubjectAccessReview",
        "authorization.k8s.io/v1/namespaces/ns/localsubjectaccessreviews", {**ASKED, "user": "a"},
    ),
    (
        "SelfSubjectRulesReview", "authorization.k8s.io/v1/selfsubjectrulesreviews",
        {"namespace": "ns"},
    ),
]  # fmt: skip
PRESSED = {"usage": {"memory": {"available": 1, "threshold": 2}}}
SIMULATION = {"spec": {"base": "live", "pods": [pod("imagined")]}}
PLAN = {"spec": {"changes": [{"cordon": {"nodes": ["n"]}}]}}
HEADROOM = {"spec": {"base": "live", "pod": pod("imagined")}}
WEBHOOK = {"url": "https://hooks.example/x", "types": ["bind"], "secret": "s"}
SHAPE = {"name": "s", "price": 1, "node": {"status": {"capacity": {"cpu": "4", "memory": "8Gi"}}}}
CANARY = {"spec": {"configuration": CONFIGURATION}}
COMPARISON = {"spec": {"policies": [{"name": "packing"}]}}
SHAPES = {"spec": {"catalogue": [SHAPE]}}
OWN: dict[str, list[Call]] = {
    "BindingsViewSet": [
        ("POST", f"{CORE}/namespaces/ns/bindings", binding("old", "n"), "application/json")
    ],
    "CoreView": [
        (
            "POST", CORE,
            {"kind": "List", "apiVersion": "v1", "items": [node("x"), pod("x")]},
            "application/json",
        )
    ],
    "ContainersView": [],  # refuses everything
    **{
        f"{kind}ViewSet": [("POST", f"/apis/{path}", {"spec": spec}, "application/json")]
        for kind, path, spec in REVIEWS
    },
    "UsageViewSet": [("PUT", f"{STOWAGE}/nodes/n/usage", PRESSED, "application/json")],
    **{
        view: [
            (
                "POST", f"{STOWAGE}/namespaces/ns/{plural}/old/permit",
                {"plugin": "p", "decision": decision}, "application/json",
            )
            for decision in ("Allow", "Reject")
        ]
        for view, plural in (("WaitingPodsViewSet", "waitingpods"), ("PodPermitViewSet", "pods"))
    },
    "ConfigurationViewSet": [
        ("PUT", f"{STOWAGE}/schedulerconfiguration", CONFIGURATION, "application/json")
    ],
    "CanariesViewSet": [("POST", f"{STOWAGE}/canaries", CANARY, "application/json")],
    "ComparisonsViewSet": [("POST", f"{STOWAGE}/comparisons", COMPARISON, "application/json")],
    "HeadroomViewSet": [("POST", f"{STOWAGE}/headroom", HEADROOM, "application/json")],
    "BrakesViewSet": [],  # needs one that is set; ``approve`` is one statement
    "NodeAdviceViewSet": [("POST", f"{STOWAGE}/nodeadvice", SHAPES, "application/json")],
    "PackingsViewSet": [("POST", f"{STOWAGE}/packings", SIMULATION, "application/json")],
    "PlansViewSet": [("POST", f"{STOWAGE}/plans", PLAN, "application/json")],
    "SimulationsViewSet": [("POST", f"{STOWAGE}/simulations", SIMULATION, "application/json")],
    "WebhooksViewSet": [
        (method, f"{STOWAGE}/webhooks{path}", body, "application/json")
        for method, path, body in (
            ("POST", "", {"metadata": {"name": "new"}, "spec": WEBHOOK}),
            ("PUT", "/old", {"spec": {**WEBHOOK, "types": ["evict"]}}),
            ("DELETE", "/old", None),
            ("POST", "/old/replay", {"since": "1"}),
        )
    ],
}  # fmt: skip
READ_ONLY = {
    "ComparisonsViewSet", "HeadroomViewSet", "NodeAdviceViewSet", "PackingsViewSet",
    "SimulationsViewSet",
    *(f"{kind}ViewSet" for kind, _, _ in REVIEWS),
}  # fmt: skip


def views() -> dict[str, type]:
    """Return the views of the API that write, by name."""
    found = {}
    for entry in urls.urlpatterns:
        if isinstance(entry, URLPattern):
            view = getattr(entry.callback, "cls", None) or getattr(
                entry.callback, "view_class", None
            )
            served = getattr(entry.callback, "actions", None)
            if view is not None and any(
                hasattr(view, method) if served is None else method in served for method in WRITES
            ):
                found[view.__name__] = view
    return found


def test_every_view_that_writes_decides_about_dry_runs_and_has_an_example_here():
    found = views()
    assert found.keys() == OWN.keys()
    for view in found.values():
        assert issubclass(view, StatusView)
        assert view.dispatch is StatusView.dispatch, "where it is decided"
        assert view.carry_out is StatusView.carry_out


def tables() -> list[str]:
    """Return the tables that were ever written to: no other has a page, nor a row."""
    rows = sql.fetch(
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND n.nspname = 'public' AND pg_relation_size(c.oid) > 0 ORDER BY 1"
    )
    return [row[0] for row in rows]


def digest() -> dict[str, str]:
    """Return a digest of every table with rows, the change log and its partitions included.

    One statement for all of them: it is asked for some three thousand times.
    """
    rows = """(SELECT '{0}', md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM {0} t)"""
    found = sql.fetch(" UNION ALL ".join(rows.format(table) for table in tables()))
    return {table: made for table, made in found if made is not None}


@pytest.fixture
def cluster(api, monkeypatch):
    """A cluster with a node, and an object called ``old`` of every kind."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    api.post(f"{CORE}/nodes", node("n")).ok(201)
    for kind in ALL_KINDS:
        if kind.name == "Namespace":
            api.post(collection(kind), body_of(kind, "old")).ok(201)
            continue
        api.post(collection(kind), body_of(kind, "old")).ok(201)
    # Numbers of actors are committed apart, also those that follow a change of a workload.
    for account, _, _ in promptly._KINDS.values():
        actors.number(controller(account))
    return api


def asked(api, call: Call, **query: str):
    method, path, body, content_type = call
    for key, value in query.items():
        path += f"{'&' if '?' in path else '?'}{key}={value}"
    return api.call(method, path, body, content_type=content_type)


def check(api, call: Call, before: dict[str, str], *, writes: bool = True) -> None:
    heard = []

    def hear(**news: Any) -> None:
        heard.append(news["revision"])

    changes.committed.connect(hear)
    try:
        answer = asked(api, call, dryRun="All")
    finally:
        changes.committed.disconnect(hear)
    assert answer.status in (200, 201), (call[:2], answer.status, answer.raw[:600])
    assert digest() == before, call[:2]
    assert heard == [], "nobody is told of what did not happen"
    with transaction.atomic():
        done = asked(api, call)
        assert done.status == answer.status, (call[:2], done.raw[:600])
        assert (digest() != before) == writes, f"{call[:2]}: the example writes nothing itself"
        transaction.set_rollback(True)
    memory.forget()


@pytest.mark.parametrize("kinds", few([BY_STORAGE[:20], BY_STORAGE[20:]]), ids=["first", "others"])
def test_no_write_of_a_kind_leaves_anything(cluster, kinds):
    before = digest()
    for kind in kinds:
        for call in calls_of(kind):
            check(cluster, _versioned(cluster, kind, call), before)


@pytest.mark.parametrize("kinds", few([BY_STORAGE[:20], BY_STORAGE[20:]]), ids=["first", "others"])
def test_an_object_keeps_its_version_in_a_dry_run_and_a_new_one_has_none(cluster, kinds):
    """What is told is not stored, and ``kubectl diff`` would show the version as a change."""
    told = 0
    for kind in kinds:
        for call in calls_of(kind):
            method, path, body, content_type = _versioned(cluster, kind, call)
            mark = "&" if "?" in path else "?"
            one = f"{collection(kind)}/{named(kind, 'old')}"
            stored = cluster.get(one).ok()["metadata"]["resourceVersion"]
            wanted = f"{path}{mark}dryRun=All"
            done = cluster.call(method, wanted, body, content_type=content_type)
            assert done.status in (200, 201, 202), (method, path, done.raw[:300])
            answer = done.json
            items = answer.get("items", [answer])
            for item in items:
                if (item.get("metadata") or {}).get("name"):
                    told += 1
                    is_old = item["metadata"]["name"] == named(kind, "old")
                    version = item["metadata"].get("resourceVersion")
                    assert version == (stored if is_old else None), (method, path)
    assert told > 6 * len(kinds)


def _versioned(cluster, kind, call: Call) -> Call:
    """Return a write that says which version it replaces, where it has to."""
    method, path, body, content_type = call
    if method != "PUT" or not kind.versions_updates:
        return call
    stored = cluster.get(f"{collection(kind)}/{named(kind, 'old')}").ok()["metadata"]
    version = {"resourceVersion": stored["resourceVersion"]}
    return method, path, {**body, "metadata": {**body["metadata"], **version}}, content_type


def test_no_write_of_a_view_of_its_own_leaves_anything(cluster, settings):
    for name in sorted(OWN):
        with transaction.atomic():
            check_view(cluster, name, settings)
            transaction.set_rollback(True)


def check_view(cluster, name, settings):
    if name in ("WaitingPodsViewSet", "PodPermitViewSet"):
        (row,) = sql.fetch("SELECT id FROM pod WHERE name = 'old'")
        held = NewReservation(
            pod_id=row[0], node_name="n", profile="default-scheduler", profile_revision=0,
            step="waiting", attempts=1, waits={"p": after(60)},
        )  # fmt: skip
        reservations.reserve([held], now=NOW)
    if name == "WebhooksViewSet":
        settings.WEBHOOK_TARGETS = ["hooks.example"]
        webhooks.create("old", WEBHOOK, "s", now=NOW)
    before = digest()
    for call in OWN[name]:
        check(cluster, call, before, writes=name not in READ_ONLY)


def test_the_body_of_a_deletion_may_ask_for_it(cluster):
    dry = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "old"}}
    before = digest()
    for kind in ALL_KINDS:
        cluster.delete(f"{collection(kind)}/{named(kind, 'old')}", dry).ok()
        if kind.deleted_together:
            cluster.delete(collection(kind), dry).ok()
    evicted = cluster.post(f"{PODS}/old/eviction", {**eviction, "deleteOptions": dry}).ok(201)
    bound = cluster.post(f"{PODS}/old/binding?dryRun=All", binding("old", "n")).ok(201)
    assert evicted["metadata"] == bound["metadata"] == {}, "the version of what was rolled back"
    cluster.delete(f"{PODS}/old?dryRun=All", {"gracePeriodSeconds": 0}).ok()
    assert digest() == before


def test_what_a_write_says_beside_its_object_is_checked_for_every_kind(cluster):
    """With every mistake named, and before anything is done: also what a dry run would do."""
    before = digest()
    wrong = f"fieldManager={'x' * 129}%C3%A4%01&dryRun=Some&fieldValidation=Sometimes"
    for kind in ALL_KINDS:
        for method, path, body, content_type in calls_of(kind):
            if method == "DELETE":
                continue
            where = path.partition("?")[0]
            forced = "force=true&" if content_type in (MERGE, STRATEGIC, JSON_PATCH) else ""
            answer = cluster.call(
                method, f"{where}?{forced}{wrong}", body, content_type=content_type
            )
            status = answer.fails(422, "Invalid")
            named = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
            assert status["message"].startswith(f'{named[method]}.meta.k8s.io "" is invalid: [')
            assert [one["field"] for one in status["details"]["causes"]] == [
                *(["force"] if forced else []),
                "fieldManager", "fieldManager", "dryRun", "fieldValidation",
            ], (method, path)  # fmt: skip
            if content_type == APPLY:
                status = cluster.call(method, where, body, content_type=APPLY).fails(422, "Invalid")
                assert status["message"] == (
                    'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: '
                    "is required for apply patch"
                )
    assert digest() == before
    for words in ("force=true", "force=false"):
        status = cluster.call("PATCH", f"{PODS}/old?{words}", {}, content_type=MERGE).fails(
            422, "Invalid"
        )
        assert status["message"] == (
            'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: '
            "may not be specified for non-apply patch"
        )
    status = cluster.post(f"{PODS}?fieldManager=a%01", pod("new")).fails(422, "Invalid")
    assert status["details"]["causes"][0]["message"] == (
        'Invalid value: "a\\u0001": invalid character U+0001 (at position 1)'
    )
    status = cluster.post(f"{PODS}?fieldValidation=Foo", pod("new")).fails(422, "Invalid")
    assert status["details"]["causes"][0]["message"] == (
        'Unsupported value: "Foo": supported values: "", "Ignore", "Strict", "Warn"'
    )


@pytest.mark.parametrize("word", ["", "all", "None", "true", "All&dryRun=Some"])
def test_other_words_are_refused_and_change_nothing(cluster, word):
    """Rule: ValidateDryRun; whoever misspells it must not have it done."""
    before = digest()
    for kind in ALL_KINDS[:3]:
        for method, path, body, content_type in calls_of(kind):
            mark = "&" if "?" in path else "?"
            answer = cluster.call(
                method, f"{path}{mark}dryRun={word}", body, content_type=content_type
            )
            assert answer.status in (400, 422), (method, path)
    wrong = cluster.post(f"{PODS}?dryRun=all", pod("new")).fails(422, "Invalid")
    assert wrong["message"] == (
        'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["all"]: supported'
        ' values: "All"'
    )
    cluster.put(f"{STOWAGE}/schedulerconfiguration?dryRun={word}", CONFIGURATION).fails(
        422, "Invalid"
    )
    assert digest() == before


@pytest.mark.django_db(transaction=True)
def test_a_dry_run_never_joins_a_batch():
    """A batch commits for all its requests at once."""
    from tests.api.conftest import Api, make_token

    caller = Api(make_token("operator", ["system:masters"]))
    batch = batches.Batch()
    response = caller.client.post(
        f"{PODS.replace('/ns/', '/default/')}?dryRun=All",
        json.dumps(pod()),
        content_type="application/json",
        HTTP_AUTHORIZATION=f"Bearer {caller.token}",
        **{batches.KEY: batch},
    )
    assert response.status_code == 201
    batch.execute()
    assert not connection.in_atomic_block
    assert find_object("Pod", "default", "p") is None
    assert re.search(rb'"uid":', response.content)
