"""Why a pod ends by a decision from outside: its condition DisruptionTarget, and the reasons there.

Rule: pkg/apis/core/types.go (``DisruptionTarget`` and its reasons), v1.36.
"""

from collections.abc import Iterable
from typing import Final

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import PodCondition

DEFAULT_GRACE_SECONDS: Final = 30
"""A pod's grace period where its spec says none."""
TARGET: Final = "DisruptionTarget"
"""The type of the condition."""
IN_TEXT: Final = f'"{TARGET}"'
"""How it stands in a pod's JSON: a text without it has no such condition."""
PREEMPTED: Final = "PreemptionByScheduler"
TAINTED: Final = "DeletionByTaintManager"
UNMATCHED: Final = "DeletionByNodeAffinity"
EVICTED: Final = "EvictionByEvictionAPI"
ORPHANED: Final = "DeletionByPodGC"
UNDER_PRESSURE: Final = "TerminationByKubelet"
"""Reasons: who decided, or what the node had."""


def condition(reason: str, message: str | None = None) -> Manifest:
    """Return the condition that is true for a reason, without its time."""
    text = {} if message is None else {"message": message}
    return {"type": TARGET, "status": "True", "reason": reason, **text}


def is_preempted(conditions: Iterable[PodCondition]) -> bool:
    """Return whether the conditions of a pod say that the scheduler preempts it."""
    return any(
        one.type == TARGET and one.status == "True" and one.reason == PREEMPTED
        for one in conditions
    )
