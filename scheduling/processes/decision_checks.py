"""Repeats recorded decisions from rows alone, to verify them, while the machine is idle.

The scheduler decides from its memory. If that ever differed from the database, its decisions would
be wrong without an error. So an advisor takes a sample of the live decisions (setting
CHECKED_DECISIONS), rebuilds the past cluster from rows (``answers.replay``) and decides again. A
decision that comes out differently shows in ``/readyz``, in the metric ``stowage_decision_checks``,
in the status of the configuration and in the console.
"""

import os
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog
from django.conf import settings

from clusterstate.actions.scheduler import decision_checks as actions
from clusterstate.health import heartbeats
from clusterstate.objects.values.errors import Expired
from clusterstate.processes import priority, steady_clock
from clusterstate.queries.pods.queue import oldest_untried
from clusterstate.queries.scheduler import decision_checks, decisions
from clusterstate.queries.scheduler.decision_checks import Result
from clusterstate.queries.scheduler.decisions import Record
from scheduling.answers import replay

logger = structlog.get_logger(__name__)

NAME: Final = "decision-checks"
"""The loop's name in heartbeats."""
_PAUSE_SECONDS: Final = 15.0
_REST: Final = 50.0
"""The pause after a check, as a multiple of its duration: two percent of a core."""
_CHECK_SECONDS: Final = 600.0
_IDLE_LOAD: Final = 0.5
"""A machine with a lower load average per processor is idle."""


def run(*, stopping: Callable[[], bool], pause: Callable[[float], None]) -> None:
    """Check one decision after the other until ``stopping`` returns True.

    Decisions from before the start of this process are left out: another version may have made
    them.

    Raises:
        django.db.Error: the database failed.
    """
    priority.give_way()
    since = steady_clock.now()
    while not stopping():
        took = 0.0
        if settings.CHECKED_DECISIONS and is_idle():
            heartbeats.beat(NAME, _CHECK_SECONDS)
            began = time.monotonic()
            check_next(now=steady_clock.now(), since=since)
            took = time.monotonic() - began
        rest = max(_PAUSE_SECONDS, _REST * took)
        heartbeats.beat(NAME, rest + _CHECK_SECONDS)
        pause(rest)


def is_idle() -> bool:
    """Return whether the machine's load is low and no pod waits to be tried. Queries twice."""
    return os.getloadavg()[0] <= _IDLE_LOAD * (os.cpu_count() or 1) and not pods_wait()


def pods_wait() -> bool:
    """Return whether a pod of an existing profile waits for its first attempt. Queries twice."""
    return oldest_untried(sorted(decisions.admission_rules().profiles)) is not None


def check_next(*, now: datetime, since: datetime) -> Result | None:
    """Check the latest decision of the sample; return the result, ``None`` if all are checked.

    Queries some twenty times, and writes one row.
    """
    record = decision_checks.next_one(settings.CHECKED_DECISIONS, now=now, since=since)
    if record is None:
        return None
    result, details = check(record)
    actions.note(record, result, details, now=now)
    if result == "differs":
        logger.error(
            "decision_differs",
            decision=record.id,
            namespace=record.namespace,
            pod=record.name,
            differences=details,
        )
    return result


def check(record: Record) -> tuple[Result, list[str]]:
    """Repeat a decision; return the result, and its differences or why it is impossible.

    A profile with extenders is not repeated: the extenders would take the calls for live ones.
    """
    if replay.refused_later(record):
        return "impossible", ["a plugin refused the pod after its node was chosen"]
    try:
        if replay.framework_of(record).extenders:
            return "impossible", ["the profile has extenders, which are not asked again"]
        repeated = replay.make_again(record)
    except Expired as error:
        return "impossible", [str(error)]
    return ("differs", list(repeated.differences)) if repeated.differences else ("same", [])
