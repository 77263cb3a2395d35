"""Several schedulers bind: what one of them does not know of the others' binds is refused."""

import threading
from typing import Any

import pytest
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import (
    Binding,
    BindRefusal,
    BindResult,
    OtherSchedulers,
    Superseded,
    bind_pods,
    forget_batches,
)
from clusterstate.actions.pods.status import nominate
from clusterstate.actions.scheduler.decisions import begin_epoch
from clusterstate.change_log import changes
from clusterstate.database import locks, sql
from clusterstate.objects.rules.footprint import Footprint
from clusterstate.queries.scheduler.reaching import reach, reaching_classes
from tests.clock import NOW
from tests.clusterstate.support import Worker, create_node, new_pod, pod
from tests.creating import create_pod
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

APART: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
            ]
        }
    }
}
SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "labelSelector": {"matchLabels": {"app": "a"}},
            "topologyKey": "zone",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
        }
    ]
}
PREFERRED: dict[str, Any] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    }
}


def others(known: int, epoch: int = 0) -> OtherSchedulers:
    """Return what scheduler 0 knows of others; by default in its run of this moment."""
    if not epoch:
        rows = sql.fetch("SELECT epoch FROM scheduler WHERE id = 0")
        epoch = rows[0][0] if rows else begin_epoch(0)
    return OtherSchedulers(known, 0, epoch)


def beside(
    binder: str,
    *pairs: tuple[int, str],
    snapshot: int,
    counters: tuple[int, ...] = (),
    known: int | None = None,
    leans: bool = False,
) -> BindResult:
    return bind_pods(
        [
            Binding(pod_id, name, leans=leans and number > 0, counters=counters)
            for number, (pod_id, name) in enumerate(pairs)
        ],
        snapshot_revision=snapshot,
        now=NOW,
        binder=binder,
        beside=others(reach() if known is None else known),
    )


def alone(binder: str, *pairs: tuple[int, str], snapshot: int) -> BindResult:
    bindings = [Binding(pod_id, name) for pod_id, name in pairs]
    return bind_pods(bindings, snapshot_revision=snapshot, now=NOW, binder=binder)


def test_two_bind_to_different_nodes_without_knowing_of_each_other() -> None:
    create_node("n1")
    create_node("n2")
    first, second, third = (new_pod(f"p{i}") for i in range(3))
    snapshot = changes.watermark()
    assert beside("one", (first, "n1"), snapshot=snapshot).bound
    assert beside("two", (second, "n2"), snapshot=snapshot).bound
    assert beside("one", (third, "n1"), snapshot=snapshot).bound


@pytest.mark.parametrize("leans", [False, True])
def test_a_decision_for_a_node_has_to_know_the_others_last_bind_there(leans: bool) -> None:
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(4)]
    snapshot = changes.watermark()
    assert beside("one", (ids[0], "n1"), (ids[1], "n1"), snapshot=snapshot, leans=leans).bound
    found = beside("two", (ids[2], "n1"), (ids[3], "n2"), snapshot=snapshot, leans=leans)
    assert found.refused == {ids[2]: BindRefusal.OVERTAKEN}
    assert found.held == ([ids[3]] if leans else [])
    assert len(found.bound) == (0 if leans else 1)
    # Now the other one has bound to n2 last, which the first one has to know in its turn.
    assert beside("two", (ids[2], "n1"), snapshot=changes.watermark()).bound
    found = beside("one", (new_pod("late"), "n1"), snapshot=snapshot)
    assert set(found.refused.values()) == {BindRefusal.OVERTAKEN}


def test_pods_with_a_counter_in_common_are_bound_by_who_knows_all_binds_that_it_counts() -> None:
    for name in ("n1", "n2", "n3", "n4"):
        create_node(name)
    ids = [new_pod(f"p{i}") for i in range(6)]
    snapshot = changes.watermark()
    assert beside("one", (ids[0], "n1"), snapshot=snapshot, counters=(7, 9)).bound
    refused = beside("two", (ids[1], "n2"), snapshot=snapshot, counters=(5, 9)).refused
    assert refused == {ids[1]: BindRefusal.OVERTAKEN}
    assert beside("two", (ids[1], "n2"), snapshot=snapshot, counters=(5, 8)).bound
    assert beside("two", (ids[2], "n2"), snapshot=snapshot).bound  # of itself it touches nobody
    assert beside("one", (ids[3], "n3"), snapshot=snapshot, counters=(7,)).bound
    assert beside("one", (ids[4], "n4"), snapshot=snapshot, counters=(7, 8)).refused
    assert beside("two", (ids[5], "n2"), snapshot=changes.watermark(), counters=(7, 9)).bound
    batches = sql.fetch("SELECT holder, counters FROM bind_batch ORDER BY revision")
    assert [(holder, sorted(found)) for holder, found in batches] == [
        ("one", [7, 9]), ("two", [5, 8]), ("two", []), ("one", [7]), ("two", [7, 9])
    ]  # fmt: skip


