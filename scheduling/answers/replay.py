"""Explains a recorded decision, and repeats it to show the results of all plugins for all nodes.

``make_again`` rebuilds the cluster at the decision's snapshot revision from stored versions and the
change log, adds the pods that the scheduler had assumed, decides with the profile, seed and draw of
that time, and compares the outcome with the record. Rows of the rebuilt snapshot may have another
order, so another one of equal nodes may come first: the record is verified if total, ties, counts
and message agree and its node is among the best. A pod of a group is decided with its whole group;
for a refused group there is no table.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from clusterstate.objects.dra.world import KINDS as DEVICE_KINDS
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod_group import GroupKey, PodGroup
from clusterstate.objects.values.storage import KINDS as VOLUME_KINDS
from clusterstate.objects.values.text_table import columns
from clusterstate.objects.values.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from clusterstate.queries.loops.loading import load_classes
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_at
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import Placement, PodPlacement, Record
from scheduling.engine.groups import confined, schedule_group
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_pod
from scheduling.engine.reference.decision import UNSCHEDULABLE, Decision
from scheduling.engine.reference.record import unpack, unpack_table
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.nodes import TooManyResources
from scheduling.engine.snapshot.requirements import from_stored_class
from scheduling.framework import pod_groups
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo, group_key
from scheduling.plugins.catalogue import build_framework
from scheduling.plugins.held_profile import why_held
from scheduling.simulation import causes, explain_table
from scheduling.worker import profiles

API_VERSION = "stowage.dev/v1"
_decode_node = msgspec.json.Decoder(Node).decode
_CONTROLLERS: tuple[type[ReplicationController | ReplicaSet | StatefulSet], ...] = (
    ReplicationController,
    ReplicaSet,
    StatefulSet,
)


class ReplayedDecision(msgspec.Struct, frozen=True):
    """A repeated decision, its input, and its differences from the record."""

    decision: Decision
    differences: tuple[str, ...]
    snapshot: Snapshot
    info: PodInfo


def describe(record: Record) -> Manifest:
    """Return a recorded decision as JSON, without its table of nodes. Queries nothing."""
    body = unpack(record.body)
    return {
        "apiVersion": API_VERSION,
        "kind": "Decision",
        "id": str(record.id),
        "at": record.at.isoformat().replace("+00:00", "Z"),
        "pod": {"namespace": record.namespace, "name": record.name, "uid": record.pod_uid},
        "outcome": record.outcome,
        "nodeName": record.node_name,
        "message": record.message,
        "total": record.total,
        "margin": record.margin,
        "ties": record.ties,
        "nodes": {
            "known": record.node_count,
            "evaluated": record.evaluated,
            "notExamined": max(record.node_count - record.evaluated, 0),
            "feasible": record.feasible,
        },
        "top": [
            {
                "nodeName": best.node_name,
                "total": best.total,
                "weighted": dict(zip(body.plugins, best.weighted, strict=True)),
            }
            for best in body.best(record.node_name)
        ],
        "rejections": [
            {
                "plugin": rejection.plugin,
                "code": Code(rejection.code).wire,
                "reasons": list(rejection.reasons),
                "nodes": rejection.nodes,
            }
            for rejection in body.rejections
        ],
        "rejectedBy": list(body.rejected_by),
        "preemption": {"nominatedNode": body.nominated_node, "victims": body.victims},
        "snapshotRevision": str(record.snapshot_revision),
        "profile": {"schedulerName": record.profile, "revision": record.profile_revision},
        "seed": str(record.seed),
        "draw": record.draw,
        "turn": {
            "scheduler": record.scheduler,
            "epoch": str(record.epoch),
            "number": str(record.number),
        },
        "schedulingClass": record.class_id,
    }


def explain(record: Record) -> Manifest:
    """Return ``describe`` with every node: ``feasible``, ``infeasible``, ``scores``, ``best``.

    ``runtimeClass``: what the pod's RuntimeClass contributed to the decision (R53), as long as the
    pod exists.

    ``source``: ``replayed``, or ``stored`` if history no longer reaches back and the table of an
    unplaced pod is still stored. ``verified``: whether a replay agrees with the record;
    ``differences``: where it does not.

    Raises:
        Expired: history does not reach back so far, and no table is kept.
    """
    found = describe(record)
    if refused_later(record):  # the record is complete
        return found | {"source": "recorded", "verified": True, "differences": []}
    try:
        replayed = make_again(record)
    except Expired:
        table = None if record.table_digest is None else decisions.table(record.table_digest)
        if table is None:
            raise
        decision = Decision(
            key=record.pod_id, class_digest=b"", outcome=UNSCHEDULABLE, full=unpack_table(table)
        )
        return found | explain_table(decision, scores=True) | {"source": "stored", "verified": True}
    if replayed.decision.full is not None:
        found |= explain_table(replayed.decision, scores=True)
        pod = find_object("Pod", record.namespace, record.name)
        manifest = None if pod is None else decode_object(pod)
        if manifest is not None and manifest["metadata"]["uid"] == record.pod_uid:
            found = causes.with_runtime_class(found, manifest, replayed.snapshot, replayed.info)
    return found | {
        "source": "replayed",
        "verified": not replayed.differences,
        "differences": list(replayed.differences),
    }


def refused_later(record: Record) -> bool:
    """Return whether a plugin refused the pod after a node was chosen (Reserve, Permit, PreBind).

    A replay ends with the choice of a node, so it cannot repeat such a refusal.
    """
    return record.feasible > 0 and record.outcome not in ("scheduled", "stale")


def make_again(record: Record, *, full: bool = True) -> ReplayedDecision:
    """Return the decision repeated on the cluster of that time. Queries about fifteen times.

    ``full``: with the table of every node by every plugin.

    Raises:
        Expired: the change log no longer reaches back so far, or the profile is gone.
    """
    snapshot, infos = _world_of(record)
    framework, info = framework_of(record), infos[record.class_id]
    pod = PodToPlace(record.pod_id, info, snapshot.nominated_node_of(record.pod_id))
    decision: Decision | None = None
    key = group_key(info.pod) if framework.schedules_groups else None
    if key is not None:
        decision, domain = _decide_with_group(record, key, framework)
        if decision.scheduled and domain is not None:
            # Decided beside the others where they were put: of equal nodes another one may come
            # first now.
            (pod,) = confined(snapshot, [pod], pod_groups.Placement(((domain, 1),)))
            decision = None
    if decision is None:
        decision = schedule_pod(
            snapshot,
            framework,
            pod,
            Options(seed=record.seed, full=full),
            draw=record.draw,
            start=record.start,
        )
    return ReplayedDecision(decision, tuple(_differences(record, decision)), snapshot, info)


def _decide_with_group(
    record: Record, key: GroupKey, framework: Framework
) -> tuple[Decision, pod_groups.Domain | None]:
    """Decide the group of a pod again; return the pod's decision and its topology domain.

    The domain is ``None`` if an exact search had placed the group: then its placement is used.
    Queries some fifteen times.
    """
    together = decisions.with_one_seed(record)
    members = {
        row.id
        for row in load_classes(sorted({one.class_id for one in together}))
        if group_key(from_stored_class(row.id, row.spec).pod) == key
    }
    # Where all batches have one seed, there are also pods that were decided before the group.
    fellows = [one for one in together if one.class_id in members]
    snapshot, infos = _world_of(fellows[0], fellows)
    pods = [
        PodToPlace(one.pod_id, infos[one.class_id], snapshot.nominated_node_of(one.pod_id))
        for one in fellows
        if one.class_id in infos
    ]
    options, now = Options(seed=record.seed), record.at.timestamp()
    start, place = fellows[0].start, [pod.key for pod in pods].index(record.pod_id)
    found = schedule_group(snapshot, framework, key, pods, options, start=start, now=now)
    if not found.placed and record.node_name:
        names: dict[Hashable, str] = {one.pod_id: one.node_name for one in fellows if one.node_name}
        found = schedule_group(snapshot, framework, key, pods, options, assigned=names, now=now)
        return found.decisions[place], None
    parts = found.placement.parts or (((), len(pods)),)
    return found.decisions[place], [one for one, count in parts for _ in range(count)][place]


def framework_of(record: Record) -> Framework:
    """Return the decision's profile with its plugins. Queries once if it is not cached.

    Raises:
        Expired: the profile was deleted or can no longer be used.
    """
    profile = profiles.at(record.profile_revision).profile(record.profile)
    if profile is None:
        raise Expired(f"the configuration of that time has no profile {record.profile}")
    why = why_held(profile)
    if why and why not in record.message:  # it could be used then
        raise Expired(why)
    try:
        return build_framework(profile)
    except ConfigurationError as error:
        raise Expired(f"profile {record.profile} cannot be used any more: {error}") from error


def _differences(record: Record, decision: Decision) -> Iterable[str]:
    outcome = "scheduled" if record.outcome == "stale" else record.outcome
    pairs: list[tuple[str, Any, Any]] = [
        ("outcome", outcome, decision.outcome),
        ("total", record.total, decision.total),
        ("ties", record.ties, decision.ties),
        ("nodes", record.node_count, decision.node_count),
        ("evaluated", record.evaluated, decision.evaluated),
        ("feasible", record.feasible, decision.feasible),
        ("message", record.message, decision.message),
    ]
    for name, before, now in pairs:
        if before != now:
            yield f"{name}: recorded {before!r}, replayed {now!r}"
    if record.node_name and decision.full is not None:
        verdict = decision.full.nodes.get(record.node_name)
        if verdict is None or verdict.rejected is not None or verdict.total != decision.total:
            yield f"nodeName: {record.node_name} is not among the best"


def _world_of(
    record: Record, fellows: Sequence[Record] = ()
) -> tuple[Snapshot, dict[int, PodInfo]]:
    """Return the snapshot on which a decision was made, and scheduling classes by their ids.

    ``fellows``: the decisions of its group, whose classes are needed, too.
    """
    revision = record.snapshot_revision
    snapshot = Snapshot()
    snapshot.compatibility = profiles.at(record.profile_revision).compatibility
    placements = decisions.placements_at(revision)
    snapshot.revision = revision
    for item in list_at("Node", revision):
        with suppress(TooManyResources):  # the scheduler left the node out, too
            snapshot.set_node(_decode_node(item))
    for item in list_at("Namespace", revision):
        namespace = msgspec.json.decode(item, type=Namespace)
        snapshot.set_namespace(namespace.metadata.name, namespace.metadata.labels)
    for item in list_at("Service", revision):
        snapshot.set_service(msgspec.json.decode(item, type=Service))
    for kind in _CONTROLLERS:
        for item in list_at(kind.__name__, revision):
            snapshot.set_controller(msgspec.json.decode(item, type=kind))
    for item in list_at("PodDisruptionBudget", revision):
        snapshot.set_budget(msgspec.json.decode(item, type=PodDisruptionBudget))
    for item in list_at("PodGroup", revision):
        snapshot.groups.set(msgspec.json.decode(item, type=PodGroup))
    placed = decisions.placed_before(record)
    there = {placement.pod_id for placement in placements}
    # A pod that is deleted before it is bound counts until the bind is refused.
    lost = {key: one for key, one in placed.items() if one.came_back and key not in there}
    class_ids = {placement.class_id for placement in placements}
    class_ids |= {one.class_id for one in (record, *fellows)}
    class_ids |= {one.class_id for one in lost.values()}
    infos: dict[int, PodInfo] = {}
    for row in load_classes(sorted(class_ids)):
        with suppress(TooManyResources):
            infos[row.id] = snapshot.intern(
                from_stored_class(row.id, row.spec, snapshot.compatibility)
            )
    if record.class_id not in infos:
        raise Expired(f"the pod's spec (scheduling class {record.class_id}) is no longer stored")
    pods = [infos[one.class_id] for one in (record, *fellows) if one.class_id in infos]
    taking = _set_what_is_claimed(snapshot, pods, placements, placed, infos)
    for placement in placements:
        if placement.class_id not in infos and snapshot.row_of(placement.node_name) is not None:
            snapshot.remove_node(placement.node_name)  # its free amounts are not known
    for placement in placements:
        if placement.class_id not in infos or placement.pod_id in taking:
            continue
        if placement.pod_id == record.pod_id:
            if placement.nominated_node_name:
                snapshot.nominate(
                    placement.pod_id, infos[placement.class_id], placement.nominated_node_name
                )
            continue
        node_name = placement.node_name
        if not node_name and placement.pod_id in placed:
            node_name = placed[placement.pod_id].node_name
        if not node_name:
            if placement.nominated_node_name:
                snapshot.nominate(
                    placement.pod_id, infos[placement.class_id], placement.nominated_node_name
                )
            continue
        started = placement.started_at
        snapshot.add_pod(
            placement.pod_id,
            infos[placement.class_id],
            node_name,
            start_time=None if started is None else started.timestamp(),
            terminating=placement.terminating,
            preempted=placement.preempted,
        )
    for pod_id, one in lost.items():
        if one.class_id in infos:
            snapshot.add_pod(pod_id, infos[one.class_id], one.node_name)
    _nominate(record, snapshot, infos)
    return snapshot, infos


def _set_what_is_claimed(
    snapshot: Snapshot,
    pods: Sequence[PodInfo],
    placements: Sequence[Placement],
    placed: Mapping[int, PodPlacement],
    infos: Mapping[int, PodInfo],
) -> set[int]:
    """Add the volumes and devices of that time to the snapshot, if one of the pods claims any.

    Return the ids of pods with claims that were only assumed at that time; the caller assumes them
    again, in order.
    """
    revision = snapshot.revision
    if any(info.volumes for info in pods):
        for kind, lens in VOLUME_KINDS.items():
            for item in list_at(kind, revision):
                snapshot.set_object(msgspec.json.decode(item, type=lens))
    if any(info.may_claim for info in pods):
        for kind in DEVICE_KINDS:
            for item in list_at(kind, revision):
                snapshot.devices.set(kind, decode_object(item))
    unbound = {one.pod_id: one for one in placements if not one.node_name}
    assumed = set()
    for pod_id, one in placed.items():
        info_ = infos.get(unbound[pod_id].class_id) if pod_id in unbound else None
        row = snapshot.row_of(one.node_name)
        if info_ is not None and row is not None and (info_.claims or info_.may_claim):
            snapshot.assume(pod_id, info_, row)
            assumed.add(pod_id)
    return assumed


def _nominate(record: Record, snapshot: Snapshot, infos: dict[int, PodInfo]) -> None:
    """Restore the nominations of pods that were refused just before the decision. Queries once.

    The rule is that of ``engine.reference.cycle.assume_or_nominate``.
    """
    for refused in decisions.refused_before(record):
        body, info = unpack(refused.body), infos.get(refused.class_id)
        if not body.nominated_node or info is None or snapshot.pod(refused.pod_id) is not None:
            continue
        if body.victims:
            for key in snapshot.nominated_below(body.nominated_node, info.priority):
                snapshot.unnominate(key)
        snapshot.nominate(refused.pod_id, info, body.nominated_node)


def as_table(found: Manifest) -> str:
    """Return a decision as a text table: every node with its total or its reasons."""
    pod = found["pod"]
    head = f"{pod['namespace']}/{pod['name']}: {found['outcome']}"
    if found["nodeName"]:
        head += f" to {found['nodeName']}"
    nodes = found["nodes"]
    lines = [
        f"{head} at {found['at']} (decision {found['id']})",
        (
            f"{nodes['evaluated']} of {nodes['known']} nodes evaluated, {nodes['feasible']}"
            f" feasible; profile {found['profile']['schedulerName']} revision"
            f" {found['profile']['revision']}, snapshot {found['snapshotRevision']}"
        ),
    ]
    if found["message"]:
        lines.append(found["message"])
    if "verified" in found:
        lines.append(
            f"{found['source']}, {'verified' if found['verified'] else 'NOT VERIFIED'}"
            + "".join(f"; {text}" for text in found.get("differences") or ())
        )
    if "runtimeClass" in found:
        due = found["runtimeClass"]
        lines += [due["message"]] if "message" in due else []
        lines.append(f"From RuntimeClass {due['name']}: {_written(due)}")
    lines.append("")
    return "\n".join(lines + columns(_rows(found))) + "\n"


def _written(came: Manifest) -> str:
    """Return a RuntimeClass's contribution to a pod as text."""
    parts = [f"{k}={v}" for k, v in (came.get("nodeSelector") or {}).items()]
    parts += [f"toleration of {one.get('key', '')}" for one in came.get("tolerations") or ()]
    parts += [f"overhead {k} {v}" for k, v in (came.get("overhead") or {}).items()]
    return ", ".join(parts)


