"""Lists: selectors, pages, and the state as of one revision."""

import datetime as dt
import hashlib
import random
import threading
from collections.abc import Callable

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from clusterstate.actions import evictions, objects
from clusterstate.actions.past import history
from clusterstate.actions.people import tokens
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.pods.status import fail_pods
from clusterstate.database import sql
from clusterstate.objects.registry import fields
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.labels import parse_selector
from clusterstate.queries.evictions.eviction_timers import TAINT, due_taints
from clusterstate.queries.loops.loading import consistent_read, load_classes
from clusterstate.queries.objects import kept_lists, lists
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.people.tokens import TokenUser, token_user
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.pods.stays import ClassOnNode
from tests.clusterstate.support import (
    LATER,
    NOW,
    Worker,
    bind,
    create_node,
    everything_since,
    items,
    names,
    new_pod,
    pod,
    replay,
)
from tests.creating import create_pod
from tests.rows import load_pending

pytestmark = pytest.mark.django_db(transaction=True)

MANY = ",".join(f"v{number}" for number in range(5_000))
SELECTORS = (
    f"app in (web,{MANY})",
    f"app notin (web,{MANY}),tier",
    "",
    "app=web",
    "app==web",
    "app!=web",
    "app",
    "!app",
    "app in (web,db)",
    "app notin (web,db)",
    "app=web,tier",
    "tier!=1,!gone",
    "example.com/size>3",
    "example.com/size<7,app",
    "app=",
)


@pytest.mark.parametrize("kind", ["Pod", "Node", "Event"])
def test_label_selectors_in_sql_agree_with_the_rule(kind: str) -> None:
    rng = random.Random(7)
    namespace = "" if kind == "Node" else "default"
    labels = {}
    for number in range(24):
        chosen = {
            key: rng.choice(values)
            for key, values in {
                "app": ("web", "db", "", "cache"),
                "tier": ("1", "2"),
                "example.com/size": ("1", "5", "9", "x"),
            }.items()
            if rng.random() < 0.7
        }
        labels[f"o{number:02}"] = chosen
        body = {"metadata": {"name": f"o{number:02}", "labels": chosen}}
        if kind == "Pod":
            body = pod(f"o{number:02}", labels=chosen)
        elif kind == "Event":
            body |= {"involvedObject": {"namespace": "default"}}
        objects.create(kind, namespace, body, now=NOW)
    for text in SELECTORS:
        expected = [name for name in labels if parse_selector(text).matches(labels[name])]
        assert names(list_page(kind, label_selector=text)) == expected, text


