"""The node list and the node form."""

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from clusterstate.actions import objects
from clusterstate.admin import base, node_changes, node_forms
from clusterstate.change_log import changes
from clusterstate.models import Node
from clusterstate.objects.values.errors import Conflict
from tests.admin.conftest import person
from tests.admin.pages import NODES, add_taint, form_data, node_page, run, text
from tests.clock import after, moment
from tests.clusterstate.support import LATER, bind, create_node, manifest, new_pod, node

pytestmark = pytest.mark.django_db


def labelled(name: str = "n1") -> None:
    create_node(name, labels={"disktype": "ssd"})


def taints_of(name: str) -> list[tuple[str, str, str]]:
    """The taints, but for the one that every new node has until its controller has seen it."""
    found = manifest("Node", "", name)["spec"].get("taints", [])
    return [
        (t["key"], t.get("value", ""), t["effect"])
        for t in found
        if t["key"] != "node.kubernetes.io/not-ready"
    ]


def set_ready(name: str, status: str) -> None:
    def change(node: dict[str, Any]) -> dict[str, Any]:
        node["status"]["conditions"] = [{"type": "Ready", "status": status}]
        return node

    objects.update("Node", "", name, change, subresource="status", now=LATER)


def test_the_list_shows_status_use_taints_and_labels(administrator: Client) -> None:
    create_node(
        "n1",
        labels={"disktype": "ssd"},
        taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
    )
    set_ready("n1", "True")
    create_node("n2", unschedulable=True)
    set_ready("n2", "False")
    assert bind(new_pod("p1", cpu="1500m"), "n1")
    page = text(administrator.get(NODES))
    for shown in (
        "n1", "Ready", "NotReady", "SchedulingDisabled", "1 / 110", "1.5 / 4", "64 MiB / 32 GiB",
        "dedicated=gpu:NoSchedule", "disktype=ssd",
    ):  # fmt: skip
        assert shown in page, shown


def test_the_list_asks_as_often_for_many_nodes_as_for_one(
    administrator: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(12):
        create_node(f"n{number}", taints=[{"key": "a", "effect": "NoSchedule"}])
    with django_assert_max_num_queries(10):
        assert administrator.get(NODES).status_code == 200


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("cordoned=yes", {"n2"}),
        ("cordoned=no", {"n1", "n3"}),
        ("taint=NoExecute", {"n3"}),
        ("q=n1", {"n1"}),
        ("o=3", {"n1", "n2", "n3"}),
    ],
)
def test_the_list_is_filtered_and_sorted(
    administrator: Client, choice: str, expected: set[str]
) -> None:
    create_node("n1")
    create_node("n2", unschedulable=True)
    create_node("n3", taints=[{"key": "a", "effect": "NoExecute"}])
    response = administrator.get(f"{NODES}?{choice}")
    assert {node.name for node in response.context["cl"].result_list} == expected


def test_a_save_writes_fields_and_taints_through_the_action(administrator: Client) -> None:
    labelled()
    data = form_data(administrator, node_page("n1"))
    data["labels"] = "disktype=hdd\nzone=a"
    data["unschedulable"] = "on"
    add_taint(data, "dedicated", "gpu", "NoSchedule")
    start = changes.watermark()
    answer = administrator.post(node_page("n1"), data)
    assert answer.status_code == 302, text(answer)
    stored = manifest("Node", "", "n1")
    assert stored["metadata"]["labels"] == {"disktype": "hdd", "zone": "a"}
    assert stored["spec"]["unschedulable"] is True
    cordoned = ("node.kubernetes.io/unschedulable", "", "NoSchedule")
    assert taints_of("n1") == [("dedicated", "gpu", "NoSchedule"), cordoned]
    row = Node.objects.get(name="n1")
    assert row.unschedulable
    assert [str(taint) for taint in row.taints.all()][-2] == "dedicated=gpu:NoSchedule"
    assert row.revision > start
    told = LogEntry.objects.get().get_change_message()
    assert "Cordoned" in told or "Unschedulable" in told
    assert "Added taint" in told


def test_a_save_without_a_change_makes_no_new_version(administrator: Client) -> None:
    create_node("n1", taints=[{"key": "a", "effect": "NoExecute"}])
    before = manifest("Node", "", "n1")
    data = form_data(administrator, node_page("n1"))
    assert administrator.post(node_page("n1"), data).status_code == 302
    assert manifest("Node", "", "n1") == before


def test_a_taint_is_changed_and_removed(administrator: Client) -> None:
    create_node(
        "n1",
        taints=[
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            {"key": "a", "effect": "NoSchedule"},
            {"key": "b", "effect": "NoSchedule"},
        ],
    )
    data = form_data(administrator, node_page("n1"))
    data["taints-1-value"] = "x"
    data["taints-2-DELETE"] = "on"
    assert administrator.post(node_page("n1"), data).status_code == 302
    assert taints_of("n1") == [("a", "x", "NoSchedule")]


