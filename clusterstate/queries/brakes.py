"""Brakes: which part of a zone or a namespace is about to be evicted, and what is held back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate import sql

ZONE, NAMESPACE = "zone", "namespace"
HELD, APPROVED = "Held", "Approved"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"


class Share(msgspec.Struct, frozen=True):
    """How many of the pods of a zone or a namespace leave, or are about to."""

    scope: str
    name: str
    leaving: int
    total: int


class Brake(msgspec.Struct, frozen=True):
    """A zone or a namespace that loses more pods than anybody agreed to.

    ``state``: Held, or Approved ``until`` a moment by ``approved_by``.
    """

    id: int
    scope: str
    name: str
    state: str
    leaving: int
    total: int
    limit_percent: float
    created_at: datetime
    approved_by: str
    approved_at: datetime | None
    until: datetime | None

    @property
    def key(self) -> str:
        """The name by which the brake is approved."""
        return f"{self.scope}.{self.name}"


class HeldBack(msgspec.Struct, frozen=True):
    """The zones and namespaces whose pods are not evicted now."""

    zones: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.zones or self.namespaces)


NOTHING: Final = HeldBack()

_SHARES = f"""
WITH soon AS MATERIALIZED (
    SELECT DISTINCT pod_id FROM eviction_timer WHERE due_at <= %s::timestamptz)
SELECT v.scope, v.name, count(*) FILTER (WHERE x.goes), count(*)
FROM (SELECT p.namespace, n.labels ->> '{ZONE_LABEL}' AS zone,
             p.eviction IS NOT NULL OR s.pod_id IS NOT NULL AS goes
      FROM pod p LEFT JOIN node n ON n.name = p.node_name LEFT JOIN soon s ON s.pod_id = p.id
      WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')) x
CROSS JOIN LATERAL (VALUES ('{ZONE}', x.zone), ('{NAMESPACE}', x.namespace)) v(scope, name)
WHERE v.name IS NOT NULL
GROUP BY v.scope, v.name HAVING count(*) FILTER (WHERE x.goes) >= %s::bigint
ORDER BY 1, 2
"""


def shares(until: datetime, *, least: int) -> list[Share]:
    """Return the zones and namespaces that lose so many pods by then. Queries once, all pods."""
    return [Share(*row) for row in sql.fetch(_SHARES, (until, least))]


def count_due(until: datetime, *, most: int) -> int:
    """Return how many timers are due by then, counting up to ``most``. Queries once, by index."""
    row = sql.fetch_one(
        "SELECT count(*) FROM (SELECT 1 FROM eviction_timer WHERE due_at <= %s::timestamptz"
        " LIMIT %s) t",
        (until, most),
    )
    assert row is not None
    found: int = row[0]
    return found


_COLUMNS = (
    "id, scope, name, state, leaving, total, limit_percent, created_at, approved_by, approved_at,"
    " until"
)


def brakes() -> list[Brake]:
    """Return all brakes. Queries once."""
    return [Brake(*row) for row in sql.fetch(f"SELECT {_COLUMNS} FROM brake ORDER BY scope, name")]


def held_back() -> HeldBack:
    """Return what is held back now. Queries once; mostly there is nothing."""
    rows = sql.fetch(f"SELECT scope, name FROM brake WHERE state = '{HELD}'")
    if not rows:
        return NOTHING
    return HeldBack(_named(rows, ZONE), _named(rows, NAMESPACE))


def _named(rows: Sequence[sql.Row], scope: str) -> tuple[str, ...]:
    return tuple(sorted(row[1] for row in rows if row[0] == scope))
