"""What ``engine.runs`` decides: the decisions of a run as columns, written out on demand.

The same face as ``plain_run.PlainRun``: a sequence of ``Decision`` for who looks at some, columns
and ``bodies`` for who handles many.
"""

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from scheduling.engine.decision import SCHEDULED, BestScores, Decision, Rejection, in_order
from scheduling.engine.record import LARGEST_BODY, encode_body, pack, pack_rejections
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.status import Status
from scheduling.framework.terms import PlainFilter
from scheduling.framework.types import PodInfo

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

TAKEN = 2**30
"""As ``kernels.TAKEN``: rejected by a counter, before NodeResourcesFit."""


_ALIKE = 6


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


class LineRun(Sequence[Decision]):
    """The decisions of a run; each is written out when it is asked for.

    ``told`` int32 (pods, 7): row, total, ties, margin (-1: nothing was compared), chosen rows,
    feasible rows, plugins (bits) that score all chosen rows alike. ``chosen`` (pods, 10): rows of
    the best nodes; ``scores`` (pods, plugins, 10): weighted. ``refused`` (pods, reasons): nodes
    refused for their group, then by kind of row filters' bits, which are in ``kinds``, by line.

    Node names are looked up in the snapshot: a run must be read, or ``named``, before nodes go.
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
        self.seed = seed
        self.draw = draw
        self.scheduler_name = scheduler_name
        self.keys = keys
        self.lines = lines
        self.told = told
        self.chosen = chosen
        self.scores = scores
        self.refused = refused
        self.revision = snapshot.revision
        self.node_count = snapshot.node_count
        self._kinds = kinds
        self._snapshot = snapshot
        self._names = snapshot.names
        self._start = start
        self._rejections: dict[tuple[int, bytes], tuple[Rejection, ...]] = {}

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

    # --- columns ---------------------------------------------------------------------------------

    @cached_property
    def infos(self) -> list[PodInfo]:
        """The classes of the pods."""
        return [line.info for line in self.lines]

    @cached_property
    def evaluated(self) -> Int64:
        """How many nodes were judged for each pod, int64 (pods,)."""
        return np.array([line.evaluated for line in self.lines], np.int64)

    @cached_property
    def next_starts(self) -> Int64:
        """Where the search of each pod's successor begins, int64 (pods,)."""
        found: Int64 = (self._start + np.cumsum(self.evaluated)) % self.node_count
        return found

    @property
    def next_start(self) -> int:
        """Where the search of the pod after these begins."""
        return int(self.next_starts[-1])

    def node_names(self) -> list[str]:
        """Return the node that was chosen for each pod."""
        names = self._names
        return [names[row] for row in self.told[:, 0].tolist()]

    def named(self) -> "LineRun":
        """Keep the names that the nodes have now."""
        self._names = self._snapshot.names.copy()
        return self

    def bodies(self) -> list[bytes]:
        """Return what ``record.pack`` makes of each decision."""
        found = []
        names = self._names
        chosen, firsts = self.chosen.tolist(), self.scores[:, :, 0].tolist()
        # Lists only of what differs somewhere: most plugins say the same of all nodes.
        always = int(np.bitwise_and.reduce(self.told[:, _ALIKE], initial=-1))
        scores = [
            [] if always >> at & 1 else self.scores[:, at].tolist()
            for at in range(self.scores.shape[1])
        ]
        packed: dict[int, msgspec.Raw] = {}
        for number, (_, _, _, margin, count, _, alike) in enumerate(self.told.tolist()):
            told = self.rejections(number)
            rejected = packed.get(id(told))
            if rejected is None:
                rejected = packed[id(told)] = pack_rejections(told)
            if margin < 0:
                found.append(encode_body((), (), (), rejected))
                continue
            plugins = self.lines[number].plugins
            columns = [
                firsts[number][at] if alike >> at & 1 else scores[at][number][:count]
                for at in range(len(plugins))
            ]
            best = [names[row] for row in chosen[number][:count]]
            body = encode_body(plugins, best, columns, rejected)
            found.append(body if len(body) <= LARGEST_BODY else pack(self[number]))
        return found

    # --- writing out -----------------------------------------------------------------------------

    def _decision(self, number: int) -> Decision:
        line = self.lines[number]
        names = self._names
        row, total, ties, margin, count, feasible, alike = self.told[number].tolist()
        compared = margin >= 0
        best: BestScores | None = None
        if compared:
            best = BestScores(
                tuple([names[at] for at in self.chosen[number, :count].tolist()]),
                self.scores[number, :, :count],
                range(len(line.plugins)),
                alike=alike,
            )
        return Decision(
            key=self.keys[number],
            class_digest=line.info.digest,
            outcome=SCHEDULED,
            node_name=names[row],
            row=row,
            total=total,
            margin=margin if compared else None,
            ties=ties,
            node_count=self.node_count,
            evaluated=line.evaluated,
            feasible=feasible,
            plugins=line.plugins if compared else (),
            best_scores=best,
            rejections=self.rejections(number),
            seed=self.seed,
            draw=self.draw + number,
            next_start=int(self.next_starts[number]),
            snapshot_revision=self.revision,
            profile=self.scheduler_name,
        )

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
