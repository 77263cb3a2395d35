"""The lines of the compiled loops: what is kept of a class to decide for its pods with numbers.

A line is made from a ``class_cache.ClassState`` and then follows the snapshot's log by itself.
Covered is a class

* whose filters that follow pods are NodeResourcesFit and, before it, one that rejects where a
  counter is above 0 (NodePorts);
* whose scores that follow pods are NodeResourcesFit (least allocated, of cpu and memory) and
  NodeResourcesBalancedAllocation;
* whose other filters and scores look at nodes alone, scaled, or state their rules as terms about
  counts (``framework.terms``: InterPodAffinity, PodTopologySpread);
* and whose rows fall into at most ``_MOST_GROUPS`` groups.

A *base* is what tells groups apart for good: labels, taints, what nodes alone are scored by. Within
a base *watches* do: counts on single nodes, such as those of terms about hostnames.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import numpy.typing as npt

from scheduling.engine.compiled import grouped, shared
from scheduling.engine.decision import Rejection
from scheduling.engine.line_run import Line
from scheduling.engine.shapes import CHECKS, Shape, Shapes, columns
from scheduling.engine.slots import Slots
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int32, Mask
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    Cacheable,
    CycleState,
    Locality,
    NormalizeScore,
    Plugin,
    Score,
)
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status
from scheduling.framework.terms import (
    AffinityTerms,
    BalancedScore,
    CountedFilter,
    Kind,
    LeastAllocatedScore,
    PlainFilter,
    ScaledScore,
    SpreadTerms,
    Term,
)
from scheduling.framework.terms import Rejection as Reason

if TYPE_CHECKING:
    from scheduling.engine.class_cache import ClassState


_MOST_GROUPS = 2**grouped.SHIFT - 2
_MOST_RULES = 32
_MOST_WATCHES = 8
_BYTES = 256 * 2**20
"""What a pool may take; classes that find no place in it are decided without."""
_CLIPPED: Final = (Kind.NEAR, Kind.ANTI, Kind.EXISTING)
_FILTERING: Final = (Kind.NEAR, Kind.ANTI, Kind.EXISTING, Kind.HARD)

_SHAPES: Final[Mapping[str, tuple[type[np.generic], tuple[str | int, ...]]]] = {
    "standing": (np.int32, ("rows",)),
    "closed": (np.int32, ("rows", 3)),
    "fixed": (np.int32, ("fixed", "rows")),
    "entry_group": (np.int16, (grouped.BLOCK, "blocks")),
    "entry_top": (np.int32, (grouped.BLOCK, "blocks")),
    "entry_ties": (np.int16, (grouped.BLOCK, "blocks")),
    "entries": (np.int16, ("blocks",)),
    "form": (np.int64, (grouped.FORM,)),
    "plan": (np.int64, ("plugins", 3)),
    "raw": (np.int64, ("plugins", "groups")),
    "rules": (np.int64, ("rules", 8)),
    "place": (np.int32, ("rules", "groups")),
    "watch": (np.int64, ("watches", 2)),
    "values": (np.int64, ("groups", "watches")),
    "base": (np.int32, ("groups",)),
    "size": (np.int32, ("groups",)),
    "members": (np.int32, ("groups",)),
    "kind": (np.int32, (grouped.KINDS,)),
    "kind_count": (np.int32, (grouped.KINDS,)),
    "vectors": (np.int64, ("resources",)),
    "nonzero": (np.int64, (2,)),
    "cursor": (np.int64, ()),
}
"""Of the fields of ``grouped.Lines``, without the first dimension, which is the line."""


class _Plan(msgspec.Struct, kw_only=True):
    """What a class filters and scores by, as far as it can be said without asking for rows."""

    shape: Shape
    fixed: list[int]
    plain: Plugin
    taken: Plugin | None
    affinity_first: bool
    sources: list[tuple[int, int, int]]
    scorers: list[Score]
    names: tuple[str, ...]
    skipped: frozenset[str]
    terms: list[Term]
    refusals: list[Status]


class Pool:
    """The lines of one profile over one snapshot, for one capacity and width of it."""

    def __init__(self, snapshot: Snapshot, framework: Framework) -> None:
        self._snapshot = snapshot
        self.capacity = snapshot.capacity
        self.width = snapshot.requested.shape[1]
        blocks = -(-self.capacity // grouped.BLOCK)
        self._sizes: dict[str, int] = {
            "lines": 0,
            "rows": self.capacity,
            "blocks": blocks,
            "fixed": sum(map(_is_fixed, framework.score_plugins)),
            "plugins": max(len(framework.score_plugins), 1),
            "resources": self.width,
            "groups": 16,
            "rules": 4,
            "watches": 2,
        }
        # Scores must leave room for a group's number; see ``grouped.Lines.standing``.
        highest = sum(framework.weights.values()) * MAX_NODE_SCORE
        self._fits = highest < 2 ** (31 - grouped.SHIFT)
        self.slots = Slots(snapshot)
        self.shapes = Shapes(snapshot)
        self.states: list[ClassState | None] = []
        self.lines: list[Line | None] = []
        self.generation = 0
        self.arrays = grouped.Lines(
            **{
                name: np.zeros((0, *self._shape(shape)), kind)
                for name, (kind, shape) in _SHAPES.items()
            }
        )

    @property
    def plugins(self) -> int:
        """How many plugins may score."""
        return self._sizes["plugins"]

    def _shape(self, shape: tuple[str | int, ...]) -> tuple[int, ...]:
        return tuple(self._sizes[of] if isinstance(of, str) else of for of in shape)

    def _bytes_of_line(self) -> int:
        return sum(
            np.dtype(kind).itemsize * int(np.prod(self._shape(shape)))
            for kind, shape in _SHAPES.values()
        )

    def reserve(self, **sizes: int) -> bool:
        """Make dimensions at least so large; False where that takes too much."""
        wider = {name: size for name, size in sizes.items() if size > self._sizes[name]}
        if not wider:
            return True
        before = dict(self._sizes)
        generous = {
            name: max(size, min(2 * before[name], size + 32)) for name, size in wider.items()
        }
        for chosen in (generous, wider):
            self._sizes = {**before, **chosen}
            if self._bytes_of_line() * max(self._sizes["lines"], 1) <= _BYTES:
                break
        else:
            self._sizes = before
            return False
        arrays = {}
        for name, (kind, shape) in _SHAPES.items():
            old = getattr(self.arrays, name)
            new = np.zeros((self._sizes["lines"], *self._shape(shape)), kind)
            new[tuple(slice(0, size) for size in old.shape)] = old
            arrays[name] = new
        self.arrays = grouped.Lines(**arrays)
        return True

    # --- lines -----------------------------------------------------------------------------------

    def free(self, state: "ClassState") -> None:
        """Give a class's line back."""
        if 0 <= state.line < len(self.states) and self.states[state.line] is state:
            self.shapes.leave(int(self.arrays.form[state.line, grouped.SHAPE]))
            self.states[state.line] = self.lines[state.line] = None
        state.line = -1

    def _place(self) -> int:
        """Return a free line, -1 when all are taken."""
        if None in self.states:
            return self.states.index(None)
        number = len(self.states)
        if not self.reserve(lines=number + 1):
            return -1
        self.states.append(None)
        self.lines.append(None)
        return number

    def build(self, state: "ClassState") -> bool:
        """Make a class's line anew from its state, which is up to date; False: not covered.

        Raises:
            PluginFailed: a plugin failed.
        """
        versions = (self._snapshot.node_version, self._snapshot.peer_version)
        if self.slots.versions != versions:
            self.slots.clear()
        plan = _plan(state) if self._fits else None
        if plan is None:
            return False
        slots = [self.slots.of_term(term) for term in plan.terms]
        taken_status, taken_slot = Status(), -1
        if plan.taken is not None:
            assert isinstance(plan.taken, CountedFilter)
            counter, reason = plan.taken.rejecting_counter(state.info, self._snapshot)
            taken_slot = self.slots.of_counter(counter)
            taken_status = _status(reason, plan.taken.name)
            slots.append(taken_slot)
        if -1 in slots or len(plan.terms) > _MOST_RULES:
            return False
        used = tuple(dict.fromkeys(slots))
        self.slots.follow(used)
        if state.line < 0:
            state.line = self._place()
            if state.line < 0:
                return False
        number = state.line
        assert isinstance(plan.plain, PlainFilter)
        self.generation += 1
        shape = self.shapes.take(plan.shape)
        if self.states[number] is state:
            self.shapes.leave(int(self.arrays.form[number, grouped.SHAPE]))
        self.states[number] = state if shape >= 0 else None
        self.arrays.form[number] = 0
        self.arrays.form[number, grouped.SHAPE] = shape
        if shape < 0 or not self._fill(state, number, plan, slots[: len(plan.terms)], taken_slot):
            self.free(state)
            return False
        self.lines[number] = Line(
            number=number,
            info=state.info,
            plugins=plan.names,
            skipped=plan.skipped,
            slots=used,
            fixed=_fixed_rejections(state, self.arrays.closed[number, :, grouped.AFTER]),
            refusals=plan.refusals,
            statuses=state.statuses,
            fit=plan.plain,
            fit_name=plan.plain.name,
            taken=taken_status,
            evaluated=self._snapshot.node_count - state.rejected[1],
        )
        return True

    def _fill(
        self, state: "ClassState", number: int, plan: _Plan, slots: list[int], taken: int
    ) -> bool:
        """Write a line; False where it has too many groups or kinds of rejections."""
        snapshot, info = self._snapshot, state.info
        orders = [row_filter.order for row_filter in state.row_filters]
        order = state.static_order
        if ((order > orders[0]) & (order < orders[-1])).any():
            return False
        watches: dict[tuple[int, bool], int] = {}
        rules = []
        for term, slot in zip(plan.terms, slots, strict=True):
            watch = -1
            if term.single and term.kind is not Kind.UNTOUCHED:
                watch = watches.setdefault((slot, term.kind in _CLIPPED), len(watches))
            rules.append(
                (
                    term.kind, slot, watch, term.matches_self, term.max_skew, term.from_zero,
                    term.by_size, term.all_keys,
                )
            )  # fmt: skip
        if len(watches) > _MOST_WATCHES or not self.reserve(rules=len(rules), watches=len(watches)):
            return False
        arrays = self.arrays
        form = arrays.form[number]
        form[grouped.RULES] = len(rules)
        form[grouped.WATCHES] = len(watches)
        form[grouped.PLUGINS] = len(plan.sources)
        form[grouped.TAKEN_SLOT] = taken
        form[grouped.AFFINITY_FIRST] = plan.affinity_first
        for at, source in enumerate(plan.sources):
            arrays.plan[number, at] = source
        for at, rule in enumerate(rules):
            arrays.rules[number, at] = rule
        for (slot, clipped), at in watches.items():
            arrays.watch[number, at] = slot, clipped
        arrays.vectors[number] = snapshot.request_vector(info)
        arrays.nonzero[number] = info.nonzero_cpu, info.nonzero_memory

        alive = snapshot.rows()
        open_rows = alive[order[alive] > orders[-1]]
        for at, line in enumerate(plan.fixed):
            arrays.fixed[number, at] = state.scores[line]
        if arrays.fixed[number, : len(plan.fixed)].any():
            form[grouped.FIXED] = len(plan.fixed)
        closed = arrays.closed[number]
        closed[:, grouped.AFTER] = -1
        closed[open_rows, grouped.AFTER] = state.static[open_rows]
        grouped.judge_rows(number, arrays, self.shapes.arrays, self.slots.arrays)
        bits = closed[open_rows, grouped.BITS]
        kinds, counts = np.unique(bits[bits != 0], return_counts=True)
        if len(kinds) > grouped.KINDS // 2:
            return False
        arrays.kind[number] = arrays.kind_count[number] = 0
        arrays.kind[number, : len(kinds)] = kinds
        arrays.kind_count[number, : len(kinds)] = counts
        if not self._group(state, number, plan, list(watches), open_rows, bits == 0):
            return False
        grouped.index(number, self.arrays)
        self.arrays.cursor[number] = snapshot.log_end
        return True

    def _group(
        self,
        state: "ClassState",
        number: int,
        plan: _Plan,
        watches: list[tuple[int, bool]],
        rows: npt.NDArray[np.intp],
        passing: Mask,
    ) -> bool:
        """Write a line's bases and groups."""
        counts = self.slots.arrays
        joint = state.base[rows]
        for term in plan.terms:
            if term.single and term.kind is not Kind.UNTOUCHED:
                joint = 2 * joint + (term.table.column.ids[rows] < 0)
                joint = np.unique(joint, return_inverse=True)[1]
        bases, witness, base_of = np.unique(joint, return_index=True, return_inverse=True)
        joint = base_of
        values = np.zeros((len(watches), len(rows)), np.int64)
        for at, (slot, clipped) in enumerate(watches):
            offset, place = counts.slots[slot, [grouped.OFFSET, grouped.PLACES]]
            found = np.where(counts.where[place, rows] >= 0, counts.counts[offset + rows], 0)
            values[at] = found > 0 if clipped else found
            numbers = np.unique(values[at], return_inverse=True)[1]
            joint = joint * (int(numbers.max(initial=0)) + 1) + numbers
            joint = np.unique(joint, return_inverse=True)[1]
        groups, member, group_of = np.unique(joint, return_index=True, return_inverse=True)
        room = len(groups) if not watches else len(groups) + 8
        if room > _MOST_GROUPS or not self.reserve(groups=room):
            return False
        arrays = self.arrays
        arrays.form[number, grouped.GROUPS] = len(groups)
        arrays.closed[number, rows, grouped.GROUP] = group_of
        arrays.standing[number, rows[passing]] += group_of[passing]
        arrays.base[number, : len(groups)] = base_of[member]
        arrays.values[number, : len(groups), : len(watches)] = values[:, member].T
        arrays.size[number] = arrays.members[number] = 0
        arrays.members[number, : len(groups)] = np.bincount(group_of, minlength=len(groups))
        arrays.size[number, : len(groups)] = np.bincount(group_of[passing], minlength=len(groups))
        at_rows = rows[witness]
        for at, term in enumerate(plan.terms):
            ids = term.table.column.ids[at_rows]
            arrays.place[number, at, : len(bases)] = np.minimum(ids, 0) if term.single else ids
        for at, ((source, _, _), scorer) in enumerate(zip(plan.sources, plan.scorers, strict=True)):
            if source in (grouped.SCALED, grouped.REVERSED):
                arrays.raw[number, at, : len(bases)] = state.raw_scores(scorer, at_rows)
        return True


