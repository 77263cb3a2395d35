"""Nothing grows without bound: what bounds each table, and classes that nothing uses any more."""

from datetime import timedelta

import pytest
from django.db import connection

from clusterstate.actions import objects
from clusterstate.actions.past import history, housekeeping
from clusterstate.actions.people import tokens
from clusterstate.actions.scheduler import decisions
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.models.tokens import ApiToken
from tests.clock import NOW
from tests.clusterstate.support import Worker, create_node, new_pod, pod
from tests.creating import create_pod

pytestmark = pytest.mark.django_db(transaction=True)

OBJECTS = "as many rows as the cluster has objects of this kind"
ONE = "one row, or one for each loop or scheduler"
PEOPLE = "as many as administrators make, and people of the company sign in"
TABLES = {
    "actor": "30 days after somebody asked for it: housekeeping.drop_old_actors",
    "api_token": "deleted 30 days after it expired: housekeeping.drop_old_access",
    "audit_head": ONE,
    "audit_line": "AUDIT_KEEP_HOURS and AUDIT_KEEP_LINES: audit_log.trim",
    "auth_group": PEOPLE,
    "auth_group_permissions": PEOPLE,
    "auth_permission": "fixed by the models",
    "auth_user": PEOPLE,
    "auth_user_groups": PEOPLE,
    "auth_user_user_permissions": PEOPLE,
    "axes_accessattempt": "30 days: housekeeping.drop_old_access",
    "axes_accessattemptexpiration": "goes with its attempt",
    "axes_accessfailurelog": "30 days: housekeeping.drop_old_access",
    "axes_accesslog": "30 days: housekeeping.drop_old_access",
    "atomic_span": "goes with the changes that it tells of: housekeeping.drop_leftovers",
    "bind_batch": "the last 100,000 revisions: bind.forget_batches",
    "binder": ONE,
    "canary": "a hundred: canaries.create",
    "asked_eviction": "a minute after it was asked for: brakes.forget_asked",
    "brake": "one for each zone, namespace and owner held up or approved: brakes.settle",
    "brake_approval": "a week after it ended: brakes.trim",
    "change": "HISTORY_SECONDS: history.trim",
    "configuration_use": ONE,
    "controller_cursor": "one row for each controller",
    "daemon_set": OBJECTS,
    "decision": "DECISION_SECONDS, by partitions: decisions.trim",
    "decision_check": "DECISION_SECONDS: decision_checks.trim",
    "decision_seal": "goes with its decisions: decisions.trim",
    "decision_table": "goes when it was not used for DECISION_SECONDS: decisions.trim",
    "deployment": OBJECTS,
    "django_admin_log": "30 days: housekeeping.drop_old_access",
    "django_content_type": "fixed by the models",
    "django_migrations": "fixed by the migrations",
    "django_session": "its expiry: housekeeping.drop_old_access",
    "deferred_resize": "one for each resize that waits: scheduling.controllers.resizes",
    "document": "one for each object, and those that a change tells of: history.trim",
    "event": "an hour after it happened last: history.trim",
    "eviction_timer": "one for each pod that is to leave; goes with the pod or the cause",
    "generic_object": "as many rows as the cluster has objects of kinds without a table",
    "history": ONE,
    "lease": OBJECTS,
    "limit_range": OBJECTS,
    "loop_patience": "one for each kind of process with a loop",
    "loop_progress": ONE,
    "metric_total": "one for each combination of labels, which are bounded by what is served",
    "moved_slot": "at most 256 rows, one for each slot",
    "namespace": OBJECTS,
    "node": OBJECTS,
    "node_binder": "one for each node, and goes with it",
    "node_heartbeat": "one for each node, and goes with it",
    "node_usage": "one for each node that reports: housekeeping.drop_leftovers",
    "one_time_codes": "one for each person, and goes with them",
    "past_block": "PAST_HOURS, by partitions: past.trim",
    "past_chunk": "goes with its blocks: past.trim",
    "past_head": ONE,
    "pending_pod": "one for each pod that waits, and goes with it",
    "plan_undo": "goes with its plan: plans.trim",
    "plan": "a week, and a hundred that were not applied for each user: plans.trim",
    "pod": OBJECTS,
    "pod_disruption_budget": OBJECTS,
    "priority_class": OBJECTS,
    "replica_set": OBJECTS,
    "replication_controller": OBJECTS,
    "process_metric": "an hour after the process ended: housekeeping.drop_leftovers",
    "reservation": "one for each pod that is reserved, and goes with it",
    "resource_quota": OBJECTS,
    "revisions_marker": ONE,
    "runtime_class": OBJECTS,
    "scheduler": ONE,
    "scheduler_configuration": "the last 100, those of kept decisions: housekeeping.drop_leftovers",
    "scheduling_class": "used by a pod, a change or a decision: housekeeping.drop_unused_classes",
    "seal_head": ONE,
    "service": OBJECTS,
    "set_aside": "objects that a follower cannot digest: go when it can, or they are gone",
    "signing_key": "16 at most: signing_keys.rotate",
    "stateful_set": OBJECTS,
    "superseded_document": "HISTORY_SECONDS: history.trim",
    "taint": "those of the nodes that there are",
    "terminating_pod": "one for each pod that terminates, and goes with it",
    "webhook": PEOPLE,
    "webhook_delivery": "seven days, and 10,000 of each webhook: webhooks.trim",
    "zone_pace": "goes when the zone's bucket is full again: paces.forget",
    "usage_change": "goes when it is counted, within a second: scheduling.controllers.quotas",
}


