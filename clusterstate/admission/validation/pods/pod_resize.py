"""Validation of ``pods/resize``: the fields that may change, and how.

CPU and memory of containers, and of the pod as a whole, may change. A request or limit that is
stated cannot be removed, and the pod keeps its QoS class. Rule: ``ValidatePodResize``,
pkg/apis/core/validation/validation.go, v1.36, with the feature gates that are on there by default
(InPlacePodLevelResourcesVerticalScaling, InPlacePodVerticalScalingInitContainers).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from clusterstate.admission.validation.core.field import Errors, forbidden, invalid
from clusterstate.admission.validation.core.metadata import validate_object_meta_update
from clusterstate.admission.validation.core.options import PodOptions
from clusterstate.admission.validation.pods import validate_pod
from clusterstate.admission.validation.pods.pod_updates import same_spec
from clusterstate.objects.rules.resources import qos_class
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import MIRROR_POD, Pod
from clusterstate.objects.values.quantity import QuantityError

_ROOT: Final = "[]"
"""How Kubernetes writes the path of the object itself."""
_MUTABLE: Final = ("cpu", "memory")
_ONLY: Final = "only cpu and memory resources are mutable"


def validate_pod_resize(new: Manifest, old: Manifest, options: PodOptions) -> Errors:
    """Return the errors in a pod that is to be resized.

    ``new`` differs from ``old`` in resources and resize policies only, unless containers were
    added, removed, renamed or reordered (``PodStrategy``).
    """
    errors = validate_object_meta_update(new.get("metadata") or {}, old.get("metadata") or {})
    errors += validate_pod(new, options)
    spec, former = new.get("spec") or {}, old.get("spec") or {}
    if MIRROR_POD in ((old.get("metadata") or {}).get("annotations") or {}):
        return [forbidden(_ROOT, "static pods cannot be resized")]
    if (former.get("os") or {}).get("name") == "windows":
        return [forbidden(_ROOT, "windows pods cannot be resized")]
    errors += _class_changes(spec, old)
    if not _is_supported(old):
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    munged = dict(spec)
    if _states_amounts(spec) or _states_amounts(former):
        errors += _pod_level(munged, former)
    if (old.get("status") or {}).get("nodeAllocatableResourceClaimStatuses"):
        detail = "pods with node allocatable resource claims cannot be resized"
        errors.append(forbidden("spec", detail))
    if moved := _moved(spec, former):
        return errors + moved
    for field in ("initContainers", "containers"):
        pairs = list(zip(spec.get(field) or (), former.get(field) or (), strict=True))
        for index, (container, before) in enumerate(pairs):
            errors += _removed(
                container.get("resources") or {},
                before.get("resources") or {},
                f"spec.{field}[{index}].resources",
                "resource ",
            )
        if pairs:
            munged[field] = [_with_former_amounts(one, before) for one, before in pairs]
    errors += _containers(munged, former)
    errors += _init_containers(spec, munged, former)
    if errors or same_spec(munged, former):
        return errors
    return [forbidden("spec", _ONLY)]


def _class_changes(spec: Manifest, old: Manifest) -> Errors:
    """Return the error if the pod's QoS class would change."""
    status = old.get("status") or {}
    try:
        after = qos_class(msgspec.convert({"spec": spec}, Pod))
        before = status.get("qosClass") or qos_class(msgspec.convert(old, Pod))
    except (msgspec.ValidationError, QuantityError):
        return []  # validation names the field
    if before == after:
        return []
    detail = "Pod QOS Class may not change as a result of resizing"
    return [invalid("spec", status.get("qosClass") or "", detail)]


def _is_supported(old: Manifest) -> bool:
    """Return whether the first running container reports resources, as agents that resize do."""
    for container_status in (old.get("status") or {}).get("containerStatuses") or ():
        if (container_status.get("state") or {}).get("running") is not None:
            return container_status.get("resources") is not None
    return True


def _states_amounts(spec: Manifest) -> bool:
    resources = spec.get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))


