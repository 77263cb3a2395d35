"""Pods, classes and namespaces: looking."""

import re
from datetime import timedelta

import pytest
from django.test import Client

from clusterstate.actions import objects
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.admin import clock
from clusterstate.models import Namespace, Node, Pod, PriorityClass, RuntimeClass
from tests.admin.conftest import person
from tests.admin.pages import PODS, pod_page, text
from tests.clusterstate.support import NOW, bind, create_node, new_pod

pytestmark = pytest.mark.django_db

MESSAGE = "0/1 nodes are available: 1 Insufficient cpu."


def test_the_list_tells_where_pods_are_and_why_others_wait(administrator: Client) -> None:
    create_node("n1")
    assert bind(new_pod("placed"), "n1")
    waiting = new_pod("too-big", cpu="64")
    set_unschedulable(
        [Unschedulable(pod_id=waiting, message=MESSAGE, rejected_by=("NodeResourcesFit",))],
        now=NOW,
    )
    new_pod("gated", schedulingGates=[{"name": "wait"}])
    response = administrator.get(PODS)
    page = text(response)
    for shown in ("placed", "Scheduled", "Pending", MESSAGE, "SchedulingGated", "on a change"):
        assert shown in page, shown
    node = Node.objects.get(name="n1")
    assert f'href="/admin/clusterstate/node/{node.pk}/change/"' in response.content.decode()


def test_a_pod_without_gates_that_a_plugin_holds_back_is_pending(administrator: Client) -> None:
    waiting = new_pod("claims")
    reason = "waiting for its resource claims"
    place = Unschedulable(
        pod_id=waiting, message=reason, stage="gated", rejected_by=("DynamicResources",)
    )
    set_unschedulable([place], now=NOW)
    page = text(administrator.get(PODS))
    assert "Pending" in page
    assert "SchedulingGated" not in page
    assert "a plugin keeps it from being tried" in text(administrator.get(pod_page("claims")))


def test_a_pod_in_backoff_tells_when_it_is_tried_again(administrator: Client) -> None:
    waiting = new_pod("p1")
    now = clock.now()
    set_unschedulable(
        [
            Unschedulable(
                pod_id=waiting, message=MESSAGE, stage="backoff", attempts=3,
                not_before=now + timedelta(seconds=60),
            )
        ],
        now=now,
    )  # fmt: skip
    page = text(administrator.get(pod_page("p1")))
    assert re.search(r"Next try in (59|60) s", page)
    assert "waits before the next try" in page
    assert "Attempts 3" in page


def test_a_pod_shows_what_its_node_allows_it_with_the_overhead(administrator: Client) -> None:
    """R146: limits and overhead are 335544320 bytes; the shares come from requests and overhead."""
    limits = [{"cpu": "500m", "memory": "100Mi"}, {"cpu": "1500m", "memory": "100Mi"}]
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    runtime = {"metadata": {"name": "kata-fc"}, "handler": "kata-fc", "overhead": overhead}
    objects.create("RuntimeClass", "", runtime, now=NOW)
    body = {
        "metadata": {"name": "test-pod"},
        "spec": {
            "runtimeClassName": "kata-fc",
            "containers": [
                {"name": f"c{number}", "image": "i", "resources": {"limits": one}}
                for number, one in enumerate(limits)
            ],
        },
    }
    objects.create("Pod", "default", body, now=NOW)
    page = text(administrator.get(pod_page("test-pod")))
    assert "memory: 335544320 bytes; cpu: 2304 shares, 225000 us of CPU in each 100000 us" in page
    new_pod("free")
    assert "memory: no limit" in text(administrator.get(pod_page("free")))


def test_a_pod_shows_its_document_as_yaml(administrator: Client) -> None:
    new_pod("p1", nodeSelector={"disktype": "ssd"})
    response = administrator.get(pod_page("p1"))
    assert "nodeSelector: disktype: ssd" in text(response)


def test_a_pod_on_a_node_that_is_gone_shows_the_bare_name(administrator: Client) -> None:
    new_pod("p1", nodeName="gone")
    assert "gone" in text(administrator.get(pod_page("p1")))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("placement=waiting", {"w", "r"}),
        ("placement=refused", {"r"}),
        ("placement=placed", {"p"}),
        ("node_name=n1", {"p"}),
        ("phase=Pending", {"w", "r", "p"}),
        ("namespace=default", {"w", "r", "p"}),
        ("q=w", {"w"}),
        ("o=6", {"w", "r", "p"}),
    ],
)
def test_the_list_is_filtered(administrator: Client, choice: str, expected: set[str]) -> None:
    create_node("n1")
    assert bind(new_pod("p"), "n1")
    new_pod("w")
    set_unschedulable([Unschedulable(pod_id=new_pod("r"), message=MESSAGE)], now=NOW)
    response = administrator.get(f"{PODS}?{choice}")
    assert {pod.name for pod in response.context["cl"].result_list} == expected