def _rows(found: Manifest) -> list[list[str]]:
    if "feasible" in found:
        scored = {
            name: (score["total"], score["weighted"]) for name, score in found["scores"].items()
        }
        for name in found["feasible"]:
            scored.setdefault(name, (0, {}))
    else:
        scored = {b["nodeName"]: (b["total"], b["weighted"]) for b in found["top"]}
    plugins = list(dict.fromkeys(name for _, by in scored.values() for name in by))
    rows = [["NODE", "TOTAL", *plugins, "REASON"]]
    chosen = found["nodeName"]
    order = sorted(scored.items(), key=lambda e: (e[0] != chosen, -e[1][0], e[0]))
    for name, (total, weighted) in order:
        mark = f"{name} *" if name == chosen else name
        rows.append([mark, str(total), *(str(weighted.get(p, 0)) for p in plugins), ""])
    if "infeasible" in found:
        for name, verdict in sorted(found["infeasible"].items()):
            reason = f"{verdict['plugin']}: {', '.join(verdict['reasons'])}"
            due = found.get("runtimeClass", {}).get("nodes", {}).get(name)
            if due:
                reason += f" (RuntimeClass: {_written(due)})"
            rows.append([name, "-", *("" for _ in plugins), reason])
    else:
        for rejection in found["rejections"]:
            reason = f"{rejection['plugin']}: {', '.join(rejection['reasons'])}"
            nodes = f"({rejection['nodes']} node{'' if rejection['nodes'] == 1 else 's'})"
            rows.append([nodes, "-", *("" for _ in plugins), reason])
    return rows
