"""Measures a cluster's use: requested shares of resources, and fragmentation of free amounts.

*Fragmented* is the share of a resource that is free but useless for the script's pods. For each
class it is the free amount of nodes that the class does not fit; on other nodes, the rest of a
partly used GPU if the class requests more than that or whole GPUs. The mean over classes is
weighted by their pods. The measure is that of Weng et al. (USENIX ATC 2023; see
``plugins.shipped.gpu_fragmentation``), for any resource.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64, Mask
from scheduling.framework.interface import CycleState, looks_at_nodes
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo

MILLI_GPU: Final = "gpu-milli"
"""The suffix of resources that count GPUs in thousandths, so that pods share them."""
_WHOLE: Final = 1000
_MOST_CLASSES: Final = 100
"""Only the most frequent classes are measured."""


class Measure:
    """Computes statistics of a snapshot, such as use and fragmentation of resources.

    Args:
        scored: the resources; fragmentation is measured for the first one.
    """

    def __init__(self, scored: Sequence[str]) -> None:
        self._scored = tuple(scored)
        self.name = self._scored[0]
        self._classes: list[tuple[PodInfo, Framework, int]] = []
        self._open: dict[int, Mask] = {}
        self._opened_for: tuple[int, int] = (-1, -1)

    def expect(self, counts: dict[int, tuple[PodInfo, Framework, int]]) -> None:
        """Set the classes of the pods to come, by index, with their numbers of pods."""
        asking = [one for one in counts.values() if one[0].requests.get(self.name, 0) > 0]
        asking.sort(key=lambda one: (-one[2], one[0].digest))
        self._classes = asking[:_MOST_CLASSES]

    def take(self, snapshot: Snapshot) -> tuple[dict[str, float], float]:
        """Return the requested share of each resource, and the fragmented share of the first."""
        rows = snapshot.rows()
        used: dict[str, float] = {}
        for name in self._scored:
            column = snapshot.resource(name)
            offered = int(snapshot.allocatable[rows, column].sum())
            requested = int(snapshot.requested[rows, column].sum())
            used[name] = requested / offered if offered else 0.0
        return used, self._fragmented(snapshot)

    def _fragmented(self, snapshot: Snapshot) -> float:
        rows = snapshot.rows()
        column = snapshot.resource(self.name)
        offered = int(snapshot.allocatable[rows, column].sum())
        weights = sum(count for _, _, count in self._classes)
        if not offered or not weights:
            return 0.0
        free = snapshot.allocatable[rows] - snapshot.requested[rows]
        slots = snapshot.allowed_pods[rows] - snapshot.pod_count[rows]
        remaining: Int64 = np.maximum(free[:, column], 0)
        in_part = remaining % _WHOLE
        shares = self.name.endswith(MILLI_GPU)
        total = 0.0
        for info, framework, count in self._classes:
            request = snapshot.request_vector(info)
            needed = np.flatnonzero(request)
            fits = self._lets_in(snapshot, info, framework) & (slots > 0)
            fits &= (free[:, needed] >= request[needed]).all(axis=1)
            unusable = int(remaining[~fits].sum())
            if shares:
                share = int(request[column])
                torn = fits if share >= _WHOLE else fits & (in_part < share)
                unusable += int(in_part[torn].sum())
            total += count * unusable
        return total / weights / offered

    def _lets_in(self, snapshot: Snapshot, info: PodInfo, framework: Framework) -> Mask:
        """Return which rows pass the class's filters that depend on nodes alone, bool (rows,)."""
        stamp = (snapshot.node_version, snapshot.node_count)
        if stamp != self._opened_for:
            self._open.clear()
            self._opened_for = stamp
        is_open = self._open.get(info.index)
        if is_open is None:
            rows = snapshot.rows()
            state = CycleState()
            is_open = np.zeros(len(rows), np.bool_)
            begun = framework.pre_filter(state, info, snapshot)
            if begun.status.ok:
                static = [one for one in framework.filter_plugins if looks_at_nodes(one)]
                judged = framework.filter_some(static, state, info, snapshot, begun.rows)
                is_open[np.isin(rows, judged.feasible)] = True
            self._open[info.index] = is_open
        return is_open
