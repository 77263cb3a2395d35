"""Pods: creation, updates, graceful deletion, the queue's rows."""

import datetime as dt
import re
import threading
from typing import Any

import pytest
from django.db import OperationalError, transaction

from clusterstate.actions import objects
from clusterstate.actions.cluster.collection import delete_collection
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import (
    _delete_judged,
    delete_pod,
    delete_pods_each,
    finish_deletions,
)
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.pods.queue import (
    QueueMove,
    Unschedulable,
    move_pending,
    set_unschedulable,
)
from clusterstate.actions.pods.status import fail_pods, nominate
from clusterstate.actions.pods.versions import lock_pods
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.actions.writing.stored import StoredObject
from clusterstate.actions.writing.transactions import rehearsal
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.values.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Invalid,
    NotFound,
    StatusError,
    TooManyRequests,
)
from clusterstate.objects.wire.managed_fields import Manager
from clusterstate.queries.objects import decode_object, find_object, get_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id, pods_by_id
from clusterstate.queries.pods.queue import pending_counts
from clusterstate.queries.pods.terminating import finishable
from tests import roundtrips
from tests.clock import after, moment
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
from tests.rows import load_pending

pytestmark = pytest.mark.django_db(transaction=True)


def labelled(**labels: str) -> Any:
    return lambda m: {**m, "metadata": {**m["metadata"], "labels": labels}}


def counts() -> dict[str, int]:
    return {
        table: sql.fetch(f"SELECT count(*) FROM {table}")[0][0]
        for table in ("pod", "pending_pod", "document", "change", "scheduling_class")
    }


