"""The rate of evictions in each zone, whatever their cause: a bucket of tokens, kept as a moment.

A bucket holds what a second brings, one eviction at least. Its row says when it was empty, as if it
had been filled at the rate since; a zone without a row has a full one. The empty name stands for
the nodes without a zone.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings

from clusterstate import sql


def tokens(zones: Sequence[str], *, now: datetime) -> dict[str, int]:
    """Return how many pods of each zone may go now, by the rate. Queries once.

    A bucket for each zone, which holds what a second brings, one at least.
    """
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


def spend(wanted: Mapping[str, int], *, now: datetime) -> dict[str, int]:
    """Take so many evictions out of the zones' buckets, or what is in them; return how many.

    The rows of the zones stay locked until the transaction ends.
    """
    rate = settings.ZONE_EVICTION_RATE
    zones = sorted(wanted)
    if not zones:
        return {}
    full_since = now - timedelta(seconds=max(1.0, rate) / rate)
    sql.run(
        "INSERT INTO zone_pace (zone, empty_at)"
        " SELECT zone, %s::timestamptz FROM unnest(%s) k(zone) ON CONFLICT DO NOTHING",
        (full_since, sql.Texts(zones)),
    )
    sql.fetch(
        "SELECT 1 FROM zone_pace WHERE zone = ANY(%s) ORDER BY zone FOR UPDATE", (sql.Texts(zones),)
    )
    there = tokens(zones, now=now)
    taken = {zone: min(wanted[zone], there[zone]) for zone in zones}
    sql.run(
        "UPDATE zone_pace z SET empty_at = greatest(z.empty_at, %s::timestamptz)"
        " + k.taken * %s::float8 * interval '1 second'"
        " FROM unnest(%s, %s) k(zone, taken) WHERE z.zone = k.zone AND k.taken > 0",
        (full_since, 1 / rate, sql.Texts(zones), sql.Int8s([taken[zone] for zone in zones])),
    )
    return taken


def give_back(unspent: Mapping[str, int]) -> None:
    """Put evictions back that were taken and not made. One statement, none if there are none."""
    back = {zone: count for zone, count in unspent.items() if count > 0}
    if back:
        sql.run(
            "UPDATE zone_pace z SET empty_at = z.empty_at - k.back * %s::float8"
            " * interval '1 second' FROM unnest(%s, %s) k(zone, back) WHERE z.zone = k.zone",
            (1 / settings.ZONE_EVICTION_RATE, sql.Texts([*back]), sql.Int8s([*back.values()])),
        )


def forget(*, now: datetime) -> None:
    """Drop the buckets that are full again. One statement."""
    rate = settings.ZONE_EVICTION_RATE
    full = timedelta(seconds=max(1.0, rate) / rate + 60) if rate else timedelta(0)
    sql.run("DELETE FROM zone_pace WHERE empty_at < %s::timestamptz", (now - full,))
