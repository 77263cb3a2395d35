"""Taints and what RuntimeClasses ask for: the rows are what counts, whoever writes them."""

from typing import Any

import msgspec
import pytest
from django.db import IntegrityError, connection, transaction

from clusterstate import models
from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.document import format_time
from clusterstate.queries.evictions.eviction_timers import waiting_timers
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.evictions import timers
from scheduling.engine.queue.pending import Backoff
from scheduling.worker.mirror import Mirror
from tests.clusterstate.support import NOW, Worker, bind, create_node, manifest, new_pod
from tests.clusterstate.support import node as node_manifest

pytestmark = pytest.mark.django_db(transaction=True)

A = {"effect": "NoSchedule", "key": "a", "value": "1"}
B = {"effect": "NoExecute", "key": "example.com/b", "timeAdded": "2026-01-02T03:04:05Z"}
C = {"effect": "PreferNoSchedule", "key": "c"}
TOLERATIONS = [
    {"key": "a", "operator": "Exists"},
    {"key": "example.com/b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
]
MANAGED = [
    {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
     "fieldsV1": {"f:spec": {"f:taints": {}}}},
]  # fmt: skip


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)


def tainted(name: str, *taints: dict[str, str]) -> int:
    """Create a node whose text has all that a text may have; return its row's id."""
    made = node_manifest(name, podCIDR="10.0.0.0/24", taints=list(taints), unschedulable=False)
    made["metadata"]["annotations"] = {"e": 'é say "taints":[{}] \u0001 \\u0000', "x": "\u2028"}
    made["metadata"]["managedFields"] = MANAGED
    objects.create("Node", "", made, now=NOW)
    return models.Node.objects.get(name=name).pk


def taints_of(name: str) -> list[dict[str, Any]] | None:
    return manifest("Node", "", name)["spec"].get("taints")


def stored(name: str) -> tuple[str, int]:
    row = sql.fetch_one(
        "SELECT d.text, n.revision FROM node n JOIN document d ON d.id = n.document_id"
        " WHERE n.name = %s",
        (name,),
    )
    assert row is not None
    return row[0], row[1]


def test_a_taint_deleted_in_sql_is_gone_for_every_reader() -> None:
    id_ = tainted("n1", A, B, C)
    create_node("n2")
    pod = new_pod("p", tolerations=TOLERATIONS)
    assert bind(pod, "n1")
    timers.follow(NOW)
    assert [timer.name for timer in waiting_timers()] == ["p"]
    mirror = Mirror({}, Backoff())
    mirror.load(NOW.timestamp())
    before, revision = stored("n1")
    cursor = changes.watermark()

    sql.run("DELETE FROM taint WHERE node_id = %s AND key <> 'a'", (id_,))

    after, new_revision = stored("n1")
    assert taints_of("n1") == [A]
    page = [msgspec.json.decode(one) for one in list_page("Node").items]
    assert {one["metadata"]["name"]: one["spec"].get("taints") for one in page} == {
        "n1": [A], "n2": None,
    }  # fmt: skip
    # The log has one change, with the taints of before and after.
    found = changes.read_since(cursor, documents=None, previous=None)
    assert [(one.kind, one.name, one.revision) for one in found.items] == [
        ("Node", "n1", new_revision)
    ]
    (change,) = found.items
    assert (change.previous_text, change.previous_revision) == (before, revision)
    assert change.text == after
    # So has everybody who follows it.
    assert mirror.refresh(NOW.timestamp()) == 1
    loaded = Mirror({}, Backoff())
    loaded.load(NOW.timestamp())
    here, there = mirror.snapshot.row_of("n1"), loaded.snapshot.row_of("n1")
    assert here is not None
    assert there is not None
    assert [taint.key for taint in mirror.snapshot.node(here).spec.taints] == ["a"]
    assert mirror.snapshot.node(here) == loaded.snapshot.node(there)
    timers.follow(NOW)
    assert waiting_timers() == []