def test_an_earlier_run_of_a_scheduler_binds_nothing_any_more() -> None:
    """As of a process that was stopped and wakes after another one took its number."""
    create_node("n1")
    ids = [new_pod(f"p{i}") for i in range(2)]
    snapshot, before = changes.watermark(), others(reach())
    bindings = [Binding(ids[0], "n1")]
    begin_epoch(1)
    assert bind_pods(
        bindings, snapshot_revision=snapshot, now=NOW, binder="one", beside=before
    ).bound
    begin_epoch(0)
    late = [Binding(ids[1], "n1")]
    with pytest.raises(Superseded):
        bind_pods(late, snapshot_revision=snapshot, now=NOW, binder="one", beside=before)
    assert beside("other", (ids[1], "n1"), snapshot=changes.watermark()).bound


def test_one_alone_and_several_know_each_others_last_bind() -> None:
    """A scheduler of the version before, or a service that is set to have one again."""
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(4)]
    snapshot = changes.watermark()
    assert alone("one", (ids[0], "n1"), snapshot=snapshot).bound
    refused = beside("two", (ids[1], "n2"), snapshot=snapshot).refused
    assert refused == {ids[1]: BindRefusal.OVERTAKEN}
    assert beside("two", (ids[1], "n2"), snapshot=changes.watermark()).bound
    refused = alone("one", (ids[2], "n1"), snapshot=snapshot).refused
    assert refused == {ids[2]: BindRefusal.OVERTAKEN}
    assert alone("one", (ids[2], "n1"), snapshot=changes.watermark()).bound


def test_a_bind_by_one_alone_has_to_be_known_after_another_bound_beside_others() -> None:
    """Processes are set to be several one by one: who decided before has not seen the lone bind."""
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(4)]
    snapshot = changes.watermark()
    assert alone("one", (ids[0], "n1"), snapshot=snapshot).bound
    assert beside("two", (ids[1], "n2"), snapshot=changes.watermark()).bound
    refused = beside("three", (ids[2], "n1"), snapshot=snapshot).refused
    assert refused == {ids[2]: BindRefusal.OVERTAKEN}
    assert beside("two", (ids[3], "n2"), snapshot=changes.watermark()).bound
    refused = beside("three", (ids[2], "n1"), snapshot=snapshot).refused
    assert refused == {ids[2]: BindRefusal.OVERTAKEN}
    assert beside("three", (ids[2], "n1"), snapshot=changes.watermark()).bound


@pytest.mark.parametrize(("rules", "reaches"), [(APART, 1), (SPREAD, 1), (PREFERRED, 0), ({}, 0)])
def test_a_class_with_rules_about_other_pods_is_counted_once(
    rules: dict[str, Any], reaches: int
) -> None:
    known = reach()
    new_pod("a", **rules)
    new_pod("b", **rules)
    assert reach() == known + reaches
    found, classes, _ = reaching_classes()
    assert found == known + reaches
    (class_id,) = sql.fetch("SELECT DISTINCT class_id FROM pod")[0]
    assert ([one for one, _ in classes] == [class_id]) is bool(reaches)


def test_a_pod_is_bound_by_who_knows_all_rules_about_other_pods() -> None:
    create_node("n1")
    first, second = new_pod("a", labels={"app": "a"}), new_pod("b")
    snapshot, known = changes.watermark(), reach()
    new_pod("apart", **APART)
    for counters in ((), (7,)):
        found = beside("one", (first, "n1"), snapshot=snapshot, known=known, counters=counters)
        assert found.refused == {first: BindRefusal.NEW_RULES}
    assert beside("one", (first, "n1"), (second, "n1"), snapshot=snapshot).bound


