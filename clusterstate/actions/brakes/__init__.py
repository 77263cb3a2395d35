"""Brakes: set where too many pods would leave, released when not, approved by operators.

They are set at two places. The timers' loop counts all pods that are due (``settle``). An eviction
that a client or a plan requests is judged at once (``admit``), and refused as a disruption budget
refuses it, so that ``kubectl drain`` retries until an operator has approved. Such requests are kept
for a minute and count for the loop, so a brake stays while clients still request. Evictions by
timers are kept as long (``note_evicted``): otherwise pods that are gone at once would never count
together.

``paces`` limits the rate of evictions in each zone.
"""

import math
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from django.conf import settings

from clusterstate.actions.brakes import paces
from clusterstate.actions.kinds.events import Occurrence, about_own, record_many
from clusterstate.database import locks, sql
from clusterstate.objects.values import causes
from clusterstate.objects.values.errors import NotFound, TooManyRequests
from clusterstate.processes import memory
from clusterstate.queries.evictions.brakes import (
    APPROVED,
    COUNTED_FOR,
    HELD,
    NAMESPACE,
    OWNER,
    ZONE,
    ZONE_LABEL,
    Brake,
    Share,
    brakes,
    limits,
    others_leaving,
    owner_of,
)

APPROVED_FOR: Final = timedelta(hours=1)
KEPT: Final = timedelta(days=7)
"""How long an approval is known to those who ask why a pod left."""
_KNOWN_SECONDS: Final = 1.0
_COMPONENT: Final = "taint-eviction-controller"

_counted: dict[tuple[str, str], tuple[float, int, int]] = {}
"""When a scope was counted, in monotonic seconds, and its ``others_leaving``."""
memory.when_replaced(_counted.clear)


# What the loop sees --------------------------------------------------------------------------

_RELEASE: Final = f"""
    DELETE FROM brake b
    WHERE (b.state = '{HELD}' AND (b.scope || '.' || b.name) <> ALL(%s) AND NOT EXISTS (
               SELECT 1 FROM asked_eviction a JOIN pod p ON p.uid = a.pod_uid
               WHERE a.at > %s::timestamptz AND p.deletion_at IS NULL
                     AND b.name = CASE b.scope WHEN '{ZONE}' THEN a.zone
                                               WHEN '{NAMESPACE}' THEN a.namespace
                                               ELSE a.owner END))
          OR (b.state = '{APPROVED}' AND b.until <= %s::timestamptz)
    RETURNING b.scope, b.name, b.state
"""


def settle(found: Sequence[tuple[Share, float]], *, now: datetime) -> int:
    """Set brakes for these shares, each with the limit that it exceeds; return how many.

    Other brakes are released, but for those that refused a request within the last minute. An
    approval lasts an hour, even while few pods or none are due.
    """
    keys = sql.Texts([share.key for share, _ in found])
    gone = sql.fetch(_RELEASE, (keys, now - COUNTED_FOR, now))
    why = {HELD: "fewer pods than its limit would leave", APPROVED: "the hour of approval ended"}
    news = [_event(f"{row[0]}.{row[1]}", "EvictionsReleased", why[row[2]]) for row in gone]
    record_many(news, now=now)
    _set(found, now)
    return len(found)


def _set(found: Sequence[tuple[Share, float]], now: datetime) -> None:
    new: list[Occurrence] = []
    for share, limit in found:
        row = sql.fetch_one(
            "INSERT INTO brake AS b (scope, name, state, leaving, total, limit_percent, created_at,"
            f" approved_by) VALUES (%s, %s, '{HELD}', %s, %s, %s, %s::timestamptz, '')"
            " ON CONFLICT (scope, name) DO UPDATE SET leaving = excluded.leaving,"
            " total = excluded.total, limit_percent = excluded.limit_percent"
            " WHERE (b.leaving, b.total) IS DISTINCT FROM (excluded.leaving, excluded.total)"
            " RETURNING created_at = %s::timestamptz",
            (share.scope, share.name, share.leaving, share.total, limit, now, now),
        )
        if row is not None and row[0]:
            text = (
                f"{share.leaving} of {share.total} pods of {share.scope} {share.name} would leave,"
                f" more than {limit:g} %: none of them is evicted until this is approved"
            )
            new.append(_event(share.key, "EvictionsHeldBack", text, type_="Warning"))
    record_many(new, now=now)


