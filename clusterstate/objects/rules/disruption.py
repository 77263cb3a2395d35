"""Evictions against disruption budgets: when they are allowed, and their cost.

Pure, over manifests of PodDisruptionBudgets; the caller locks the budget and stores what comes out.
The status itself is kept by ``scheduling.controllers.budgets``. Rule:
pkg/registry/core/pod/storage/eviction.go, v1.36.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from clusterstate.objects.values import document
from clusterstate.objects.values.errors import Forbidden, TooManyRequests
from clusterstate.objects.values.meta import Manifest

UNIT: Final = "stowage.dev/disruption-unit"
"""The annotation of a PodDisruptionBudget that says what its numbers count."""
POD, POD_GROUP = "Pod", "PodGroup"
UNITS: Final = (POD, POD_GROUP)
MAX_DISRUPTED_PODS: Final = 2000
RETRY_AFTER_SECONDS: Final = 10
_VIOLATES: Final = "Cannot evict pod as it would violate the pod's disruption budget."


class BudgetRefuses(TooManyRequests):
    """A disruption budget, as of ``revision``, does not let a pod go."""

    def __init__(self, budget: Manifest, cause: str, **more: Any) -> None:
        metadata = budget["metadata"]
        self.namespace: str = metadata.get("namespace") or ""
        self.name: str = metadata["name"]
        self.revision = int(metadata.get("resourceVersion") or 0)
        causes = [{"reason": "DisruptionBudget", "message": cause}]
        super().__init__(_VIOLATES, {"causes": causes, **more})


def counts_groups(annotations: Mapping[str, str] | None) -> bool:
    """Return whether a budget's numbers are PodGroups; a pod without one counts as a group."""
    return (annotations or {}).get(UNIT) == POD_GROUP


def is_whole(pods: int, min_count: int) -> bool:
    """Return whether a group of which ``pods`` are ready counts as available."""
    return pods >= max(min_count, 1)


def count_groups(groups: Iterable[Hashable], min_counts: Mapping[Any, int]) -> tuple[int, int]:
    """Return how many groups there are, and how many of them count as available.

    ``groups``: the group of each pod. A pod whose group is not in ``min_counts`` is one by itself.
    """
    counts = Counter(groups)
    with_minimum = counts.keys() & min_counts.keys()
    alone = sum(counts.values()) - sum(counts[group] for group in with_minimum)
    whole = sum(is_whole(counts[group], min_counts[group]) for group in with_minimum)
    return alone + len(with_minimum), alone + whole


def breaks(ready: int, min_count: int, *, is_ready: bool, together: bool) -> bool:
    """Return whether a group with ``ready`` ready pods becomes unavailable when a pod leaves.

    ``is_ready``: that pod is one of the ready ones. ``together``: all pods leave with it. A group
    that is not whole loses nothing.
    """
    left = 0 if together else ready - is_ready
    return is_whole(ready, min_count) and not is_whole(left, min_count)


def is_assumed(phase: str, node_name: str, *, is_reported: bool, has_agent: bool) -> bool:
    """Return whether a pod counts as ready since its binding, because no agent can report on it.

    Its node has no agent, and its status has neither another phase than Pending nor the condition
    Ready. Workloads, budgets, evictions and plans use this rule.
    """
    return bool(node_name) and not has_agent and not is_reported and phase in ("", "Pending")


def is_exempt(budget: Manifest, *, ready: bool) -> bool:
    """Return whether a pod may go without a charge: it is not ready, and the policy lets it."""
    spec, status = budget.get("spec") or {}, budget.get("status") or {}
    return not ready and spares_unready(
        spec.get("unhealthyPodEvictionPolicy") or "",
        healthy=status.get("currentHealthy") or 0,
        desired=status.get("desiredHealthy") or 0,
    )


def spares_unready(policy: str, *, healthy: int, desired: int) -> bool:
    """Return whether unready pods can be evicted under this unhealthyPodEvictionPolicy.

    ``healthy`` and ``desired``: ``currentHealthy`` and ``desiredHealthy`` of the budget.
    """
    return policy == "AlwaysAllow" or healthy >= desired > 0


def charge(budget: Manifest, pod_name: str, *, now: datetime) -> Manifest:
    """Return the budget with one allowed disruption less, and the pod among the disrupted ones.

    Raises:
        BudgetRefuses: no disruption is allowed now, or the budget was edited and its status does
            not follow yet.
        Forbidden: the status is broken.
    """
    name = budget["metadata"]["name"]
    status = dict(budget.get("status") or {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        raise BudgetRefuses(budget, cause, retryAfterSeconds=RETRY_AFTER_SECONDS)
    allowed = status.get("disruptionsAllowed") or 0
    disrupted = dict(status.get("disruptedPods") or {})
    if allowed < 0:
        raise _forbidden(name, "pdb disruptions allowed is negative")
    if len(disrupted) > MAX_DISRUPTED_PODS:
        raise _forbidden(
            name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if not allowed:
        failure = _sync_failure(status)
        if failure is None:
            needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            units = "pod groups" if counts_groups(budget["metadata"].get("annotations")) else "pods"
            cause = (
                f"The disruption budget {name} needs {needed} healthy {units} and has {healthy}"
                " currently"
            )
        else:
            cause = (
                f"The disruption budget {name} does not allow evicting pods currently because it"
                f" failed sync: {failure}"
            )
        raise BudgetRefuses(budget, cause)
    disrupted[pod_name] = document.format_time(now)
    return {
        **budget,
        "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted},
    }


def _sync_failure(status: Manifest) -> str | None:
    """Return why the status could not be computed, ``None`` if it could."""
    for one in status.get("conditions") or ():
        if one.get("type") == "DisruptionAllowed" and one.get("reason") == "SyncFailed":
            return str(one.get("message") or "")
    return None


def _forbidden(name: str, why: str) -> Forbidden:
    return Forbidden(f'poddisruptionbudgets.policy "{name}" is forbidden: {why}')
