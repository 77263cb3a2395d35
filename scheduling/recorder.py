"""What the runner decided, kept until there is time to write it down.

Binding comes first: decisions wait here, at most ``limit`` of them, and are recorded in bulk when
the runner is idle or the limit is reached. Placed ones wait as they are; ones that placed nothing
are packed at once, since their tables refer to rows of the snapshot as it is now.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import cast

import structlog

from clusterstate.actions.decisions import Made, record_many
from scheduling.engine.decision import UNSCHEDULABLE, Decision
from scheduling.engine.record import pack, pack_table
from scheduling.engine.snapshot import Snapshot

logger = structlog.get_logger(__name__)

STALE = "stale"
_AT_ONCE = 2000
_TABLES_AT_ONCE = 32
"""Full tables per batch: each costs a millisecond at 5,000 nodes, and can be made again."""


class Recorder:
    """Decisions on their way to the database, in their order."""

    def __init__(self, *, limit: int = 20_000) -> None:
        self._limit = limit
        self._noted: list[tuple[datetime, int, Decision | Made]] = []
        self._stale: set[tuple[int, int, int]] = set()
        # Placed pods of the last two batches: one is being bound while the next is decided.
        self._last: dict[int, tuple[int, int, int]] = {}
        self._before: dict[int, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._noted)

    @property
    def full(self) -> bool:
        """Whether it is time to record although there is something more urgent."""
        return len(self._noted) >= self._limit

    def note(
        self,
        decisions: Sequence[Decision],
        snapshot: Snapshot,
        *,
        profile_revision: int,
        now: float,
    ) -> None:
        """Keep the decisions of one batch; ``snapshot`` is as it was decided on, plus them."""
        moment = datetime.fromtimestamp(now, UTC)
        tables: dict[bytes, bytes] = {}
        self._before, self._last = self._last, {}
        for decision in decisions:
            if decision.scheduled:
                pod_id = cast(int, decision.key)
                self._last[pod_id] = (pod_id, decision.seed, decision.draw)
                self._noted.append((moment, profile_revision, decision))
                continue
            table: bytes | None = None
            # With feasible nodes it was refused after one was chosen: there is no such table.
            if decision.outcome == UNSCHEDULABLE and decision.node_count and not decision.feasible:
                table = tables.get(decision.class_digest)
                if table is None and len(tables) < _TABLES_AT_ONCE:
                    table = tables[decision.class_digest] = pack_table(decision, snapshot)
            made = _made(decision, moment, profile_revision, table=table)
            self._noted.append((moment, profile_revision, made))

    def came_back(self, pod_ids: Iterable[int]) -> None:
        """Note that decisions of the last batches came too late to be bound."""
        for pod_id in pod_ids:
            key = self._before.get(pod_id) or self._last.get(pod_id)
            if key is not None:
                self._stale.add(key)

    def record(self) -> int:
        """Write down everything that waits; return how many rows. One statement per 2,000."""
        noted, self._noted = self._noted, []
        stale, self._stale = self._stale, set()
        written = 0
        for first in range(0, len(noted), _AT_ONCE):
            written += record_many(
                [
                    one
                    if isinstance(one, Made)
                    else _made(
                        one,
                        moment,
                        revision,
                        stale=bool(stale) and (one.key, one.seed, one.draw) in stale,
                    )
                    for moment, revision, one in noted[first : first + _AT_ONCE]
                ]
            )
        return written


def _made(
    decision: Decision,
    moment: datetime,
    profile_revision: int,
    *,
    stale: bool = False,
    table: bytes | None = None,
) -> Made:
    nodes = decision.node_count
    return Made(
        pod_id=cast(int, decision.key),
        at=moment,
        class_id=int.from_bytes(decision.class_digest, "big"),
        snapshot_revision=decision.snapshot_revision,
        profile=decision.profile,
        profile_revision=profile_revision,
        seed=decision.seed,
        draw=decision.draw,
        start=(decision.next_start - decision.evaluated) % nodes if nodes else 0,
        outcome=STALE if stale else decision.outcome,
        node_name=decision.node_name,
        total=decision.total,
        margin=decision.margin,
        ties=decision.ties,
        node_count=nodes,
        evaluated=decision.evaluated,
        feasible=decision.feasible,
        message=decision.message,
        body=pack(decision),
        table=table,
    )