def _event(key: str, reason: str, message: str, *, type_: str = "Normal") -> Occurrence:
    return about_own("Brake", key, reason, message, type_=type_, component=_COMPONENT)


def approve(key: str, *, by: str, now: datetime) -> Brake:
    """Let the pods of a held zone, namespace or owner (``zone.a``) leave, for an hour.

    Raises:
        NotFound: no brake has this name.
    """
    scope, _, name = key.partition(".")
    sql.run(
        "WITH approved AS ("
        f" UPDATE brake SET state = '{APPROVED}', approved_by = %s, approved_at = %s::timestamptz,"
        " until = %s::timestamptz WHERE scope = %s AND name = %s RETURNING *)"
        " INSERT INTO brake_approval (scope, name, leaving, total, limit_percent, approved_by,"
        " approved_at, until) SELECT scope, name, leaving, total, limit_percent, approved_by,"
        " approved_at, until FROM approved",
        (by, now, now + APPROVED_FOR, scope, name),
    )
    for found in brakes():
        if found.key == key:
            text = f"{by or 'somebody'} allowed the evictions in {scope} {name} for an hour"
            record_many([_event(key, "EvictionsApproved", text)], now=now)
            return found
    raise NotFound(
        f'brakes.stowage.dev "{key}" not found',
        {"name": key, "group": "stowage.dev", "kind": "brakes"},
    )


def forget_asked(*, now: datetime) -> None:
    """Drop requested evictions that are too old to count for a brake. One statement, by index.

    Drops those from the future as well, after a clock was set back: they would count until then.
    """
    sql.run(
        "DELETE FROM asked_eviction WHERE at <= %s::timestamptz OR at > %s::timestamptz",
        (now - COUNTED_FOR, now + COUNTED_FOR),
    )


def trim(*, now: datetime) -> int:
    """Drop approvals that ended a week ago; return how many."""
    return sql.run("DELETE FROM brake_approval WHERE until < %s::timestamptz", (now - KEPT,))


_APPROVED: Final = f"""
    SELECT DISTINCT ON (p.id) p.id, b.id FROM pod p
    LEFT JOIN node n ON n.name = p.node_name JOIN document d ON d.id = p.document_id
    JOIN brake_approval b ON b.id = ANY(%s)
      AND b.name = CASE b.scope WHEN '{ZONE}' THEN n.labels ->> '{ZONE_LABEL}'
                                WHEN '{NAMESPACE}' THEN p.namespace ELSE {owner_of("p", "d")} END
    WHERE p.id = ANY(%s) ORDER BY p.id, b.id DESC
"""


def approvals_of(pod_ids: Sequence[int], *, now: datetime) -> dict[int, uuid.UUID]:
    """Return for each pod that is evicted now the uid of the approval that allows it, if any.

    No query without limits, one query without approvals, else two.
    """
    if not limits():
        return {}
    held = sql.fetch(
        "SELECT id FROM brake_approval WHERE until > %s::timestamptz"
        " AND approved_at <= %s::timestamptz",
        (now, now),
    )
    if not held:
        return {}
    rows = sql.fetch(_APPROVED, (sql.Int8s([row[0] for row in held]), sql.Int8s(pod_ids)))
    return {pod_id: causes.uid_of(causes.APPROVAL, number) for pod_id, number in rows}


# What is asked for ---------------------------------------------------------------------------


class EvictionCandidate(msgspec.Struct, frozen=True):
    """A pod to be evicted, and its zone, namespace and owner by name; '' for none."""

    uid: uuid.UUID
    zone: str
    namespace: str
    owner: str

    def names(self) -> dict[str, str]:
        """Return the pod's zone, namespace and owner, by scope, for scopes with a limit."""
        found = {ZONE: self.zone, NAMESPACE: self.namespace, OWNER: self.owner}
        return {scope: found[scope] for scope in limits() if found[scope]}


