"""Results of filters and scores that depend on nodes alone, shared by classes with equal aspects.

Each plugin returns the part of a pod that it reads (``Aspected``): tolerations, node selector and
affinity, images. Classes with equal aspects share a ``Sheet``; classes with a program share one
whose groups also differ by the labels that their terms look at.

After a node was added, changed or removed, plugins run on its row alone and the rest of the sheet
stays, unless the row belongs to no group of the sheet.
"""

import copy
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np

from scheduling.engine.compiled.layout import BLOCK, LOW, MOST_SHUT
from scheduling.engine.fast.lane_profile import Profile
from scheduling.engine.reference.decision import Rejection
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int16, Int32, Int64, first_places, numbered_together
from scheduling.framework.interface import CycleState, Grouping, NormalizeScore, Score, scores_nodes
from scheduling.framework.node_table import Rows
from scheduling.framework.status import Code, Status
from scheduling.framework.types import PodInfo

MOST_GROUPS: Final = 64
"""Limit for sheets whose scores are normalised: bits tell which groups have feasible rows."""
MOST_KEYED: Final = 960
"""Limit for sheets of classes with programs."""
_SHEET_BYTES = 64 * 2**20
_CLOSED: Final = -1

Labels = tuple[tuple[str, bool], ...]
"""Label keys whose values tell groups apart; with ``True`` only whether there is one."""


class Sheet:
    """The verdicts on all nodes for pods with equal aspects.

    ``base`` int32 (rows,): weighted local scores, very low where the pods cannot go; ``group``
    int16 (rows,): rows that are alike in everything that is normalised; ``by_groups``: for each set
    of groups with feasible rows its number in ``Sheets.bases`` and the groups' weighted scores.
    ``lines``: for each of the plugins ``names`` 0 for NodeResourcesFit, 1 for balance, from 2 on
    the place in ``fixed`` (weighted scores by row, of the plugins ``scored``), -1 for the
    ``normalised``. In a sheet for classes with programs the groups also differ by labels: ``keyed``
    is their number, ``raw`` the scores of its ``normalised`` plugins by group. ``shut``: rejections
    by filters that look at nodes alone and come after NodeResourcesFit; ``shut_groups`` int32
    (groups,): the one that rejects the rows of each group, counted from 1, 0 for none.
    ``group_rows`` (groups,): a row of each group, -1 if it has none any more.

    ``verdict`` int16 (rows,): the index into ``statuses`` of the verdict of those filters; -1 where
    there is no node, or PreFilter leaves it out. ``shut_by`` int64: for each status its number in
    ``shut``, 0 for none, ``_CLOSED`` if it rejects a row at once; the last item, for verdict -1, is
    ``_CLOSED``.

    ``version`` and ``image_version``: of the nodes for which it is valid. A sheet that was used for
    decisions does not change, since the decisions are written out with it later: a copy is updated.
    ``holds``: whether the latest copy can be updated.
    """

    def __init__(
        self, number: int, info: PodInfo | None, key: Hashable = None, labels: Labels | None = None
    ) -> None:
        self.number = number
        self.info = info
        self.key = key
        self.labels = labels
        self.holds = True
        self.version = -1
        self.image_version = -1
        self.names: tuple[str, ...] = ()
        self.lines: list[int] = []
        self.scored: list[Score] = []
        self.fixed: list[Int32] = []
        self.normalised: list[tuple[Score, int]] = []
        self.statuses: list[Status] = []
        self.verdict: Int16 = np.zeros(0, np.int16)
        self.shut_by: Int64 = np.zeros(0, np.int64)
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

    @property
    def mask(self) -> int:
        """All groups that have rows, as bits; 0 if the sheet has no bits for groups."""
        if self.keyed:
            return 0
        return sum([1 << group for group, row in enumerate(self.group_rows.tolist()) if row >= 0])


