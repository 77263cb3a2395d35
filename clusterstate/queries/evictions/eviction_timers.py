"""Eviction timers: which wait, which are due, and how many evictions were late."""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.database import sql
from clusterstate.queries.evictions.brakes import (
    NOTHING,
    ZONE_LABEL,
    HeldBack,
    owner_of,
    unless_held,
    why_held,
)
from clusterstate.queries.loops.controllers import stored_state

TAINT: Final = "taint"

DURING_EXECUTION: Final = "requiredDuringExecution"


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is to be evicted at ``due_at``; fields as in the model ``EvictionTimer``."""

    pod_id: int
    pod_uid: str
    namespace: str
    name: str
    node_name: str
    cause: str
    taint_key: str
    taint_value: str
    taint_effect: str
    seconds: int
    started_at: datetime
    due_at: datetime
    blocked_by: str
    landing: str | None


_TIMERS = """
SELECT t.pod_id, p.uid::text, p.namespace, p.name, t.node_name, t.cause, t.taint_key,
       coalesce((SELECT x.value FROM taint x JOIN node n ON n.id = x.node_id
                 WHERE n.name = t.node_name AND x.key = t.taint_key
                   AND x.effect = t.taint_effect), ''),
       t.taint_effect, t.seconds, t.started_at, t.due_at,
       CASE WHEN t.blocked_by = '' THEN {why} ELSE t.blocked_by END, t.landing::text
FROM eviction_timer t JOIN pod p ON p.id = t.pod_id
WHERE p.deletion_at IS NULL {where}
ORDER BY t.due_at, t.pod_id, t.cause LIMIT %s::bigint
"""


def waiting_timers(
    *,
    namespace: str = "",
    name: str = "",
    node_name: str = "",
    zone: str = "",
    owner: str = "",
    after: tuple[datetime, int] | None = None,
    limit: int = 500,
    held: HeldBack = NOTHING,
) -> list[Timer]:
    """Return timers by due time: all, or those of one namespace, pod, node, zone or owner.

    ``owner``: in the form of a brake's name. Queries once. ``after``: the due time and pod id at
    the end of the previous page. Timers of pods that are ``held`` back have the reason in
    ``blocked_by``.
    """
    why, why_parameters = why_held(held)
    conditions, parameters = [""], list[Any](why_parameters)
    for column, value in (("p.namespace", namespace), ("p.name", name), ("t.node_name", node_name)):
        if value:
            conditions.append(f"{column} = %s")
            parameters.append(value)
    if zone:
        conditions.append(
            f"EXISTS (SELECT 1 FROM node n WHERE n.name = t.node_name"
            f" AND n.labels ->> '{ZONE_LABEL}' = %s)"
        )
        parameters.append(zone)
    if owner:
        conditions.append(
            "p.namespace = split_part(%s, '.', 1) AND EXISTS (SELECT 1 FROM document d"
            f" WHERE d.id = p.document_id AND {owner_of('p', 'd')} = %s)"
        )
        parameters += (owner, owner)
    if after is not None:
        conditions.append("(t.due_at, t.pod_id) > (%s::timestamptz, %s::bigint)")
        parameters += after
    statement = _TIMERS.replace("{where}", " AND ".join(conditions)).replace("{why}", why)
    rows = sql.fetch(statement, [*parameters, limit])
    return [Timer(**dict(zip(Timer.__struct_fields__, row, strict=True))) for row in rows]


def next_due(held: HeldBack = NOTHING) -> datetime | None:
    """Return when the next timer is due, ``None`` if none waits. Queries once, by index."""
    condition, parameters = unless_held(held)
    row = sql.fetch_one(
        f"SELECT due_at FROM eviction_timer t WHERE {condition} ORDER BY due_at, pod_id LIMIT 1",
        parameters,
    )
    return None if row is None else row[0]


DueTaint = tuple[int, datetime, int | None]
"""Pod, due time and grace period of a taint's timer."""


def due_taints(
    now: datetime,
    *,
    after: tuple[datetime, int] | None = None,
    limit: int,
    held: HeldBack = NOTHING,
) -> list[DueTaint]:
    """Return the due timers for taints that nothing holds back. Queries once, by index.

    The earliest first; those of the same moment by pod. ``after`` is the due time and pod at which
    the batch before ended.
    """
    begin = "AND (due_at, pod_id) > (%s::timestamptz, %s::bigint) " if after else ""
    condition, parameters = unless_held(held)
    rows = sql.fetch(
        f"SELECT pod_id, due_at, grace_seconds FROM eviction_timer t"
        f" WHERE due_at <= %s::timestamptz AND cause = '{TAINT}' {begin} AND {condition} "
        "ORDER BY due_at, pod_id LIMIT %s::bigint",
        (now, *(after or ()), *parameters, limit),
    )
    return [(pod_id, due_at, grace) for pod_id, due_at, grace in rows]


def is_execution_due(now: datetime) -> bool:
    """Return whether a timer for node labels is due. Queries once, by an index of its own."""
    row = sql.fetch_one(
        f"SELECT due_at FROM eviction_timer WHERE cause = '{DURING_EXECUTION}'"
        " ORDER BY due_at, pod_id LIMIT 1"
    )
    return row is not None and row[0] <= now


def unforeseen(due_at: datetime, *, limit: int) -> list[tuple[int, str, str]]:
    """Return id, namespace and name of pods that leave for node labels, without a predicted node.

    Those due by ``due_at``, the earliest first. Queries once, by index.
    """
    rows = sql.fetch(
        "SELECT t.pod_id, p.namespace, p.name FROM eviction_timer t JOIN pod p ON p.id = t.pod_id"
        f" WHERE t.cause = '{DURING_EXECUTION}' AND t.due_at <= %s::timestamptz"
        " AND t.landing IS NULL AND p.deletion_at IS NULL"
        " ORDER BY t.due_at, t.pod_id LIMIT %s::bigint",
        (due_at, limit),
    )
    return [(id_, namespace, name) for id_, namespace, name in rows]


LATENESS_BOUNDS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0)

FIGURES: Final = "eviction-figures"


class Figures(msgspec.Struct, kw_only=True):
    """Evictions so far: how many were later than each of ``LATENESS_BOUNDS``; the first is 0."""

    evicted: int = 0
    seconds: float = 0.0
    later_than: list[int] = msgspec.field(default_factory=lambda: [0] * (len(LATENESS_BOUNDS) + 1))

    def add(self, lateness: Sequence[float]) -> None:
        """Count evictions by the seconds from their due time to when they were durable."""
        self.evicted += len(lateness)
        for seconds in lateness:
            self.seconds += max(0.0, seconds)
            self.later_than[bisect_left(LATENESS_BOUNDS, seconds)] += 1


class TimerTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How many timers wait by cause, how long the first is overdue (0: none), and what was done."""

    waiting: dict[str, int]
    overdue_seconds: float
    figures: Figures


def timer_totals(now: datetime) -> TimerTotals:
    """Return the totals of all timers. Queries three times."""
    rows = sql.fetch("SELECT cause, count(*) FROM eviction_timer GROUP BY cause")
    due = next_due()
    overdue = 0.0 if due is None else max(0.0, (now - due).total_seconds())
    return TimerTotals(
        waiting={TAINT: 0, DURING_EXECUTION: 0} | {cause: number for cause, number in rows},  # noqa: C416
        overdue_seconds=overdue,
        figures=msgspec.convert(stored_state(FIGURES), Figures),
    )