def test_a_taint_that_stays_keeps_its_time(administrator: Client) -> None:
    """R123: evictions count from when the taint came."""
    tainted = node("n1", taints=[{"key": "a", "effect": "NoExecute"}])
    objects.create("Node", "", tainted, now=after(-3600))
    data = form_data(administrator, node_page("n1"))
    data["labels"] = "new=label"
    add_taint(data, "b", "", "NoSchedule")
    assert administrator.post(node_page("n1"), data).status_code == 302
    times = {t["key"]: t.get("timeAdded") for t in manifest("Node", "", "n1")["spec"]["taints"]}
    assert times["a"] == moment(-3600)
    assert "b" in times


def test_what_admission_finds_wrong_is_shown_at_its_field_and_nothing_is_written(
    administrator: Client,
) -> None:
    labelled()
    before = manifest("Node", "", "n1")
    data = form_data(administrator, node_page("n1"))
    data["labels"] = "not a key=x\nok=not a value"
    data["allocatable"] = "cpu=-1"
    add_taint(data, "not a key", "x", "NoSchedule")
    answer = administrator.post(node_page("n1"), data)
    assert answer.status_code == 200
    form = answer.context["adminform"].form
    assert len(form.errors["labels"]) == 2
    assert "metadata.labels" in form.errors["labels"][0]
    assert "status.allocatable" in form.errors["allocatable"][0]
    rows = answer.context["inline_admin_formsets"][0].formset.forms
    assert "Invalid value" in rows[-1].errors["key"][0]
    assert "not a key" in text(answer)
    assert manifest("Node", "", "n1") == before


def test_the_same_taint_twice_is_refused_at_its_row(administrator: Client) -> None:
    labelled()
    data = form_data(administrator, node_page("n1"))
    add_taint(data, "a", "1", "NoSchedule")
    add_taint(data, "a", "2", "NoSchedule")
    answer = administrator.post(node_page("n1"), data)
    assert answer.status_code == 200
    assert "Duplicate value" in text(answer)
    assert taints_of("n1") == []


@pytest.mark.parametrize("lines", ["no equals sign", "a=1\na=2"])
def test_lines_that_are_no_map_are_refused(administrator: Client, lines: str) -> None:
    labelled()
    before = manifest("Node", "", "n1")
    data = form_data(administrator, node_page("n1")) | {"labels": lines}
    assert administrator.post(node_page("n1"), data).status_code == 200
    assert manifest("Node", "", "n1") == before


def test_a_save_over_somebody_elses_is_refused_with_a_sentence(administrator: Client) -> None:
    labelled()
    data = form_data(administrator, node_page("n1"))
    objects.update(
        "Node",
        "",
        "n1",
        node_changes.NodeFormChanges(labels={"theirs": "yes"}).applied_to,
        now=LATER,
    )
    data["labels"] = "mine=yes"
    answer = administrator.post(node_page("n1"), data)
    assert answer.status_code == 200
    assert "Another user changed this node" in text(answer)
    assert manifest("Node", "", "n1")["metadata"]["labels"] == {"theirs": "yes"}


def test_a_heartbeat_between_does_not_refuse_a_save(administrator: Client) -> None:
    labelled()
    data = form_data(administrator, node_page("n1"))
    set_ready("n1", "True")
    data["labels"] = "mine=yes"
    assert administrator.post(node_page("n1"), data).status_code == 302
    stored = manifest("Node", "", "n1")
    assert stored["metadata"]["labels"] == {"mine": "yes"}
    assert stored["status"]["conditions"][0]["status"] == "True"


