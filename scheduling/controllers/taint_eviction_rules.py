"""When a pod must leave a node because of NoExecute taints: a pure statement of the rules.

``process_pod`` says what Kubernetes' taint eviction controller would do (R122): now, never, or
after some seconds. From when these seconds count, and so when the pod leaves, is said in
``clusterstate.objects.countdowns``. Source: pkg/controller/tainteviction/taint_eviction.go, v1.36.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from clusterstate.objects.countdowns import matching_toleration, no_execute
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
