"""Binding: never twice, never on a node that changed since the decision."""

import threading
from typing import Any

import msgspec
import pytest
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import Binding, BindRefusal, BindResult, bind_pod, bind_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.pods.status import fail_pods, nominate
from clusterstate.change_log import changes
from clusterstate.database import bulk, sql
from clusterstate.objects.rules.footprint import Footprint
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import Conflict, NotFound
from clusterstate.queries.loops.loading import load_nodes
from tests.clock import moment
from tests.clusterstate.support import (
    NOW,
    Worker,
    bind,
    create_node,
    everything_since,
    manifest,
    new_pod,
    pod,
)
from tests.creating import create_pod
from tests.rows import load_pending, overcommitted_nodes
from tests.waiting import BLOCKED, until

pytestmark = pytest.mark.django_db(transaction=True)


def bind_all(pairs: list[tuple[int, str]], snapshot: int, binder: str = "one") -> BindResult:
    return bind_pods(
        [Binding(pod_id, name) for pod_id, name in pairs],
        snapshot_revision=snapshot,
        now=NOW,
        binder=binder,
    )


def test_a_batch_binds_with_one_change_each_and_no_new_document() -> None:
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(4)]
    set_unschedulable([Unschedulable(pod_id=ids[0], message="no")], now=NOW)
    documents = sql.fetch("SELECT count(*) FROM document")
    start = changes.watermark()
    result = bind_all([(ids[i], f"n{1 + i % 2}") for i in range(4)], start)
    assert result.refused == {}
    log = everything_since(start)
    assert sorted(result.bound) == sorted((c.object_id, c.revision) for c in log)
    assert {(c.previous_node_name, c.verb) for c in log} == {("", changes.MODIFIED)}
    assert sql.fetch("SELECT count(*) FROM document") == documents
    assert load_pending() == []
    found = manifest("Pod", "default", "p0")
    assert found["spec"]["nodeName"] == "n1"
    assert found["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": moment(),
            "observedGeneration": 1,
        }
    ]


def test_bound_terminating_finished_and_vanished_pods_and_nodes_are_stale() -> None:
    create_node("n1")
    bound, gone, terminating, failed, free = (new_pod(f"p{i}") for i in range(5))
    assert bind(bound, "n1")
    objects.delete("Pod", "default", "p1", now=NOW)
    objects.update(
        "Pod",
        "default",
        "p2",
        lambda m: {**m, "metadata": {**m["metadata"], "finalizers": ["example.com/x"]}},
        now=NOW,
    )
    objects.delete("Pod", "default", "p2", now=NOW)
    fail_pods([(failed, "r", "m")], now=NOW)
    everything = [(bound, "n1"), (gone, "n1"), (terminating, "n1"), (failed, "n1"), (free, "none")]
    result = bind_all(everything, changes.watermark())
    assert result.bound == []
    assert result.refused == {
        bound: BindRefusal.PLACED,
        gone: BindRefusal.GONE,
        terminating: BindRefusal.GONE,
        failed: BindRefusal.PLACED,
        free: BindRefusal.NO_NODE,
    }


def test_a_node_that_changed_its_offer_since_the_snapshot_refuses() -> None:
    create_node("n1")
    pod_id = new_pod("a")
    snapshot = changes.watermark()
    objects.update("Node", "", "n1", lambda m: {**m, "spec": {"unschedulable": True}}, now=NOW)
    assert bind_all([(pod_id, "n1")], snapshot).refused == {pod_id: BindRefusal.NODE_CHANGED}
    assert bind_all([(pod_id, "n1")], changes.watermark()).refused == {}


def test_a_heartbeat_does_not_refuse() -> None:
    create_node("n1")
    pod_id = new_pod("a")
    snapshot = changes.watermark()
    objects.update(
        "Node",
        "",
        "n1",
        lambda m: {
            **m,
            "status": {**m["status"], "conditions": [{"type": "Ready", "status": "True"}]},
        },
        subresource="status",
        now=NOW,
    )
    assert bind_all([(pod_id, "n1")], snapshot).refused == {}


