"""Decisions as they are kept: recorded by the runner, packed small, trimmed by partitions."""

from datetime import timedelta

import msgspec
import pytest

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.scheduler import decisions as actions
from clusterstate.admission.request import User
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import decisions
from scheduling.engine.reference.record import LARGEST_BODY, unpack, unpack_table
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import NAME, Scheduler
from tests.builders import make_node, make_pod
from tests.clock import NOW
from tests.roundtrips import counted

pytestmark = pytest.mark.django_db
ROOT = User(name="root", groups=("system:masters",))


def create(*builders):
    for builder in builders:
        manifest = builder.manifest
        namespace = manifest["metadata"].get("namespace", "")
        objects.create(manifest["kind"], namespace, manifest, now=NOW, user=ROOT)


def schedule(seed=7):
    scheduler = Scheduler(default_configuration(), lambda: seed)
    scheduler.mirror.load(NOW.timestamp())
    scheduler.cycle(NOW.timestamp())
    scheduler.binder.write_records(NOW.timestamp())
    scheduler.binder.close()
    return scheduler


def a_decision(pod_id, node="a"):
    return actions.NewDecision(
        pod_id=pod_id, at=NOW, class_id=1, snapshot_revision=1, profile="p", profile_revision=0,
        seed=1, draw=0, start=0, outcome="scheduled", node_name=node, total=1, margin=None, ties=1,
        node_count=2, evaluated=2, feasible=2, message="", body=b"",
    )  # fmt: skip


def test_each_decision_is_kept_with_what_led_to_it():
    create(make_node("a"), make_node("b").offers(cpu="1"), make_node("c").tainted("closed"))
    create(make_pod("small").asks(cpu="500m"), make_pod("large").asks(cpu="16"))
    schedule()
    (small,) = decisions.of_pod("default", "small", limit=10)
    assert (small.outcome, small.node_name, small.feasible, small.evaluated) == (
        "scheduled", "a", 2, 3,
    )  # fmt: skip
    assert (small.seed, small.draw, small.profile, small.profile_revision) == (
        7, 0, "default-scheduler", 0,
    )  # fmt: skip
    body = unpack(small.body)
    best = body.best("a")
    assert [node.node_name for node in best] == ["a", "b"]
    assert sum(best[0].weighted) == small.total == best[0].total
    assert [(r.plugin, r.nodes) for r in body.rejections] == [("TaintToleration", 1)]
    assert small.table_digest is None

    (large,) = decisions.of_pod("default", "large", limit=10)
    assert large.outcome == "unschedulable"
    assert large.message.startswith("0/3 nodes are available: 1 node(s) had untolerated taint(s)")
    table = unpack_table(decisions.table(large.table_digest))
    assert {name: verdict.rejected.reasons for name, verdict in table.nodes.items()} == {
        "a": ("Insufficient cpu",),
        "b": ("Insufficient cpu",),
        "c": ("node(s) had untolerated taint(s)",),
    }


def test_decisions_can_be_asked_in_sql():
    create(make_node("a"), *(make_pod(f"pod-{n}") for n in range(3)))
    schedule()
    rows = sql.fetch(
        "SELECT name, draw, node_name, octet_length(body) FROM decision"
        " WHERE outcome = 'scheduled' AND at >= %s ORDER BY id",
        (NOW,),
    )
    assert [row[:3] for row in rows] == [(f"pod-{n}", n, "a") for n in range(3)]


def test_records_stay_small_whatever_nodes_are_called():
    nodes = [make_node(f"{'n' * 200}-{n}") for n in range(12)]
    create(*(node.with_("metadata", "labels", value={}) for node in nodes), make_pod("p"))
    schedule()
    (found,) = decisions.of_pod("default", "p", limit=1)
    assert len(found.body) <= LARGEST_BODY
    assert unpack(found.body).best(found.node_name)[0].node_name == found.node_name


