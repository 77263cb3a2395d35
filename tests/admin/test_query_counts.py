"""A list of the admin asks as often for many rows as for few."""

import datetime as dt

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client

from clusterstate.actions import objects
from clusterstate.actions.people import tokens
from clusterstate.admin.clock import now
from clusterstate.admin.nodes import NodeAdmin
from clusterstate.models import Node, Pod
from scheduling.controllers.evictions import timers
from scheduling.processes import landings
from tests import roundtrips
from tests.controllers.support import make_node, make_pod, set_taints, taint, tolerates

GROWING = {
    "apitoken", "eviction", "namespace", "node", "pod", "priorityclass", "runtimeclass", "user",
}  # fmt: skip
"""Models of which ``fill`` makes rows; the lists of the others stay as short as they are."""


def fill(numbers: range) -> None:
    moment = now()
    for number in numbers:
        name = f"x{number}"
        make_node(name, labels={"disk": "ssd"})
        make_pod(name, name, tolerations=[tolerates("gone", seconds=3600)])
        make_pod(f"{name}-waits")
        objects.create("Namespace", "", {"metadata": {"name": name}}, now=moment)
        objects.create("PriorityClass", "", {"metadata": {"name": name}, "value": 1}, now=moment)
        handler = {"metadata": {"name": name}, "handler": "h"}
        objects.create("RuntimeClass", "", handler, now=moment)
        User.objects.create_user(name)
        tokens.create_token(user=name, secret=tokens.new_secret(), now=moment, name=name)
        timers.follow(moment)
        set_taints(name, taint("gone"), now=moment)
    timers.follow(moment)
    landings.foresee(moment + dt.timedelta(seconds=1))


def counts(client: Client) -> dict[str, tuple[int, int]]:
    """Return the rows and the queries of each list."""
    found = {}
    for model in sorted(admin.site._registry, key=str):
        name = model._meta.model_name
        assert name is not None
        path = f"/admin/{model._meta.app_label}/{name}/"
        client.get(path)  # what a process remembers it remembers from now on
        with roundtrips.counted() as trips:
            response = client.get(path)
        assert response.status_code == 200, path
        rows = len(response.context["cl"].result_list)
        found[name] = (rows, trips.number)
    return found


def test_no_list_asks_again_for_each_row(administrator: Client) -> None:
    fill(range(2))
    few = counts(administrator)
    fill(range(2, 7))
    many = counts(administrator)
    assert {name for name in few if many[name][0] > few[name][0]} >= GROWING
    grew = {name: (few[name], many[name]) for name in few if many[name][1] > few[name][1]}
    assert grew == {}


@pytest.mark.long
def test_a_list_that_asks_for_each_row_is_found(
    administrator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(self: NodeAdmin, stored: Node) -> str:
        return str(Pod.objects.filter(node_name=stored.name).count())

    monkeypatch.setattr(NodeAdmin, "label_list", asking)
    make_node("x0")
    few = counts(administrator)["node"]
    for number in range(1, 5):
        make_node(f"x{number}")
    many = counts(administrator)["node"]
    assert (few[0], many[0]) == (1, 5)
    assert many[1] >= few[1] + 4
