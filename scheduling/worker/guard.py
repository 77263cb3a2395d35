"""Monitors a canary configuration that is in force, and reverts it on errors or slow plugins.

The guard counts attempts that ended with an error, and slow calls of plugins. A restart of the
scheduler resets the counts, which only delays the revert, since a bad configuration continues to
fail. ``controllers.canaries``, in another process, notices a plugin that never returns.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import structlog

from clusterstate.actions.scheduler import canaries
from clusterstate.objects.values.errors import StatusError
from clusterstate.queries.scheduler.canaries import StoredCanary, guarded
from scheduling.engine.reference.decision import ERROR, Decision

logger = structlog.get_logger(__name__)


class Guard:
    """Monitors one scheduler; does nothing unless a canary is in force."""

    def __init__(self) -> None:
        self._canary: StoredCanary | None = None
        self._failures = 0
        self._slow = 0
        self._why = ""

    def begin(self, revision: int) -> None:
        """Watch the configuration of this revision if it is in force as a canary. Queries once."""
        found = guarded()
        self._canary = found if found is not None and found.revision == revision else None
        self._failures = self._slow = 0
        self._why = ""

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Count the decisions that ended with an error."""
        if self._canary is None:
            return
        failed = [one for one in decisions if one.outcome == ERROR]
        self._failures += len(failed)
        if self._failures > self._canary.most_failures and not self._why:
            self._why = f"{self._failures} attempts failed, the last one: {failed[-1].message}"

    def took(self, plugin: str, point: str, seconds: float) -> None:
        """Count a call of a plugin if it was slow."""
        if self._canary is None or seconds <= self._canary.slow_seconds:
            return
        self._slow += 1
        if self._slow > self._canary.most_failures and not self._why:
            self._why = (
                f"{self._slow} calls of plugins took longer than {self._canary.slow_seconds:g} s,"
                f" the last one {plugin} at {point}: {seconds:.1f} s"
            )

    def unusable(self, revision: int, why: str, now: float) -> None:
        """Revert to the former configuration, because this scheduler cannot use the new one."""
        self.begin(revision)
        self._why = why
        self.check(now)

    def check(self, now: float) -> None:
        """Revert the canary if too many attempts failed or calls were slow. Queries only then."""
        canary, why = self._canary, self._why
        if canary is None or not why:
            return
        self._canary = None
        try:
            canaries.give_back(canary.name, why=why, now=datetime.fromtimestamp(now, UTC))
        except StatusError as error:
            logger.info("canary_over", canary=canary.name, message=error.message)
            return
        logger.error("canary_returned", canary=canary.name, why=why)