def test_a_pod_with_more_resources_than_are_counted_is_set_aside_and_the_others_are_placed():
    """Each would be a column of every node, in every scheduler that starts from then on."""
    many = {f"example.com/r{number}": "1" for number in range(600)}
    container = {"name": "main", "image": "busybox", "resources": {"limits": many}}
    greedy = make_pod("greedy").with_("spec", "containers", value=[container])
    create(make_node("a"), greedy, make_pod("easy").asks(cpu="1"))
    scheduler = schedule()
    assert [one.node_name for one in decisions.of_pod("default", "easy", limit=10)] == ["a"]
    assert len(scheduler.mirror.snapshot.resources) < 10
    kept = sql.fetch("SELECT kind, name FROM set_aside WHERE follower = %s", (NAME,))
    assert kept == [("Pod", "greedy")]


def test_pods_that_cannot_be_placed_for_the_same_reasons_share_a_table():
    create(make_node("a"), *(make_pod(f"pod-{n}").asks(cpu="9") for n in range(5)))
    schedule()
    assert sql.fetch_one("SELECT count(*) FROM decision_table") == (1,)
    assert sql.fetch_one("SELECT count(*) FROM decision WHERE table_digest IS NOT NULL") == (5,)


def test_old_partitions_are_dropped():
    actions.trim(now=NOW + timedelta(days=9), keep_seconds=0)  # what other tests left
    create(make_node("a"), make_pod("p"), make_pod("q").asks(cpu="9"))
    schedule()
    assert actions.trim(now=NOW + timedelta(hours=1), keep_seconds=3600) == 0
    assert decisions.of_pod("default", "p", limit=1)
    assert actions.trim(now=NOW + timedelta(hours=12), keep_seconds=3600) == 1
    assert not decisions.of_pod("default", "p", limit=1)
    assert sql.fetch_one("SELECT count(*) FROM decision_table") == (0,)
    actions.make_partitions([NOW])


def test_decisions_about_pods_that_nothing_knows_are_left_out_by_one_statement():
    """Also where all of a batch are gone: no partition is made, and nothing is asked again."""
    create(make_node("a"), make_pod("p"))
    made = a_decision(find_pod_id("default", "p"))
    gone = msgspec.structs.replace(made, pod_id=made.pod_id + 1)
    turn = decisions.Turn(0, 9, 1)
    actions.make_partitions([NOW])
    with counted() as count:
        assert actions.record_many([gone, gone], turn) == 0
    assert count.number == 1
    assert actions.record_many([gone, made], turn) == 1


def test_a_decision_is_recorded_although_its_pod_is_gone_by_then():
    create(make_node("a"), make_pod("p"), make_pod("q"))
    revision = sql.fetch_one("SELECT max(revision) FROM change")[0]
    made = [
        msgspec.structs.replace(
            a_decision(find_pod_id("default", name)), snapshot_revision=revision
        )
        for name in ("p", "q")
    ]
    uid = find_object("Pod", "default", "p")
    objects.delete("Pod", "default", "p", {"gracePeriodSeconds": 0}, now=NOW)
    assert find_pod_id("default", "p") is None
    assert actions.record_many(made, decisions.Turn(0, 9, 1)) == 2
    (found,) = decisions.of_pod("default", "p", limit=10)
    assert found.pod_uid == decode_object(uid)["metadata"]["uid"]
    assert (found.number, decisions.of_pod("default", "q", limit=1)[0].number) == (1, 2)


def test_a_partition_that_is_not_there_is_made_and_the_decisions_are_recorded():
    create(make_node("a"), make_pod("p"))
    made = a_decision(find_pod_id("default", "p"))
    later = msgspec.structs.replace(made, at=NOW + timedelta(days=3))
    turn = decisions.Turn(0, 9, 1)
    assert actions.record_many([later, made], turn) == 2
    assert later.at in [one.at for one in decisions.of_pod("default", "p", limit=9)]


