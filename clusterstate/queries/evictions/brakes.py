"""Brakes: how many pods of each zone, namespace or owner are about to leave, and what is held back.

An *owner* is the controller in a pod's ``ownerReferences``, such as its ReplicaSet. In the name of
a brake it is ``NAMESPACE.KIND.NAME``.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from django.conf import settings

from clusterstate.database import sql

ZONE, NAMESPACE, OWNER = "zone", "namespace", "owner"
HELD, APPROVED = "Held", "Approved"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
COUNTED_FOR: Final = timedelta(seconds=60)
"""Timers due within this time count as leaving; an eviction is counted for this time after it."""
_OFF: Final = 100.0


def limits() -> dict[str, float]:
    """Return the scopes with a limit, with the percentage of pods that may leave."""
    found = {
        ZONE: settings.BRAKE_ZONE_PERCENT,
        NAMESPACE: settings.BRAKE_NAMESPACE_PERCENT,
        OWNER: settings.BRAKE_OWNER_PERCENT,
    }
    return {scope: limit for scope, limit in found.items() if limit < _OFF}


class Share(msgspec.Struct, frozen=True):
    """How many of the pods of a zone, a namespace or an owner leave, or are about to."""

    scope: str
    name: str
    leaving: int
    total: int

    @property
    def key(self) -> str:
        """The name of the brake of this share."""
        return f"{self.scope}.{self.name}"

    def exceeds(self, limit: float) -> bool:
        """Return whether more than ``limit`` percent leave, and at least ``BRAKE_LEAST`` pods."""
        return self.leaving >= settings.BRAKE_LEAST and 100 * self.leaving > limit * self.total


class Brake(msgspec.Struct, frozen=True):
    """A zone, namespace or owner that loses more pods than its limit allows.

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
    approval: int | None
    """The number of the row that keeps the approval (`objects.values.causes`)."""

    @property
    def key(self) -> str:
        """The name by which the brake is approved."""
        return f"{self.scope}.{self.name}"


class HeldBack(msgspec.Struct, frozen=True):
    """The zones, namespaces and owners whose pods are not evicted now.

    ``paced``: zones without an eviction left in the rate limit; the empty name means nodes without
    a zone.
    """

    zones: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    paced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.zones or self.namespaces or self.owners or self.paced)


NOTHING: Final = HeldBack()

# An owner's members are sorted in a document, and quotes inside a text are escaped, so only the
# controller among the references matches this.
_OWNED: Final = '"ownerReferences":['
_CONTROLLER: Final = '"controller":true,"kind":"([^".]+)","name":"([^"]+)"'


def owner_of(pod: str, document: str) -> str:
    """Return an SQL expression for a pod's owner, ``NAMESPACE.KIND.NAME``; NULL without one."""
    listed = f"left(split_part({document}.text, '{_OWNED}', 2), 4096)"
    return (
        f"{pod}.namespace || '.' || array_to_string(regexp_match({listed}, '{_CONTROLLER}'), '.')"
    )


