"""The evictions of stowage.dev: who leaves when and why."""

import pytest

from api import clock
from api.stowage import evictions as evictions_api
from clusterstate.actions import evictions
from clusterstate.queries.objects import find_object
from clusterstate.queries.pods import find_pods
from scheduling.controllers.evictions import timers
from scheduling.controllers.nodes import lifecycle
from tests.api.conftest import TABLE, names
from tests.clock import moment
from tests.controllers.support import (
    NOW,
    after,
    make_node,
    make_pod,
    set_taints,
    taint,
    tolerates,
)

EVICTIONS = "/apis/stowage.dev/v1/evictions"


@pytest.fixture
def waiting(api, monkeypatch):
    make_node("n1")
    make_node("n2")
    for number, seconds in enumerate((300, 100, 200)):
        make_pod(f"p{number}", "n1", tolerations=[tolerates(seconds=seconds)])
    make_pod("q", "n2", tolerations=[tolerates(seconds=50)])
    set_taints("n1", taint(value="v"))
    set_taints("n2", taint())
    timers.follow(NOW)
    monkeypatch.setattr(clock, "now", lambda: after(10))
    return api


def test_the_list_is_ordered_by_due_time(waiting):
    assert names(waiting.get(EVICTIONS)) == ["q", "p1", "p2", "p0"]
    first = waiting.get(EVICTIONS).ok()["items"][1]
    assert first["kind"] == "Eviction"
    assert first["spec"]["nodeName"] == "n1"
    assert first["spec"]["taint"] == {"key": "key", "value": "v", "effect": "NoExecute"}
    assert first["spec"]["tolerationSeconds"] == 100
    assert first["status"]["dueAt"] == moment(100).replace("Z", ".000000Z")


def test_of_a_node_a_pod_and_a_namespace(waiting):
    assert names(waiting.get("/apis/stowage.dev/v1/nodes/n2/evictions")) == ["q"]
    waiting.get("/apis/stowage.dev/v1/nodes/none/evictions").fails(404, "NotFound")
    base = "/apis/stowage.dev/v1/namespaces/default"
    assert names(waiting.get(f"{base}/pods/p0/evictions")) == ["p0"]
    assert names(waiting.get("/apis/stowage.dev/v1/namespaces/ns/evictions")) == []
    assert waiting.get(f"{base}/evictions/p0").ok()["metadata"]["name"] == "p0"
    waiting.get(f"{base}/evictions/none").fails(404, "NotFound")
    assert names(waiting.get(f"{EVICTIONS}?fieldSelector=spec.nodeName=n2")) == ["q"]


def test_pages(waiting):
    page = waiting.get(f"{EVICTIONS}?limit=3").ok()
    assert [item["metadata"]["name"] for item in page["items"]] == ["q", "p1", "p2"]
    token = page["metadata"]["continue"]
    assert names(waiting.get(f"{EVICTIONS}?limit=3&continue={token}")) == ["p0"]


@pytest.mark.parametrize("limit", ["", "limit=9&"])
def test_one_answer_has_only_so_many_and_the_token_leads_to_the_rest(waiting, monkeypatch, limit):
    monkeypatch.setattr(evictions_api.EvictionsPagination, "most", 2)
    page = waiting.get(f"{EVICTIONS}?{limit}").ok()
    assert [item["metadata"]["name"] for item in page["items"]] == ["q", "p1"]
    token = page["metadata"]["continue"]
    rest = waiting.get(f"{EVICTIONS}?{limit}continue={token}").ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["p2", "p0"]
    assert not rest["metadata"].get("continue")


def test_the_table_that_kubectl_prints(waiting):
    table = waiting.get(EVICTIONS, accept=TABLE).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name", "Node", "Cause", "Taint", "Leaves In", "Due", "Blocked By",
        "Lands On",
    ]  # fmt: skip
    assert table["rows"][0]["cells"][:5] == ["q", "n2", "taint", "key:NoExecute", "40s"]


def test_the_pod_says_it_too_and_never_keeps_it(waiting):
    path = "/api/v1/namespaces/default/pods/q"
    found = waiting.get(path).ok()
    condition = next(
        c for c in found["status"]["conditions"] if c["type"] == "stowage.dev/EvictionScheduled"
    )
    assert condition["reason"] == "Taint"
    assert moment(50).removesuffix("Z") in condition["message"]
    waiting.put(f"{path}/status", found).ok()
    set_taints("n2")
    timers.follow(NOW)
    types = {c["type"] for c in waiting.get(path).ok()["status"]["conditions"]}
    assert types == {"PodScheduled"}


