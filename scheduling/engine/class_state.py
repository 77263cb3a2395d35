"""What the reference path leaves behind for the next pods of a class.

``engine.cycle`` asks every plugin about every node for every pod. Between two pods of one class
little changes: a few rows got a pod. So a ``ClassState`` keeps, per class,

* ``verdict``, int16 (rows,): the first rejection by filters that depend on the row alone;
* ``local``, int32 (rows,): the weighted sum of scores that depend on the row alone (resources,
  images), ``LOW`` where the verdict rejects;
* ``group``, int32 (rows,): rows that are alike in everything else. Taints, node affinity, spreading
  and inter-pod affinity are normalised over all feasible nodes, but see few distinct nodes: they
  are asked about one representative row of each group, and what they say is added per group.

``total = local + by_group[group]``; the pick is uniform among the rows with the highest total.

A class has a cursor in the snapshot's log of touched rows and works these off when it is next used
(``refresh``); when labels, taints or the set of nodes change it is built anew. Nothing is
estimated: a decision is the same, to the seed's draw, as the reference path's, which a property
test holds. Rows that pods of no lower priority are nominated to are judged with these for each
decision (``decide_beside``).
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from scheduling.engine.cycle import Options, PodToPlace, draw_below, explain_unplaced
from scheduling.engine.decision import (
    SCHEDULED,
    BestScores,
    Decision,
    Rejection,
    in_order,
    top_positions,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int16, Int32, Int64, Mask
from scheduling.framework.interface import (
    CycleState,
    Filter,
    FilterResult,
    Locality,
    PreScore,
    RowFilter,
    Rows,
    RowScore,
    Score,
)
from scheduling.framework.runtime import Filtered, Framework, PluginFailed
from scheduling.framework.status import Code, Status
from scheduling.framework.types import PodInfo

LOW = -(2**30)
"""Below every total: marks rows that are not feasible."""
_PASSED = 2**14
"""Order number of "no static filter rejects"."""
_PACKED_BITS = 40
"""So many bits of a packed group code are for counts, shared out evenly."""
_MOST_PACKED = 5
_FEW = 4
"""Up to this many touched rows are judged one by one with plain numbers."""


class _RowFilter(msgspec.Struct, frozen=True):
    """A filter that follows pods: its place among the filters, and its judge of single rows."""

    order: int
    plugin: Filter
    judge: RowFilter | None


class _Line(msgspec.Struct, frozen=True):
    """A score plugin; ``line`` of ``ClassState.scores`` for local ones, -1 for grouped ones."""

    plugin: Score
    weight: int
    line: int
    of_node: bool = False
    follows_pods: bool = False
    of_row: RowScore | None = None


class ClassState:
    """What is kept for one class; see the module's text. Columns are as long as the snapshot's.

    ``scores``: weighted local scores, int32 (local plugins, rows). ``base``: the part of a row's
    group that only the snapshot's versions change, int64 (rows,); ``code``: ``base`` and the counts
    on the row, packed into one number, from which the group follows.
    """

    def __init__(self, snapshot: Snapshot, framework: Framework, info: PodInfo) -> None:
        self.snapshot = snapshot
        self.framework = framework
        self.info = info
        self.usable = True
        self._active: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._fixed: dict[tuple[str, bytes], Int64] = {}
        self._wide: dict[tuple[int, ...], int] = {}
        # Counts when the first rejection of a row became another one, or none.
        self.moves = 0
        self._build()

    # --- building --------------------------------------------------------------------------------

    def _build(self) -> None:
        snapshot, framework, info = self.snapshot, self.framework, self.info
        self.moves += 1
        self.cycle_state = CycleState()
        begun = framework.pre_filter(self.cycle_state, info, snapshot)
        self.usable = begun.status.ok and self._plan_scores()
        # Versions are read last: asking for tables may have made new kinds known.
        self.node_version = snapshot.node_version
        self.peer_version = (snapshot.peer_version, snapshot.peer_stamp(info))
        self.workload_version = snapshot.workload_version
        self.cursor = snapshot.log_end
        if not self.usable:
            return
        capacity = snapshot.capacity
        rows = snapshot.rows()
        self.statuses: list[Status] = [Status(), begun.absent]
        self._status_number: dict[Status, int] = {}
        self.verdict: Int16 = np.zeros(capacity, np.int16)
        self.rejected: list[int] = [0, 0]
        self._rejections: list[Rejection] | None = None
        self.static: Int16 = np.zeros(capacity, np.int16)
        self.static_order: Int16 = np.full(capacity, _PASSED, np.int16)
        if len(begun.rows) != len(rows):
            absent = np.setdiff1d(rows, begun.rows)
            self.static[absent] = 1
            self.static_order[absent] = -1
        self._plan_filters(rows)
        self._one_by_one = all(f.judge is not None for f in self.row_filters) and all(
            line.of_row is not None for line in self.lines if line.follows_pods
        )

        locals_ = [line for line in self.lines if line.line >= 0]
        self.scores: Int32 = np.zeros((len(locals_), capacity), np.int32)
        for line in locals_:
            scores = framework.score_one(line.plugin, self.cycle_state, info, snapshot, rows)[1]
            self.scores[line.line, rows] = scores * line.weight
        self.local: Int32 = np.full(capacity, LOW, np.int32)
        self._judge_rows(rows)
        feasible = self.verdict[rows] == 0
        self.local[rows] = np.where(feasible, self.scores[:, rows].sum(axis=0), LOW)
        counts = np.bincount(self.verdict[rows], minlength=len(self.statuses))
        self.rejected = counts.tolist()
        self._make_groups(rows, feasible)

    def _plan_scores(self) -> bool:
        """Sort out the score plugins; False where the reference path must say what is wrong."""
        snapshot, framework, info = self.snapshot, self.framework, self.info
        self.dynamic: list[PreScore] = []
        skipped: set[str] = set()
        none = np.zeros(0, np.int64)
        for pre in framework.pre_score_plugins:
            facts = framework.facts(pre)
            if facts.score_locality is Locality.GROUP:
                if facts.involved is not None and not facts.involved.involved(info, snapshot)[1]:
                    skipped.add(pre.name)
                else:
                    self.dynamic.append(pre)
                continue
            status = pre.pre_score(self.cycle_state, info, snapshot, snapshot.rows()[:0], none)
            if status.code is Code.SKIP:
                skipped.add(pre.name)
            elif not status.ok:
                return False
        self.lines: list[_Line] = []
        number = 0
        for plugin in framework.score_plugins:
            if plugin.name in skipped:
                continue
            weight = framework.weights[plugin.name]
            facts = framework.facts(plugin)
            locality = facts.score_locality
            if locality is Locality.GROUP or facts.normalizing is not None:
                self.lines.append(_Line(plugin, weight, -1, locality is Locality.NODE))
                continue
            follows = locality is Locality.ROW
            of_row = None
            if follows and facts.row_wise is not None:
                of_row = facts.row_wise.row_score(info, snapshot)
            self.lines.append(_Line(plugin, weight, number, not follows, follows, of_row))
            number += 1
        self._grouped = [line for line in self.lines if line.line < 0]
        self._local_follow = [line for line in self.lines if line.follows_pods]
        self._names = tuple(line.plugin.name for line in self.lines)
        return True

    def _plan_filters(self, rows: Rows) -> None:
        """Run the static filters; keep those that follow pods or groups."""
        snapshot, info = self.snapshot, self.info
        self.row_filters: list[_RowFilter] = []
        self.group_filters: list[Filter] = []
        for order, plugin in enumerate(self.framework.filter_plugins):
            facts = self.framework.facts(plugin)
            if facts.locality is Locality.GROUP:
                if not facts.uninvolved(info, snapshot):
                    self.group_filters.append(plugin)
            elif plugin.name in self.cycle_state.skip_filter:
                continue
            elif facts.locality is Locality.ROW:
                row_wise = facts.row_wise
                judge = None if row_wise is None else row_wise.row_filter(info, snapshot)
                self.row_filters.append(_RowFilter(order, plugin, judge))
            else:
                open_rows = rows[self.static[rows] == 0]
                result = plugin.filter(self.cycle_state, info, snapshot, open_rows)
                if result is not None:
                    failing = np.flatnonzero(result.codes)
                    where = open_rows[failing]
                    self.static[where] = self._numbers(plugin.name, result, failing)
                    self.static_order[where] = order

    def _numbers(self, plugin: str, result: FilterResult, positions: npt.NDArray[np.intp]) -> Int16:
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
        found: Int16 = np.array(numbers, np.int16)[inverse]
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
        verdict = self.static[rows]
        order_so_far = self.static_order[rows]
        for row_filter in self.row_filters:
            plugin, order = row_filter.plugin, row_filter.order
            result = plugin.filter(self.cycle_state, self.info, self.snapshot, rows)
            if result is None:
                continue
            failing = np.flatnonzero((result.codes != 0) & (order_so_far > order))
            if len(failing):
                verdict[failing] = self._numbers(plugin.name, result, failing)
                order_so_far[failing] = order
        self.verdict[rows] = verdict

    # --- groups ----------------------------------------------------------------------------------

    def _make_groups(self, rows: Rows, feasible: Mask) -> None:
        """Group the rows anew; those that are not feasible have no group for now."""
        capacity = self.snapshot.capacity
        keyed = dict.fromkeys((*self.group_filters, *(line.plugin for line in self._grouped)))
        facts = [self.framework.facts(plugin) for plugin in keyed]
        self._counting = [each.counting for each in facts if each.counting is not None]
        self.base: Int64 = np.zeros(capacity, np.int64)
        joint = np.zeros(len(rows), np.int64)
        for each in facts:
            assert each.cacheable is not None
            for column in each.cacheable.group_keys(self.info, self.snapshot, rows):
                _, numbers = np.unique(column, return_inverse=True)
                joint = joint * (int(numbers.max(initial=0)) + 1) + numbers
                _, joint = np.unique(joint, return_inverse=True)
        self.base[rows] = joint
        self._counts = bool(self._counting) and bool(self._count_columns(rows[:1]))
        self.code: Int64 = np.zeros(capacity, np.int64)
        codes = self._codes(rows)
        self.code[rows] = codes
        found, inverse = np.unique(codes, return_inverse=True)
        self._group_number: dict[int, int] = dict(
            zip(found.tolist(), range(len(found)), strict=True)
        )
        self.group: Int32 = np.full(capacity, -1, np.int32)
        self.group[rows] = np.where(feasible, inverse, -1)
        self.group_size: list[int] = np.bincount(inverse[feasible], minlength=len(found)).tolist()
        self.group_row: list[int] = np.full(len(found), -1, np.int64).tolist()
        chosen, positions = np.unique(inverse[feasible], return_index=True)
        of_feasible = rows[feasible]
        for number, position in zip(chosen.tolist(), positions.tolist(), strict=True):
            self.group_row[number] = int(of_feasible[position])
        self._groups_changed()

    def _count_columns(self, rows: Rows) -> list[Int64]:
        return [
            column
            for plugin in self._counting
            for column in plugin.count_keys(self.info, self.snapshot, rows)
        ]

    def _codes(self, rows: Rows) -> Int64:
        """Return a number for each row that is equal exactly where all keys are."""
        code = self.base[rows]
        if not self._counts:
            return code
        columns = self._count_columns(rows)
        if len(columns) <= _MOST_PACKED and len(rows):
            span = 2 ** (_PACKED_BITS // max(len(columns), 2))
            low = min(int(column.min()) for column in columns)
            high = max(int(column.max()) for column in columns)
            if low >= -span // 2 and high < span // 2:
                for column in columns:
                    code = code * span + (column + span // 2)
                return code
        # Too wide to pack: number the combinations in order of first sight, below all packed ones.
        tuples = zip(code.tolist(), *(column.tolist() for column in columns), strict=True)
        return np.array([self._wide_number(key) for key in tuples], np.int64)

    def _wide_number(self, key: tuple[int, ...]) -> int:
        number = self._wide.get(key)
        if number is None:
            number = self._wide[key] = -1 - len(self._wide)
        return number

    def _groups_changed(self) -> None:
        """Note which groups have feasible rows."""
        sizes = np.array(self.group_size, np.int64)
        active = np.flatnonzero(sizes)
        self._active = active
        self._active_rows = np.array(self.group_row, np.intp)[active]
        self._active_sizes = sizes[active]
        self._dirty = False

    def _leave(self, row: int, number: int) -> None:
        """Take a row out of its group."""
        self.group_size[number] -= 1
        self._dirty = True
        if self.group_row[number] == row:
            self.group[row] = -1
            others = (self.group == number).nonzero()[0]
            self.group_row[number] = int(others[0]) if len(others) else -1

    def _enter(self, row: int, code: int) -> int:
        """Put a feasible row into the group with this code. Return the group."""
        number = self._group_number.get(code)
        if number is None:
            number = self._group_number[code] = len(self.group_size)
            self.group_size.append(0)
            self.group_row.append(-1)
        self.group_size[number] += 1
        if self.group_row[number] < 0:
            self.group_row[number] = row
        self._dirty = True
        return number

    def _regroup(self, rows: Rows, feasible: Mask) -> None:
        """Put rows where they belong now."""
        codes = self._codes(rows)
        old = self.group[rows]
        moved = np.flatnonzero(((old >= 0) != feasible) | (feasible & (codes != self.code[rows])))
        self.code[rows] = codes
        for position in moved.tolist():
            row, number = int(rows[position]), int(old[position])
            if number >= 0:
                self._leave(row, number)
            self.group[row] = self._enter(row, int(codes[position])) if feasible[position] else -1

    # --- following -------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Follow what changed in the snapshot since the last use.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot = self.snapshot
        touched = snapshot.touched_since(self.cursor)
        if (
            touched is None
            or self.node_version != snapshot.node_version
            or self.peer_version != (snapshot.peer_version, snapshot.peer_stamp(self.info))
            or self.workload_version != snapshot.workload_version
        ):
            self._fixed.clear()
            self._wide.clear()
            self._build()
            return
        count = len(touched)
        if not count or not self.usable:
            return
        self.cursor += count
        if count == 1 and self._one_by_one:
            self._follow_row(int(touched[0]))
            return
        if count <= _FEW and self._one_by_one:
            for row in set(touched.tolist()):
                self._follow_row(row)
            return
        if count > snapshot.capacity:
            self._follow_rows(snapshot.rows())
            return
        ordered = np.sort(touched)
        first = np.empty(count, np.bool_)
        first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        self._follow_rows(ordered[first].astype(np.intp))

    def _follow_row(self, row: int) -> None:
        """Judge one row again, with plain numbers."""
        number = self.static.item(row)
        order_so_far = self.static_order.item(row)
        for row_filter in self.row_filters:
            if order_so_far < row_filter.order:
                break
            assert row_filter.judge is not None
            rejection = row_filter.judge(row)
            if rejection is not None:
                number = self._number(Status(*rejection, row_filter.plugin.name))
                break
        before = self.verdict.item(row)
        if number != before:
            self.verdict[row] = number
            self.rejected[before] -= 1
            self.rejected[number] += 1
            self._rejections = None
            self.moves += 1
        scores = self.scores
        for line in self._local_follow:
            assert line.of_row is not None
            scores[line.line, row] = line.of_row(row) * line.weight
        if number:
            self.local[row] = LOW
            group = self.group.item(row)
            if group >= 0:
                self._leave(row, group)
                self.group[row] = -1
            return
        self.local[row] = sum([scores.item(line, row) for line in range(len(scores))])
        if self._counts:
            one = np.array([row], np.intp)
            code = self._codes(one).item(0)
            self._place(row, code)
        elif before:
            self._place(row, self.code.item(row))

    def _place(self, row: int, code: int) -> None:
        """Put a feasible row into the group with this code."""
        group = self.group.item(row)
        if group >= 0:
            if code == self.code.item(row):
                return
            self._leave(row, group)
        self.code[row] = code
        self.group[row] = self._enter(row, code)

    def _follow_rows(self, rows: Rows) -> None:
        """Judge several rows again."""
        before = self.verdict[rows]
        self._judge_rows(rows)
        after = self.verdict[rows]
        moved = np.flatnonzero(before != after)
        if len(moved):
            self._rejections = None
            self.moves += 1
            for old, new in zip(before[moved].tolist(), after[moved].tolist(), strict=True):
                self.rejected[old] -= 1
                self.rejected[new] += 1
        for line in self._local_follow:
            scores = self.framework.score_one(
                line.plugin, self.cycle_state, self.info, self.snapshot, rows
            )[1]
            self.scores[line.line, rows] = scores * line.weight
        feasible = after == 0
        self.local[rows] = np.where(feasible, self.scores[:, rows].sum(axis=0), LOW)
        if self._counts or len(moved):
            self._regroup(rows, feasible)

    # --- for runs --------------------------------------------------------------------------------

    @property
    def current(self) -> bool:
        """Whether what changes only with the snapshot's versions is up to date."""
        snapshot = self.snapshot
        return (
            self.node_version == snapshot.node_version
            and self.peer_version == (snapshot.peer_version, snapshot.peer_stamp(self.info))
            and self.workload_version == snapshot.workload_version
        )

    @property
    def follows(self) -> bool:
        """Whether it is as new as the snapshot."""
        return self.current and self.cursor == self.snapshot.log_end

    @property
    def is_shut(self) -> bool:
        """Whether filters that look at single rows reject every row, as far as it follows."""
        return self.usable and not self.rejected[0]

    # --- deciding --------------------------------------------------------------------------------

    def decide(self, pod: PodToPlace, options: Options, draw: int, start: int) -> Decision | None:
        """Return where the pod goes or why nowhere, ``None`` where the reference path must say it.

        Raises:
            PluginFailed: a plugin failed.
        """
        if self._dirty:
            self._groups_changed()
        info, snapshot = self.info, self.snapshot
        groups, rows, sizes = self._active, self._active_rows, self._active_sizes
        state = CycleState(pod_key=pod.key)
        rejections = self._local_rejections()
        if self.group_filters and len(rows):
            passing = self.framework.filter_some(self.group_filters, state, info, snapshot, rows)
            if len(passing.statuses) > 1:
                counts = np.bincount(passing.verdict, sizes, len(passing.statuses)).tolist()
                rejections = rejections + [
                    Rejection(status, int(count))
                    for status, count in zip(passing.statuses[1:], counts[1:], strict=True)
                    if count
                ]
                is_open = passing.verdict == 0
                groups, rows, sizes = groups[is_open], rows[is_open], sizes[is_open]
        feasible = sizes.item(0) if len(sizes) == 1 else int(sizes.sum())
        if feasible <= 1:
            if not feasible:
                filtered = self._judged(state)
                return explain_unplaced(
                    snapshot, self.framework, pod, options, filtered, draw=draw, start=start
                )
            row = rows.item(0)
            return self._decision(pod, options, draw, start, row, 1, rejections)

        for pre in self.dynamic:
            status = pre.pre_score(state, info, snapshot, rows, sizes)
            if status.code is Code.SKIP:
                state.skip_score.add(pre.name)
            elif not status.ok:
                return None
        by_group: Int64 | None = None
        grouped: list[Int64 | None] = []
        for line in self._grouped:
            if line.plugin.name in state.skip_score:
                grouped.append(None)
                continue
            weighted = self._group_scores(line, state, groups, rows)
            grouped.append(weighted)
            by_group = weighted if by_group is None else by_group + weighted

        # Add what the groups got to what the rows have; where all rows are alike, afterwards.
        offset = 0
        total = self.local
        if len(groups) == len(self._active) == 1:
            offset = 0 if by_group is None else by_group.item(0)
        elif by_group is not None or len(groups) != len(self._active):
            spread = np.full(len(self.group_size) + 1, LOW, np.int32)
            spread[groups] = 0 if by_group is None else by_group
            total = self.local + spread[self.group]

        top = int(total.max())
        tied = (total == top).nonzero()[0]
        ties = len(tied)
        if options.tie_break == "first":
            row = min(tied.tolist(), key=snapshot.names.__getitem__)
        else:
            row = tied.item(draw_below(options.seed, draw, ties))
        chosen = top_positions(total, feasible, tied, row)
        return self._decision(
            pod,
            options,
            draw,
            start,
            row,
            feasible,
            rejections,
            total=top + offset,
            margin=0 if ties > 1 else top - int(np.partition(total[chosen], -2)[-2]),
            ties=ties,
            plugins=self._names
            if not state.skip_score
            else tuple([name for name in self._names if name not in state.skip_score]),
            best=BestScores(
                tuple([snapshot.names[r] for r in chosen.tolist()]),
                self.scores[:, chosen],
                [line.line for line in self.lines],
                grouped,
                np.searchsorted(groups, self.group[chosen]) if len(groups) > 1 else None,
            ),
        )

    def decide_beside(
        self,
        guests: Mapping[int, Sequence[PodInfo]],
        pod: PodToPlace,
        options: Options,
        draw: int,
        start: int,
    ) -> Decision | None:
        """Return what ``decide`` does, while rows must also fit the pods nominated to them.

        ``guests``: from ``snapshot.nominated_pods``. Only their rows are judged again; those that
        reject the pod are set aside meanwhile.

        Raises:
            PluginFailed: a plugin failed.
        """
        own = self.cycle_state.clone()
        own.pod_key = pod.key
        there = np.array(list(guests), np.intp)
        there = there[self.verdict[there] != 1]
        judged = self.framework.judge_with_guests(own, self.info, self.snapshot, there, guests)
        numbers = np.array([self._number(s) if not s.ok else 0 for s in judged], np.int16)
        other = (numbers != 0) & (numbers != self.verdict[there])
        aside = there[other]
        if not len(aside):
            return self.decide(pod, options, draw, start)
        try:
            self._set_aside(aside, numbers[other])
            return self.decide(pod, options, draw, start)
        finally:
            self._follow_rows(np.sort(aside))

    def _set_aside(self, rows: Rows, numbers: Int16) -> None:
        """Reject rows, until they are judged again."""
        for number in self.verdict[rows].tolist():
            self.rejected[number] -= 1
        for number in numbers.tolist():
            self.rejected[number] += 1
        self._rejections = None
        self.moves += 1
        self.verdict[rows] = numbers
        self.local[rows] = LOW
        for row, group in zip(rows.tolist(), self.group[rows].tolist(), strict=True):
            if group >= 0:
                self._leave(row, group)
                self.group[row] = -1

    def _judged(self, state: CycleState) -> Filtered:
        """Return what Filter says of every row that PreFilter leaves, as that path would."""
        rows = self.snapshot.rows()
        if self.rejected[1]:
            rows = rows[self.verdict[rows] != 1]
        verdict = self.verdict[rows].astype(np.int32)
        statuses = list(self.statuses)
        if self.group_filters and len(self._active_rows):
            passing = self.framework.filter_some(
                self.group_filters, state, self.info, self.snapshot, self._active_rows
            )
            of_group = np.zeros(len(self.group_size), np.int32)
            of_group[self._active] = np.where(
                passing.verdict > 0, passing.verdict + len(statuses) - 1, 0
            )
            open_rows = verdict == 0
            verdict[open_rows] = of_group[self.group[rows[open_rows]]]
            statuses += passing.statuses[1:]
        used = np.bincount(verdict, minlength=len(statuses)) > 0
        used[0] = True
        number = np.cumsum(used, dtype=np.int32) - 1
        kept = tuple(status for status, is_used in zip(statuses, used, strict=True) if is_used)
        return Filtered(rows, number[verdict].astype(np.int32), kept)

    def _local_rejections(self) -> list[Rejection]:
        """Return how many nodes the filters of single rows rejected, and why."""
        if self._rejections is None:
            self._rejections = [
                Rejection(self.statuses[number], count)
                for number, count in enumerate(self.rejected)
                if number > 1 and count
            ]
        return self._rejections

    def _group_scores(
        self, line: _Line, state: CycleState, groups: npt.NDArray[np.intp], rows: Rows
    ) -> Int64:
        """Return weighted scores of the groups; what depends on nodes alone is kept."""
        name = (line.plugin.name, groups.tobytes() if line.of_node else b"")
        if line.of_node:
            kept = self._fixed.get(name)
            if kept is not None:
                return kept
        scores = self.framework.score_one(line.plugin, state, self.info, self.snapshot, rows)[1]
        weighted: Int64 = scores * line.weight
        if line.of_node:
            if len(self._fixed) > 64:
                self._fixed.clear()
            self._fixed[name] = weighted
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
            rejections=in_order(rejections),
            seed=options.seed,
            draw=draw,
            next_start=(start + evaluated) % count,
            snapshot_revision=snapshot.revision,
            profile=self.framework.scheduler_name,
        )
