"""``check_plugin`` finds plugins that look at more than they say."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from scheduling.framework.interface import FilterResult, Locality
from scheduling.framework.status import Code
from scheduling.simulation.checks import UntruePlugin, check_plugin
from tests.builders import make_node, make_pod

Column = npt.NDArray[np.int64]
NODES = [make_node(f"n{n}").labelled({"size": str(n)}).manifest for n in range(4)]
PODS = [make_pod("p").asks(cpu="1").manifest, make_pod("p").labelled(app="a").manifest]


class Honest:
    """Rejects the smallest node, and scores the largest highest, scaled."""

    name = "Honest"
    filter_locality = score_locality = Locality.NODE
    scaled_in_reverse = False

    def _sizes(self, snapshot: Any, rows: Any) -> Column:
        column = snapshot.label_column("size")
        return np.array([int(value) for value in column.values], np.int64)[column.ids[rows]]

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> FilterResult | None:
        smallest = self._sizes(snapshot, rows) == 0
        return FilterResult.rejecting(smallest, Code.UNSCHEDULABLE, "small")

    def score(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Column:
        return self._sizes(snapshot, rows)

    def normalize(self, state: Any, pod: Any, snapshot: Any, rows: Any, scores: Column) -> Column:
        return 100 * scores // max(int(scores.max(initial=0)), 1)

    def group_keys(self, pod: Any, snapshot: Any, rows: Any) -> list[Column]:
        return [self._sizes(snapshot, rows)]


class Counts(Honest):
    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> FilterResult | None:
        return FilterResult.rejecting(snapshot.pod_count[rows] > 0, Code.UNSCHEDULABLE, "busy")


class Compares(Honest):
    def score(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Column:
        sizes = self._sizes(snapshot, rows)
        return sizes - sizes.min()


class Coarse(Honest):
    def group_keys(self, pod: Any, snapshot: Any, rows: Any) -> list[Column]:
        return [self._sizes(snapshot, rows) // 2]


class Squares(Honest):
    def normalize(self, state: Any, pod: Any, snapshot: Any, rows: Any, scores: Column) -> Column:
        return scores**2


class Silent(Honest):
    score_locality = Locality.PODS


def test_a_plugin_that_says_the_truth_passes() -> None:
    check_plugin(Honest(), NODES, PODS)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Counts(), "Filter after pods came"),
        (Compares(), "Score asked row by row"),
        (Coarse(), "NormalizeScore of rows with the equal keys"),
        (Squares(), "NormalizeScore said to be scaled"),
        (Silent(), "score_locality is not Locality.NODE"),
    ],
)
def test_a_plugin_that_looks_at_more_than_it_says_is_found(plugin: Honest, message: str) -> None:
    with pytest.raises(UntruePlugin, match=message):
        check_plugin(plugin, NODES, PODS)
