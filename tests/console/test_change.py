"""The preview of a change is a plan: it says what then happens, and just that is carried out."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from api.console.plans import plan_forms
from api.server import health
from clusterstate.actions import objects
from clusterstate.objects.values.errors import NotFound
from clusterstate.queries.scheduler.plans import StoredPlan, find_plan, latest_plans
from scheduling.answers import advisor
from scheduling.controllers import operations
from tests.clock import NOW, after
from tests.clusterstate.support import bind, create_node, manifest, new_pod
from tests.console.conftest import allow, signed_in, text

CHANGE = "/console/change"
OWNER = [
    {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "6f4e0f86-0000-4000-8000-000000000001",
        "controller": True,
    }
]


def owned(name: str, node: str, **parts: Any) -> None:
    """Create a pod that a controller would make again, on a node."""
    assert bind(new_pod(name, **parts), node)

    def own(pod: Any) -> Any:
        return {**pod, "metadata": {**pod["metadata"], "ownerReferences": OWNER}}

    objects.update("Pod", "default", name, own, now=NOW)


def run(name: str) -> None:
    """Let a pod run, so that budgets count it."""

    def change(pod: Any) -> Any:
        return {**pod, "status": {**pod.get("status", {}), "phase": "Running"}}

    objects.update("Pod", "default", name, change, subresource="status", now=NOW)


def form_of(page: str) -> str:
    """Return where the preview's form goes."""
    found = re.search(r'action="(/console/plans/[^"]+/act)"', page)
    assert found, page
    return found.group(1)


def confirm(client: Client, page: str) -> Any:
    """Confirm the preview on a page; return the answer."""
    assert 'id="confirm"' in page, page
    return client.post(form_of(page), {"what": "apply"})


def carry_out(path: str) -> None:
    """Do the steps of the operation whose page a path is, as the worker does."""
    plan = find_plan(path.split("/")[3])
    while operations.carry_out(plan.id, after(1)):
        pass


def do(client: Client, query: str) -> str:
    """Open a preview, confirm it and let it be carried out; return the operation's page."""
    answer = confirm(client, text(client.get(f"{CHANGE}?{query}")))
    assert answer.status_code == 302, text(answer)
    carry_out(answer["Location"])
    return text(client.get(answer["Location"]))


def shown(page: str) -> StoredPlan:
    """Return the plan that a preview shows."""
    found = re.search(r"/console/plans/([^/]+)/act", page)
    assert found is not None
    return find_plan(found[1])


@pytest.fixture
def two_nodes() -> None:
    create_node("n1")
    create_node("n2")
    owned("web-1", "n1")
    owned("web-2", "n1")


def test_a_cordon_lets_nobody_leave(operator: Client, two_nodes: None) -> None:
    page = text(operator.get(f"{CHANGE}?do=cordon&node=n1"))
    assert "No pod is evicted or deleted" in page
    assert "kubectl cordon n1" in page
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    assert "All is done" in do(operator, "do=cordon&node=n1")
    assert manifest("Node", "", "n1")["spec"]["unschedulable"] is True
    do(operator, "do=uncordon&node=n1")
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]


def test_a_drain_tells_where_each_pod_lands_and_evicts_them(
    operator: Client, two_nodes: None
) -> None:
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert "Cordon and evict 2 pods" in page
    assert page.count('<a class="ok" href="/console/nodes/n2/">') == 2
    assert "the only node that fits" in page
    assert re.search(r'>nodes</th><td class="n">2</td><td class="n warn">1</td>', page)
    page = do(operator, "do=drain&node=n1")
    assert manifest("Node", "", "n1")["spec"]["unschedulable"] is True
    for name in ("web-1", "web-2"):
        assert manifest("Pod", "default", name)["metadata"]["deletionTimestamp"]
    assert "<b>3</b> of 3 steps done" in page
    assert "All is done" in page