def test_who_reads_the_rules_learns_which_are_gone() -> None:
    new_pod("a", **APART)
    known, classes, gone = reaching_classes()
    ids = {class_id for class_id, _ in classes}
    assert not gone
    sql.run("DELETE FROM pod")
    sql.run("DELETE FROM scheduling_class WHERE id = ANY (%s)", (list(ids),))
    assert reaching_classes(ids) == (known + 1, [], ids)


def test_a_bind_waits_for_a_class_with_such_rules_that_is_being_stored() -> None:
    """The race that the trigger's lock guards: the creation is open while this binds."""
    create_node("n1")
    plain = new_pod("a", labels={"app": "a"})
    snapshot, known = changes.watermark(), reach()
    created, go_on = threading.Event(), threading.Event()

    def create() -> None:
        with transaction.atomic():
            create_pod(pod("apart", **APART), now=NOW)
            created.set()
            assert go_on.wait(10)

    creator = Worker(create)
    assert created.wait(10)
    reader = Worker(reaching_classes)
    binder = Worker(lambda: beside("one", (plain, "n1"), snapshot=snapshot, known=known))
    reader.join(0.3)
    binder.join(0.1)
    assert binder.is_alive(), "the bind did not wait"
    assert reader.is_alive(), "whoever reads the classes did not wait"
    go_on.set()
    creator.result()
    assert binder.result().refused == {plain: BindRefusal.NEW_RULES}
    assert reader.result()[0] == known + 1


