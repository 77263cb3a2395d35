"""Scheduling classes: everything in a pod that can influence where it goes, and nothing else.

Pods made from one template differ in name, uid, times and status; none of these matter to a
scheduling decision. ``reduce`` keeps what does, as a smaller manifest of the same shape, so that
the engine decodes it with the ordinary ``Pod`` lens and computes masks and scores once per class.
Two pods with the same digest are interchangeable for scheduling. Where a pod is bound is not part
of the class. What it holds while it is resized is, as long as that differs from what it asks for:
the node has to bear the larger of the two (component-helpers ``resource/helpers.go``, v1.36).
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec

from clusterstate.objects.rules import resources
from clusterstate.objects.rules.declared_features import RESTART_ALL
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import QuantityError

DIGEST_SIZE: Final = 16

ANNOTATIONS: Final = "scheduling.stowage.dev/"
"""How annotations begin that plugins may decide by (R27). Others say nothing to scheduling: tools
write them into every pod, and each value would make a class of its own."""

_SPEC_FIELDS: Final = (
    "schedulerName",
    "priority",
    "preemptionPolicy",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "overhead",
    "resources",
    "hostNetwork",
    "schedulingGates",
    "schedulingGroup",
)
_VOLUME_FIELDS: Final = {
    "image": ("reference",),
    "persistentVolumeClaim": ("claimName",),
    "ephemeral": (),
    "csi": ("driver",),
    "awsElasticBlockStore": ("volumeID", "readOnly"),
    "gcePersistentDisk": ("pdName", "readOnly"),
    "azureDisk": ("diskURI",),
    "azureFile": ("secretName", "shareName"),
    "cinder": ("volumeID",),
    "vsphereVolume": ("volumePath",),
    "portworxVolume": ("volumeID",),
    "iscsi": ("iqn", "readOnly"),
    "rbd": ("monitors", "image", "pool", "readOnly"),
}
"""Sources of volumes, and what scheduling looks at of each."""
_PORT_FIELDS: Final = ("hostIP", "hostPort", "protocol")
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name")
_CONTAINERS: Final = (
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
)
_RESIZED: Final = frozenset({resources.CPU, resources.MEMORY})
_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_encoder: Final = msgspec.json.Encoder(order="sorted")


def reduce(manifest: Manifest) -> Manifest:
    """Return a smaller Pod manifest with everything that influences scheduling.

    Absent and empty values of whole fields are the same; inside affinity and spread constraints
    nothing is touched, because an empty selector and none differ in meaning.
    """
    metadata: Manifest = manifest.get("metadata") or {}
    spec: Manifest = manifest.get("spec") or {}
    kept_metadata: Manifest = {"namespace": metadata.get("namespace") or "default"}
    if labels := metadata.get("labels"):
        kept_metadata["labels"] = labels
    if annotations := {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(ANNOTATIONS)
    }:
        kept_metadata["annotations"] = annotations
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            named = {field: owner.get(field, "") for field in _OWNER_FIELDS}
            kept_metadata["ownerReferences"] = [{**named, "controller": True}]
            break
    kept_spec: Manifest = {}
    for field in _SPEC_FIELDS:
        value = spec.get(field)
        if value or (value == 0 and field == "priority"):
            kept_spec[field] = value
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        kept_spec["hostUsers"] = False
    for field in ("containers", "initContainers"):
        if containers := spec.get(field):
            kept_spec[field] = [_reduce_container(container) for container in containers]
    if volumes := [one for one in map(_reduce_volume, spec.get("volumes") or ()) if one]:
        kept_spec["volumes"] = volumes
        if any("ephemeral" in volume for volume in volumes):
            # Such a claim is named after its pod, and must be its own.
            kept_metadata |= {"name": metadata.get("name", ""), "uid": metadata.get("uid", "")}
    if claims := spec.get("resourceClaims"):
        kept_spec["resourceClaims"] = claims
        if any(one.get("resourceClaimTemplateName") is not None for one in claims):
            # Such a claim is its pod's own.
            kept_metadata |= {"name": metadata.get("name", ""), "uid": metadata.get("uid", "")}
    reduced: Manifest = {"metadata": kept_metadata, "spec": kept_spec}
    if status := manifest.get("status"):
        if claim_statuses := claims and status.get("resourceClaimStatuses"):
            reduced["status"] = {"resourceClaimStatuses": claim_statuses}
        amounts = status_amounts(spec, status)
        if amounts:
            reduced_status = {**amounts, **reduced.get("status", {})}
            resized = {**reduced, "spec": _with_names(kept_spec, spec), "status": reduced_status}
            if _counts_otherwise(reduced, resized):
                return resized
    return reduced


def _with_names(kept_spec: Manifest, spec: Manifest) -> Manifest:
    """Return the spec with its containers' names, by which their statuses are found."""
    named = {
        field: [
            {**reduced, "name": container.get("name", "")}
            for reduced, container in zip(kept_spec[field], spec[field], strict=True)
        ]
        for field, _ in _CONTAINERS
        if field in kept_spec
    }
    return {**kept_spec, **named}


