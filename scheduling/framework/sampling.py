"""How many feasible nodes are enough, and in which order nodes are looked at.

Rules: ``numFeasibleNodesToFind`` in pkg/scheduler/schedule_one.go and ``nodeTree`` in
pkg/scheduler/backend/cache/node_tree.go, v1.36 (R170-R178).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SEED_FLOOR = 50
"""The hard minimum of nodes that the seeds name (R175, C18)."""
KUBERNETES_FLOOR = 100
"""The hard minimum that Kubernetes has."""

_LOWEST_ADAPTIVE_PERCENTAGE = 5


def adaptive_percentage(nodes: int) -> int:
    """Return the percentage that 0 stands for: 50 - nodes/125, never below 5 (R172, C18)."""
    return max(50 - nodes // 125, _LOWEST_ADAPTIVE_PERCENTAGE)


def feasible_nodes_to_find(nodes: int, percentage: int, *, floor: int = SEED_FLOOR) -> int:
    """Return after how many feasible nodes the search may stop; at most ``nodes``.

    Args:
        nodes: how many nodes there are.
        percentage: 1-100, or 0 for the adaptive percentage; more acts as 100.
        floor: this many are looked for in any case, if there are as many (R175, R176).
    """
    if nodes < floor or percentage >= 100:
        return nodes
    if percentage == 0:
        percentage = adaptive_percentage(nodes)
    return min(max(nodes * percentage // 100, floor), nodes)


def next_start(start: int, examined: int, nodes: int) -> int:
    """Return where the next pod's search begins: where this one's ended (R177).

    Args:
        start: index at which this search began.
        examined: how many nodes it looked at, feasible or not.
        nodes: length of the node order; 0 gives 0.
    """
    return (start + examined) % nodes if nodes else 0


def interleaved(zones: Sequence[int] | npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
    """Return node indexes so that zones take turns, shape (nodes,) (R178).

    Zones come in the order of their first node, nodes of a zone in the order given; a zone that
    has no more nodes is passed over. Zones {1, 2, 3, 4} and {5, 6} give 1, 5, 2, 6, 3, 4.

    Args:
        zones: the zone of each node as a number, shape (nodes,).
    """
    column = np.asarray(zones)
    if not len(column):
        return np.empty(0, dtype=np.intp)
    _, first, inverse, counts = np.unique(
        column, return_index=True, return_inverse=True, return_counts=True
    )
    # Turn: a node's place within its zone; then zones within a turn by their first appearance.
    by_zone = np.argsort(inverse, kind="stable")
    turn = np.empty(len(column), dtype=np.intp)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    turn[by_zone] = np.arange(len(column)) - np.repeat(starts, counts)
    return np.lexsort((first[inverse], turn)).astype(np.intp, copy=False)
