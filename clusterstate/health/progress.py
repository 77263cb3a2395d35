"""Progress of the loops on any host, and open transactions that delay the log.

For ``/readyz`` and ``/metrics``. Each loop writes its row of ``loop_progress`` after its work, by
the database's clock.
"""

from datetime import datetime
from typing import Final

import msgspec
from django.conf import settings

from clusterstate.change_log import changes
from clusterstate.database import locks, sql
from clusterstate.processes import shards

LOOPS: Final = (shards.loop(shards.FIRST), "timers", "controllers")
"""The names of the loops without which the service does not work. Schedulers with other numbers are
left out: when one ends, the others decide its pods."""
SILENT_SECONDS: Final = 5.0
"""A loop whose last report is older does not work now: it reports every second."""
_MOST_PATIENCE: Final = 6
"""The largest factor by which the time-out of a slow process is extended."""


class WorkState(msgspec.Struct, frozen=True):
    """Which loops report, and which are silent for too long.

    ``silent_seconds`` is the time since a loop's last report, by name; a loop that never reported
    is not in it. ``patience`` is how many seconds each may be silent: longer for slow processes
    (``slowness``). ``ended`` are the loops whose last report came over a database session that is
    gone: their process has ended, or lost its connection, and no other has taken over.
    ``scheduler_behind`` counts revisions that the scheduler has not read yet. ``log_held_seconds``
    is how long the oldest open transaction has delayed followers, 0 if none does. ``only_reads``:
    the database is read-only. ``at`` is the database's time of day, in seconds since the epoch.
    """

    silent_seconds: dict[str, float]
    patience: dict[str, float]
    ended: frozenset[str]
    scheduler_behind: int
    log_held_seconds: float
    only_reads: bool
    at: float


def schedulers() -> tuple[str, ...]:
    """Return the names under which the schedulers that work at a time report."""
    return tuple(shards.loop(number) for number in range(settings.ACTIVE_SCHEDULERS))


_HELD = f"""
    SELECT coalesce(extract(epoch FROM clock_timestamp() - min(a.xact_start)), 0)::float8
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND a.datname = current_database() AND l.pid <> pg_backend_pid()
      AND (l.classid::bigint >> 16) = {locks.REVISION_TAG}
"""
_LOOPS = f"""
    SELECT name, extract(epoch FROM clock_timestamp() - at)::float8, revision,
           backend_pid IS NOT NULL AND NOT EXISTS (
               SELECT FROM pg_stat_get_activity(p.backend_pid) a
               WHERE coalesce(a.backend_start = p.backend_start, true)),
           coalesce((SELECT max(substring(k.application_name FROM '[{sql.KEEPER}]([0-9]+)$')::int)
                    FROM pg_stat_get_activity(p.backend_pid) a, pg_stat_activity k
                    WHERE starts_with(k.application_name, a.application_name || '{sql.KEEPER}')), 1)
    FROM loop_progress p
"""


_LOG = f"""
    SELECT ({_HELD}), (SELECT mark FROM ({changes.WATERMARK}) m),
           current_setting('transaction_read_only')::bool,
           extract(epoch FROM clock_timestamp())::float8
"""


def standing(*, patience: float) -> WorkState:
    """Return the state of the loops, and how long the log is delayed. Queries once.

    Waits for the database's answer at most ``patience`` seconds.
    """
    sql.drop_dead_connection()
    with sql.patience(patience):
        rows, ((held, mark, only_reads, at),) = sql.fetch_together((_LOOPS, ()), (_LOG, ()))
    followed = next((row[2] for row in rows if row[0] == LOOPS[0]), 0)
    return WorkState(
        silent_seconds={row[0]: max(0.0, row[1]) for row in rows},
        patience={row[0]: SILENT_SECONDS * min(row[4], _MOST_PATIENCE) for row in rows},
        ended=frozenset(row[0] for row in rows if row[3]),
        scheduler_behind=max(0, (mark or 0) - followed),
        log_held_seconds=max(0.0, held),
        only_reads=only_reads,
        at=at,
    )


class ConfigurationUse(msgspec.Struct, frozen=True):
    """The revision of the configuration that the scheduler reports to use, since ``at``.

    ``stored`` is the newest revision. ``problems`` has the reason why pods of a profile wait, by
    profile, and under an empty name why ``stored`` is not used. ``is_usable``: pods of some profile
    can be placed.
    """

    revision: int
    stored: int
    problems: dict[str, str]
    is_usable: bool
    at: datetime

    @property
    def in_words(self) -> str:
        """The problem as a sentence; empty if there is none."""
        why = "; ".join(self.problems.values())
        if self.stored != self.revision:
            return f"revision {self.revision} stays in force; {self.stored} is unusable: {why}"
        return why


def configuration_use(
    *, patience: float = settings.DATABASE_ANSWER_SECONDS
) -> ConfigurationUse | None:
    """Return the scheduler's report on its configuration, ``None`` before the first. Queries once.

    Waits for the database's answer at most ``patience`` seconds.
    """
    with sql.patience(patience):
        row = sql.fetch_one(
            "SELECT revision, wanted, problems::text, is_usable, at FROM configuration_use"
        )
    if row is None:
        return None
    revision, stored, problems, is_usable, at = row
    return ConfigurationUse(revision, stored, msgspec.json.decode(problems), is_usable, at)