def test_placements_are_known_as_they_were():
    create(make_node("a"), make_pod("p"), make_pod("q"))
    before = schedule().mirror.snapshot.revision
    found = {placement.node_name for placement in decisions.placements_at(before)}
    assert found == {""}
    after = sql.fetch_one("SELECT max(revision) FROM change")[0]
    assert [p.node_name for p in decisions.placements_at(after)] == ["a", "a"]


def turns():
    return sql.fetch("SELECT name, scheduler, epoch, number FROM decision ORDER BY id")


def test_a_decision_tells_which_scheduler_made_it_in_which_life_and_as_which_one():
    create(make_node("a"), make_pod("p"), make_pod("q"), make_pod("r").asks(cpu="99"))
    schedule()
    create(make_pod("s"))
    schedule()
    assert turns() == [("p", 0, 1, 1), ("q", 0, 1, 2), ("r", 0, 1, 3), ("s", 0, 2, 1)]


def test_numbers_go_on_across_what_is_recorded_together():
    """Long runs are recorded as columns, short ones with their neighbours."""
    create(make_node("a").offers(cpu="999", memory="999Gi", pods="999"))
    create(*(make_pod(f"p{n:03}").asks(cpu="1m", memory="1Mi") for n in range(90)))
    create(make_pod("large").asks(cpu="9999"))
    schedule()
    assert [row[3] for row in turns()] == list(range(1, 92))


def test_only_what_the_same_scheduler_had_in_mind_is_known_before_a_decision():
    create(make_node("a"), make_node("b"))
    create(*(make_pod(name) for name in ("before", "other", "mine", "after")))
    ids = dict(sql.fetch("SELECT name, id FROM pod"))

    def made(name, node, scheduler, epoch, number):
        decision = a_decision(ids[name], node)
        assert actions.record_many([decision], decisions.Turn(scheduler, epoch, number)) == 1

    made("before", "a", 0, 1, 7)
    made("other", "b", 1, 4, 9)
    made("after", "b", 0, 2, 2)
    made("mine", "a", 0, 2, 1)

    def known_before():
        (mine,) = decisions.of_pod("default", "mine", limit=1)
        return {key: one.node_name for key, one in decisions.placed_before(mine).items()}

    assert known_before() == {ids["before"]: "a"}
    # Rows from before there were numbers are told apart by their ids.
    sql.run("UPDATE decision SET scheduler = 0, epoch = 0, number = 0")
    assert known_before() == {ids["before"]: "a", ids["other"]: "b", ids["after"]: "b"}


def test_who_ended_for_another_pod_is_known_as_it_was():
    """By the condition: an annotation that says the same is of no account."""
    create(make_node("a"))
    words = make_pod("words").on("a").manifest
    words["metadata"]["annotations"] = {"why": "PreemptionByScheduler"}
    create(make_pod("victim").on("a"), make_pod("stays").on("a"))
    create_pods([words], now=NOW)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    delete_pod("default", "victim", now=NOW, condition=condition)
    delete_pod("default", "words", now=NOW)

    def preempted(revision):
        found = [one for one in decisions.placements_at(revision) if one.preempted]
        return [one.pod_id for one in found]

    victim = find_pod_id("default", "victim")
    revision = changes.watermark()
    assert preempted(revision) == [victim]
    delete_pod("default", "victim", now=NOW, grace_seconds=0)
    assert preempted(changes.watermark()) == []
    assert preempted(revision) == [victim], "as it was"


def test_a_label_called_like_a_deletion_deletes_nobody():
    create(make_node("a"))
    pod = make_pod("p").on("a").manifest
    pod["metadata"]["labels"] = {"deletionTimestamp": "never"}
    create_pods([pod], now=NOW)
    revision = changes.watermark()
    delete_pod("default", "p", now=NOW)
    assert [one.terminating for one in decisions.placements_at(revision)] == [False]
    assert [one.terminating for one in decisions.placements_at(changes.watermark())] == [True]