def test_an_operation_is_paused_goes_on_is_cancelled_and_taken_back(
    operator: Client, two_nodes: None
) -> None:
    answer = confirm(operator, text(operator.get(f"{CHANGE}?do=cordon&node=n1&node=n2")))
    path = answer["Location"]

    def press(what: str) -> Any:
        return operator.post(f"{path}act", {"what": what})

    page = text(operator.get(path))
    assert "data-moving" in page
    assert 'value="pause"' in page
    press("pause")
    carry_out(path)
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    assert 'value="resume"' in text(operator.get(path, HTTP_HX_REQUEST="true"))
    press("resume")
    carry_out(path)
    assert "data-moving" not in text(operator.get(path, HTTP_HX_REQUEST="true"))
    assert manifest("Node", "", "n2")["spec"]["unschedulable"] is True
    assert press("pause").status_code == 409
    back = press("undo")["Location"]
    page = text(operator.get(back))
    assert "kubectl uncordon n2" in page
    assert press("nonsense").status_code == 400
    confirm(operator, page)
    press("cancel")
    carry_out(back)
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    listed = text(operator.get("/console/plans/"))
    assert "Cordon n1, n2" in listed
    assert "Done" in listed


def test_a_pod_that_nobody_makes_again_stays_unless_forced(operator: Client) -> None:
    create_node("n1")
    assert bind(new_pod("alone"), "n1")
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert "no controller would recreate it" in page
    assert "Include pods without a controller" in page
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1&force=on"))
    assert "not recreated: no controller owns it" in page
    do(operator, "do=drain&node=n1&force=on")
    assert manifest("Pod", "default", "alone")["metadata"]["deletionTimestamp"]


def test_pods_that_fit_nowhere_are_called_stuck(operator: Client) -> None:
    create_node("n1")
    create_node("n2", unschedulable=True)
    owned("web-1", "n1")
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert '<span class="bad">nowhere</span>' in page
    assert '<i class="nowhere"></i>find no node</dt><dd>1</dd>' in page
    assert "/console/pods/default/web-1/why" in page


def test_a_taint_tells_who_leaves_and_when(operator: Client) -> None:
    create_node("n1")
    create_node("n2")
    tolerated = {"key": "upgrade", "operator": "Exists", "effect": "NoExecute"}
    owned("leaves", "n1")
    owned("later", "n1", tolerations=[{**tolerated, "tolerationSeconds": 600}])
    owned("stays", "n1", tolerations=[tolerated])
    page = text(operator.get(f"{CHANGE}?do=taint&node=n1&key=upgrade&effect=NoExecute"))
    assert "default/leaves" in page
    assert "tolerated for 600 s" in page
    assert "default/stays" not in page
    assert "Taint node, 2 pods will leave" in page
    page = text(operator.get(f"{CHANGE}?do=taint&node=n1&key=upgrade&effect=NoSchedule"))
    assert "No pod is evicted or deleted" in page
    do(operator, "do=taint&node=n1&key=upgrade&value=now&effect=NoSchedule")
    (taint,) = manifest("Node", "", "n1")["spec"]["taints"]
    assert (taint["key"], taint["value"], taint["effect"]) == ("upgrade", "now", "NoSchedule")
    do(operator, "do=untaint&node=n1&key=upgrade")
    assert not manifest("Node", "", "n1")["spec"].get("taints")


def test_an_edit_changes_what_was_edited_and_keeps_what_others_changed(operator: Client) -> None:
    create_node("n1", labels={"a": "1", "b": "2"})
    query = (
        "do=edit&node=n1&had_label_key=a&had_label_value=1&had_label_key=b&had_label_value=2"
        "&label_key=a&label_value=9&label_key=c&label_value=3"
        "&taint_key=k&taint_value=v&taint_effect=NoSchedule"
    )
    page = text(operator.get(f"{CHANGE}?{query}"))
    assert "kubectl label --overwrite nodes n1 a=9 c=3 b-" in page

    def other(node: Any) -> Any:
        labels = {**node["metadata"]["labels"], "other": "yes"}
        return {**node, "metadata": {**node["metadata"], "labels": labels}}

    objects.update("Node", "", "n1", other, now=NOW)
    do(operator, query)
    stored = manifest("Node", "", "n1")
    labels = stored["metadata"]["labels"]
    assert {key: labels.get(key) for key in ("a", "b", "c", "other")} == {
        "a": "9", "b": None, "c": "3", "other": "yes",
    }  # fmt: skip
    assert [one["key"] for one in stored["spec"]["taints"]] == ["k"]
    unchanged = "do=edit&node=n1&had_label_key=a&had_label_value=9&label_key=a&label_value=9"
    assert "There is no change to preview" in text(operator.get(f"{CHANGE}?{unchanged}"))


