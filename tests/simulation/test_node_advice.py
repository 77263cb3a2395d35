"""Which nodes to add for the pods that wait: the cheapest found, proved by placing them."""

from typing import Any

import msgspec
import numpy as np
import pytest

from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.simulation.node_advice import Advice, Offer, advise
from tests import harness
from tests.builders import make_node, make_pod
from tests.conformance.cluster_cases import read_pod
from tests.forms import many


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


def test_no_more_of_a_shape_is_taken_than_can_be_had():
    pods = [make_pod().asks(cpu="2") for _ in range(4)]
    for nominate in (True, False):
        limited = [Offer("small", 1.0, SMALL.node, most=2), LARGE]
        assert advice(pods, limited, nominate=nominate).counts == (0, 1)
        assert advice(pods, [limited[0]], nominate=nominate).counts == (2,)


def test_the_cheapest_combination_is_found_where_one_shape_after_the_other_is_dearer():
    # 3 x 3 CPU fit one large node of 9 exactly; with the small ones first it is needed as well.
    pods = [make_pod().asks(cpu="3") for _ in range(3)] + [make_pod().asks(cpu="1")] * 2
    one = offer("one", 1.0, make_node().offers(cpu="1", pods="110"))
    nine = offer("nine", 5.0, make_node().offers(cpu="9", pods="110"))
    found = advice(pods, [one, nine])
    assert (found.counts, found.price) == ((2, 1), 7.0)
    assert found.least == pytest.approx(7.0, rel=0.1)


def test_reserved_nodes_are_taken_first_and_spot_nodes_by_those_who_bear_their_taint():
    reserved = Offer("reserved", 0.0, SMALL.node, most=1)
    spot = offer("spot", 0.3, make_node().offers(cpu="2", pods="110").tainted("spot"))
    pods = [make_pod().asks(cpu="2") for _ in range(2)]
    pods += [make_pod().asks(cpu="2").tolerates("spot") for _ in range(3)]
    found = advice(pods, [SMALL, reserved, spot])
    assert (found.counts, found.price) == ((1, 1, 3), 1.9)
    assert found.least == pytest.approx(1.9)


def random_world(seed: int) -> tuple[list[Any], list[Offer]]:
    rng = np.random.default_rng(seed)
    classes = [
        make_pod().asks(cpu=f"{rng.integers(2, 30)}00m", memory=f"{rng.integers(2, 60)}28Mi")
        for _ in range(12)
    ]
    classes[0] = classes[0].selects(disk="ssd")
    classes[1] = classes[1].host_port(80)
    classes[2] = classes[2].labelled(app="w").away_from("kubernetes.io/hostname", app="w")
    pods = [classes[int(at)] for at in rng.integers(0, 12, 80)]
    offers = []
    for number in range(6):
        cpu, ratio = int(rng.choice([4, 8, 16, 32])), int(rng.choice([2, 4, 8]))
        node = make_node().offers(cpu=str(cpu), memory=f"{cpu * ratio}Gi", pods="110")
        if number % 2:
            node = node.labelled(disk="ssd")
        price = round(float(cpu * (1 + ratio / 8) * rng.uniform(0.8, 1.2)), 3)
        offers.append(offer(f"shape-{number}", price, node))
    return pods, offers


@pytest.mark.drawn
def test_the_solver_spends_less_than_growing_the_set_does():
    solved = grown = 0.0
    for seed in range(many(1, 3)):
        pods, offers = random_world(seed)
        solved += advice(pods, offers).price
        grown += advice(pods, offers, nominate=False).price
    assert solved < grown


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(3, many(6, 203)))
def test_nominated_pods_land_as_foretold(seed: int):
    pods, offers = random_world(seed)
    found = advice(pods, offers)
    assert len(found.placed) == len(pods)
    assert found.least is not None
    assert found.least <= found.price
    # What comes true: the nodes come, the pods are nominated, the queue is worked off.
    snapshot = harness.build_snapshot({})
    for name, number in found.names:
        node = make_node(name).build()
        labels = {**offers[number].node.metadata.labels, "kubernetes.io/hostname": name}
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        snapshot.set_node(msgspec.structs.replace(offers[number].node, metadata=metadata))
    told = dict(found.placed)
    waiting = []
    for number, pod in enumerate(pods):
        key = f"default/pod-{number}"
        info = harness.to_place(snapshot, read_pod({"pod": pod.manifest})).info
        snapshot.nominate(key, info, told[key])
        waiting.append(PodToPlace(key, info, told[key]))
    done = schedule_batch(snapshot, harness.kubernetes_framework(), waiting, Options())
    assert dict(done.placed()) == told