def test_the_document_is_the_same_but_for_its_taints() -> None:
    id_ = tainted("n1", A, B, C)
    before, _ = stored("n1")
    models.Taint.objects.filter(node=id_).delete()
    without, _ = stored("n1")
    assert '"taints":[{"' not in without.split("\x01")[1]
    # By hand, in the order of the positions, and with as much as a row may leave out.
    with transaction.atomic():
        models.Taint.objects.create(node_id=id_, key="a", value="1", effect="NoSchedule")
        sql.run(
            "INSERT INTO taint (node_id, key, effect, added_at)"
            " VALUES (%s, 'example.com/b', 'NoExecute', '2026-01-02T03:04:05.678Z')",
            (id_,),
        )
        sql.run("INSERT INTO taint (node_id, key, effect) VALUES (%s, 'c', 'PreferNoSchedule')",
                (id_,))  # fmt: skip
    assert stored("n1")[0] == before
    # What a client sends back is what is there: nothing is written.
    assert not objects.update("Node", "", "n1", lambda m: m, now=NOW).changed
    assert manifest("Node", "", "n1")["metadata"]["managedFields"] == MANAGED


def test_a_transaction_makes_one_version_and_a_rollback_none() -> None:
    id_ = tainted("n1", A)
    cursor = changes.watermark()
    with transaction.atomic():
        sql.run("UPDATE taint SET value = '2' WHERE node_id = %s", (id_,))
        sql.run("UPDATE taint SET effect = 'PreferNoSchedule' WHERE node_id = %s", (id_,))
        assert taints_of("n1") == [A]  # as everybody else sees the node until the commit
    with transaction.atomic():
        sql.run("DELETE FROM taint")
        transaction.set_rollback(True)
    with transaction.atomic():  # there and back again
        sql.run("UPDATE taint SET value = '3' WHERE node_id = %s", (id_,))
        sql.run("UPDATE taint SET value = '2' WHERE node_id = %s", (id_,))
    assert len(changes.read_since(cursor).items) == 1
    assert taints_of("n1") == [{"effect": "PreferNoSchedule", "key": "a", "value": "2"}]


def test_a_taint_may_move_to_another_node() -> None:
    first, second = tainted("n1", A, C), tainted("n2", C)
    sql.run("UPDATE taint SET node_id = %s, position = NULL WHERE node_id = %s AND key = 'a'",
            (second, first))  # fmt: skip
    assert (taints_of("n1"), taints_of("n2")) == ([C], [C, A])


def test_a_no_execute_taint_by_hand_counts_from_now() -> None:
    """R123."""
    id_ = tainted("n1")
    sql.run("INSERT INTO taint (node_id, key, effect) VALUES (%s, 'k', 'NoExecute')", (id_,))
    ((added, close),) = sql.fetch(
        "SELECT added_at, clock_timestamp() - added_at < interval '1 minute' FROM taint"
    )
    assert close
    assert taints_of("n1") == [{"effect": "NoExecute", "key": "k", "timeAdded": format_time(added)}]


def test_an_action_writes_rows_and_document_as_one_version() -> None:
    cursor = changes.watermark()
    tainted("n1", A, B)
    for taints in ([B, A], [A], [], [C]):
        new = {"podCIDR": "10.0.0.0/24", **({"taints": taints} if taints else {})}
        objects.update("Node", "", "n1", lambda m, new=new: {**m, "spec": new}, now=NOW)
    objects.delete("Node", "", "n1", now=NOW)
    verbs = [one.verb for one in changes.read_since(cursor).items]
    assert verbs == [changes.ADDED, *[changes.MODIFIED] * 4, changes.DELETED]


def test_taints_are_stored_as_their_rows_can_say_them() -> None:
    """As Kubernetes keeps them: no empty value, whole seconds in UTC, no field it does not know."""
    odd = {"key": "a", "effect": "NoSchedule", "value": "", "other": "x"}
    late = {"key": "b", "effect": "NoExecute", "timeAdded": "2026-01-02T04:04:05.5+01:00"}
    tainted("n1", odd, late)
    assert taints_of("n1") == [
        {"effect": "NoSchedule", "key": "a"},
        {"effect": "NoExecute", "key": "b", "timeAdded": "2026-01-02T03:04:05Z"},
    ]


