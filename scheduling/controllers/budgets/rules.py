"""How many pods of a PodDisruptionBudget may go, and whether this one may go now.

Pure: ``budget_status`` computes a budget's status from its pods and their owners' scales, and
``decide_eviction`` answers an eviction request. Rules: pkg/controller/disruption/disruption.go and
pkg/registry/core/pod/storage/eviction.go, v1.36.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from clusterstate.objects import moments
from clusterstate.objects.meta import OwnerReference
from clusterstate.objects.pod import Pod

DELETION_TIMEOUT = 120  # seconds
"""An evicted pod that is not deleted after this long counts as there again."""
MAX_DISRUPTED_PODS = 2000
RETRY_AFTER_SECONDS = 10

IntOrPercent = int | str

_PERCENT = re.compile(r"[0-9]+%")


class Policy(StrEnum):
    """Whether a pod that is not ready may go without asking the budget."""

    IF_HEALTHY_BUDGET = "IfHealthyBudget"
    ALWAYS_ALLOW = "AlwaysAllow"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """``spec`` of a PodDisruptionBudget; one of the two bounds is set."""

    name: str = ""
    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    unhealthy_pod_eviction_policy: str | None = None
    generation: int = 0


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``status`` of a PodDisruptionBudget. ``failure`` is set when it could not be computed.

    ``disrupted_pods`` holds pods that were allowed to go and are still there, by name;
    ``recheck_at`` is when the first of them counts as there again.
    """

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, datetime] = {}
    observed_generation: int = 0
    failure: str = ""
    recheck_at: datetime | None = None

    @property
    def condition(self) -> tuple[str, str]:
        """Status and reason of the condition ``DisruptionAllowed``."""
        if self.failure:
            return "False", "SyncFailed"
        if self.disruptions_allowed > 0:
            return "True", "SufficientPods"
        return "False", "InsufficientPods"


class UnknownScaleError(LookupError):
    """A pod's controller, or how many pods it wants, is not known; the budget allows nothing."""


ScaleOf = Callable[[OwnerReference], int | None]
"""How many pods a controller wants: for a ReplicaSet of a Deployment the Deployment's number.

None if there is no such controller any more.
"""


