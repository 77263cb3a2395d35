"""Every page answers, to those who may see it."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from api.console.page import layout
from api.console.pods import reasons
from api.console.pods.reasons import preview_of
from clusterstate.actions import objects
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.objects.registry.kinds import ALL_KINDS
from scheduling.answers import advisor
from tests.clock import NOW
from tests.clusterstate.support import manifest, new_pod
from tests.console.conftest import signed_in, text

REFUSAL = "0/3 nodes are available: 3 Insufficient cpu."
PAGES = {
    "/console/": "Fleet",
    "/console/fleet/beside": REFUSAL,
    "/console/nodes/": "node-n1",
    "/console/nodes/n1/": "default/web-1",
    "/console/pods/": "default/web-1",
    "/console/pods/?waiting=yes": REFUSAL,
    "/console/pods/default/web-1/": "3.5 CPU",
    "/console/pods/default/big/": REFUSAL,
    "/console/pods/default/big/why": "Insufficient cpu",
    "/console/pods/new": "Node labels",
    "/console/pods/new?by=yaml": "kind: Pod",
    "/console/devices/": "No driver has published devices",
    "/console/decisions/": "No decisions match these filters",
    "/console/waiting/": "Insufficient cpu",
    "/console/evictions/": "No evictions are scheduled",
    "/console/plans/": "No plans yet",
    "/console/what-if/": "The basket is empty",
    "/console/audit/": "No requests match these filters",
    "/console/policies/": "KubeSchedulerConfiguration",
    "/console/policies/plugins": "NodeResourcesFit",
    "/console/policies/plugins?old=0": "No differences",
    "/console/nodes/advice": "instance-type",
    "/console/policies/comparisons": "Replay: compare configurations",
    "/console/policies/canaries/": "No configuration is on trial",
    "/console/objects/RuntimeClass/": "There is none",
    "/console/objects/Namespace/": "kube-system",
    "/console/objects/Namespace/-/default/": "kind: Namespace",
}


@pytest.fixture
def waiting(cluster: None) -> None:
    pod = new_pod("big", cpu="64")
    refusal = Unschedulable(pod_id=pod, message=REFUSAL, rejected_by=("NodeResourcesFit",))
    set_unschedulable([refusal], now=NOW)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_what_it_is_for(operator: Client, waiting: None, path: str) -> None:
    answer = operator.get(path)
    assert answer.status_code == 200, text(answer)[:2000]
    assert PAGES[path] in text(answer)
    assert "unsafe" not in answer["Content-Security-Policy"]


def test_what_helps_a_group_leads_to_its_preview(operator: Client, cluster: None) -> None:
    pod = new_pod("picky", nodeSelector={"disktype": "nvme"})
    refusal = Unschedulable(pod_id=pod, message="no", rejected_by=("NodeAffinity",))
    set_unschedulable([refusal], now=NOW)
    page = text(operator.get("/console/waiting/"))
    assert "places 1 of the 1 pod tried" in page
    found = re.search(r'href="(/console/change\?do=edit[^"]*label_value=nvme[^"]*)"', page)
    assert found, page
    preview = text(operator.get(html.unescape(found.group(1))))
    assert "disktype=nvme" in preview


def test_what_helps_a_pod_comes_as_a_part_of_why_it_waits(
    operator: Client, nobody: Client, cluster: None
) -> None:
    new_pod("picky", nodeSelector={"disktype": "nvme"})
    page = text(operator.get("/console/pods/default/picky/why"))
    (address,) = re.findall(r'id="helps" data-asks hx-get="([^"]+)"', page)
    assert nobody.get(address).status_code == 403
    part = text(operator.get(address, headers={"HX-Request": "true"}))
    assert "places 1 of the 1 pod tried" in part
    assert "label_value=nvme" in part, "one click from its preview"
    new_pod("easy")
    assert 'id="helps"' not in text(operator.get("/console/pods/default/easy/why"))


def test_without_an_advisor_the_queues_own_words_are_shown(
    operator: Client,
    waiting: None,
    redis_client: object,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.SERVES = True  # a process that serves asks an advisor, and there is none
    monkeypatch.setattr(advisor, "START_SECONDS", 0.1)
    page = text(operator.get("/console/waiting/"))
    assert REFUSAL in page
    assert "no advisor is running" in page
    answer = operator.get("/console/pods/default/big/why")
    page = answer.content.decode()
    assert answer.status_code == 503
    assert "<h1>Not available right now</h1>" in page
    assert 'href="/console/pods/default/big/"' in page, "a way on"


@pytest.mark.usefixtures("waiting")
def test_busy_advisors_are_named_and_not_asked_again_by_every_page(
    operator: Client, redis_client: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An advisor lives, and works on other questions all the time."""
    settings.SERVES = True
    monkeypatch.setattr(layout, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(advisor, "_MARGIN_SECONDS", 0.1)
    redis_client.set(advisor.ANYBODY, "1")
    reasons._groups.forget()
    posed = []
    ask = advisor.ask

    def counted(name: str, document: object, **more: Any) -> Any:
        posed.append(name)
        return ask(name, document, deadline=0.2)

    monkeypatch.setattr(reasons._groups, "_put", counted)
    for _ in range(3):
        page = text(operator.get("/console/waiting/"))
        assert REFUSAL in page
        assert "the advisors are busy" in page
    assert posed == ["waiting-groups"]
    for address, on in (
        ("pods/default/big/why", 'href="/console/pods/default/big/"'),
        ("pods/default/big/why/helps", ""),
        ("pods/default/big/why/columns", ""),
    ):
        answer = operator.get(f"/console/{address}")
        assert answer.status_code == 503
        page = answer.content.decode()
        assert "the advisors are busy" in page, address
        assert on in page


def test_a_remedy_of_a_pod_has_no_preview_and_those_of_nodes_have_one() -> None:
    def of(target: str, **edit: object) -> str:
        return preview_of({"target": target, "edits": [edit], "names": ["n1", "n2"]})

    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    assert of("Pod", action="Tolerate", toleration=taint) == ""
    assert of("Node", action="Uncordon") == "do=uncordon&node=n1"
    assert of("Node", action="Untaint", taint=taint) == (
        "do=edit&node=n1&had_taint_key=dedicated&had_taint_value=gpu&had_taint_effect=NoSchedule"
    )
    assert of("Node", action="Label", labels={"a": "1", "b": None}) == (
        "do=edit&node=n1&label_key=a&label_value=1&had_label_key=b&had_label_value="
    )


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_a_right_to_it(nobody: Client, waiting: None, path: str) -> None:
    answer = nobody.get(path)
    if path == "/console/policies/":
        assert "Namespace" not in text(answer)
    else:
        assert answer.status_code == 403


def test_objects_of_every_kind_are_listed(operator: Client) -> None:
    for kind in ALL_KINDS:
        answer = operator.get(f"/console/objects/{kind.name}/")
        assert answer.status_code == 200, kind.name
    assert operator.get("/console/objects/Nothing/").status_code == 400


def test_yaml_is_saved_and_what_is_wrong_is_told_with_nothing_lost(operator: Client) -> None:
    path = "/console/objects/Namespace/-/default/"
    answer = operator.get(path)
    given = answer.context["text"] if answer.context else ""
    assert "name: default" in given
    labelled = given.replace("  labels:\n", "  labels:\n    team: search\n", 1)
    assert labelled != given
    assert operator.post(path, {"text": labelled}).status_code == 302
    assert manifest("Namespace", "", "default")["metadata"]["labels"]["team"] == "search"
    answer = operator.post(path, {"text": labelled.replace("search", "ads")})
    assert answer.status_code == 409
    assert "team: ads" in text(answer)
    fresh = operator.get(path).context["text"].replace("team: search", "team: not a value")
    answer = operator.post(path, {"text": fresh})
    assert answer.status_code == 422
    assert "metadata.labels" in text(answer)
    assert "team: not a value" in text(answer)
    for wrong, code in (("a: [", 400), ("[]", 400), ("kind: Pod", 400)):
        assert operator.post(path, {"text": wrong}).status_code == code
    assert signed_in("reader").post(path, {"text": labelled}).status_code == 403


def test_what_others_changed_meanwhile_is_put_together_with_an_edit(operator: Client) -> None:
    path = "/console/objects/Namespace/-/default/"
    given = operator.get(path).context["text"]

    def label(stored: Any) -> Any:
        labels = {**stored["metadata"].get("labels", {}), "theirs": "yes"}
        return {**stored, "metadata": {**stored["metadata"], "labels": labels}}

    objects.update("Namespace", "", "default", label, now=NOW)
    edited = given.replace("  labels:\n", "  labels:\n    mine: yes-too\n", 1)
    answer = operator.post(path, {"text": edited})
    assert answer.status_code == 409
    assert "metadata.labels.theirs" in text(answer)
    merged = answer.context["text"]
    assert "theirs:" in merged
    assert "mine: yes-too" in merged
    assert operator.post(path, {"text": merged}).status_code == 302
    labels = manifest("Namespace", "", "default")["metadata"]["labels"]
    assert (labels["mine"], labels["theirs"]) == ("yes-too", "yes")


def test_yaml_is_checked_like_the_body_of_a_put(operator: Client, cluster: None) -> None:
    path = "/console/objects/Node/-/n1/"
    before = manifest("Node", "", "n1")
    version = before["metadata"]["resourceVersion"]
    head = f"kind: Node\nmetadata: {{name: n1, resourceVersion: '{version}'"
    for wrong, word in (
        ("metadata: [1]", "metadata"),
        ("metadata: text", "metadata"),
        (f"{head}}}\nspec: 5", "spec"),
        (f"{head}}}\nspec: {{taints: text}}", "taints"),
        (f"{head}, labels: [a]}}", "labels"),
        (f"{head}}}\nspec: {{unschedulabel: true}}", "unknown field"),
        (f"apiVersion: v7\n{head}}}", "v7"),
    ):
        answer = operator.post(path, {"text": wrong})
        assert answer.status_code == 400, wrong
        assert word in text(answer)
    assert manifest("Node", "", "n1") == before


def test_a_pods_page_shows_decisions_and_events_to_who_may_read_them(cluster: None) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    role = {"metadata": {"name": "pods-only"}, "rules": rules}
    objects.create("ClusterRole", "", role, now=NOW)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    person = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "pia"}
    binding = {
        "metadata": {"name": "pia"},
        "roleRef": {**reference, "name": "pods-only"},
        "subjects": [person],
    }
    objects.create("ClusterRoleBinding", "", binding, now=NOW)
    event = {
        "metadata": {"name": "web-1.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web-1"},
        "message": "a word about it",
        "type": "Normal",
        "reason": "Told",
    }
    objects.create("Event", "default", event, now=NOW)
    pia, path = signed_in("pia"), "/console/pods/default/web-1/"
    answer = pia.get(path)
    assert answer.status_code == 200
    assert "a word about it" not in text(answer)
    assert pia.get(f"{path}why").status_code == 403
    page = text(pia.get("/console/waiting/"))
    assert "The scheduler's last messages are shown" in page
    assert "waitinggroups" in page
    assert "a word about it" in text(signed_in("olga", superuser=True).get(path))
