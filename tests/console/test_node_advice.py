"""The page of node advice: a catalogue in, prices, a curve, maps, moves, and a plan to try."""

import html
import re

import pytest
import yaml
from django.test import Client

from clusterstate.objects.values.meta import Manifest
from tests.console.conftest import text
from tests.controllers.support import bind, make_node, make_pod

ADVICE = "/console/nodes/advice"
SMALL = {"cpu": "2", "memory": "8Gi"}


@pytest.fixture
def half_empty() -> None:
    """Two large nodes with a pod each, and a pod that waits."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "900m"}}}
    for name in "ab":
        make_node(name)
        pod = make_pod(
            f"web-{name}", containers=[container],
            metadata={"ownerReferences": [{**owner, "controller": True}]},
        )  # fmt: skip
        bind(pod, name)
    make_pod("waits", containers=[container])


def asked(client: Client, spec: Manifest, query: str = "") -> str:
    """Return the part that the page of a question asks for."""
    answer = client.post(ADVICE, {"text": yaml.safe_dump(spec)})
    page = text(client.get(answer["Location"] + query))
    (address,) = re.findall(r'id="found" data-asks hx-get="([^"]+)"', page)
    part = client.get(html.unescape(address), headers={"HX-Request": "true"})
    assert part.status_code == 200, text(part)[:2000]
    return text(part)


def test_what_to_remove_and_buy_is_drawn_chosen_and_tried(
    operator: Client, nobody: Client, half_empty: None
) -> None:
    assert ADVICE in text(operator.get("/console/waiting/"))
    assert ADVICE in text(operator.get("/console/nodes/"))
    assert nobody.get(ADVICE).status_code == 403
    begun = html.unescape(re.findall(r"<textarea[^>]*>([^<]*)<", text(operator.get(ADVICE)))[0])
    assert yaml.safe_load(begun)["catalogue"][0]["node"]["status"]["capacity"]["cpu"] == "64"
    spec = {
        "catalogue": [{"name": "small", "price": 1, "node": {"status": {"capacity": SMALL}}}],
        "prices": [{"selector": "", "price": 8}],
    }
    page = asked(operator, spec)
    assert "Price of all nodes: 16 today, 2 after" in page
    assert page.count("<figure>") == 3
    assert "new-small-1: not there" in page
    assert "default/web-a" in page
    assert "shown here" in page
    (plan,) = re.findall(r'name="text" value="([^"]+)"', page)
    add, drain = yaml.safe_load(html.unescape(plan))["spec"]["changes"]
    assert [one["metadata"]["name"] for one in add["add"]["objects"]] == [
        "new-small-1", "new-small-2"
    ]  # fmt: skip
    assert {one["status"]["capacity"]["pods"] for one in add["add"]["objects"]} == {"110"}
    assert drain == {"drain": {"nodes": ["a", "b"]}}
    added = operator.post("/console/what-if/add", {"text": html.unescape(plan)})
    assert added.status_code == 302, text(added)
    fewer = asked(operator, spec, "&moves=0")
    assert "16 today, 16 after" in fewer
    assert "show with at most 2 moves" in fewer
    dear = asked(operator, {**spec, "movePrice": 20})
    assert "16 today, 16 after" in dear
    assert "not offered: moving the pods costs more than these nodes save" in dear
    assert "show with at most" not in dear


def test_types_that_name_no_node_begin_with_names_that_do(operator: Client) -> None:
    kind = {"node.kubernetes.io/instance-type": "Standard_D4s_v3"}
    make_node("a", labels=kind)
    (begun,) = re.findall(r"<textarea[^>]*>([^<]*)<", text(operator.get(ADVICE)))
    page = asked(operator, yaml.safe_load(html.unescape(begun)))
    assert "Price of all nodes: 64 today, 0 after" in page
    (entry,) = yaml.safe_load(html.unescape(begun))["catalogue"]
    assert (entry["name"], entry["node"]["metadata"]["labels"]) == ("standard-d4s-v3", kind)


@pytest.mark.parametrize("given", ["- a", "a: ["])
def test_a_question_that_cannot_be_read_stays_in_the_form(operator: Client, given: str) -> None:
    answer = operator.post(ADVICE, {"text": given}, follow=True)
    assert answer.status_code == 400
    assert 'role="alert"' in text(answer)
    assert html.escape(given) in text(answer)
