"""The vectorised engine without a database: worlds in the form of the recorded cases go in.

``Engine`` builds a snapshot from a world's objects and runs one plugin, a whole profile or
preemption over it; the ``run_*_case`` functions answer cases in the form of the vectors.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from clusterstate.objects.errors import FieldError
from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod
from clusterstate.objects.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduling.engine.requirements import from_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import CycleState
from scheduling.framework.plugin_args import READERS
from scheduling.framework.reading import Field
from scheduling.framework.status import Code, Status
from scheduling.framework.types import PodInfo
from scheduling.plugins.image_locality import ImageLocality
from scheduling.plugins.inter_pod_affinity import InterPodAffinity
from scheduling.plugins.node_affinity import NodeAffinity
from scheduling.plugins.node_name import NodeName
from scheduling.plugins.node_ports import NodePorts
from scheduling.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduling.plugins.node_resources_fit import NodeResourcesFit
from scheduling.plugins.node_unschedulable import NodeUnschedulable
from scheduling.plugins.pod_topology_spread import PodTopologySpread
from scheduling.plugins.taint_toleration import TaintToleration
from tests.conformance.cluster_cases import Case, Outcome, read, read_pod, status


def full_name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp() if text else None


def build_snapshot(world: Case) -> Snapshot:
    """Return the snapshot of a world's nodes, pods and other objects."""
    snapshot = Snapshot(capacity=4)
    for namespace in read(Namespace, world.get("namespaces")):
        snapshot.set_namespace(namespace.metadata.name, namespace.metadata.labels)
    for service in read(Service, world.get("services")):
        snapshot.set_service(service)
    kinds = {
        "replicationControllers": ReplicationController,
        "replicaSets": ReplicaSet,
        "statefulSets": StatefulSet,
    }
    for member, kind in kinds.items():
        for controller in read(kind, world.get(member)):
            snapshot.set_controller(controller)
    for number, budget in enumerate(read(PodDisruptionBudget, world.get("pdbs"))):
        # Some recorded budgets have no name.
        name = budget.metadata.name or f"budget-{number}"
        meta = msgspec.structs.replace(budget.metadata, name=name)
        snapshot.set_budget(msgspec.structs.replace(budget, metadata=meta))
    for node in read(Node, world.get("nodes")):
        snapshot.set_node(node)
    for pod in read(Pod, world.get("pods")):
        place(snapshot, pod)
    for pod in read(Pod, world.get("nominatedPods")):
        info = snapshot.intern(from_pod(pod))
        snapshot.nominate(full_name(pod), info, pod.status.nominated_node_name)
    return snapshot


def place(snapshot: Snapshot, pod: Pod) -> None:
    """Put a pod on the node that its spec names."""
    snapshot.add_pod(
        full_name(pod),
        snapshot.intern(from_pod(pod)),
        pod.spec.node_name,
        start_time=seconds(pod.status.start_time),
        terminating=pod.metadata.deletion_timestamp is not None,
    )


def rows_of(snapshot: Snapshot, names: Iterable[str]) -> Any:
    """Return the rows of these nodes, ascending."""
    found = [snapshot.row_of(name) for name in names]
    return np.array(sorted(row for row in found if row is not None), np.intp)


def _status(found: Status, **more: Any) -> Outcome:
    return status(found.code.wire, found.reasons, **more)


def filter_statuses(
    plugin: Any, state: CycleState, info: PodInfo, snapshot: Snapshot, rows: Any
) -> dict[str, Outcome]:
    """Return each node's status by one plugin's Filter."""
    judged = plugin.filter(state, info, snapshot, rows)
    found = {}
    for position, row in enumerate(rows):
        outcome: Outcome = {"code": "Success"}
        if judged is not None and judged.codes[position]:
            code = Code(int(judged.codes[position]))
            outcome = status(code.wire, judged.reasons[judged.reason[position]])
        found[snapshot.node_name(int(row))] = outcome
    return found


def by_name(snapshot: Snapshot, rows: Any, scores: Any) -> dict[str, int]:
    return {
        snapshot.node_name(int(row)): int(score) for row, score in zip(rows, scores, strict=True)
    }


def make_plugin(case: Case) -> Any:
    """Return the plugin of a case with its arguments, switched to Kubernetes' behaviour."""
    name, gates = case["plugin"], case.get("featureGates") or {}
    comparison = {"comparison_operators": gates.get("TaintTolerationComparisonOperators", False)}
    given = dict(case.get("args") or {})
    if name == "NodeAffinity":
        given["emptyNodeSelectorTerm"] = "none"
    errors: list[FieldError] = []
    args = READERS[name](Field(given, "args", errors)) if name in READERS else None
    assert not errors, errors
    match name:
        case "NodeUnschedulable":
            return NodeUnschedulable(**comparison)
        case "TaintToleration":
            return TaintToleration(**comparison)
        case "PodTopologySpread":
            return PodTopologySpread(
                args,
                empty_node_selector_term="none",
                match_label_keys=gates.get("MatchLabelKeysInPodTopologySpread", True),
                node_inclusion_policy=gates.get("NodeInclusionPolicyInPodTopologySpread", True),
                **comparison,
            )
        case "NodeName" | "NodePorts" | "ImageLocality":
            return {"NodeName": NodeName, "NodePorts": NodePorts, "ImageLocality": ImageLocality}[
                name
            ]()
    kinds = {
        "NodeAffinity": NodeAffinity,
        "NodeResourcesFit": NodeResourcesFit,
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
        "InterPodAffinity": InterPodAffinity,
    }
    return kinds[name](args)


def run_plugin_case(case: Case) -> Outcome:
    """Return what the engine's plugin says about a filter or score case."""
    return run_plugin(make_plugin(case), case)


def run_plugin(plugin: Any, case: Case) -> Outcome:
    """Return what one plugin says about a filter or score case."""
    snapshot = build_snapshot(case)
    info = snapshot.intern(from_pod(read_pod(case)))
    state = CycleState()
    if case["kind"] == "filter":
        outcome: Outcome = {"preFilter": {"code": "Success"}, "nodes": {}}
        if hasattr(plugin, "pre_filter"):
            result, first = plugin.pre_filter(state, info, snapshot)
            names = result.node_names if result is not None else None
            outcome["preFilter"] = _status(
                first, nodeNames=None if names is None else sorted(names)
            )
            if not first.ok and "preFilter" in case["expect"]:
                return outcome
        outcome["nodes"] = filter_statuses(plugin, state, info, snapshot, snapshot.rows())
        return outcome
    rows = rows_of(snapshot, case["candidates"])
    outcome = {"preScore": {"code": "Success"}}
    if hasattr(plugin, "pre_score"):
        first = plugin.pre_score(state, info, snapshot, rows, np.ones(len(rows), np.int64))
        outcome["preScore"] = _status(first)
        if not first.ok:
            if outcome["preScore"]["code"] == "Skip":
                outcome["raw"] = outcome["normalized"] = dict.fromkeys(case["candidates"], 0)
            return outcome
    raw = plugin.score(state, info, snapshot, rows)
    outcome["raw"] = by_name(snapshot, rows, raw)
    if hasattr(plugin, "normalize"):
        raw = plugin.normalize(state, info, snapshot, rows, raw.copy())
    outcome["normalized"] = by_name(snapshot, rows, raw)
    return outcome
