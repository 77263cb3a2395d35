"""Cases about a single plugin, checked with the plain rules and with the vectorised engine.

A filter case gives ``preFilter`` and a status for each node, a score case ``preScore``, raw and
normalised scores. A case passes when both implementations give what was recorded.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from clusterstate.objects.values.pod import NodeAffinity as NodeAffinitySpec
from clusterstate.objects.values.pod import TopologySpreadConstraint
from tests import harness
from tests.conformance.cluster_cases import (
    Case,
    Outcome,
    differences,
    read,
    read_cluster,
    read_pod,
    status,
    with_gates,
)
from tests.conformance.implementations import check_all
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
from tests.reference.rule import AnyRule
from tests.reference.taint_toleration import TaintToleration

Gates = dict[str, bool]
Args = dict[str, Any]


def _comparison(gates: Gates) -> bool:
    return gates.get("TaintTolerationComparisonOperators", False)


def _node_affinity(args: Args, gates: Gates) -> AnyRule:
    added = msgspec.convert(args.get("addedAffinity"), NodeAffinitySpec | None)
    return NodeAffinity(added_affinity=added, empty_term="none")


def _resources(resources: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(entry["name"], entry.get("weight", 1)) for entry in resources]


def _fit(args: Args, gates: Gates) -> AnyRule:
    strategy = args.get("scoringStrategy") or {}
    ratio = strategy.get("requestedToCapacityRatio") or {}
    return NodeResourcesFit(
        strategy=strategy.get("type", "LeastAllocated"),
        resources=_resources(strategy.get("resources") or [{"name": "cpu"}, {"name": "memory"}]),
        shape=[(p.get("utilization", 0), p.get("score", 0)) for p in ratio.get("shape") or []],
        ignored_resources=args.get("ignoredResources") or [],
        ignored_resource_groups=args.get("ignoredResourceGroups") or [],
        sidecar_containers=gates.get("SidecarContainers", True),
    )


def _balanced(args: Args, gates: Gates) -> AnyRule:
    names = [name for name, _ in _resources(args.get("resources") or [])]
    return NodeResourcesBalancedAllocation(resources=names or ("cpu", "memory"))


def _spread(args: Args, gates: Gates) -> AnyRule:
    return PodTopologySpread(
        default_constraints=read(TopologySpreadConstraint, args.get("defaultConstraints")),
        system_defaults=args.get("defaultingType") != "List",
        empty_term="none",
        match_label_keys=gates.get("MatchLabelKeysInPodTopologySpread", True),
        node_inclusion_policy=gates.get("NodeInclusionPolicyInPodTopologySpread", True),
        comparison_operators=_comparison(gates),
    )


def _inter_pod_affinity(args: Args, gates: Gates) -> AnyRule:
    return InterPodAffinity(
        hard_pod_affinity_weight=args.get("hardPodAffinityWeight", 1),
        ignore_preferred_terms_of_existing_pods=args.get(
            "ignorePreferredTermsOfExistingPods", False
        ),
    )


RULES: dict[str, Callable[[Args, Gates], AnyRule]] = {
    "NodeName": lambda args, gates: NodeName(),
    "NodeUnschedulable": lambda args, gates: NodeUnschedulable(
        comparison_operators=_comparison(gates)
    ),
    "TaintToleration": lambda args, gates: TaintToleration(comparison_operators=_comparison(gates)),
    "NodeAffinity": _node_affinity,
    "NodeDeclaredFeatures": lambda args, gates: NodeDeclaredFeatures(),
    "NodePorts": lambda args, gates: NodePorts(),
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _inter_pod_affinity,
    "ImageLocality": lambda args, gates: ImageLocality(),
}


def run_reference(case: Case) -> Outcome:
    """Return what the plain rule says about a case."""
    case = with_gates(case)
    rule = RULES[case["plugin"]](case.get("args") or {}, case.get("featureGates") or {})
    pod, cluster = read_pod(case), read_cluster(case)
    if case["kind"] == "filter":
        begun = rule.pre_filter(pod, cluster)
        names = None if begun.node_names is None else sorted(begun.node_names)
        first = status(begun.verdict.code, begun.verdict.reasons, nodeNames=names)
        outcome: Outcome = {"preFilter": first, "nodes": {}}
        if not begun.verdict.success and "preFilter" in case["expect"]:
            return outcome
        verdicts = {n.name: rule.filter(begun.state, pod, n) for n in cluster.nodes}
        outcome["nodes"] = {n: status(v.code, v.reasons) for n, v in verdicts.items()}
        return outcome
    candidates = [node for node in cluster.nodes if node.name in case["candidates"]]
    scoring = rule.pre_score(pod, cluster, candidates)
    outcome = {"preScore": status(scoring.verdict.code, scoring.verdict.reasons)}
    if scoring.verdict.success:
        raw = {n.name: rule.score(scoring.state, pod, n, cluster) for n in candidates}
        outcome["raw"] = raw
        outcome["normalized"] = rule.normalize(scoring.state, pod, raw) or raw
    elif scoring.verdict.code == "Skip":
        outcome["raw"] = outcome["normalized"] = {node.name: 0 for node in candidates}
    return outcome


def compare(case: Case, found: Outcome) -> list[str]:
    """Say what differs; what a case does not state is not compared."""
    expect = case["expect"]
    texts = [
        text
        for key in ("preFilter", "preScore", "raw", "normalized")
        if key in expect
        for text in differences(expect[key], found.get(key), key)
    ]
    passes = (expect.get("preFilter") or {}).get("code") == "Skip"
    for name, wanted in (expect.get("nodes") or {}).items():
        got = {"code": "Success"} if passes else found["nodes"].get(name)
        texts += differences(wanted, got, f"nodes.{name}")
    return texts


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    return check_all(case, compare, reference=run_reference, engine=harness.run_plugin_case)