@pytest.mark.parametrize("how", ["create", "binding", "node", "deletion"])
def test_a_bind_waits_for_a_foreign_placement_and_then_refuses(how: str) -> None:
    """The race that the placement lock guards: the other transaction is open while this binds."""
    create_node("n1")
    pod_id = new_pod("a")
    new_pod("other")
    snapshot = changes.watermark()
    placed, go_on = threading.Event(), threading.Event()

    def foreign() -> None:
        with transaction.atomic():
            if how == "create":
                create_pod(pod("direct", nodeName="n1"), now=NOW)
            elif how == "binding":
                bind_pod("default", "other", "n1", now=NOW)
            elif how == "deletion":
                objects.delete("Node", "", "n1", now=NOW)
            else:
                objects.update(
                    "Node",
                    "",
                    "n1",
                    lambda m: {**m, "metadata": {**m["metadata"], "labels": {"x": "y"}}},
                    now=NOW,
                )
            placed.set()
            assert go_on.wait(10)

    stranger = Worker(foreign)
    assert placed.wait(10)
    binder = Worker(lambda: bind_all([(pod_id, "n1")], snapshot))
    binder.join(0.3)
    assert binder.is_alive(), "the bind did not wait"
    go_on.set()
    stranger.result()
    why = BindRefusal.NO_NODE if how == "deletion" else BindRefusal.NODE_CHANGED
    assert binder.result().refused == {pod_id: why}


def test_a_second_binder_must_know_the_first_ones_last_bind() -> None:
    create_node("n1")
    first, second, third = (new_pod(f"p{i}") for i in range(3))
    snapshot = changes.watermark()
    assert bind_all([(first, "n1")], snapshot, "one").bound
    assert bind_all([(second, "n1")], snapshot, "one").bound
    assert bind_all([(third, "n1")], snapshot, "two").refused == {third: BindRefusal.OVERTAKEN}
    assert bind_all([(third, "n1")], changes.watermark(), "two").bound


def test_two_binders_never_bind_a_pod_twice() -> None:
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(60)]
    start = changes.watermark()
    barrier = threading.Barrier(2)

    def run(node_name: str) -> int:
        barrier.wait(10)
        count = 0
        for i in range(0, 60, 5):
            pairs = [(pod_id, node_name) for pod_id in ids[i : i + 5]]
            count += len(bind_all(pairs, 2**40, node_name).bound)
        return count

    workers = [Worker(lambda n=n: run(n)) for n in ("n1", "n2")]
    assert sum(worker.result() for worker in workers) == 60
    log = everything_since(start)
    assert len(log) == len({change.object_id for change in log}) == 60


def test_a_clients_binding_binds_once() -> None:
    create_node("n1")
    new_pod("a")
    revision = bind_pod("default", "a", "n1", now=NOW)
    found = manifest("Pod", "default", "a")
    assert found["spec"]["nodeName"] == "n1"
    assert found["metadata"]["resourceVersion"] == str(revision)
    assert load_pending() == []
    with pytest.raises(Conflict) as caught:
        bind_pod("default", "a", "n2", now=NOW)
    assert caught.value.message == (
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
    )
    with pytest.raises(NotFound, match='pods "b" not found'):
        bind_pod("default", "b", "n1", now=NOW)


def test_a_clients_binding_tells_the_pod_where_its_node_is() -> None:
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    create_node("n1")

    def placed(node: dict[str, Any]) -> dict[str, Any]:
        own = {zone: "z", region: "r", "topology.kubernetes.io/rack": "7"}
        return {**node, "metadata": {**node["metadata"], "labels": own}}

    objects.update("Node", "", "n1", placed, now=NOW)
    for name in ("a", "b"):
        stated = pod(name)
        stated["metadata"]["labels"] = {zone: "wrong", "own": "yes"}
        create_pod(stated, now=NOW)
    bind_pod("default", "a", "n1", now=NOW)
    found = manifest("Pod", "default", "a")["metadata"]["labels"]
    assert found == {zone: "z", region: "r", "own": "yes"}
    bind_pod("default", "b", "n1", labels={zone: "said", "more": "too"}, now=NOW)
    found = manifest("Pod", "default", "b")["metadata"]["labels"]
    assert found == {zone: "said", region: "r", "own": "yes", "more": "too"}


def test_bound_pods_come_as_columns() -> None:
    create_node("n1")
    ids = [new_pod(f"p{i}") for i in range(3)]
    for pod_id in ids[:2]:
        assert bind(pod_id, "n1")
    create_pod(pod("stray", nodeName="nowhere"), now=NOW)
    columns = bulk.bound_pods()
    (node,) = load_nodes()
    by_id = dict(zip(columns.ids.tolist(), columns.nodes.tolist(), strict=True))
    assert [by_id[pod_id] for pod_id in ids[:2]] == [node.id, node.id]
    assert len(by_id) == 3
    assert ids[2] not in by_id


