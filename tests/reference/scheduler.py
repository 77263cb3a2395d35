"""One pod, all nodes, all rules in order: where it may go, where it goes, and why not elsewhere.

``schedule`` states the scheduling cycle of Kubernetes: PreFilter once, Filter on every node with
the first rejection kept, and, when at least two nodes are left, the weighted sum of normalised
scores. Source: pkg/scheduler/schedule_one.go and framework/runtime/framework.go, v1.36, with all
nodes evaluated.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from clusterstate.objects.values.pod import Pod
from tests.reference.cluster import Cluster, PlacedNode
from tests.reference.image_locality import ImageLocality
from tests.reference.inter_pod_affinity import InterPodAffinity
from tests.reference.node_affinity import NodeAffinity
from tests.reference.node_declared_features import NodeDeclaredFeatures
from tests.reference.node_name import NodeName
from tests.reference.node_ports import NodePorts
from tests.reference.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from tests.reference.node_resources_fit import NodeResourcesFit
from tests.reference.node_unschedulable import NodeUnschedulable
from tests.reference.pod_topology_spread import PodTopologySpread
from tests.reference.rule import (
    ERROR,
    PASS,
    SKIP,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    AnyRule,
    Verdict,
)
from tests.reference.taint_toleration import TaintToleration


def default_rules(**switches: Any) -> tuple[AnyRule, ...]:
    """Return the default plugins in order; ``empty_term`` is the only switch."""
    return (
        NodeUnschedulable(),
        NodeName(),
        TaintToleration(),
        NodeAffinity(**switches),
        NodePorts(),
        NodeResourcesFit(),
        PodTopologySpread(**switches),
        InterPodAffinity(),
        NodeResourcesBalancedAllocation(),
        ImageLocality(),
        NodeDeclaredFeatures(),
    )


DEFAULT_WEIGHTS: Mapping[str, int] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


@dataclass
class FilterRun:
    """The filter states of one pod's cycle: by plugin name, without the plugins that skipped."""

    states: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict = PASS
    node_names: frozenset[str] | None = None
    restricting: tuple[str, ...] = ()


