"""Whatever is resized, nodes without agents never set aside more than they have, nor wait in vain.

The plain rule reads every document: what a node has set aside for a pod is what its containers'
statuses tell, and what its spec says where they tell nothing.
"""

import contextlib
from collections import Counter
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.database import sql
from clusterstate.objects.values.errors import Forbidden
from clusterstate.objects.values.quantity import Quantity
from clusterstate.processes import memory
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import resizes
from tests.controllers.support import NOW, make_pod, schedule
from tests.forms import FORM, SUITE, many

NODES = ("n1", "n2")
HAS = {"cpu": "4", "memory": "4Gi"}
CPU = ("500m", "1", "2", "3")
MEMORY = ("512Mi", "1Gi", "2Gi")


def plain(text: str) -> Fraction:
    return Fraction(Quantity.parse(text).nano, 10**9)


def set_aside(pod: dict[str, Any]) -> dict[str, Fraction]:
    told = {one["name"]: one for one in pod["status"].get("containerStatuses", ())}
    total = dict.fromkeys(HAS, Fraction(0))
    for container in pod["spec"]["containers"]:
        asked = container["resources"]["requests"]
        amounts = {**asked, **told.get(container["name"], {}).get("allocatedResources", {})}
        for name in total:
            total[name] += plain(amounts[name])
    return total


def wanted(pod: dict[str, Any]) -> dict[str, Fraction]:
    asked = [one["resources"]["requests"] for one in pod["spec"]["containers"]]
    return {name: sum((plain(one[name]) for one in asked), Fraction(0)) for name in HAS}


def waits(pod: dict[str, Any]) -> bool:
    told = pod["status"].get("conditions", ())
    return any(one["type"] == "PodResizePending" for one in told)


def pods() -> list[dict[str, Any]]:
    return [decode_object(one) for one in list_page("Pod").items]


def on(node: str) -> list[dict[str, Any]]:
    return [one for one in pods() if one["spec"].get("nodeName") == node]


def come(number: int, sizes: list[tuple[str, str]]) -> None:
    """Create a pod and place it, if there is room."""
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"requests": {"cpu": c, "memory": m}}}
        for i, (c, m) in enumerate(sizes)
    ]
    make_pod(f"p{number}", containers=containers)
    schedule(NOW + timedelta(seconds=1))  # who is bound as it is created was put there by a client


def resize(name: str, cpu: str, memory: str) -> None:
    def resized(manifest: dict[str, Any]) -> dict[str, Any]:
        asked = {"requests": {"cpu": cpu, "memory": memory}}
        first, *rest = manifest["spec"]["containers"]
        containers = [{**first, "resources": asked}, *rest]
        return {**manifest, "spec": {**manifest["spec"], "containers": containers}}

    with contextlib.suppress(Forbidden):  # larger than its node
        objects.update("Pod", "default", name, resized, now=NOW, subresource="resize")


def try_again() -> None:
    resizes.follow(NOW)
    for node in NODES:
        there = on(node)
        for pod in filter(waits, there):
            others = [set_aside(one) for one in there if one is not pod]
            has, wants = set_aside(pod), wanted(pod)
            assert any(
                wants[name] > has[name]
                and wants[name] + sum(one[name] for one in others) > plain(HAS[name])
                for name in HAS
            ), pod


def check() -> None:
    for node in NODES:
        for name, offered in HAS.items():
            taken = sum(set_aside(one)[name] for one in on(node))
            assert taken <= plain(offered), (node, name)
    noted = sql.fetch(
        "SELECT p.name FROM deferred_resize w JOIN pod p ON p.id = w.pod_id ORDER BY p.name"
    )
    assert [row[0] for row in noted] == sorted(
        one["metadata"]["name"] for one in pods() if waits(one)
    )


amounts = st.tuples(st.sampled_from(CPU), st.sampled_from(MEMORY))


@pytest.mark.django_db
@pytest.mark.drawn
def test_nodes_without_agents_keep_within_what_they_have_and_let_nothing_wait_in_vain() -> None:
    met = Counter[str]()

    @settings(
        max_examples=many(4, 80),
        derandomize=FORM == SUITE,  # so few of any would at times carry out nothing
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def draw(data: st.DataObject) -> None:
        memory.forget()
        with transaction.atomic():
            bootstrap.add_missing(now=NOW)
            for name in NODES:
                status = {"allocatable": {**HAS, "pods": "110"}}
                objects.create("Node", "", {"metadata": {"name": name}, "status": status}, now=NOW)
            for number in range(30):
                placed = sorted(one["metadata"]["name"] for node in NODES for one in on(node))
                act = data.draw(st.sampled_from(("come", "resize", "resize", "resize", "go")))
                if act == "come" or not placed:
                    come(number, data.draw(st.lists(amounts, min_size=1, max_size=2)))
                elif act == "resize":
                    resize(data.draw(st.sampled_from(placed)), *data.draw(amounts))
                else:
                    name = data.draw(st.sampled_from(placed))
                    objects.delete("Pod", "default", name, {"gracePeriodSeconds": 0}, now=NOW)
                check()
                waiting = sum(map(waits, pods()))
                try_again()
                check()
                left = sum(map(waits, pods()))
                met.update(waiting=waiting, carried_out=waiting - left)
            transaction.set_rollback(True)
        memory.forget()

    draw()
    assert met["carried_out"] > 0