def test_a_created_pod_has_identity_status_and_a_place_in_the_queue() -> None:
    stored = objects.create(
        "Pod",
        "default",
        {
            "metadata": {"name": "a", "uid": "mine", "generation": 7, "selfLink": "/x"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        },
        now=NOW,
    )
    found = decode_object(stored.manifest)
    assert get_object("Pod", "default", "a") == stored.manifest
    metadata = found["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata.pop("uid"))
    assert metadata == {
        "name": "a",
        "namespace": "default",
        "generation": 1,
        "creationTimestamp": moment(),
        "resourceVersion": str(stored.revision),
    }
    assert found["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (found["kind"], found["apiVersion"]) == ("Pod", "v1")
    (row,) = load_pending()
    assert (row.name, row.stage, row.attempts, row.since) == ("a", "active", 0, NOW)


def test_a_taken_name_is_refused_and_writes_nothing() -> None:
    new_pod("a")
    before = counts()
    with pytest.raises(AlreadyExists) as caught:
        create_pod(pod("a"), now=NOW)
    assert caught.value.message == 'pods "a" already exists'
    assert caught.value.details == {"name": "a", "kind": "pods"}
    assert counts() == before


def test_a_missing_namespace_is_not_found() -> None:
    with pytest.raises(NotFound) as caught:
        create_pod(pod("a", namespace="nowhere"), now=NOW)
    assert caught.value.message == 'namespaces "nowhere" not found'


def test_a_manifest_with_a_resource_version_cannot_be_created() -> None:
    body = pod("a")
    body["metadata"]["resourceVersion"] = "5"
    with pytest.raises(BadRequest, match="resourceVersion should not be set"):
        create_pod(body, now=NOW)


def test_generate_name_gives_five_random_letters_and_survives_collisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from clusterstate.actions.writing import object_meta

    suffixes = iter(["aaaaa", "aaaaa", "aaaaa", "bbbbb"])
    monkeypatch.setattr(object_meta, "name_suffix", lambda: next(suffixes))
    first = create_pod(pod(generateName="job-"), now=NOW)
    second = create_pod(pod(generateName="job-"), now=NOW)
    assert decode_object(first.manifest)["metadata"]["name"] == "job-aaaaa"
    assert decode_object(second.manifest)["metadata"]["name"] == "job-bbbbb"


def test_many_pods_are_one_revision_each_in_the_order_of_the_list() -> None:
    start = changes.watermark()
    stored = create_pods([pod(f"p{i}", labels={"n": str(i % 3)}) for i in range(50)], now=NOW)
    assert all(isinstance(one, StoredObject) for one in stored)
    log = everything_since(start)
    assert [change.name for change in log] == [f"p{i}" for i in range(50)]
    assert [change.revision for change in log] == [
        one.revision for one in stored if isinstance(one, StoredObject)
    ]
    assert counts()["scheduling_class"] == 3
    assert len({change.class_id for change in log}) == 3


def test_all_or_nothing_stores_nothing_when_one_name_is_taken() -> None:
    new_pod("p1")
    before = counts()
    with pytest.raises(AlreadyExists, match='pods "p1" already exists'):
        create_pods([pod(f"p{i}") for i in range(3)], now=NOW)
    with pytest.raises(AlreadyExists, match='pods "x" already exists'):
        create_pods([pod("x"), pod("x")], now=NOW)
    with pytest.raises(Invalid):
        create_pods([pod("ok"), pod("Not Valid")], now=NOW)
    assert counts() == before


def test_without_all_or_nothing_the_others_are_stored() -> None:
    new_pod("p1")
    results = create_pods(
        [pod("p0"), pod("p1"), pod("Not Valid"), pod("p0"), pod("p4")],
        now=NOW,
        all_or_nothing=False,
    )
    kinds = [type(one) for one in results]
    assert kinds == [StoredObject, AlreadyExists, Invalid, AlreadyExists, StoredObject]
    assert counts()["pod"] == counts()["pending_pod"] == 3


def test_an_error_inside_a_callers_transaction_leaves_it_usable() -> None:
    new_pod("a")
    with transaction.atomic():
        with pytest.raises(AlreadyExists):
            create_pod(pod("a"), now=NOW)
        create_pod(pod("b"), now=NOW)
    assert find_object("Pod", "default", "b")


def test_a_dry_run_answers_and_stores_nothing() -> None:
    before = counts()
    with rehearsal():
        stored = create_pod(pod("a"), now=NOW)
    assert decode_object(stored.manifest)["spec"]["schedulerName"] == "default-scheduler"
    assert counts() == before
    new_pod("b")
    after = counts()
    with rehearsal():
        objects.update("Pod", "default", "b", labelled(x="y"), now=NOW)
    objects.delete("Pod", "default", "b", {"dryRun": True}, now=NOW)
    assert counts() == after
    # A class that was rolled back must not be remembered.
    create_pod(pod("c", labels={"x": "y"}), now=NOW)
    assert sql.fetch(
        "SELECT count(*) FROM pod p LEFT JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE c.id IS NULL"
    ) == [(0,)]


def test_a_gated_pod_waits_gated_until_its_gates_are_gone() -> None:
    new_pod("a", schedulingGates=[{"name": "example.com/wait"}])
    condition = manifest("Pod", "default", "a")["status"]["conditions"][0]
    assert condition["reason"] == "SchedulingGated"
    assert condition["message"] == "Scheduling is blocked due to non-empty scheduling gates"
    assert [(row.stage, row.since) for row in load_pending()] == [("gated", NOW)]
    later = NOW + dt.timedelta(hours=1)
    objects.update(
        "Pod",
        "default",
        "a",
        lambda m: {**m, "spec": {k: v for k, v in m["spec"].items() if k != "schedulingGates"}},
        now=later,
    )
    assert [(row.stage, row.since) for row in load_pending()] == [("active", later)]
    assert "conditions" not in manifest("Pod", "default", "a")["status"]


def test_a_pod_that_names_its_node_is_not_queued() -> None:
    create_pod(pod("a", nodeName="n1"), now=NOW)
    found = manifest("Pod", "default", "a")
    assert found["spec"]["nodeName"] == "n1"
    assert load_pending() == []


def test_an_update_that_changes_nothing_has_no_revision_and_no_change() -> None:
    new_pod("a", labels={"x": "y"})
    start = changes.watermark()
    before = get_object("Pod", "default", "a")
    for change in (
        lambda m: m,
        lambda m: {**m, "status": {"phase": "Running"}},
        lambda m: {**m, "metadata": {**m["metadata"], "generation": 9, "uid": None}},
        lambda m: {"spec": m["spec"], "metadata": {"labels": {"x": "y"}}},
    ):
        stored = objects.update("Pod", "default", "a", change, now=NOW)
        assert not stored.changed
        assert stored.manifest == before
    assert everything_since(start) == []


def test_an_update_moves_revision_class_and_document_and_keeps_the_former_ones() -> None:
    new_pod("a", labels={"x": "y"})
    start = changes.watermark()
    stored = objects.update("Pod", "default", "a", labelled(x="z"), now=NOW)
    (change,) = everything_since(start)
    assert change.revision == stored.revision
    assert change.class_id != change.previous_class_id
    assert change.document_id != change.previous_document_id
    assert change.previous_revision == start
    assert get_object("Pod", "default", "a") == stored.manifest


def test_a_stale_resource_version_and_a_wrong_uid_are_conflicts() -> None:
    new_pod("a")
    for key, value, message in (
        (
            "resourceVersion",
            "1",
            (
                'Operation cannot be fulfilled on pods "a": the object has been modified; please'
                " apply your changes to the latest version and try again"
            ),
        ),
        ("uid", "0", 'Operation cannot be fulfilled on pods "a": Precondition failed: UID in'),
    ):
        with pytest.raises(Conflict) as caught:
            objects.update(
                "Pod",
                "default",
                "a",
                lambda m, k=key, v=value: {**m, "metadata": {**m["metadata"], k: v}},
                now=NOW,
            )
        assert caught.value.message.startswith(message)


def test_updating_a_pod_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match=r'^pods "a" not found$'):
        objects.update("Pod", "default", "a", lambda m: m, now=NOW)


def test_the_status_subresource_changes_status_and_labels_and_no_owners_nor_spec() -> None:
    """As Kubernetes' strategy for the status of pods has it."""
    pod_id = new_pod("a")
    create_node("n1")
    assert bind(pod_id, "n1")

    def run(m: dict[str, Any]) -> dict[str, Any]:
        return {
            **m,
            "metadata": {
                **m["metadata"],
                "labels": {"a": "b"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}],
            },
            "spec": {**m["spec"], "schedulerName": "not this"},
            "status": {**m["status"], "phase": "Running", "podIP": "10.0.0.1"},
        }

    objects.update("Pod", "default", "a", run, subresource="status", now=NOW)
    found = manifest("Pod", "default", "a")
    assert found["status"]["phase"] == "Running"
    assert found["metadata"]["labels"] == {"a": "b"}
    assert "ownerReferences" not in found["metadata"]
    assert found["spec"]["schedulerName"] == "default-scheduler"
    assert pods_by_id([pod_id])[pod_id].phase == "Running"
    # The condition lives in columns and must survive.
    assert found["status"]["conditions"][0]["type"] == "PodScheduled"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"podIP": "1.1.1.1"}, ["1.1.1.1"]),
        ({"podIPs": [{"ip": "1.1.1.1"}, {"ip": "2001:db8::"}]}, ["1.1.1.1", "2001:db8::"]),
        ({"podIP": "2.2.2.2", "podIPs": [{"ip": "1.1.1.1"}, {"ip": "::1"}]}, ["2.2.2.2"]),
    ],
)
def test_the_address_of_a_pod_is_the_first_of_its_addresses(said: Any, kept: list[str]) -> None:
    new_pod("a")

    def report(m: dict[str, Any]) -> dict[str, Any]:
        return {**m, "status": {**m["status"], **said}}

    objects.update("Pod", "default", "a", report, subresource="status", now=NOW)
    status = manifest("Pod", "default", "a")["status"]
    assert (status["podIP"], [one["ip"] for one in status["podIPs"]]) == (kept[0], kept)


