"""Keeps decision records in memory until the queue is empty, then writes them: binding comes first.

At most ``LIMIT`` decisions wait here. They are written in bulk when the scheduler has nothing to
place, or when the limit is reached. Decisions that placed a pod are kept unchanged, runs of them as
columns. Decisions that placed nothing are encoded at once, because their tables refer to rows of
the present snapshot.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import cast

import numpy as np
import structlog

from clusterstate.actions.scheduler.decisions import (
    MadeMany,
    NewDecision,
    begin_epoch,
    record_columns,
    record_many,
)
from clusterstate.queries.scheduler.decisions import Turn
from scheduling.engine.reference.decision import SCHEDULED, UNSCHEDULABLE, Decision, Decisions, Run
from scheduling.engine.reference.record import pack, pack_table
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.outcomes import Filtered
from scheduling.framework.types import class_id_of

logger = structlog.get_logger(__name__)

STALE = "stale"
LIMIT = 20_000
_AT_ONCE = 2000
_WORTH_COLUMNS = 64
"""Shorter runs are recorded as single decisions, with their neighbours."""
_TABLES_AT_ONCE = 32
"""The most full tables per batch: each costs a millisecond at 5,000 nodes."""
_TABLES_KEPT = 256
"""Full tables of earlier batches, for repeated refusals (``engine.reference.refusals``)."""

_Noted = tuple[datetime, int, Decision | NewDecision | Run]
_Identity = tuple[int, int, int]


class Recorder:
    """The decisions that are not written to the database yet, in order."""

    def __init__(self, scheduler: int) -> None:
        self._scheduler = scheduler
        self._epoch = 0
        self._number = 1
        self._noted: list[_Noted] = []
        self._count = 0
        self._taken_back: dict[_Identity, int] = {}
        # Placed pods of the last two batches: one is being bound while the next is decided.
        self._last: list[Decision | Run] = []
        self._before: list[Decision | Run] = []
        # By the result of Filter: a cached refusal has the same object as the first one.
        self._tables: OrderedDict[int, tuple[Filtered, bytes]] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether the decisions not yet written must be written before more pods are placed."""
        return self._count >= LIMIT

    def note(
        self,
        decisions: Decisions | list[Decision],
        snapshot: Snapshot,
        *,
        profile_revision: int,
        now: float,
    ) -> None:
        """Add the decisions of a batch; ``snapshot``: that of the decisions, with their pods."""
        moment = datetime.fromtimestamp(now, UTC)
        room = _TABLES_AT_ONCE
        bodies: dict[tuple[object, ...], bytes] = {}
        self._before, self._last = self._last, []
        self._count += len(decisions)
        for part in decisions.parts if isinstance(decisions, Decisions) else (decisions,):
            if isinstance(part, Run) and len(part.keys) >= _WORTH_COLUMNS:
                self._last.append(part.named())
                self._noted.append((moment, profile_revision, part))
                continue
            for decision in part:
                if decision.scheduled:
                    self._last.append(decision)
                    self._noted.append((moment, profile_revision, decision))
                    continue
                table: bytes | None = None
                if decision.outcome == UNSCHEDULABLE and decision.node_count:
                    table = self._kept_table(decision)
                    if table is None and room:
                        table = self._make_table(decision, snapshot)
                        room -= 1
                # Pods of a class that were refused by one look at the nodes share its rejections
                # and body.
                body: bytes | None = None
                if decision.nomination is None or not decision.nomination.node_name:
                    key = id(decision.rejections), decision.rejected_by
                    body = bodies.get(key) or bodies.setdefault(key, pack(decision))
                record = _record_of(decision, moment, profile_revision, table=table, body=body)
                self._noted.append((moment, profile_revision, record))

    def _kept_table(self, decision: Decision) -> bytes | None:
        cached = self._tables.get(id(decision.judged))
        return None if cached is None else cached[1]

    def _make_table(self, decision: Decision, snapshot: Snapshot) -> bytes:
        table = pack_table(decision, snapshot)
        if decision.judged is not None:
            self._tables[id(decision.judged)] = decision.judged, table
            if len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
        return table

    def came_back(self, pod_ids: Iterable[int]) -> None:
        """Record that binds of the last batches were refused.

        The next decision is the first one that is made without their pods.
        """
        following = self._number + self._count
        last, before = (
            {identity[0]: identity for part in parts for identity in _identities(part)}
            for parts in (self._last, self._before)
        )
        for pod_id in pod_ids:
            # A pod in both was refused twice; the earlier decision is known already.
            identity = last.get(pod_id) or before.get(pod_id)
            if identity is not None:
                self._taken_back[identity] = following

    def record(self, most: int | None = None) -> int:
        """Write all decisions, or about ``most`` of the oldest; return the number of rows.

        One statement writes a run of decisions, and so does one for up to 2,000 single decisions.
        """
        noted: list[_Noted] = []
        count = 0
        for entry in self._noted:
            if most is not None and count >= most:
                break
            noted.append(entry)
            count += len(entry[2].keys) if isinstance(entry[2], Run) else 1
        self._noted = self._noted[len(noted) :]
        self._count -= count
        taken_back = self._taken_back
        if not self._noted:
            self._taken_back = {}
        if noted:
            self.begin()
        written = 0
        several: list[NewDecision] = []
        for moment, revision, one in noted:
            if isinstance(one, Run):
                written += record_many(several, self._turn(len(several)))
                several = []
                written += record_columns(
                    _columns(one, moment, revision, taken_back), self._turn(len(one.keys))
                )
                continue
            if isinstance(one, Decision):
                number = taken_back.get((cast(int, one.key), one.seed, one.draw))
                one = _record_of(one, moment, revision, taken_back=number)  # noqa: PLW2901
            several.append(one)
            if len(several) >= _AT_ONCE:
                written += record_many(several, self._turn(len(several)))
                several = []
        return written + record_many(several, self._turn(len(several)))

    def begin(self) -> int:
        """Return the epoch of this run of the scheduler; queries once, when called first."""
        if not self._epoch:
            self._epoch = begin_epoch(self._scheduler)
        return self._epoch

    def _turn(self, count: int) -> Turn:
        """Return the number of the next decision, and reserve ``count`` numbers for the caller."""
        found = Turn(self._scheduler, self._epoch, self._number)
        self._number += count
        return found