def test_field_selectors_in_sql_agree_with_the_rule() -> None:
    create_node("n1")
    create_node("n2", unschedulable=True)
    for number, name in enumerate("abcdef"):
        new_pod(
            name,
            restartPolicy="Never" if number % 2 else "Always",
            schedulerName="other" if number % 3 == 0 else "default-scheduler",
        )
    for name in "bc":
        assert bind(find_pod_id("default", name) or 0, "n1")
    fail_pods([(find_pod_id("default", "d") or 0, "r", "m")], now=NOW)
    everything = items(list_page("Pod"))
    for text in (
        "spec.nodeName=n1",
        "spec.nodeName=",
        "spec.nodeName!=n1",
        "status.phase=Failed",
        "status.phase!=Failed,status.phase!=Succeeded,spec.nodeName=n1",
        "spec.schedulerName=other",
        "spec.restartPolicy=Never",
        "spec.hostNetwork=false",
        "status.podIP=",
        "metadata.name=a",
        "metadata.name!=a,metadata.namespace==default",
        "metadata.namespace=other",
        "status.nominatedNodeName=",
        "spec.serviceAccountName!=x",
    ):
        requirements = fields.parse_field_selector("Pod", text)
        expected = [key[1] for key, m in everything.items() if fields.matches(requirements, m)]
        assert names(list_page("Pod", field_selector=text)) == expected, text
    found = list_page("Node", field_selector="spec.unschedulable=false")
    assert names(found) == ["n1"]
    found = list_page("Namespace", field_selector="status.phase=Active")
    assert len(found.items) == 4


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("Pod", "spec.color=red", "field label not supported: spec.color"),
        ("Node", "spec.nodeName=x", "field label not supported: spec.nodeName"),
        ("Pod", "metadata.name", "invalid selector: 'metadata.name'; can't understand"),
    ],
)
def test_wrong_field_selectors_are_bad_requests(kind: str, text: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        list_page(kind, field_selector=text)
    assert caught.value.message.startswith(message)


def test_wrong_label_selectors_and_tokens_are_bad_requests() -> None:
    with pytest.raises(BadRequest):
        list_page("Pod", label_selector="a in (")
    for token in ("nonsense", "e30=", "!!!"):
        with pytest.raises(BadRequest, match="continue key is not valid"):
            list_page("Pod", continue_token=token)


def test_a_namespace_that_is_not_there_lists_as_empty() -> None:
    assert list_page("Pod", "nowhere").items == []


def test_pages_show_the_state_of_the_first_one() -> None:
    for number in range(7):
        new_pod(f"p{number}", labels={"v": "old"})
    first = list_page("Pod", limit=3, label_selector="v=old")
    objects.update(
        "Pod",
        "default",
        "p4",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": {}}},
        now=NOW,
    )
    objects.delete("Pod", "default", "p5", now=NOW)
    objects.delete("Pod", "default", "p0", now=NOW)
    new_pod("p55", labels={"v": "old"})
    assert bind_nowhere_changes_nothing()
    second = list_page("Pod", limit=3, continue_token=first.continue_token, label_selector="v=old")
    third = list_page("Pod", limit=3, continue_token=second.continue_token, label_selector="v=old")
    assert [names(page) for page in (first, second, third)] == [
        ["p0", "p1", "p2"],
        ["p3", "p4", "p5"],
        ["p6"],
    ]
    assert {page.revision for page in (first, second, third)} == {first.revision}
    assert third.continue_token == ""
    assert names(list_page("Pod", label_selector="v=old")) == [
        "p1",
        "p2",
        "p3",
        "p55",
        "p6",
    ]


def test_a_list_that_is_kept_is_what_the_rows_say() -> None:
    create_node("n")
    for number in range(6):
        create_pod(pod(f"p{number}", namespace="kube-system" if number % 2 else "default"), now=NOW)
    ids = {name: found for name in ("p0", "p2") if (found := find_pod_id("default", name))}

    def evict() -> None:
        (row,) = sql.fetch("SELECT id, class_id FROM pod WHERE id = %s", (ids["p0"],))
        departure = evictions.Departure(
            pod_id=row[0], place=ClassOnNode("n", row[1]), started_at=NOW, due_at=NOW
        )
        evictions.restate(TAINT, [departure], node_names=["n"])
        with transaction.atomic():
            due = due_taints(NOW, limit=9)
            assert evictions.fire_taints(due, now=NOW, judge=lambda _: [departure]).evicted

    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: bind(ids["p0"], "n"),
        evict,
        lambda: set_unschedulable([Unschedulable(pod_id=ids["p2"], message="full")], now=NOW),
        lambda: objects.delete("Pod", "default", "p4", now=NOW),
        lambda: create_pod(pod("p4", cpu="7m"), now=NOW),
        lambda: [create_pod(pod(name), now=NOW) for name in ("a", "p", "z")],
        lambda: objects.delete("Pod", "kube-system", "p1", now=NOW),
        lambda: create_pod(pod("b", namespace="kube-node-lease"), now=NOW),
        lambda: create_node("m"),
        lambda: fail_pods([(ids["p2"], "Lost", "its node is gone")], now=NOW),
        lambda: objects.delete("Pod", "default", "p0", now=NOW),
    ]
    for kind, namespace in (("Pod", ""), ("Pod", "default"), ("Node", "")):
        assert list_page(kind, namespace, acknowledged=True).items
    for step in steps:
        step()
        for kind, namespace in (("Pod", ""), ("Pod", "default"), ("Node", "")):
            found = [list_page(kind, namespace, acknowledged=True) for _ in range(3)]
            assert found == [list_page(kind, namespace)] * 3
            assert found[1].items is found[2].items, "the rows were read again"
            for limit in (1, 3, 100):
                first = list_page(kind, namespace, limit=limit, acknowledged=True)
                assert first == list_page(kind, namespace, limit=limit)
    create_pod(pod("late"), now=NOW)
    history.trim(now=LATER, keep_seconds=0)
    assert list_page("Pod", acknowledged=True) == list_page("Pod")
    with transaction.atomic():  # whose end is not known
        create_pod(pod("never"), now=NOW)
        assert "never" in names(list_page("Pod", acknowledged=True))
        transaction.set_rollback(True)
    assert list_page("Pod", acknowledged=True) == list_page("Pod")


def test_empty_lists_of_many_namespaces_do_not_pile_up() -> None:
    kind, kept = KINDS["Pod"], 0
    for number in range(3000):
        kept_lists.keep(kind, f"n{number}", 1, [])
    for number in range(3000):
        kept += kept_lists.current(kind, f"n{number}", 1) is not None
    assert kept == kept_lists.MOST_BYTES >> 14


