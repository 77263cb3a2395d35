"""Area volumebinder: which volumes a pod's claims get on a node, and what is written of it."""

from collections.abc import Callable
from typing import Any

import msgspec

from clusterstate.objects.rules.volume_matching import (
    MatchingError,
    check_node_affinity,
    find_matching_volume,
    modes_differ,
    named_by,
    with_annotation,
)
from clusterstate.objects.values.meta import Manifest, strip_nulls
from clusterstate.objects.values.storage import (
    KINDS,
    SELECTED_NODE,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeNodeAffinity,
)
from scheduling.framework import volume_binder as binder
from scheduling.framework.volume_table import VolumeTable
from tests.conformance import Skip
from tests.conformance.cluster_cases import Case, Outcome, differences, read, read_pod
from tests.harness import VOLUME_MEMBERS


def read_volumes(case: Case, table: VolumeTable | None = None) -> VolumeTable:
    """Return a table of the case's volumes, claims and the like."""
    made = table or VolumeTable()
    for member, kind in VOLUME_MEMBERS.items():
        for value in read(KINDS[kind], case.get(member)):
            made.set(value)
    return made


def _seen(case: Case, node: Manifest) -> binder.NodeSeen:
    name = node["metadata"]["name"]
    csi = {one.metadata.name: one for one in read(CSINode, case.get("csiNodes"))}
    return binder.NodeSeen(name, node["metadata"].get("labels") or {}, csi.get(name))


def _find_pod_volumes(case: Case) -> Outcome:
    table, pod = read_volumes(case), read_pod(case)
    try:
        claims = binder.pod_volume_claims(table, pod.metadata, pod.spec.volumes)
        if claims.immediate:
            return {"error": binder.UNBOUND_IMMEDIATE}
        found, reasons = binder.find_pod_volumes(table, claims, _seen(case, case["node"]))
    except (binder.BinderError, MatchingError) as error:
        return {"error": str(error)}
    shown: Outcome = {
        "bindings": [
            {"claim": claim.metadata.name, "volume": volume.metadata.name}
            for claim, volume in found.bindings
        ],
        "provisions": [
            {
                "claim": one.claim.metadata.name,
                **({"capacity": one.capacity.metadata.name} if one.capacity else {}),
            }
            for one in found.provisions
        ],
    }
    return {"podVolumes": shown, "reasons": sorted(reasons)}


def _named(manifests: list[Manifest] | None) -> dict[str, Manifest]:
    return {one["metadata"]["name"]: one for one in strip_nulls(manifests or [])}


def _assume(case: Case) -> Outcome:
    if "out of sync" in case["expect"].get("error", ""):
        raise Skip("the versions that differ are not in the case")
    claims = _named(case.get("persistentVolumeClaims"))
    volumes = _named(case.get("persistentVolumes"))
    table, pod = read_volumes(case), read_pod(case)
    known = binder.pod_volume_claims(table, pod.metadata, pod.spec.volumes)
    if not known.delayed and not known.immediate:
        return {"allBound": True}
    return {
        "allBound": False,
        "bindings": [
            {
                "claim": claims[one["claim"]],
                "volume": named_by(volumes[one["volume"]], claims[one["claim"]]),
            }
            for one in case["bindings"]
        ],
        "provisions": [
            {"claim": with_annotation(claims[one["claim"]], SELECTED_NODE, case["node"])}
            for one in case["provisions"]
        ],
    }


def _stored(case: Case) -> binder.StoredVolumes:
    return binder.StoredVolumes(
        claims={
            (one["metadata"]["namespace"], one["metadata"]["name"]): one
            for one in strip_nulls(case.get("apiPersistentVolumeClaims") or [])
        },
        volumes=_named(case.get("apiPersistentVolumes")),
    )


def _pairs(case: Case) -> list[tuple[Manifest, Manifest]]:
    return [(one["claim"], one["volume"]) for one in strip_nulls(case["bindings"])]


def _write(case: Case) -> Outcome:
    stored = _stored(case)
    claims, volumes = dict(stored.claims), dict(stored.volumes)
    conflict = False
    for one, may in binder.updates(stored, _pairs(case), strip_nulls(case["provisions"])):
        meta = one["metadata"]
        if not may:
            conflict = True
        elif "namespace" in meta:
            claims[meta["namespace"], meta["name"]] = one
        else:
            volumes[meta["name"]] = one
    found: Outcome = {"error": "conflict"} if conflict else {}
    if volumes:
        found["persistentVolumes"] = list(volumes.values())
    if claims:
        found["persistentVolumeClaims"] = list(claims.values())
    return found


def _check(case: Case) -> Outcome:
    if not {"bindings", "nodes", "provisions"} <= case.keys():
        raise Skip("nobody asks without lists, and without the node")
    try:
        done = binder.check_bindings(
            _stored(case),
            _seen(case, case["nodes"][0]),
            _pairs(case),
            strip_nulls(case["provisions"]),
        )
    except binder.BinderError as error:
        return {"allBound": False, "error": str(error)}
    return {"allBound": done}


def _score(case: Case) -> Outcome:
    resources = {name: (one["Requested"], one["Capacity"]) for name, one in case["classes"].items()}
    shape = [(point["Utilization"], point["Score"]) for point in case["shape"]]
    return {"score": binder.capacity_score(shape, resources)}


def _match(case: Case) -> Outcome:
    node = case.get("node")
    try:
        found = find_matching_volume(
            msgspec.convert(strip_nulls(case["claim"]), PersistentVolumeClaim),
            read(PersistentVolume, case["volumes"]),
            node_labels=None if node is None else node["metadata"].get("labels") or {},
            excluded=case.get("excluded") or (),
            delay_binding=case["delayBinding"],
            attributes_classes=case["volumeAttributesClass"],
        )
    except MatchingError as error:
        return {"error": str(error)}
    return {} if found is None else {"match": found.metadata.name}


def _node_affinity(case: Case) -> Outcome:
    affinity = msgspec.convert(strip_nulls(case.get("nodeAffinity")), VolumeNodeAffinity | None)
    problem = check_node_affinity(affinity, case.get("nodeLabels") or {})
    return {"error": problem} if problem else {}


OPERATIONS: dict[str, Callable[[Case], Outcome]] = {
    "findPodVolumes": _find_pod_volumes,
    "assumePodVolumes": _assume,
    "bindAPIUpdate": _write,
    "checkBindings": _check,
    "capacityScore": _score,
    "findMatchingVolume": _match,
    "volumeModeMismatch": lambda case: {
        "result": modes_differ(case.get("claimMode"), case.get("volumeMode"))
    },
    "volumeNodeAffinity": _node_affinity,
}


def _without_versions(value: Any) -> Any:
    """Return written objects without the version, which the server gives."""
    if isinstance(value, list):
        return [_without_versions(one) for one in value]
    if isinstance(value, dict) and "metadata" in value:
        meta = {k: v for k, v in value["metadata"].items() if k != "resourceVersion"}
        return {**value, "metadata": meta}
    return value


UNREAD = {"cachedPersistentVolumeClaims", "cachedPersistentVolumes"}
"""There is no cache; a write is refused where the stored version is another one."""


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    found, expect = OPERATIONS[case["op"]](case), strip_nulls(case["expect"])
    if case["op"] == "bindAPIUpdate":
        found = {name: _without_versions(value) for name, value in found.items()}
        expect = {name: _without_versions(value) for name, value in expect.items()}
    return "; ".join(differences(expect, found)) or None
