"""The vectorised engine without a database: worlds in the form of the recorded cases go in.

``Engine`` builds a snapshot from a world's objects and runs one plugin, a whole profile or
preemption over it; the ``run_*_case`` functions answer cases in the form of the vectors.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
import numpy as np

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.errors import FieldError
from clusterstate.objects.values.meta import ObjectMeta
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.storage import KINDS
from clusterstate.objects.values.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduling.engine.preemption.row_program import RowPrograms
from scheduling.engine.reference.cycle import Options, PodToPlace, diagnose, schedule_pod
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration import _WEIGHTS, BUILT_IN, PluginUse, Profile
from scheduling.framework.configuration.documents import load
from scheduling.framework.configuration.plugin_args import READERS
from scheduling.framework.configuration.reading import Field
from scheduling.framework.interface import CycleState
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status, unresolvable
from scheduling.framework.types import Candidate, Diagnosis, Nomination, PodInfo, PodRecord
from scheduling.plugins.catalogue import build_framework
from scheduling.plugins.default_preemption import (
    NO_VICTIMS,
    DefaultPreemption,
    by_importance,
    eligible,
    select_candidate,
    select_victims,
    split_by_budget,
)
from scheduling.plugins.image_locality import ImageLocality
from scheduling.plugins.inter_pod_affinity import InterPodAffinity
from scheduling.plugins.node_affinity import NodeAffinity
from scheduling.plugins.node_declared_features import NodeDeclaredFeatures
from scheduling.plugins.node_name import NodeName
from scheduling.plugins.node_ports import NodePorts
from scheduling.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduling.plugins.node_resources_fit import NodeResourcesFit
from scheduling.plugins.node_unschedulable import NodeUnschedulable
from scheduling.plugins.node_volume_limits import NodeVolumeLimits
from scheduling.plugins.pod_topology_spread import PodTopologySpread
from scheduling.plugins.taint_toleration import TaintToleration
from scheduling.plugins.volume_binding import VolumeBinding
from scheduling.plugins.volume_restrictions import VolumeRestrictions
from scheduling.plugins.volume_zone import VolumeZone
from tests.conformance.cluster_cases import (
    Case,
    Outcome,
    read,
    read_pod,
    status,
    version_of,
    with_gates,
)

VOLUME_MEMBERS = {
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "persistentVolumes": "PersistentVolume",
    "storageClasses": "StorageClass",
    "csiNodes": "CSINode",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
    "volumeAttachments": "VolumeAttachment",
}
DEVICE_MEMBERS = {"claims": "ResourceClaim", "classes": "DeviceClass", "slices": "ResourceSlice"}


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
    for member, kind in VOLUME_MEMBERS.items():
        for value in read(KINDS[kind], world.get(member)):
            snapshot.set_object(value)
    for member, kind in DEVICE_MEMBERS.items():
        for manifest in world.get(member) or ():
            snapshot.devices.set(kind, manifest)
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
        preempted=any(
            condition.type == "DisruptionTarget"
            and condition.status == "True"
            and condition.reason == "PreemptionByScheduler"
            for condition in pod.status.conditions
        ),
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
    name, gates = case["plugin"], case.get("featureGates") or case.get("gates") or {}
    comparison = {"comparison_operators": gates.get("TaintTolerationComparisonOperators", False)}
    given = dict(case.get("args") or {})
    if name == "VolumeBinding":
        given["storageCapacityScoring"] = gates.get("StorageCapacityScoring", False)
    if name == "NodeVolumeLimits":
        given["volumeLimitScaling"] = gates.get("VolumeLimitScaling", False)
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
                compatibility=version_of(case),
                **comparison,
            )
        case "NodeName":
            return NodeName()
        case "NodeDeclaredFeatures":
            return NodeDeclaredFeatures(version_of(case))
        case "NodePorts":
            return NodePorts()
        case "VolumeZone":
            return VolumeZone()
        case "VolumeRestrictions":
            return VolumeRestrictions()
        case "ImageLocality":
            return ImageLocality(version_of(case))
        case "NodeResourcesFit":
            return NodeResourcesFit(args, sidecar_containers=gates.get("SidecarContainers", True))
    with_arguments_alone = {
        "NodeAffinity": NodeAffinity,
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
        "InterPodAffinity": InterPodAffinity,
        "VolumeBinding": VolumeBinding,
        "NodeVolumeLimits": NodeVolumeLimits,
    }
    return with_arguments_alone[name](args)


def run_plugin_case(case: Case) -> Outcome:
    """Return what the engine's plugin says about a filter or score case."""
    return run_plugin(make_plugin(case), with_gates(case))


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


