"""What ``engine.runs`` decides, as columns."""

from collections.abc import Callable, Hashable

import msgspec
import numpy as np

from scheduling.engine.decision import BestScores, Rejection, in_order
from scheduling.engine.run_columns import LAST, RunColumns, Scores
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int32
from scheduling.framework.status import Status
from scheduling.framework.terms import PlainFilter
from scheduling.framework.types import PodInfo

TAKEN = 2**30
"""As ``compiled.grouped.TAKEN``: rejected by a counter, before NodeResourcesFit."""


class Line(msgspec.Struct, kw_only=True):
    """What a class's records need beside numbers.

    ``plugins``: those that score. ``skipped``: of those that may, the ones that do not now.
    ``slots``: counts that it looks at. ``fixed``: rejections that do not follow pods. ``refusals``:
    those of groups. ``kinds``: those of row filters, as bits, in order of first sight.
    """

    number: int
    info: PodInfo
    plugins: tuple[str, ...]
    skipped: frozenset[str]
    slots: tuple[int, ...]
    fixed: list[Rejection]
    refusals: list[Status]
    statuses: list[Status]
    fit: PlainFilter
    fit_name: str
    taken: Status
    evaluated: int

    def status_of(self, bits: int, snapshot: Snapshot) -> Status:
        """Return what a row filter's bits stand for; negative: one of ``statuses``."""
        if bits < 0:
            return self.statuses[-bits]
        if bits == TAKEN:
            return self.taken
        code, reasons = self.fit.plain_rejection(self.info, snapshot, bits)
        return Status(code, reasons, self.fit_name)


class LineRun(RunColumns):
    """The decisions of a run.

    ``LAST`` of ``told``: plugins (bits) that score all chosen rows alike. ``scores`` int32 (pods,
    plugins, 10): of the chosen rows, weighted. ``refused`` (pods, reasons): nodes refused for their
    group, then by kind of row filters' bits, which are in ``kinds``, by line.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        scheduler_name: str,
        *,
        seed: int,
        draw: int,
        start: int,
        keys: list[Hashable],
        lines: list[Line],
        kinds: dict[int, list[int]],
        told: Int32,
        chosen: Int32,
        scores: Int32,
        refused: Int32,
    ) -> None:
        super().__init__(snapshot, scheduler_name, seed=seed, draw=draw, start=start)
        self.keys = keys
        self.infos = [line.info for line in lines]
        self.lines = lines
        self.told = told
        self.chosen = chosen
        self.scores = scores
        self.refused = refused
        self._kinds = kinds
        self._rejections: dict[tuple[int, bytes], tuple[Rejection, ...]] = {}

    def _evaluated(self) -> list[int]:
        return [line.evaluated for line in self.lines]

    def _plugins(self, number: int) -> tuple[str, ...]:
        return self.lines[number].plugins

    def _scores(self) -> Callable[[int, list[int]], Scores]:
        firsts = self.scores[:, :, 0].tolist()
        alike = self.told[:, LAST].tolist()
        # Lists only of what differs somewhere: most plugins say the same of all nodes.
        always = int(np.bitwise_and.reduce(self.told[:, LAST], initial=-1))
        scores = [
            [] if always >> at & 1 else self.scores[:, at].tolist()
            for at in range(self.scores.shape[1])
        ]

        def of(number: int, rows: list[int]) -> Scores:
            same, first, count = alike[number], firsts[number], len(rows)
            return [
                first[at] if same >> at & 1 else scores[at][number][:count]
                for at in range(len(self.lines[number].plugins))
            ]

        return of

    def _best(self, number: int, rows: Int32, names: tuple[str, ...]) -> BestScores:
        scores = self.scores[number, :, : len(rows)]
        plugins = range(len(self.lines[number].plugins))
        return BestScores(names, scores, plugins, alike=int(self.told[number, LAST]))

    def rejections(self, number: int) -> tuple[Rejection, ...]:
        """Return why other nodes were rejected."""
        line = self.lines[number]
        key = (line.number, self.refused[number].tobytes())
        known = self._rejections.get(key)
        if known is None:
            counts = {rejection.status: rejection.nodes for rejection in line.fixed}
            reasons = [
                *line.refusals,
                *(line.status_of(bits, self._snapshot) for bits in self._kinds[line.number]),
            ]
            # Different bits may be told alike.
            for status, nodes in zip(reasons, self.refused[number].tolist(), strict=False):
                if nodes:
                    counts[status] = counts.get(status, 0) + nodes
            known = self._rejections[key] = in_order(
                [Rejection(status, nodes) for status, nodes in counts.items()]
            )
        return known
