"""What a PodGroup lacks, and how many more gangs of a shape fit (issue 34)."""

import pytest

from scheduling.simulation import Base, read_headroom, run_headroom
from scheduling.simulation.gangs import shortfall
from tests.builders import make_node, make_pod
from tests.engine.test_groups import RACK, cluster, group, in_rack, member
from tests.harness import kubernetes_framework, to_place


def lacks(snapshot, made, *pods):
    snapshot.groups.set(made)
    ready = [to_place(snapshot, one.build()) for one in pods]
    return shortfall(snapshot, kubernetes_framework(), made.key, ready)


def test_pods_that_are_not_there_yet_are_missing():
    found = lacks(cluster("4"), group(count=3), member("p0"))
    assert (found.missing, found.waiting, found.placed) == (2, 1, 0)
    assert found.message == "2 more pods have to come: 1 of 3 are there"


def test_room_is_lacking_in_nodes_and_in_one_rack():
    snapshot = cluster("2", "2", "2", "2", racks=("x", "x", "y", "y"))
    before = snapshot.requested.copy()
    found = lacks(snapshot, group(count=8), *(member(f"p{n}", cpu="2") for n in range(8)))
    assert found.domains == {"": 4}
    assert found.message == (
        "4 of 8 needed pods have a place: room for 4 more is lacking, as on 4 free nodes"
    )
    racked = group("r", count=5, **in_rack())
    found = lacks(snapshot, racked, *(member(f"q{n}", "2", of="r") for n in range(5)))
    assert found.domains == {"x": 2, "y": 2}
    assert found.nodes == 3
    assert found.message == (
        "2 of 5 needed pods have a place in one rack, in x: room for 3 more is lacking, as on 3"
        " free nodes"
    )
    assert (snapshot.requested == before).all()


def test_a_group_that_fits_lacks_nothing_and_pods_that_no_node_takes_name_no_nodes():
    assert lacks(cluster("4"), group(count=2), member("p0"), member("p1")) is None
    found = lacks(cluster("4"), group(count=2), member("p0", "9"), member("p1", "9"))
    assert (found.nodes, found.domains) == (0, {"": 0})


def headroom(nodes, **spec):
    pod = make_pod("p").asks(cpu="2").manifest
    objects = [one.manifest for one in nodes]
    document = {"spec": {"base": "empty", "objects": objects, "pod": pod, **spec}}
    return run_headroom(read_headroom(document), Base())["status"]


def test_gangs_of_a_shape_are_counted():
    racks = ("x", "x", "y", "y")
    nodes = [
        make_node(f"n{n}").offers(cpu="4", pods="110").labelled({RACK: rack})
        for n, rack in enumerate(racks)
    ]
    found = headroom(nodes, gang={"minCount": 3})
    assert (found["fits"], sum(found["nodes"].values())) == (2, 6)
    assert found["message"].startswith("2 of 3 needed pods")
    assert headroom(nodes, gang={"minCount": 3, "topologyKey": RACK})["fits"] == 2
    assert headroom(nodes, gang={"minCount": 5, "topologyKey": RACK})["fits"] == 0
    assert headroom(nodes, gang={"minCount": 1}, limit=3)["limited"] is True


@pytest.mark.parametrize("gang", [3, {}, {"minCount": 0}, {"minCount": 2, "more": 1}])
def test_a_shape_that_is_none_is_refused(gang):
    with pytest.raises(Exception, match=r"spec\.gang"):
        headroom([make_node("n").offers(cpu="4")], gang=gang)
