"""How many nodes are enough and in which order they are looked at (R170-R178, C18)."""

import pytest

from scheduling.framework.sampling import (
    SEED_FLOOR,
    adaptive_percentage,
    feasible_nodes_to_find,
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
    assert feasible_nodes_to_find(nodes, 0, floor=100) == kubernetes
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


def test_the_next_pod_goes_on_where_the_last_one_stopped():
    """R177, and back to the first after the last (R178)."""
    assert next_start(0, 4, 6) == 4
    assert next_start(4, 2, 6) == 0
    assert next_start(4, 6, 6) == 4
    assert next_start(3, 0, 0) == 0