def test_who_edits_what_others_changed_meanwhile_is_told_before_it_is_done(
    operator: Client,
) -> None:
    taint = {"key": "maint", "value": "bobs", "effect": "NoSchedule"}
    create_node("n1", labels={"a": "5", "b": "2", "c": "3"}, taints=[taint])
    form = (
        "do=edit&node=n1&had_label_key=a&had_label_value=1&had_label_key=b&had_label_value=2"
        "&had_label_key=c&had_label_value=1&had_label_key=gone&had_label_value=1"
        "&label_key=a&label_value=9&label_key=b&label_value=7&label_key=c&label_value=3"
        "&label_key=gone&label_value=2&taint_key=maint&taint_value=mine&taint_effect=NoSchedule"
    )
    page = text(operator.get(f"{CHANGE}?{form}"))
    assert overtaken(page) == {
        "label a": ["1", "5", "9"],
        "label gone": ["1", "not there", "2"],
        "taint maint:NoSchedule": ["not there", "bobs", "mine"],
    }
    form = (
        "do=resize&node=n1&resource=cpu&had_amount=2&amount=8&resource=pods&had_amount=1&amount=1"
    )
    assert overtaken(text(operator.get(f"{CHANGE}?{form}"))) == {"cpu": ["2", "4", "8"]}
    form = "do=edit&node=n1&had_label_key=b&had_label_value=2&label_key=b&label_value=7"
    assert overtaken(text(operator.get(f"{CHANGE}?{form}"))) == {}


def overtaken(page: str) -> dict[str, list[str]]:
    """Return the rows of what others changed: what, and three values each."""
    _, _, rest = page.partition('aria-label="What others changed"')
    rows = re.findall(r"<tr><th scope=.row.>([^<]+)</th>(.*?)</tr>", rest.partition("</table>")[0])
    return {what: re.findall(r"<td[^>]*>([^<]*)</td>", cells) for what, cells in rows}


def test_a_node_is_resized(operator: Client, two_nodes: None) -> None:
    page = do(operator, "do=resize&node=n1&resource=cpu&amount=64")
    assert "--subresource=status" in page
    assert manifest("Node", "", "n1")["status"]["allocatable"]["cpu"] == "64"
    answer = operator.get(f"{CHANGE}?do=resize&node=n1&resource=cpu&amount=much")
    assert answer.status_code == 422
    assert "amounts[cpu]" in text(answer)


def test_a_changed_outcome_is_shown_before_anything_is_done(
    operator: Client, two_nodes: None
) -> None:
    before = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    owned("web-3", "n1")
    answer = confirm(operator, before)
    assert answer.status_code == 409
    assert "Nothing was done" in text(answer)
    assert "<td>not affected</td><td>leaves n1 by drain of node n1; lands on n2</td>" in text(
        answer
    )
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    assert form_of(text(answer)) != form_of(before)
    assert confirm(operator, text(answer)).status_code == 302


def test_what_is_wrong_is_told_and_nothing_is_done(operator: Client, two_nodes: None) -> None:
    answer = operator.get(f"{CHANGE}?do=edit&node=n1&label_key=not+a+key&label_value=x")
    assert answer.status_code == 422
    assert "metadata.labels" in text(answer)
    assert operator.get(CHANGE)["Location"] == "/console/what-if/"
    for query in (
        "do=nothing",
        "do=drain",
        "do=taint&node=n1",
        "do=evict",
        "do=drain&node=n1&grace=x",
    ):
        assert operator.get(f"{CHANGE}?{query}").status_code == 400
    for query in ("do=drain&node=missing", "do=evict&pod=x", "do=evict&pod=default/nobody"):
        assert operator.get(f"{CHANGE}?{query}").status_code == 422
    assert operator.get("/console/plans/plan-of-nobody/").status_code == 404
    assert not latest_plans(limit=1)


def test_a_budget_holds_a_drain_back_and_the_page_says_so(
    operator: Client, two_nodes: None
) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {}},
    }
    objects.create("PodDisruptionBudget", "default", budget, now=NOW)
    run("web-1")
    run("web-2")
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert page.count("held back by PodDisruptionBudget default/web") == 2
    page = do(operator, "do=drain&node=n1")
    assert "<b>1</b> of 3 steps done" in page
    assert "2 held back" in page
    page = do(operator, "do=delete-pod&pod=default/web-1")
    assert "All is done" in page, "whatever its budget says"


def test_a_viewer_may_look_and_not_do(viewer: Client, two_nodes: None) -> None:
    page = text(viewer.get(f"{CHANGE}?do=drain&node=n1"))
    assert "Pods that leave" in page
    assert 'id="confirm"' not in page
    assert viewer.post(form_of(page), {"what": "apply"}).status_code == 403
    for path in ("/console/nodes/n1/", "/console/pods/default/web-1/", "/console/nodes/"):
        page = text(viewer.get(path))
        assert "do=" not in page
        assert 'id="chosen"' not in page


