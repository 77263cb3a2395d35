"""Extenders in the live cycle: they get pods as they are stored, and bind those they manage."""

import pytest

from scheduling.worker import binding_cycle
from tests.api.conftest import Api, Runner, make_token
from tests.builders import make_node, make_pod
from tests.plugins.extender_service import serving

CONFIGURATION = "/apis/stowage.dev/v1/schedulerconfiguration"
PODS = "/api/v1/namespaces/ns/pods"


@pytest.fixture
def service():
    with serving() as made:
        yield made


@pytest.fixture
def start(api, service):
    """Start a scheduler with the extender; two nodes, and a pod with an annotation of its own."""
    runners = []

    def begin(**fields):
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [{"urlPrefix": service.url, "nodeCacheCapable": True, **fields}],
        }
        api.put(CONFIGURATION, document).ok()
        runner = Runner()
        runners.append(runner)
        return runner

    for name in ("a", "b"):
        api.post("/api/v1/nodes", make_node(name).manifest).ok(201)
    pod = make_pod("web").in_namespace("ns")
    pod = pod.with_("metadata", "annotations", value={"example.com/rack": "b"})
    api.post(PODS, pod.manifest).ok(201)
    yield begin
    for runner in runners:
        runner.scheduler.binder.close()


def test_it_gets_the_pod_as_it_is_stored_and_its_scores_are_recorded(api, service, start):
    def answer(verb, body):
        rack = body["Pod"]["metadata"]["annotations"]["example.com/rack"]
        if verb == "filter":
            return {"NodeNames": body["NodeNames"]}
        return [{"Host": rack, "Score": 10}]

    service.answer = answer
    start(filterVerb="filter", prioritizeVerb="score", weight=100).turn()
    stored = api.get(f"{PODS}/web").ok()
    sent = service.calls[0][1]["Pod"]
    assert stored["spec"]["nodeName"] == "b"
    assert (sent["metadata"]["name"], sent["metadata"]["uid"]) == (
        "web",
        stored["metadata"]["uid"],
    )
    (decision,) = api.get(f"{PODS}/web/decisions").ok()["items"]
    assert f"Extender {service.url}" in str(decision)


def test_it_binds_the_pods_that_concern_it(api, service, start):
    service.answer = lambda verb, body: {"Error": ""}
    runner = start(bindVerb="bind")
    runner.turn()
    assert "nodeName" not in api.get(f"{PODS}/web").ok()["spec"]
    assert binding_cycle.run() == 1
    runner.turn()
    pod = api.get(f"{PODS}/web").ok()
    ((verb, body),) = service.calls
    assert (verb, body["PodName"], body["PodUID"]) == ("bind", "web", pod["metadata"]["uid"])
    assert body["Node"] == pod["spec"]["nodeName"]


def test_a_binding_that_it_refuses_sends_the_pod_back(api, service, start):
    service.answer = lambda verb, body: {"Error": "the licence server is down"}
    runner = start(bindVerb="bind")
    runner.turn()
    assert binding_cycle.run() == 1
    runner.turn(0)
    pod = api.get(f"{PODS}/web").ok()
    assert "nodeName" not in pod["spec"]
    (condition,) = (c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    assert "the licence server is down" in condition["message"]


def _asking(extenders):
    """Return a question of each kind that takes a configuration, and its path."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": extenders,
    }
    pod = make_pod("new").in_namespace("ns").manifest
    base = "/apis/stowage.dev/v1"
    policy = {"name": "mine", "configuration": configuration}
    canary = {"apiVersion": "stowage.dev/v1", "kind": "Canary", "metadata": {"name": "mine"}}
    return {
        f"{base}/simulations": {"spec": {"pods": [pod], "configuration": configuration}},
        f"{base}/headroom": {"spec": {"pod": pod, "configuration": configuration}},
        f"{base}/comparisons": {"spec": {"policies": [policy]}},
        f"{base}/plans": {"spec": {"changes": [{"configuration": configuration}]}},
        f"{base}/canaries": canary | {"spec": {"configuration": configuration}},
    }


def test_who_may_only_ask_sends_the_service_nowhere(api, service, start):
    """An advisor would post to the URL and read the files of ``tlsConfig``, from inside."""
    rules = [
        {"apiGroups": ["stowage.dev"], "resources": ["*"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
    ]
    access = "/apis/rbac.authorization.k8s.io/v1"
    api.post(f"{access}/clusterroles", {"metadata": {"name": "asks"}, "rules": rules}).ok(201)
    api.post(
        f"{access}/clusterrolebindings",
        {
            "metadata": {"name": "asks"},
            "roleRef": {"apiGroup": access[6:-3], "kind": "ClusterRole", "name": "asks"},
            "subjects": [{"apiGroup": access[6:-3], "kind": "User", "name": "curious"}],
        },
    ).ok(201)
    curious = Api(make_token("curious", ["some"]))
    elsewhere = [{"urlPrefix": service.url, "filterVerb": "filter", "nodeCacheCapable": True}]
    for path, question in _asking(elsewhere).items():
        told = curious.post(path, question).fails(403, "Forbidden")
        assert "extenders" in told["message"], path
    assert service.calls == []
    start(filterVerb="filter")  # now it is in force, and everybody may ask what it makes of a pod
    path, question = next(iter(_asking(elsewhere).items()))
    curious.post(path, question).ok(201)
    assert [verb for verb, _ in service.calls] == ["filter"]
