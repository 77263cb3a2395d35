"""Counters: weighted counts of pods by row, made on demand and then kept up to date.

Affinity, spreading and host ports use them. This module makes them; a pod that comes to a row or
leaves it changes the counters in which its class has a weight (``pods``, ``many``).
"""

from collections.abc import Callable, Hashable

import numpy as np

from scheduling.engine.snapshot.many import ManyPods
from scheduling.framework.reach import Reach
from scheduling.framework.tables import Counter
from scheduling.framework.types import PodInfo

_COUNTER_LIMIT = 32_768


class PodCounters(ManyPods):
    """Makes counters from all pods on known nodes."""

    def counter(
        self,
        key: Hashable,
        weigh: Callable[[PodInfo], int],
        *,
        live_only: bool,
        reach: Reach | None = None,
    ) -> Counter:
        """Return the weighted pod count named ``key``; made from all pods on first use.

        ``weigh`` must depend only on ``peer_key``'s content and on namespace labels, and must be
        the same function of pods whenever ``key`` is equal. ``reach``: the classes that it may
        weigh; ``None``: it is called for every class.
        """
        counter = self._counters.get(key)
        if counter is not None:
            return counter
        if len(self._counters) >= _COUNTER_LIMIT:
            self.forget_counters()
        counter = Counter(key, weigh, live_only=live_only, capacity=self._capacity, reach=reach)
        self._counters[key] = counter
        self._fill(counter)
        return counter

    def _fill(self, counter: Counter) -> None:
        weight_of = self._peers.count(counter)
        if not any(self._peers.pods[number] for number in weight_of):
            for info, row in self._counted_nominated:
                if info.peer in weight_of:
                    counter.bump(row, weight_of[info.peer])
            return
        by_peer = np.zeros(len(self._peers.infos), np.int64)
        by_peer[list(weight_of)] = list(weight_of.values())
        by_class = by_peer[self._class_peer[: len(self.classes)]]
        weights = by_class[self._pod_class[: len(self._keys)]]
        slots = np.flatnonzero(weights)
        rows = self._pod_row[slots]
        counted = rows >= 0
        if counter.live_only:
            counted &= ~self._pod_terminating[slots]
        if self._detached:
            counted &= ~np.isin(slots, list(self._detached))
        counter.fill(rows[counted], weights[slots[counted]])
        for info, row in self._counted_nominated:
            counter.bump(row, int(by_peer[info.peer]))

    def _grow_rows(self) -> None:
        super()._grow_rows()
        for counter in self._counters.values():
            counter.grow(self._capacity)
