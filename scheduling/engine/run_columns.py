"""The decisions of a run as columns, written out on demand.

A decision that nobody looks at is a few numbers in arrays. ``RunColumns`` is a sequence of
``Decision`` all the same; who handles many of them takes the columns: keys and node names to bind,
``bodies`` to record. ``plain_run`` and ``line_run`` know what their loops say.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np

from scheduling.engine.decision import SCHEDULED, BestScores, Decision, Rejection
from scheduling.engine.record import LARGEST_BODY, encode_body, pack, pack_rejections
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int32, Int64
from scheduling.framework.types import PodInfo

Scores = list[int | list[int]]
"""By plugin: what it gave the best nodes, or one number where it gave them all the same."""
LAST = 6
"""The column of ``told`` that each kind of run has for itself."""


class RunColumns(Sequence[Decision], ABC):
    """The decisions of a run.

    ``told`` int32 (pods, 7): row, total, ties, margin (-1: nothing was compared), chosen rows,
    feasible rows, and ``LAST``. ``chosen`` int32 (pods, 10): rows of the best nodes. ``keys`` and
    ``infos``: the pods and their classes.

    Node names are looked up in the snapshot: a run must be read, or ``named``, before nodes go.
    """

    keys: list[Hashable]
    infos: list[PodInfo]
    told: Int32
    chosen: Int32

    def __init__(
        self, snapshot: Snapshot, scheduler_name: str, *, seed: int, draw: int, start: int
    ) -> None:
        self.seed = seed
        self.draw = draw
        self.scheduler_name = scheduler_name
        self.revision = snapshot.revision
        self.node_count = snapshot.node_count
        self._snapshot = snapshot
        self._names = snapshot.names
        self._start = start

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

    # --- what the kinds of runs know -------------------------------------------------------------

    @abstractmethod
    def _evaluated(self) -> list[int]:
        """Return how many nodes were judged for each pod."""

    @abstractmethod
    def _plugins(self, number: int) -> tuple[str, ...]:
        """Return the names of the plugins that score for a pod."""

    @abstractmethod
    def _scores(self) -> Callable[[int, list[int]], Scores]:
        """Return what tells the scores of a pod's best nodes, by its number and their rows."""

    @abstractmethod
    def _best(self, number: int, rows: Int32, names: tuple[str, ...]) -> BestScores:
        """Return the best nodes of a pod."""

    @abstractmethod
    def rejections(self, number: int) -> tuple[Rejection, ...]:
        """Return why other nodes were rejected."""

    # --- columns ---------------------------------------------------------------------------------

    @cached_property
    def evaluated(self) -> Int64:
        """How many nodes were judged for each pod, int64 (pods,)."""
        return np.array(self._evaluated(), np.int64)

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

    def named(self) -> Self:
        """Keep the names that the nodes have now."""
        self._names = self._snapshot.names.copy()
        return self

    def bodies(self) -> list[bytes]:
        """Return what ``record.pack`` makes of each decision."""
        found = []
        names, chosen = self._names, self.chosen.tolist()
        scores = self._scores()
        packed: dict[int, msgspec.Raw] = {}
        for number, (_, _, _, margin, count, _, _) in enumerate(self.told.tolist()):
            told = self.rejections(number)
            rejected = packed.get(id(told))
            if rejected is None:
                rejected = packed[id(told)] = pack_rejections(told)
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
        row, total, ties, margin, count, feasible, _ = self.told[number].tolist()
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