_PODS: Final = f"""
WITH soon AS MATERIALIZED (
    SELECT DISTINCT pod_id FROM eviction_timer WHERE due_at <= %s::timestamptz),
asked AS MATERIALIZED (
    SELECT * FROM asked_eviction WHERE at > %s::timestamptz AND {{asked}}),
pods AS (
    SELECT coalesce(p.namespace, a.namespace) AS namespace, p.document_id,
           coalesce(p.zone, nullif(a.zone, '')) AS zone, nullif(a.owner, '') AS owner,
           p.uid IS NULL OR a.pod_uid IS NOT NULL OR p.goes AS goes, a.pod_uid IS NOT NULL AS asked
    FROM (SELECT p.uid, p.namespace, p.document_id, n.labels ->> '{ZONE_LABEL}' AS zone,
                 p.eviction IS NOT NULL OR s.pod_id IS NOT NULL AS goes
          FROM pod p LEFT JOIN node n ON n.name = p.node_name LEFT JOIN soon s ON s.pod_id = p.id
          WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed') AND {{pods}}) p
    FULL JOIN asked a ON a.pod_uid = p.uid)
"""
_SHARES: Final = f"""
{_PODS.format(asked="true", pods="true")}
SELECT v.scope, v.name, count(*) FILTER (WHERE x.goes), count(*)
FROM pods x
CROSS JOIN LATERAL (VALUES ('{ZONE}', x.zone), ('{NAMESPACE}', x.namespace)) v(scope, name)
WHERE v.name IS NOT NULL
GROUP BY v.scope, v.name HAVING count(*) FILTER (WHERE x.goes) >= %s::bigint
ORDER BY 1, 2
"""
_OWNERS: Final = f"""
{_PODS.format(asked="namespace = ANY(%s)", pods="p.namespace = ANY(%s)")}
SELECT '{OWNER}', y.owner, count(*) FILTER (WHERE y.goes), count(*)
FROM (SELECT x.goes, coalesce({owner_of("x", "d")}, x.owner) AS owner
      FROM pods x LEFT JOIN document d ON d.id = x.document_id) y
WHERE y.owner IS NOT NULL
GROUP BY y.owner HAVING count(*) FILTER (WHERE y.goes) >= %s::bigint
ORDER BY 2
"""


def shares(now: datetime, *, least: int) -> list[Share]:
    """Return the zones, namespaces and owners that lose ``least`` pods or more.

    A pod counts if it is being evicted, if its timer is due within ``COUNTED_FOR``, or if its
    eviction was requested within that time before ``now``. Owners only if they have a limit.
    Queries once or twice; reads all pods.
    """
    window = (now + COUNTED_FOR, now - COUNTED_FOR)
    found = [Share(*row) for row in sql.fetch(_SHARES, (*window, least))]
    if OWNER in limits():
        names = sql.Texts([one.name for one in found if one.scope == NAMESPACE])
        if names.values:
            rows = sql.fetch(_OWNERS, (*window, names, names, least))
            found += [Share(*row) for row in rows]
    return found


_OF_ZONE = f"p.node_name IN (SELECT name FROM node WHERE labels ->> '{ZONE_LABEL}' = %s)"
_ONE: Final = {
    ZONE: f"""
    {_PODS.format(asked="zone = %s", pods=_OF_ZONE)}
    SELECT count(*) FILTER (WHERE goes AND NOT asked), count(*) FROM pods""",
    NAMESPACE: f"""
    {_PODS.format(asked="namespace = %s", pods="p.namespace = %s")}
    SELECT count(*) FILTER (WHERE goes AND NOT asked), count(*) FROM pods""",
    OWNER: f"""
    {_PODS.format(asked="owner = %s", pods="p.namespace = split_part(%s, '.', 1)")}
    SELECT count(*) FILTER (WHERE x.goes AND NOT x.asked), count(*)
    FROM pods x LEFT JOIN document d ON d.id = x.document_id
    WHERE coalesce({owner_of("x", "d")}, x.owner) = %s""",
}


def others_leaving(scope: str, name: str, now: datetime) -> tuple[int, int]:
    """Return how many pods of a scope leave without a request, and how many it has.

    Queries once; reads the pods of the scope.
    """
    names = (name,) * (3 if scope == OWNER else 2)
    row = sql.fetch_one(_ONE[scope], (now + COUNTED_FOR, now - COUNTED_FOR, *names))
    assert row is not None
    return row[0], row[1]


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


def count_asked(after: datetime) -> int:
    """Return how many evictions were requested since then. Queries once, by index."""
    row = sql.fetch_one("SELECT count(*) FROM asked_eviction WHERE at > %s::timestamptz", (after,))
    assert row is not None
    found: int = row[0]
    return found


_COLUMNS = (
    "id, scope, name, state, leaving, total, limit_percent, created_at, approved_by, approved_at,"
    " until, (SELECT max(a.id) FROM brake_approval a WHERE (a.scope, a.name, a.approved_at)"
    " = (brake.scope, brake.name, brake.approved_at))"
)


