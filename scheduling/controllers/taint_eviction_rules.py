"""When a pod must leave a node because of NoExecute taints: a pure statement of the rules.

``process_pod`` says what Kubernetes' taint eviction controller would do (R122): now, never, or
after some seconds. ``deadline`` turns that into a moment: each taint's ``timeAdded`` plus the
seconds for which the pod tolerates it, the earliest of these (C22). A deadline is a function of
pod, taints and nothing else, so that a timer may be computed again at any time and only changes
when one of them did. Source: pkg/controller/tainteviction/taint_eviction.go, v1.36.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from clusterstate.objects.matching import NO_EXECUTE, tolerates
from clusterstate.objects.node import Taint
from clusterstate.objects.pod import Toleration


class Decision(StrEnum):
    """What becomes of a pod on a tainted node."""

    EVICT_NOW = "evictNow"
    NEVER = "never"
    EVICT_AFTER = "evictAfter"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the taints mean for a pod.

    ``seconds`` is set for ``EVICT_AFTER`` only and is not negative. ``used`` holds the first
    matching toleration of each NoExecute taint, in the order of the taints; empty if one of them
    is not tolerated.
    """

    decision: Decision
    seconds: int | None = None
    used: tuple[Toleration, ...] = ()

    @property
    def all_tolerated(self) -> bool:
        """Whether every NoExecute taint is tolerated, for a while at least."""
        return self.decision is not Decision.EVICT_NOW


class Deadline(msgspec.Struct, frozen=True, kw_only=True):
    """The moment at which a pod must leave, and the taint that asks for it."""

    due_at: datetime
    started_at: datetime
    taint: Taint
    seconds: int


def no_execute(taints: Iterable[Taint]) -> list[Taint]:
    """Return the taints that evict."""
    return [taint for taint in taints if taint.effect == NO_EXECUTE]


def matching_toleration(
    tolerations: Iterable[Toleration], taint: Taint, *, comparison_operators: bool = False
) -> Toleration | None:
    """Return the first toleration that tolerates the taint; only that one counts."""
    for toleration in tolerations:
        if tolerates(toleration, taint, comparison_operators=comparison_operators):
            return toleration
    return None


def used_tolerations(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    *,
    comparison_operators: bool = False,
) -> tuple[Toleration, ...] | None:
    """Return the first matching toleration of each taint; None if one is not tolerated.

    Rule: GetMatchingTolerations, v1.36.
    """
    used = []
    for taint in taints:
        found = matching_toleration(tolerations, taint, comparison_operators=comparison_operators)
        if found is None:
            return None
        used.append(found)
    return tuple(used)


def min_toleration_seconds(tolerations: Sequence[Toleration]) -> int | None:
    """Return the shortest ``tolerationSeconds``, not below 0; None means forever.

    No tolerations at all give 0. Rule: getMinTolerationTime, v1.36.
    """
    if not tolerations:
        return 0
    limits = [t.toleration_seconds for t in tolerations if t.toleration_seconds is not None]
    return max(min(limits), 0) if limits else None


def process_pod(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    *,
    comparison_operators: bool = False,
) -> Outcome:
    """Return what the NoExecute taints among ``taints`` mean for a pod (R120-R123)."""
    evicting = no_execute(taints)
    if not evicting:
        return Outcome(decision=Decision.NEVER)
    used = used_tolerations(tolerations, evicting, comparison_operators=comparison_operators)
    if used is None:
        return Outcome(decision=Decision.EVICT_NOW)
    seconds = min_toleration_seconds(used)
    if seconds is None:
        return Outcome(decision=Decision.NEVER, used=used)
    return Outcome(decision=Decision.EVICT_AFTER, seconds=seconds, used=used)


def deadline(
    tolerations: Sequence[Toleration],
    taints: Iterable[Taint],
    *,
    added_at: datetime,
    not_before: datetime | None = None,
    comparison_operators: bool = False,
) -> Deadline | None:
    """Return when the pod must leave, None for never (C22).

    Each taint counts from its own ``timeAdded``; the earliest deadline wins, and among equal ones
    the first taint. With one ``timeAdded`` for all taints this is ``timeAdded`` plus the shortest
    toleration, as ``process_pod`` has it.

    Args:
        tolerations: those of the pod.
        taints: those of its node; effects other than NoExecute are passed over.
        added_at: stands in for the ``timeAdded`` of a taint that has none.
        not_before: no count starts earlier than this; the time of binding, say, to give a pod that
            was bound to a tainted node its full time there.
        comparison_operators: whether tolerations may use Gt and Lt.
    """
    first: Deadline | None = None
    for taint in no_execute(taints):
        found = matching_toleration(tolerations, taint, comparison_operators=comparison_operators)
        if found is not None and found.toleration_seconds is None:
            continue
        seconds = 0 if found is None else max(found.toleration_seconds or 0, 0)
        started_at = datetime.fromisoformat(taint.time_added) if taint.time_added else added_at
        if not_before is not None:
            started_at = max(started_at, not_before)
        due_at = started_at + timedelta(seconds=seconds)
        if first is None or due_at < first.due_at:
            first = Deadline(due_at=due_at, started_at=started_at, taint=taint, seconds=seconds)
    return first