def test_a_report_of_an_agent_keeps_which_generation_it_saw_scheduled() -> None:
    pod_id = new_pod("a")
    create_node("n1")
    assert bind(pod_id, "n1")

    def report(m: dict[str, Any]) -> dict[str, Any]:
        (scheduled,) = m["status"]["conditions"]
        seen = {**scheduled, "observedGeneration": 1, "lastProbeTime": None}
        return {**m, "status": {**m["status"], "conditions": [seen]}}

    objects.update("Pod", "default", "a", report, subresource="status", now=after(5))
    found = manifest("Pod", "default", "a")
    assert found["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": moment(),
            "observedGeneration": 1,
        }
    ]
    objects.update("Pod", "default", "a", report, subresource="status", now=after(6))
    assert manifest("Pod", "default", "a") == found, "the same report changes nothing"
    since = sql.fetch_one("SELECT scheduled_at FROM pod WHERE id = %s", (pod_id,))
    assert since == (NOW,)


def test_a_finished_pod_leaves_the_queue() -> None:
    pod_id = new_pod("a")
    assert fail_pods([(pod_id, "OutOfcpu", "Node didn't have enough resource: cpu")], now=NOW)
    assert load_pending() == []
    status = manifest("Pod", "default", "a")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert fail_pods([(pod_id, "Again", "")], now=NOW) == []


# Deletion -------------------------------------------------------------------------------------


