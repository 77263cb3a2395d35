"""The preview of a change says what then happens, and nothing happens that was not shown."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from clusterstate.actions import objects
from tests.clock import NOW
from tests.clusterstate.support import bind, create_node, manifest, new_pod
from tests.console.conftest import signed_in, text

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


def seen(page: str) -> str:
    found = re.search(r'name="seen" value="(\w+)"', page)
    assert found, page
    return found.group(1)


def confirmed(client: Client, query: str) -> Any:
    """Open a preview and confirm it."""
    address = f"{CHANGE}?{query}"
    return client.post(address, {"seen": seen(text(client.get(address)))})


@pytest.fixture
def two_nodes() -> None:
    create_node("n1")
    create_node("n2")
    owned("web-1", "n1")
    owned("web-2", "n1")


def test_a_cordon_lets_nobody_leave(operator: Client, two_nodes: None) -> None:
    page = text(operator.get(f"{CHANGE}?do=cordon&node=n1"))
    assert "No pod leaves" in page
    assert "kubectl cordon n1" in page
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    answer = confirmed(operator, "do=cordon&node=n1")
    assert answer["Location"] == "/console/nodes/n1/"
    assert manifest("Node", "", "n1")["spec"]["unschedulable"] is True
    confirmed(operator, "do=uncordon&node=n1")
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]


def test_a_drain_tells_where_each_pod_lands_and_evicts_them(
    operator: Client, two_nodes: None
) -> None:
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert "Cordon and evict 2 pods" in page
    assert page.count('<a class="ok" href="/console/nodes/n2/">') == 2
    answer = confirmed(operator, "do=drain&node=n1")
    assert answer["Location"] == "/console/drained?node=n1"
    assert manifest("Node", "", "n1")["spec"]["unschedulable"] is True
    for name in ("web-1", "web-2"):
        assert manifest("Pod", "default", name)["metadata"]["deletionTimestamp"]
    assert "The drain is done" in text(operator.get("/console/drained?node=n1"))


def test_a_pod_that_nobody_makes_again_stays_unless_forced(operator: Client) -> None:
    create_node("n1")
    assert bind(new_pod("alone"), "n1")
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert "no controller makes it again" in page
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1&force=on"))
    assert "nobody makes it again" in page
    confirmed(operator, "do=drain&node=n1&force=on")
    assert manifest("Pod", "default", "alone")["metadata"]["deletionTimestamp"]


def test_pods_that_fit_nowhere_are_called_stuck(operator: Client) -> None:
    create_node("n1")
    create_node("n2", unschedulable=True)
    owned("web-1", "n1")
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert '<span class="bad">nowhere</span>' in page
    assert '<dt>find none</dt><dd class="bad">1</dd>' in page


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
    assert "No pod leaves" in page
    confirmed(operator, "do=taint&node=n1&key=upgrade&value=now&effect=NoSchedule")
    (taint,) = manifest("Node", "", "n1")["spec"]["taints"]
    assert (taint["key"], taint["value"], taint["effect"]) == ("upgrade", "now", "NoSchedule")


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
    assert confirmed(operator, query).status_code == 302
    stored = manifest("Node", "", "n1")
    labels = stored["metadata"]["labels"]
    assert {key: labels.get(key) for key in ("a", "b", "c", "other")} == {
        "a": "9", "b": None, "c": "3", "other": "yes",
    }  # fmt: skip
    assert [one["key"] for one in stored["spec"]["taints"]] == ["k"]


def test_a_changed_outcome_is_shown_before_anything_is_done(
    operator: Client, two_nodes: None
) -> None:
    address = f"{CHANGE}?do=drain&node=n1"
    before = seen(text(operator.get(address)))
    owned("web-3", "n1")
    answer = operator.post(address, {"seen": before})
    assert answer.status_code == 409
    assert "the outcome is another one. Nothing was done" in text(answer)
    assert "web-3" in text(answer)
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    assert operator.post(address, {"seen": seen(text(answer))}).status_code == 302


def test_what_is_wrong_is_told_and_stops_nothing_else(operator: Client, two_nodes: None) -> None:
    answer = confirmed(operator, "do=edit&node=n1&node=n2&label_key=not+a+key&label_value=x")
    assert answer.status_code == 200
    assert "metadata.labels" in text(answer)
    assert "0 done, 2 not" in text(answer)
    for query in ("do=nothing", "do=drain", "do=taint&node=n1", "do=evict&pod=x"):
        assert operator.get(f"{CHANGE}?{query}").status_code == 400
    assert operator.get(f"{CHANGE}?do=drain&node=missing").status_code == 404


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
    for name in ("web-1", "web-2"):

        def run(pod: Any) -> Any:
            return {**pod, "status": {**pod.get("status", {}), "phase": "Running"}}

        objects.update("Pod", "default", name, run, subresource="status", now=NOW)
    page = text(operator.get(f"{CHANGE}?do=drain&node=n1"))
    assert "budget default/web" in page
    answer = confirmed(operator, "do=drain&node=n1")
    assert "1 done, 2 not" in text(answer)
    assert escape("Cannot evict pod") in text(answer)


def test_a_viewer_may_neither_see_nor_send_a_change(viewer: Client, two_nodes: None) -> None:
    for query in ("do=cordon&node=n1", "do=drain&node=n1", "do=delete&node=n1"):
        assert viewer.get(f"{CHANGE}?{query}").status_code == 403
        assert viewer.post(f"{CHANGE}?{query}", {"seen": ""}).status_code == 403
    for path in ("/console/nodes/n1/", "/console/pods/default/web-1/", "/console/nodes/"):
        page = text(viewer.get(path))
        assert "do=" not in page
        assert 'id="chosen"' not in page


def test_pods_are_evicted_and_deleted_by_preview(operator: Client, two_nodes: None) -> None:
    page = text(operator.get(f"{CHANGE}?do=evict&pod=default/web-1"))
    assert "eviction API" in page
    assert confirmed(operator, "do=evict&pod=default/web-1").status_code == 302
    assert confirmed(operator, "do=delete-pod&pod=default/web-2").status_code == 302
    for name in ("web-1", "web-2"):
        assert manifest("Pod", "default", name)["metadata"]["deletionTimestamp"]


def test_deleting_a_node_tells_of_its_pods(two_nodes: None) -> None:
    page = text(signed_in("root", superuser=True).get(f"{CHANGE}?do=delete&node=n1"))
    assert "collected once its node is gone" in page
    assert "Delete node, 2 pods will leave" in page


def test_a_query_tells_nothing_to_who_may_not_list_nodes(nobody: Client, two_nodes: None) -> None:
    answer = nobody.get(f"{CHANGE}?do=cordon&q=n1")
    assert answer.status_code == 403
    assert "cannot list resource" in text(answer)
    assert "cannot patch" not in text(answer)


def test_a_command_to_copy_holds_words_and_no_commands(operator: Client, two_nodes: None) -> None:
    query = {"do": "taint", "node": "n1", "key": "a;$(id)", "value": "b`id`", "effect": "NoExecute"}
    page = unescape(text(operator.get(CHANGE, query)))
    assert "kubectl taint --overwrite nodes n1 'a;$(id)=b`id`:NoExecute'" in page
    query = {"do": "edit", "node": "n1", "label_key": "a", "label_value": "b; id"}
    page = unescape(text(operator.get(CHANGE, query)))
    assert "kubectl label --overwrite nodes n1 'a=b; id'" in page


@pytest.mark.parametrize("do", ["evict", "delete-pod"])
def test_another_pod_of_the_same_name_is_not_the_one_that_was_shown(
    operator: Client, two_nodes: None, do: str
) -> None:
    address = f"{CHANGE}?do={do}&pod=default/web-1"
    shown = seen(text(operator.get(address)))
    objects.delete("Pod", "default", "web-1", {"gracePeriodSeconds": 0}, now=NOW)
    owned("web-1", "n1")
    answer = operator.post(address, {"seen": shown})
    assert answer.status_code == 409
    assert "deletionTimestamp" not in manifest("Pod", "default", "web-1")["metadata"]
