"""Who made a change: every writer of the log says so, and none can forget it.

That every change of every test has an actor is a constraint of the tests' database
(`tests/conftest.py`).
"""

import uuid

import pytest
from django.db import ProgrammingError, connection, transaction

from clusterstate.actions import objects
from clusterstate.actions.agents import node_heartbeats
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.past import housekeeping
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.delete import delete_pods_each, finish_deletions
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.pods.queue import Unschedulable, nominate, set_unschedulable
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.admission.request import User
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.values import actor
from clusterstate.objects.values.actor import Actor, acting
from clusterstate.processes import memory
from scheduling.controllers import manager
from tests.clusterstate.support import LATER, NOW, Worker, create_node, new_pod, pod

pytestmark = pytest.mark.django_db(transaction=True)

ANN = User(name="ann", groups=("staff",))
BOB = User(name="bob", impersonator="root", request=uuid.UUID(int=7))


def written(cursor: int) -> list[tuple[str, str, str, str, uuid.UUID | None]]:
    """Return name, actor, impersonator, what happened and cause of the changes since then."""
    rows = sql.fetch(
        "SELECT c.name, a.name, a.impersonator, c.verb, c.cause"
        " FROM change c LEFT JOIN actor a ON a.id = c.actor_id"
        " WHERE c.revision > %s::bigint ORDER BY c.revision",
        (cursor,),
    )
    words = {changes.ADDED: "added", changes.MODIFIED: "modified", changes.DELETED: "deleted"}
    return [(name, who, for_, words[verb], request) for name, who, for_, verb, request in rows]


def whoever(cursor: int) -> set[str]:
    return {who for _, who, *_ in written(cursor)}


def test_a_statement_that_does_not_say_who_writes_cannot_be_executed() -> None:
    with pytest.raises(ProgrammingError, match="placeholder"):
        sql.fetch(f"{changes.WITH_GATE} SELECT {changes.NEXT} FROM gate WHERE opened = 1")


def test_every_writer_writes_who_it_is() -> None:
    """Each kind of statement that appends to the log, in the order of a cluster's life."""
    cursor = changes.watermark()
    with acting(Actor("somebody")):
        bootstrap.add_missing(now=NOW)
        create_node("n1", taints=[{"key": "k", "effect": "NoSchedule"}])
        objects.update("Node", "", "n1", lambda m: {**m, "spec": {}}, now=NOW)
        first, second = new_pod("p1"), new_pod("p2", finalizers=["a.b/c"])
        set_unschedulable([Unschedulable(pod_id=first, message="no", stage="backoff")], now=NOW)
        nominate({first: "n1"}, now=NOW)
        bind_pods([Binding(first, "n1"), Binding(second, "n1")], snapshot_revision=1 << 40, now=NOW)
        node_heartbeats.mark_pods_not_ready(["n1"], now=NOW)
        evict_pod("default", "p1", {}, now=NOW)
        finish_deletions([first], now=LATER)
        objects.delete("Pod", "default", "p2", now=NOW)
        events.record_many(
            [Occurrence(kind="Pod", namespace="default", name="p2", uid="", reason="R", message="")]
            * 2,
            now=NOW,
        )
        event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
        objects.create("Event", "default", event, now=NOW)
        objects.update("Event", "default", "e", lambda m: {**m, "message": "x"}, now=NOW)
        objects.delete("Event", "default", "e", now=NOW)
        objects.create("ConfigMap", "default", {"metadata": {"name": "c"}}, now=NOW)
        objects.delete("ConfigMap", "default", "c", now=NOW)
    assert whoever(cursor) == {"somebody"}
    assert {what for _, _, _, what, _ in written(cursor)} == {"added", "modified", "deleted"}