def test_pods_are_deleted_by_the_preview_of_the_console(administrator: Client) -> None:
    new_pod("w")
    answer = administrator.post(pod_page("w").replace("change", "delete"), {"post": "yes"})
    assert answer["Location"] == "/console/change?do=delete-pod&pod=default%2Fw"
    chosen = {"action": "delete_selected", "_selected_action": [str(Pod.objects.get().pk)]}
    assert administrator.post(PODS, chosen)["Location"] == answer["Location"]
    assert Pod.objects.count() == 1


def test_pods_are_neither_added_nor_edited_here(administrator: Client) -> None:
    new_pod("p1")
    assert administrator.get(f"{PODS}add/").status_code == 403
    assert administrator.post(pod_page("p1"), {"priority": "9"}).status_code == 403


def test_a_viewer_may_not_delete_pods(viewer: Client) -> None:
    new_pod("p1")
    assert viewer.get(pod_page("p1")).status_code == 200
    page = pod_page("p1").replace("change", "delete")
    assert viewer.post(page, {"post": "yes"}).status_code == 403
    viewer.post(
        PODS, {"action": "delete_selected", "_selected_action": ["1"], "post": "yes"}, follow=True
    )
    assert Pod.objects.count() == 1


def test_classes_and_namespaces_are_shown_as_yaml_and_not_edited(administrator: Client) -> None:
    objects.create(
        "RuntimeClass",
        "",
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata-fc"},
            "handler": "kata-fc",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        },
        now=NOW,
    )
    for model, name, shown in (
        (RuntimeClass, "kata-fc", "podFixed: cpu: 250m"),
        (PriorityClass, "system-node-critical", "value: 2000001000"),
        (Namespace, "kube-system", "phase: Active"),
    ):
        listing = f"/admin/clusterstate/{model._meta.model_name}/"
        assert name in text(administrator.get(listing))
        page = f"{listing}{model.objects.get(name=name).pk}/change/"
        assert shown in text(administrator.get(page))
        assert administrator.post(page, {"name": "x"}).status_code == 403
        assert administrator.get(f"{listing}add/").status_code == 403


def test_the_list_of_runtime_classes_counts_nodes_and_pods_and_what_is_shared(
    administrator: Client,
) -> None:
    """R41, R60."""
    create_node("n1", labels={"kata": "yes"})
    create_node("n2")
    for name, selector in (("kata", {"kata": "yes"}), ("runc", {})):
        runtime_class = {
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
            "handler": "h", "scheduling": {"nodeSelector": selector},
        }  # fmt: skip
        objects.create("RuntimeClass", "", runtime_class, now=NOW)
    new_pod("p1", runtimeClassName="kata")
    page = text(administrator.get("/admin/clusterstate/runtimeclass/"))
    assert "kata h 1 1 runc (1)" in page
    assert "runc h 2 0 kata (1)" in page


def test_without_permission_there_is_nothing_to_see() -> None:
    stranger = person("otto")
    create_node("n1")
    assert "Nobody has given you permission" in text(stranger.get("/admin/"))
    assert stranger.get("/admin/clusterstate/node/").status_code == 403
    assert stranger.get(PODS).status_code == 403


def test_the_overview_counts_and_links(administrator: Client) -> None:
    create_node("n1")
    create_node("n2", unschedulable=True)
    assert bind(new_pod("p1", cpu="2"), "n1")
    waiting = new_pod("w1")
    set_unschedulable([Unschedulable(pod_id=waiting, message=MESSAGE)], now=NOW)
    response = administrator.get("/admin/")
    page = text(response)
    for shown in (
        "Nodes 2",
        "Nodes not ready 0",
        "Cordoned nodes 1",
        "Pods on a node 1",
        "Pods waiting 1",
        "2 of 8",
    ):
        assert shown in page, shown
    assert MESSAGE in page
    assert "?placement=waiting" in response.content.decode()


def test_the_sidebar_has_what_the_person_may_see(administrator: Client, viewer: Client) -> None:
    assert "/admin/auth/user/" in administrator.get("/admin/").content.decode()
    seen = viewer.get("/admin/").content.decode()
    assert "/admin/clusterstate/node/" in seen
    assert "/admin/auth/user/" not in seen


def test_lists_of_classes_are_called_classes(administrator: Client) -> None:
    for path in ("/admin/clusterstate/runtimeclass/", "/admin/clusterstate/priorityclass/"):
        page = text(administrator.get(path))
        assert "classs" not in page
        assert "classes" in page