def test_a_refusal_after_the_check_writes_nothing_and_says_so(
    administrator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may save between the form's dry run and the save."""
    labelled()
    data = form_data(administrator, node_page("n1")) | {"labels": "mine=yes"}
    attempted = node_forms.tried

    def tried_then_overtaken(*args: Any, **options: Any) -> Any:
        found = attempted(*args, **options)
        theirs = node_changes.NodeFormChanges(labels={"theirs": "yes"})
        objects.update("Node", "", "n1", theirs.applied_to, now=LATER)
        return found

    monkeypatch.setattr(node_forms, "tried", tried_then_overtaken)
    answer = administrator.post(node_page("n1"), data, follow=True)
    assert "Another user changed this node" in text(answer)
    assert manifest("Node", "", "n1")["metadata"].get("labels") != {"mine": "yes"}


def test_a_node_is_added_with_taints_and_ready(administrator: Client) -> None:
    data = form_data(administrator, f"{NODES}add/")
    data |= {"name": "new", "labels": "a=b", "allocatable": "cpu=2\nmemory=4Gi\npods=20"}
    add_taint(data, "t", "v", "NoExecute")
    answer = administrator.post(f"{NODES}add/", data, follow=True)
    assert answer.status_code == 200
    stored = manifest("Node", "", "new")
    assert stored["status"]["capacity"] == {"cpu": "2", "memory": "4Gi", "pods": "20"}
    assert stored["status"]["conditions"][0]["status"] == "True"
    assert ("t", "v", "NoExecute") in taints_of("new")
    assert "was added successfully" in text(answer)


def test_a_name_that_is_taken_or_wrong_is_refused(administrator: Client) -> None:
    labelled()
    data = form_data(administrator, f"{NODES}add/")
    taken = administrator.post(f"{NODES}add/", data | {"name": "n1"})
    assert 'nodes "n1" already exists' in text(taken)
    wrong = administrator.post(f"{NODES}add/", data | {"name": "Not A Name"})
    assert "metadata.name" in wrong.context["adminform"].form.errors["name"][0]
    missing = administrator.post(f"{NODES}add/", {k: v for k, v in data.items() if k != "name"})
    assert "This field is required" in text(missing)
    assert set(Node.objects.values_list("name", flat=True)) == {"n1"}


@pytest.mark.parametrize("action", ["cordon", "uncordon", "drain", "delete"])
def test_what_moves_pods_leads_to_the_preview_of_the_console(
    administrator: Client, action: str
) -> None:
    create_node("n1")
    create_node("n2")
    chosen = [str(Node.objects.get(name=name).pk) for name in ("n1", "n2")]
    name = "delete_selected" if action == "delete" else action
    answer = administrator.post(NODES, {"action": name, "_selected_action": chosen})
    assert answer.status_code == 302
    assert answer["Location"] == f"/console/change?do={action}&node=n1&node=n2"
    assert Node.objects.count() == 2
    page = node_page("n1")
    assert "/console/change?do=drain&amp;node=n1" in administrator.get(page).content.decode()
    answer = administrator.post(page.replace("change", "delete"), {"post": "yes"})
    assert answer["Location"] == "/console/change?do=delete&node=n1"


def test_a_taint_that_evicts_is_previewed_before_it_is_saved(administrator: Client) -> None:
    create_node("n1", labels={"disktype": "ssd"})
    data = form_data(administrator, node_page("n1"))
    add_taint(data, "gone", "", "NoExecute")
    answer = administrator.post(node_page("n1"), data | {"unschedulable": "on"})
    assert answer["Location"].startswith("/console/change?do=edit&node=n1&")
    shown = parse_qs(urlsplit(answer["Location"]).query, keep_blank_values=True)
    assert (shown["taint_key"][-1], shown["taint_effect"][-1]) == ("gone", "NoExecute")
    assert shown["label_key"] == shown["had_label_key"]
    assert "gone" not in {key for key, _, _ in taints_of("n1")}
    assert manifest("Node", "", "n1")["spec"]["unschedulable"] is True
    assert "gone" in text(administrator.get(answer["Location"]))


def test_a_label_that_pods_need_while_they_run_is_previewed(administrator: Client) -> None:
    create_node("n1", labels={"disktype": "ssd", "rack": "r1"})
    wanted = {"key": "disktype", "operator": "In", "values": ["ssd"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    data = form_data(administrator, node_page("n1")) | {"labels": "disktype=hdd\nrack=r1"}
    assert "/console/" not in administrator.post(node_page("n1"), data)["Location"]
    data = form_data(administrator, node_page("n1")) | {"labels": "disktype=ssd\nrack=r1"}
    administrator.post(node_page("n1"), data)
    affinity = {"requiredDuringSchedulingRequiredDuringExecution": terms}
    assert bind(new_pod("p", affinity={"nodeAffinity": affinity}), "n1")
    data = form_data(administrator, node_page("n1")) | {"labels": "rack=r1"}
    answer = administrator.post(node_page("n1"), data)
    assert answer["Location"].startswith("/console/change?do=edit&node=n1&")
    assert manifest("Node", "", "n1")["metadata"]["labels"]["disktype"] == "ssd"


def test_nodes_are_found_by_label(administrator: Client) -> None:
    create_node("n1", labels={"disktype": "ssd", "rack": "r1"})
    create_node("n2", labels={"disktype": "ssd"})
    for search, names in (
        ("disktype=ssd", {"n1", "n2"}),
        ("n1 disktype=ssd", {"n1"}),
        ("rack=", set()),
    ):
        found = administrator.get(NODES, {"q": search}).context["cl"].result_list
        assert {node.name for node in found} == names


def test_no_get_changes_anything(administrator: Client) -> None:
    labelled()
    before = manifest("Node", "", "n1")
    id_ = Node.objects.get(name="n1").pk
    for page in (
        f"{NODES}?action=cordon&_selected_action={id_}",
        f"{NODES}{id_}/change/?unschedulable=on",
        f"{NODES}{id_}/delete/?post=yes",
        f"{NODES}{id_}/history/",
    ):
        assert administrator.get(page, follow=True).status_code == 200
    assert manifest("Node", "", "n1") == before


def test_a_viewer_sees_everything_but_no_button_and_may_change_nothing(viewer: Client) -> None:
    create_node("n1", labels={"disktype": "ssd"}, taints=[{"key": "a", "effect": "NoSchedule"}])
    before = manifest("Node", "", "n1")
    listed = viewer.get(NODES)
    assert "n1" in text(listed)
    assert "Cordon" not in re.sub("Cordoned", "", text(listed))
    assert f"{NODES}add/" not in listed.content.decode()
    page = viewer.get(node_page("n1"))
    shown = text(page)
    assert "disktype=ssd" in shown
    assert "memory=32Gi" in shown
    assert not re.search(r'name="(_save|_continue|_addanother)"', page.content.decode())
    assert 'name="labels"' not in page.content.decode()
    assert "kind: Node" in shown
    assert "/delete/" not in page.content.decode()
    assert viewer.post(node_page("n1"), {"labels": "a=b"}).status_code == 403
    assert viewer.post(f"{NODES}add/", {"name": "x"}).status_code == 403
    delete = node_page("n1").replace("change", "delete")
    assert viewer.post(delete, {"post": "yes"}).status_code == 403
    for action in ("cordon", "delete_selected"):
        assert run(viewer, NODES, action, "n1").status_code == 403
    assert manifest("Node", "", "n1") == before


def test_an_editor_without_a_permission_of_taints_loses_none() -> None:
    editor = person("eva", "view_node", "change_node")
    create_node("n1", taints=[{"key": "a", "effect": "NoSchedule"}])
    data = form_data(editor, node_page("n1")) | {"labels": "by=eva"}
    assert editor.post(node_page("n1"), data).status_code == 302
    assert manifest("Node", "", "n1")["metadata"]["labels"] == {"by": "eva"}
    assert ("a", "", "NoSchedule") in taints_of("n1")
    assert editor.post(f"{NODES}add/", {"name": "x"}).status_code == 403


def test_the_fingerprint_is_of_what_the_form_edits() -> None:
    node = {"metadata": {"name": "n", "resourceVersion": "1"}, "spec": {}, "status": {}}
    same = {"metadata": {"name": "n", "resourceVersion": "2", "labels": {}}}
    assert node_changes.fingerprint(node) == node_changes.fingerprint(same)
    with pytest.raises(Conflict):
        node_changes.NodeFormChanges(labels={"a": "b"}, seen="other").applied_to(node)


def test_deleting_is_the_last_of_the_actions(administrator: Client) -> None:
    create_node("n1")
    page = administrator.get(NODES).content.decode()
    assert page.index('value="cordon"') < page.index('value="delete_selected"')


def test_an_action_is_for_a_bounded_number_of_nodes(
    administrator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "MOST_AT_ONCE", 1)
    create_node("n1")
    create_node("n2")
    for action in ("cordon", "delete_selected"):
        answer = run(administrator, NODES, action, "n1", "n2")
        assert "At most 1 at a time, and 2 are chosen, so nothing was done." in text(answer)
    chosen = [str(Node.objects.get(name="n1").pk)]
    data = {"action": "cordon", "_selected_action": chosen, "select_across": "1"}
    answer = administrator.post(NODES, data, follow=True)
    assert "2 are chosen" in text(answer)
    assert "unschedulable" not in manifest("Node", "", "n1")["spec"]
    assert run(administrator, NODES, "cordon", "n1").redirect_chain[0][0].startswith("/console/")


def test_pages_keep_the_case_of_names_and_write_times_in_one_form(administrator: Client) -> None:
    create_node("web-a")
    shown = administrator.get(node_page("web-a")).content.decode()
    assert "Web-a" not in shown
    history = node_page("web-a").replace("change", "history")
    paths = ["/admin/auth/user/", "/admin/", "/admin/clusterstate/runtimeclass/", history]
    every = " ".join(text(administrator.get(path)) for path in paths)
    written = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: UTC)?", every)
    assert written
    assert all(one.endswith(" UTC") for one in written)
    spelled = re.search(r".{80}\b(Jan|Feb|Aug|Sept|Oct|Nov|Dec)\. \d", every, re.DOTALL)
    assert spelled is None, spelled
    assert "classs" not in every


def test_the_overview_says_of_what_the_figures_are(administrator: Client) -> None:
    create_node("n1", allocatable={"cpu": "16000"})
    assert bind(new_pod("p1", cpu="1500"), "n1")
    assert "1,500 of 16,000 cores" in text(administrator.get("/admin/"))
