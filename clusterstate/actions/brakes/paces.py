"""The rate of evictions in each zone, whatever their cause: a token bucket, stored as a time.

The capacity of a bucket is max(1, rate). Its row holds the time at which the bucket was empty, if
it has been filling at the rate since then; a zone without a row has a full bucket. The empty name
means nodes without a zone.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction

from clusterstate.database import locks, sql

_SKEW: Final = timedelta(seconds=5)
"""Maximum tolerated clock skew."""


def tokens(zones: Sequence[str], *, now: datetime) -> dict[str, int]:
    """Return how many pods of each zone may leave now, by the rate. Queries once."""
    rate = settings.ZONE_EVICTION_RATE
    most = max(1.0, rate)
    empty: dict[str, datetime] = dict(
        sql.fetch("SELECT zone, empty_at FROM zone_pace WHERE zone = ANY(%s)", (sql.Texts(zones),))
    )
    found = {}
    for zone in zones:
        since = (now - empty[zone]).total_seconds() if zone in empty else math.inf
        found[zone] = max(0, int(min(most, since * rate) + 1e-6))
    return found


def spend(requested: Mapping[str, int], *, now: datetime, waits: bool = True) -> dict[str, int]:
    """Take up to ``requested`` evictions by zone from the zones' token buckets; return those taken.

    An eviction request waits for concurrent ones (`locks.BRAKES`), before it locks any row. The
    timers' loop, which may hold rows, does not wait: it then gets nothing and tries again later.
    """
    if not requested:
        return {}
    rate = settings.ZONE_EVICTION_RATE
    zones = sorted(requested)
    full_since = now - timedelta(seconds=max(1.0, rate) / rate)
    with transaction.atomic():
        if waits:
            sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.BRAKES,))
        elif sql.fetch_one("SELECT pg_try_advisory_xact_lock(%s::bigint)", (locks.BRAKES,)) != (
            True,
        ):
            return dict.fromkeys(zones, 0)
        there = tokens(zones, now=now)
        granted = {zone: min(requested[zone], there[zone]) for zone in zones}
        sql.run(
            "INSERT INTO zone_pace AS z (zone, empty_at)"
            " SELECT zone, %s::timestamptz + taken * %s::float8 * interval '1 second'"
            " FROM unnest(%s, %s) k(zone, taken) WHERE taken > 0"
            " ON CONFLICT (zone) DO UPDATE SET empty_at = greatest(z.empty_at, %s::timestamptz)"
            " + (excluded.empty_at - %s::timestamptz)",
            (
                full_since,
                1 / rate,
                sql.Texts(zones),
                sql.Int8s([granted[zone] for zone in zones]),
                full_since,
                full_since,
            ),
        )
    return granted


def give_back(unspent: Mapping[str, int]) -> None:
    """Return evictions to the buckets that were taken and not made. One statement at most."""
    back = {zone: count for zone, count in unspent.items() if count > 0}
    if back:
        sql.run(
            "UPDATE zone_pace z SET empty_at = z.empty_at - k.back * %s::float8"
            " * interval '1 second' FROM unnest(%s, %s) k(zone, back) WHERE z.zone = k.zone",
            (1 / settings.ZONE_EVICTION_RATE, sql.Texts([*back]), sql.Int8s([*back.values()])),
        )


def forget(*, now: datetime) -> None:
    """Drop the buckets that are full again, and those from before the clock was set back.

    One statement. A bucket with a time in the future would block evictions until the clock reaches
    it.
    """
    rate = settings.ZONE_EVICTION_RATE
    full = timedelta(seconds=max(1.0, rate) / rate + 60) if rate else timedelta(0)
    sql.run(
        "DELETE FROM zone_pace WHERE empty_at < %s::timestamptz OR empty_at > %s::timestamptz",
        (now - full, now + _SKEW),
    )