def tables() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = 'public'::regnamespace"
        )
        return {row[0] for row in cursor.fetchall()}


def test_it_is_said_of_each_table_what_bounds_it() -> None:
    assert sorted(tables() ^ TABLES.keys()) == []


def classes() -> int:
    ((count,),) = sql.fetch("SELECT count(*) FROM scheduling_class")
    return int(count)


def forget_the_past() -> None:
    later = NOW + timedelta(days=3)
    history.trim(now=later, keep_seconds=1)
    decisions.trim(now=later)


def test_classes_settle_under_churn() -> None:
    new_pod("stays", cpu="7")
    sizes = []
    for turn in range(4):
        for number in range(20):
            new_pod(f"p{number}", cpu=f"{turn * 20 + number + 100}m")
        for number in range(20):
            objects.delete("Pod", "default", f"p{number}", now=NOW)
        assert housekeeping.drop_unused_classes() == 0, "changes tell of them"
        forget_the_past()
        housekeeping.drop_unused_classes()
        sizes.append((classes(), *sql.fetch("SELECT count(*) FROM document")[0]))
    assert sizes == [sizes[0]] * 4
    assert sizes[0][0] == 1


def test_a_process_that_remembers_a_class_that_was_dropped_makes_it_again() -> None:
    new_pod("one", cpu="300m")
    new_pod("other", cpu="400m")
    objects.delete("Pod", "default", "one", now=NOW)
    forget_the_past()
    assert housekeeping.drop_unused_classes() == 1
    new_pod("two", cpu="300m")
    relabelled = {"labels": {"a": "b"}, "annotations": {}}
    objects.update(
        "Pod", "default", "other", lambda m: {**m, "metadata": {**m["metadata"], **relabelled}},
        now=NOW,
    )  # fmt: skip
    rows = sql.fetch(
        "SELECT p.name FROM pod p JOIN scheduling_class c ON c.id = p.class_id ORDER BY 1"
    )
    assert rows == [("other",), ("two",)]