@pytest.mark.parametrize(
    ("key", "value", "effect", "constraint"),
    [
        ("", "", "NoSchedule", "taint_key_valid"),
        ("-a", "", "NoSchedule", "taint_key_valid"),
        ("A.b/c", "", "NoSchedule", "taint_key_valid"),
        ("a", "b c", "NoSchedule", "taint_value_valid"),
        ("a", '"', "NoSchedule", "taint_value_valid"),
        ("a", "", "Never", "taint_effect_known"),
    ],
)
def test_what_admission_would_refuse_the_database_refuses(
    key: str, value: str, effect: str, constraint: str
) -> None:
    id_ = tainted("n1")
    with pytest.raises(IntegrityError, match=constraint):
        models.Taint.objects.create(node_id=id_, key=key, value=value, effect=effect)
    assert taints_of("n1") is None


def test_a_bind_decided_before_is_refused() -> None:
    id_ = tainted("n1")
    decided_on = changes.watermark()
    sql.run("INSERT INTO taint (node_id, key, effect) VALUES (%s, 'k', 'NoSchedule')", (id_,))
    binding = Binding(new_pod("p"), "n1")
    refused = bind_pods([binding], now=NOW, snapshot_revision=decided_on)
    assert refused.bound == []


def test_followers_wait_for_the_revision_that_a_commit_takes() -> None:
    id_ = tainted("n1", A)
    start = changes.watermark()
    with transaction.atomic():
        sql.run("DELETE FROM taint WHERE node_id = %s", (id_,))
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        _, mine = stored("n1")
        other = Worker(lambda: (create_node("n2"), changes.watermark()))
        later, mark = other.result()
        assert start <= mark < mine < later
    assert changes.watermark() >= later


RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "fast", "annotations": {"a": "é"}},
    "handler": "runc",
    "overhead": {"podFixed": {"memory": "64Mi", "cpu": "100m"}},
    "scheduling": {
        "tolerations": [{"key": "sandbox", "operator": "Exists"}],
        "nodeSelector": {"b": "2", "a": "1"},
    },
}


def runtime_class() -> tuple[str, str, Any, Any]:
    row = sql.fetch_one(
        "SELECT d.text, c.handler, c.scheduling::text, c.overhead::text"
        " FROM runtime_class c JOIN document d ON d.id = c.document_id"
    )
    assert row is not None
    text, handler, *rest = row
    scheduling, overhead = (one if one is None else msgspec.json.decode(one) for one in rest)
    return text, handler, scheduling, overhead


def test_the_columns_of_a_runtime_class_follow_its_document() -> None:
    objects.create("RuntimeClass", "", RUNTIME_CLASS, now=NOW)
    wanted = (RUNTIME_CLASS["scheduling"], RUNTIME_CLASS["overhead"])
    assert runtime_class()[2:] == wanted

    def bare(old: dict[str, Any]) -> dict[str, Any]:
        return {key: old[key] for key in old if key != "scheduling"}

    objects.update("RuntimeClass", "", "fast", bare, now=NOW)
    assert runtime_class()[2:] == (None, RUNTIME_CLASS["overhead"])


def test_the_document_of_a_runtime_class_follows_its_columns() -> None:
    """R42, R47, R137: what is written by hand is what the next pod gets."""
    objects.create("RuntimeClass", "", RUNTIME_CLASS, now=NOW)
    before, *_ = runtime_class()
    assert new_pod("first", runtimeClassName="fast")
    cursor = changes.watermark()
    with transaction.atomic():
        models.RuntimeClass.objects.update(overhead={"podFixed": {"cpu": "250m"}})
        models.RuntimeClass.objects.update(scheduling={"nodeSelector": {"disk": "ssd"}})
    (change,) = changes.read_since(cursor).items
    assert (change.kind, change.name, change.verb) == ("RuntimeClass", "fast", changes.MODIFIED)
    stored = manifest("RuntimeClass", "", "fast")
    assert stored["overhead"] == {"podFixed": {"cpu": "250m"}}
    assert stored["scheduling"] == {"nodeSelector": {"disk": "ssd"}}
    new_pod("second", runtimeClassName="fast")
    spec = manifest("Pod", "default", "second")["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "250m"}, {"disk": "ssd"})
    # And back to what it was, byte for byte.
    models.RuntimeClass.objects.update(
        overhead=RUNTIME_CLASS["overhead"], scheduling=RUNTIME_CLASS["scheduling"]
    )
    assert runtime_class()[0] == before
    models.RuntimeClass.objects.update(overhead=None, scheduling=None)
    assert runtime_class()[0] == before.split(',"overhead"')[0] + "}"