def test_a_right_that_one_change_lacks_is_named(two_nodes: None) -> None:
    resources = ["plans", "plans/apply"]
    pia = allow(
        "pia",
        [
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]},
            {"apiGroups": ["stowage.dev"], "resources": resources, "verbs": ["get", "create"]},
        ],
    )
    page = unescape(text(pia.get(f"{CHANGE}?do=drain&node=n1")))
    assert 'allow you to apply this change. Missing right: nodes "n1" is forbidden' in page
    assert pia.post(form_of(page), {"what": "apply"}).status_code == 403
    assert find_plan(form_of(page).split("/")[3]).state == "Planned"


def test_who_works_in_one_namespace_evicts_without_a_plan(two_nodes: None) -> None:
    ned = allow(
        "ned",
        [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete"]},
            {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        ],
        namespace="default",
    )
    for what, name in (("evict", "web-1"), ("delete-pod", "web-2")):
        address = f"{CHANGE}?do={what}&pod=default/{name}"
        page = text(ned.get(address))
        assert "To see where their replacements land, you need" in page
        uid = manifest("Pod", "default", name)["metadata"]["uid"]
        assert f'value="{uid}"' in page
        assert ned.post(address, {"seen": "another"}).status_code == 409
        assert "deletionTimestamp" not in manifest("Pod", "default", name)["metadata"]
        assert ned.post(address, {"seen": uid}).status_code == 302
        assert manifest("Pod", "default", name)["metadata"]["deletionTimestamp"]
    assert ned.get(f"{CHANGE}?do=evict&pod=other/web-1").status_code == 403
    assert ned.get(f"{CHANGE}?do=drain&node=n1").status_code == 403
    assert not latest_plans(limit=1)


def test_without_an_advisor_the_plain_action_stays_possible(
    operator: Client, two_nodes: None, settings: Any, monkeypatch: pytest.MonkeyPatch,
    redis_client: object,
) -> None:  # fmt: skip
    """No answer is told as such; a cordon, a taint and an eviction are done without a preview."""
    monkeypatch.setattr(advisor, "START_SECONDS", 0.0)
    monkeypatch.setattr(health, "CHECKS", [lambda: iter(())])  # its thread has no database here
    plan = shown(text(operator.get(f"{CHANGE}?do=cordon&node=n2")))
    apply = f"/console/plans/{plan.name}/act"
    settings.SERVES = True
    advisor.client.cache_clear()
    try:
        answer = operator.get(f"{CHANGE}?do=drain&node=n1")
        assert answer.status_code == 200
        assert "No preview: no advisor is running" in text(answer)
        assert "Cordon now, evict later" in text(answer)
        assert operator.post(f"{CHANGE}?do=drain&node=n1", {"plain": "1"}).status_code == 302
        taint = f"{CHANGE}?do=taint&node=n2&key=bad&effect=NoSchedule"
        assert operator.post(taint, {"plain": "1"}).status_code == 302
        resize = f"{CHANGE}?do=resize&node=n2&resource=cpu&amount=9"
        assert operator.post(resize, {"plain": "1"}).status_code == 400
        evict = f"{CHANGE}?do=evict&pod=default/web-1"
        page = text(operator.get(evict))
        assert "No preview: no advisor is running" in page
        uid = manifest("Pod", "default", "web-1")["metadata"]["uid"]
        assert operator.post(evict, {"seen": uid}).status_code == 302
        answer = operator.post(apply, {"what": "apply"})
        assert answer.status_code == 200
        assert "Nothing was done: the prediction could not be checked again" in text(answer)
        assert '<option value="nothing">' in text(answer)
        unchecked = {"what": "apply", "holding": "nothing"}
        assert operator.post(apply, unchecked).status_code == 302
    finally:
        health.end()
        advisor.client.cache_clear()
    assert manifest("Node", "", "n1")["spec"]["unschedulable"] is True
    assert manifest("Node", "", "n2")["spec"]["taints"][0]["key"] == "bad"
    assert manifest("Pod", "default", "web-1")["metadata"]["deletionTimestamp"]


def test_who_may_make_no_plans_cordons_and_deletes_nodes_without_a_preview(
    two_nodes: None,
) -> None:
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}
    ned = allow("ned", [nodes])
    page = ned.get(f"{CHANGE}?do=cordon&node=n1")
    assert page.status_code == 200
    assert "No preview: plans.stowage.dev is forbidden" in text(page)
    assert ned.post(f"{CHANGE}?do=cordon&node=n1", {"plain": "1"}).status_code == 302
    assert manifest("Node", "", "n1")["spec"]["unschedulable"] is True
    assert ned.get(f"{CHANGE}?do=delete&node=n1").status_code == 403
    assert ned.post(f"{CHANGE}?do=delete&node=n1", {"plain": "1"}).status_code == 403
    both = allow("nora", [{**nodes, "verbs": ["delete"]}])
    assert both.post(f"{CHANGE}?do=delete&node=n2", {"plain": "1"}).status_code == 302
    with pytest.raises(NotFound):
        manifest("Node", "", "n2")