# The whole profile -------------------------------------------------------------------------------

KUBERNETES = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "percentageOfNodesToScore": 100,
    "profiles": [
        {
            "pluginConfig": [
                {"name": "NodeAffinity", "args": {"emptyNodeSelectorTerm": "none"}},
                {
                    "name": "DefaultPreemption",
                    "args": {"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 1000},
                },
            ]
        }
    ],
}
"""The default profile with every node looked at and Kubernetes' meaning of an empty term."""


@cache
def kubernetes_profile(version: Compatibility = NEWEST) -> Profile:
    profile = load({**KUBERNETES, "compatibility": version.text}).profile("default-scheduler")
    assert profile is not None
    return profile


@cache
def kubernetes_framework(version: Compatibility = NEWEST) -> Framework:
    return build_framework(kubernetes_profile(version))


@cache
def whole_framework() -> Framework:
    """Return the whole default profile of 1.36, the plugins that are off by default included."""
    names = [{"name": name, "weight": _WEIGHTS.get(name, 1)} for name in BUILT_IN]
    own = {
        **KUBERNETES["profiles"][0],
        "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": names}},
    }
    document = {**KUBERNETES, "compatibility": "1.36", "profiles": [own]}
    profile = load(document).profile("default-scheduler")
    assert profile is not None
    return build_framework(profile)


def framework_with(plugin: Any, place: int | None = None, *, weight: int = 1) -> Framework:
    """Return the default profile with a package's plugin, its filter last or at a place."""
    built = kubernetes_framework()
    known = {
        one.name: one
        for one in (
            *built.filter_plugins, *built.pre_filter_plugins, *built.score_plugins,
            *built.post_filter_plugins, *built.queue_sort, *built.pre_enqueue_plugins,
            *built.bind_plugins,
        )
    }  # fmt: skip
    points = dict(built.profile.points)
    filters = list(points["filter"])
    filters.insert(len(filters) if place is None else place, PluginUse(plugin.name))
    points["filter"] = tuple(filters)
    points["score"] = (*points["score"], PluginUse(plugin.name, weight))
    profile = msgspec.structs.replace(built.profile, points=points)
    return Framework(profile, {**known, plugin.name: plugin})


def narrowed(filters: Iterable[str], version: Compatibility = NEWEST) -> Framework:
    """Return a framework that filters with these plugins alone."""
    profile = kubernetes_profile(version)
    names = set(filters)
    points = {
        point: tuple(use for use in uses if use.name in names)
        if point in ("preFilter", "filter")
        else uses
        for point, uses in profile.points.items()
    }
    return build_framework(msgspec.structs.replace(profile, points=points))


def to_place(snapshot: Snapshot, pod: Pod) -> PodToPlace:
    info = snapshot.intern(from_pod(pod))
    return PodToPlace(full_name(pod), info, pod.status.nominated_node_name)


def decide(
    world: Case, pod: Pod, *, preempt: bool = False, framework: Framework | None = None
) -> Decision:
    """Return the decision about one pod in a world, with the full table."""
    snapshot = build_snapshot(world)
    options = Options(tie_break="first", full=True, preempt=preempt)
    return schedule_pod(
        snapshot, framework or kubernetes_framework(), to_place(snapshot, pod), options
    )


def decision_outcome(decision: Decision) -> Outcome:
    """Return a decision in the form of the vectors."""
    table = decision.full.nodes if decision.full is not None else {}
    feasible = sorted(name for name, verdict in table.items() if verdict.rejected is None)
    totals = {name: table[name].total for name in feasible}
    top = max(totals.values(), default=0)
    return {
        "feasible": feasible,
        "rejected": {
            name: status(
                verdict.rejected.code.wire,
                verdict.rejected.reasons,
                plugin=verdict.rejected.plugin,
            )
            for name, verdict in table.items()
            if verdict.rejected is not None
        },
        "fitError": decision.message,
        "scores": {
            name: {"weighted": dict(table[name].weighted), "total": totals[name]}
            for name in feasible
        }
        if len(feasible) > 1
        else {},
        "best": [name for name in feasible if totals[name] == top],
    }


