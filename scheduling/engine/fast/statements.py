"""The statements of plugins about a class with rules about other pods, before compilation.

Each plugin gives count terms (``framework.terms.Term``). This module determines the terms by row,
the labels by which groups of rows differ, the plugins that score now, and the texts of refusals.
"""

from collections.abc import Hashable, Sequence
from typing import Final

import msgspec
import numpy as np

from scheduling.engine.compiled import layout
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import CycleState, Plugin, PreFilter, PreScore
from scheduling.framework.runtime import Framework
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.tables import Counter
from scheduling.framework.terms import (
    AffinityTerms,
    AlikeSpreadTerms,
    CountedFilter,
    Kind,
    Rejection,
    SpreadTerms,
    Term,
)
from scheduling.framework.types import PodInfo

FEW_WATCHES: Final = 3
"""More counts by row than this take a line of the class's own."""
_MOST_RULES: Final = 32
FILTERING: Final = (Kind.NEAR, Kind.ANTI, Kind.EXISTING, Kind.HARD)
_NOT_BY_ROW: Final = (Kind.NEAR, Kind.HARD)


class ClassStatements(msgspec.Struct, kw_only=True):
    """The statements of plugins with terms about a class.

    ``keys``: the label keys by which groups differ: by value, or with ``True`` by presence alone.
    ``watches``: counters of terms by row; ``watch_of``: which of them each term looks at, -1 for
    none. ``scoring``: plugins that score by terms. ``refusals``: their rejections, by the loop's
    number. ``private``: the class needs a line of its own; a list of excepted rows is not enough.
    """

    terms: list[Term]
    watches: list[Counter]
    watch_of: list[int]
    keys: tuple[tuple[str, bool], ...]
    scoring: dict[str, Plugin]
    refusals: list[Status]
    affinity_first: bool
    private: bool
    counter: Counter | None
    """It rules out the rows where it is above 0, before NodeResourcesFit is asked."""
    taken: Status


class Alike(msgspec.Struct, kw_only=True):
    """Scheduling classes that plugins treat alike, except that each class has its own counter.

    ``stated``: the statements about one of them. ``infos``: the classes; ``counters``: of each.
    """

    stated: ClassStatements
    infos: list[PodInfo]
    counters: list[Counter]


