"""``?waitFor=``: a GET or a POST that is answered when a pod is decided on, or bound."""

import threading

import pytest

from tests.api.conftest import MERGE
from tests.live import node, pod

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


@pytest.fixture(scope="module", autouse=True)
def ready(live):
    live.request("POST", NODES, node("waiting-1"))
    yield
    live.request("DELETE", f"{NODES}/waiting-1")


def place(item):
    return item["spec"].get("nodeName")


def test_a_post_answers_the_pod_with_its_place(live):
    for condition in ("PodScheduled", "Bound"):
        name = f"w-{condition.lower()}"
        path = f"{PODS}?waitFor={condition}&timeoutSeconds=30"
        status, made = live.request("POST", path, pod(name))
        assert (status, made["metadata"]["name"], bool(place(made))) == (201, name, True)
        assert live.request("GET", f"{PODS}/{name}")[1]["spec"]["nodeName"] == place(made)
        live.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def test_a_post_of_a_list_waits_for_all(live):
    items = [pod("w-a"), pod("w-b")]
    listed = {"apiVersion": "v1", "kind": "PodList", "items": items}
    status, made = live.request("POST", f"{PODS}?waitFor=Bound", listed)
    assert (status, made["kind"]) == (201, "PodList")
    assert all(map(place, made["items"]))
    for one in items:
        live.request("DELETE", f"{PODS}/{one['metadata']['name']}?gracePeriodSeconds=0")


@pytest.mark.parametrize("why", ["gated", "refused"])
def test_bound_waits_while_a_pod_is_refused_or_gated(live, why):
    """Where PodScheduled answers at once."""
    gated = {"schedulingGates": [{"name": "a.example/gate"}]}
    spec = gated if why == "gated" else {"nodeSelector": {"waiting-for": "it"}}
    name = f"w-{why}"
    status, made = live.request("POST", f"{PODS}?waitFor=PodScheduled", pod(name, **spec))
    assert (status, place(made)) == (201, None)
    assert [one["type"] for one in made["status"]["conditions"]] == ["PodScheduled"]
    _, at_its_end = live.request("GET", f"{PODS}/{name}?waitFor=Bound&timeoutSeconds=1")
    assert place(at_its_end) is None

    answers = []
    path = f"{PODS}/{name}?waitFor=Bound&timeoutSeconds=60"
    waiter = threading.Thread(target=lambda: answers.append(live.request("GET", path, seconds=70)))
    waiter.start()
    if why == "gated":
        live.request(
            "PATCH", f"{PODS}/{name}", {"spec": {"schedulingGates": []}}, content_type=MERGE
        )
    else:
        labels = {"metadata": {"labels": {"waiting-for": "it"}}}
        live.request("PATCH", f"{NODES}/waiting-1", labels, content_type=MERGE)
    waiter.join(60)
    ((status, bound),) = answers
    assert (status, place(bound)) == (200, "waiting-1")
    live.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def test_what_cannot_be_waited_for_creates_nothing(live):
    for query in ("waitFor=Running", "waitFor=", "waitFor=Bound&timeoutSeconds=x"):
        status, _ = live.request("POST", f"{PODS}?{query}", pod("w-none"))
        assert status == 400
    assert live.request("GET", f"{PODS}/w-none")[0] == 404
    status, _ = live.request("POST", f"{NODES}?waitFor=Bound", node("w-none"))
    assert status == 400


@pytest.mark.parametrize("path", [PODS, f"{PODS}/w-none/status", NODES, f"{NODES}/w-none"])
def test_only_one_pod_is_waited_for_and_what_else_asks_is_told(live, path):
    status, refused = live.request("GET", f"{path}?waitFor=Bound&timeoutSeconds=1")
    assert status == 400
    assert "waitFor" in refused["message"]


def test_a_dry_run_waits_for_nothing(live):
    path = f"{PODS}?waitFor=Bound&timeoutSeconds=60&dryRun=All"
    assert live.request("POST", path, pod("w-dry"))[0] == 201
    assert live.request("GET", f"{PODS}/w-dry")[0] == 404
