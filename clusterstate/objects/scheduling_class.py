"""Scheduling classes: everything in a pod that can influence where it goes, and nothing else.

Pods made from one template differ in name, uid, times and status; none of these matter to a
scheduling decision. ``reduce`` keeps what does, as a smaller manifest of the same shape, so that
the engine decodes it with the ordinary ``Pod`` lens and computes masks and scores once per class.
Two pods with the same digest are interchangeable for scheduling. What a pod holds while it is
resized and where it is bound are per pod and therefore not part of the class.
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec

from clusterstate.objects.meta import Manifest

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
)
_PORT_FIELDS: Final = ("hostIP", "hostPort", "protocol")
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name")
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
            kept = {field: owner.get(field, "") for field in _OWNER_FIELDS}
            kept_metadata["ownerReferences"] = [{**kept, "controller": True}]
            break
    kept_spec: Manifest = {}
    for field in _SPEC_FIELDS:
        value = spec.get(field)
        if value or (value == 0 and field == "priority"):
            kept_spec[field] = value
    for field in ("containers", "initContainers"):
        if containers := spec.get(field):
            kept_spec[field] = [_reduce_container(container) for container in containers]
    images = [
        {"image": {"reference": volume["image"].get("reference", "")}}
        for volume in spec.get("volumes") or ()
        if volume.get("image")
    ]
    if images:
        kept_spec["volumes"] = images
    return {"metadata": kept_metadata, "spec": kept_spec}


def _reduce_container(container: Manifest) -> Manifest:
    kept: Manifest = {}
    if image := container.get("image"):
        kept["image"] = image
    if resources := container.get("resources"):
        amounts = {
            field: resources[field] for field in ("requests", "limits") if resources.get(field)
        }
        if amounts:
            kept["resources"] = amounts
    if ports := container.get("ports"):
        used: list[dict[str, Any]] = [
            {field: port[field] for field in _PORT_FIELDS if port.get(field)}
            for port in ports
            if port.get("hostPort")
        ]
        if used:
            kept["ports"] = used
    if container.get("restartPolicy"):
        kept["restartPolicy"] = container["restartPolicy"]
    return kept


def encode(manifest: Manifest) -> tuple[bytes, str]:
    """Return (digest of 16 bytes, the reduced manifest as canonical JSON) of a pod."""
    text = _encoder.encode(reduce(manifest))
    return blake2b(text, digest_size=DIGEST_SIZE).digest(), text.decode()