@dataclass
class Decision:
    """Everything that was found out about one pod.

    ``rejected`` holds for each node the first verdict against it, with the plugin's name; the name
    is empty where a PreFilter left the node out. ``weighted`` is {node: {plugin: weight times
    normalised score}}, empty with fewer than two feasible nodes. ``best`` are all nodes with the
    highest total. ``message`` is the text of a FitError, or of an ``error``: that ends the attempt,
    and nothing else is said.
    """

    feasible: tuple[str, ...] = ()
    rejected: dict[str, Verdict] = field(default_factory=dict)
    raw: dict[str, dict[str, int]] = field(default_factory=dict)
    normalized: dict[str, dict[str, int]] = field(default_factory=dict)
    weighted: dict[str, dict[str, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    best: tuple[str, ...] = ()
    pre_filter_message: str = ""
    message: str = ""
    run: FilterRun = field(default_factory=FilterRun)
    error: bool = False


def pre_filter(rules: Sequence[AnyRule], pod: Pod, cluster: Cluster) -> FilterRun:
    """Ask every plugin once; an unresolvable verdict ends it, a plain rejection is kept for later.

    Rule: RunPreFilterPlugins.
    """
    run = FilterRun()
    rejection = PASS
    for rule in rules:
        if not rule.filters:
            continue
        begun = rule.pre_filter(pod, cluster)
        verdict = msgspec.structs.replace(begun.verdict, plugin=rule.name)
        if verdict.code == SKIP:
            continue
        if verdict.code == ERROR:
            text = f'running PreFilter plugin "{rule.name}": {verdict.message}'
            return replace(run, verdict=Verdict(ERROR, (text,), rule.name))
        if verdict.code == UNRESOLVABLE:
            return replace(run, verdict=verdict)
        run.states[rule.name] = begun.state
        if verdict.code == UNSCHEDULABLE:
            rejection = verdict
            continue
        if begun.node_names is not None:
            names = begun.node_names
            run.restricting = (*run.restricting, rule.name)
            run.node_names = names if run.node_names is None else run.node_names & names
            if not run.node_names:
                plugins = sorted(run.restricting)
                text = f"node(s) didn't satisfy plugin {plugins[0]}"
                if len(plugins) > 1:
                    text = f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously"
                return replace(run, verdict=Verdict(UNRESOLVABLE, (text,)))
    run.verdict = rejection
    return run


def filter_node(rules: Sequence[AnyRule], run: FilterRun, pod: Pod, node: PlacedNode) -> Verdict:
    """Return the first verdict against ``node``, or Success. Rule: RunFilterPlugins."""
    for rule in rules:
        if rule.filters and rule.name in run.states:
            verdict: Verdict = rule.filter(run.states[rule.name], pod, node)
            if not verdict.success:
                return msgspec.structs.replace(verdict, plugin=rule.name)
    return PASS


def filter_with_nominated(
    rules: Sequence[AnyRule], run: FilterRun, pod: Pod, node: PlacedNode, cluster: Cluster
) -> Verdict:
    """Filter as if the pods that wait for room here were placed, then as things are.

    Only nominated pods of at least the pod's priority count. The pod must fit both times: they may
    come, and they may go elsewhere. Rule: RunFilterPluginsWithNominatedPods.
    """
    waiting = [
        other
        for other in cluster.nominated.get(node.name, ())
        if priority(other) >= priority(pod) and not same_pod(other, pod)
    ]
    if waiting:
        crowded, crowded_run = node, copy_run(rules, run)
        for other in waiting:
            crowded = crowded.with_pod(other)
            change_states(rules, crowded_run, pod, other, node, cluster, added=True)
        verdict = filter_node(rules, crowded_run, pod, crowded)
        if not verdict.success:
            return verdict
    return filter_node(rules, run, pod, node)


def copy_run(rules: Sequence[AnyRule], run: FilterRun) -> FilterRun:
    """Return the states as values of their own, to be changed by ``change_states``."""
    states = {r.name: r.copy(run.states[r.name]) for r in rules if r.name in run.states}
    return replace(run, states=states)


def change_states(
    rules: Sequence[AnyRule],
    run: FilterRun,
    pod: Pod,
    other: Pod,
    node: PlacedNode,
    cluster: Cluster,
    *,
    added: bool,
) -> None:
    """Tell the plugins that did not skip that ``other`` came to or left ``node``."""
    for rule in rules:
        if rule.name in run.states:
            change = rule.add_pod if added else rule.remove_pod
            change(run.states[rule.name], pod, other, node, cluster)


def priority(pod: Pod) -> int:
    """Return the pod's priority, 0 when it has none."""
    return pod.spec.priority or 0


def same_pod(one: Pod, other: Pod) -> bool:
    """Return whether both are versions of one pod."""
    if one.metadata.uid or other.metadata.uid:
        return one.metadata.uid == other.metadata.uid
    return (one.metadata.namespace, one.metadata.name) == (
        other.metadata.namespace,
        other.metadata.name,
    )


def find_feasible(
    rules: Sequence[AnyRule], pod: Pod, cluster: Cluster
) -> tuple[list[PlacedNode], Decision]:
    """Return the nodes that the pod may go to, and a decision with the reasons for the others.

    The node that the pod was nominated to is tried alone first. Rule: findNodesThatFitPod.
    """
    run = pre_filter(rules, pod, cluster)
    decision = Decision(run=run)
    if run.verdict.code == ERROR:
        decision.error = True
        decision.message = run.verdict.message
        return [], decision
    if not run.verdict.success:
        decision.rejected = dict.fromkeys((node.name for node in cluster.nodes), run.verdict)
        decision.pre_filter_message = run.verdict.message
        return [], decision
    nominated = cluster.node(pod.status.nominated_node_name)
    if (
        nominated is not None
        and (run.node_names is None or nominated.name in run.node_names)
        and filter_with_nominated(rules, run, pod, nominated, cluster).success
    ):
        return [nominated], decision
    feasible = []
    for node in cluster.nodes:
        if run.node_names is not None and node.name not in run.node_names:
            plugins = " ".join(sorted(run.restricting))
            reason = f"node(s) didn't satisfy plugin(s) [{plugins}]"
            decision.rejected[node.name] = Verdict(UNRESOLVABLE, (reason,))
            continue
        verdict = filter_with_nominated(rules, run, pod, node, cluster)
        if verdict.success:
            feasible.append(node)
        else:
            decision.rejected[node.name] = verdict
    return feasible, decision


def schedule(
    pod: Pod,
    cluster: Cluster,
    rules: Sequence[AnyRule] | None = None,
    weights: Mapping[str, int] = DEFAULT_WEIGHTS,
) -> Decision:
    """Return the decision for ``pod``; who among ``best`` is taken is left to the caller."""
    rules = default_rules() if rules is None else rules
    if not cluster.nodes:
        return Decision(message="no nodes available to schedule pods")
    feasible, decision = find_feasible(rules, pod, cluster)
    decision.feasible = tuple(node.name for node in feasible)
    if decision.error:
        return decision
    if not feasible:
        decision.message = fit_error(len(cluster.nodes), decision)
    elif len(feasible) == 1:
        decision.best = decision.feasible
    else:
        _score(pod, cluster, feasible, rules, weights, decision)
    return decision


def _score(
    pod: Pod,
    cluster: Cluster,
    feasible: Sequence[PlacedNode],
    rules: Sequence[AnyRule],
    weights: Mapping[str, int],
    decision: Decision,
) -> None:
    for table in (decision.raw, decision.normalized, decision.weighted):
        table.update({node.name: {} for node in feasible})
    for rule in rules:
        if not rule.scores or not weights.get(rule.name):
            continue
        begun = rule.pre_score(pod, cluster, feasible)
        if begun.verdict.code == SKIP:
            continue
        if not begun.verdict.success:
            decision.error = True
            decision.message = f'running PreScore plugin "{rule.name}": {begun.verdict.message}'
            decision.feasible = ()
            decision.rejected = {}
            for table in (decision.raw, decision.normalized, decision.weighted):
                table.clear()
            return
        raw = {node.name: rule.score(begun.state, pod, node, cluster) for node in feasible}
        normalized = rule.normalize(begun.state, pod, raw)
        for name, value in raw.items():
            score = value if normalized is None else normalized[name]
            decision.raw[name][rule.name] = value
            decision.normalized[name][rule.name] = score
            decision.weighted[name][rule.name] = score * weights[rule.name]
    decision.totals = {name: sum(scores.values()) for name, scores in decision.weighted.items()}
    highest = max(decision.totals.values())
    decision.best = tuple(name for name, total in decision.totals.items() if total == highest)


def fit_error(node_count: int, decision: Decision, post_filter_message: str = "") -> str:
    """Return why no node fits, each reason with the number of nodes, sorted as text (C9).

    A PreFilter's message stands instead of the counts. Rule: framework/types.go, FitError.Error.
    """
    text = f"0/{node_count} nodes are available:"
    if decision.pre_filter_message:
        text += f" {decision.pre_filter_message}."
    else:
        counts = Counter(
            reason for verdict in decision.rejected.values() for reason in verdict.reasons
        )
        if counts:
            text += f" {', '.join(sorted(f'{n} {reason}' for reason, n in counts.items()))}."
    return f"{text} {post_filter_message}" if post_filter_message else text