def test_pods_that_are_created_meanwhile_keep_their_classes() -> None:
    def create(number: int) -> None:
        for turn in range(15):
            name = f"w{number}-{turn}"
            create_pod(pod(name, cpu=f"{turn % 5 + 1}00m"), now=NOW)
            if turn % 3:
                objects.delete("Pod", "default", name, now=NOW)

    workers = [Worker(lambda n=n: create(n)) for n in range(3)]  # type: ignore[misc]
    while any(worker.is_alive() for worker in workers):
        forget_the_past()
        housekeeping.drop_unused_classes()
    for worker in workers:
        worker.result()
    assert sql.fetch(
        "SELECT p.name FROM pod p LEFT JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE c.id IS NULL"
    ) == []  # fmt: skip
    mark = changes.watermark()
    assert sql.fetch(
        "SELECT c.revision FROM change c LEFT JOIN scheduling_class s ON s.id = c.class_id"
        " WHERE c.class_id IS NOT NULL AND s.id IS NULL AND c.revision <= %s::bigint", (mark,)
    ) == []  # fmt: skip


def test_expired_tokens_and_sessions_go() -> None:
    tokens.create_token(
        user="system:node:n1", secret="old", now=NOW, expires_at=NOW - timedelta(days=31)
    )
    tokens.create_token(
        user="system:node:n1", secret="new", now=NOW, expires_at=NOW - timedelta(days=1)
    )
    sql.run(
        "INSERT INTO django_session VALUES ('a', '', %s::timestamptz), ('b', '', %s::timestamptz)",
        (NOW - timedelta(hours=1), NOW + timedelta(hours=1)),
    )
    housekeeping.drop_old_access(now=NOW)
    assert [bytes(one.digest) for one in ApiToken.objects.all()] == [tokens.digest("new")]
    assert sql.fetch("SELECT session_key FROM django_session") == [("b",)]


def test_leftovers_of_nodes_and_configurations_go() -> None:
    create_node("here")
    for name in ("here", "gone"):
        sql.run(
            "INSERT INTO node_usage (node_name, usage, reported_at, outcome)"
            " VALUES (%s::text, '{}', %s::timestamptz, '[]')",
            (name, NOW),
        )
    long_ago = NOW - timedelta(days=90)
    for number in range(1, 131):
        at = NOW if number > 128 else long_ago
        sql.run(
            "INSERT INTO scheduler_configuration (revision, document, at, by)"
            " VALUES (%s::bigint, '', %s::timestamptz, '')",
            (number, at),
        )
    housekeeping.drop_leftovers(now=NOW)
    assert sql.fetch("SELECT node_name FROM node_usage") == [("here",)]
    assert sql.fetch("SELECT min(revision), max(revision) FROM scheduler_configuration") == [
        (31, 130)
    ]


SELDOM_EMPTIED = {
    table
    for table, bound in TABLES.items()
    if bound in (ONE, PEOPLE)
    or table.startswith(("auth_", "axes_", "django_", "audit_", "decision", "metric_", "past_"))
} | {
    "actor", "api_token", "atomic_span", "brake_approval", "canary", "controller_cursor",
    "loop_patience", "moved_slot", "one_time_codes", "plan", "plan_undo", "process_metric",
    "scheduler_configuration", "signing_key", "webhook_delivery", "zone_pace",
}  # fmt: skip
"""Tables with few rows, or whose rows go by age: a burst of pods or nodes fills none of them."""


def test_tables_that_a_burst_fills_keep_their_pages_when_they_are_empty() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND 'vacuum_truncate=off' = ANY (reloptions)"
        )
        keeping = {row[0] for row in cursor.fetchall()}
    assert sorted(TABLES.keys() - SELDOM_EMPTIED - keeping) == []


def test_a_plan_made_while_the_cluster_was_empty_finds_a_pod_by_its_index() -> None:
    for number in range(200):
        create_pod(pod(f"web-{number}"), now=NOW)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pod")
        cursor.execute("VACUUM pod")
        cursor.execute("EXPLAIN SELECT document_id FROM pod WHERE id = 1")
        plan = [row[0] for row in cursor.fetchall()]
    assert "Index Scan" in plan[0]
