"""An object with an extreme but valid field is kept, and what is beside it is served."""

import copy
import itertools
from datetime import timedelta

import pytest
from django.test import Client

from api import clock
from clusterstate.actions.agents import node_heartbeats
from clusterstate.queries.objects import decode_object, find_object
from tests.admin.conftest import person
from tests.api.conftest import Api, make_token
from tests.clock import NOW
from tests.controllers import support
from tests.followers import everybody
from tests.forms import few

FAR, LONG_AGO = "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"
AGES = 10**12
INT32, INT64 = 2**31 - 1, 2**63 - 1
TAINT = {"key": "key", "effect": "NoExecute"}


LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture
def api(db: None) -> Api:
    caller = Api(make_token("operator", ["system:masters"]))
    for name in ("n1", "n2"):  # whose agents are slow to end pods, and do not go silent here
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
        caller.post(LEASE_PATH, lease).ok(201)
    return caller


@pytest.fixture
def administrator(api: Api) -> Client:
    return person("anna", superuser=True)


def pod(name, **spec):
    return support.pod_manifest(name, tolerations=spec.pop("tolerations", []), **spec)


def tolerates(seconds):
    return {"tolerations": [support.tolerates(seconds=seconds)]}


def create(api: Api, manifest, *, plural="pods", base="/api/v1/namespaces/default"):
    return api.post(f"{base}/{plural}", manifest).ok(201)


def node(name="n1", **spec):
    offer = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": offer, "capacity": offer},
    }


def served(api: Api, administrator: Client) -> None:
    """Check that everybody follows, no page fails, and the neighbour leaves in time and is gone."""
    began = clock.now()
    for seconds in (0, 4, 6):
        everybody.follow(began + timedelta(seconds=seconds))
    neighbour = find_object("Pod", "default", "neighbour")
    assert neighbour is not None
    assert "deletionTimestamp" in decode_object(neighbour)["metadata"], "not evicted"
    support.schedule(began + timedelta(seconds=7))
    everybody.watch(0)
    assert everybody.read_everything(api.client, api.token) == []
    assert everybody.open_every_page(administrator) == []
    api.delete("/api/v1/namespaces/default/pods/neighbour?gracePeriodSeconds=0").ok()


PODS = {
    "tolerates-ages": tolerates(AGES),
    "tolerates-int64": tolerates(INT64),
    "tolerates-less-than-nothing": tolerates(-AGES),
    "tolerates-int64-min": tolerates(-INT64 - 1),
    "long-grace": {"terminationGracePeriodSeconds": AGES, **tolerates(1)},
    "int64-grace": {"terminationGracePeriodSeconds": INT64, **tolerates(1)},
    "int32-deadline": {"activeDeadlineSeconds": INT32, **tolerates(1)},
}


@pytest.mark.parametrize("spec", few(PODS.values()), ids=PODS)
def test_a_pod_with_an_extreme_field_stops_nobody(api, administrator, spec) -> None:
    create(api, node(taints=[TAINT]), plural="nodes", base="/api/v1")
    create(api, pod("extreme", nodeName="n1", **copy.deepcopy(spec)))
    create(api, pod("neighbour", nodeName="n1", **tolerates(5)))
    served(api, administrator)
    for grace in ("", "?gracePeriodSeconds=30", f"?gracePeriodSeconds={AGES}"):
        answer = api.delete(f"/api/v1/namespaces/default/pods/extreme{grace}")
        assert answer.status < 500, answer.raw
    api.get("/api/v1/namespaces/default/pods/extreme").ok()
    api.delete("/api/v1/namespaces/default/pods/extreme?gracePeriodSeconds=0").ok()
    api.get("/api/v1/namespaces/default/pods/extreme").fails(404, "NotFound")


ZONED = ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"]


@pytest.mark.parametrize(
    ("added", "seconds"),
    few(itertools.product([*ZONED, FAR, LONG_AGO], [INT64, AGES, 0])),
)
def test_a_taint_of_any_day_stops_nobody(api, administrator, added, seconds) -> None:
    create(api, node(taints=[TAINT]), plural="nodes", base="/api/v1")
    create(api, node("n2", taints=[{**TAINT, "timeAdded": added}]), plural="nodes", base="/api/v1")
    create(api, pod("extreme", nodeName="n2", **tolerates(seconds)))
    create(api, pod("neighbour", nodeName="n1", **tolerates(5)))
    served(api, administrator)