def bind_nowhere_changes_nothing() -> bool:
    return bind_pods([Binding(1, "none")], snapshot_revision=2**40, now=NOW).bound == []


def test_a_list_is_as_of_its_revision_while_an_earlier_writer_is_still_open() -> None:
    """Rows above the watermark are shown as they were, or a watch would repeat them."""
    create_node("n1")
    ids = {name: new_pod(name, labels={"v": "1"}) for name in ("a", "b", "c")}
    opened, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            create_pod(pod("slow"), now=NOW)
            opened.set()
            assert let_go.wait(10)

    before = list_page("Pod")
    holder = Worker(hold)
    assert opened.wait(10)
    assert bind(ids["a"], "n1")
    objects.update(
        "Pod",
        "default",
        "b",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": {"v": "2"}}},
        now=NOW,
    )
    objects.delete("Pod", "default", "c", now=NOW)
    # Of a class that exists: one that the open transaction brings along would have to wait for it.
    new_pod("d", labels={"v": "1"})
    during = list_page("Pod")
    assert items(during) == items(before)
    assert during.revision == before.revision
    assert names(list_page("Pod", label_selector="v=1")) == ["a", "b", "c"]
    assert names(list_page("Pod", field_selector="spec.nodeName=n1")) == []
    assert names(list_page("Pod", limit=2)) == ["a", "b"]
    let_go.set()
    holder.result()
    after = list_page("Pod")
    assert names(after) == ["a", "b", "d", "slow"]
    log = everything_since(during.revision, "Pod")
    assert replay(items(during), log) == items(after)


def test_a_snapshot_shows_one_state_to_all_reads() -> None:
    new_pod("a")
    read, wrote = threading.Event(), threading.Event()

    def write() -> None:
        assert read.wait(10)
        new_pod("b")
        wrote.set()

    writer = Worker(write)
    with consistent_read() as revision:
        assert len(load_pending()) == 1
        read.set()
        assert wrote.wait(10)
        assert len(load_pending()) == 1
        assert names(list_page("Pod")) == ["a"]
    writer.result()
    assert [change.name for change in everything_since(revision, "Pod")] == ["b"]


def test_classes_are_loaded_by_id() -> None:
    new_pod("a", labels={"x": "1"})
    new_pod("b", labels={"x": "1"})
    new_pod("c", labels={"x": "2"})
    rows = load_pending()
    found = load_classes([rows[0].class_id, 10**9])
    assert [row.id for row in found] == [rows[0].class_id]
    assert b'"labels":{"x":"1"}' in found[0].spec
    assert len(load_classes()) == 2


def test_the_queue_comes_by_priority_and_then_by_age() -> None:
    objects.create("PriorityClass", "", {"metadata": {"name": "high"}, "value": 9}, now=NOW)
    new_pod("first")
    new_pod("second")
    new_pod("important", priorityClassName="high")
    assert [row.name for row in load_pending()] == ["important", "first", "second"]


def test_a_token_stands_for_its_user_until_it_expires() -> None:
    digest = hashlib.sha256(b"secret").digest()
    ada = get_user_model().objects.create_user("ada")
    tokens.create_token(user="ada", secret="secret", now=NOW, groups=["team"])
    assert token_user(digest, now=NOW) == TokenUser("ada", ("team",), str(ada.pk))
    past = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
    tokens.create_token(user="ada", secret="old", now=past, expires_at=past)
    assert token_user(hashlib.sha256(b"old").digest(), now=NOW) is None
    get_user_model().objects.update(is_active=False)
    assert token_user(digest, now=NOW) is None


@pytest.mark.parametrize(
    ("selector", "is_indexed"),
    [("a=1", True), ("a in (1,2)", True), ("a", True), ("a!=1", False), ("!a", False)],
)
def test_selectors_that_name_a_label_are_looked_up_in_the_index(
    selector: str, is_indexed: bool
) -> None:
    """R38: where nothing else is possible, PostgreSQL reads the index of labels for them."""
    where = lists._Where()
    lists._label_conditions(where, "t.labels", parse_selector(selector).requirements)
    with transaction.atomic():
        sql.run("SET LOCAL enable_seqscan = off")
        statement = f"EXPLAIN SELECT t.id FROM node t WHERE {where.text()}"
        plan = "\n".join(row[0] for row in sql.fetch(statement, where.parameters))
    assert ("Index Scan on node_labels" in plan) is is_indexed, plan