def test_pods_are_evicted_and_deleted_by_preview(operator: Client, two_nodes: None) -> None:
    page = text(operator.get(f"{CHANGE}?do=evict&pod=default/web-1"))
    assert "evicted by name" in page
    assert "Evict 1 pod" in page
    do(operator, "do=evict&pod=default/web-1")
    do(operator, "do=delete-pod&pod=default/web-2")
    for name in ("web-1", "web-2"):
        assert manifest("Pod", "default", name)["metadata"]["deletionTimestamp"]


def test_deleting_a_node_tells_of_its_pods(two_nodes: None) -> None:
    page = text(signed_in("root", superuser=True).get(f"{CHANGE}?do=delete&node=n1"))
    assert "are garbage-collected" in page
    assert "Delete node, 2 pods will leave" in page


def test_a_query_tells_nothing_to_who_may_not_list_nodes(nobody: Client, two_nodes: None) -> None:
    answer = nobody.get(f"{CHANGE}?do=cordon&q=n1")
    assert answer.status_code == 403
    assert "cannot list resource" in text(answer)


def test_a_command_to_copy_holds_words_and_no_commands() -> None:
    taint = {"key": "a;$(id)", "value": "b`id`", "effect": "NoExecute"}
    changes: list[dict[str, Any]] = [
        {"taint": {"nodes": ["n1"], "taints": [taint]}},
        {"label": {"nodes": ["$(id)"], "set": {"a": "b; id"}}},
        {"evict": {"pods": ["a/b`id`"], "disableEviction": True}},
        {"pods": {"objects": [{"kind": "Pod", "metadata": {"name": "x\nEND\nid"}}]}},
    ]
    assert plan_forms.kubectl(changes).split("\n") == [
        "kubectl taint --overwrite nodes n1 'a;$(id)=b`id`:NoExecute'",
        "kubectl label --overwrite nodes '$(id)' 'a=b; id'",
        "kubectl delete pod -n a 'b`id`'",
        "kubectl create -f - <<'END'",
        '{"kind":"Pod","metadata":{"name":"x\\nEND\\nid"}}',
        "END",
    ]


@pytest.mark.parametrize("what", ["evict", "delete-pod"])
def test_another_pod_of_the_same_name_is_not_the_one_that_was_shown(
    operator: Client, two_nodes: None, what: str
) -> None:
    page = text(operator.get(f"{CHANGE}?do={what}&pod=default/web-1"))
    objects.delete("Pod", "default", "web-1", {"gracePeriodSeconds": 0}, now=NOW)
    owned("web-1", "n1")
    assert confirm(operator, page).status_code == 409
    assert "deletionTimestamp" not in manifest("Pod", "default", "web-1")["metadata"]


