"""The time by which the service acts on due rows; setting a clock cannot hurry it.

Rows state in the time of day when something is due (an eviction, the end of a deletion, the
trimming of a log), and an action too early cannot be undone. Clocks are set, though: by an
administrator's slip, by a time server, when a machine is resumed. So ``now`` combines two clocks:

* *The database's clock*, which all hosts share. A host whose own clock is wrong evicts no pod.
* *The time since this machine was started*, which cannot be set. It measures the time between two
  reads of the database's clock, so it shows when that clock was set.

If the clock was set back, ``now`` follows at once: due times move later. If it was set ahead,
``now`` follows after ``PROBATION_SECONDS``; until then it advances as measured. A clock that is
corrected before then has changed nothing. The price: after a clock was rightly set ahead, actions
come up to ``PROBATION_SECONDS`` late, once.

The accepted offset is stored in a file, ``clock`` in the state directory, so that a process that
starts while the clock is wrong does not accept it. A machine that starts accepts the clock it has.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import structlog
from django.conf import settings

from clusterstate.database import sql
from clusterstate.processes import private_files

logger = structlog.get_logger(__name__)

PROBATION_SECONDS: Final = 60.0
"""How long a clock that was set ahead must stay there before it is accepted."""
STEP_SECONDS: Final = 1.0
"""Smaller differences are ignored: a pause of a process, a clock that runs a little fast."""
LOOK_SECONDS: Final = 0.2
"""The shortest time between two reads of the database's clock."""
_FILE: Final = "clock"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class SteadyClock:
    """Checks the time of day, which may be set, against a monotonic clock. Safe for threads.

    ``time_of_day`` returns the time of day in seconds, ``passed`` seconds since a fixed moment.
    ``proven`` is the offset between them that an earlier process accepted, None: accept the first
    one seen. ``on_proven`` is called with each newly accepted offset.
    """

    def __init__(
        self,
        time_of_day: Callable[[], float],
        passed: Callable[[], float],
        *,
        proven: float | None = None,
        on_proven: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._time_of_day = time_of_day
        self._passed = passed
        self._on_proven = on_proven
        self._lock = threading.Lock()
        self._proven = proven
        self._offset: float | None = None  # as last seen; the other clock plus this is the time
        self._stands_at = 0.0
        self._stands_since = 0.0
        self._looked_at = 0.0

    def now(self) -> float:
        """Return the time in seconds since the epoch. Reads the clock if the last read is old."""
        with self._lock:
            passed = self._passed()
            if self._offset is None or passed - self._looked_at >= LOOK_SECONDS:
                # A pause after this look counts as a step back, for no longer than the next look.
                shown = self._time_of_day()
                passed = self._passed()
                self._looked_at = passed
                self._judge(shown - passed, passed)
            return passed + self._believed()

    def _believed(self) -> float:
        assert self._offset is not None
        assert self._proven is not None
        if self._offset - self._proven < STEP_SECONDS:
            return self._offset
        return self._proven

    def _judge(self, offset: float, passed: float) -> None:
        before, self._offset = self._offset, offset
        if self._proven is None:
            self._prove(offset, passed)
        elif before is None or abs(offset - self._stands_at) >= STEP_SECONDS / 2:
            self._stands_at, self._stands_since = offset, passed
            if offset - self._proven >= STEP_SECONDS:
                ahead = round(offset - self._proven, 1)
                logger.warning("clock_was_set_ahead", seconds=ahead, believed_in=PROBATION_SECONDS)
        elif passed - self._stands_since >= PROBATION_SECONDS:
            self._prove(offset, passed)

    def _prove(self, offset: float, passed: float) -> None:
        moved = self._proven is None or abs(offset - self._proven) >= STEP_SECONDS / 2
        self._proven = self._stands_at = offset
        self._stands_since = passed
        if moved:
            self._on_proven(offset)


# --- the clock of this process -------------------------------------------------------------------


def _database_time() -> float:
    row = sql.fetch_one("SELECT extract(epoch FROM clock_timestamp())::float8")
    assert row is not None
    seconds: float = row[0]
    return seconds


def _passed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # also while the machine sleeps


def _remembered() -> float | None:
    """Return the offset that a process stored since this machine booted, ``None`` if none has."""
    try:
        stored = json.loads(private_files.read(settings.STATE_DIR / _FILE) or "{}")
        return float(stored["ahead"]) if stored["boot"] == _BOOT.read_text().strip() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(offset: float) -> None:
    with contextlib.suppress(OSError):  # no room, no rights: then a restart believes what it finds
        stored = {"boot": _BOOT.read_text().strip(), "ahead": round(offset, 3)}
        private_files.write(settings.STATE_DIR / _FILE, f"{json.dumps(stored)}\n".encode())


@lru_cache(maxsize=1)
def _clock() -> SteadyClock:
    return SteadyClock(_database_time, _passed, proven=_remembered(), on_proven=_remember)


def seconds() -> float:
    """Return the time in seconds since the epoch. Queries now and then."""
    return _clock().now()


def now() -> datetime:
    """Return the time, aware, in UTC. Queries now and then."""
    return datetime.fromtimestamp(seconds(), UTC)
