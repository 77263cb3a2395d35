"""A pod's page: submitting, submitting again, gates, permits, and the whole timeline."""

import html
import re
from datetime import timedelta
from typing import Any

from django.test import Client

from api import clock
from clusterstate.actions import objects
from clusterstate.actions.scheduler import reservations
from clusterstate.actions.scheduler.reservations import NewReservation
from clusterstate.models import Pod
from clusterstate.objects.values.actor import Actor, acting
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import reservations as reading
from scheduling.controllers.evictions import timekeeper
from tests.clock import NOW
from tests.clusterstate.support import bind, create_node, manifest, new_pod
from tests.console.conftest import allow, text

NEW = "/console/pods/new"
FORM = {
    "namespace": "default", "name": "fresh", "image": "nginx", "cpu": "500m", "memory": "64Mi",
    "selector": "disktype=ssd, zone=a", "tolerates": "dedicated", "gate": "example.com/ok",
}  # fmt: skip


def area(page: str) -> str:
    """Return the text that can be edited on a page."""
    found = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
    assert found, page
    return html.unescape(found.group(1))


def test_a_pod_is_submitted_by_the_form(operator: Client) -> None:
    assert "Node labels" in text(operator.get(NEW))
    answer = operator.post(NEW, {**FORM, "do": "create"})
    assert (answer.status_code, answer["Location"]) == (302, "/console/pods/default/fresh/")
    spec = manifest("Pod", "default", "fresh")["spec"]
    assert spec["nodeSelector"] == {"disktype": "ssd", "zone": "a"}
    assert spec["tolerations"][0]["key"] == "dedicated"
    assert spec["schedulingGates"] == [{"name": "example.com/ok"}]
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "64Mi"}


def test_what_is_wrong_stands_at_its_field_and_nothing_is_lost(operator: Client) -> None:
    answer = operator.post(NEW, {**FORM, "name": "Not A Name", "cpu": "-1", "do": "create"})
    page = html.unescape(text(answer))
    assert answer.status_code == 422
    assert re.search(r'id="f-name"[^>]*value="Not A Name"[^>]*aria-invalid="true"', page), page
    assert re.search(r'<p class="bad" id="e-cpu">[^<]+</p>', page), page
    assert 'value="example.com/ok"' in page
    assert not Pod.objects.exists()


def test_a_pod_is_submitted_by_yaml_and_by_example(operator: Client) -> None:
    for example in ("small", "gpu", "spread", "alone", "tainted", "gated"):
        page = text(operator.get(NEW, {"by": "yaml", "example": example}))
        answer = operator.post(f"{NEW}?by=yaml", {"text": area(page), "do": "create"})
        assert answer.status_code == 302, text(answer)
        assert manifest("Pod", "default", example)
    wrong = area(page).replace("nginx", "nginx\n    unknown: 5")
    answer = operator.post(f"{NEW}?by=yaml", {"text": wrong, "do": "create"})
    assert answer.status_code == 400
    assert "unknown: 5" in area(text(answer))
    assert "unknown field" in text(answer)
    assert operator.get(NEW, {"by": "yaml", "example": "none"}).status_code == 400


def test_a_check_creates_nothing_and_tells_what_would_be(operator: Client) -> None:
    answer = operator.post(NEW, {**FORM, "do": "check"})
    assert answer.status_code == 200
    assert "It can be created" in text(answer)
    assert "until its gates are removed: example.com/ok" in text(answer)
    assert 'value="500m"' in text(answer)
    assert not Pod.objects.exists()


def test_a_pod_is_edited_and_submitted_again(operator: Client, cluster: None) -> None:
    page = text(operator.get("/console/pods/default/web-1/"))
    (link,) = re.findall(r'href="(/console/pods/new[^"]*from=[^"]*)"', page)
    again = area(text(operator.get(html.unescape(link))))
    assert "name: web-1-again" in again
    for gone in ("nodeName", "uid", "status", "resourceVersion"):
        assert gone not in again
    answer = operator.post(f"{NEW}?by=yaml", {"text": again, "do": "create"})
    assert answer["Location"] == "/console/pods/default/web-1-again/"


