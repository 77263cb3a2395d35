"""Bulk statements stay bulk: floors far below what they reach, so that only a mistake fails them.

The figures that count are taken with a durable server on a quiet machine; here the aim is to catch
a statement that went from microseconds to milliseconds per row (a lost plan, a lost index).
"""

import time
from collections.abc import Callable

import pytest

from clusterstate import changes, queries
from clusterstate.actions import pods
from tests.clusterstate.support import NOW, create_node, pod

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

COUNT = 2000


def per_second(work: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def test_creating_marking_binding_listing_and_following_thousands_of_pods() -> None:
    for number in range(10):
        create_node(f"n{number}", allocatable={"cpu": "1000", "pods": "1000"})
    manifests = [pod(f"p{i:05}", labels={"app": str(i % 100)}) for i in range(COUNT)]
    start = changes.watermark()
    figures = {}
    figures["create"] = per_second(lambda: pods.create_pods(manifests, now=NOW), COUNT)
    ids = [row.id for row in queries.load_pending()]
    assert len(ids) == COUNT
    refused = [pods.Unschedulable(pod_id=pod_id, message="0/10 nodes") for pod_id in ids]
    figures["mark"] = per_second(lambda: pods.set_unschedulable(refused, now=NOW), COUNT)
    bindings = [pods.Binding(pod_id, f"n{pod_id % 10}") for pod_id in ids]
    snapshot = changes.watermark()
    figures["bind"] = per_second(
        lambda: pods.bind_pods(bindings, snapshot_revision=snapshot, now=NOW), COUNT
    )
    figures["list"] = per_second(lambda: queries.list_page("Pod"), COUNT)
    figures["follow"] = per_second(
        lambda: changes.read_since(start, limit=3 * COUNT, documents=None), 3 * COUNT
    )
    assert len(queries.list_page("Pod", field_selector="spec.nodeName=n3").items) == COUNT // 10
    assert queries.overcommitted_nodes() == []
    floors = {"create": 300, "mark": 500, "bind": 500, "list": 2000, "follow": 2000}
    slow = {name: figures[name] for name, floor in floors.items() if figures[name] < floor}
    assert not slow, f"rows a second: {figures}"