def test_an_unbound_pod_is_gone_at_once_with_a_new_revision() -> None:
    new_pod("a")
    start = changes.watermark()
    deleted = objects.delete("Pod", "default", "a", now=NOW)
    assert deleted.gone
    (change,) = everything_since(start)
    assert (change.verb, change.revision) == (changes.DELETED, deleted.revision)
    assert decode_object(deleted.manifest)["metadata"]["resourceVersion"] == str(deleted.revision)
    assert find_object("Pod", "default", "a") is None
    assert counts()["pending_pod"] == 0


def test_a_bound_pod_stays_for_its_grace_period() -> None:
    pod_id = new_pod("a")
    create_node("n1")
    assert bind(pod_id, "n1")
    deleted = objects.delete("Pod", "default", "a", now=NOW)
    metadata = decode_object(deleted.manifest)["metadata"]
    assert not deleted.gone
    assert metadata["deletionTimestamp"] == moment(30)
    assert metadata["deletionGracePeriodSeconds"] == 30
    # The same again, or longer, changes nothing; shorter brings it forward.
    again = objects.delete("Pod", "default", "a", now=NOW + dt.timedelta(seconds=3))
    assert again.revision == deleted.revision
    longer = objects.delete("Pod", "default", "a", {"gracePeriodSeconds": 60}, now=NOW)
    assert longer.revision == deleted.revision
    shorter = objects.delete("Pod", "default", "a", {"gracePeriodSeconds": 10}, now=NOW)
    metadata = decode_object(shorter.manifest)["metadata"]
    assert metadata["deletionTimestamp"] == moment(10)
    assert metadata["deletionGracePeriodSeconds"] == 10
    assert objects.delete("Pod", "default", "a", {"gracePeriodSeconds": 0}, now=NOW).gone


def test_due_deletions_are_finished_in_bulk() -> None:
    create_node("n1")
    ids = [new_pod(f"p{i}") for i in range(3)]
    for pod_id in ids:
        assert bind(pod_id, "n1")
    for name in ("p0", "p1"):
        objects.delete("Pod", "default", name, {"gracePeriodSeconds": 5}, now=NOW)

    def due(seconds: int) -> list[int]:
        at = NOW + dt.timedelta(seconds=seconds)
        return finishable(now=at, overdue_at=at, limit=10)

    assert due(4) == [], "nobody plays the node's agent, but who deleted them asked for 5 seconds"
    assert due(5) == ids[:2]
    lease = {"metadata": {"name": "n1"}, "spec": {"renewTime": "2026-11-21T12:00:00.000000Z"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}}
    if find_object("Namespace", "", "kube-node-lease") is None:
        objects.create("Namespace", "", namespace, now=NOW)
    objects.create("Lease", "kube-node-lease", lease, now=NOW)
    assert due(4) == []
    assert due(5) == ids[:2]
    objects.delete("Pod", "default", "p1", {"gracePeriodSeconds": 2}, now=NOW)
    assert due(4) == ids[1:2]
    assert [id_ for id_, _ in finish_deletions(ids, now=NOW)] == ids[:2]
    assert due(5) == []
    assert find_object("Pod", "default", "p2")


@pytest.mark.parametrize(
    ("spec", "options", "waits"),
    [
        ({}, {}, False),
        ({"terminationGracePeriodSeconds": 600}, {}, False),
        ({"terminationGracePeriodSeconds": 600}, {"gracePeriodSeconds": 600}, False),
        ({"terminationGracePeriodSeconds": 600}, {"gracePeriodSeconds": 30}, True),
        ({}, {"gracePeriodSeconds": 8}, True),
        ({"annotations": {"a": '"deletionGracePeriodSeconds":8'}}, {}, False),
    ],
)
def test_where_nothing_runs_a_pod_goes_at_once_unless_a_period_was_asked_for(
    spec: dict[str, Any], options: dict[str, Any], waits: bool
) -> None:
    create_node("n1")
    pod_id = new_pod("p", **spec)
    assert bind(pod_id, "n1")
    objects.delete("Pod", "default", "p", options, now=NOW)
    before = NOW - dt.timedelta(seconds=1)
    assert finishable(now=NOW, overdue_at=before, limit=10) == ([] if waits else [pod_id])
    over = NOW + dt.timedelta(seconds=700)
    assert finishable(now=over, overdue_at=before, limit=10) == [pod_id]


