"""What ``engine.plain`` decides: the decisions of a run as columns, written out on demand.

A decision that nobody looks at is a few numbers in arrays. ``PlainRun`` is a sequence of
``Decision`` all the same; who handles many of them takes the columns: keys and node names to bind,
``bodies`` to record.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from scheduling.engine.decision import (
    BEST_KEPT,
    SCHEDULED,
    BestScores,
    Decision,
    Rejection,
    in_order,
)
from scheduling.engine.record import LARGEST_BODY, encode_body, pack, pack_rejections
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import Rows, Score
from scheduling.framework.status import Status
from scheduling.framework.terms import PlainFilter
from scheduling.framework.types import PodInfo

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

KINDS = 16
"""So many different rejections by NodeResourcesFit are told apart."""
_TOLD = 7


class Plan:
    """What plugins say of all nodes about pods with equal aspects.

    ``base`` int32 (rows,): weighted local scores, very low where the pods cannot go; ``group`` int8
    (rows,): rows that are alike in everything that is normalised; ``by_groups``: for each set of
    groups with feasible rows its number in ``Plans.bases`` and the groups' weighted scores.
    ``lines``: for each of the plugins ``names`` 0 for NodeResourcesFit, 1 for balance, from 2 on
    the place in ``fixed`` (weighted scores by row), -1 for the ``normalised``.
    """

    def __init__(self, number: int, info: PodInfo) -> None:
        self.number = number
        self.info = info
        self.names: tuple[str, ...] = ()
        self.lines: list[int] = []
        self.fixed: list[Int32] = []
        self.normalised: list[tuple[Score, int]] = []
        self.rejections: list[Rejection] = []
        self.absent = 0
        self.base: Int32 = np.zeros(0, np.int32)
        self.group: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        self.group_rows: Rows = np.zeros(0, np.intp)
        self.by_groups: dict[int, tuple[int, list[Int64], Int64]] = {}


class PlainRun(Sequence[Decision]):
    """The decisions of a run, as columns; each is written out when it is asked for.

    ``told`` int32 (pods, 7): row, total, ties, margin (-1: nothing was compared), chosen rows,
    feasible rows, kinds. ``chosen`` (pods, 10): rows of the best nodes; ``chosen_scores`` (pods, 2,
    10): what NodeResourcesFit and balance gave them, weighted. ``kinds`` (pods, kinds, 2):
    rejections by NodeResourcesFit, as bits and number of nodes. ``masks``: the groups that had
    feasible rows.

    Node names are looked up in the snapshot: a run must be read, or ``named``, before nodes go.
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
        self.seed = seed
        self.draw = draw
        self.scheduler_name = scheduler_name
        self.keys: list[Hashable] = []
        self.infos: list[PodInfo] = []
        self.plans: list[Plan] = []
        self.told: Int32 = np.zeros((count, _TOLD), np.int32)
        self.chosen: Int32 = np.zeros((count, BEST_KEPT), np.int32)
        self.chosen_scores: Int32 = np.zeros((count, 2, BEST_KEPT), np.int32)
        self.kinds: Int32 = np.zeros((count, KINDS, 2), np.int32)
        self.masks: npt.NDArray[np.uint64] = np.zeros(count, np.uint64)
        self.revision = snapshot.revision
        self.node_count = snapshot.node_count
        self._snapshot = snapshot
        self._names = snapshot.names
        self._fit = fit
        self._fit_name = fit_name
        self._start = start
        self._evaluated: Int64 | None = None
        self._next_starts: Int64 | None = None
        self._rejections: dict[Hashable, tuple[Rejection, ...]] = {}

    def finish(self, keys: list[Hashable], infos: list[PodInfo], plans: list[Plan]) -> None:
        """Note what was decided about; the columns keep so many lines."""
        count = len(keys)
        self.keys, self.infos, self.plans = keys, infos, plans
        for name in ("told", "chosen", "chosen_scores", "kinds", "masks"):
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

    # --- columns ---------------------------------------------------------------------------------

    @property
    def evaluated(self) -> Int64:
        """How many nodes were judged for each pod, int64 (pods,)."""
        if self._evaluated is None:
            known = {id(plan): self.node_count - plan.absent for plan in self.plans}
            self._evaluated = np.array([known[id(plan)] for plan in self.plans], np.int64)
        return self._evaluated

    @property
    def next_starts(self) -> Int64:
        """Where the search of each pod's successor begins, int64 (pods,)."""
        if self._next_starts is None:
            self._next_starts = (self._start + np.cumsum(self.evaluated)) % self.node_count
        return self._next_starts

    @property
    def next_start(self) -> int:
        """Where the search of the pod after these begins."""
        return int(self.next_starts[-1])

    def node_names(self) -> list[str]:
        """Return the node that was chosen for each pod."""
        names = self._names
        return [names[row] for row in self.told[:, 0].tolist()]

    def named(self) -> "PlainRun":
        """Keep the names that the nodes have now."""
        self._names = self._snapshot.names.copy()
        return self

    def bodies(self) -> list[bytes]:
        """Return what ``record.pack`` makes of each decision."""
        found = []
        names = self._names
        scores = self.chosen_scores.tolist()
        chosen = self.chosen.tolist()
        rejections: dict[int, msgspec.Raw] = {}
        fixed = self._fixed_columns()
        for number, (_, _, _, margin, count, _, kinds) in enumerate(self.told.tolist()):
            plan = self.plans[number]
            told = self.rejections(number, kinds)
            rejected = rejections.get(id(told))
            if rejected is None:
                rejected = rejections[id(told)] = pack_rejections(told)
            if margin < 0:
                found.append(encode_body((), (), (), rejected))
                continue
            rows = chosen[number][:count]
            columns: list[int | list[int]] = []
            at_group = None
            for line in plan.lines:
                if line >= 2:
                    columns.append(fixed[id(plan)][line - 2][number][:count])
                elif line >= 0:
                    columns.append(scores[number][line][:count])
                elif at_group is None:
                    at_group = self._by_group(number, plan, rows)
                    columns.append(at_group.pop(0))
                else:
                    columns.append(at_group.pop(0))
            body = encode_body(plan.names, [names[row] for row in rows], columns, rejected)
            found.append(body if len(body) <= LARGEST_BODY else pack(self[number]))
        return found

    def _fixed_columns(self) -> dict[int, list[list[list[int]]]]:
        """Return what plugins that score nodes alone gave the chosen rows, by plan."""
        return {
            identity: [column[self.chosen].tolist() for column in plan.fixed]
            for identity, plan in {id(plan): plan for plan in self.plans}.items()
        }

    def _by_group(self, number: int, plan: Plan, rows: list[int]) -> list[int | list[int]]:
        """Return what the normalised scores are on rows: one number where it is the same."""
        _, grouped, active = plan.by_groups[int(self.masks[number])]
        if len(active) == 1:
            return [int(scores[0]) for scores in grouped]
        place = {group: at for at, group in enumerate(active.tolist())}
        places = [place[group] for group in plan.group[rows].tolist()]
        return [[values[at] for at in places] for values in (g.tolist() for g in grouped)]

    # --- writing out -----------------------------------------------------------------------------

    def _decision(self, number: int) -> Decision:
        plan = self.plans[number]
        names = self._names
        row, total, ties, margin, count, feasible, kinds = self.told[number].tolist()
        compared = margin >= 0
        return Decision(
            key=self.keys[number],
            class_digest=self.infos[number].digest,
            outcome=SCHEDULED,
            node_name=names[row],
            row=row,
            total=total,
            margin=margin if compared else None,
            ties=ties,
            node_count=self.node_count,
            evaluated=self.node_count - plan.absent,
            feasible=feasible,
            plugins=plan.names if compared else (),
            best_scores=self._best(number, plan, count) if compared else None,
            rejections=self.rejections(number, kinds),
            seed=self.seed,
            draw=self.draw + number,
            next_start=int(self.next_starts[number]),
            snapshot_revision=self.revision,
            profile=self.scheduler_name,
        )

    def _best(self, number: int, plan: Plan, count: int) -> BestScores:
        """Return the ten best nodes of a pod."""
        names = self._names
        rows = self.chosen[number, :count]
        scores: Int32 = self.chosen_scores[number, :, :count]
        if plan.fixed:
            scores = np.concatenate((scores, [column[rows] for column in plan.fixed]))
        _, grouped, active = plan.by_groups[int(self.masks[number])]
        return BestScores(
            tuple([names[row] for row in rows.tolist()]),
            scores,
            plan.lines,
            grouped,
            np.searchsorted(active, plan.group[rows]) if len(active) > 1 else None,
        )

    def rejections(self, number: int, kinds: int) -> tuple[Rejection, ...]:
        """Return why other nodes were rejected."""
        plan = self.plans[number]
        if not kinds:
            key: Hashable = plan.number
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
            of_fit = [Rejection(status, nodes) for status, nodes in counts.items()]
            known = self._rejections[key] = in_order([*plan.rejections, *of_fit])
        return known
