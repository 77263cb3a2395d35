"""What plugins say about nodes alone, kept for all classes of which they would say the same.

Each plugin names what it looks at in a pod (``Aspected``): tolerations, node selector and affinity,
images. Classes whose aspects are equal share a ``Plan``; those with a program share one
in which the labels that their terms look at tell groups of rows apart as well.
"""

from collections.abc import Hashable
from itertools import pairwise
from typing import Any

import numpy as np

from scheduling.engine.compiled.layout import BLOCK, LOW, MOST_SHUT
from scheduling.engine.decision import Rejection
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int16, Int32, Int64
from scheduling.framework.formulas import LEAST
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    Aspected,
    CycleState,
    Grouping,
    NormalizeScore,
    Plugin,
    Score,
    looks_at_nodes,
    scores_nodes,
)
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status
from scheduling.framework.terms import (
    AffinityTerms,
    AllocationScore,
    BalanceScore,
    CountedFilter,
    NamingFilter,
    RequestFilter,
    ScaledScore,
    SpreadTerms,
    Strategy,
)
from scheduling.framework.types import PodInfo

_COMMON = frozenset({"cpu", "memory"})
MOST_GROUPS = 64
"""Of a plan whose scores are normalised over the groups with feasible rows, which bits tell."""
MOST_KEYED = 960
"""Of a plan for classes with programs."""
_PLAN_BYTES = 64 * 2**20


class Plan:
    """What plugins say of all nodes about pods with equal aspects.

    ``base`` int32 (rows,): weighted local scores, very low where the pods cannot go; ``group``
    int16 (rows,): rows that are alike in everything that is normalised; ``by_groups``: for each set
    of groups with feasible rows its number in ``Plans.bases`` and the groups' weighted scores.
    ``lines``: for each of the plugins ``names`` 0 for NodeResourcesFit, 1 for balance, from 2 on
    the place in ``fixed`` (weighted scores by row), -1 for the ``normalised``. ``keyed``: of a plan
    for classes with programs how many groups there are, which labels tell apart as well; ``raw``:
    there the scores of its ``normalised`` plugins by group; ``shut``: what filters of nodes alone
    say that are asked after NodeResourcesFit; ``shut_groups`` int32 (groups,): for each group which
    of these rejects its rows, counted from 1, 0 for none.
    """

    def __init__(self, number: int, info: PodInfo | None) -> None:
        self.number = number
        self.info = info
        self.names: tuple[str, ...] = ()
        self.lines: list[int] = []
        self.fixed: list[Int32] = []
        self.normalised: list[tuple[Score, int]] = []
        self.rejections: list[Rejection] = []
        self.absent = 0
        self.keyed = 0
        self.raw: dict[str, Int64] = {}
        self.shut: list[Status] = []
        self.shut_groups: Int32 = np.zeros(0, np.int32)
        self.base: Int32 = np.zeros(0, np.int32)
        self.group: Int16 = np.zeros(0, np.int16)
        self.group_rows: Rows = np.zeros(0, np.intp)
        self.by_groups: dict[int, tuple[int, list[Int64], Int64]] = {}


class Profile:
    """What of a profile takes part; ``usable`` false where no pod is plain under it."""

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
        # Plugins that look at nodes alone, and do not say at what in a pod.
        self.by_class = any(
            not isinstance(plugin, Aspected) and looks_at_nodes(plugin) and scores_nodes(plugin)
            for plugin in plugins.values()
        )
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
        # How many resources scores look at, where not only cpu and memory, by LeastAllocated.
        self.more_scored = 0
        self.by_request: tuple[int, ...] | None = None
        self.naming: list[tuple[int, NamingFilter]] = []
        if not self.by_class:
            of = enumerate(self.aspected)
            self.naming = [(at, plugin) for at, plugin in of if isinstance(plugin, NamingFilter)]
        if not all(
            isinstance(plugin, Aspected) or (looks_at_nodes(plugin) and scores_nodes(plugin))
            for plugin in plugins.values()
        ):
            return
        if framework.profile.percentage_of_nodes_to_score < 100:
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
        # Where the plugins that look at requests stand among those with an aspect; ``None``: one of
        # them does not say what else it looks at, or is of another package.
        names = {self.fit_name, *[of[1] for of in (self.least, self.balanced) if of is not None]}
        found = [at for at, plugin in enumerate(self.aspected) if plugin.name in names]
        if len(found) == len(names) and not names.intersection(framework.third_party):
            self.by_request = tuple(found)
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

    def shuts_first(self, plan: Plan, termed: list[Plugin]) -> bool | None:
        """Return whether what shuts groups of a plan is asked before filters with terms.

        ``None``: some of it before and some after, so that either may be the first to reject.
        """
        shutting = [self._order[status.plugin] for status in plan.shut]
        asked = [self._order[p.name] for p in termed if p.name in self._order]
        if not shutting or not asked or min(shutting) > max(asked):
            return False
        return True if max(shutting) < min(asked) else None

    def in_order(self, plugins: list[Plugin]) -> list[Plugin]:
        """Return plugins as their filters are asked."""
        return sorted(plugins, key=lambda plugin: self._order.get(plugin.name, -1))