def test_a_gate_is_removed(operator: Client, viewer: Client) -> None:
    new_pod("gated", schedulingGates=[{"name": "a.example/x"}, {"name": "b.example/y"}])
    path = "/console/pods/default/gated/"
    assert 'name="gate" value="a.example/x"' in text(operator.get(path))
    assert 'name="gate"' not in text(viewer.get(path))
    assert viewer.post(f"{path}gates", {"gate": "a.example/x"}).status_code == 403
    answer = operator.post(f"{path}gates", {"gate": "a.example/x"})
    assert (answer.status_code, answer["Location"]) == (302, path)
    assert manifest("Pod", "default", "gated")["spec"]["schedulingGates"] == [
        {"name": "b.example/y"}
    ]
    assert operator.post(f"{path}gates", {"gate": "a.example/x"}).status_code == 409
    assert operator.get(f"{path}gates").status_code == 400
    operator.post(f"{path}gates", {"gate": "b.example/y"})
    assert "schedulingGates" not in manifest("Pod", "default", "gated")["spec"]


def test_a_waiting_pod_is_allowed_or_rejected(operator: Client, viewer: Client) -> None:
    create_node("n1")
    path = "/console/pods/default/waits/"

    def wait(name: str) -> int:
        pod_id = new_pod(name)
        made = NewReservation(
            pod_id=pod_id, node_name="n1", profile="default-scheduler", profile_revision=0,
            step=reading.WAITING, attempts=1, waits={"Gatekeeper": NOW + timedelta(minutes=9)},
        )  # fmt: skip
        reservations.reserve([made], now=NOW)
        return pod_id

    first, second = wait("waits"), wait("other")
    assert "Gatekeeper" in text(operator.get(path))
    assert 'value="Allow"' in text(operator.get(path))
    assert 'value="Allow"' not in text(viewer.get(path))
    allow = {"plugin": "Gatekeeper", "decision": "Allow"}
    assert viewer.post(f"{path}permit", allow).status_code == 403
    assert operator.post(f"{path}permit", {**allow, "plugin": "Other"}).status_code == 422
    assert operator.post(f"{path}permit", allow).status_code == 302
    found = reading.find(first)
    assert found is not None
    assert found.waits == {}
    assert operator.post(f"{path}permit", allow).status_code == 404
    other = "/console/pods/default/other/permit"
    assert operator.post(other, {**allow, "decision": "Reject"}).status_code == 302
    found = reading.find(second)
    assert found is not None
    assert (found.step, found.plugin) == (reading.REFUSED, "Gatekeeper")
    assert "anna" in found.message


def test_the_timeline_tells_of_everything_that_happened(operator: Client) -> None:
    create_node("n1")
    pod_id = new_pod("busy", schedulingGates=[{"name": "a.example/x"}])
    path = "/console/pods/default/busy/"
    operator.post(f"{path}gates", {"gate": "a.example/x"})

    def label(pod: Any) -> Any:
        return {**pod, "metadata": {**pod["metadata"], "labels": {"team": "search"}}}

    objects.update("Pod", "default", "busy", label, now=NOW)
    assert bind(pod_id, "n1")
    objects.delete("Pod", "default", "busy", now=NOW)
    page = text(operator.get(path))
    timeline = page[page.index("<h2>Timeline</h2>") : page.index("<h2>Events</h2>")]
    words = ["termination requested", "bound", "changed", "gates changed", "created"]
    places = [timeline.index(f">{word}<") for word in words]
    assert places[-1] == max(places), "the oldest last"
    assert "metadata.labels" in timeline
    assert "anna" in timeline


def test_an_eviction_names_its_taint_and_who_set_it(operator: Client) -> None:
    create_node("n1")
    assert bind(new_pod("moved"), "n1")
    taint = {"key": "broken", "value": "disk", "effect": "NoExecute"}

    def tainted(node: Any) -> Any:
        return {**node, "spec": {**node["spec"], "taints": [taint]}}

    with acting(Actor("ann")):
        objects.update("Node", "", "n1", tainted, now=NOW)

    def is_gone() -> bool:
        return find_pod_id("default", "moved") is None

    later = clock.now().timestamp() + 5
    timekeeper.run(longest=60.0, clock=lambda: later, stopping=is_gone)
    told = "taint broken=disk:NoExecute on n1"
    assert f"{told}, set by ann" in text(operator.get("/console/pods/default/moved/"))
    narrow = allow("nora", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}])
    page = text(narrow.get("/console/pods/default/moved/"))
    assert told in page
    assert "set by ann" not in page
