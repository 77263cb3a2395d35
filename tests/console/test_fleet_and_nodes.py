"""The map's columns and the list of nodes: what they show, and the query language."""

import csv
import html
import io
import re

import pytest
from django.test import Client

from api.console.live import node_cache
from api.console.page import language
from api.console.pods import submit
from clusterstate.actions import objects
from clusterstate.change_log import changes
from tests.clock import NOW
from tests.clusterstate.support import bind, create_node, new_pod
from tests.console.conftest import ZONE, allow, text

COLUMNS = "/console/fleet/columns"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "n1 n2 n3"),
        ("n2", "n2"),
        ("zone=a", "n1 n3"),
        (f"{ZONE}=b", "n2"),
        ("zone!=a", "n2"),
        ("disktype=*", "n1"),
        ("taint:dedicated", "n3"),
        ("taint:dedicated=gpu:NoSchedule", "n3"),
        ("taint:dedicated=cpu", ""),
        ("taint:*", "n2 n3"),
        ("is:cordoned", "n2"),
        ("-is:cordoned", "n1 n3"),
        ("--is:cordoned", "n2"),
        (f"{'-' * 5001}is:cordoned", "n1 n3"),
        ("cpu>80%", "n1"),
        ("cpu>=400m", "n1 n3"),
        ("free.cpu>3", "n2 n3"),
        ("pods<1", "n2"),
        ("gpu<=0%", "n1 n2 n3"),
        ("memory<1Gi zone=a", "n1 n3"),
        ("condition:MemoryPressure", ""),
    ],
)
def test_a_query_finds_nodes(cluster: None, query: str, names: str) -> None:
    found = language.matching(node_cache.nodes().items, query)
    assert [one.name for one in found] == names.split()


@pytest.mark.parametrize("query", ["is:happy", "cpu>lots", "memory<x%"])
def test_a_query_that_is_not_understood_says_which_term(operator: Client, query: str) -> None:
    create_node("n1")
    answer = operator.get("/console/nodes/", {"q": query})
    assert answer.status_code == 200
    assert 'role="alert"' in text(answer)
    assert operator.get(COLUMNS, {"q": query}).status_code == 400


def test_the_columns_tell_what_is_asked_of_each_node(operator: Client, cluster: None) -> None:
    found = operator.get(COLUMNS).json()
    assert found["name"] == ["n1", "n2", "n3"]
    assert [found["groups"][one] for one in found["group"]] == ["a", "b", "a"]
    assert found["cpu"] == [[3500, 4000], [0, 4000], [400, 4000]]
    assert found["value"] == [875, 0, 100]
    assert [flag & 3 for flag in found["flags"]] == [0, 1, 2]
    assert operator.get(COLUMNS, {"by": "nvidia.com/gpu"}).json()["value"] == [0, -1, -1]
    assert operator.get(COLUMNS, {"q": "zone=a"}).json()["dim"] == [False, True, False]


def test_only_what_changed_is_sent_again(operator: Client, cluster: None) -> None:
    revision = operator.get(COLUMNS).json()["revision"]
    assert operator.get(COLUMNS, {"since": revision}).json()["name"] == []
    assert bind(new_pod("web-3", cpu="1"), "n3")
    objects.delete("Node", "", "n2", now=NOW)
    found = operator.get(COLUMNS, {"since": revision}).json()
    assert (found["whole"], found["name"], found["gone"]) == (False, ["n3"], ["n2"])
    assert found["cpu"] == [[1400, 4000]]
    assert operator.get(COLUMNS, {"since": revision - 1000}).json()["whole"] is True


def test_what_is_kept_equals_what_is_loaded_anew(cluster: None) -> None:
    node_cache.nodes()
    assert bind(new_pod("web-3", cpu="1"), "n1")
    objects.delete("Pod", "default", "web-2", {"gracePeriodSeconds": 0}, now=NOW)
    create_node("n4")
    objects.delete("Node", "", "n3", now=NOW)
    followed = node_cache.nodes()
    node_cache._keeper.forget()
    assert node_cache.nodes().items == followed.items
    assert followed.revision == changes.watermark()


def test_the_list_sorts_by_share_and_keeps_its_state_in_the_address(
    operator: Client, cluster: None
) -> None:
    page = text(operator.get("/console/nodes/", {"sort": "-cpu", "columns": "cpu,label:disktype"}))
    assert page.index("node-n1") < page.index("node-n3") < page.index("node-n2")
    assert 'aria-sort="descending"' in page
    assert "columns=cpu%2Clabel%3Adisktype" in page
    assert "3.5 / 4" in page


def test_the_list_is_exported_as_it_is_shown(operator: Client, cluster: None) -> None:
    answer = operator.get("/console/nodes/csv", {"q": "zone=a", "columns": "cpu,taints"})
    rows = list(csv.reader(io.StringIO(text(answer))))
    assert rows == [
        ["name", "cpu requested", "cpu offered", "taints"],
        ["n1", "3500", "4000", ""],
        ["n3", "400", "4000", "dedicated=gpu:NoSchedule"],
    ]