def test_overcommitted_nodes_are_found_by_resource() -> None:
    create_node("n1", allocatable={"cpu": "1", "pods": "2", "example.com/gpu": "1"})
    for number in range(2):
        create_pod(pod(f"p{number}", cpu="500m", nodeName="n1"), now=NOW)
    assert overcommitted_nodes() == []
    body = pod("p2", cpu="100m", nodeName="n1")
    gpu = {"example.com/gpu": "2"}
    body["spec"]["containers"][0]["resources"]["requests"] |= gpu
    body["spec"]["containers"][0]["resources"]["limits"] = gpu
    create_pod(body, now=NOW)
    found = {one.resource: (one.used, one.allocatable) for one in overcommitted_nodes()}
    assert found == {"cpu": (1100, 1000), "pods": (3, 2), "example.com/gpu": (2, 1)}


def cordon(name: str) -> None:
    objects.update("Node", "", name, lambda m: {**m, "spec": {"unschedulable": True}}, now=NOW)


def test_a_pod_that_leans_on_the_batch_is_bound_with_all_of_it_or_not_at_all() -> None:
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(4)]
    batch = [
        Binding(ids[3], "n1"),
        Binding(ids[2], "n2", leans=True),
        Binding(ids[1], "n2"),
        Binding(ids[0], "n2", leans=True),
    ]
    start = changes.watermark()
    cordon("n1")
    result = bind_pods(batch, snapshot_revision=start, now=NOW)
    assert [pod_id for pod_id, _ in result.bound] == [ids[1]]
    assert result.refused == {ids[3]: BindRefusal.NODE_CHANGED}
    assert sorted(result.held) == sorted([ids[0], ids[2]])

    again = [batch[1], batch[3]]
    result = bind_pods(again, snapshot_revision=start, now=NOW)
    assert [pod_id for pod_id, _ in result.bound] == [ids[2], ids[0]], "in the order of decisions"
    assert (result.refused, result.held) == ({}, [])
    assert [change.object_id for change in everything_since(start)][-2:] == [ids[2], ids[0]]


@pytest.mark.parametrize("gone", ["deleted", "patched"])
def test_a_leaning_batch_waits_for_who_writes_its_pods_and_then_looks_again(gone: str) -> None:
    create_node("n1")
    first, second = new_pod("p0"), new_pod("p1")
    start = changes.watermark()
    with transaction.atomic():
        if gone == "deleted":
            objects.delete("Pod", "default", "p0", now=NOW)
        else:
            objects.update("Pod", "default", "p0", label, now=NOW)
        worker = Worker(
            lambda: bind_pods(
                [Binding(first, "n1"), Binding(second, "n1", leans=True)],
                snapshot_revision=start,
                now=NOW,
            )
        )
        until(lambda: sql.fetch(BLOCKED))
    result = worker.result()
    if gone == "deleted":
        assert (result.bound, result.refused, result.held) == (
            [],
            {first: BindRefusal.GONE},
            [second],
        )
    else:
        assert [pod_id for pod_id, _ in result.bound] == [first, second]
        revisions = [c.revision for c in everything_since(start) if c.object_id == first]
        assert revisions == sorted(revisions)
        assert manifest("Pod", "default", "p0")["metadata"]["labels"] == {"a": "b"}


LOOKS_LIKE_IT = ',"nominatedNodeName":"n1","nominatedNodeName":"n1"'
CONDITION = {"type": "a.b/C", "status": "True", "message": LOOKS_LIKE_IT}
STATUSES = {
    "alone": {},
    "behind conditions": {"conditions": [CONDITION]},
    "behind others": {"message": LOOKS_LIKE_IT},
    "behind both": {"conditions": [CONDITION], "message": "m"},
}