def test_a_pod_that_tolerates_for_ages_has_no_timer(api) -> None:
    create(api, node(taints=[TAINT]), plural="nodes", base="/api/v1")
    create(api, pod("extreme", nodeName="n1", **tolerates(AGES)))
    create(api, pod("ordinary", nodeName="n1", **tolerates(300)))
    assert support.timer("extreme") is None
    assert support.timer("ordinary") is not None


def test_a_pod_with_a_grace_period_of_ages_ends_when_it_is_told_to_at_once(api) -> None:
    create(api, node(), plural="nodes", base="/api/v1")
    create(api, pod("extreme", nodeName="n1", terminationGracePeriodSeconds=AGES))
    path = "/api/v1/namespaces/default/pods/extreme"
    left = api.delete(path).ok()["metadata"]
    assert (left["deletionTimestamp"], left["deletionGracePeriodSeconds"]) == (FAR, AGES)
    shorter = api.delete(f"{path}?gracePeriodSeconds=30").ok()["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 30
    assert shorter["deletionTimestamp"] < "2100"


LEASES = [
    {"renewTime": FAR.replace("Z", ".000000Z"), "leaseDurationSeconds": INT32},
    {"renewTime": LONG_AGO.replace("Z", ".000000Z"), "leaseDurationSeconds": 1},
    {"acquireTime": "9999-12-31T23:59:59.999999-14:00", "leaseTransitions": INT32},
]


@pytest.mark.parametrize("spec", few(LEASES), ids=["far", "long-ago", "zone"])
def test_a_lease_of_any_day_stops_nobody(api, administrator, spec) -> None:
    api.delete(f"{LEASE_PATH}/n1").ok()
    create(api, node(taints=[TAINT]), plural="nodes", base="/api/v1")
    lease = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1", **spec}}
    lease |= {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    create(
        api, lease, plural="leases", base="/apis/coordination.k8s.io/v1/namespaces/kube-node-lease"
    )
    create(api, pod("neighbour", nodeName="n1", **tolerates(5)))
    served(api, administrator)


@pytest.mark.parametrize("at", few([FAR, LONG_AGO]))
def test_conditions_and_heartbeats_of_any_day_stop_nobody(api, administrator, at) -> None:
    create(api, node(taints=[TAINT]), plural="nodes", base="/api/v1")
    create(api, pod("neighbour", nodeName="n1", **tolerates(5)))
    create(api, pod("extreme", nodeName="n1", **tolerates(5)))
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": at, "lastTransitionTime": at}
    api.patch("/api/v1/nodes/n1/status", {"status": {"conditions": [ready]}}).ok()
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    status = {"conditions": [scheduled], "startTime": at, "phase": "Running"}
    api.patch("/api/v1/namespaces/default/pods/extreme/status", {"status": status}).ok()
    node_heartbeats.mark_pods_not_ready(["n1"], now=NOW)
    served(api, administrator)


BUDGETS = [
    {"maxUnavailable": INT32},
    {"minAvailable": INT32},
    {"minAvailable": "2147483647%"},
    {"maxUnavailable": "100%"},
]


@pytest.mark.parametrize("spec", few(BUDGETS), ids=["most", "least", "share", "all"])
def test_a_budget_of_any_size_stops_nobody(api, administrator, spec) -> None:
    create(api, node(taints=[TAINT]), plural="nodes", base="/api/v1")
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    answer = api.post(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {**budget, "spec": {"selector": {}, **spec}},
    )
    assert answer.status in (201, 422), answer.raw
    create(api, pod("neighbour", nodeName="n1", **tolerates(5)))
    everybody.follow(NOW)
    if answer.status == 201:
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b/status"
        given = {"disruptedPods": {"neighbour": FAR, "gone": LONG_AGO}, "disruptionsAllowed": INT32}
        answer = api.patch(path, {"status": given})
        assert answer.status < 500, answer.raw
    api.post("/api/v1/namespaces/default/pods/neighbour/eviction", {"metadata": {}})
    served(api, administrator)
