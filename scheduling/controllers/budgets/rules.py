"""The status of a PodDisruptionBudget, computed from its pods and their owners' scales.

Pure. ``clusterstate.objects.rules.disruption`` has what an eviction takes from the budget. Rule:
pkg/controller/disruption/disruption.go, v1.36.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from clusterstate.objects.rules.disruption import count_groups, is_assumed
from clusterstate.objects.values import moments
from clusterstate.objects.values.int_or_percent import IntOrPercent, scaled
from clusterstate.objects.values.meta import OwnerReference
from clusterstate.objects.values.pod import Pod

DELETION_TIMEOUT = 120  # seconds
"""An evicted pod that is not deleted after this long counts as there again."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """``spec`` of a PodDisruptionBudget; one of the two bounds is set."""

    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    generation: int = 0


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``status`` of a PodDisruptionBudget. ``failure`` is set when it could not be computed.

    ``disrupted_pods``: pods whose eviction was allowed and that still exist, by name;
    ``recheck_at``: when the first of them counts as present again.
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
    """A pod's controller, or its scale, is unknown; the budget allows no disruption."""


ScaleOf = Callable[[OwnerReference], int | None]
"""How many pods a controller wants: for a ReplicaSet of a Deployment the Deployment's number.

None if there is no such controller any more.
"""


def is_ready(pod: Pod, without_agent: Collection[str] = ()) -> bool:
    """Return whether the pod has the condition ``Ready``, or is assumed to be ready.

    ``without_agent``: the nodes whose pods no agent reports on (``disruption.is_assumed``).
    """
    status = next((c.status for c in pod.status.conditions if c.type == "Ready"), None)
    node_name = pod.spec.node_name
    return status == "True" or is_assumed(
        pod.status.phase,
        node_name,
        is_reported=status is not None,
        has_agent=node_name not in without_agent,
    )


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return the managing owner of the pod, None if it has none."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def expected_scale(pods: Sequence[Pod], scale_of: ScaleOf) -> int:
    """Return the sum of the scales of the pods' controllers; pods without a controller add nothing.

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


def expected_and_desired(
    budget: Budget, pods: Sequence[Pod], scale_of: ScaleOf, groups: int | None = None
) -> tuple[int, int]:
    """Return how many pods are expected and how many of them must be healthy.

    ``minAvailable`` as a number needs no controller: it counts the existing pods. ``groups``: the
    number of groups, if the budget counts these, whatever the bound.

    Raises:
        UnknownScaleError: a percentage or ``maxUnavailable`` meets a controller without a scale.
        ValueError: a bound is text but no percentage.
    """
    if budget.max_unavailable is not None:
        expected = expected_scale(pods, scale_of) if groups is None else groups
        return expected, max(expected - scaled(budget.max_unavailable, expected, round_up=True), 0)
    minimum = budget.min_available
    if minimum is None:
        return 0, 0
    if isinstance(minimum, int):
        return len(pods) if groups is None else groups, minimum
    expected = expected_scale(pods, scale_of) if groups is None else groups
    return expected, scaled(minimum, expected, round_up=True)


def group_name(pod: Pod) -> str:
    """Return the name of a pod's PodGroup, empty for none."""
    group = pod.spec.scheduling_group
    return "" if group is None else group.pod_group_name or ""


def budget_status(
    budget: Budget,
    pods: Sequence[Pod],
    *,
    scale_of: ScaleOf,
    disrupted_pods: Mapping[str, datetime],
    now: datetime,
    without_agent: Collection[str] = (),
    groups: Mapping[str, int] | None = None,
) -> BudgetStatus:
    """Return the budget's status.

    Args:
        budget: its bounds.
        pods: every pod that it selects.
        scale_of: returns the scale of a controller.
        disrupted_pods: pods whose eviction was charged to this budget, and when, by name.
        now: the time.
        without_agent: the nodes of the pods that have no agent.
        groups: ``minCount`` of the pods' PodGroups by name, if the budget counts groups; a pod
            without
            a group counts as one, and finished pods do not count. ``None``: it counts pods.
    """
    there = None
    if groups is not None:
        pods = [pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]
        there, _ = count_groups(map(group_name, pods), groups)
    try:
        expected, desired = expected_and_desired(budget, pods, scale_of, there)
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
    able = [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and pod.metadata.name not in disrupted
        and is_ready(pod, without_agent)
    ]
    healthy = len(able)
    if groups is not None:
        _, healthy = count_groups(map(group_name, able), groups)
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