def test_without_an_advisor_the_page_says_what_to_do_instead(
    operator: Client,
    two_nodes: None,
    redis_client: object,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.SERVES = True  # a process that serves asks an advisor, and there is none
    monkeypatch.setattr(advisor, "START_SECONDS", 0.1)
    answer = operator.get(f"{CHANGE}?do=cordon&node=n1")
    assert answer.status_code == 200
    assert "no advisor is running" in text(answer)
    assert escape("kubectl cordon n1") in text(answer)


def test_a_nodes_form_asks_for_the_amounts_that_differ(operator: Client) -> None:
    create_node("n1", allocatable={"nvidia.com/gpu": "2"})
    page = text(operator.get("/console/nodes/n1/"))
    assert 'name="had_amount" value="4"' in page
    rows = {"resource": ["cpu", "nvidia.com/gpu", "x.io/fpga"], "amount": ["6", "2", "1"]}
    asked_for = {"do": "resize", "node": "n1", **rows, "had_amount": ["4", "2", ""]}
    page = text(operator.get(CHANGE, asked_for))
    plan = shown(page)
    (change,) = plan.posted_document()["spec"]["changes"]
    assert change == {"resize": {"nodes": ["n1"], "amounts": {"cpu": "6", "x.io/fpga": "1"}}}
    confirm(operator, page)
    while operations.carry_out(plan.id, NOW):
        pass
    status = manifest("Node", "", "n1")["status"]
    assert (status["allocatable"]["cpu"], status["allocatable"]["x.io/fpga"]) == ("6", "1")
    same = {"do": "resize", "node": "n1", "resource": "cpu", "amount": "6", "had_amount": "6"}
    assert "There is no change to preview" in text(operator.get(CHANGE, same))


def test_a_deployment_is_scaled_by_its_preview(operator: Client, viewer: Client) -> None:
    create_node("n1")
    template = {
        "metadata": {"labels": {"app": "shop"}},
        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "shop"}}, "template": template}
    shop = {"metadata": {"name": "shop"}, "spec": spec}
    objects.create("Deployment", "default", shop, now=NOW)
    path = "/console/objects/Deployment/default/shop/"
    assert 'id="replicas" type="number" min="0" value="1"' in text(operator.get(path))
    assert 'id="replicas"' not in text(viewer.get(path))
    whose = {"do": "scale", "kind": "Deployment", "namespace": "default", "name": "shop"}
    page = text(operator.get(CHANGE, {**whose, "replicas": "3"}))
    assert "Scale to 3" in page
    assert f'href="{path}">Cancel' in page
    confirm(operator, page)
    while operations.carry_out(latest_plans(limit=1)[0].id, NOW):
        pass
    assert manifest("Deployment", "default", "shop")["spec"]["replicas"] == 3
    for wrong in ({"replicas": "many"}, {"replicas": "-1"}, {"replicas": "1", "kind": "Job"}):
        assert operator.get(CHANGE, {**whose, **wrong}).status_code == 400


def test_a_rebalance_is_asked_for_by_a_form_with_how_its_pods_leave(
    operator: Client, two_nodes: None
) -> None:
    def preview(query: str) -> tuple[StoredPlan, str]:
        """Return the plan to which an open page is led once it is made, and its page."""
        answer = operator.get(f"{CHANGE}?{query}", headers={"HX-Request": "true"})
        page = text(operator.get(answer["HX-Redirect"]))
        return shown(page), page

    assert 'name="do" value="rebalance"' in text(operator.get("/console/plans/"))
    plan, page = preview("do=rebalance&selector=&most=1&per_hour=20&hold=on")
    spec = plan.posted_document()["spec"]
    assert spec.pop("changes") == [{"drain": {"nodes": ["n1"]}}]
    assert spec == {"holdPlaces": True, "podsPerHour": 20}
    assert all(one["place"] == "n2" for one in plan.to_do() if one["do"] == "evict")
    assert "No pod is evicted before room for its replacement is reserved" in page
    assert "At most 20 pods leave in an hour" in page
    told = text(operator.get(f"/console/plans/{plan.name}/yaml"))
    assert "holdPlaces: true" in told
    assert "podsPerHour: 20" in told
    mended, _ = preview("do=rebalance&objective=ToMendSoftRules&most=5&hold=on")
    assert mended.posted_document()["spec"]["changes"] == [
        {"rebalance": {"objective": "ToMendSoftRules", "mostPods": 5}}
    ], "as no rule is unmet, nothing moves"
    daily, _ = preview("do=rebalance&per_hour=9&hold=on&schedule=@daily")
    assert daily.posted_document()["spec"]["schedule"] == "@daily"
    assert "there is no PodGroup with waiting pods" in text(
        operator.get(f"{CHANGE}?do=rebalance&group=default/g&hold=on")
    )
    without, _ = preview("do=rebalance")
    assert not any("place" in one for one in without.to_do())
    none = text(operator.get(f"{CHANGE}?do=rebalance&per_hour=0"))
    assert "must be at least 1" in none, "and not without a limit"
    wrong = operator.get(f"{CHANGE}?do=rebalance&per_hour=many")
    assert "per_hour: must be a number of pods" in text(wrong)
    assert "there is no pending pod of this name" in text(
        operator.get(f"{CHANGE}?do=rebalance&pod=default/web-1")
    )
