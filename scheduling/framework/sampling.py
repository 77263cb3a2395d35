"""How many feasible nodes are enough, and at which node the search for them begins.

Rule: ``numFeasibleNodesToFind`` in pkg/scheduler/schedule_one.go, v1.36 (R170-R177). The order of
the nodes is that of ``engine.snapshot`` (R178).
"""

SEED_FLOOR = 50
"""The hard minimum of nodes that the seeds name (R175, C18)."""

_LOWEST_ADAPTIVE_PERCENTAGE = 5


def adaptive_percentage(nodes: int) -> int:
    """Return the percentage that 0 means: 50 - nodes/125, never below 5 (R172, C18)."""
    return max(50 - nodes // 125, _LOWEST_ADAPTIVE_PERCENTAGE)


def feasible_nodes_to_find(nodes: int, percentage: int, *, floor: int = SEED_FLOOR) -> int:
    """Return after how many feasible nodes the search may stop; at most ``nodes``.

    Args:
        nodes: how many nodes there are.
        percentage: 1-100, or 0 for the adaptive percentage; more acts as 100.
        floor: the least number to find, if there are as many (R175, R176).
    """
    if nodes < floor or percentage >= 100:
        return nodes
    if percentage == 0:
        percentage = adaptive_percentage(nodes)
    return min(max(nodes * percentage // 100, floor), nodes)


def next_start(start: int, examined: int, nodes: int) -> int:
    """Return the node index at which the next pod's search begins: where this one ended (R177).

    Args:
        start: index at which this search began.
        examined: how many nodes it looked at, feasible or not.
        nodes: length of the node order; 0 gives 0.
    """
    return (start + examined) % nodes if nodes else 0
