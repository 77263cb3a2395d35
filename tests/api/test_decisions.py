"""Decisions and the scheduler's configuration over HTTP, with a runner in this process."""

from datetime import timedelta

from api import clock
from clusterstate.actions.past import history
from clusterstate.database import sql
from clusterstate.objects.values.document import format_time
from tests.builders import make_node, make_pod

CONFIGURATION = "/apis/stowage.dev/v1/schedulerconfiguration"


def nodes(api, *builders):
    for builder in builders:
        api.post("/api/v1/nodes", builder.manifest).ok(201)


def pods(api, *builders):
    for builder in builders:
        manifest = builder.in_namespace("ns").manifest
        api.post("/api/v1/namespaces/ns/pods", manifest).ok(201)


def path(name, decision=""):
    return f"/api/v1/namespaces/ns/pods/{name}/decisions{'/' + decision if decision else ''}"


def test_the_decision_about_a_pod_is_told_and_explained(api, runner):
    nodes(api, make_node("a"), make_node("b").offers(cpu="2"), make_node("c").tainted("closed"))
    pods(api, make_pod("p").asks(cpu="1"))
    runner.turn()
    (item,) = api.get(path("p")).ok()["items"]
    assert (item["outcome"], item["nodeName"]) == ("scheduled", "a")
    assert item["nodes"] == {"known": 3, "evaluated": 3, "notExamined": 0, "feasible": 2}
    assert [top["nodeName"] for top in item["top"]] == ["a", "b"]
    assert item["rejections"][0]["reasons"] == ["node(s) had untolerated taint(s)"]
    assert item["profile"] == {"schedulerName": "default-scheduler", "revision": 0}

    full = api.get(path("p", item["id"]) + "?explain=full").ok()
    assert (full["source"], full["verified"], full["differences"]) == ("replayed", True, [])
    assert full["feasible"] == ["a", "b"]
    assert full["scores"]["a"]["total"] == item["total"]
    assert set(full["scores"]["a"]) == {"raw", "normalized", "weighted", "total"}
    assert full["infeasible"]["c"]["plugin"] == "TaintToleration"


def test_a_replay_sees_the_pods_that_were_decided_just_before(api, runner):
    nodes(api, make_node("a").offers(cpu="4"), make_node("b").offers(cpu="4"))
    runner.turn()
    pods(api, *(make_pod(f"pod-{n}").asks(cpu="3") for n in range(3)))
    runner.turn()
    for name in ("pod-0", "pod-1", "pod-2"):
        (item,) = api.get(path(name)).ok()["items"]
        full = api.get(path(name, item["id"]) + "?explain=full").ok()
        assert full["verified"], full["differences"]
    assert full["outcome"] == "unschedulable"
    assert full["infeasible"]["a"]["reasons"] == ["Insufficient cpu"]


def test_a_replay_shows_the_cluster_as_it_was(api, runner):
    nodes(api, make_node("a"), make_node("b"))
    pods(api, make_pod("p").asks(cpu="4"))
    runner.turn()
    (item,) = api.get(path("p")).ok()["items"]
    for name in ("a", "b"):
        api.delete(f"/api/v1/nodes/{name}").ok()
    nodes(api, make_node("late"))
    api.delete("/api/v1/namespaces/ns/pods/p").ok()
    full = api.get(path("p", item["id"]) + "?explain=full").ok()
    assert full["verified"], full["differences"]
    assert full["feasible"] == ["a", "b"]


def test_the_decisions_of_a_moment_are_those_made_until_then(api, runner, monkeypatch):
    nodes(api, make_node("a").offers(cpu="2"))
    pods(api, make_pod("p").asks(cpu="4"))
    runner.turn()
    api.delete("/api/v1/nodes/a").ok()
    nodes(api, make_node("b"))
    runner.turn(30.0)
    latest, earlier = api.get(path("p")).ok()["items"]
    assert (latest["outcome"], earlier["outcome"]) == ("scheduled", "unschedulable")
    between = format_time(runner.now - timedelta(seconds=15))
    monkeypatch.setattr(clock, "now", lambda: runner.now)
    (then,) = api.get(path("p") + f"?at={between}").ok()["items"]
    assert then["id"] == earlier["id"]
    assert api.get(path("p", earlier["id"]) + f"?at={between}").ok()["id"] == earlier["id"]
    api.get(path("p", latest["id"]) + f"?at={between}").fails(404, "NotFound")
    assert len(api.get(path("p") + "?at=0s").ok()["items"]) == 2


def test_after_the_history_only_stored_tables_are_left(api, runner):
    nodes(api, make_node("a"))
    pods(api, make_pod("fits"), make_pod("large").asks(cpu="9"))
    runner.turn()
    history.trim(now=runner.now + timedelta(days=1), keep_seconds=1)
    (fits,), (large,) = (api.get(path(name)).ok()["items"] for name in ("fits", "large"))
    api.get(path("fits", fits["id"]) + "?explain=full").fails(410, "Expired")
    full = api.get(path("large", large["id"]) + "?explain=full").ok()
    assert full["source"] == "stored"
    assert full["infeasible"]["a"]["reasons"] == ["Insufficient cpu"]