def test_finalizers_keep_a_pod_until_they_are_removed() -> None:
    new_pod("a", finalizers=["example.com/hold"])
    deleted = objects.delete("Pod", "default", "a", now=NOW)
    assert not deleted.gone
    assert finish_deletions([find_pod_id("default", "a") or 0], now=NOW) == []
    start = changes.watermark()
    stored = objects.update(
        "Pod",
        "default",
        "a",
        lambda m: {**m, "metadata": {k: v for k, v in m["metadata"].items() if k != "finalizers"}},
        now=NOW,
    )
    assert find_object("Pod", "default", "a") is None
    (change,) = everything_since(start)
    assert (change.verb, change.revision) == (changes.DELETED, stored.revision)


def test_finalizers_elsewhere_in_a_pod_keep_nobody() -> None:
    """As in the template of a claim, which earlier versions stored."""
    create_node("n1")
    pod_id = new_pod("a")
    assert bind(pod_id, "n1")
    sql.run(
        "UPDATE document d SET text = replace(text, '\"spec\":{', %s) FROM pod p"
        " WHERE p.id = %s::bigint AND d.id = p.document_id",
        ('"spec":{"a":{"finalizers":["example.com/hold"]},', pod_id),
    )
    objects.delete("Pod", "default", "a", now=NOW)
    later = NOW + dt.timedelta(seconds=700)
    assert finishable(now=later, overdue_at=NOW, limit=10) == [pod_id]
    assert [id_ for id_, _ in finish_deletions([pod_id], now=later)] == [pod_id]


def test_finalizers_among_the_fields_of_a_manager_keep_nobody() -> None:
    """Such fields are none, so they are not stored, neither at creation nor later."""
    entries = [{"manager": "me", "fieldsV1": {"finalizers": ["example.com/hold"]}}]
    body = pod("a")
    body["metadata"]["managedFields"] = entries
    create_pod(body, now=NOW)
    assert "managedFields" not in manifest("Pod", "default", "a")["metadata"]
    objects.update(
        "Pod",
        "default",
        "a",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": {}, "managedFields": entries}},
        now=NOW,
        manager=Manager("me"),
    )
    assert "managedFields" not in manifest("Pod", "default", "a")["metadata"]
    create_node("n1")
    pod_id = find_pod_id("default", "a") or 0
    assert bind(pod_id, "n1")
    objects.delete("Pod", "default", "a", now=NOW)
    later = NOW + dt.timedelta(seconds=700)
    assert [id_ for id_, _ in finish_deletions([pod_id], now=later)] == [pod_id]


def test_a_deletion_with_another_uid_is_a_conflict() -> None:
    new_pod("a")
    with pytest.raises(Conflict, match="Precondition failed: UID in precondition: 1"):
        objects.delete("Pod", "default", "a", {"preconditions": {"uid": "1"}}, now=NOW)


def test_a_collection_is_deleted_by_selector() -> None:
    for number in range(4):
        new_pod(f"p{number}", labels={"half": str(number % 2)})
    deleted = delete_collection("Pod", "default", {}, label_selector="half=1", now=NOW)
    assert deleted == 2
    left = [decode_object(i)["metadata"]["name"] for i in list_page("Pod").items]
    assert left == ["p0", "p2"]


# The queue ------------------------------------------------------------------------------------


def test_an_unplaceable_pod_says_why_and_keeps_its_first_transition_time() -> None:
    pod_id = new_pod("a")
    first = Unschedulable(
        pod_id=pod_id,
        message='0/3 nodes are available: 3 "tight".',
        rejected_by=("NodeResourcesFit", "TaintToleration"),
        attempts=2,
    )
    ((found, revision),) = set_unschedulable([first], now=NOW)
    assert found == pod_id
    stored = manifest("Pod", "default", "a")
    assert stored["metadata"]["resourceVersion"] == str(revision)
    assert stored["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": '0/3 nodes are available: 3 "tight".',
            "lastTransitionTime": moment(),
            "observedGeneration": 1,
        }
    ]
    (row,) = load_pending()
    assert (row.stage, row.attempts, row.rejected_by) == (
        "unschedulable",
        2,
        ["NodeResourcesFit", "TaintToleration"],
    )
    # The same again: the queue moves, the pod does not.
    start = changes.watermark()
    later = NOW + dt.timedelta(seconds=9)
    again = Unschedulable(
        pod_id=pod_id, message=first.message, stage="backoff", not_before=later, attempts=3
    )
    assert set_unschedulable([again], now=later) == []
    assert everything_since(start) == []
    (row,) = load_pending()
    assert (row.stage, row.attempts, row.not_before) == ("backoff", 3, later)
    # Another message: a change, the old transition time.
    other = Unschedulable(pod_id=pod_id, message="0/4 nodes are available.")
    assert set_unschedulable([other], now=later)
    condition = manifest("Pod", "default", "a")["status"]["conditions"][0]
    assert condition["lastTransitionTime"] == moment()


