"""`manage.py audit`: what is stored twice says the same, and where it does not, that is found."""

import io

import pytest
from django.core.management import CommandError, call_command

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.database import sql
from clusterstate.management import copies
from clusterstate.objects.registry.kinds import KINDS
from scheduling.controllers.evictions import timers
from tests.clusterstate.support import LATER, NOW, bind, create_node, new_pod

pytestmark = pytest.mark.django_db(transaction=True)

TAINTS = [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]
TERMS = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingRequiredDuringExecution": {"nodeSelectorTerms": TERMS}
    }
}
STAYS = [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    """Something of everything that is stored twice."""
    bootstrap.add_missing(now=NOW)
    create_node("n1", taints=TAINTS)
    create_node("n2", labels={"disk": "ssd"})
    assert bind(new_pod("stays", tolerations=STAYS), "n1")
    assert bind(new_pod("executes", affinity=AFFINITY), "n2")
    new_pod("waits", labels={"app": "web"})
    assert bind(new_pod("ends", finalizers=["a.b/c"]), "n2")
    objects.delete("Pod", "default", "ends", now=NOW)
    runtime_class = {"overhead": {"podFixed": {"cpu": "1"}}, "handler": "h"}
    created = {
        "RuntimeClass": runtime_class,
        "PriorityClass": {"value": 7},
        "Lease": {"spec": {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.000000Z"}},
        "Service": {"spec": {"ports": [{"port": 80}]}},
        "ResourceQuota": {"spec": {"hard": {"pods": "9"}}},
    }
    for kind, parts in created.items():
        objects.create(kind, "default" if KINDS[kind].namespaced else "",
                       {"metadata": {"name": "x"}, **parts}, now=NOW)  # fmt: skip
    objects.update("Node", "", "n2", lambda m: _labelled(m, "hdd"), now=NOW)
    timers.follow(NOW)
    objects.update("Lease", "default", "x", _renewed, now=LATER)


def _labelled(manifest: dict, disk: str) -> dict:
    return {**manifest, "metadata": {**manifest["metadata"], "labels": {"disk": disk}}}


def _renewed(manifest: dict) -> dict:
    return {**manifest, "spec": {**manifest["spec"], "renewTime": "2026-01-01T00:00:10.000000Z"}}


def audit() -> tuple[int, list[str]]:
    """Return the command's exit code and its lines."""
    out = io.StringIO()
    try:
        call_command("audit", stdout=out, stderr=io.StringIO())
    except CommandError as error:
        return error.returncode, out.getvalue().splitlines()
    return 0, out.getvalue().splitlines()


def test_a_sound_cluster_has_no_differences() -> None:
    code, (line,) = audit()
    compared, number, rest = line.split(" ", 2)
    assert (code, compared, rest) == (0, "compared", "rows: no differences")
    assert int(number) > 10


@pytest.mark.parametrize(
    ("corruption", "copy", "where"),
    [
        ("UPDATE node SET labels = '{}' WHERE name = 'n2'", "columns", "Node n2"),
        ("UPDATE node SET unschedulable = true WHERE name = 'n1'", "columns", "Node n1"),
        ("UPDATE node SET cpu_milli = 1 WHERE name = 'n1'", "columns", "Node n1"),
        ("UPDATE lease SET renewed_at = now()", "columns", "Lease default/x"),
        ("UPDATE priority_class SET value = 8 WHERE name = 'x'", "columns", "PriorityClass x"),
        ("UPDATE namespace SET phase = 'Terminating' WHERE name = 'default'", "columns",
         "Namespace default"),
        ("UPDATE runtime_class SET overhead = NULL", "columns", "RuntimeClass x"),
        ("UPDATE service SET deletion_at = now()", "columns", "Service default/x"),
        ("UPDATE pod SET priority = 5 WHERE name = 'stays'", "pods", "Pod default/stays"),
        ("UPDATE pod SET scheduler_name = 's' WHERE name = 'stays'", "pods", "Pod default/stays"),
        (("UPDATE pod SET class_id = (SELECT class_id FROM pod WHERE name = 'executes')"
         " WHERE name = 'stays'"), "pods", "Pod default/stays"),
        ("UPDATE scheduling_class SET cpu_milli = 0 WHERE labels ->> 'app' = 'web'", "classes",
         "scheduling class "),
        ("UPDATE scheduling_class SET spec = spec || ' ' WHERE labels ->> 'app' = 'web'",
         "classes", "scheduling class "),
        ("DELETE FROM taint WHERE key = 'a'", "taints", "Node n1"),
        ("UPDATE taint SET position = 3 - position", "taints", "Node n1"),
        ("DELETE FROM pending_pod", "queue", "Pod default/waits"),
        (("INSERT INTO pending_pod (pod_id, stage, attempts, since, rejected_by, message)"
         " SELECT id, 'active', 0, now(), '{}', '' FROM pod WHERE name = 'stays'"), "queue",
         "Pod default/stays"),
        ("DELETE FROM terminating_pod", "terminating", "Pod default/ends"),
        ("UPDATE terminating_pod SET deletion_at = now()", "terminating", "Pod default/ends"),
        ("DELETE FROM eviction_timer WHERE cause = 'taint'", "timers", "Pod default/stays"),
        ("UPDATE eviction_timer SET due_at = due_at + interval '1 s' WHERE cause = 'taint'",
         "timers", "Pod default/stays"),
        ("DELETE FROM eviction_timer WHERE cause <> 'taint'", "timers", "Pod default/executes"),
        (
            ("INSERT INTO eviction_timer SELECT p.id, 'taint', 'n2', 'k', 'NoExecute', 0, now(),"
            " now(), '', NULL, NULL FROM pod p WHERE name = 'executes'"),
            "timers", "Pod default/executes",
        ),
        (
            ("UPDATE document d SET text = replace(d.text, '\"used\":{\"pods\":\"4\"}',"
            " '\"used\":{\"pods\":\"3\"}') FROM resource_quota q WHERE d.id = q.document_id"),
            "quotas", "ResourceQuota default/x",
        ),
        ("DELETE FROM pod WHERE name = 'waits'", "quotas", "ResourceQuota default/x"),
        ("DELETE FROM change WHERE name = 'waits'", "log", "Pod default/waits"),
        ("UPDATE pod SET revision = revision + 1 WHERE name = 'waits'", "log",
         "Pod default/waits"),
        ("DELETE FROM service", "log", "Service default/x"),
        (("DELETE FROM document WHERE id IN (SELECT previous_document_id FROM change"
         " WHERE name = 'n2')"), "documents", "Node n2"),
        ("INSERT INTO document (text) VALUES ('{}')", "documents", "document "),
        ("INSERT INTO superseded_document SELECT document_id, revision FROM service", "documents",
         "document "),
        ("DELETE FROM document d USING service s WHERE d.id = s.document_id", "columns",
         "Service default/x"),
    ],
)  # fmt: skip
def test_each_copy_that_was_corrupted_is_found(corruption: str, copy: str, where: str) -> None:
    # Past the triggers, as a faulty restore or a broken disk would.
    sql.run("SET session_replication_role = replica")
    try:
        sql.run(corruption)
    finally:
        sql.run("RESET session_replication_role")
    code, lines = audit()
    assert code == 1
    assert any(line.startswith(f"{copy}: {where}") for line in lines), lines
    remedies = [one.remedy for one in copies.COPIES]
    assert all(any(line.endswith(remedy) for remedy in remedies) for line in lines)


def test_what_a_follower_has_not_seen_yet_is_not_held_against_it() -> None:
    objects.update("Node", "", "n1", lambda m: {**m, "spec": {}}, now=LATER)
    bind(new_pod("late"), "n2")
    assert audit()[0] == 0


def test_what_ended_and_was_not_counted_yet_is_not_held_against_a_quota() -> None:
    objects.delete("Pod", "default", "waits", now=LATER)
    assert audit()[0] == 0


def test_the_list_names_what_is_stored_twice() -> None:
    out = io.StringIO()
    call_command("audit", "--list", stdout=out)
    assert [line.split(":")[0] for line in out.getvalue().splitlines()] == [
        one.name for one in copies.COPIES
    ]