def _pod_level(munged: Manifest, former: Manifest) -> Errors:
    """Return the errors in pod-level resources; restore those before the change."""
    resources, before = munged.get("resources"), former.get("resources")
    if before is not None and resources is None:
        return [forbidden("spec.resources", "pod-level resources cannot be removed")]
    errors: Errors = []
    if before is not None:
        errors += _removed(resources or {}, before, "spec.resources", "pod-level resource ")
    restored = _former_amounts(resources or {}, before or {})
    if before is None and not any(restored.values()):
        munged.pop("resources", None)
    else:
        munged["resources"] = restored
    if not same_spec({"resources": munged.get("resources")}, {"resources": before}):
        errors.append(forbidden("spec", f"{_ONLY} at pod-level"))
    return errors


def _moved(spec: Manifest, former: Manifest) -> Errors:
    """Return the errors of containers that were added, removed or renamed."""
    errors: Errors = []
    for field in ("containers", "initContainers"):
        containers, before = spec.get(field) or (), former.get(field) or ()
        if len(containers) != len(before):
            detail = f"{field} may not be added or removed on resize"
            errors.append(forbidden(f"spec.{field}", detail))
            continue
        errors += [
            forbidden(
                f"spec.{field}[{index}].name", f"{field} may not be renamed or reordered on resize"
            )
            for index, (one, other) in enumerate(zip(containers, before, strict=True))
            if one.get("name") != other.get("name")
        ]
    return errors


def _removed(
    resources: Mapping[str, Any], before: Mapping[str, Any], path: str, called: str
) -> Errors:
    """Return the errors of requests and limits that were removed."""
    return [
        forbidden(f"{path}.{part}", f"{called}{part} cannot be removed")
        for part in ("requests", "limits")
        if (before.get(part) or {}).keys() - (resources.get(part) or {}).keys()
    ]


def _former_amounts(resources: Manifest, before: Manifest) -> Manifest:
    """Return requests and limits with the former CPU and memory."""
    found: Manifest = {}
    for part in ("limits", "requests"):
        amounts = resources.get(part) or {}
        old_amounts = before.get(part) or {}
        restored = {name: amount for name, amount in amounts.items() if name not in _MUTABLE}
        restored |= {name: old_amounts[name] for name in _MUTABLE if name in old_amounts}
        if restored:
            found[part] = restored
    return found


def _with_former_amounts(container: Manifest, before: Manifest) -> Manifest:
    """Return a container with its former CPU and memory.

    Claims are omitted, so that no container with claims can be resized, as in Kubernetes.
    """
    restored = _former_amounts(container.get("resources") or {}, before.get("resources") or {})
    return {**container, "resources": restored}


def _same(one: Manifest, other: Manifest) -> bool:
    return same_spec({"containers": [one]}, {"containers": [other]})


def _containers(munged: Manifest, former: Manifest) -> Errors:
    pairs = zip(munged.get("containers") or (), former.get("containers") or (), strict=True)
    return [forbidden("spec", _ONLY) for one, before in pairs if not _same(one, before)]


def _init_containers(spec: Manifest, munged: Manifest, former: Manifest) -> Errors:
    errors: Errors = []
    containers = spec.get("initContainers") or ()
    restored, before = munged.get("initContainers") or (), former.get("initContainers") or ()
    for index, (one, unresized, other) in enumerate(zip(containers, restored, before, strict=True)):
        where = f"spec.initContainers[{index}]"
        if not _same(unresized, other):
            detail = "only cpu and memory resources for init or sidecar containers are mutable"
            errors.append(forbidden(where, detail))
        if one.get("restartPolicy") == "Always" or _same(one, other):
            continue
        if any(p.get("restartPolicy") == "RestartContainer" for p in one.get("resizePolicy") or ()):
            detail = (
                "non-sidecar init containers with a resize policy of RestartContainer cannot be"
                " resized"
            )
            errors.append(forbidden(where, detail))
    return errors
