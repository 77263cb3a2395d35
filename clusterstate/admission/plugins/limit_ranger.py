"""LimitRanger: default, minimal and maximal resources of containers, pods and claims.

The LimitRanges of the namespace first fill in what the containers of a new pod omit; after
validation they refuse what is below a minimum, above a maximum, or has a limit too many times its
request. Requests of containers change by ``pods/resize`` alone, so pods are checked when they are
created or resized, and claims at every change. Pods and claims that are being deleted are not
checked. Rule: plugin/pkg/admission/limitranger/admission.go, v1.36 and v1.38 (``_Amounts``).

Several LimitRanges are applied in the order of their names, where Kubernetes has none.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from clusterstate.admission.request import CREATE, UPDATE, Request
from clusterstate.objects.rules import resources
from clusterstate.objects.rules.resources import ResourceList
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import MAX_INT64, ZERO, Quantity

ANNOTATION: Final = "kubernetes.io/limit-ranger"
_CONTAINER_FIELDS: Final = (("containers", "container"), ("initContainers", "init container"))
_OF_SPEC: Final = resources.PodResourcesOptions(exclude_overhead=True)


def admit(request: Request) -> None:
    """Fill in requests and limits that containers do not state, of a new or a resized pod.

    A new pod gets an annotation about it; a resize changes no metadata.
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
    """Return whether the request creates a pod, or resizes one that is not being deleted."""
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
    """Fill in what containers omit, in place; return a phrase for each container that changed."""
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
    resources = container.get("resources") or {}
    present = resources.get(part) or {}
    missing = sorted(name for name in defaults if name not in present)
    if missing:
        filled = {**present, **{name: defaults[name] for name in missing}}
        container["resources"] = {**resources, part: filled}
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
        found = list(dict.fromkeys(violations(limit_range, request)))
        if found:
            raise request.forbidden(found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _items(limit_range: Manifest, type_: str | None = None) -> list[Manifest]:
    limits = (limit_range.get("spec") or {}).get("limits") or ()
    return [item for item in limits if type_ is None or item.get("type") == type_]


class _Amounts:
    """The amounts of a container, a pod or a claim, without those that a rule ignores.

    From 1.38 on a rule ignores requests and limits that an update leaves unchanged
    (kubernetes#142170, #142171); ``before``: amounts of the stored object. Amounts are compared
    exactly from 1.38 on (kubernetes#141348); until 1.37 as thousandths, and as whole units where
    one of them has too many thousandths.
    """

    def __init__(
        self,
        requests: ResourceList,
        limits: ResourceList,
        before: "_Amounts | None",
        version: Compatibility,
    ) -> None:
        self.requests = requests
        self.limits = limits
        self._before = before if version >= Compatibility.V1_38 else None
        self._exact = version >= Compatibility.V1_38

    def bounds(self, item: Manifest, field: str) -> Iterator[tuple[str, Quantity]]:
        """Yield name and amount of each bound in ``field`` of a LimitRange that applies here."""
        before = self._before
        parsed = _parsed(item.get(field) or {})
        for name, bound in sorted(parsed.items(), key=lambda one: one[0]):
            if before is None or (
                before.requests.get(name) != self.requests.get(name)
                or before.limits.get(name) != self.limits.get(name)
            ):
                yield name, bound

    def comparable(self, name: str, bound: Quantity) -> tuple[int, int, int]:
        """Return request, limit (0 where there is none) and bound as integers of one unit.

        Rule: ``requestLimitEnforcedValues``, plugin/pkg/admission/limitranger/admission.go.
        """
        amounts = [self.requests.get(name, ZERO), self.limits.get(name, ZERO), bound]
        if self._exact:
            request, limit, enforced = (one.nano for one in amounts)
        elif all(one.value() <= _MOST_THOUSANDTHS for one in amounts):
            request, limit, enforced = (one.milli_value() for one in amounts)
        else:
            request, limit, enforced = (one.value() for one in amounts)
        return request, limit, enforced

    def ratio_is_above(self, name: str, most: Quantity) -> bool:
        """Return whether the limit is more than ``most`` times the request; neither is 0."""
        request, limit, _ = self.comparable(name, most)
        if self._exact:
            return limit * 10**9 > request * most.nano
        ratio = limit / request
        if most.value() <= _MOST_THOUSANDTHS:
            return ratio * 1000 > most.milli_value()
        return ratio > most.value()


_MOST_THOUSANDTHS: Final = MAX_INT64 // 1000


def _pod_violations(limit_range: Manifest, request: Request) -> Iterator[str]:
    old = request.old if request.operation == UPDATE else None
    version = request.context.settings.compatibility
    for item in _items(limit_range):
        if item.get("type") == "Container":
            before = {} if old is None else dict(_containers(old, {}, version))
            for _, amounts in _containers(request.manifest, before, version):
                yield from _violations(item, amounts)
        elif item.get("type") == "Pod":
            stored = None if old is None else _whole(old, None, version)
            yield from _violations(item, _whole(request.manifest, stored, version))


def _containers(
    pod: Manifest, before: Mapping[str, _Amounts], version: Compatibility
) -> Iterator[tuple[str, _Amounts]]:
    """Yield the containers by name; ``before``: those of the stored pod."""
    spec = pod.get("spec") or {}
    for field, _ in _CONTAINER_FIELDS:
        for container in spec.get(field) or ():
            resources, name = container.get("resources") or {}, container.get("name") or ""
            requests = _parsed(resources.get("requests") or {})
            limits = _parsed(resources.get("limits") or {})
            yield name, _Amounts(requests, limits, before.get(name), version)


def _whole(manifest: Manifest, before: _Amounts | None, version: Compatibility) -> _Amounts:
    pod = msgspec.convert(manifest, Pod)
    requests, limits = resources.pod_requests(pod, _OF_SPEC), resources.pod_limits(pod, _OF_SPEC)
    return _Amounts(requests, limits, before, version)


def _claim_violations(limit_range: Manifest, request: Request) -> Iterator[str]:
    """Yield the violations of a claim, whose requests must be within minimum and maximum."""
    old = request.old if request.operation == UPDATE else None
    version = request.context.settings.compatibility
    before = None if old is None else _Amounts(_claimed(old), {}, None, version)
    amounts = _Amounts(_claimed(request.manifest), {}, before, version)
    for item in _items(limit_range, "PersistentVolumeClaim"):
        type_ = item["type"]
        yield from _below(item, amounts)
        for name, high in amounts.bounds(item, "max"):
            says = f"maximum {name} usage per {type_} is {high}"
            requested, _, most = amounts.comparable(name, high)
            if name not in amounts.requests:
                yield f"{says}.  No request is specified"
            elif requested > most:
                yield f"{says}, but request is {amounts.requests[name]}"


def _claimed(manifest: Manifest) -> ResourceList:
    resources = (manifest.get("spec") or {}).get("resources") or {}
    return _parsed(resources.get("requests") or {})


def _parsed(amounts: Mapping[str, str | int | float]) -> ResourceList:
    return resources.parse_resources(amounts)


def _violations(item: Manifest, amounts: _Amounts) -> Iterator[str]:
    type_, requests, limits = item["type"], amounts.requests, amounts.limits
    yield from _below(item, amounts)
    for name, high in amounts.bounds(item, "max"):
        request, limit, most = amounts.comparable(name, high)
        says = f"maximum {name} usage per {type_} is {high}"
        if name not in limits:
            yield f"{says}.  No limit is specified"
        elif limit > most:
            yield f"{says}, but limit is {limits[name]}"
        elif name in requests and request > most:
            yield f"{says}, but request is {requests[name]}"
    for name, ratio in amounts.bounds(item, "maxLimitRequestRatio"):
        request, limit, _ = amounts.comparable(name, ratio)
        says = f"{name} max limit to request ratio per {type_} is {ratio}"
        if not request:
            yield f"{says}, but no request is specified or request is 0"
        elif not limit:
            yield f"{says}, but no limit is specified or limit is 0"
        elif amounts.ratio_is_above(name, ratio):
            yield f"{says}, but provided ratio is {limit / request:f}"


def _below(item: Manifest, amounts: _Amounts) -> Iterator[str]:
    for name, low in amounts.bounds(item, "min"):
        says = f"minimum {name} usage per {item['type']} is {low}"
        request, limit, least = amounts.comparable(name, low)
        if name not in amounts.requests:
            yield f"{says}.  No request is specified"
        elif request < least:
            yield f"{says}, but request is {amounts.requests[name]}"
        elif name in amounts.limits and limit < least:
            yield f"{says}, but limit is {amounts.limits[name]}"
