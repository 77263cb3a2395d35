"""What plugins say about nodes alone, kept for all classes of which they would say the same.

Each plugin names what it looks at in a pod (``Aspected``): tolerations, node selector and affinity,
images. Classes whose aspects are equal share a ``plain_run.Plan``; those with a program share one
in which the labels that their terms look at tell groups of rows apart as well.
"""

from collections.abc import Hashable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from scheduling.engine.decision import Rejection
from scheduling.engine.plain_run import Plan
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int8, Int32, Int64
from scheduling.framework.interface import (
    Cacheable,
    CycleState,
    Locality,
    NodeTable,
    NormalizeScore,
    Plugin,
    Rows,
    Score,
)
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code
from scheduling.framework.terms import (
    AffinityTerms,
    BalancedScore,
    LeastAllocatedScore,
    PlainFilter,
    ScaledScore,
    SpreadTerms,
)
from scheduling.framework.types import PodInfo

LOW = -(2**30)
BLOCK = 64
MOST_GROUPS = 64
_PLAN_BYTES = 64 * 2**20


@runtime_checkable
class Aspected(Protocol):
    """A plugin that can name what it looks at in a pod."""

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return all that the plugin's answers about a pod depend on, besides the nodes.

        Pods with equal aspects get equal answers from PreFilter, Filter, PreScore, Score,
        NormalizeScore and ``group_keys`` as long as the snapshot's ``node_version`` stays. A plugin
        whose locality is not NODE answers for what it says beyond comparing and scoring requests:
        it must pass every row then. ``None``: more than can be named. The answer itself holds as
        long as all of the snapshot's versions do.
        """
        ...


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
        filters = [plugin.name for plugin in framework.filter_plugins]
        self._order = {name: number for number, name in enumerate(filters)}
        self.scaled = {p.name for p in framework.score_plugins if isinstance(p, ScaledScore)}
        self.termed = {
            plugin.name
            for plugin in framework.filter_plugins
            if isinstance(plugin, AffinityTerms | SpreadTerms)
        }
        self.fit: PlainFilter | None = None
        self.fit_name = ""
        self.after_fit: set[str] = set()
        self.least: tuple[LeastAllocatedScore, str, int] | None = None
        self.balanced: tuple[BalancedScore, str, int] | None = None
        if len(self.aspected) != len(plugins):
            return
        for plugin in framework.filter_plugins:
            if self.fit is not None:
                self.after_fit.add(plugin.name)
            if isinstance(plugin, PlainFilter):
                if self.fit is not None:
                    return
                self.fit, self.fit_name = plugin, plugin.name
        for scorer in framework.score_plugins:
            weight = framework.weights[scorer.name]
            if isinstance(scorer, LeastAllocatedScore):
                if self.least is not None:
                    return
                self.least = scorer, scorer.name, weight
            elif isinstance(scorer, BalancedScore):
                if self.balanced is not None:
                    return
                self.balanced = scorer, scorer.name, weight
        self.usable = self.fit is not None

    def in_order(self, plugins: list[Plugin]) -> list[Plugin]:
        """Return plugins as their filters are asked."""
        return sorted(plugins, key=lambda plugin: self._order.get(plugin.name, -1))


class Plans:
    """The plans of one profile over one snapshot, and the arrays that the loop reads of them."""

    def __init__(self, snapshot: Snapshot, profile: Profile) -> None:
        self._snapshot = snapshot
        self._profile = profile
        self.rows = -(-snapshot.capacity // BLOCK) * BLOCK
        self.most = max(_PLAN_BYTES // (self.rows * 6), 4)
        self.plans: list[Plan] = []
        self._by_aspects: dict[Hashable, Plan | None] = {}
        self.base_count = 0
        self.bases: Int32 = np.zeros((0, self.rows), np.int32)
        self.group: Int8 = np.zeros((0, self.rows), np.int8)
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
        static = [p for p in framework.filter_plugins if _locality(p) is Locality.NODE]
        judged = framework.filter_some(static, state, info, snapshot, rows)
        counts = np.bincount(judged.verdict, minlength=len(judged.statuses)).tolist()
        for status, count in zip(judged.statuses[1:], counts[1:], strict=True):
            if count and status.plugin in profile.after_fit:
                return None  # the first rejection may be either's
            if count:
                plan.rejections.append(Rejection(status, count))
        open_rows = judged.feasible
        if not self._score(plan, state, open_rows, keys):
            return None
        self.plans.append(plan)
        if len(self.plans) > len(self.group_count):
            self._reserve(max(8, 2 * len(self.plans)))
        at = plan.number
        self.group[at] = plan.group
        self.group_count[at] = 1 if plan.keyed else len(plan.group_rows)
        self.keyed[at] = plan.keyed
        self.hint[at] = -1
        self.hint[at, : len(plan.group_rows)] = plan.group_rows
        self.open_rows[at] = len(open_rows)
        return plan

    def _score(
        self,
        plan: Plan,
        state: CycleState,
        rows: Rows,
        keys: tuple[tuple[str, bool], ...] | None,
    ) -> bool:
        """Score the rows that filters of nodes leave; False where the plain path must say more."""
        snapshot, profile, info = self._snapshot, self._profile, plan.info
        assert info is not None
        framework = profile.framework
        skipped: set[str] = set()
        none = np.zeros(0, np.int64)
        for pre in framework.pre_score_plugins:
            if _score_locality(pre) is Locality.GROUP:
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
        joint = np.zeros(len(rows), np.int64)
        scorers: list[Score] = framework.score_plugins
        for plugin in scorers:
            if plugin.name in skipped:
                continue
            if profile.least is not None and plugin.name == profile.least[1]:
                plan.lines.append(0)
            elif profile.balanced is not None and plugin.name == profile.balanced[1]:
                plan.lines.append(1)
            elif _score_locality(plugin) is not Locality.NODE:
                return False
            elif isinstance(plugin, NormalizeScore):
                assert isinstance(plugin, Cacheable)
                if keys is not None and plugin.name not in profile.scaled:
                    return False
                plan.lines.append(-1)
                plan.normalised.append((plugin, framework.weights[plugin.name]))
                for column in plugin.group_keys(info, snapshot, rows):
                    _, numbers = np.unique(column, return_inverse=True)
                    joint = joint * (int(numbers.max(initial=0)) + 1) + numbers
                    _, joint = np.unique(joint, return_inverse=True)
            else:
                scores = framework.score_one(plugin, state, info, snapshot, rows)[1]
                weighted = np.zeros(self.rows, np.int32)
                weighted[rows] = scores * framework.weights[plugin.name]
                plan.lines.append(2 + len(plan.fixed))
                plan.fixed.append(weighted)
                plan.base += weighted
            names.append(plugin.name)
        for label, is_there in keys or ():
            ids = snapshot.label_column(label).ids[rows]
            joint = joint * (int(ids.max(initial=0)) + 2) + (ids < 0 if is_there else ids + 1)
            _, joint = np.unique(joint, return_inverse=True)
        plan.names = tuple(names)
        plan.group = np.full(self.rows, -1, np.int8)
        found, first = np.unique(joint, return_index=True)
        if len(found) > MOST_GROUPS:
            return False
        plan.group[rows] = joint
        plan.group_rows = rows[first]
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
        offset = np.zeros(len(plan.group_rows) + 1, np.int32)
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


def _locality(plugin: Plugin) -> Locality:
    assert isinstance(plugin, Cacheable)
    return plugin.filter_locality


def _score_locality(plugin: Plugin) -> Locality:
    assert isinstance(plugin, Cacheable)
    return plugin.score_locality
