"""Adapters of plugins written for one node at a time to plugins over rows."""

import numpy as np

from scheduling.framework.interface import (
    CycleState,
    Filter,
    FilterResult,
    PerNodeFilter,
    PerNodeNormalize,
    PerNodeScore,
    Plugin,
    Score,
    Scores,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.types import PodInfo


class PerNode:
    """Adapts a plugin written for one node at a time to a plugin over rows."""

    def __init__(self, plugin: PerNodeFilter | PerNodeScore) -> None:
        self.plugin = plugin
        self.name = plugin.name


class _PerNodeFilter(PerNode):
    def __init__(self, plugin: PerNodeFilter) -> None:
        super().__init__(plugin)
        self._judge = plugin.filter_node

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Call the plugin for one node after the other."""
        codes = np.zeros(len(rows), np.uint8)
        reason = np.zeros(len(rows), np.int32)
        reasons: dict[tuple[str, ...], int] = {}
        for position, row in enumerate(rows.tolist()):
            status = self._judge(pod, snapshot.node(row))
            if status is not None and not status.ok:
                codes[position] = status.code
                reason[position] = reasons.setdefault(status.reasons, len(reasons))
        return FilterResult(codes, reason, tuple(reasons)) if reasons else None


class _PerNodeScore(PerNode):
    def __init__(self, plugin: PerNodeScore) -> None:
        super().__init__(plugin)
        self._score = plugin.score_node

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return each node's score, int64 (rows,), by one call per node."""
        return np.array(
            [int(self._score(pod, snapshot.node(row))) for row in rows.tolist()], np.int64
        )


class _PerNodeNormalizedScore(_PerNodeScore):
    def __init__(self, plugin: PerNodeScore, normalize: PerNodeNormalize) -> None:
        super().__init__(plugin)
        self._normalize = normalize.normalize_scores

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        """Return normalised scores, int64 (rows,), from the plugin's mapping by node name."""
        names = [snapshot.node_name(row) for row in rows.tolist()]
        by_name = dict(zip(names, scores.tolist(), strict=True))
        changed = self._normalize(by_name)
        final = by_name if changed is None else changed
        return np.array([int(final[name]) for name in names], np.int64)


def with_adapters(plugin: Plugin) -> list[Plugin]:
    """Return the plugin, followed by adapters for its methods per node.

    One for each of Filter and Score that the plugin has per node only.
    """
    found: list[Plugin] = [plugin]
    if isinstance(plugin, PerNodeFilter) and not isinstance(plugin, Filter):
        found.append(_PerNodeFilter(plugin))
    if isinstance(plugin, PerNodeScore) and not isinstance(plugin, Score):
        if isinstance(plugin, PerNodeNormalize):
            found.append(_PerNodeNormalizedScore(plugin, plugin))
        else:
            found.append(_PerNodeScore(plugin))
    return found