def _is_fixed(plugin: Score) -> bool:
    """Whether a plugin's scores follow neither pods nor other nodes."""
    assert isinstance(plugin, Cacheable)
    return plugin.score_locality is Locality.NODE and not isinstance(plugin, NormalizeScore)


def _status(reason: Reason, plugin: str) -> Status:
    code, reasons = reason
    return Status(code, reasons, plugin)


def _fixed_rejections(state: "ClassState", after: Int32) -> list[Rejection]:
    """Return how many nodes are rejected before the filters that follow pods, and why."""
    rows = state.snapshot.rows()
    numbers = state.static[rows][after[rows] < 0]
    counts = np.bincount(numbers, minlength=2).tolist()
    return [
        Rejection(state.statuses[number], count)
        for number, count in enumerate(counts)
        if number > 1 and count
    ]


def _plan(state: "ClassState") -> _Plan | None:
    """Return what a class filters and scores by, ``None`` where it is not covered."""
    if not state.usable or not state.row_filters:
        return None
    info, snapshot = state.info, state.snapshot
    filters = [row_filter.plugin for row_filter in state.row_filters]
    plain, before = filters[-1], filters[:-1]
    if not isinstance(plain, PlainFilter) or len(before) > 1:
        return None
    if before and not isinstance(before[0], CountedFilter):
        return None
    checks = plain.plain_filter(info, snapshot)
    if len(checks) > CHECKS:
        return None
    untouched = skipped_now(state)
    if untouched is None:
        return None
    terms: list[Term] = []
    refusals = [Status()] * grouped.REFUSALS
    order: list[str] = []
    filters_by = {plugin.name for plugin in state.group_filters}
    scores_by = {plugin.name for plugin in state.dynamic}
    termed: dict[str, Plugin] = {}
    for plugin in (*state.group_filters, *state.dynamic):
        termed.setdefault(plugin.name, plugin)
    for name, plugin in termed.items():
        filtering, scoring = name in filters_by, name in scores_by - untouched
        if isinstance(plugin, AffinityTerms):
            stated = plugin.affinity_terms(info, snapshot)
            if name in untouched:
                terms += plugin.untouched_terms(info, snapshot)
            for at, reason in enumerate(plugin.affinity_rejections):
                refusals[grouped.NOT_NEAR + at] = _status(reason, plugin.name)
            order.append("affinity")
        elif isinstance(plugin, SpreadTerms):
            stated = plugin.spread_terms(info, snapshot)
            for at, reason in enumerate(plugin.spread_rejections):
                refusals[grouped.SKEWED + at] = _status(reason, plugin.name)
            order.append("spread")
        else:
            return None
        terms += [term for term in stated if (filtering if term.kind in _FILTERING else scoring)]
    sources: list[tuple[int, int, int]] = []
    scorers: list[Score] = []
    fixed: list[int] = []
    least, balanced = (0, 0, 0, 0, 0), (0, 0, 0)
    for line in state.lines:
        scorer, weight = line.plugin, line.weight
        if scorer.name in untouched:
            continue
        at = -1
        if line.line >= 0 and not line.follows_pods:
            source, at = grouped.OF_NODE, len(fixed)
            fixed.append(line.line)
        elif line.line >= 0 and isinstance(scorer, LeastAllocatedScore):
            asked = scorer.least_allocated_terms(info)
            if asked is None or least[-1] or weight <= 0:
                return None
            source, at, least = grouped.OF_SHAPE, grouped.LEAST, (*asked, weight)
        elif line.line >= 0 and isinstance(scorer, BalancedScore):
            amounts = scorer.balanced_terms(info)
            if amounts is None or balanced[-1] or weight <= 0:
                return None
            source, at, balanced = grouped.OF_SHAPE, grouped.BALANCED, (*amounts, weight)
        elif line.line >= 0:
            return None
        elif line.of_node:
            if not isinstance(scorer, ScaledScore):
                return None
            source = grouped.REVERSED if scorer.scaled_in_reverse else grouped.SCALED
        elif scorer.name not in scores_by:
            return None
        else:
            source = grouped.AFFINITY if isinstance(scorer, AffinityTerms) else grouped.SPREAD
        sources.append((source, at, weight))
        scorers.append(scorer)
    return _Plan(
        shape=Shape(tuple(checks), least, balanced),
        fixed=fixed,
        plain=plain,
        taken=before[0] if before else None,
        affinity_first=order[:1] == ["affinity"],
        sources=sources,
        scorers=scorers,
        names=tuple(scorer.name for scorer in scorers),
        skipped=untouched,
        terms=terms,
        refusals=refusals,
    )