def test_one_statement_writes_for_many_users_each_under_the_own_name() -> None:
    create_node("n1")
    cursor = changes.watermark()
    wanted = [("default", pod("a"), ANN), ("default", pod("b"), BOB)]
    objects.create_each(objects.kind_of("Pod"), wanted, now=NOW)
    maps = [
        ("default", {"metadata": {"name": name}}, who) for name, who in (("c", ANN), ("d", BOB))
    ]
    objects.create_each(objects.kind_of("ConfigMap"), maps, now=NOW)
    assert written(cursor) == [
        ("a", "ann", "", "added", None),
        ("b", "bob", "root", "added", BOB.request),
        ("c", "ann", "", "added", None),
        ("d", "bob", "root", "added", BOB.request),
    ]
    cursor = changes.watermark()
    for kind, names in (("Pod", "ab"), ("ConfigMap", "cd")):
        objects.delete_each(
            objects.kind_of(kind),
            [
                Deletion(namespace="default", name=name, user=who)
                for name, who in zip(names, (BOB, ANN), strict=True)
            ],
            now=NOW,
        )
    assert sorted(written(cursor), key=lambda one: one[0]) == [
        ("a", "bob", "root", "deleted", BOB.request),
        ("b", "ann", "", "deleted", None),
        ("c", "bob", "root", "deleted", BOB.request),
        ("d", "ann", "", "deleted", None),
    ]


def test_many_pods_that_begin_to_leave_by_one_statement_have_their_own_actors() -> None:
    create_node("n1")
    ids = [new_pod("a"), new_pod("b")]
    bind_pods([Binding(one, "n1") for one in ids], snapshot_revision=1 << 40, now=NOW)
    cursor = changes.watermark()
    delete_pods_each(
        [
            Deletion(namespace="default", name="a", user=ANN),
            Deletion(namespace="default", name="b", user=BOB),
        ],
        now=NOW,
    )
    assert {(name, who, what) for name, who, _, what, _ in written(cursor)} == {
        ("a", "ann", "modified"),
        ("b", "bob", "modified"),
    }


def test_without_a_word_it_is_the_user_of_the_operating_system() -> None:
    cursor = changes.watermark()
    create_node("n1")
    assert whoever(cursor) == {actor.process_owner().name}
    assert actor.process_owner().name.startswith("system:os:")


def test_rows_written_by_hand_name_the_role_of_the_database() -> None:
    create_node("n1")
    cursor = changes.watermark()
    sql.run("INSERT INTO taint (node_id, key, effect) SELECT id, 'k', 'NoSchedule' FROM node", ())
    role = connection.settings_dict["USER"]
    ((_, who, _, what, _),) = written(cursor)
    assert what == "modified"
    assert who.startswith("system:database:")
    assert not role or who.endswith(role)


def test_controllers_write_under_the_names_of_kubernetes_controllers() -> None:
    bootstrap.add_missing(now=NOW)
    manager.run(NOW)
    replicas = {
        "metadata": {"name": "r"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "r"}},
            "template": {
                "metadata": {"labels": {"app": "r"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    objects.create("ReplicaSet", "default", replicas, now=NOW, user=ANN)
    cursor = changes.watermark()
    manager.run(NOW)
    writers = {who for name, who, *_ in written(cursor) if "." not in name}  # events have a dot
    assert writers == {"system:serviceaccount:kube-system:replicaset-controller"}


def test_a_number_outlives_the_transaction_that_asked_for_it_and_nobody_waits_for_it() -> None:
    with transaction.atomic():
        first = actors.number(Actor("ann"))
        memory.forget()
        assert Worker(lambda: actors.number(Actor("ann"))).result() == first
        transaction.set_rollback(True)
    assert sql.fetch("SELECT id FROM actor WHERE name = 'ann'") == [(first,)]


def test_actors_of_long_ago_go_and_those_in_use_stay() -> None:
    kept, gone = actors.number(Actor("new")), actors.number(Actor("old"))
    sql.run("UPDATE actor SET used_at = %s::timestamptz", (NOW,))
    sql.run("UPDATE actor SET used_at = used_at - interval '40 days' WHERE id = %s::int", (gone,))
    assert housekeeping.drop_old_actors(now=NOW) == 1
    assert sql.fetch("SELECT id FROM actor WHERE name IN ('new', 'old')") == [(kept,)]