def status_amounts(spec: Manifest, status: Manifest) -> Manifest:
    """Return the amounts in a pod's status that differ from its spec, empty if none does.

    Agents repeat for each container what it asks for; that says nothing.
    """
    infeasible = _is_infeasible(status)
    reduced: Manifest = {}
    for asking, telling in _CONTAINERS:
        if statuses := status.get(telling):
            requests_by_name = {
                one.get("name"): _requests(one.get("resources")) for one in spec.get(asking) or ()
            }
            holding = (
                {"name": one["name"], **amounts}
                for one in statuses
                if one.get("name") in requests_by_name
                and (amounts := _amounts(one, requests_by_name[one["name"]], infeasible=infeasible))
            )
            if differing := list(holding):
                reduced[telling] = differing
    if whole := _requests(spec.get("resources")):
        reduced |= _amounts(status, whole, infeasible=infeasible)
    if infeasible:
        reduced["conditions"] = [{"type": _PENDING, "status": "True", "reason": _INFEASIBLE}]
    return reduced


def _is_infeasible(status: Manifest) -> bool:
    for condition in status.get("conditions") or ():
        if condition.get("type") == _PENDING:
            return bool(condition.get("reason") == _INFEASIBLE)
    return False


def _requests(resources: Manifest | None) -> Manifest:
    return (resources or {}).get("requests") or {}


def _amounts(status: Manifest, requests: Manifest, *, infeasible: bool) -> Manifest:
    """Return the allocated and actual amounts in a container's status, of requested resources."""
    allocated, actual = status.get("allocatedResources") or {}, _requests(status.get("resources"))
    if allocated in ({}, requests) and actual in ({}, requests) and not infeasible:
        return {}
    reduced: Manifest = {}
    if allocated := _requested_amounts(allocated, requests):
        reduced["allocatedResources"] = allocated
    if actual := _requested_amounts(actual, requests):
        reduced["resources"] = {"requests": actual}
    return reduced


def _requested_amounts(amounts: Manifest, request: Manifest) -> Manifest:
    return {name: amount for name, amount in amounts.items() if name in request or name in _RESIZED}


def _counts_otherwise(plain: Manifest, resized: Manifest) -> bool:
    """Return whether the pod requests of two manifests differ."""
    try:
        before, after = (
            resources.pod_request_ints(msgspec.convert(one, Pod)) for one in (plain, resized)
        )
    except (msgspec.ValidationError, QuantityError):
        return False
    return before != after


def _reduce_volume(volume: Manifest) -> Manifest:
    """Return the fields of a volume that scheduling reads; maybe none."""
    for field, members in _VOLUME_FIELDS.items():
        if (source := volume.get(field)) is not None:
            reduced = {name: source[name] for name in members if source.get(name)}
            if field == "ephemeral":
                return {"name": volume.get("name", ""), field: reduced}
            return {field: reduced}
    return {}


def _reduce_container(container: Manifest) -> Manifest:
    reduced: Manifest = {}
    if image := container.get("image"):
        reduced["image"] = image
    if needs := container.get("resources"):
        amounts = {field: needs[field] for field in ("requests", "limits") if needs.get(field)}
        if amounts:
            reduced["resources"] = amounts
    if ports := container.get("ports"):
        used: list[dict[str, Any]] = [
            {field: port[field] for field in _PORT_FIELDS if port.get(field)}
            for port in ports
            if port.get("hostPort")
        ]
        if used:
            reduced["ports"] = used
    if container.get("restartPolicy"):
        reduced["restartPolicy"] = container["restartPolicy"]
    # What a node must have declared (``declared_features``).
    if any(one.get("action") == RESTART_ALL for one in container.get("restartPolicyRules") or ()):
        reduced["restartPolicyRules"] = [{"action": RESTART_ALL}]
    if any(one.get("bindMountOptions") for one in container.get("volumeMounts") or ()):
        reduced["volumeMounts"] = [{"bindMountOptions": ["any"]}]
    return reduced


def encode(manifest: Manifest) -> tuple[bytes, str]:
    """Return (digest of 16 bytes, the reduced manifest as canonical JSON) of a pod."""
    text = _encoder.encode(reduce(manifest))
    return blake2b(text, digest_size=DIGEST_SIZE).digest(), text.decode()


class _Parts(msgspec.Struct):
    metadata: dict[str, msgspec.Raw]
    spec: msgspec.Raw
    status: dict[str, msgspec.Raw] = {}


_decode_parts: Final = msgspec.json.Decoder(_Parts).decode
_OWN: Final = ("name", "uid")


def shared(text: str) -> str:
    """Return a class's JSON without what makes it a class of one pod, if claims of its own do.

    These are its name, its uid and the names of its claims: pods of one template share the rest.
    """
    if '"resourceClaimTemplateName"' not in text:
        return text
    parts = _decode_parts(text)
    for name in _OWN:
        parts.metadata.pop(name, None)
    parts.status.pop("resourceClaimStatuses", None)
    return msgspec.json.encode(parts).decode()