class EvictionHeld(TooManyRequests):
    """A brake holds back the pod's eviction. ``share``: how many pods of its scope would leave."""

    def __init__(self, candidate: EvictionCandidate, share: Share, limit: float) -> None:
        self.candidate, self.share, self.limit = candidate, share, limit
        message = (
            f"Cannot evict pod: {share.leaving} of {share.total} pods of {share.scope}"
            f" {share.name} would leave within a minute, more than {limit:g} %."
        )
        cause = f"The brake {share.key} holds evictions back until it is approved."
        causes = [{"reason": "EvictionBrake", "message": cause}]
        super().__init__(message, {"causes": causes})


class EvictionPaced(TooManyRequests):
    """The rate of a zone allows no eviction now; nodes without a zone have the empty one."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        where = f"zone {zone}" if zone else "nodes without a zone"
        cause = f"The eviction rate of {where} is {settings.ZONE_EVICTION_RATE:g} a second."
        causes = [{"reason": "EvictionRate", "message": cause}]
        wait = math.ceil(1 / settings.ZONE_EVICTION_RATE)
        super().__init__("Cannot evict pod now.", {"causes": causes, "retryAfterSeconds": wait})


_WHO: Final = f"""
    SELECT p.uid, coalesce(n.labels ->> '{ZONE_LABEL}', ''), p.namespace,
           coalesce({owner_of("p", "d")}, '')
    FROM pod p JOIN document d ON d.id = p.document_id LEFT JOIN node n ON n.name = p.node_name
    WHERE p.namespace = %s AND p.name = %s AND p.node_name <> '' AND p.deletion_at IS NULL
      AND p.phase NOT IN ('Succeeded', 'Failed')
"""
_STATES: Final = """
    SELECT b.scope, b.name, b.state, b.leaving, b.total, b.limit_percent FROM brake b
    JOIN unnest(%s, %s) k(scope, name) ON (b.scope, b.name) = (k.scope, k.name)
    WHERE b.until IS NULL OR b.until > %s::timestamptz
    ORDER BY b.scope, b.name
"""
_ASKED: Final = """
    SELECT count(*) FILTER (WHERE zone = %s), count(*) FILTER (WHERE namespace = %s),
           count(*) FILTER (WHERE owner = %s)
    FROM asked_eviction WHERE at > %s::timestamptz AND pod_uid <> %s::uuid
"""
_ASK: Final = """
    INSERT INTO asked_eviction (pod_uid, at, zone, namespace, owner)
    VALUES (%s::uuid, %s::timestamptz, %s, %s, %s)
    ON CONFLICT (pod_uid) DO UPDATE SET at = excluded.at, zone = excluded.zone,
        owner = excluded.owner
"""


def admit(namespace: str, name: str, *, now: datetime) -> None:
    """Judge a requested eviction, in its transaction, before it locks anything.

    It counts for the next requests, which wait until this transaction ends. Pods that are on no
    node, finished, terminating or gone are not judged. No query without limits, else up to twelve.

    Raises:
        EvictionHeld: a brake holds the pod back, or would; call `hold` after the transaction.
        EvictionPaced: the rate of the pod's zone allows none now.
    """
    if not limits() and not settings.ZONE_EVICTION_RATE:
        return
    row = sql.fetch_one(_WHO, (namespace, name))
    if row is None:
        return
    pod = EvictionCandidate(*row)
    sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.BRAKES,))
    names = pod.names()
    if names:
        _judge(pod, names, now)
        _note(pod, now)
    if settings.ZONE_EVICTION_RATE and not paces.spend({pod.zone: 1}, now=now)[pod.zone]:
        raise EvictionPaced(pod.zone)


def _judge(pod: EvictionCandidate, names: Mapping[str, str], now: datetime) -> None:
    rows = sql.fetch(_STATES, (sql.Texts([*names]), sql.Texts([*names.values()]), now))
    states = {row[0]: row for row in rows}
    for scope, (_, name, state, leaving, total, limit) in states.items():
        if state == HELD:
            raise EvictionHeld(pod, Share(scope, name, leaving, total), limit)
    counted = sql.fetch_one(
        _ASKED,
        (pod.zone, pod.namespace, pod.owner, now - COUNTED_FOR, pod.uid),
    )
    assert counted is not None
    by_scope = dict(zip((ZONE, NAMESPACE, OWNER), counted, strict=True))
    for scope, limit in limits().items():
        if scope not in names or scope in states:
            continue
        name, mine = names[scope], by_scope[scope] + 1
        others, total = _others(scope, name, now, at_most=_KNOWN_SECONDS)
        share = Share(scope, name, others + mine, total)
        if share.exceeds(limit):
            # Timers' evictions since the others were counted are stored by now, and count there.
            others, total = _others(scope, name, now, at_most=0.0)
            share = Share(scope, name, others + mine, total)
        if share.exceeds(limit):
            raise EvictionHeld(pod, share, limit)


def _others(scope: str, name: str, now: datetime, *, at_most: float) -> tuple[int, int]:
    """Return ``others_leaving``, cached for ``at_most`` seconds."""
    moment = time.monotonic()
    cached = _counted.get((scope, name))
    if cached is not None and moment - cached[0] < at_most:
        return cached[1], cached[2]
    if len(_counted) > 1000:
        _counted.clear()
    others, total = others_leaving(scope, name, now)
    _counted[scope, name] = moment, others, total
    return others, total


def _note(pod: EvictionCandidate, now: datetime) -> None:
    sql.run(_ASK, (pod.uid, now, pod.zone, pod.namespace, pod.owner))


_WHOSE: Final = f"""
    SELECT p.uid, coalesce(n.labels ->> '{ZONE_LABEL}', ''), p.namespace, {{owner}}
    FROM pod p LEFT JOIN node n ON n.name = p.node_name {{document}}
    WHERE p.id = ANY(%s) ORDER BY p.id