def test_a_viewer_sees_nodes_and_nothing_to_choose(viewer: Client, cluster: None) -> None:
    page = text(viewer.get("/console/nodes/"))
    assert "node-n1" in page
    assert 'name="node"' not in page


def test_an_empty_cluster_says_what_to_do_next(operator: Client) -> None:
    for path in ("/console/", "/console/nodes/"):
        assert "There is no node yet" in text(operator.get(path))


def test_the_palette_finds_pages_nodes_and_pods(operator: Client, cluster: None) -> None:
    def found(query: str) -> list[tuple[str, str]]:
        items = operator.get("/console/find", {"q": query}).json()["items"]
        return [(one["text"], one["about"]) for one in items]

    assert ("Nodes", "page, g n") in found("")
    assert ("n1", "node") in found("n1")
    assert ("2 nodes: zone=a", "list of nodes") in found("zone=a")
    assert ("default/web-1", "pod") in found("web-1")
    assert ("Who can", "page") in found("who")
    assert ("ResourceQuota", "kind") in found("quota")


def test_the_palette_leads_to_previews_of_what_may_be_done(
    operator: Client, viewer: Client, nobody: Client, cluster: None
) -> None:
    nodes = {"apiGroups": [""], "resources": ["nodes"]}
    patches = allow("pat", [{**nodes, "verbs": ["patch"]}])
    sees = allow("sue", [{**nodes, "verbs": ["patch", "list"]}])

    def found(client: Client, query: str) -> dict[str, str]:
        items = client.get("/console/find", {"q": query}).json()["items"]
        return {one["text"]: one["to"] for one in items}

    assert found(operator, "drain n") == {
        "drain 3 nodes: n": "/console/change?do=drain&node=n1&node=n2&node=n3"
    } | {f"drain n{one}": f"/console/change?do=drain&node=n{one}" for one in (1, 2, 3)}
    assert list(found(operator, "Cordon disktype=ssd")) == ["cordon n1"]
    evicted = found(operator, "evict web-1")["evict default/web-1"]
    assert "Evict" in text(operator.get(evicted))
    both = found(operator, "delete web-2")
    assert both == {"delete default/web-2": "/console/change?do=delete-pod&pod=default%2Fweb-2"}
    assert found(operator, "drain") == {}
    assert found(viewer, "drain n1") == {}, "what they may not do is not offered"
    assert found(viewer, "evict web-1") == {}
    assert found(nobody, "evict web-1") == {}
    assert found(patches, "drain n") == {}, "who may not list nodes reads no names of them"
    assert found(sees, "drain n")


def test_a_sheet_takes_no_name_of_a_column_for_a_formula(operator: Client, cluster: None) -> None:
    answer = operator.get("/console/nodes/csv", {"columns": '=HYPERLINK("x"),label:zone'})
    head = next(csv.reader(io.StringIO(text(answer))))
    assert not any(one.startswith(("=", "+", "-", "@")) for one in head)


def test_who_asks_for_changes_from_before_the_forgotten_ones_gets_all() -> None:
    gone = [(10 + at, f"n{at}") for at in range(node_cache._GONE_KEPT)]
    nodes = node_cache.Nodes(items=[], revision=99_999, touched={}, gone=gone, began=1)
    assert nodes.since(9) is None
    assert nodes.since(10) == ([], [name for _, name in gone[1:]])


# The first run ---------------------------------------------------------------------------------


def test_an_empty_map_offers_example_nodes_and_a_pod(operator: Client, viewer: Client) -> None:
    assert 'id="examples"' not in text(viewer.get("/console/"))
    assert "There is no node yet" in text(viewer.get("/console/nodes/"))
    assert viewer.post("/console/fleet/examples").status_code == 403
    for page in ("/console/", "/console/nodes/"):
        assert 'id="examples"' in text(operator.get(page))
    assert operator.get("/console/fleet/examples").status_code == 400
    answer = operator.post("/console/fleet/examples")
    assert answer["Location"] == "/console/pods/default/small/"
    assert operator.get(answer["Location"]).status_code == 200
    page = text(operator.get("/console/nodes/"))
    for name in ("example-a", "example-b", "example-gpu", "example-tainted"):
        assert f'data-name="{name}"' in page
    assert "There is no node yet" not in page
    assert operator.post("/console/fleet/examples").status_code == 302, "a second press is no error"


def test_each_example_of_a_pod_finds_a_place_on_the_example_nodes(operator: Client) -> None:
    assert operator.post("/console/fleet/examples").status_code == 302
    for name in submit.EXAMPLES.keys() - {"gated"}:
        manifest = text(operator.get("/console/pods/new", {"by": "yaml", "example": name}))
        (given,) = re.findall(r'name="text"[^>]*>([^<]*)</textarea>', manifest)
        answer = operator.post(
            "/console/pods/new?by=yaml",
            {"text": html.unescape(given).replace("name: small", "name: small-2"), "do": "check"},
        )
        assert answer.status_code == 200, text(answer)[:2000]
        assert re.search(r"example-(a|b|gpu|tainted)", text(answer)), name
