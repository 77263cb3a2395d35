"""Reads which objects followers of the change log set aside, and how far followers lag.

For ``/readyz`` and ``/metrics``; ``actions.loops.aside`` writes these rows.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from django.conf import settings

from clusterstate.change_log import changes
from clusterstate.database import sql

FOLLOWERS: Final = (
    "cluster-roles", "evictions", "disruption", "endpoints", "garbage", "namespace-defaults",
    "runtime-classes",
    "workloads",
)  # fmt: skip
"""Followers with a cursor in a row of ``controller_cursor``."""
LAG_SECONDS: Final = 30.0
"""A follower lags if the first change that it has not processed is older."""


class FollowersState(msgspec.Struct, frozen=True):
    """How far behind the followers are, and how many objects each has set aside.

    ``set_aside`` counts objects by follower. ``lag_seconds`` is the age of the first change that a
    follower has not processed, 0 if there is none; followers that never ran are left out.
    """

    set_aside: dict[str, int]
    lag_seconds: dict[str, float]


_COUNTS = "SELECT follower, count(*) FROM set_aside GROUP BY follower ORDER BY follower"
# The first change after the cursor is found by the primary key, however long the log is.
_LAG = f"""
SELECT c.name, (SELECT min(x.at) FROM (
    SELECT h.at FROM change h WHERE h.revision > c.revision AND h.revision <= m.mark
    ORDER BY h.revision LIMIT 1) x)
FROM controller_cursor c CROSS JOIN ({changes.WATERMARK}) m
WHERE c.name = ANY(%s)
"""


def standing(now: datetime, *, patience: float = 5.0) -> FollowersState:
    """Return the state of the followers. Queries once; waits ``patience`` seconds at most."""
    at_work = set(settings.CONTROLLERS)
    idle = {"workloads"} if not at_work else set()
    idle |= {"endpoints"} if at_work.isdisjoint(("endpoint", "endpointslice")) else set()
    names = [name for name in FOLLOWERS if name not in idle]
    with sql.patience(patience):
        counts, cursors = sql.fetch_together((_COUNTS, ()), (_LAG, (sql.Texts(names),)))
    return FollowersState(
        set_aside={row[0]: row[1] for row in counts},
        lag_seconds={
            name: 0.0 if at is None else max(0.0, (now - at).total_seconds())
            for name, at in cursors
        },
    )


def objects(follower: str) -> Mapping[tuple[str, int], int]:
    """Return the revisions at which a follower set objects aside, by kind and id. Queries once."""
    rows = sql.fetch(
        "SELECT kind, object_id, revision FROM set_aside WHERE follower = %s", (follower,)
    )
    return {(kind, object_id): revision for kind, object_id, revision in rows}
