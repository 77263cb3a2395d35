"""How many nodes are enough and in which order they are looked at (R170-R178, C18)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.framework.sampling import (
    KUBERNETES_FLOOR,
    SEED_FLOOR,
    adaptive_percentage,
    feasible_nodes_to_find,
    interleaved,
    next_start,
)


@pytest.mark.parametrize(
    ("nodes", "percentage", "kubernetes", "seed"),
    [
        (100, 50, 100, 50),
        (125, 49, 100, 61),
        (500, 46, 230, 230),
        (1_000, 42, 420, 420),
        (5_000, 10, 500, 500),
        (5_625, 5, 281, 281),
        (15_000, 5, 750, 750),
    ],
)
def test_the_adaptive_number_of_nodes(nodes, percentage, kubernetes, seed):
    """R172, R175: 50 % at 100 nodes, 10 % at 5,000, never below 5 %."""
    assert adaptive_percentage(nodes) == percentage
    assert feasible_nodes_to_find(nodes, 0, floor=KUBERNETES_FLOOR) == kubernetes
    assert feasible_nodes_to_find(nodes, 0, floor=SEED_FLOOR) == seed


@pytest.mark.parametrize("percentage", [100, 101, 1000])
def test_a_hundred_and_more_is_all_nodes(percentage):
    """R170, R174."""
    assert feasible_nodes_to_find(7_000, percentage) == 7_000


@pytest.mark.parametrize("percentage", [0, 1, 50])
def test_small_clusters_are_looked_at_whole(percentage):
    """R176."""
    assert feasible_nodes_to_find(49, percentage) == 49


def test_an_explicit_percentage_may_be_below_five():
    """R173."""
    assert feasible_nodes_to_find(10_000, 2) == 200


def test_the_fraction_is_cut_off():
    """R171."""
    assert feasible_nodes_to_find(333, 50) == 166


def test_zones_take_turns():
    """R178: zone 1 {1, 2, 3, 4}, zone 2 {5, 6} give 1, 5, 2, 6, 3, 4."""
    nodes = [1, 2, 3, 4, 5, 6]
    order = interleaved([1, 1, 1, 1, 2, 2])
    assert [nodes[i] for i in order] == [1, 5, 2, 6, 3, 4]


def test_zones_come_by_their_first_node():
    assert interleaved([9, 3, 9, 3, 3]).tolist() == [0, 1, 2, 3, 4]
    assert interleaved([]).tolist() == []


def test_the_next_pod_goes_on_where_the_last_one_stopped():
    """R177, and back to the first after the last (R178)."""
    assert next_start(0, 4, 6) == 4
    assert next_start(4, 2, 6) == 0
    assert next_start(4, 6, 6) == 4
    assert next_start(3, 0, 0) == 0


@given(st.lists(st.integers(0, 4), max_size=40))
def test_interleaving_is_a_permutation_that_keeps_the_order_within_zones(zones):
    order = interleaved(zones).tolist()
    assert sorted(order) == list(range(len(zones)))
    for zone in set(zones):
        mine = [i for i in order if zones[i] == zone]
        assert mine == sorted(mine)
    # The slow meaning: round after round, one node of each zone that has any left.
    left = {z: [i for i, x in enumerate(zones) if x == z] for z in dict.fromkeys(zones)}
    expected = []
    while any(left.values()):
        expected += [members.pop(0) for members in left.values() if members]
    assert order == expected