def skipped_now(state: "ClassState") -> frozenset[str] | None:
    """Return which plugins with terms skip their score now, ``None`` where one fails."""
    rows = state.snapshot.rows()[:0]
    skipped = set()
    for pre in state.dynamic:
        status = pre.pre_score(
            CycleState(), state.info, state.snapshot, rows, np.zeros(0, np.int64)
        )
        if status.code is Code.SKIP and isinstance(pre, AffinityTerms):
            skipped.add(pre.name)
        elif not status.ok:
            return None
    return frozenset(skipped)


def compile_loops() -> None:
    """Compile or load every loop for the arrays that it will get, by calls that do nothing."""
    snapshot = Snapshot(capacity=4)
    arrays = grouped.Lines(
        **{
            name: np.zeros((1, *(1 if isinstance(of, str) else of for of in shape)), kind)
            for name, (kind, shape) in _SHAPES.items()
        }
    )
    counts = Slots(snapshot).arrays
    none, nothing = np.zeros(0, np.int64), np.zeros(0, np.int32)
    log, filled = snapshot.log_room(0)
    told = grouped.Told(
        numbers=np.zeros((0, 1), np.int32),
        chosen=np.zeros((0, 1), np.int32),
        scores=np.zeros((0, 1, 1), np.int32),
        refused=np.zeros((0, 1), np.int32),
    )
    nodes, shapes = columns(snapshot), Shapes(snapshot).arrays
    arrays.closed[:] = -1
    grouped.mark_rows(nothing, 0, shapes, nodes)
    grouped.judge_rows(0, arrays, shapes, counts)
    grouped.index(0, arrays)
    grouped.decide(nothing, none, none, arrays, shapes, counts, nodes, log, 0, filled, told)
    snapshot.assume_run([], [], nothing, shared.link)
