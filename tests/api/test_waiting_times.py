"""How long pods wait and waited, against a goal, and which of them starve."""

import random
from io import StringIO

import pytest
from django.core.management import call_command

from clusterstate.database import sql
from clusterstate.telemetry.metrics import families
from tests.api.conftest import TABLE, Api, make_token
from tests.builders import make_node, make_pod

TIMES = "/apis/stowage.dev/v1/waitingtimes"


@pytest.fixture
def queue(api, runner):
    """Two pods too large for the node, of different namespaces; later a small one is placed."""
    api.post("/api/v1/namespaces", {"metadata": {"name": "other"}}).ok(201)
    api.post("/api/v1/nodes", make_node("node").offers(cpu="2").manifest).ok(201)
    for namespace in ("ns", "other"):
        pod = make_pod("large").in_namespace(namespace).asks(cpu="8").manifest
        api.post(f"/api/v1/namespaces/{namespace}/pods", pod).ok(201)
    runner.turn()
    sql.run("UPDATE pending_pod SET since = since - interval '10 minutes'")
    sql.run("UPDATE pod SET created_at = created_at - interval '10 minutes'")
    small = make_pod("small").in_namespace("ns").asks(cpu="1").manifest
    api.post("/api/v1/namespaces/ns/pods", small).ok(201)
    runner.turn()
    return api


def asked(api, path=TIMES, **query):
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return api.get(f"{path}?{text}").ok()


def test_pods_that_wait_are_told_by_reason_and_by_namespace(queue):
    found = asked(queue)
    assert found["spec"] == {
        "by": "reason", "namespace": "", "goalSeconds": 300, "pastSeconds": 3600,
    }  # fmt: skip
    (row,) = found["status"]["waiting"]
    assert (row["value"], row["pods"], row["overGoal"]) == ("NodeResourcesFit", 2, 2)
    assert 590 <= row["medianSeconds"] <= row["p95Seconds"] <= row["longestSeconds"]
    assert "placed" not in found["status"]
    found = asked(queue, by="namespace", goalSeconds=30000)["status"]
    assert [(one["value"], one["pods"], one["overGoal"]) for one in found["waiting"]] == [
        ("ns", 1, 0), ("other", 1, 0),
    ]  # fmt: skip
    assert [(one["value"], one["pods"]) for one in found["placed"]] == [("ns", 1)]
    for by in ("priority", "priorityClass", "runtimeClass", "profile", "stage"):
        assert sum(one["pods"] for one in asked(queue, by=by)["status"]["waiting"]) == 2
    mine = asked(queue, "/apis/stowage.dev/v1/namespaces/other/waitingtimes")
    assert mine["status"]["waiting"][0]["pods"] == 1


def test_kubectl_prints_a_row_for_each_value(queue):
    def rows(**query):
        text = "&".join(f"{key}={value}" for key, value in query.items())
        table = queue.get(f"{TIMES}?{text}", accept=TABLE).ok()
        names = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]

    (row,) = rows()
    assert (row["Name"], row["Waiting"], row["Over Goal"]) == ("NodeResourcesFit", 2, 2)
    assert (row["Median"], row["Starved"], row["Placed"]) == ("10m", "2", "<none>")
    found = {row["Name"]: row for row in rows(by="namespace")}
    assert {name: row["Waiting"] for name, row in found.items()} == {"ns": 1, "other": 1}
    assert {name: row["Placed"] for name, row in found.items()} == {"ns": "1", "other": "0"}
    (row,) = rows(by="runtimeClass")
    assert (row["Name"], row["Starved"]) == ("<none>", "<none>")


def test_a_pod_over_the_goal_that_was_overtaken_starves(queue):
    starved = asked(queue)["status"]["starved"]
    assert [(one["namespace"], one["name"], one["overtakenBy"]) for one in starved] == [
        ("ns", "large", 1), ("other", "large", 1),
    ]  # fmt: skip
    assert starved[0]["rejectedBy"] == ["NodeResourcesFit"]
    assert starved[0]["seconds"] >= 590
    assert asked(queue, goalSeconds=50000)["status"]["starved"] == []