def test_people_get_a_table(api, runner):
    nodes(api, make_node("a"), make_node("b").offers(cpu="2"), make_node("c").tainted("closed"))
    pods(api, make_pod("p").asks(cpu="1"))
    runner.turn()
    (item,) = api.get(path("p")).ok()["items"]
    answer = api.get(path("p", item["id"]) + "?explain=full&format=table")
    assert answer.headers["Content-Type"].startswith("text/plain")
    text = answer.raw.decode()
    assert "ns/p: scheduled to a" in text
    assert "replayed, verified" in text
    assert "TaintToleration: node(s) had untolerated taint(s)" in text
    assert "NodeResourcesFit" in api.get(path("p") + "?format=table").raw.decode()


def test_the_runtime_class_is_named_where_it_is_the_reason(api, runner):
    """R53, C7: in the explanation of a decision, and in the table for people."""
    kata = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        "scheduling": {"nodeSelector": {"runtime": "kata"}},
    }
    api.post("/apis/node.k8s.io/v1/runtimeclasses", kata).ok(201)
    nodes(api, make_node("a"), make_node("b"))
    pods(api, make_pod("p").with_("spec", "runtimeClassName", value="kata"))
    runner.turn()
    (item,) = api.get(path("p") + "?explain=full").ok()["items"]
    assert item["verified"]
    due = item["runtimeClass"]
    assert due["message"] == "0/2 Nodes are available: 2 nodes don't match RuntimeClass"
    assert due["nodes"]["a"] == {"nodeSelector": {"runtime": "kata"}}
    table = api.get(path("p", item["id"]) + "?explain=full&format=table").raw.decode()
    assert "2 nodes don't match RuntimeClass" in table
    assert "From RuntimeClass kata: runtime=kata" in table
    assert "(RuntimeClass: runtime=kata)" in table


def test_what_there_is_not_is_not_found(api, runner):
    nodes(api, make_node("a"))
    pods(api, make_pod("p"), make_pod("q"))
    assert api.get(path("p")).ok()["items"] == []
    runner.turn()
    (item,) = api.get(path("p")).ok()["items"]
    api.get(path("none")).fails(404, "NotFound")
    api.get(path("q", item["id"])).fails(404, "NotFound")
    api.get(path("p", "999999")).fails(404, "NotFound")
    api.get(path("p", "abc")).fails(400, "BadRequest")
    api.get(path("p") + "?explain=everything").fails(400, "BadRequest")


def test_the_configuration_is_stored_checked_and_in_force_at_once(api, runner):
    """R180, R72: nothing is restarted, and the profile that a pod names decides."""
    default = api.get(CONFIGURATION).ok()
    assert default["kind"] == "KubeSchedulerConfiguration"
    assert default["metadata"]["resourceVersion"] == "0"
    assert default["metadata"]["creationTimestamp"], "it is as old as the cluster"
    packing = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "packing",
                "pluginConfig": [
                    {
                        "name": "NodeResourcesFit",
                        "args": {"scoringStrategy": {"type": "MostAllocated"}},
                    }
                ],
            },
            {"schedulerName": "default-scheduler"},
        ],
    }
    nodes(api, make_node("a"), make_node("b"))
    pods(
        api,
        make_pod("first").asks(cpu="1"),
        make_pod("second").asks(cpu="1").with_("spec", "schedulerName", value="packing"),
    )
    runner.turn()
    (first,) = api.get(path("first")).ok()["items"]
    assert api.get(path("second")).ok()["items"] == []

    stored = api.put(CONFIGURATION, packing).ok()
    revision = stored["metadata"]["resourceVersion"]
    assert stored["profiles"][0]["schedulerName"] == "packing"
    runner.turn()
    (second,) = api.get(path("second")).ok()["items"]
    assert second["nodeName"] == first["nodeName"]
    assert second["profile"] == {"schedulerName": "packing", "revision": int(revision)}
    full = api.get(path("second", second["id"]) + "?explain=full").ok()
    assert full["verified"], full["differences"]

    assert api.put(CONFIGURATION, stored).ok()["metadata"]["resourceVersion"] == revision
    stale = {**packing, "metadata": {"resourceVersion": "0"}, "parallelism": 4}
    api.put(CONFIGURATION, stale).fails(409, "Conflict")


def test_a_wrong_configuration_changes_nothing_and_every_error_is_named(api):
    wrong = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 0,
        "profiles": [{"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}}],
    }
    status = api.put(CONFIGURATION, wrong).fails(422, "Invalid")
    fields = {cause["field"] for cause in status["details"]["causes"]}
    assert "parallelism" in fields
    assert len(fields) == 2
    assert api.get(CONFIGURATION).ok()["metadata"]["resourceVersion"] == "0"
    assert sql.fetch_one("SELECT count(*) FROM scheduler_configuration") == (0,)


def test_only_some_may_change_the_configuration(reader):
    reader.get(CONFIGURATION).ok()
    reader.put(CONFIGURATION, {}).fails(403, "Forbidden")
