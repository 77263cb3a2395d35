"""DefaultPreemption: whom a pod may displace, and on which node it hurts least.

A node is a candidate when the pod fits after removing pods of lower priority from it. First all of
them are removed, then as many as possible are put back, those guarded by a violated disruption
budget first and the more important before the less important; who remains out is a victim. Among
the candidates the node with the fewest budget violations wins, then the lowest highest priority,
the lowest sum of priorities, the fewest victims, the latest start of its most important victims.
What is still equal is Kubernetes' arbitrary choice: all such nodes are returned.

Source: pkg/scheduler/framework/preemption/preemption.go, plugins/defaultpreemption/
default_preemption.go and scheduler/util/utils.go, v1.36, with every potential node looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.labels import SelectorError, selector_from_label_selector
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import PodDisruptionBudget
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.rule import (
    PASS,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    AnyRule,
    Verdict,
)
from tests.reference.scheduler import (
    Decision,
    FilterRun,
    change_states,
    copy_run,
    filter_with_nominated,
    fit_error,
    priority,
)


@dataclass(frozen=True)
class Victims:
    """The pods to remove, most important first, and how many of them violate a budget."""

    pods: tuple[Pod, ...]
    violations: int = 0


@dataclass
class Preemption:
    """The outcome. ``node`` is empty when nobody can be displaced; ``message`` then says why.

    ``chosen_any_of`` are the best candidates, equal in every respect; ``node`` is the first.
    ``statuses`` are the verdicts on the potential nodes that are not candidates.
    """

    eligible: bool = True
    message: str = ""
    node: str = ""
    chosen_any_of: tuple[str, ...] = ()
    candidates: dict[str, Victims] = field(default_factory=dict)
    statuses: dict[str, Verdict] = field(default_factory=dict)


def start_time(pod: Pod, now: datetime) -> datetime:
    """Return when the pod started; one that has not is as young as can be."""
    if not pod.status.start_time:
        return now
    return datetime.fromisoformat(pod.status.start_time).astimezone(UTC)


def more_important(pod: Pod, other: Pod, now: datetime) -> bool:
    """Return whether ``pod`` is to be spared before ``other``: by priority, then by age.

    Of two pods that have not started each is more important than the other: Kubernetes reads the
    clock for one after the other, and later is less important.
    """
    if priority(pod) != priority(other):
        return priority(pod) > priority(other)
    if not pod.status.start_time and not other.status.start_time:
        return True
    return start_time(pod, now) < start_time(other, now)


def by_importance(pods: Sequence[Pod], now: datetime) -> list[Pod]:
    """Return the pods, most important first.

    Equals keep their order, except those that have not started: they come out reversed, which is
    what Go's insertion sort makes of ``more_important``.
    """
    ordered: list[Pod] = []
    for pod in pods:
        place = len(ordered)
        while place > 0 and more_important(pod, ordered[place - 1], now):
            place -= 1
        ordered.insert(place, pod)
    return ordered


def split_by_budgets(
    pods: Sequence[Pod],
    budgets: Sequence[PodDisruptionBudget],
    version: Compatibility = NEWEST,
) -> tuple[list[Pod], list[Pod]]:
    """Return (violating, not violating): a budget allows so many of its pods, in this order.

    A selector that does not parse guards nobody, nor does, until 1.37, an empty one or any one a
    pod without labels; a pod that the budget counts as disrupted already costs nothing.
    """
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        violated = False
        for index, budget in enumerate(budgets):
            if _guards(budget, pod, version):
                allowed[index] -= 1
                violated = violated or allowed[index] < 0
        (violating if violated else others).append(pod)
    return violating, others


def _guards(budget: PodDisruptionBudget, pod: Pod, version: Compatibility) -> bool:
    if budget.metadata.namespace != pod.metadata.namespace:
        return False
    try:
        selector = selector_from_label_selector(budget.spec.selector)
    except SelectorError:
        return False
    if version < Compatibility.V1_38 and (selector.everything or not pod.metadata.labels):
        return False
    if not selector.matches(pod.metadata.labels):
        return False
    return pod.metadata.name not in budget.status.disrupted_pods


def eligible(pod: Pod, cluster: Cluster, nominated_verdict: Verdict = PASS) -> tuple[bool, str]:
    """Return whether the pod may displace others now, and why not.

    ``nominated_verdict`` is the filters' verdict on the node that the pod was nominated to: if that
    node cannot take it anyhow, it need not wait for its earlier victims to be gone.
    """
    if pod.spec.preemption_policy == "Never":
        return False, "not eligible due to preemptionPolicy=Never."
    nominated = cluster.node(pod.status.nominated_node_name)
    if pod.status.nominated_node_name and nominated_verdict.code == UNRESOLVABLE:
        return True, ""
    if nominated is not None and any(
        priority(other) < priority(pod) and _leaves_for_a_preemptor(other)
        for other in nominated.pods
    ):
        return False, "not eligible due to a terminating pod on the nominated node."
    return True, ""


def _leaves_for_a_preemptor(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    reason = next((c for c in pod.status.conditions if c.type == "DisruptionTarget"), None)
    return (
        reason is not None and reason.status == "True" and reason.reason == "PreemptionByScheduler"
    )


def select_victims(
    rules: Sequence[AnyRule],
    run: FilterRun,
    pod: Pod,
    node: PlacedNode,
    cluster: Cluster,
    now: datetime,
) -> tuple[Victims, Verdict]:
    """Return the fewest, least important pods of ``node`` without which the pod fits.

    The verdict is that of the filters with all of them gone, where that does not help.
    """
    lower = [other for other in node.pods if priority(other) < priority(pod)]
    if not lower:
        reason = "No preemption victims found for incoming pod"
        return Victims(()), Verdict(UNRESOLVABLE, (reason,))
    run = copy_run(rules, run)
    for other in lower:
        node = node.without_pod(other)
        change_states(rules, run, pod, other, node, cluster, added=False)
    verdict = filter_with_nominated(rules, run, pod, node, cluster)
    if not verdict.success:
        return Victims(()), verdict
    violating, others = split_by_budgets(
        by_importance(lower, now), cluster.budgets, cluster.version
    )
    victims = []
    violations = 0
    for other in (*violating, *others):
        node = node.with_pod(other)
        change_states(rules, run, pod, other, node, cluster, added=True)
        if filter_with_nominated(rules, run, pod, node, cluster).success:
            continue
        node = node.without_pod(other)
        change_states(rules, run, pod, other, node, cluster, added=False)
        victims.append(other)
        violations += any(other is one for one in violating)
    if violating and others:
        victims = by_importance(victims, now)
    return Victims(tuple(victims), violations), PASS


def dry_run(
    rules: Sequence[AnyRule],
    run: FilterRun,
    pod: Pod,
    potential: Sequence[PlacedNode],
    cluster: Cluster,
    now: datetime,
) -> tuple[dict[str, Victims], dict[str, Verdict]]:
    """Return (candidates, verdicts on the others) of the potential nodes."""
    candidates: dict[str, Victims] = {}
    statuses: dict[str, Verdict] = {}
    for node in potential:
        victims, verdict = select_victims(rules, run, pod, node, cluster, now)
        if not verdict.success:
            statuses[node.name] = verdict
        elif victims.pods:
            candidates[node.name] = victims
        else:
            reason = f'expected at least one victim pod on node "{node.name}"'
            statuses[node.name] = Verdict("Error", (reason,))
    return candidates, statuses


def select_candidates(candidates: Mapping[str, Victims], now: datetime) -> tuple[str, ...]:
    """Return the nodes where preemption hurts least, all of them when equal.

    Rule: pickOneNodeForPreemption.
    """

    def fewest_violations(victims: Victims) -> float:
        return -victims.violations

    def lowest_highest_priority(victims: Victims) -> float:
        return -priority(victims.pods[0])

    def lowest_sum_of_priorities(victims: Victims) -> float:
        # Shifted to be positive: otherwise many pods of negative priority would be the best.
        return -sum(priority(pod) + 2**31 for pod in victims.pods)

    def fewest_pods(victims: Victims) -> float:
        return -len(victims.pods)

    def latest_start(victims: Victims) -> float:
        # The earliest start among the victims of the highest priority.
        top = max(priority(pod) for pod in victims.pods)
        return min(start_time(p, now) for p in victims.pods if priority(p) == top).timestamp()

    criteria: tuple[Callable[[Victims], float], ...] = (
        fewest_violations,
        lowest_highest_priority,
        lowest_sum_of_priorities,
        fewest_pods,
        latest_start,
    )
    names = tuple(candidates)
    for criterion in criteria:
        if len(names) <= 1:
            break
        best = max(criterion(candidates[name]) for name in names)
        names = tuple(name for name in names if criterion(candidates[name]) == best)
    return names


def potential_nodes(decision: Decision, cluster: Cluster) -> list[PlacedNode]:
    """Return the nodes that were rejected in a way that removing pods may change."""
    return [
        node
        for node in cluster.nodes
        if node.name in decision.rejected and decision.rejected[node.name].code == UNSCHEDULABLE
    ]


def preempt(
    rules: Sequence[AnyRule], pod: Pod, cluster: Cluster, decision: Decision, now: datetime
) -> Preemption:
    """Return what preemption would do for a pod that fits nowhere. Rule: Evaluator.Preempt."""
    nominated = decision.rejected.get(pod.status.nominated_node_name)
    may, message = eligible(pod, cluster, nominated or Verdict(UNRESOLVABLE))
    if not may:
        return Preemption(eligible=False, message=message)
    potential = potential_nodes(decision, cluster)
    candidates, statuses = dry_run(rules, decision.run, pod, potential, cluster, now)
    chosen = select_candidates(candidates, now)
    outcome = Preemption(
        candidates=candidates,
        statuses=statuses,
        chosen_any_of=chosen,
        node=chosen[0] if chosen else "",
    )
    if not chosen:
        unhelpful = Verdict(UNRESOLVABLE, ("Preemption is not helpful for scheduling",))
        verdicts = {node.name: statuses.get(node.name, unhelpful) for node in cluster.nodes}
        outcome.message = fit_error(len(cluster.nodes), Decision(rejected=verdicts))
    return outcome