def scaled_value(value: IntOrPercent, total: int) -> int:
    """Return a number as it is, a percentage of ``total`` rounded up (GetScaledValue..., roundUp).

    Raises:
        ValueError: the text is no percentage.
    """
    if isinstance(value, int):
        return value
    if not _PERCENT.fullmatch(value):
        raise ValueError("invalid value for IntOrString: invalid type: string is not a percentage")
    return -(-int(value[:-1]) * total // 100)


def is_percentage(value: IntOrPercent | None) -> bool:
    """Return whether the bound is given as a percentage."""
    return isinstance(value, str)


def is_ready(pod: Pod) -> bool:
    """Return whether the pod has the condition ``Ready``."""
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return the owner that manages the pod, None for a pod of its own."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def expected_scale(pods: Sequence[Pod], scale_of: ScaleOf) -> int:
    """Return the sum of what the pods' controllers want; pods without a controller add nothing.

    Raises:
        UnknownScaleError: a controller has no scale.
    """
    scales: dict[str, int] = {}
    for pod in pods:
        owner = controller_of(pod)
        if owner is None:
            continue
        key = owner.uid or f"{owner.api_version}/{owner.kind}/{owner.name}"
        if key in scales:
            continue
        scale = scale_of(owner)
        if scale is None:
            raise UnknownScaleError(f'found no controller ref for pod "{pod.metadata.name}"')
        scales[key] = scale
    return sum(scales.values())


def expected_and_desired(budget: Budget, pods: Sequence[Pod], scale_of: ScaleOf) -> tuple[int, int]:
    """Return how many pods should be there and how many of them must be healthy.

    ``minAvailable`` as a number needs no controller: it counts the pods there are.

    Raises:
        UnknownScaleError: a percentage or ``maxUnavailable`` meets a controller without a scale.
        ValueError: a bound is text but no percentage.
    """
    if budget.max_unavailable is not None:
        expected = expected_scale(pods, scale_of)
        return expected, max(expected - scaled_value(budget.max_unavailable, expected), 0)
    minimum = budget.min_available
    if minimum is None:
        return 0, 0
    if isinstance(minimum, int):
        return len(pods), minimum
    expected = expected_scale(pods, scale_of)
    return expected, scaled_value(minimum, expected)


def budget_status(
    budget: Budget,
    pods: Sequence[Pod],
    *,
    scale_of: ScaleOf,
    disrupted_pods: Mapping[str, datetime],
    now: datetime,
) -> BudgetStatus:
    """Return the budget's status.

    Args:
        budget: its bounds.
        pods: every pod that it selects.
        scale_of: how many pods a controller wants.
        disrupted_pods: pods that evictions took from this budget, and when, by name.
        now: the time.
    """
    try:
        expected, desired = expected_and_desired(budget, pods, scale_of)
    except (UnknownScaleError, ValueError) as error:
        return BudgetStatus(
            failure=str(error),
            disrupted_pods=dict(disrupted_pods),
            observed_generation=budget.generation,
        )
    still_there = {
        pod.metadata.name
        for pod in pods
        if pod.metadata.deletion_timestamp is None and pod.metadata.name in disrupted_pods
    }
    disrupted = {
        name: at
        for name, at in disrupted_pods.items()
        if name in still_there and moments.after(at, DELETION_TIMEOUT) > now
    }
    healthy = sum(
        pod.metadata.deletion_timestamp is None
        and pod.metadata.name not in disrupted
        and is_ready(pod)
        for pod in pods
    )
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    return BudgetStatus(
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        disrupted_pods=disrupted,
        observed_generation=budget.generation,
        recheck_at=moments.after(min(disrupted.values()), DELETION_TIMEOUT) if disrupted else None,
    )


# --- evictions -----------------------------------------------------------------------------------


class Answer(StrEnum):
    """What to do with an eviction request."""

    EVICT = "evict"
    """Delete the pod; no budget is asked."""
    EVICT_UNHEALTHY = "evictUnhealthy"
    """Delete the pod if it is still not ready: its budget is not charged."""
    EVICT_AND_CHARGE = "evictAndCharge"
    """Charge the budget, then delete the pod."""
    TOO_MANY_REQUESTS = "tooManyRequests"
    """Answer 429: not now."""
    FORBIDDEN = "forbidden"
    """Answer 403: the budget's status is broken."""
    SEVERAL_BUDGETS = "severalBudgets"
    """Answer 500: more than one budget selects the pod."""


class EvictionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; ``status`` is the charged budget, ``message`` and ``cause`` go to the client."""

    answer: Answer
    message: str = ""
    cause: str = ""
    status: BudgetStatus | None = None
    retry_after_seconds: int = 0


_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_FREE_PHASES = frozenset({"Succeeded", "Failed", "Pending"})


def decide_eviction(
    pod: Pod, budgets: Sequence[tuple[Budget, BudgetStatus]], *, now: datetime
) -> EvictionDecision:
    """Return whether the pod may be evicted now.

    Args:
        pod: the pod as it is.
        budgets: the budgets that select it, with their statuses, locked by the caller.
        now: the time, noted in the charged budget.
    """
    if pod.status.phase in _FREE_PHASES or pod.metadata.deletion_timestamp is not None:
        return EvictionDecision(answer=Answer.EVICT)
    if len(budgets) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does"
            " not support."
        )
        return EvictionDecision(answer=Answer.SEVERAL_BUDGETS, message=text)
    if not budgets:
        return EvictionDecision(answer=Answer.EVICT)
    budget, status = budgets[0]
    if not is_ready(pod):
        if budget.unhealthy_pod_eviction_policy == Policy.ALWAYS_ALLOW:
            return EvictionDecision(answer=Answer.EVICT_UNHEALTHY)
        if status.current_healthy >= status.desired_healthy > 0:
            return EvictionDecision(answer=Answer.EVICT_UNHEALTHY)
    return _charge(pod, budget, status, now)


def _charge(pod: Pod, budget: Budget, status: BudgetStatus, now: datetime) -> EvictionDecision:
    if status.observed_generation < budget.generation:
        return EvictionDecision(
            answer=Answer.TOO_MANY_REQUESTS,
            message=_VIOLATES,
            cause=f"The disruption budget {budget.name} is still being processed by the server.",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )
    if status.disruptions_allowed < 0:
        return EvictionDecision(
            answer=Answer.FORBIDDEN, message="pdb disruptions allowed is negative"
        )
    if len(status.disrupted_pods) > MAX_DISRUPTED_PODS:
        text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        return EvictionDecision(answer=Answer.FORBIDDEN, message=text)
    if status.disruptions_allowed == 0:
        if status.failure:
            cause = (
                f"The disruption budget {budget.name} does not allow evicting pods currently"
                f" because it failed sync: {status.failure}"
            )
        else:
            cause = (
                f"The disruption budget {budget.name} needs {status.desired_healthy} healthy pods"
                f" and has {status.current_healthy} currently"
            )
        return EvictionDecision(answer=Answer.TOO_MANY_REQUESTS, message=_VIOLATES, cause=cause)
    charged = msgspec.structs.replace(
        status,
        disruptions_allowed=status.disruptions_allowed - 1,
        disrupted_pods={**status.disrupted_pods, pod.metadata.name: now},
        recheck_at=moments.after(min([*status.disrupted_pods.values(), now]), DELETION_TIMEOUT),
    )
    return EvictionDecision(answer=Answer.EVICT_AND_CHARGE, status=charged)