def test_a_refusal_and_a_bind_name_the_generation_that_they_were_decided_for() -> None:
    """Rule: CalculatePodConditionObservedGeneration, pkg/api/v1/pod/util.go, v1.36."""
    pod_id = new_pod("a")
    create_node("n1")
    refusal = Unschedulable(pod_id=pod_id, message="0/1 nodes are available.")

    def seen() -> tuple[int, str, int]:
        found = manifest("Pod", "default", "a")
        (condition,) = found["status"]["conditions"]
        generation = found["metadata"]["generation"]
        return generation, condition["status"], condition["observedGeneration"]

    def tolerate(key: str) -> None:
        one = {"key": key, "operator": "Exists"}

        def change(old: dict[str, Any]) -> dict[str, Any]:
            tolerations = [*old["spec"].get("tolerations", ()), one]
            return {**old, "spec": {**old["spec"], "tolerations": tolerations}}

        objects.update("Pod", "default", "a", change, now=NOW)

    assert set_unschedulable([refusal], now=NOW)
    assert seen() == (1, "False", 1)
    tolerate("first")
    assert seen() == (2, "False", 1), "nobody has looked at the change yet"
    assert set_unschedulable([refusal], now=NOW), "the same words are of another generation"
    assert seen() == (2, "False", 2)
    assert set_unschedulable([refusal], now=NOW) == []
    assert bind(pod_id, "n1")
    assert seen() == (2, "True", 2)
    tolerate("second")
    assert seen() == (3, "True", 2)


def test_a_nomination_is_shown_and_cleared() -> None:
    pod_id = new_pod("a")
    item = Unschedulable(pod_id=pod_id, message="m", nominated_node_name="n1")
    set_unschedulable([item], now=NOW)
    assert manifest("Pod", "default", "a")["status"]["nominatedNodeName"] == "n1"
    assert load_pending()[0].nominated_node_name == "n1"
    assert [one for one, _ in nominate({pod_id: ""}, now=NOW)] == [pod_id]
    assert "nominatedNodeName" not in manifest("Pod", "default", "a")["status"]
    assert nominate({pod_id: "", pod_id + 1: "n1"}, now=NOW) == []


def test_the_nominations_of_a_gang_are_written_together() -> None:
    """Each was a transaction: of the minute that a large gang took to displace others, most."""
    ids = [new_pod(name) for name in ("a", "b", "c")]

    def refuse(ids: list[int]) -> int:
        with roundtrips.counted() as counted:
            found = set_unschedulable(
                [Unschedulable(pod_id=one, message="m", nominated_node_name="n1") for one in ids],
                now=NOW,
            )
        assert [one for one, _ in found] == ids
        return counted.number

    assert refuse(ids[:1]) == refuse(ids[1:])
    assert {one.nominated_node_name for one in load_pending()} == {"n1"}
    rows = sql.fetch(
        "SELECT nominated_node_name, unschedulable IS NULL FROM change"
        " WHERE object_id = %s AND verb = 2 ORDER BY revision", (ids[0],),
    )  # fmt: skip
    assert rows == [("n1", True), ("n1", False)]  # a scheduler may be killed between the two


def test_queue_moves_write_no_change() -> None:
    pod_id = new_pod("a")
    start = changes.watermark()
    assert move_pending([QueueMove(pod_id=pod_id, stage="backoff", attempts=4, since=NOW)]) == 1
    assert everything_since(start) == []
    assert pending_counts() == {"backoff": 1}


def test_a_pod_that_a_plugin_held_back_waits_from_when_it_lets_it_in() -> None:
    pod_id = new_pod("a")
    moves = (("gated", 1), ("gated", 2), ("active", 3), ("backoff", 4), ("active", 5))
    told = []
    for stage, hours in moves:
        since = NOW + dt.timedelta(hours=hours)
        move_pending([QueueMove(pod_id=pod_id, stage=stage, attempts=0, since=since)])
        told.append((load_pending()[0].since - NOW) / dt.timedelta(hours=1))
    assert told == [0, 0, 3, 3, 3]