def brakes() -> list[Brake]:
    """Return all brakes. Queries once."""
    return [Brake(*row) for row in sql.fetch(f"SELECT {_COLUMNS} FROM brake ORDER BY scope, name")]


def held_back(now: datetime) -> HeldBack:
    """Return what is held back now. Queries once; not at all without limits."""
    rate = settings.ZONE_EVICTION_RATE
    if not limits() and not rate:
        return NOTHING
    rows = sql.fetch(
        f"SELECT scope, name FROM brake WHERE state = '{HELD}' UNION ALL"
        " SELECT 'paced', zone FROM zone_pace WHERE empty_at > %s::timestamptz",
        (now - timedelta(seconds=1 / rate) if rate else datetime.max.replace(tzinfo=now.tzinfo),),
    )
    if not rows:
        return NOTHING
    return HeldBack(*(_named(rows, one) for one in (ZONE, NAMESPACE, OWNER, "paced")))


def _named(rows: Sequence[sql.Row], scope: str) -> tuple[str, ...]:
    return tuple(sorted(row[1] for row in rows if row[0] == scope))


def zones_by_pod(pod_ids: Sequence[int]) -> dict[int, str]:
    """Return the zones of pods by id, empty for nodes without one. Queries once."""
    rows = sql.fetch(
        f"SELECT p.id, coalesce(n.labels ->> '{ZONE_LABEL}', '') FROM pod p"
        " LEFT JOIN node n ON n.name = p.node_name WHERE p.id = ANY(%s)",
        (sql.Int8s(pod_ids),),
    )
    return {pod_id: zone for pod_id, zone in rows}  # noqa: C416


_ZONE_OF_NODE = f"coalesce(n.labels ->> '{ZONE_LABEL}', '')"


def unless_held(held: HeldBack) -> tuple[str, tuple[Any, ...]]:
    """Return a condition on timers ``t``, and its parameters, that excludes held-back ones."""
    if not held:
        return "true", ()
    conditions = [f"p.namespace = ANY(%s) OR {_ZONE_OF_NODE} = ANY(%s)"]
    parameters = [sql.Texts(held.namespaces), sql.Texts([*held.zones, *held.paced])]
    document = ""
    if held.owners:
        document = "LEFT JOIN document d ON d.id = p.document_id"
        conditions.append(f"{owner_of('p', 'd')} = ANY(%s)")
        parameters.append(sql.Texts(held.owners))
    pods = f"pod p LEFT JOIN node n ON n.name = p.node_name {document}"
    any_of = " OR ".join(conditions)
    found = f"NOT EXISTS (SELECT 1 FROM {pods} WHERE p.id = t.pod_id AND ({any_of}))"
    return found, tuple(parameters)


def why_held(held: HeldBack) -> tuple[str, tuple[Any, ...]]:
    """Return an SQL expression for what holds back pod ``p`` on node ``t.node_name``, or ''."""
    if not held:
        return "''", ()
    listed = [
        *((f"brake {ZONE}.{name}", name, "", "") for name in held.zones),
        *((f"brake {NAMESPACE}.{name}", None, name, "") for name in held.namespaces),
        *((f"brake {OWNER}.{name}", None, "", name) for name in held.owners),
        *(("the eviction rate of its zone", name, "", "") for name in held.paced),
    ]
    whys, zones, namespaces, owners = zip(*listed, strict=True)
    found = (
        "coalesce((SELECT h.why FROM unnest(%s, %s, %s, %s) h(why, zone, namespace, owner)"
        " LEFT JOIN document d ON h.owner <> '' AND d.id = p.document_id"
        " LEFT JOIN node n ON h.zone IS NOT NULL AND n.name = t.node_name"
        f" WHERE h.zone = {_ZONE_OF_NODE} OR h.namespace = p.namespace"
        f" OR h.owner = {owner_of('p', 'd')} LIMIT 1), '')"
    )
    return found, (sql.Texts(whys), sql.Texts(zones), sql.Texts(namespaces), sql.Texts(owners))