class Plans:
    """The plans of one profile over one snapshot, and the arrays that the loop reads of them."""

    def __init__(self, snapshot: Snapshot, profile: Profile) -> None:
        self._snapshot = snapshot
        self._profile = profile
        self.rows = -(-snapshot.capacity // BLOCK) * BLOCK
        self.most = max(_PLAN_BYTES // (self.rows * 8), 4)
        self.plans: list[Plan] = []
        self._by_aspects: dict[Hashable, Plan | None] = {}
        self.base_count = 0
        self.bases: Int32 = np.zeros((0, self.rows), np.int32)
        self.group: Int16 = np.zeros((0, self.rows), np.int16)
        self.group_count: Int32 = np.zeros(0, np.int32)
        self.hint: Int32 = np.zeros((0, MOST_GROUPS), np.int32)
        self.open_rows: Int64 = np.zeros(0, np.int64)
        self.keyed: Int32 = np.zeros(0, np.int32)

    @property
    def full(self) -> bool:
        """Whether it is time to begin anew."""
        return len(self._by_aspects) >= self.most or self.base_count >= self.most

    def of(
        self,
        info: PodInfo,
        aspects: tuple[Hashable, ...],
        keys: tuple[tuple[str, bool], ...] | None = None,
    ) -> Plan | None:
        """Return the plan of a pod with these aspects, ``None`` where there can be none.

        ``keys``: of a pod with a program, the labels that tell its groups apart (``Stated``).

        Raises:
            PluginFailed: a plugin failed.
        """
        key = (aspects, keys)
        if key in self._by_aspects:
            return self._by_aspects[key]
        plan = self._by_aspects[key] = self._make(info, keys)
        return plan

    def known(
        self, aspects: tuple[Hashable, ...], keys: tuple[tuple[str, bool], ...] | None = None
    ) -> Plan | None:
        """Return the plan of pods with these aspects as ``of`` does, ``None``: none was made."""
        return self._by_aspects.get((aspects, keys))

    def _make(self, info: PodInfo, keys: tuple[tuple[str, bool], ...] | None) -> Plan | None:
        snapshot, profile = self._snapshot, self._profile
        framework = profile.framework
        state = CycleState()
        begun = framework.pre_filter(state, info, snapshot)
        if not begun.status.ok:
            return None
        rows = begun.rows
        plan = Plan(len(self.plans), info)
        plan.absent = snapshot.node_count - len(rows)
        static = [p for p in framework.filter_plugins if looks_at_nodes(p)]
        judged = framework.filter_some(static, state, info, snapshot, rows)
        counts = np.bincount(judged.verdict, minlength=len(judged.statuses)).tolist()
        shut = np.zeros(len(rows), np.int64)
        for number in range(1, len(counts)):
            status = judged.statuses[number]
            if counts[number] and status.plugin in profile.after_fit:
                plan.shut.append(status)  # NodeResourcesFit may reject the row before
                shut[judged.verdict == number] = len(plan.shut)
            elif counts[number]:
                plan.rejections.append(Rejection(status, counts[number]))
        if plan.shut and (keys is None or len(plan.shut) > MOST_SHUT):
            return None
        left = (judged.verdict == 0) | (shut > 0)
        open_rows = rows[left]
        if not self._score(plan, state, open_rows, shut[left], keys):
            return None
        self.plans.append(plan)
        if len(self.plans) > len(self.group_count):
            self._reserve(max(8, 2 * len(self.plans)))
        at = plan.number
        self.group[at] = plan.group
        self.group_count[at] = 1 if plan.keyed else len(plan.group_rows)
        self.keyed[at] = plan.keyed
        self.hint[at] = -1
        if not plan.keyed:
            self.hint[at, : len(plan.group_rows)] = plan.group_rows
        self.open_rows[at] = len(open_rows)
        return plan

    def _score(
        self,
        plan: Plan,
        state: CycleState,
        rows: Rows,
        shut: Int64,
        keys: tuple[tuple[str, bool], ...] | None,
    ) -> bool:
        """Score the rows that filters of nodes leave; False where the reference path must say more.

        ``shut``: by row which of ``plan.shut`` rejects it after all, 0 for none.
        """
        snapshot, profile, info = self._snapshot, self._profile, plan.info
        assert info is not None
        framework = profile.framework
        skipped: set[str] = set()
        none = np.zeros(0, np.int64)
        for pre in framework.pre_score_plugins:
            if pre.name in profile.scores_pods:
                skipped.add(pre.name)  # its aspect says that it has nothing to say
                continue
            status = pre.pre_score(state, info, snapshot, rows[:0], none)
            if status.code is Code.SKIP:
                skipped.add(pre.name)
            elif not status.ok:
                return False
        names: list[str] = []
        plan.base = np.full(self.rows, LOW, np.int32)
        plan.base[rows] = 0
        joint = shut
        is_open = shut == 0
        open_rows = rows[is_open]
        scorers: list[Score] = framework.score_plugins
        for plugin in scorers:
            if plugin.name in skipped:
                continue
            if profile.least is not None and plugin.name == profile.least[1]:
                plan.lines.append(0)
            elif profile.balanced is not None and plugin.name == profile.balanced[1]:
                plan.lines.append(1)
            elif not scores_nodes(plugin):
                return False
            elif isinstance(plugin, NormalizeScore):
                if not isinstance(plugin, Grouping):
                    return False
                if keys is not None and plugin.name not in profile.scaled:
                    return False
                plan.lines.append(-1)
                plan.normalised.append((plugin, framework.weights[plugin.name]))
                for column in plugin.group_keys(info, snapshot, open_rows):
                    numbers = np.zeros(len(rows), np.int64)
                    numbers[is_open] = np.unique(column, return_inverse=True)[1]
                    joint = joint * (int(numbers.max(initial=0)) + 1) + numbers
                    _, joint = np.unique(joint, return_inverse=True)
            else:
                scores = framework.score_one(plugin, state, info, snapshot, open_rows)[1]
                weighted = np.zeros(self.rows, np.int32)
                weighted[open_rows] = scores * framework.weights[plugin.name]
                plan.lines.append(2 + len(plan.fixed))
                plan.fixed.append(weighted)
                plan.base += weighted
            names.append(plugin.name)
        for label, is_there in keys or ():
            ids = snapshot.label_column(label).ids[rows]
            joint = joint * (int(ids.max(initial=0)) + 2) + (ids < 0 if is_there else ids + 1)
            _, joint = np.unique(joint, return_inverse=True)
        plan.names = tuple(names)
        plan.group = np.zeros(self.rows, np.int16)
        found, first, joint = np.unique(joint, return_index=True, return_inverse=True)
        if len(found) > (MOST_GROUPS if keys is None else MOST_KEYED):
            return False
        plan.group[rows] = joint
        plan.group_rows = rows[first]
        plan.shut_groups = shut[first].astype(np.int32)
        plan.keyed = 0 if keys is None else len(found)
        return keys is None or len(found) > 0

    def base(self, plan: Plan, mask: int) -> int:
        """Return the number of the base for a set of groups that have feasible rows.

        Raises:
            PluginFailed: a plugin failed.
        """
        known = plan.by_groups.get(mask)
        if known is not None:
            return known[0]
        active = np.array([g for g in range(len(plan.group_rows)) if mask >> g & 1], np.int64)
        offset = np.zeros(max(len(plan.group_rows), 1), np.int32)
        assert plan.info is not None
        weighted: list[Int64] = []
        for plugin, weight in () if plan.keyed else plan.normalised:
            scores = self._profile.framework.score_one(
                plugin, CycleState(), plan.info, self._snapshot, plan.group_rows[active]
            )[1]
            weighted.append(scores * weight)
            offset[active] += (scores * weight).astype(np.int32)
        if self.base_count >= len(self.bases):
            more = np.zeros((max(4, 2 * self.base_count), self.rows), np.int32)
            more[: self.base_count] = self.bases[: self.base_count]
            self.bases = more
        number = self.base_count
        self.base_count += 1
        self.bases[number] = np.where(plan.base == LOW, LOW, plan.base + offset[plan.group])
        plan.by_groups[mask] = number, weighted, active
        return number

    def _reserve(self, size: int) -> None:
        for name in ("group", "group_count", "hint", "open_rows", "keyed"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)


def _once_of(names: tuple[str, ...], known: frozenset[str]) -> bool:
    """Return whether all names are known ones, none of them twice."""
    return known.issuperset(names) and len(set(names)) == len(names)
