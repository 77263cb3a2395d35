"""Which nodes to add for the pods that wait: the cheapest found, proved by placing them."""

from typing import Any

from scheduling.engine.reference.cycle import PodToPlace
from scheduling.simulation.node_advice import Advice, Offer, advise
from tests import harness
from tests.builders import make_node, make_pod
from tests.conformance.cluster_cases import read_pod


def offer(name: str, price: float, node: Any) -> Offer:
    return Offer(name, price, node.build())


SMALL = offer("small", 1.0, make_node().offers(cpu="2", pods="110"))
LARGE = offer("large", 3.0, make_node().offers(cpu="8", pods="110"))
GPU = offer("gpu", 10.0, make_node().offers(cpu="8", pods="110").labelled(gpu="yes").tainted("gpu"))


def advice(pods: list[Any], offers: list[Offer], nodes: Any = (), **more: Any) -> Advice:
    snapshot = harness.build_snapshot({"nodes": [node.manifest for node in nodes]})
    waiting = []
    for number, pod in enumerate(pods):
        info = harness.to_place(snapshot, read_pod({"pod": pod.manifest})).info
        waiting.append(PodToPlace(f"default/pod-{number}", info))
    found = advise(snapshot, harness.kubernetes_framework(), waiting, offers, **more)
    assert snapshot.node_count == len(nodes)
    assert snapshot.pod_total == 0
    return found


def test_the_shape_that_costs_least_for_each_pod_is_taken():
    found = advice([make_pod().asks(cpu="1") for _ in range(8)], [SMALL, LARGE])
    # Eight CPU cost 3 on a large node and 4 on small ones.
    assert (found.counts, found.price) == ((0, 1), 3.0)
    assert len(found.placed) == 8
    found = advice([make_pod().asks(cpu="1") for _ in range(2)], [SMALL, LARGE])
    assert (found.counts, found.price) == ((1, 0), 1.0)


def test_the_rest_gets_the_shape_that_fits_it():
    found = advice([make_pod().asks(cpu="1") for _ in range(18)], [SMALL, LARGE])
    assert (found.counts, found.price) == ((1, 2), 7.0)
    assert len(found.placed) == 18


def test_pods_with_different_needs_get_different_nodes():
    pods = [make_pod().asks(cpu="2") for _ in range(3)]
    pods += [make_pod().asks(cpu="8").selects(gpu="yes").tolerates("gpu") for _ in range(2)]
    found = advice(pods, [SMALL, GPU])
    assert (found.counts, found.price) == ((3, 2), 23.0)


def test_room_that_is_there_already_is_not_bought():
    pods = [make_pod().asks(cpu="2") for _ in range(3)]
    found = advice(pods, [SMALL], [make_node("old").offers(cpu="4", pods="110")])
    assert (found.before, found.counts) == (2, (1,))


def test_pods_that_no_shape_helps_are_left_and_nothing_is_bought_for_them():
    found = advice([make_pod().asks(cpu="64")], [SMALL, LARGE])
    assert (found.counts, found.price, found.placed) == ((0, 0), 0.0, ())


def test_no_more_nodes_are_added_than_allowed():
    found = advice([make_pod().asks(cpu="2") for _ in range(9)], [SMALL], most=4)
    assert found.counts == (4,)
    assert len(found.placed) == 4


def test_spreading_over_hosts_counts_as_it_does_for_real():
    pods = [
        make_pod(f"p-{n}").labelled(app="web").away_from("kubernetes.io/hostname", app="web")
        for n in range(3)
    ]
    assert advice(pods, [LARGE]).counts == (3,)
