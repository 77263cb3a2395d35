"""LimitRanger: what containers, pods and claims of a namespace may ask for, and ask for unsaid.

The LimitRanges of the namespace first fill in what the containers of a new pod leave out; after
validation they refuse what is below a minimum, above a maximum, or limited at too many times its
request. What containers ask for changes by ``pods/resize`` alone, so that pods are looked at when
they are created or resized, and claims whenever they are changed. Pods and claims that are being
deleted are left alone. Rule: plugin/pkg/admission/limitranger/admission.go, v1.36.

Several LimitRanges are applied in the order of their names, where Kubernetes has none.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from clusterstate.admission.request import CREATE, UPDATE, Request
from clusterstate.objects.rules import resources
from clusterstate.objects.rules.resources import ResourceList
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import Quantity

ANNOTATION: Final = "kubernetes.io/limit-ranger"
_CONTAINER_FIELDS: Final = (("containers", "container"), ("initContainers", "init container"))
_OF_SPEC: Final = resources.PodResourcesOptions(exclude_overhead=True)


def admit(request: Request) -> None:
    """Fill in requests and limits that containers do not state, of a new or a resized pod.

    A new pod says so in an annotation; a resize changes no metadata.
    """
    if not _is_looked_at(request):
        return
    for limit_range in request.context.limit_ranges(request.namespace):
        set_there = _fill_in(limit_range, request.manifest)
        if set_there and request.operation == CREATE:
            metadata = request.manifest["metadata"]
            annotations = dict(metadata.get("annotations") or {})
            annotations[ANNOTATION] = "LimitRanger plugin set: " + "; ".join(set_there)
            metadata["annotations"] = annotations


def _is_looked_at(request: Request) -> bool:
    """Return whether this creates a pod, or resizes one that is not being deleted."""
    if request.kind != "Pod":
        return False
    if request.operation == CREATE:
        return not request.subresource
    return (
        request.operation == UPDATE
        and request.subresource == "resize"
        and not _is_being_deleted(request)
    )


def _is_being_deleted(request: Request) -> bool:
    return bool(((request.old or {}).get("metadata") or {}).get("deletionTimestamp"))


def _fill_in(limit_range: Manifest, pod: Manifest) -> list[str]:
    """Fill in what containers leave out, in place; return what was set where, in words."""
    defaults: dict[str, Manifest] = {"limits": {}, "requests": {}}
    for item in _items(limit_range, "Container"):
        defaults["limits"].update(item.get("default") or {})
        defaults["requests"].update(item.get("defaultRequest") or {})
    set_there: list[str] = []
    spec = pod.get("spec") or {}
    for field, called in _CONTAINER_FIELDS:
        for container in spec.get(field) or ():
            name = container.get("name") or ""
            for part, word in (("requests", "request"), ("limits", "limit")):
                names = _merge(container, part, defaults[part])
                if names:
                    set_there.append(f"{', '.join(names)} {word} for {called} {name}")
    return set_there


def _merge(container: Manifest, part: str, defaults: Manifest) -> list[str]:
    """Add the defaults that a container lacks, in place; return their names in order."""
    stated = container.get("resources") or {}
    present = stated.get(part) or {}
    missing = sorted(name for name in defaults if name not in present)
    if missing:
        filled = {**present, **{name: defaults[name] for name in missing}}
        container["resources"] = {**stated, part: filled}
    return missing


def validate(request: Request) -> None:
    """Refuse a pod or a claim that violates a LimitRange of its namespace.

    Raises:
        Forbidden: with everything that one LimitRange finds wrong.
    """
    if _is_looked_at(request):
        violations = _pod_violations
    elif request.subresource:
        return
    elif request.kind == "PersistentVolumeClaim" and request.operation in (CREATE, UPDATE):
        if _is_being_deleted(request):
            return
        violations = _claim_violations
    else:
        return
    for limit_range in request.context.limit_ranges(request.namespace):
        found = list(dict.fromkeys(violations(limit_range, request.manifest)))
        if found:
            raise request.forbidden(found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _items(limit_range: Manifest, type_: str) -> list[Manifest]:
    limits = (limit_range.get("spec") or {}).get("limits") or ()
    return [item for item in limits if item.get("type") == type_]


def _pod_violations(limit_range: Manifest, manifest: Manifest) -> Iterable[str]:
    spec = manifest.get("spec") or {}
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            for field, _ in _CONTAINER_FIELDS:
                for container in spec.get(field) or ():
                    stated = container.get("resources") or {}
                    requests, limits = stated.get("requests") or {}, stated.get("limits") or {}
                    yield from _violations(item, _parsed(requests), _parsed(limits))
        elif item.get("type") == "Pod":
            pod = msgspec.convert(manifest, Pod)
            requests, limits = (
                resources.pod_requests(pod, _OF_SPEC),
                resources.pod_limits(pod, _OF_SPEC),
            )
            yield from _violations(item, requests, limits)


def _claim_violations(limit_range: Manifest, manifest: Manifest) -> Iterable[str]:
    """Claims have requests only, which minimum and maximum are compared with."""
    stated = (manifest.get("spec") or {}).get("resources") or {}
    requests = _parsed(stated.get("requests") or {})
    for item in _items(limit_range, "PersistentVolumeClaim"):
        type_ = item["type"]
        for name, low in _bounds(item, "min"):
            yield from _below(type_, name, low, requests.get(name), None)
        for name, high in _bounds(item, "max"):
            asked = requests.get(name)
            says = f"maximum {name} usage per {type_} is {high}"
            if asked is None:
                yield f"{says}.  No request is specified"
            elif asked > high:
                yield f"{says}, but request is {asked}"


def _parsed(amounts: Mapping[str, str | int | float]) -> ResourceList:
    return resources.parse_resources(amounts)


def _bounds(item: Manifest, field: str) -> list[tuple[str, Quantity]]:
    return sorted(_parsed(item.get(field) or {}).items(), key=lambda bound: bound[0])


def _violations(item: Manifest, requests: ResourceList, limits: ResourceList) -> Iterable[str]:
    type_ = item["type"]
    for name, low in _bounds(item, "min"):
        yield from _below(type_, name, low, requests.get(name), limits.get(name))
    for name, high in _bounds(item, "max"):
        asked, limit = requests.get(name), limits.get(name)
        says = f"maximum {name} usage per {type_} is {high}"
        if limit is None:
            yield f"{says}.  No limit is specified"
        elif limit > high:
            yield f"{says}, but limit is {limit}"
        elif asked is not None and asked > high:
            yield f"{says}, but request is {asked}"
    for name, most in _bounds(item, "maxLimitRequestRatio"):
        asked, limit = requests.get(name), limits.get(name)
        says = f"{name} max limit to request ratio per {type_} is {most}"
        if not asked:
            yield f"{says}, but no request is specified or request is 0"
        elif not limit:
            yield f"{says}, but no limit is specified or limit is 0"
        elif limit.nano * 10**9 > asked.nano * most.nano:
            yield f"{says}, but provided ratio is {limit.nano / asked.nano:f}"


def _below(
    type_: str, name: str, low: Quantity, asked: Quantity | None, limit: Quantity | None
) -> Iterable[str]:
    says = f"minimum {name} usage per {type_} is {low}"
    if asked is None:
        yield f"{says}.  No request is specified"
    elif asked < low:
        yield f"{says}, but request is {asked}"
    elif limit is not None and limit < low:
        yield f"{says}, but limit is {limit}"