def run_schedule_case(case: Case, framework: Framework | None = None) -> Outcome:
    """Return what the engine decides about a case of the area schedule."""
    framework = framework or kubernetes_framework(version_of(case))
    outcome = decision_outcome(decide(case, read_pod(case), framework=framework))
    # A PreFilter that rejects the pod everywhere speaks instead of the counts.
    reasons = {tuple(entry.get("reasons", ())) for entry in outcome["rejected"].values()}
    outcome["preFilterMsg"] = ", ".join(*reasons) if len(reasons) == 1 else ""
    return outcome


# Preemption --------------------------------------------------------------------------------------


class _Preemption:
    """A pod's cycle up to PostFilter, in the world of a case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.pod = read_pod(case)
        self.snapshot = build_snapshot(case)
        names = case.get("filterPlugins")
        version = version_of(case)
        self.framework = (
            kubernetes_framework(version) if names is None else narrowed(names, version)
        )
        self.plugin = next(
            p for p in self.framework.post_filter_plugins if isinstance(p, DefaultPreemption)
        )
        place = to_place(self.snapshot, self.pod)
        self.info = place.info
        self.state = CycleState(pod_key=place.key, nominated_node=place.nominated_node)
        self.state.victim_search = RowPrograms(self.snapshot, self.framework)
        self.begun = self.framework.pre_filter(self.state, self.info, self.snapshot)

    def filtered(self) -> Diagnosis:
        rows = self.begun.rows
        judged = self.framework.filter(self.state, self.info, self.snapshot, rows)
        return diagnose(self.snapshot, self.begun, judged if self.begun.status.ok else None)

    def dry_run(self, nodes: list[str]) -> tuple[Outcome, Outcome]:
        """Return the candidates and why other nodes are none, by both ways to find out."""
        known = [row for name in nodes if (row := self.snapshot.row_of(name)) is not None]
        rows = np.array(known, np.intp)
        if not len(rows):
            return {}, {}
        begin, wanted = self.plugin.extent(self.state, len(rows))
        candidates, statuses = self.plugin.dry_run(
            self.state, self.info, self.snapshot, rows, self.framework, begin=begin, enough=wanted
        )
        assert same_victims(
            self.state, self.info, self.snapshot, self.framework, rows, begin, wanted,
            candidates, statuses,
        )  # fmt: skip
        return candidates_outcome(candidates), {n: _status(s) for n, s in statuses.items()}

    def post_filter(self, diagnosis: Diagnosis) -> tuple[Nomination | None, Status]:
        return self.plugin.post_filter(
            self.state, self.info, self.snapshot, diagnosis, self.framework
        )


def same_victims(
    state: CycleState,
    info: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    rows: Rows,
    begin: int,
    wanted: int,
    candidates: list[Candidate],
    statuses: dict[str, Status],
) -> bool:
    """Whether the search in numbers gives the reference's candidates, victims and reasons."""
    state.tells_candidates = True
    found = RowPrograms(snapshot, framework).find_victims(
        state, info, rows, begin=begin, enough=wanted
    )
    assert found is not None, "every built-in filter is stated in numbers"
    assert candidates_outcome(found.candidates) == candidates_outcome(candidates)
    best = select_candidate(candidates) if candidates else None
    assert (found.best and found.best.node_name) == (best and best.node_name)
    told = Counter(statuses.values())
    assert found.without_victims == told.pop(unresolvable(NO_VICTIMS), 0)
    odd = [status for status in told if status.code is Code.ERROR]
    assert len(found.without_need) == sum(told.pop(status) for status in odd)
    assert dict(found.rejections) == dict(told)
    return True


def candidates_outcome(candidates: Iterable[Candidate]) -> Outcome:
    return {
        candidate.node_name: {
            "victims": [victim.key for victim in candidate.victims],
            "numPDBViolations": candidate.pdb_violations,
        }
        for candidate in candidates
    }


def _full(case: Case) -> Outcome:
    run = _Preemption(case)
    diagnosis = run.filtered()
    statuses = {
        name: diagnosis.node_to_status.get(name, diagnosis.absent)
        for name in run.snapshot.node_names()
    }
    potential = [name for name, s in statuses.items() if s.code is Code.UNSCHEDULABLE]
    nominated = run.pod.status.nominated_node_name
    may, _ = eligible(run.info, nominated, statuses.get(nominated, diagnosis.absent), run.snapshot)
    candidates, others = run.dry_run(potential) if may else ({}, {})
    nomination, outcome = run.post_filter(diagnosis)
    return {
        "nodeStatuses": {n: _status(s, plugin=s.plugin) for n, s in statuses.items() if not s.ok},
        "potentialNodes": potential,
        "eligible": may,
        "message": outcome.message.removeprefix("preemption: ") if not outcome.ok else "",
        "candidates": candidates,
        "dryRunStatuses": others,
        "chosenAnyOf": [nomination.node_name] if nomination and nomination.node_name else [],
    }


