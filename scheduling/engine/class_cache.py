"""Decisions from what earlier pods of the same scheduling class left behind.

The plain path (``engine.cycle``) asks every plugin about every node for every pod. Between two pods
of one class little changes: a few rows got a pod. So a ``ClassState`` keeps, per class,

* ``verdict``, int16 (rows,): the first rejection by filters that depend on the row alone;
* ``local``, int32 (rows,): the weighted sum of scores that depend on the row alone (resources,
  images), ``LOW`` where the verdict rejects;
* ``group``, int32 (rows,): rows that are alike in everything else. Taints, node affinity, spreading
  and inter-pod affinity are normalised over all feasible nodes, but see few distinct nodes: they
  are asked about one representative row of each group, and what they say is added per group.

``total = local + by_group[group]``; the pick is uniform among the rows with the highest total.

A class has a cursor in the snapshot's log of touched rows and works these off when it is next used
(``refresh``); when labels, taints or the set of nodes change it is built anew. Nothing is
estimated: a decision is the same, to the seed's draw, as the plain path's, which a property test
holds. What the cache cannot do (PostFilter, nominated pods, sampling, plugins that do not say what
they depend on) is left to the plain path: ``decide`` then answers ``None``.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from scheduling.engine.cycle import Options, PodToPlace, draw_below
from scheduling.engine.decision import SCHEDULED, BestScores, Decision, Rejection, top_positions
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    Cacheable,
    CycleState,
    Filter,
    FilterResult,
    Involved,
    Locality,
    NormalizeScore,
    PreScore,
    Rows,
    RowWise,
    Score,
)
from scheduling.framework.runtime import Framework, PluginFailed
from scheduling.framework.status import Code, Status
from scheduling.framework.types import PodInfo

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

LOW = -(2**30)
"""Below every total: marks rows that are not feasible."""
_PASSED = 2**14
"""Order number of "no static filter rejects"."""
_FEW = 4
"""Up to this many touched rows are judged one by one with plain numbers."""


class Cache:
    """The class states of one profile over one snapshot, the least recently used forgotten.

    Args:
        snapshot: what the states follow.
        framework: the profile.
        limit: how many classes to keep; one takes about 12 bytes per row and local plugin.
    """

    def __init__(self, snapshot: Snapshot, framework: Framework, *, limit: int = 512) -> None:
        self.snapshot = snapshot
        self.framework = framework
        self.limit = limit
        self._states: OrderedDict[int, ClassState] = OrderedDict()
        self.usable = _usable(framework)

    def state(self, info: PodInfo) -> "ClassState":
        """Return the class's state, up to date; made when it is not there.

        Raises:
            PluginFailed: a plugin failed.
        """
        state = self._states.get(info.index)
        if state is None or state.info is not info:
            state = self._states[info.index] = ClassState(self.snapshot, self.framework, info)
            if len(self._states) > self.limit:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(info.index)
            state.refresh()
        return state

    def decide(
        self, pod: PodToPlace, options: Options, *, draw: int = 0, start: int = 0
    ) -> Decision | None:
        """Return where the pod goes, ``None`` where the plain path must decide.

        Raises:
            PluginFailed: a plugin failed.
        """
        if not self.usable or pod.nominated_node or options.full or not self.snapshot.node_count:
            return None
        if self.snapshot.has_nominations(pod.info.priority, pod.key):
            return None
        state = self.state(pod.info)
        return state.decide(pod, options, draw, start) if state.usable else None


def _usable(framework: Framework) -> bool:
    """Whether every plugin says what it depends on, in an order that the cache can follow."""
    if framework.profile.percentage_of_nodes_to_score < 100:
        return False
    grouped = False
    for plugin in framework.filter_plugins:
        if not isinstance(plugin, Cacheable) or plugin.filter_locality is Locality.UNKNOWN:
            return False
        if plugin.filter_locality is Locality.GROUP:
            grouped = True
        elif grouped:
            return False  # the first rejection would have to be sought across both kinds
    for scorer in framework.score_plugins:
        if not isinstance(scorer, Cacheable) or scorer.score_locality is Locality.UNKNOWN:
            return False
        if scorer.score_locality is Locality.ROW and isinstance(scorer, NormalizeScore):
            return False
    return sum(framework.weights.values()) * MAX_NODE_SCORE < -LOW // 2


class _Local:
    """A score plugin that depends on the row alone, with its line of weighted scores."""

    def __init__(self, plugin: Score, weight: int, capacity: int) -> None:
        self.plugin = plugin
        self.weight = weight
        self.follows_pods = isinstance(plugin, Cacheable) and (
            plugin.score_locality is Locality.ROW
        )
        self.row_wise = plugin if isinstance(plugin, RowWise) else None
        self.scores: Int32 = np.zeros(capacity, np.int32)


class ClassState:
    """What is kept for one class; see the module's text. Columns are as long as the snapshot's."""

    def __init__(self, snapshot: Snapshot, framework: Framework, info: PodInfo) -> None:
        self.snapshot = snapshot
        self.framework = framework
        self.info = info
        self.usable = True
        self._build()

    # --- building --------------------------------------------------------------------------------

    def _versions(self) -> tuple[int, int, int, int]:
        s = self.snapshot
        return (s.node_version, s.peer_version, s.workload_version, s.capacity)

    def _build(self) -> None:
        snapshot, framework, info = self.snapshot, self.framework, self.info
        self.cycle_state = CycleState()
        begun = framework.pre_filter(self.cycle_state, info, snapshot)
        self.usable = begun.status.ok
        self.built = self._versions()
        self.cursor = snapshot.log_end
        if not self.usable:
            return
        capacity = snapshot.capacity
        rows = snapshot.rows()
        self.statuses: list[Status] = [Status(), begun.absent]
        self._status_number: dict[Status, int] = {}
        self.verdict: npt.NDArray[np.int16] = np.zeros(capacity, np.int16)
        self.rejected: list[int] = [0, 0]

        # Static filters: the first that rejects, and its place in the order of filters.
        self._static: npt.NDArray[np.int16] = np.zeros(capacity, np.int16)
        self._static_order: npt.NDArray[np.int16] = np.full(capacity, _PASSED, np.int16)
        if len(begun.rows) != len(rows):
            absent = np.setdiff1d(rows, begun.rows)
            self._static[absent] = 1
            self._static_order[absent] = -1
        self._row_filters: list[tuple[int, Filter, RowWise | None]] = []
        self._group_filters: list[Filter] = []
        skipped = self.cycle_state.skip_filter
        for order, plugin in enumerate(framework.filter_plugins):
            assert isinstance(plugin, Cacheable)
            if plugin.filter_locality is Locality.GROUP:
                if not isinstance(plugin, Involved) or plugin.involved(info, snapshot)[0]:
                    self._group_filters.append(plugin)
            elif plugin.name in skipped:
                continue
            elif plugin.filter_locality is Locality.ROW:
                row_wise = plugin if isinstance(plugin, RowWise) else None
                self._row_filters.append((order, plugin, row_wise))
            else:
                open_rows = rows[self._static[rows] == 0]
                result = plugin.filter(self.cycle_state, info, snapshot, open_rows)
                if result is not None:
                    failing = np.flatnonzero(result.codes)
                    where = open_rows[failing]
                    self._static[where] = self._numbers(plugin.name, result, failing)
                    self._static_order[where] = order

        # Scores: local ones now, grouped ones when a pod comes.
        self._locals: list[_Local] = []
        self._grouped: list[Score] = []
        self._order: list[tuple[Score, _Local | None]] = []
        none = np.zeros(0, np.int64)
        self._dynamic_skip: list[PreScore] = []
        static_skip: set[str] = set()
        for pre in framework.pre_score_plugins:
            assert isinstance(pre, Cacheable)
            if pre.score_locality is Locality.GROUP:
                if isinstance(pre, Involved) and not pre.involved(info, snapshot)[1]:
                    static_skip.add(pre.name)
                else:
                    self._dynamic_skip.append(pre)
                continue
            status = pre.pre_score(self.cycle_state, info, snapshot, rows[:0], none)
            if status.code is Code.SKIP:
                static_skip.add(pre.name)
            elif not status.ok:
                self.usable = False  # the plain path says what is wrong
                return
        for scorer in framework.score_plugins:
            if scorer.name in static_skip:
                continue
            weight = framework.weights[scorer.name]
            assert isinstance(scorer, Cacheable)
            if scorer.score_locality is Locality.GROUP or isinstance(scorer, NormalizeScore):
                self._grouped.append(scorer)
                self._order.append((scorer, None))
            else:
                local = _Local(scorer, weight, capacity)
                self._locals.append(local)
                self._order.append((scorer, local))
        self._one_by_one = all(
            row_wise is not None for _, _, row_wise in self._row_filters
        ) and all(local.row_wise is not None for local in self._locals if local.follows_pods)
        self._keyed = [
            plugin
            for plugin in dict.fromkeys((*self._group_filters, *self._grouped))
            if isinstance(plugin, Cacheable)
        ]
        self.local: Int32 = np.full(capacity, LOW, np.int32)
        self.group: Int32 = np.full(capacity, -1, np.int32)
        for local in self._locals:
            scores = framework.score_one(local.plugin, self.cycle_state, info, snapshot, rows)[1]
            local.scores[rows] = scores * local.weight
        self._judge_rows(rows)
        feasible = self.verdict[rows] == 0
        self.local[rows] = np.where(feasible, self._sum(rows), LOW)
        counts = np.bincount(self.verdict[rows], minlength=len(self.statuses))
        self.rejected = counts.tolist()
        self._make_groups(rows[feasible])

    def _numbers(
        self, plugin: str, result: FilterResult, positions: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.int16]:
        """Return the status numbers of the failing positions."""
        base = len(result.reasons) + 1
        combined = result.codes[positions].astype(np.int64) * base + result.reason[positions]
        kinds, inverse = np.unique(combined, return_inverse=True)
        numbers = []
        for kind in kinds.tolist():
            code, reason = divmod(kind, base)
            if Code(code) is Code.ERROR:
                text = ", ".join(result.reasons[reason])
                text = f'running "{plugin}" filter plugin: {text}'
                raise PluginFailed(Status(Code.ERROR, (text,), plugin))
            numbers.append(self._number(Status(Code(code), result.reasons[reason], plugin)))
        found: npt.NDArray[np.int16] = np.array(numbers, np.int16)[inverse]
        return found

    def _number(self, status: Status) -> int:
        number = self._status_number.get(status)
        if number is None:
            number = self._status_number[status] = len(self.statuses)
            self.statuses.append(status)
            self.rejected.append(0)
        return number

    def _judge_rows(self, rows: Rows) -> None:
        """Set ``verdict`` of rows from the static filters and those that follow pods."""
        verdict = self._static[rows].copy()
        order_so_far = self._static_order[rows].copy()
        for order, plugin, _ in self._row_filters:
            result = plugin.filter(self.cycle_state, self.info, self.snapshot, rows)
            if result is None:
                continue
            failing = np.flatnonzero((result.codes != 0) & (order_so_far > order))
            if len(failing):
                verdict[failing] = self._numbers(plugin.name, result, failing)
                order_so_far[failing] = order
        self.verdict[rows] = verdict

    def _sum(self, rows: Rows) -> Int32:
        total = np.zeros(len(rows), np.int32)
        for local in self._locals:
            total += local.scores[rows]
        return total

    # --- groups ----------------------------------------------------------------------------------

    def _make_groups(self, rows: Rows) -> None:
        """Group the feasible rows anew."""
        self._group_number: dict[tuple[int, ...], int] = {}
        self.group_size: list[int] = []
        self.group_row: list[int] = []
        if not self._keyed:
            self.group[rows] = 0
            self.group_size = [len(rows)]
            self.group_row = [int(rows[0]) if len(rows) else -1]
            self._group_number[()] = 0
            self._groups_changed()
            return
        columns = self._key_columns(rows)
        joint = np.zeros(len(rows), np.int64)
        for column in columns:
            _, numbers = np.unique(column, return_inverse=True)
            joint = joint * (int(numbers.max(initial=0)) + 1) + numbers
            _, joint = np.unique(joint, return_inverse=True)
        _, first, inverse, sizes = np.unique(
            joint, return_index=True, return_inverse=True, return_counts=True
        )
        self.group[rows] = inverse
        self.group_size = sizes.tolist()
        self.group_row = rows[first].tolist()
        if len(first):
            tuples = zip(*(column[first].tolist() for column in columns), strict=True)
            self._group_number = {key: number for number, key in enumerate(tuples)}
        self._groups_changed()

    def _key_columns(self, rows: Rows) -> list[Int64]:
        return [
            column
            for plugin in self._keyed
            for column in plugin.group_keys(self.info, self.snapshot, rows)
        ]

    def _groups_changed(self) -> None:
        """Note which groups have feasible rows."""
        sizes = np.array(self.group_size, np.int64)
        self._active = np.flatnonzero(sizes)
        self._active_rows = np.array(self.group_row, np.intp)[self._active]
        self._active_sizes = sizes[self._active]
        self._dirty = False
        self._fixed: dict[str, Int64] = {}

    def _leave(self, row: int) -> None:
        """Take a row out of its group."""
        number = int(self.group[row])
        if number < 0:
            return
        self.group[row] = -1
        self.group_size[number] -= 1
        self._dirty = True
        if self.group_row[number] == row:
            others = np.flatnonzero(self.group == number)
            self.group_row[number] = int(others[0]) if len(others) else -1

    def _enter(self, row: int, key: tuple[int, ...]) -> None:
        """Put a feasible row into the group with this key."""
        number = self._group_number.get(key)
        if number is None:
            number = self._group_number[key] = len(self.group_size)
            self.group_size.append(0)
            self.group_row.append(-1)
        self.group[row] = number
        self.group_size[number] += 1
        if self.group_row[number] < 0:
            self.group_row[number] = row
        self._dirty = True

    # --- following -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follow what changed in the snapshot since the last use.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot = self.snapshot
        if (
            self.built[0] != snapshot.node_version
            or self.built[1] != snapshot.peer_version
            or self.built[2] != snapshot.workload_version
            or self.cursor < snapshot.log_start
        ):
            self._build()
            return
        if not self.usable:
            return
        begin = self.cursor - snapshot.log_start
        changed = snapshot.log[begin:]
        if not changed:
            return
        self.cursor += len(changed)
        if len(changed) > 1:
            changed = list(set(changed))
        if self._one_by_one and len(changed) <= _FEW:
            for row in changed:
                self._follow_row(row)
        else:
            self._follow_rows(np.array(changed, np.intp))

    def _follow_row(self, row: int) -> None:
        """Judge one row again, with plain numbers."""
        info, snapshot = self.info, self.snapshot
        number = int(self._static[row])
        order_so_far = int(self._static_order[row])
        for order, plugin, row_wise in self._row_filters:
            if order_so_far < order:
                break
            assert row_wise is not None
            rejection = row_wise.filter_row(info, snapshot, row)
            if rejection is not None:
                number = self._number(Status(rejection[0], rejection[1], plugin.name))
                break
        before = int(self.verdict[row])
        if number != before:
            self.verdict[row] = number
            self.rejected[before] -= 1
            self.rejected[number] += 1
        if number:
            self.local[row] = LOW
            self._leave(row)
            for local in self._locals:
                if local.follows_pods and local.row_wise is not None:
                    score = local.row_wise.score_row(info, snapshot, row)
                    local.scores[row] = score * local.weight
            return
        total = 0
        for local in self._locals:
            if local.follows_pods and local.row_wise is not None:
                score = local.row_wise.score_row(info, snapshot, row) * local.weight
                local.scores[row] = score
                total += score
            else:
                total += local.scores.item(row)
        self.local[row] = total
        if self._keyed:
            columns = self._key_columns(np.array([row], np.intp))
            key = tuple(int(column[0]) for column in columns)
        else:
            key = ()
        old = int(self.group[row])
        if old >= 0 and self._group_number.get(key) == old:
            return
        self._leave(row)
        self._enter(row, key)

    def _follow_rows(self, rows: Rows) -> None:
        """Judge several rows again."""
        before = self.verdict[rows]
        self._judge_rows(rows)
        after = self.verdict[rows]
        moved = np.flatnonzero(before != after)
        for old, new in zip(before[moved].tolist(), after[moved].tolist(), strict=True):
            self.rejected[old] -= 1
            self.rejected[new] += 1
        for local in self._locals:
            if local.follows_pods:
                scores = self.framework.score_one(
                    local.plugin, self.cycle_state, self.info, self.snapshot, rows
                )[1]
                local.scores[rows] = scores * local.weight
        self.local[rows] = np.where(after == 0, self._sum(rows), LOW)
        if not self._keyed:
            entered = self.group[rows] < 0
            stays = after == 0
            for position in np.flatnonzero(entered == stays).tolist():
                row = int(rows[position])
                self._leave(row)
                if stays[position]:
                    self._enter(row, ())
            return
        columns = [column.tolist() for column in self._key_columns(rows)]
        olds = self.group[rows].tolist()
        for position, row in enumerate(rows.tolist()):
            if after[position]:
                self._leave(row)
                continue
            key = tuple(column[position] for column in columns)
            old = olds[position]
            if old < 0 or self._group_number.get(key) != old:
                self._leave(row)
                self._enter(row, key)

    # --- deciding --------------------------------------------------------------------------------

    def decide(self, pod: PodToPlace, options: Options, draw: int, start: int) -> Decision | None:
        """Return where the pod goes, ``None`` when nowhere: the plain path says why.

        Raises:
            PluginFailed: a plugin failed.
        """
        if self._dirty:
            self._groups_changed()
        info, snapshot, framework = self.info, self.snapshot, self.framework
        groups, rows, sizes = self._active, self._active_rows, self._active_sizes
        state = CycleState(pod_key=pod.key)
        rejections = [
            Rejection(self.statuses[number], count)
            for number, count in enumerate(self.rejected)
            if number and count
        ]
        if self._group_filters and len(rows):
            passing = framework.filter_some(self._group_filters, state, info, snapshot, rows)
            if len(passing.statuses) > 1:
                counts = np.bincount(passing.verdict, sizes, len(passing.statuses)).tolist()
                rejections += [
                    Rejection(status, int(count))
                    for status, count in zip(passing.statuses[1:], counts[1:], strict=True)
                    if count
                ]
                open_groups = passing.verdict == 0
                groups, rows, sizes = groups[open_groups], rows[open_groups], sizes[open_groups]
        feasible = int(sizes.sum()) if len(sizes) != 1 else int(sizes[0])
        if not feasible:
            return None
        if feasible == 1:
            row = int(rows[0])
            return self._decision(pod, options, draw, start, row, 1, rejections)

        # What grouped plugins give to each group.
        offset = 0
        parts: list[tuple[str, Int64 | Int32, bool]] = []
        by_group: Int64 | None = None
        if self._grouped:
            for pre in self._dynamic_skip:
                status = pre.pre_score(state, info, snapshot, rows, sizes)
                if status.code is Code.SKIP:
                    state.skip_score.add(pre.name)
                elif not status.ok:
                    return None
            by_group = np.zeros(len(groups), np.int64)
        for scorer, local in self._order:
            if local is not None:
                parts.append((scorer.name, local.scores, False))
            elif scorer.name not in state.skip_score:
                weighted = self._group_scores(scorer, state, groups, rows)
                assert by_group is not None
                by_group += weighted
                parts.append((scorer.name, weighted, True))
        total = self.local
        spread: Int64 | None = None
        if by_group is not None:
            if len(groups) == len(self._active) == 1:
                offset = int(by_group[0])
            else:
                spread = np.full(len(self.group_size) + 1, LOW, np.int64)
                spread[groups] = by_group
                total = self.local + spread.astype(np.int32)[self.group]
        elif len(groups) != len(self._active):
            spread = np.full(len(self.group_size) + 1, LOW, np.int64)
            spread[groups] = 0
            total = self.local + spread.astype(np.int32)[self.group]

        top = int(total.max())
        tied = np.flatnonzero(total == top)
        ties = len(tied)
        if options.tie_break == "first":
            row = min(tied.tolist(), key=snapshot.names.__getitem__)
        else:
            row = int(tied[draw_below(options.seed, draw, ties)])
        margin: int | None = None
        if ties < feasible:
            below = total.copy()
            below[tied] = 2 * LOW
            margin = top - int(below.max())
        chosen = top_positions(total, feasible, tied, row)
        position_of = None
        if len(groups) > 1:
            position_of = np.searchsorted(groups, self.group[chosen])
        matrix = np.empty((len(chosen), len(parts)), np.int64)
        for column, (_, scores, grouped) in enumerate(parts):
            if not grouped:
                matrix[:, column] = scores[chosen]
            elif position_of is None:
                matrix[:, column] = scores[0]
            else:
                matrix[:, column] = scores[position_of]
        best = BestScores(tuple([snapshot.names[r] for r in chosen.tolist()]), matrix)
        return self._decision(
            pod,
            options,
            draw,
            start,
            row,
            feasible,
            rejections,
            total=top + offset,
            margin=margin,
            ties=ties,
            plugins=tuple([name for name, _, _ in parts]),
            best=best,
        )

    def _group_scores(
        self, scorer: Score, state: CycleState, groups: npt.NDArray[np.intp], rows: Rows
    ) -> Int64:
        """Return weighted scores of the groups; what depends on nodes alone is kept."""
        assert isinstance(scorer, Cacheable)
        fixed = scorer.score_locality is Locality.NODE and len(groups) == len(self._active)
        if fixed:
            kept = self._fixed.get(scorer.name)
            if kept is not None:
                return kept
        scores = self.framework.score_one(scorer, state, self.info, self.snapshot, rows)[1]
        weighted: Int64 = scores * self.framework.weights[scorer.name]
        if fixed:
            self._fixed[scorer.name] = weighted
        return weighted

    def _decision(
        self,
        pod: PodToPlace,
        options: Options,
        draw: int,
        start: int,
        row: int,
        feasible: int,
        rejections: Sequence[Rejection],
        *,
        total: int = 0,
        margin: int | None = None,
        ties: int = 1,
        plugins: tuple[str, ...] = (),
        best: BestScores | None = None,
    ) -> Decision:
        snapshot = self.snapshot
        count = snapshot.node_count
        evaluated = count - self.rejected[1]
        if self.rejected[1]:
            rejections = [r for r in rejections if r.status is not self.statuses[1]]
        return Decision(
            key=pod.key,
            class_digest=self.info.digest,
            outcome=SCHEDULED,
            node_name=snapshot.names[row],
            row=row,
            total=total,
            margin=margin,
            ties=ties,
            node_count=count,
            evaluated=evaluated,
            feasible=feasible,
            plugins=plugins,
            best_scores=best,
            rejections=_sorted(rejections),
            seed=options.seed,
            draw=draw,
            next_start=(start + evaluated) % count,
            snapshot_revision=snapshot.revision,
            profile=self.framework.scheduler_name,
        )


def _sorted(rejections: Sequence[Rejection]) -> tuple[Rejection, ...]:
    if len(rejections) < 2:
        return tuple(rejections)
    return tuple(sorted(rejections, key=lambda r: (-r.nodes, r.status.plugin, r.status.reasons)))