class Sheets:
    """The sheets of one profile over one snapshot, and the arrays that the loop reads of them.

    Args:
        snapshot: the nodes.
        profile: the profile.
        moved: called with each sheet that changed, and the rows that changed in it.
    """

    def __init__(
        self, snapshot: Snapshot, profile: Profile, moved: Callable[[Sheet, Rows], None]
    ) -> None:
        self._snapshot = snapshot
        self._profile = profile
        self._moved = moved
        self.rows = -(-snapshot.capacity // BLOCK) * BLOCK
        self.most = max(_SHEET_BYTES // (self.rows * 8), 4)
        self.sheets: list[Sheet] = []
        self._by_aspects: dict[Hashable, Sheet | None] = {}
        self.base_count = 0
        self.bases: Int32 = np.zeros((0, self.rows), np.int32)
        self.group: Int16 = np.zeros((0, self.rows), np.int16)
        self.group_count: Int32 = np.zeros(0, np.int32)
        self.hint: Int32 = np.zeros((0, MOST_GROUPS), np.int32)
        self.open_rows: Int64 = np.zeros(0, np.int64)
        self.keyed: Int32 = np.zeros(0, np.int32)

    @property
    def full(self) -> bool:
        """Whether the tables reached their limit, so that all sheets must be dropped."""
        return max(len(self._by_aspects), len(self.sheets), self.base_count) >= self.most

    def of(
        self, info: PodInfo, aspects: tuple[Hashable, ...], labels: Labels | None = None
    ) -> Sheet | None:
        """Return the sheet for pods with these aspects, ``None`` if none can be made.

        ``labels``: of a class with a program, the labels by which its groups differ
        (``ClassStatements``).

        Raises:
            PluginFailed: a plugin failed.
        """
        known = self.known(aspects, labels)
        key = (aspects, labels)
        if known is not None or key in self._by_aspects:
            return known
        sheet = self._by_aspects[key] = self._make(info, key, labels)
        return sheet

    def known(self, aspects: tuple[Hashable, ...], labels: Labels | None = None) -> Sheet | None:
        """Return the sheet that ``of`` made for these aspects, ``None`` if it made none yet.

        Raises:
            PluginFailed: a plugin failed.
        """
        sheet = self._by_aspects.get((aspects, labels))
        return None if sheet is None else self.current(sheet)

    def current(self, sheet: Sheet) -> Sheet | None:
        """Return a sheet updated to the present nodes, ``None`` if it must be rebuilt.

        Raises:
            PluginFailed: a plugin failed.
        """
        latest = self.sheets[sheet.number]
        if latest.version != self._snapshot.node_version and latest.holds:
            followed = self._follow(latest)
            if followed is None:
                latest.holds = False
                del self._by_aspects[latest.key]
            else:
                latest = self.sheets[sheet.number] = self._by_aspects[latest.key] = followed
        return latest if latest.holds else None

    def nodes_changed(self) -> None:
        """Forget the aspects without a sheet: with the changed nodes they may have one."""
        self._by_aspects = {k: sheet for k, sheet in self._by_aspects.items() if sheet is not None}

    # --- making ----------------------------------------------------------------------------------

    def _make(self, info: PodInfo, key: Hashable, labels: Labels | None) -> Sheet | None:
        snapshot, profile = self._snapshot, self._profile
        state = CycleState()
        begun = profile.framework.pre_filter(state, info, snapshot)
        if not begun.status.ok:
            return None
        rows = begun.rows
        sheet = Sheet(len(self.sheets), info, key, labels)
        sheet.version, sheet.image_version = snapshot.node_version, snapshot.image_version
        judged = profile.framework.filter_some(profile.static, state, info, snapshot, rows)
        sheet.statuses = list(judged.statuses)
        # NodeResourcesFit comes before some of these filters, and may reject a row first.
        sheet.shut = [status for status in sheet.statuses if status.plugin in profile.after_fit]
        if sheet.shut and (labels is None or len(sheet.shut) > MOST_SHUT):
            return None
        sheet.verdict = np.full(self.rows, -1, np.int16)
        sheet.verdict[rows] = judged.verdict
        self._sum_up(sheet, rows)
        shut = sheet.shut_by[sheet.verdict[rows]]
        if not self._score(sheet, state, rows[shut >= 0], shut[shut >= 0]):
            return None
        self.sheets.append(sheet)
        if len(self.sheets) > len(self.group_count):
            self._reserve(max(8, 2 * len(self.sheets)))
        self.group_count[sheet.number] = 1 if sheet.keyed else len(sheet.group_rows)
        self.keyed[sheet.number] = sheet.keyed
        self._write(sheet)
        return sheet

    def _sum_up(self, sheet: Sheet, rows: Rows) -> None:
        """Set ``shut_by``, and count the ``rows`` of each status."""
        after_fit = self._profile.after_fit
        means = [
            sheet.shut.index(status) + 1 if status.plugin in after_fit else _CLOSED
            for status in sheet.statuses[1:]
        ]
        sheet.shut_by = np.array([0, *means, _CLOSED], np.int64)
        counts = np.bincount(sheet.verdict[rows], minlength=len(sheet.statuses)).tolist()
        sheet.rejections = [
            Rejection(status, count)
            for status, count in zip(sheet.statuses[1:], counts[1:], strict=True)
            if count and status.plugin not in after_fit
        ]
        sheet.absent = self._snapshot.node_count - len(rows)

    def _score(self, sheet: Sheet, state: CycleState, rows: Rows, shut: Int64) -> bool:
        """Score the rows that pass the filters; return False if the reference path must decide.

        ``shut``: for each row, which of ``sheet.shut`` rejects it, 0 for none.
        """
        profile, labels = self._profile, sheet.labels
        framework = profile.framework
        skipped = self._begin_scores(sheet, state)
        if skipped is None:
            return False
        names: list[str] = []
        scorers: list[Score] = framework.score_plugins
        for plugin in scorers:
            if plugin.name in skipped:
                continue
            if profile.least is not None and plugin.name == profile.least[1]:
                sheet.lines.append(0)
            elif profile.balanced is not None and plugin.name == profile.balanced[1]:
                sheet.lines.append(1)
            elif not scores_nodes(plugin):
                return False
            elif isinstance(plugin, NormalizeScore):
                if not isinstance(plugin, Grouping):
                    return False
                if labels is not None and plugin.name not in profile.scaled:
                    return False
                sheet.lines.append(-1)
                sheet.normalised.append((plugin, framework.weights[plugin.name]))
            else:
                sheet.lines.append(2 + len(sheet.scored))
                sheet.scored.append(plugin)
            names.append(plugin.name)
        sheet.names = tuple(names)
        sheet.base = np.full(self.rows, LOW, np.int32)
        sheet.base[rows] = 0
        for plugin in sheet.scored:
            weighted = np.zeros(self.rows, np.int32)
            weighted[rows[shut == 0]] = self._weighted(sheet, plugin, state, rows[shut == 0])
            sheet.fixed.append(weighted)
            sheet.base += weighted
        group, groups = self._alike(sheet, rows, shut)
        if groups > (MOST_GROUPS if labels is None else MOST_KEYED):
            return False
        first = first_places(group, groups)
        sheet.group = np.zeros(self.rows, np.int16)
        sheet.group[rows] = group
        sheet.group_rows = rows[first]
        sheet.shut_groups = shut[first].astype(np.int32)
        sheet.keyed = 0 if labels is None else groups
        return labels is None or groups > 0

    def _begin_scores(self, sheet: Sheet, state: CycleState) -> set[str] | None:
        """Run PreScore; return the names of plugins that skip Score, ``None`` if one rejects."""
        profile = self._profile
        skipped: set[str] = set()
        rows, none = self._snapshot.rows()[:0], np.zeros(0, np.int64)
        for pre in profile.framework.pre_score_plugins:
            if pre.name in profile.scores_pods:
                skipped.add(pre.name)  # the plugin's aspect says that it scores nothing
                continue
            status = pre.pre_score(state, sheet.info, self._snapshot, rows, none)
            if status.code is Code.SKIP:
                skipped.add(pre.name)
            elif not status.ok:
                return None
        return skipped

    def _weighted(self, sheet: Sheet, plugin: Score, state: CycleState, rows: Rows) -> Int64:
        framework: Any = self._profile.framework
        scores: Int64 = framework.score_one(plugin, state, sheet.info, self._snapshot, rows)[1]
        return scores * int(framework.weights[plugin.name])

    def _alike(self, sheet: Sheet, rows: Rows, shut: Int64) -> tuple[Int64, int]:
        """Return the group of each row, int64 (rows,), and how many groups there are.

        ``shut``: for each row, which of ``sheet.shut`` rejects it, 0 for none.
        """
        snapshot = self._snapshot
        is_open = shut == 0
        lines = [shut]
        for plugin, _ in sheet.normalised:
            assert isinstance(plugin, Grouping)
            assert sheet.info is not None
            for column in plugin.group_keys(sheet.info, snapshot, rows[is_open]):
                line = np.zeros(len(rows), np.int64)
                line[is_open] = column
                lines.append(line)
        for label, is_there in sheet.labels or ():
            ids = snapshot.label_column(label).ids[rows]
            lines.append((ids < 0 if is_there else ids).astype(np.int64))
        return numbered_together(lines, len(rows))

    # --- following -------------------------------------------------------------------------------

    def _follow(self, before: Sheet) -> Sheet | None:
        """Return a copy of a sheet with the changed nodes, ``None`` if it must be rebuilt.

        The results of plugins about nodes alone stay valid for all other nodes.
        """
        snapshot, profile = self._snapshot, self._profile
        changed = snapshot.changed_since(before.version)
        if changed is None:
            return None
        rows = np.unique(np.array(changed, np.intp))
        state = CycleState()
        begun = profile.framework.pre_filter(state, before.info, snapshot)
        if not begun.status.ok:
            return None
        sheet = copy.copy(before)
        sheet.version, sheet.image_version = snapshot.node_version, snapshot.image_version
        asked = rows[np.isin(rows, begun.rows, assume_unique=True)]
        judged = profile.framework.filter_some(profile.static, state, sheet.info, snapshot, asked)
        more = [status for status in judged.statuses if status not in sheet.statuses]
        if any(status.plugin in profile.after_fit for status in more):
            return None
        sheet.statuses = sheet.statuses + more
        numbers = [sheet.statuses.index(status) for status in judged.statuses]
        sheet.verdict = sheet.verdict.copy()
        sheet.verdict[rows] = -1
        sheet.verdict[asked] = np.array(numbers, np.int16)[judged.verdict]
        self._sum_up(sheet, begun.rows)
        if not self._score_again(sheet, before, state, rows):
            return None
        moved = np.flatnonzero((sheet.base != before.base) | (sheet.group != before.group))
        if len(moved):
            for number, weighted, active in sheet.by_groups.values():
                self.bases[number] = self._with_groups(sheet, weighted, active)
            self._moved(sheet, moved)
        self._write(sheet)
        return sheet

    def _score_again(self, sheet: Sheet, before: Sheet, state: CycleState, rows: Rows) -> bool:
        """Score the changed ``rows``; return False if one of them belongs to no known group."""
        shut = sheet.shut_by[sheet.verdict[rows]]
        some, shut = rows[shut >= 0], shut[shut >= 0]
        sheet.base, sheet.group = before.base.copy(), before.group.copy()
        sheet.base[rows] = LOW
        sheet.group_rows = before.group_rows.copy()
        for group in np.flatnonzero(np.isin(sheet.group_rows, rows)).tolist():
            others = np.flatnonzero((sheet.group == group) & (sheet.base != LOW))
            sheet.group_rows[group] = others[0] if len(others) else -1
        if len(some):
            known = np.flatnonzero(sheet.group_rows >= 0)
            both = np.concatenate((sheet.group_rows[known], some))
            shut_both: Int64 = np.concatenate((sheet.shut_groups[known], shut))
            number, kinds = self._alike(sheet, both, shut_both)
            group_of = np.full(kinds, -1, np.int64)
            group_of[number[: len(known)]] = known
            groups = group_of[number[len(known) :]]
            if (groups < 0).any():
                return False
            sheet.group[some] = groups
            sheet.base[some] = 0
        scored, is_open = some, shut == 0
        if sheet.scored and sheet.image_version != before.image_version:
            # An image's number of nodes enters every node's score.
            scored = np.flatnonzero(sheet.base != LOW)
            is_open = sheet.shut_by[sheet.verdict[scored]] == 0
            sheet.base[scored] = 0
        if not len(scored):
            return True
        if sheet.scored and self._begin_scores(sheet, state) is None:
            return False
        scored = scored[is_open]
        sheet.fixed = [line.copy() for line in sheet.fixed]
        for plugin, line in zip(sheet.scored, sheet.fixed, strict=True):
            line[rows] = 0
            line[scored] = self._weighted(sheet, plugin, state, scored)
            sheet.base[scored] += line[scored]
        return True

    def _write(self, sheet: Sheet) -> None:
        """Write a sheet's rows into the arrays."""
        at = sheet.number
        self.group[at] = sheet.group
        self.hint[at] = -1
        if not sheet.keyed:
            self.hint[at, : len(sheet.group_rows)] = sheet.group_rows
        self.open_rows[at] = np.count_nonzero(sheet.base != LOW)

    # --- sets of groups --------------------------------------------------------------------------

    def base(self, sheet: Sheet, mask: int) -> int:
        """Return the index in ``bases`` of the scores if only the groups in ``mask`` are feasible.

        Raises:
            PluginFailed: a plugin failed.
        """
        known = sheet.by_groups.get(mask)
        if known is not None:
            return known[0]
        active = np.array([g for g in range(len(sheet.group_rows)) if mask >> g & 1], np.int64)
        assert sheet.info is not None
        weighted: list[Int64] = []
        for plugin, weight in () if sheet.keyed else sheet.normalised:
            scores = self._profile.framework.score_one(
                plugin, CycleState(), sheet.info, self._snapshot, sheet.group_rows[active]
            )[1]
            weighted.append(scores * weight)
        if self.base_count >= len(self.bases):
            more = np.zeros((max(4, 2 * self.base_count), self.rows), np.int32)
            more[: self.base_count] = self.bases[: self.base_count]
            self.bases = more
        number = self.base_count
        self.base_count += 1
        self.bases[number] = self._with_groups(sheet, weighted, active)
        sheet.by_groups[mask] = number, weighted, active
        return number

    @staticmethod
    def _with_groups(sheet: Sheet, weighted: Sequence[Int64], active: Int64) -> Int32:
        """Return the base plus the score that each of the ``active`` groups adds, int32 (rows,)."""
        offset = np.zeros(max(len(sheet.group_rows), 1), np.int32)
        for scores in weighted:
            offset[active] += scores.astype(np.int32)
        return np.where(sheet.base == LOW, np.int32(LOW), sheet.base + offset[sheet.group])

    def _reserve(self, size: int) -> None:
        for name in ("group", "group_count", "hint", "open_rows", "keyed"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
