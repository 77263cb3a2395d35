"""The decisions of a run as columns; ``Decision`` objects are made on demand.

An unread decision is a few numbers in arrays. ``Run`` is a sequence of ``Decision``; a caller with
many of them reads the columns: keys and node names to bind, ``bodies`` to record.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np

from scheduling.engine.compiled.layout import DYNAMIC, KINDS, REFUSALS, TAKEN
from scheduling.engine.fast.programs import Program
from scheduling.engine.fast.sheets import Sheet
from scheduling.engine.reference import decision
from scheduling.engine.reference.decision import (
    BEST_KEPT,
    SCHEDULED,
    BestScores,
    Decision,
    Rejection,
    in_order,
)
from scheduling.engine.reference.record import LARGEST_BODY, encode_body, pack, pack_rejections
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int32, Int64, UInt64
from scheduling.framework.status import Status
from scheduling.framework.terms import ColumnFilter, RequestFilter
from scheduling.framework.types import PodInfo

Scores = list[int | list[int]]
"""By plugin: its scores of the best nodes, or one number if all of them have the same score."""


class Run(decision.Run):
    """The decisions of a run.

    ``figures`` int32 (pods, 7): row, total, ties, margin (-1: nothing was compared), chosen rows,
    feasible rows, and how many of ``kinds`` (pods, kinds, 2) are in use: rejections by
    NodeResourcesFit, as bits and number of nodes. ``chosen`` int32 (pods, 10): rows of the best
    nodes; ``chosen_scores`` int32 (pods, 2, 10): their weighted scores of NodeResourcesFit and
    balance; ``term_scores`` int32 (pods, plugins, 10): those of the plugins that score by group.
    ``masks``: the groups that had feasible rows. ``refused`` int32 (pods, reasons): nodes that
    rules about pods rejected. ``keys`` and ``infos``: the pods and their classes. ``counting``: by
    pod the filters that look at columns, one for each amount; empty where no pod has one.

    Node names are looked up in the snapshot: read a run, or call ``named``, before nodes change
    rows.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler_name: str,
        fit: RequestFilter | None,
        fit_name: str,
        *,
        seed: int,
        draw: int,
        start: int,
        count: int,
    ) -> None:
        self.seed = seed
        self.draw = draw
        self.scheduler_name = scheduler_name
        self.revision = snapshot.revision
        self.node_count = snapshot.node_count
        self._snapshot = snapshot
        self._names = snapshot.names
        self._start = start
        self.keys: list[Hashable] = []
        self.infos: list[PodInfo] = []
        self.sheets: list[Sheet] = []
        self.figures: Int32 = np.zeros((count, 7), np.int32)
        self.chosen: Int32 = np.zeros((count, BEST_KEPT), np.int32)
        self.chosen_scores: Int32 = np.zeros((count, 2, BEST_KEPT), np.int32)
        self.kinds: Int32 = np.zeros((count, KINDS, 2), np.int32)
        self.masks: UInt64 = np.zeros(count, np.uint64)
        self.refused: Int32 = np.zeros((count, REFUSALS), np.int32)
        self.term_scores: Int32 = np.zeros((count, DYNAMIC, BEST_KEPT), np.int32)
        self.programs: Sequence[Program | None] = ()
        self._fit = fit
        self._fit_name = fit_name
        self.counting: Sequence[Sequence[ColumnFilter]] = ()
        self._rejections: dict[Hashable, tuple[Rejection, ...]] = {}

    def finish(
        self,
        keys: list[Hashable],
        infos: list[PodInfo],
        sheets: list[Sheet],
        programs: Sequence[Program | None],
    ) -> None:
        """Set the decided pods, and cut the columns to one row for each."""
        count = len(keys)
        self.keys, self.infos, self.sheets, self.programs = keys, infos, sheets, programs
        columns = ("figures", "chosen", "chosen_scores", "kinds", "masks", "refused", "term_scores")
        for name in columns:
            setattr(self, name, getattr(self, name)[:count])

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return [self._decision(at) for at in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return self._decision(number % len(self))

    def __iter__(self) -> Iterator[Decision]:
        return map(self._decision, range(len(self)))

    # --- one decision ----------------------------------------------------------------------------

    def _plugins(self, number: int) -> tuple[str, ...]:
        program = self.programs[number]
        return self.sheets[number].names if program is None else program.names

    def _scores(self) -> Callable[[int, list[int]], Scores]:
        scores = self.chosen_scores.tolist()
        fixed = self._fixed_columns()
        most = max([-min([*p.sources, 0]) for p in self.programs if p is not None], default=0)
        dynamic = self.term_scores[:, :most].tolist()

        def of(number: int, rows: list[int]) -> Scores:
            sheet, own, count = self.sheets[number], scores[number], len(rows)
            program = self.programs[number]
            columns: Scores = []
            at_group: Scores | None = None
            for line in sheet.lines if program is None else program.sources:
                if line >= 2:
                    columns.append(fixed[id(sheet)][line - 2][number][:count])
                elif line >= 0:
                    columns.append(own[line][:count])
                elif program is not None:
                    columns.append(_alike(dynamic[number][-1 - line][:count]))
                else:
                    if at_group is None:
                        at_group = self._by_group(number, sheet, rows)
                    columns.append(at_group.pop(0))
            return columns

        return of

    def _fixed_columns(self) -> dict[int, list[list[list[int]]]]:
        """Return, by sheet, the scores of the chosen rows by plugins about nodes alone."""
        return {
            identity: [column[self.chosen].tolist() for column in sheet.fixed]
            for identity, sheet in {id(sheet): sheet for sheet in self.sheets}.items()
        }

    def _by_group(self, number: int, sheet: Sheet, rows: list[int]) -> Scores:
        """Return the scores of rows by plugins that score by group; one number if all are equal."""
        _, grouped, active = sheet.by_groups[int(self.masks[number])]
        if len(active) == 1:
            return [int(scores[0]) for scores in grouped]
        place = {group: at for at, group in enumerate(active.tolist())}
        places = [place[group] for group in sheet.group[rows].tolist()]
        return [[values[at] for at in places] for values in (g.tolist() for g in grouped)]

    def _best(self, number: int, rows: Int32, names: tuple[str, ...]) -> BestScores:
        sheet = self.sheets[number]
        scores: Int32 = self.chosen_scores[number, :, : len(rows)]
        if sheet.fixed:
            scores = np.concatenate((scores, [column[rows] for column in sheet.fixed]))
        program = self.programs[number]
        if program is not None:
            dynamic = self.term_scores[number, :, : len(rows)]
            first = len(scores)
            lines = [line if line >= 0 else first - 1 - line for line in program.sources]
            return BestScores(names, np.concatenate((scores, dynamic)), lines)
        _, grouped, active = sheet.by_groups[int(self.masks[number])]
        return BestScores(
            names,
            scores,
            sheet.lines,
            grouped,
            np.searchsorted(active, sheet.group[rows]) if len(active) > 1 else None,
        )

    def rejections(self, number: int) -> tuple[Rejection, ...]:
        """Return the rejections of a pod's other nodes: each status with its number of nodes."""
        sheet, kinds = self.sheets[number], int(self.figures[number, -1])
        program = self.programs[number]
        if program is not None:
            key: Hashable = (
                sheet.number, self.kinds[number, :kinds].tobytes(), id(self.infos[number]),
                self.refused[number].tobytes(),
            )  # fmt: skip
        elif not kinds:
            key = sheet.number
        else:
            key = (sheet.number, self.kinds[number, :kinds].tobytes(), id(self.infos[number]))
        known = self._rejections.get(key)
        if known is None:
            # Different bits may mean the same reasons.
            counts: dict[Status, int] = {}
            for bits, nodes in self.kinds[number, :kinds].tolist():
                if bits == TAKEN:
                    assert program is not None
                    status = program.taken
                else:
                    status = self._refusal(number, bits)
                counts[status] = counts.get(status, 0) + nodes
            if program is not None:
                of_terms = zip(program.refusals, self.refused[number].tolist(), strict=True)
                counts.update({status: nodes for status, nodes in of_terms if nodes})
            of_fit = [Rejection(status, nodes) for status, nodes in counts.items()]
            known = self._rejections[key] = in_order([*sheet.rejections, *of_fit])
        return known

    def _refusal(self, number: int, bits: int) -> Status:
        """Return the rejection by the first filter that compares amounts and rejects the node."""
        assert self._fit is not None
        info = self.infos[number]
        counting = self.counting[number] if self.counting else ()
        if bits > 1 and counting:
            checks = len(self._fit.request_checks(info, self._snapshot))
            if not bits & ((1 << (2 * checks + 1)) - 1):
                left = bits >> (2 * checks + 1)
                plugin = counting[((left & -left).bit_length() - 1) // 2]
                return Status(*plugin.column_rejection, plugin.name)
        return Status(*self._fit.request_rejection(info, self._snapshot, bits), self._fit_name)

    # --- columns ---------------------------------------------------------------------------------

    @cached_property
    def evaluated(self) -> Int64:
        """How many nodes were filtered for each pod, int64 (pods,)."""
        return np.array([self.node_count - sheet.absent for sheet in self.sheets], np.int64)

    @cached_property
    def next_starts(self) -> Int64:
        """The node index at which the search for the pod after each begins, int64 (pods,)."""
        found: Int64 = (self._start + np.cumsum(self.evaluated)) % self.node_count
        return found

    @property
    def next_start(self) -> int:
        """The node index at which the search for the first pod after the run begins."""
        return int(self.next_starts[-1])

    def node_names(self) -> list[str]:
        """Return the node that was chosen for each pod."""
        names = self._names
        return [names[row] for row in self.figures[:, 0].tolist()]

    def named(self) -> Self:
        """Copy the nodes' present names, so that later changes of nodes have no effect."""
        self._names = self._snapshot.names.copy()
        return self

    def bodies(self) -> list[bytes]:
        """Return each decision as ``record.pack`` would pack it."""
        found = []
        names, chosen = self._names, self.chosen.tolist()
        scores = self._scores()
        packed: dict[int, msgspec.Raw] = {}
        for number, (_, _, _, margin, count, _, _) in enumerate(self.figures.tolist()):
            rejections = self.rejections(number)
            rejected = packed.get(id(rejections))
            if rejected is None:
                rejected = packed[id(rejections)] = pack_rejections(rejections)
            if margin < 0:
                found.append(encode_body((), (), (), rejected))
                continue
            rows = chosen[number][:count]
            best = [names[row] for row in rows]
            body = encode_body(self._plugins(number), best, scores(number, rows), rejected)
            found.append(body if len(body) <= LARGEST_BODY else pack(self[number]))
        return found

    # --- writing out -----------------------------------------------------------------------------

    def _decision(self, number: int) -> Decision:
        names = self._names
        row, total, ties, margin, count, feasible, _ = self.figures[number].tolist()
        best: BestScores | None = None
        if margin >= 0:
            rows = self.chosen[number, :count]
            best = self._best(number, rows, tuple([names[at] for at in rows.tolist()]))
        return Decision(
            key=self.keys[number],
            class_digest=self.infos[number].digest,
            outcome=SCHEDULED,
            node_name=names[row],
            row=row,
            total=total,
            margin=None if best is None else margin,
            ties=ties,
            node_count=self.node_count,
            evaluated=int(self.evaluated[number]),
            feasible=feasible,
            plugins=() if best is None else self._plugins(number),
            best_scores=best,
            rejections=self.rejections(number),
            seed=self.seed,
            draw=self.draw + number,
            next_start=int(self.next_starts[number]),
            snapshot_revision=self.revision,
            profile=self.scheduler_name,
        )


def _alike(scores: list[int]) -> int | list[int]:
    """Return one number if all scores are equal, else the scores."""
    return scores[0] if scores.count(scores[0]) == len(scores) else scores