def test_discovery_lists_it(api):
    resources = api.get("/apis/stowage.dev/v1").ok()["resources"]
    assert {"evictions"} <= {one["name"] for one in resources}


def test_a_reader_may_read_and_a_node_may_not(reader):
    assert names(reader.get(EVICTIONS)) == []
    from tests.api.conftest import Api, make_token

    node = Api(make_token("system:node:n1", ["system:nodes"]))
    node.get(EVICTIONS).fails(403, "Forbidden")


def test_a_dry_run_counts_who_would_leave(waiting):
    """R3, R80: the same numbers as the change itself makes."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    field = "requiredDuringSchedulingRequiredDuringExecution"
    affinity = {"nodeAffinity": {field: {"nodeSelectorTerms": terms}}}
    make_node("n3", labels={"zone": "a"})
    for number in range(3):
        make_pod(f"bound-{number}", "n3", affinity=affinity)
    make_pod("free", "n3", tolerations=[tolerates(seconds=9)])
    path = "/api/v1/nodes/n3"
    relabel = {"metadata": {"labels": {"zone": "b"}}}
    answer = waiting.patch(f"{path}?dryRun=All", relabel)
    answer.ok()
    assert answer.headers["Warning"] == (
        f'299 - "3 pods would be evicted from node n3: its labels would no longer match {field}"'
    )
    taints = {"spec": {"taints": [taint()]}}
    answer = waiting.patch(f"{path}?dryRun=All", taints)
    assert "3 pods would be evicted from node n3 at once and 1 after" in answer.headers["Warning"]
    assert (
        "Warning"
        not in waiting.patch(f"{path}?dryRun=All", {"metadata": {"labels": {"x": "y"}}}).headers
    )
    assert "Warning" not in waiting.patch(path, relabel).headers
    timers.follow(after(10))
    assert len(names(waiting.get("/apis/stowage.dev/v1/nodes/n3/evictions"))) == 3


def test_where_would_it_land(waiting):
    """Known before it leaves: n1 keeps its taint, n2 is free of it by then or not."""
    set_taints("n2")
    make_pod("mover", "n1")
    timers.follow(NOW)
    path = "/apis/stowage.dev/v1/namespaces/default/evictions/mover"
    assert "landing" not in waiting.get(path).ok()["status"]
    landing = waiting.get(f"{path}?landing=true").ok()["status"]["landing"]
    assert landing == {"status": "scheduled", "nodeName": "n2"}
    set_taints("n2", taint("other"))
    landing = waiting.get(f"{path}?landing=true").ok()["status"]["landing"]
    assert landing["status"] == "unschedulable"
    assert "0/2 nodes are available" in landing["message"]


def test_the_zones_are_there_to_see(waiting):
    lifecycle.run(NOW)
    (zone,) = waiting.get("/apis/stowage.dev/v1/zones").ok()["items"]
    assert zone["status"] == {"state": "Normal", "taintsPerSecond": 0.1, "tokens": 1.0}


def test_metrics_say_how_many_wait_and_how_late_pods_left(waiting):
    def metrics():
        lines = waiting.get("/metrics").raw.decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line.startswith("stowage_eviction"))

    found = metrics()
    assert float(found['stowage_eviction_timers{cause="taint"}']) == 4
    assert float(found["stowage_eviction_lateness_seconds_count"]) == 0
    evictions.count_evictions([0.003, 0.004, 0.3, 100])
    found = metrics()
    assert float(found["stowage_eviction_lateness_seconds_count"]) == 4
    assert float(found['stowage_eviction_lateness_seconds_bucket{le="0.005"}']) == 2
    assert float(found['stowage_eviction_lateness_seconds_bucket{le="0.5"}']) == 3


def test_pods_read_together_say_it_as_one_read_alone_does(waiting):
    """Reads of pods that come together are answered by one statement."""
    keys = [("default", name) for name in ("p1", "q", "none")]
    assert find_pods(keys) == [find_object("Pod", *key) for key in keys]
