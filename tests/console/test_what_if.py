"""What if: a basket of changes beside today, shared and exported; nothing is changed."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from clusterstate.objects.wire import reading
from clusterstate.queries.scheduler.plans import find_plan, latest_plans
from scheduling.answers import advisor
from tests.clusterstate.support import create_node, manifest
from tests.console.conftest import allow, text
from tests.console.test_change import CHANGE, form_of, owned

WHAT_IF = "/console/what-if/"
ADD = f"{WHAT_IF}add"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: fresh, namespace: default}
spec: {containers: [{name: a, image: b}]}
"""
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n9}
status: {allocatable: {cpu: "8", memory: 16Gi, pods: "10"}}
"""


@pytest.fixture(autouse=True)
def two_nodes(db: None) -> None:
    create_node("n1")
    create_node("n2")
    owned("web-1", "n1")


def test_the_basket_shows_today_and_then(operator: Client) -> None:
    assert "The basket is empty" in text(operator.get(WHAT_IF))
    assert operator.post(ADD, {"do": "drain", "q": "n1"})["Location"] == WHAT_IF
    assert operator.post(ADD, {"text": f"{NODE}---\n{POD}"})["Location"] == WHAT_IF
    page = text(operator.get(WHAT_IF))
    for words in ("Drain n1", "Add n9", "Post fresh"):
        assert words in page
    assert re.search(r'>nodes</th><td class="n">2</td><td class="n">2</td>', page)
    assert re.search(r'pods that leave</th><td class="n">-</td><td class="n">1</td>', page)
    assert "default/fresh" in page
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    assert not latest_plans(limit=1), "looking keeps nothing"


def test_a_new_pod_that_fits_nowhere_is_named_with_the_reason(operator: Client) -> None:
    large = POD.replace("image: b", 'image: b, resources: {requests: {cpu: "99"}}')
    operator.post(ADD, {"text": large})
    page = text(operator.get(WHAT_IF))
    assert re.search(r"Pods that find no place.*default/fresh.*2 Insufficient cpu", page, re.DOTALL)
    assert re.search(r'pods that wait</th><td class="n">0</td><td class="n warn">1</td>', page)


def test_one_more_pod_like_another_is_asked_for_on_its_page(
    operator: Client, nobody: Client
) -> None:
    page = text(operator.get("/console/pods/default/web-1/"))
    assert 'name="like" value="default/web-1"' in page
    for _ in range(2):
        assert operator.post(ADD, {"like": "default/web-1"}).status_code == 302
    page = text(operator.get(WHAT_IF))
    for name in ("web-1-more-1", "web-1-more-2"):
        assert f'<tr><th scope="row">default/{name}</th>' in page
    assert operator.post(ADD, {"like": "default/none"}).status_code == 404
    assert nobody.post(ADD, {"like": "default/web-1"}).status_code == 403


def test_a_change_is_taken_out_and_all_of_them(operator: Client) -> None:
    operator.post(ADD, {"do": "drain", "q": "n1"})
    operator.post(ADD, {"do": "cordon", "q": "n2"})
    operator.post(f"{WHAT_IF}remove", {"at": "0"})
    page = text(operator.get(WHAT_IF))
    assert "Cordon n2" in page
    assert "Take out: Drain n1" not in page
    for wrong in ("7", "-1", "²", "9" * 5000):
        assert operator.post(f"{WHAT_IF}remove", {"at": wrong}).status_code == 400
    operator.post(f"{WHAT_IF}remove", {"at": "all"})
    assert "The basket is empty" in text(operator.get(WHAT_IF))


def test_a_preview_opens_as_a_what_if_and_a_basket_is_shared_as_a_plan(
    operator: Client, viewer: Client
) -> None:
    plan = form_of(text(operator.get(f"{CHANGE}?do=drain&node=n1"))).split("/")[3]
    operator.post(ADD, {"plan": plan})
    operator.post(ADD, {"do": "taint", "q": "n2", "key": "k", "effect": "NoSchedule"})
    address = operator.post(f"{WHAT_IF}share")["Location"]
    page = unescape(text(viewer.get(address)))
    assert "Drain n1; taint n2" in page
    assert "kubectl taint --overwrite nodes n2 k:NoSchedule" in page
    kept = find_plan(address.split("/")[3]).posted_document()["spec"]["changes"]
    for path in (f"{WHAT_IF}yaml", f"{address}yaml"):
        found: Any = reading.read_yaml(operator.get(path).content)
        assert found["kind"] == "Plan"
        assert found["spec"]["changes"] == kept
    again = operator.post(ADD, {"text": operator.get(f"{address}yaml").content.decode()})
    assert again.status_code == 302, "what was exported is read again"


def test_pages_count_the_objects_of_a_plan_that_their_reader_may_not_get(operator: Client) -> None:
    """As the API does; and nobody asks about them once more."""
    for more in ({"do": "evict", "pod": "default/web-1"}, {"do": "cordon", "q": "n2"}):
        operator.post(ADD, more)
    operator.post(ADD, {"text": POD.replace("fresh", "unseen")})
    address = operator.post(f"{WHAT_IF}share")["Location"]
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
        {"apiGroups": ["stowage.dev"], "resources": ["plans"], "verbs": ["get", "list", "create"]},
    ]
    lister = allow("lister", rules)
    for path in (address, "/console/plans/"):
        page = unescape(text(lister.get(path)))
        assert "Evict 1 that you may not read; cordon 1 that you may not read; post 1" in page
        assert "post unseen" not in page
    shown = unescape(text(lister.get(address)))
    assert '"kind":"Pod"' not in shown, "the command does not spell the pod out"
    assert "# and what you may not read" in shown
    plan = address.split("/")[3]
    assert lister.get(f"{address}yaml").status_code == 403
    assert lister.post(ADD, {"plan": plan}).status_code == 403
    assert "Evict default/web-1; cordon n2; post unseen" in unescape(text(operator.get(address)))


def test_what_is_wrong_is_told_with_nothing_lost(operator: Client) -> None:
    for wrong, code, word in (
        ("a: [", 400, "not valid YAML"),
        ("kind: Secret", 400, "Secret"),
        ("[]", 400, "not an object"),
        ("", 400, "the text has no object"),
        ("kind: Plan\nspec: {changes: 5}", 400, "spec.changes"),
        ("kind: Plan\nspec: {changes: [{drain: {nodes: 5}}]}", 422, "nodes"),
        ("kind: Plan\nspec: {changes: [{drain: {nodes: [nobody]}}]}", 422, "nobody"),
        (POD.replace("name: a,", ""), 422, "name"),
        ("kind: KubeSchedulerConfiguration\nprofiles: 7", 422, "profiles"),
        ("kind: Node\n---\nkind: Pod\nkind: Node", 400, "line 4 repeats 'kind'"),
    ):
        answer = operator.post(ADD, {"text": wrong})
        assert answer.status_code == code, wrong
        page = unescape(text(answer))
        assert word in page
        assert wrong in page
    assert "The basket is empty" in text(operator.get(WHAT_IF))
    many = "\n---\n".join(
        ["kind: Plan\nspec: {changes: [{cordon: {nodes: [n1]}}, {cordon: {nodes: [n2]}}]}"] * 26
    )
    assert "at most 50 changes" in text(operator.post(ADD, {"text": many}))


def test_a_change_stays_in_the_basket_when_no_advisor_answers(
    operator: Client, redis_client: object, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SERVES = True  # a process that serves asks an advisor, and there is none
    monkeypatch.setattr(advisor, "START_SECONDS", 0.1)
    added = operator.post(ADD, {"do": "drain", "q": "n1"}, follow=True)
    page = text(added)
    assert added.status_code == 200
    assert "Drain n1" in page
    assert "Try again" in page


def test_a_text_leads_to_its_preview(operator: Client) -> None:
    answer = operator.post(CHANGE, {"text": NODE})
    page = unescape(text(operator.get(answer["Location"])))
    assert "Add n9" in page
    assert "kubectl create -f - <<'END'" in page


def test_objects_of_other_kinds_are_imported(operator: Client) -> None:
    urgent = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\n"
    pod = POD.replace("spec: {", "spec: {priorityClassName: urgent, ")
    assert operator.post(ADD, {"text": f"{urgent}value: 7\n---\n{pod}"}).status_code == 302
    page = text(operator.get(WHAT_IF))
    assert "Import urgent" in page
    assert "Post fresh" in page


def test_who_may_make_no_plans_has_no_basket(nobody: Client) -> None:
    assert nobody.get(WHAT_IF).status_code == 403
    assert nobody.post(ADD, {"do": "drain", "q": "n1"}).status_code == 403
    assert nobody.post(f"{WHAT_IF}share").status_code == 403
