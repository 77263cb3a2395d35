"""The parts of a profile that the fast path uses, and whether it can decide the profile's pods."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from scheduling.engine.compiled.layout import LOW
from scheduling.framework.formulas import LEAST
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    Aspected,
    Plugin,
    looks_at_nodes,
    scores_nodes,
)
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Status
from scheduling.framework.terms import (
    AffinityTerms,
    AllocationScore,
    BalanceScore,
    ColumnFilter,
    CountedFilter,
    NamingFilter,
    RequestFilter,
    ScaledScore,
    SpreadTerms,
    Strategy,
)

_COMMON = frozenset({"cpu", "memory"})


class Profile:
    """The parts of a profile that the fast path uses; ``usable``: it can decide some pods."""

    def __init__(self, framework: Framework) -> None:
        self.framework: Any = framework
        self.usable = False
        plugins: dict[str, Plugin] = {
            plugin.name: plugin
            for plugin in (
                *framework.pre_filter_plugins,
                *framework.filter_plugins,
                *framework.pre_score_plugins,
                *framework.score_plugins,
            )
        }
        self.aspected = [p for p in plugins.values() if isinstance(p, Aspected)]
        # Plugins that look at nodes alone, without naming what they look at in a pod.
        self.by_class = any(
            not isinstance(plugin, Aspected) and looks_at_nodes(plugin) and scores_nodes(plugin)
            for plugin in plugins.values()
        )
        self.static = [plugin for plugin in framework.filter_plugins if looks_at_nodes(plugin)]
        filters = [plugin.name for plugin in framework.filter_plugins]
        self._order = {name: number for number, name in enumerate(filters)}
        self.scaled = {p.name for p in framework.score_plugins if isinstance(p, ScaledScore)}
        self.scores_pods = {
            plugin.name
            for plugin in framework.pre_score_plugins
            if isinstance(plugin, AffinityTerms | SpreadTerms)
        }
        self.termed = {
            plugin.name
            for plugin in framework.filter_plugins
            if isinstance(plugin, AffinityTerms | SpreadTerms)
        }
        self.termed |= {
            before.name
            for before, plugin in pairwise(framework.filter_plugins)
            if isinstance(before, CountedFilter) and isinstance(plugin, RequestFilter)
        }
        self.fit: RequestFilter | None = None
        self.fit_name = ""
        self.after_fit: set[str] = set()
        self.least: tuple[AllocationScore, str, int] | None = None
        self.balanced: tuple[BalanceScore, str, int] | None = None
        self.strategy = Strategy(LEAST, np.zeros(101, np.int64))
        # How many resources are scored, if more than cpu and memory by LeastAllocated; else 0.
        self.more_scored = 0
        self.by_request: tuple[int, ...] | None = None
        self._count_too_soon: list[int] = []
        self.counting: list[tuple[int, ColumnFilter]] = []
        """The filters that may look at columns, as they are asked, and their places among those
        with an aspect."""
        self.naming: list[tuple[int, NamingFilter]] = []
        if not self.by_class:
            of = enumerate(self.aspected)
            self.naming = [(at, plugin) for at, plugin in of if isinstance(plugin, NamingFilter)]
        if not all(
            isinstance(plugin, Aspected) or (looks_at_nodes(plugin) and scores_nodes(plugin))
            for plugin in plugins.values()
        ):
            return
        if not framework.looks_at_all:
            return
        if sum(framework.weights.values()) * MAX_NODE_SCORE >= -LOW // 2:
            return
        for plugin in framework.filter_plugins:
            if self.fit is not None:
                self.after_fit.add(plugin.name)
            if isinstance(plugin, RequestFilter):
                if self.fit is not None:
                    return
                self.fit, self.fit_name = plugin, plugin.name
        for scorer in framework.score_plugins:
            weight = framework.weights[scorer.name]
            if isinstance(scorer, AllocationScore):
                if self.least is not None:
                    return
                self.least = scorer, scorer.name, weight
            elif isinstance(scorer, BalanceScore):
                if self.balanced is not None:
                    return
                self.balanced = scorer, scorer.name, weight
        self._note_scored_resources()
        # Positions of the plugins that look at requests among those with an aspect. ``None``: one
        # of them does not name what else it looks at, or is of another package.
        names = {self.fit_name, *[of[1] for of in (self.least, self.balanced) if of is not None]}
        found = [at for at, plugin in enumerate(self.aspected) if plugin.name in names]
        if len(found) == len(names) and not names.intersection(framework.third_party):
            self.by_request = tuple(found)
        for at, one in enumerate(self.aspected):
            if isinstance(one, ColumnFilter):
                if one.name in self.after_fit:
                    self.counting.append((at, one))
                else:
                    self._count_too_soon.append(at)
        self.counting.sort(key=lambda found: self._order[found[1].name])
        self.usable = self.fit is not None

    def _note_scored_resources(self) -> None:
        by_allocation: tuple[str, ...] = ()
        by_balance: tuple[str, ...] = ()
        if self.least is not None:
            self.strategy, by_allocation = self.least[0].strategy, self.least[0].scored_resources
        if self.balanced is not None:
            by_balance = self.balanced[0].balanced_resources
        if (
            self.strategy.kind != LEAST
            or not _once_of(by_allocation, _COMMON)
            or not (_once_of(by_balance, _COMMON) and len(by_balance) in (0, 2))
        ):
            self.more_scored = max(len(by_allocation), len(by_balance), 1)

    def shuts_first(self, shut: Sequence[Status], termed: list[Plugin]) -> bool | None:
        """Return whether the filters that shut groups of a sheet precede those with terms.

        ``shut``: their rejections. ``None``: some precede and some follow, so a filter of either
        kind may be the first to reject.
        """
        shutting = [self._order[status.plugin] for status in shut]
        asked = [self._order[p.name] for p in termed if p.name in self._order]
        if not shutting or not asked or min(shutting) > max(asked):
            return False
        return True if max(shutting) < min(asked) else None

    def counts_too_soon(self, aspects: Sequence[Hashable]) -> bool:
        """Return whether a filter that requests columns for the class precedes NodeResourcesFit.

        Also True in a profile without NodeResourcesFit. ``aspects``: of the class, by plugin.
        """
        return any(aspects[at] != () for at in self._count_too_soon)

    def counts_too_late(self, filters: Sequence[ColumnFilter], others: Iterable[str]) -> bool:
        """Return whether one of the ``filters`` comes after one of the ``others``.

        ``others`` that come before NodeResourcesFit are ignored.
        """
        if not filters:
            return False
        last = max([self._order[one.name] for one in filters])
        return any(name in self.after_fit and self._order.get(name, last) < last for name in others)

    def in_order(self, plugins: list[Plugin]) -> list[Plugin]:
        """Return the plugins in the order of their filters."""
        return sorted(plugins, key=lambda plugin: self._order.get(plugin.name, -1))


def _once_of(names: tuple[str, ...], known: frozenset[str]) -> bool:
    """Return whether ``known`` has all names, and no name occurs twice."""
    return known.issuperset(names) and len(set(names)) == len(names)