def _select_victims(case: Case) -> Outcome:
    run = _Preemption(case)
    row = run.snapshot.row_of(case["node"])
    assert row is not None
    victims, violations, outcome = select_victims(
        run.state,
        run.info,
        run.snapshot,
        row,
        run.snapshot.disruption_budgets(),
        run.framework,
        version_of(case),
    )
    return {
        "victims": [victim.key for victim in victims],
        "numPDBViolations": violations,
        "status": _status(outcome),
    }


def _dry_run(case: Case) -> Outcome:
    candidates, statuses = _Preemption(case).dry_run(case["potentialNodes"])
    return {"candidates": candidates, "nodeStatuses": statuses}


def _preempt(case: Case) -> Outcome:
    run = _Preemption(case)
    given = {
        name: Status(code_of(entry["code"]), tuple(entry.get("reasons") or ()))
        for name, entry in case["nodeStatuses"].items()
    }
    nomination, outcome = run.post_filter(Diagnosis(node_to_status=given))
    text = outcome.message.removeprefix("preemption: ")
    return {
        "status": status(outcome.code.wire, [text] if text else []),
        "nominatedNode": None if nomination is None else nomination.node_name,
    }


def code_of(name: str) -> Code:
    return next(code for code in Code if code.wire == name)


def _eligible(case: Case) -> Outcome:
    entry = case.get("nominatedNodeStatus") or {"code": "Success"}
    snapshot, pod = build_snapshot(case), read_pod(case)
    info = snapshot.intern(from_pod(pod))
    nominated = pod.status.nominated_node_name
    may, why = eligible(info, nominated, Status(code_of(entry["code"])), snapshot)
    return {"eligible": may, "message": why}


def _records(pods: list[Pod]) -> list[PodRecord]:
    """Return the records of placed pods, in this order."""
    snapshot = Snapshot()
    for name in {pod.spec.node_name for pod in pods}:
        snapshot.set_node(Node(metadata=ObjectMeta(name=name)))
    for pod in pods:
        place(snapshot, pod)
    found = [snapshot.pod(full_name(pod)) for pod in pods]
    return [record for record in found if record is not None]


def _select_candidate(case: Case) -> Outcome:
    candidates = [
        Candidate(
            node_name=name,
            victims=tuple(_records(read(Pod, entry["pods"]))),
            pdb_violations=entry["numPDBViolations"],
        )
        for name, entry in case["candidates"].items()
    ]
    best = select_candidate(candidates)
    # Names decide between equals: one that wins under a name before all others is an equal.
    equals = [
        candidate
        for candidate in candidates
        if candidate is best
        or select_candidate([best, msgspec.structs.replace(candidate, node_name="")]) is not best
    ]
    outcomes = candidates_outcome(equals)
    victims = {name: entry["victims"] for name, entry in outcomes.items()}
    return {"chosen": list(outcomes), "victims": victims}


def _pdb(case: Case) -> Outcome:
    budgets = build_snapshot({"pdbs": case["pdbs"]}).disruption_budgets()
    violating, others = split_by_budget(
        _records(read(Pod, case["pods"])), budgets, version_of(case)
    )
    return {
        "violating": [record.key for record in violating],
        "nonViolating": [record.key for record in others],
    }


def _more_important(case: Case) -> Outcome:
    records = _records([read_pod(case, "other"), read_pod(case)])
    return {"moreImportant": by_importance(records)[0] is records[1]}


_EVENTS = {
    "full": _full,
    "selectVictims": _select_victims,
    "dryRun": _dry_run,
    "preempt": _preempt,
    "eligible": _eligible,
    "selectCandidate": _select_candidate,
    "pdb": _pdb,
    "moreImportant": _more_important,
}


def run_preemption_case(case: Case) -> Outcome:
    """Return what the engine says about a case of the area preemption."""
    return _EVENTS[case["ev"]](case)