def test_a_pod_of_a_new_class_comes_after_each_bind_that_does_not_know_its_rules() -> None:
    """Else a snapshot could have the pod, and lack binds that do not state the rule's counter."""
    create_node("n1")
    plain = new_pod("a", labels={"app": "a"})
    with transaction.atomic():
        sql.run(f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})")
        creator = Worker(lambda: create_pod(pod("apart", **APART), now=NOW))
        until(
            lambda: sql.fetch("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
            what="the creation to wait for the bind",
        )
        assert beside("one", (plain, "n1"), snapshot=changes.watermark()).bound
    creator.result()
    ((bound, created),) = sql.fetch(
        "SELECT (SELECT revision FROM pod WHERE name = 'a'),"
        " (SELECT revision FROM pod WHERE name = 'apart')"
    )
    assert bound < created


def test_old_batches_are_forgotten_and_who_is_as_far_behind_binds_nothing() -> None:
    create_node("n1")
    create_node("n2")
    ids = [new_pod(f"p{i}") for i in range(4)]
    snapshot = changes.watermark()
    assert beside("one", (ids[0], "n1"), snapshot=snapshot).bound
    forget_batches()
    assert len(sql.fetch("SELECT * FROM bind_batch")) == 1
    sql.run("UPDATE binder SET revision = revision + 99999 WHERE id = 1")
    forget_batches()
    assert len(sql.fetch("SELECT * FROM bind_batch")) == 1
    assert beside("two", (ids[1], "n2"), snapshot=snapshot).refused == {
        ids[1]: BindRefusal.OVERTAKEN
    }
    sql.run("UPDATE binder SET revision = revision + 1 WHERE id = 1")
    forget_batches()
    assert sql.fetch("SELECT * FROM bind_batch") == []
    assert beside("two", (ids[1], "n2"), snapshot=changes.watermark() + 2).bound


def test_a_scheduler_alone_writes_nothing_for_others() -> None:
    create_node("n1")
    pod_id = new_pod("a")
    (class_id,) = sql.fetch("SELECT class_id FROM pod")[0]
    bindings = [Binding(pod_id, "n1", footprint=Footprint(class_id=class_id))]
    assert bind_pods(bindings, snapshot_revision=changes.watermark(), now=NOW).bound
    assert sql.fetch("SELECT * FROM bind_batch") == []


def plain(
    binder: str, *pods: tuple[int, str], snapshot: int, leans: bool = False, **more: Any
) -> BindResult:
    """Bind pods that take nothing but amounts, as their decisions say."""
    bindings = []
    for number, (pod_id, name) in enumerate(pods):
        (class_id,) = sql.fetch("SELECT class_id FROM pod WHERE id = %s", (pod_id,))[0]
        footprint = Footprint(**{"class_id": class_id, "amounts": (("cpu", 1),)} | more)
        bindings.append(Binding(pod_id, name, footprint, leans=leans and number > 0))
    known = others(reach())
    return bind_pods(bindings, snapshot_revision=snapshot, now=NOW, binder=binder, beside=known)


def asking(name: str, cpu: str) -> int:
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    return new_pod(name, containers=[{"name": "main", "image": "a:1", "resources": resources}])


@pytest.mark.parametrize("leans", [False, True])
def test_pods_that_take_amounts_share_the_room_of_a_node(leans: bool) -> None:
    create_node("n1", allocatable={"cpu": "4"})
    create_node("n2", allocatable={"cpu": "4"})
    ids = [asking(f"p{number}", "1") for number in range(7)]
    snapshot = changes.watermark()
    assert plain("one", (ids[0], "n1"), (ids[1], "n1"), snapshot=snapshot).bound
    pairs = [(ids[2], "n2"), *((one, "n1") for one in ids[3:6])]
    found = plain("two", *pairs, snapshot=snapshot, leans=leans)
    assert found.refused == {ids[5]: BindRefusal.OVERTAKEN}
    assert len(found.bound) == (1 if leans else 3)
    # Nobody knows what is on n1 now: who bound there may use room only.
    if not leans:
        assert plain("one", (ids[6], "n1"), snapshot=snapshot).refused
        assert plain("two", (ids[6], "n1"), snapshot=snapshot).refused
        assert plain("two", (ids[6], "n2"), snapshot=snapshot).bound


def test_who_was_decided_first_gets_the_room_of_an_overtaken_node() -> None:
    """Not who is older: the one before may be of a higher priority, or have had room made."""
    create_node("n1", allocatable={"cpu": "2"})
    ids = [asking(f"p{number}", "1") for number in range(3)]
    snapshot = changes.watermark()
    assert plain("one", (ids[0], "n1"), snapshot=snapshot).bound
    found = plain("two", (ids[2], "n1"), (ids[1], "n1"), snapshot=snapshot)
    assert found.refused == {ids[1]: BindRefusal.OVERTAKEN}


def test_room_is_what_pods_leave_that_are_there_now() -> None:
    create_node("n1", allocatable={"cpu": "2", "pods": "2"})
    ids = [asking(f"p{number}", "1") for number in range(5)]
    nothing = new_pod("nothing")
    snapshot = changes.watermark()
    assert plain("one", (ids[0], "n1"), (ids[1], "n1"), snapshot=snapshot).bound
    assert plain("two", (ids[2], "n1"), (nothing, "n1"), snapshot=snapshot).bound == []
    objects.delete("Pod", "default", "p0", now=NOW)
    assert plain("two", (ids[2], "n1"), snapshot=snapshot).bound == []  # it is leaving
    sql.run("UPDATE pod SET phase = 'Succeeded' WHERE id = %s", (ids[0],))
    assert plain("two", (ids[2], "n1"), snapshot=snapshot).bound
    assert plain("one", (ids[3], "n1"), snapshot=snapshot).refused


@pytest.mark.parametrize(
    "more", [{"ports": True}, {"complete": False}, {"amounts": (("example.com/gpu", 1),)}]
)
def test_what_looks_at_more_of_a_node_than_amounts_has_to_know_all_binds_there(
    more: dict[str, Any],
) -> None:
    create_node("n1", allocatable={"cpu": "4"})
    ids = [asking(f"p{number}", "1") for number in range(3)]
    snapshot = changes.watermark()
    assert plain("one", (ids[0], "n1"), snapshot=snapshot).bound
    assert plain("two", (ids[1], "n1"), snapshot=snapshot, **more).refused
    assert plain("two", (ids[1], "n1"), snapshot=snapshot).bound
    assert plain("one", (ids[2], "n1"), snapshot=snapshot, **more).refused
    assert plain("two", (ids[2], "n1"), snapshot=snapshot, **more).refused
    assert plain("two", (ids[2], "n1"), snapshot=changes.watermark(), **more).bound


def test_room_that_is_kept_for_a_nominated_pod_is_its_own() -> None:
    create_node("n1", allocatable={"cpu": "4"})
    ids = [asking(f"p{number}", "1") for number in range(5)]
    snapshot = changes.watermark()
    assert plain("one", (ids[0], "n1"), snapshot=snapshot).bound
    assert nominate({ids[4]: "n1"}, now=NOW)
    found = plain("two", *((one, "n1") for one in ids[1:4]), snapshot=snapshot)
    assert found.refused == {ids[3]: BindRefusal.OVERTAKEN}
    assert plain("one", (ids[4], "n1"), snapshot=snapshot).bound