"""
_OWNED: Final = {
    "owner": f"coalesce({owner_of('p', 'd')}, '')",
    "document": "JOIN document d ON d.id = p.document_id",
}
_NOTE: Final = """
    INSERT INTO asked_eviction (pod_uid, at, zone, namespace, owner)
    SELECT uid, %s::timestamptz, zone, namespace, owner
    FROM unnest(%s, %s, %s, %s) AS i(uid, zone, namespace, owner)
    ON CONFLICT (pod_uid) DO NOTHING
"""


def to_note(pod_ids: Sequence[int]) -> list[EvictionCandidate]:
    """Return the scopes of pods that timers evict now, for ``note_evicted``.

    Queries once; not at all without limits.
    """
    limited = limits()
    if not limited or not pod_ids:
        return []
    parts = _OWNED if OWNER in limited else {"owner": "''", "document": ""}
    return [
        EvictionCandidate(*row) for row in sql.fetch(_WHOSE.format(**parts), (sql.Int8s(pod_ids),))
    ]


def note_evicted(gone: Sequence[EvictionCandidate], *, now: datetime) -> None:
    """Record pods that timers evicted, so that brakes count them for a minute after they are gone.

    Must run outside of the transaction that evicted them: a client's request notes a pod before it
    locks the pod, so the two could deadlock. Earlier rows stay. One statement.
    """
    if gone:
        columns = zip(*((one.uid, one.zone, one.namespace, one.owner) for one in gone), strict=True)
        uids, *texts = columns
        sql.run(_NOTE, (now, sql.Uuids(list(uids)), *(sql.Texts(list(one)) for one in texts)))


def ask_on(pod_uids: Sequence[str], *, now: datetime) -> int:
    """Renew refused eviction requests, so that a brake counts them; return how many it counts.

    So a brake stays although no client repeats a request that it would refuse. Rows that no longer
    count are not touched: ``forget_asked`` deletes them, in another lock order. One statement.
    """
    return sql.run(
        "UPDATE asked_eviction SET at = %s::timestamptz"
        " WHERE pod_uid = ANY(%s) AND at > %s::timestamptz",
        (now, sql.Uuids([sql.as_uuid(uid) for uid in pod_uids]), now - COUNTED_FOR),
    )


def hold(refusal: EvictionHeld, *, now: datetime) -> None:
    """Set the brake that refused an eviction, outside the transaction that was rolled back.

    The request for the pod's eviction keeps the brake for another minute.
    """
    _note(refusal.candidate, now)
    if not any(one.key == refusal.share.key for one in brakes()):
        _set([(refusal.share, refusal.limit)], now)