# Eviction -------------------------------------------------------------------------------------


def running(name: str) -> int:
    pod_id = new_pod(name, labels={"app": "web"})
    assert bind(pod_id, "n1")
    objects.update(
        "Pod",
        "default",
        name,
        lambda m: {
            **m,
            "status": {
                **m["status"],
                "phase": "Running",
                "conditions": [
                    *m["status"]["conditions"],
                    {"type": "Ready", "status": "True"},
                ],
            },
        },
        subresource="status",
        now=NOW,
    )
    return pod_id


def test_a_pod_leaves_for_the_first_cause() -> None:
    """A preemption or an eviction that comes second, having looked before, tells no other."""
    create_node("n1")
    running("a")
    first = decode_object(evict_pod("default", "a", {}, now=NOW).manifest)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    again = delete_pod("default", "a", condition=condition, now=NOW)
    assert decode_object(again.manifest)["status"] == first["status"]
    assert str(again.revision) == first["metadata"]["resourceVersion"]
    running("b")
    delete_pod("default", "b", condition=condition, now=NOW)
    evicted = decode_object(evict_pod("default", "b", {}, now=NOW).manifest)
    reasons = {c["type"]: c.get("reason") for c in evicted["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "PreemptionByScheduler"


def test_an_eviction_deletes_with_a_condition() -> None:
    create_node("n1")
    running("a")
    deleted = evict_pod("default", "a", {}, now=NOW)
    found = decode_object(deleted.manifest)
    assert not deleted.gone
    assert found["metadata"]["deletionTimestamp"]
    reasons = {c["type"]: c.get("reason") for c in found["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"


def test_a_used_up_budget_forbids_an_eviction() -> None:
    create_node("n1")
    running("a")
    running("b")
    objects.create(
        "PodDisruptionBudget",
        "default",
        {
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        },
        now=NOW,
    )
    with pytest.raises(TooManyRequests):
        evict_pod("default", "a", {}, now=NOW)
    objects.update(
        "PodDisruptionBudget",
        "default",
        "web",
        lambda m: {
            **m,
            "status": {
                "observedGeneration": 1,
                "disruptionsAllowed": 1,
                "currentHealthy": 2,
                "desiredHealthy": 1,
                "expectedPods": 2,
            },
        },
        subresource="status",
        now=NOW,
    )
    evict_pod("default", "a", {"dryRun": True}, now=NOW)
    evict_pod("default", "a", {}, now=NOW)
    status = manifest("PodDisruptionBudget", "default", "web")["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]
    with pytest.raises(TooManyRequests) as caught:
        evict_pod("default", "b", {}, now=NOW)
    assert (
        caught.value.message == "Cannot evict pod as it would violate the pod's disruption budget."
    )


def test_evicting_what_is_not_there_is_not_found() -> None:
    with pytest.raises(StatusError, match='pods "a" not found'):
        evict_pod("default", "a", {}, now=NOW)


def test_every_waiting_pod_has_one_row_and_no_other_has() -> None:
    create_node("n1")
    new_pod("waiting")
    assert bind(new_pod("bound"), "n1")
    fail_pods([(new_pod("failed"), "r", "m")], now=NOW)
    new_pod("gated", schedulingGates=[{"name": "g"}])
    objects.delete("Pod", "default", "gated", now=NOW)
    rows = sql.fetch(
        "SELECT p.name FROM pod p FULL JOIN pending_pod q ON q.pod_id = p.id"
        " WHERE (q.pod_id IS NULL) <> (p.node_name <> '' OR p.phase IN ('Succeeded', 'Failed'))"
        " OR p.id IS NULL"
    )
    assert rows == []


def test_an_unknown_phase_is_invalid() -> None:
    new_pod("a")
    with pytest.raises(Invalid, match=r'status.phase: Unsupported value: "Odd"'):
        objects.update(
            "Pod",
            "default",
            "a",
            lambda m: {**m, "status": {"phase": "Odd"}},
            subresource="status",
            now=NOW,
        )


def test_a_status_that_names_no_generation_keeps_the_one_that_was_observed() -> None:
    new_pod("p")

    def report(**status: Any) -> dict[str, Any]:
        stored = objects.update(
            "Pod", "default", "p", lambda m: {**m, "status": {**m["status"], **status}},
            now=NOW, subresource="status",
        )  # fmt: skip
        found: dict[str, Any] = decode_object(stored.manifest)["status"]
        return found

    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    report(observedGeneration=1, conditions=[{**ready, "observedGeneration": 1}])
    told = report(observedGeneration=0, conditions=[ready, {**ready, "type": "a.b/c"}])
    assert told["observedGeneration"] == 1
    seen = {one["type"]: one.get("observedGeneration") for one in told["conditions"]}
    assert (seen["Ready"], seen["a.b/c"]) == (1, None)
    told = report(observedGeneration=2, conditions=[{**ready, "observedGeneration": 2}])
    assert told["observedGeneration"] == 2
    assert told["conditions"][0]["observedGeneration"] == 2


def test_pods_that_go_at_once_leave_what_judged_ones_leave() -> None:
    """The one statement, beside the transaction that locks and judges each pod."""
    create_node("n")
    spaces = ("default", "kube-system")
    for space in spaces:
        ids = {
            name: new_pod(name, namespace=space)
            for name in ("bound", "fresh", "full", "failed", "going")
        }
        bind(ids["bound"], "n")
        bind(ids["going"], "n")
        set_unschedulable([Unschedulable(pod_id=ids["full"], message="full")], now=NOW)
        fail_pods([(ids["failed"], "Lost", "its node is gone")], now=NOW)
        create_pod(pod("kept", namespace=space, finalizers=["a.b/c"]), now=NOW)
        told = {"note": '"finalizers":['}
        create_pod(pod("told", namespace=space, annotations=told), now=NOW)
        delete_pod(space, "going", now=NOW)
        new_pod("held", namespace=space)
    free = ("bound", "fresh", "full", "failed", "told", "going")
    names = (*free, "kept", "held", "absent", "fresh")
    start = changes.watermark()
    found = []
    for space, delete in zip(spaces, (delete_pods_each, _delete_judged), strict=True):
        wanted = [Deletion(namespace=space, name=name, grace_seconds=0) for name in names]
        holds, held = threading.Event(), threading.Event()

        def hold(space: str = space, holds: Any = holds, held: Any = held) -> None:
            with transaction.atomic():
                lock_pods([(space, "held")])
                held.set()
                holds.wait(10)

        holder = Worker(hold)
        assert held.wait(10)
        results = delete(wanted[: len(free)], now=NOW)
        rest = wanted[len(free) :]
        deleting = Worker(lambda rest=rest, delete=delete: delete(rest, now=NOW))
        holds.set()
        holder.result()
        results += deleting.result()
        log = [one for one in everything_since(start, "Pod") if one.namespace == space]
        plain = []
        for name, one in zip(names, results, strict=True):
            if isinstance(one, StatusError):
                plain.append(repr(one))
                continue
            told = decode_object(one.manifest)
            metadata = told["metadata"]
            assert one.uid == metadata.pop("uid")
            assert one.revision == int(metadata.pop("resourceVersion"))
            assert one.revision in [each.revision for each in log if each.name == name]
            del metadata["namespace"]
            plain.append((told, one.gone))
        different = {
            "revision", "object_id", "document_id", "previous_document_id", "previous_revision",
            "namespace", "class_id", "previous_class_id", "text", "previous_text",
        }  # fmt: skip
        logged = sorted(
            repr(
                [getattr(one, f) for f in one.__struct_fields__ if f not in different] + [one.name]
            )
            for one in log
        )
        left = sql.fetch(
            "SELECT p.name, p.deletion_at FROM pod p WHERE p.namespace = %s ORDER BY 1", (space,)
        )
        found.append((plain, logged, left))
    assert found[0] == found[1]
    for table in ("pending_pod", "terminating_pod"):
        assert sql.fetch(f"SELECT 1 FROM {table} WHERE pod_id NOT IN (SELECT id FROM pod)") == []


def test_no_pod_goes_at_once_where_another_of_the_request_cannot_be_judged() -> None:
    """Who asks for each by itself after that must find the pods, not hear that they are gone."""
    for name in ("free", "held"):
        new_pod(name)
    wanted = [
        Deletion(namespace="default", name=name, grace_seconds=0) for name in ("free", "held")
    ]

    def delete() -> None:
        sql.run("SET lock_timeout = '50ms'")
        delete_pods_each(wanted, now=NOW)

    with transaction.atomic():
        lock_pods([("default", "held")])
        with pytest.raises(OperationalError, match="lock timeout"):
            Worker(delete).result()
    assert all(find_pod_id("default", one.name) for one in wanted)
    assert not any(isinstance(one, StatusError) for one in delete_pods_each(wanted, now=NOW))