def _identities(part: Decision | Run) -> Iterator[_Identity]:
    """Yield (pod id, seed, draw) of each decision."""
    if isinstance(part, Decision):
        yield cast(int, part.key), part.seed, part.draw
        return
    for number, key in enumerate(part.keys):
        yield cast(int, key), part.seed, part.draw + number


def _columns(
    run: Run, moment: datetime, profile_revision: int, taken_back: dict[_Identity, int]
) -> MadeMany:
    count, nodes = len(run.keys), run.node_count
    figures = run.figures
    class_ids = {id(info): class_id_of(info.digest) for info in run.infos}
    outcomes: Sequence[str] = [SCHEDULED] * count
    numbers: Sequence[int | None] = [None] * count
    if taken_back:
        numbers = [taken_back.get(one) for one in _identities(run)]
        outcomes = [SCHEDULED if number is None else STALE for number in numbers]
    margins: Sequence[int | None] = figures[:, 3].tolist()
    if min(cast("list[int]", margins)) < 0:
        margins = [None if margin is None or margin < 0 else margin for margin in margins]
    return MadeMany(
        pod_id=cast("list[int]", run.keys),
        at=[moment] * count,
        class_id=[class_ids[id(info)] for info in run.infos],
        snapshot_revision=[run.revision] * count,
        profile=[run.scheduler_name] * count,
        profile_revision=[profile_revision] * count,
        seed=[run.seed] * count,
        draw=run.draw + np.arange(count),
        start=(run.next_starts - run.evaluated) % nodes,
        outcome=outcomes,
        node_name=run.node_names(),
        total=figures[:, 1],
        margin=margins,
        ties=figures[:, 2],
        node_count=[nodes] * count,
        evaluated=run.evaluated,
        feasible=figures[:, 5],
        message=[""] * count,
        body=run.bodies(),
        taken_back=numbers,
        table=[None] * count,
    )


def _record_of(
    decision: Decision,
    moment: datetime,
    profile_revision: int,
    *,
    taken_back: int | None = None,
    table: bytes | None = None,
    body: bytes | None = None,
) -> NewDecision:
    nodes = decision.node_count
    return NewDecision(
        pod_id=cast(int, decision.key),
        at=moment,
        class_id=class_id_of(decision.class_digest),
        snapshot_revision=decision.snapshot_revision,
        profile=decision.profile,
        profile_revision=profile_revision,
        seed=decision.seed,
        draw=decision.draw,
        start=(decision.next_start - decision.evaluated) % nodes if nodes else 0,
        outcome=decision.outcome if taken_back is None else STALE,
        node_name=decision.node_name,
        total=decision.total,
        margin=decision.margin,
        ties=decision.ties,
        node_count=nodes,
        evaluated=decision.evaluated,
        feasible=decision.feasible,
        message=decision.message,
        body=pack(decision) if body is None else body,
        taken_back=taken_back,
        table=table,
    )