@pytest.mark.parametrize("way", ["in a batch", "leaning", "by a client"])
@pytest.mark.parametrize("status", STATUSES)
def test_a_pod_that_is_bound_is_nominated_no_longer(status: str, way: str) -> None:
    """Kubernetes: ClearingNominatedNodeNameAfterBinding, v1.36."""
    create_node("n1")
    marks = {"nominatedNodeName": "n1", "a": LOOKS_LIKE_IT}
    nominated, other = new_pod("p0", annotations=marks), new_pod("p1", annotations=marks)
    objects.update(
        "Pod", "default", "p0", lambda m: {**m, "status": {**m["status"], **STATUSES[status]}},
        now=NOW, subresource="status",
    )  # fmt: skip
    nominate({nominated: "n1"}, now=NOW)
    before = manifest("Pod", "default", "p0")
    assert before["status"]["nominatedNodeName"] == "n1"
    start = changes.watermark()
    documents = document_ids()
    if way == "by a client":
        bind_pod("default", "p0", "n1", now=NOW)
    else:
        leans = way == "leaning"
        batch = [Binding(nominated, "n1", leans=leans), Binding(other, "n1", leans=leans)]
        assert len(bind_pods(batch, snapshot_revision=start, now=NOW).bound) == 2
    log = everything_since(start)
    assert len(log) == (1 if way == "by a client" else 2), "one change each"
    assert {change.nominated_node_name for change in log} == {None}
    bound = manifest("Pod", "default", "p0")
    expected = {key: value for key, value in before["status"].items() if key != "nominatedNodeName"}
    scheduled, *others = bound["status"].pop("conditions")
    assert (scheduled["type"], others) == ("PodScheduled", expected.pop("conditions", []))
    assert (bound["status"], bound["spec"].pop("nodeName")) == (expected, "n1")
    assert bound["spec"] == before["spec"]
    assert bound["metadata"]["annotations"] == before["metadata"]["annotations"]
    ((text,),) = sql.fetch(
        "SELECT d.text FROM document d JOIN pod p ON p.document_id = d.id WHERE p.name = 'p0'"
    )
    assert text == document.encode("Pod", manifest("Pod", "default", "p0"))[0]
    assert document_ids()["p1"] == documents["p1"]
    superseded = sql.fetch("SELECT revision FROM superseded_document WHERE document_id = %s",
                           (documents["p0"],))  # fmt: skip
    assert superseded == [(bound_revision(log, nominated),)]


def document_ids() -> dict[str, int]:
    return dict(sql.fetch("SELECT name, document_id FROM pod"))


def bound_revision(log: list[changes.Change], pod_id: int) -> int:
    (found,) = [change.revision for change in log if change.object_id == pod_id]
    return found


@pytest.mark.parametrize("leans", [False, True])
def test_a_nomination_that_comes_while_a_batch_waits_for_its_writer_is_decided_again(
    leans: bool,
) -> None:
    create_node("n1")
    first, second = new_pod("p0"), new_pod("p1")
    batch = [Binding(first, "n1", leans=leans), Binding(second, "n1")]
    start = changes.watermark()
    with transaction.atomic():
        nominate({first: "n1"}, now=NOW)
        worker = Worker(lambda: bind_pods(batch, snapshot_revision=start, now=NOW))
        until(lambda: sql.fetch(BLOCKED))
    result = worker.result()
    assert [pod_id for pod_id, _ in result.bound] == [second]
    assert result.refused == {first: BindRefusal.OVERTAKEN}
    assert manifest("Pod", "default", "p0")["status"]["nominatedNodeName"] == "n1"
    assert bind_pods(batch[:1], snapshot_revision=changes.watermark(), now=NOW).bound
    assert "nominatedNodeName" not in manifest("Pod", "default", "p0")["status"]


def label(m: dict) -> dict:
    return {**m, "metadata": {**m["metadata"], "labels": {"a": "b"}}}


def test_groups_are_bound_whole_or_not_at_all_each_for_itself() -> None:
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(5)]
    batch = [
        Binding(ids[0], "n1", group=1, leans=True),
        Binding(ids[1], "n2", group=2, leans=True),
        Binding(ids[2], "n2", group=1, leans=True),
        Binding(ids[3], "n2", group=2, leans=True),
        Binding(ids[4], "n1", group=3, leans=True),
    ]
    start = changes.watermark()
    cordon("n1")
    result = bind_pods(batch, snapshot_revision=start, now=NOW)
    assert [pod_id for pod_id, _ in result.bound] == [ids[1], ids[3]]
    assert result.refused == {ids[0]: BindRefusal.NODE_CHANGED, ids[4]: BindRefusal.NODE_CHANGED}
    assert result.held == [ids[2]]


def class_of(pod_id: int) -> int:
    ((class_id,),) = sql.fetch("SELECT class_id FROM pod WHERE id = %s::bigint", (pod_id,))
    found: int = class_id
    return found


def test_a_pod_of_another_class_than_it_was_decided_as_is_not_bound() -> None:
    """Its amounts, labels or rules are others, on which the decision about it relied."""
    create_node("n1")
    same, other = new_pod("same"), new_pod("p0")
    batch = [Binding(one, "n1", Footprint(class_id=class_of(one))) for one in (same, other)]
    objects.update("Pod", "default", "p0", label, now=NOW)
    result = bind_pods(batch, snapshot_revision=changes.watermark(), now=NOW)
    assert [pod_id for pod_id, _ in result.bound] == [same]
    assert result.refused == {other: BindRefusal.CHANGED}
    leaning = [msgspec.structs.replace(batch[1], leans=True), Binding(new_pod("late"), "n1")]
    result = bind_pods(leaning, snapshot_revision=changes.watermark(), now=NOW)
    assert result.refused == {other: BindRefusal.CHANGED}
    assert len(result.bound) == 1