def test_each_starved_pod_counts_those_that_overtook_it(api, runner):
    """Against a count for each pod by itself, over times and priorities of chance."""
    dice = random.Random(7)
    api.post("/api/v1/nodes", make_node("node").offers(cpu="10", pods="50").manifest).ok(201)
    for number in range(24):
        pod = make_pod(f"p{number}").in_namespace("ns").asks(cpu="100" if number % 2 else "1m")
        api.post("/api/v1/namespaces/ns/pods", pod.manifest).ok(201)
    runner.turn()
    for number in range(24):
        ago, priority = dice.randrange(600, 612), dice.randrange(3)
        sql.run(
            "UPDATE pod SET priority = %s, created_at = created_at - make_interval(secs => %s)"
            " WHERE name = %s", (priority, ago, f"p{number}"),
        )  # fmt: skip
        sql.run(
            "UPDATE pending_pod SET since = p.created_at FROM pod p"
            " WHERE p.id = pod_id AND p.name = %s", (f"p{number}",),
        )  # fmt: skip
    expected = sql.fetch(
        "SELECT p.name, (SELECT count(*) FROM pod s WHERE s.created_at > q.since"
        " AND s.bound_at > q.since AND s.priority <= p.priority)"
        " FROM pending_pod q JOIN pod p ON p.id = q.pod_id"
    )
    found = {one["name"]: one["overtakenBy"] for one in asked(api)["status"]["starved"]}
    assert found == {name: count for name, count in expected if count}
    assert len(found) > 3


def test_a_refused_pod_that_is_placed_in_the_end_is_measured(queue, runner):
    families.take_all()
    queue.post("/api/v1/nodes", make_node("large").offers(cpu="8").manifest).ok(201)
    runner.turn(20)
    name = "stowage_refused_pod_waiting_seconds"
    (one,) = [taken for taken in families.take_all() if taken.name == name]
    assert 'plugin="NodeResourcesFit"' in one.labels
    assert sum(one.figures[:-1]) == 1


@pytest.mark.parametrize(("points", "first"), [(0, "strong"), (10, "old")])
def test_with_ageing_a_pod_that_waited_long_goes_before_one_of_higher_priority(
    api, runner, points, first
):
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, policy in (("high", "Never"), ("preempting", "PreemptLowerPriority")):
        kind = {"metadata": {"name": name}, "value": 50, "preemptionPolicy": policy}
        api.post(classes, kind).ok(201)
    api.post("/api/v1/nodes", make_node("node").offers(cpu="2").manifest).ok(201)

    def create(name, **spec):
        pod = make_pod(name).in_namespace("ns").asks(cpu="2").manifest
        pod["spec"].update(spec)
        api.post("/api/v1/namespaces/ns/pods", pod).ok(201)
        runner.turn()

    create("full")
    create("old")
    sql.run("UPDATE pending_pod SET since = since - interval '10 minutes'")
    args = {"name": "PrioritySort", "args": {"agePointsPerMinute": points}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [args]}],
    }
    api.put("/apis/stowage.dev/v1/schedulerconfiguration", document).ok()
    create("strong", priorityClassName="high")
    api.delete("/api/v1/namespaces/ns/pods/full", {"gracePeriodSeconds": 0}).ok()
    runner.turn(20)
    placed = sql.fetch("SELECT name FROM pod WHERE node_name <> ''")
    assert placed == [(first,)]
    create("stronger", priorityClassName="preempting")
    runner.turn(20)
    leaving = sql.fetch("SELECT name FROM pod WHERE deletion_at IS NOT NULL")
    assert leaving == ([("old",)] if first == "old" else []), (
        "whom a pod preempts is a matter of stated priorities"
    )


def test_the_report_is_printed_and_bad_questions_are_refused(queue):
    printed = StringIO()
    call_command("waitingtimes", "--by", "namespace", stdout=printed)
    text = printed.getvalue()
    assert text.startswith("Waiting now\nNAMESPACE   PODS")
    assert "Starved" in text
    (verbs,) = [
        one["verbs"]
        for one in queue.get("/apis/stowage.dev/v1").ok()["resources"]
        if one["name"] == "waitingtimes"
    ]
    assert verbs == ["get"], "it answers one object"
    queue.get(f"{TIMES}?by=colour").fails(400, "BadRequest")
    queue.get(f"{TIMES}?goalSeconds=x").fails(400, "BadRequest")
    stranger = Api(make_token("stranger", ["team"]))
    stranger.get(TIMES).fails(403, "Forbidden")