class Statements:
    """Collects what the plugins of one profile state about classes, over one snapshot."""

    def __init__(self, snapshot: Snapshot, framework: Framework | None) -> None:
        self._snapshot = snapshot
        self._filters: set[str] = set()
        self._scores: set[str] = set()
        self._begins: dict[str, PreFilter] = {}
        self._prepares: dict[str, PreScore] = {}
        self._affinities: dict[str, AffinityTerms] = {}
        self._spreads: dict[str, SpreadTerms] = {}
        self._alike: dict[str, AlikeSpreadTerms] = {}
        self._counted: dict[str, CountedFilter] = {}
        self._refusals: dict[str, list[Status]] = {}
        for plugin in () if framework is None else framework.filter_plugins:
            rejections: tuple[Rejection, ...] = ()
            if isinstance(plugin, AffinityTerms):
                self._affinities[plugin.name] = plugin
                rejections = plugin.affinity_rejections
            elif isinstance(plugin, SpreadTerms):
                self._spreads[plugin.name] = plugin
                rejections = plugin.spread_rejections
                if isinstance(plugin, AlikeSpreadTerms):
                    self._alike[plugin.name] = plugin
            elif isinstance(plugin, CountedFilter):
                self._counted[plugin.name] = plugin
            self._refusals[plugin.name] = [Status(*one, plugin.name) for one in rejections]
        if framework is not None:
            self._filters = {plugin.name for plugin in framework.filter_plugins}
            self._scores = {plugin.name for plugin in framework.score_plugins}
            self._begins = {plugin.name: plugin for plugin in framework.pre_filter_plugins}
            self._prepares = {plugin.name: plugin for plugin in framework.pre_score_plugins}

    def alike(self, info: PodInfo, wanting: Sequence[Plugin]) -> tuple[Hashable, Counter] | None:
        """Return a key that classes with like terms share, and the class's own counter.

        ``None`` if no plugin states these. See ``AlikeSpreadTerms``.

        Raises:
            PluginFailed: a plugin failed.
        """
        alike = self._alike.get(wanting[0].name) if len(wanting) == 1 else None
        return None if alike is None else alike.spread_alike(info, self._snapshot)

    def is_affinity(self, name: str) -> bool:
        """Return whether a plugin states its rules as ``AffinityTerms``."""
        return name in self._affinities

    def affinities_scoring(self, info: PodInfo) -> set[str]:
        """Return the names of plugins with ``AffinityTerms`` that do not skip their score now.

        Raises:
            PluginFailed: a plugin failed.
        """
        rows, none = self._snapshot.rows()[:0], np.zeros(0, np.int64)
        found = set()
        for name in self._affinities:
            plugin = self._prepares.get(name)
            if plugin is not None and name in self._scores:
                status = plugin.pre_score(CycleState(), info, self._snapshot, rows, none)
                if status.code is not Code.SKIP:
                    found.add(name)
        return found

    def state(self, info: PodInfo, wanting: Sequence[Plugin]) -> ClassStatements | None:
        """Return the statements about a class, ``None`` if the fast path does not cover them.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot = self._snapshot
        rows = snapshot.rows()[:0]
        terms: list[Term] = []
        scoring: dict[str, Plugin] = {}
        refusals = [SUCCESS] * layout.REFUSALS
        order: list[str] = []
        counter: Counter | None = None
        taken = SUCCESS
        for plugin in wanting:
            begins = self._begins.get(plugin.name)
            if begins is not None:
                status = begins.pre_filter(CycleState(), info, snapshot)[1]
                if not status.ok and status.code is not Code.SKIP:
                    return None
            if plugin.name in self._counted:
                if counter is not None:
                    return None
                counter, rejection = self._counted[plugin.name].rejecting_counter(info, snapshot)
                taken = Status(*rejection, plugin.name)
                continue
            filtering = plugin.name in self._filters
            scores = plugin.name in self._scores
            untouched = False
            prepares = self._prepares.get(plugin.name)
            spread: list[Term] = []
            if plugin.name in self._spreads:
                spread = self._spreads[plugin.name].spread_terms(info, snapshot)
            if scores and prepares is not None and not any(t.kind is Kind.SOFT for t in spread):
                none = np.zeros(0, np.int64)
                status = prepares.pre_score(CycleState(), info, snapshot, rows, none)
                untouched = status.code is Code.SKIP
                if not status.ok and not untouched:
                    return None
                scores = not untouched
            affinity = self._affinities.get(plugin.name)
            if affinity is not None:
                stated = affinity.affinity_terms(info, snapshot)
                if untouched:
                    terms += affinity.untouched_terms(info, snapshot)
                refusals[layout.NOT_NEAR : layout.SHUT] = self._refusals[plugin.name]
                order.append("affinity")
            elif plugin.name in self._spreads:
                stated = spread
                refusals[: layout.NOT_NEAR] = self._refusals[plugin.name]
                order.append("spread")
            else:
                return None
            terms += [t for t in stated if (filtering if t.kind in FILTERING else scores)]
            if scores:
                scoring[plugin.name] = plugin
        if len(terms) > _MOST_RULES:
            return None
        watches, watch_of, keys, private = self._by_row(terms)
        return ClassStatements(
            terms=terms,
            watches=watches,
            watch_of=watch_of,
            keys=keys,
            scoring=scoring,
            refusals=refusals,
            affinity_first=order[:1] == ["affinity"],
            private=private or counter is not None,
            counter=counter,
            taken=taken,
        )

    def _by_row(
        self, terms: Sequence[Term]
    ) -> tuple[list[Counter], list[int], tuple[tuple[str, bool], ...], bool]:
        """Return what the class's terms need in the arrays of the compiled loops.

        Returns:
            The counters of the terms whose topology is the single row; for each term the index of
            its counter among these, -1 if its topology is a label; the labels by which groups of
            rows differ; whether the class needs a line of its own.
        """
        watches: list[Counter] = []
        watch_of: list[int] = []
        keys: dict[tuple[str, bool], None] = {}
        private = False
        alive = self._snapshot.rows()
        for term in terms:
            table = term.table
            watch = -1
            if term.kind is Kind.UNTOUCHED:
                pass
            elif not term.single:
                keys[table.column.key, False] = None
            else:
                private |= term.kind in _NOT_BY_ROW
                private |= not term.whole and table.eligible is not None
                if table.counter not in watches:
                    watches.append(table.counter)
                watch = watches.index(table.counter)
                if not table.column.everywhere(alive, self._snapshot.node_version):
                    keys[table.column.key, True] = None
            watch_of.append(watch)
        return watches, watch_of, tuple(sorted(keys)), private or len(watches) > FEW_WATCHES
