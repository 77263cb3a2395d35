"""What ``engine.plain`` decides, as columns."""

from collections.abc import Callable, Hashable, Sequence

import msgspec
import numpy as np

from scheduling.engine.decision import BEST_KEPT, BestScores, Rejection, in_order
from scheduling.engine.run_columns import LAST, RunColumns, Scores
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int8, Int32, Int64, UInt64
from scheduling.framework.interface import Plugin, Rows, Score
from scheduling.framework.status import Status
from scheduling.framework.tables import Counter
from scheduling.framework.terms import PlainFilter
from scheduling.framework.types import PodInfo

REFUSALS = 5
DYNAMIC = 4
KINDS = 16
"""As ``compiled.plain.KINDS``: so many rejections by NodeResourcesFit are told apart."""


class Plan:
    """What plugins say of all nodes about pods with equal aspects.

    ``base`` int32 (rows,): weighted local scores, very low where the pods cannot go; ``group`` int8
    (rows,): rows that are alike in everything that is normalised; ``by_groups``: for each set of
    groups with feasible rows its number in ``Plans.bases`` and the groups' weighted scores.
    ``lines``: for each of the plugins ``names`` 0 for NodeResourcesFit, 1 for balance, from 2 on
    the place in ``fixed`` (weighted scores by row), -1 for the ``normalised``. ``keyed``: of a plan
    for classes with programs how many groups there are, which labels tell apart as well; ``raw``:
    there the scores of its ``normalised`` plugins by group.
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
        self.base: Int32 = np.zeros(0, np.int32)
        self.group: Int8 = np.zeros(0, np.int8)
        self.group_rows: Rows = np.zeros(0, np.intp)
        self.by_groups: dict[int, tuple[int, list[Int64], Int64]] = {}


class Program(msgspec.Struct, kw_only=True, eq=False):
    """A class's place in the arrays, and what is needed beside numbers.

    ``sources``: by plugin that scores, as ``Plan.lines``, but -1, -2 ... for the first, second ...
    plugin that scores by group. ``seen``: changes of the watched counters that the exceptions hold,
    -1 when they must be made again.
    """

    number: int
    info: PodInfo
    names: tuple[str, ...]
    sources: list[int]
    refusals: list[Status]
    slots: tuple[int, ...]
    watches: list[Counter]
    seen: int
    asked_again: list[Counter]
    """Counters that decide whether a plugin skips its score."""
    asked_at: int
    scoring: dict[str, Plugin]


class PlainRun(RunColumns):
    """The decisions of a run.

    ``LAST`` of ``told``: how many of ``kinds`` (pods, kinds, 2) are in use: rejections by
    NodeResourcesFit, as bits and number of nodes. ``chosen_scores`` int32 (pods, 2, 10): what
    NodeResourcesFit and balance gave the chosen rows, weighted. ``masks``: the groups that had
    feasible rows.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler_name: str,
        fit: PlainFilter | None,
        fit_name: str,
        *,
        seed: int,
        draw: int,
        start: int,
        count: int,
    ) -> None:
        super().__init__(snapshot, scheduler_name, seed=seed, draw=draw, start=start)
        self.keys: list[Hashable] = []
        self.infos: list[PodInfo] = []
        self.plans: list[Plan] = []
        self.told: Int32 = np.zeros((count, LAST + 1), np.int32)
        self.chosen: Int32 = np.zeros((count, BEST_KEPT), np.int32)
        self.chosen_scores: Int32 = np.zeros((count, 2, BEST_KEPT), np.int32)
        self.kinds: Int32 = np.zeros((count, KINDS, 2), np.int32)
        self.masks: UInt64 = np.zeros(count, np.uint64)
        self.refused: Int32 = np.zeros((count, REFUSALS), np.int32)
        self.term_scores: Int32 = np.zeros((count, DYNAMIC, BEST_KEPT), np.int32)
        self.programs: Sequence[Program | None] = ()
        self._fit = fit
        self._fit_name = fit_name
        self._rejections: dict[Hashable, tuple[Rejection, ...]] = {}

    def finish(
        self,
        keys: list[Hashable],
        infos: list[PodInfo],
        plans: list[Plan],
        programs: Sequence[Program | None],
    ) -> None:
        """Note what was decided about; the columns keep so many lines."""
        count = len(keys)
        self.keys, self.infos, self.plans, self.programs = keys, infos, plans, programs
        columns = ("told", "chosen", "chosen_scores", "kinds", "masks", "refused", "term_scores")
        for name in columns:
            setattr(self, name, getattr(self, name)[:count])

    def _evaluated(self) -> list[int]:
        return [self.node_count - plan.absent for plan in self.plans]

    def _plugins(self, number: int) -> tuple[str, ...]:
        program = self.programs[number]
        return self.plans[number].names if program is None else program.names

    def _scores(self) -> Callable[[int, list[int]], Scores]:
        scores = self.chosen_scores.tolist()
        fixed = self._fixed_columns()

        def of(number: int, rows: list[int]) -> Scores:
            plan, own, count = self.plans[number], scores[number], len(rows)
            program = self.programs[number]
            columns: Scores = []
            at_group: Scores | None = None
            for line in plan.lines if program is None else program.sources:
                if line >= 2:
                    columns.append(fixed[id(plan)][line - 2][number][:count])
                elif line >= 0:
                    columns.append(own[line][:count])
                elif program is not None:
                    columns.append(_alike(self.term_scores[number, -1 - line, :count].tolist()))
                else:
                    if at_group is None:
                        at_group = self._by_group(number, plan, rows)
                    columns.append(at_group.pop(0))
            return columns

        return of

    def _fixed_columns(self) -> dict[int, list[list[list[int]]]]:
        """Return what plugins that score nodes alone gave the chosen rows, by plan."""
        return {
            identity: [column[self.chosen].tolist() for column in plan.fixed]
            for identity, plan in {id(plan): plan for plan in self.plans}.items()
        }

    def _by_group(self, number: int, plan: Plan, rows: list[int]) -> Scores:
        """Return what the normalised scores are on rows: one number where it is the same."""
        _, grouped, active = plan.by_groups[int(self.masks[number])]
        if len(active) == 1:
            return [int(scores[0]) for scores in grouped]
        place = {group: at for at, group in enumerate(active.tolist())}
        places = [place[group] for group in plan.group[rows].tolist()]
        return [[values[at] for at in places] for values in (g.tolist() for g in grouped)]

    def _best(self, number: int, rows: Int32, names: tuple[str, ...]) -> BestScores:
        plan = self.plans[number]
        scores: Int32 = self.chosen_scores[number, :, : len(rows)]
        if plan.fixed:
            scores = np.concatenate((scores, [column[rows] for column in plan.fixed]))
        program = self.programs[number]
        if program is not None:
            dynamic = self.term_scores[number, :, : len(rows)]
            first = len(scores)
            lines = [line if line >= 0 else first - 1 - line for line in program.sources]
            return BestScores(names, np.concatenate((scores, dynamic)), lines)
        _, grouped, active = plan.by_groups[int(self.masks[number])]
        return BestScores(
            names,
            scores,
            plan.lines,
            grouped,
            np.searchsorted(active, plan.group[rows]) if len(active) > 1 else None,
        )

    def rejections(self, number: int) -> tuple[Rejection, ...]:
        """Return why other nodes were rejected."""
        plan, kinds = self.plans[number], int(self.told[number, LAST])
        program = self.programs[number]
        if program is not None:
            key: Hashable = (
                plan.number, self.kinds[number, :kinds].tobytes(), id(self.infos[number]),
                self.refused[number].tobytes(),
            )  # fmt: skip
        elif not kinds:
            key = plan.number
        else:
            key = (plan.number, self.kinds[number, :kinds].tobytes(), id(self.infos[number]))
        known = self._rejections.get(key)
        if known is None:
            # Different bits may be told alike.
            counts: dict[Status, int] = {}
            for bits, nodes in self.kinds[number, :kinds].tolist():
                assert self._fit is not None
                told = self._fit.plain_rejection(self.infos[number], self._snapshot, bits)
                status = Status(*told, self._fit_name)
                counts[status] = counts.get(status, 0) + nodes
            if program is not None:
                of_terms = zip(program.refusals, self.refused[number].tolist(), strict=True)
                counts.update({status: nodes for status, nodes in of_terms if nodes})
            of_fit = [Rejection(status, nodes) for status, nodes in counts.items()]
            known = self._rejections[key] = in_order([*plan.rejections, *of_fit])
        return known


def _alike(scores: list[int]) -> int | list[int]:
    """Return one number where all scores are equal."""
    return scores[0] if scores.count(scores[0]) == len(scores) else scores
