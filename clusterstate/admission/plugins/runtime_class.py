"""RuntimeClass: node selector, tolerations and overhead are added to a pod (R42-R60, R137-R146).

The nodeSelector of the class is added to the pod's; a conflict rejects the pod. Tolerations are
united; the overhead is written into the pod. An annotation has what came from the class, so that an
explanation can name the RuntimeClass as the cause (C7, R53). Rule:
plugin/pkg/admission/runtimeclass/admission.go, v1.36.

With the setting ``wait_for_runtime_class`` a pod whose class is missing is not rejected: a
scheduling gate holds it until the class appears (C8); `resume` then merges the class and removes
the gate.
"""

from typing import Any

import msgspec

from clusterstate.admission.request import CREATE, Request
from clusterstate.admission.validation.core.resources import parse
from clusterstate.objects.rules.matching import merge_tolerations
from clusterstate.objects.rules.own_annotations import PROVENANCE
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Toleration

WAIT_GATE = "stowage.dev/runtime-class"


class Conflict(ValueError):
    """Pod and class contradict each other; the message is Kubernetes' own."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Parts of a pod that come from its RuntimeClass: nodeSelector keys, and tolerations."""

    name: str
    node_selector: tuple[str, ...] = ()
    tolerations: tuple[Manifest, ...] = ()


_decode = msgspec.json.Decoder(Provenance).decode


def provenance(pod: Manifest) -> Provenance | None:
    """Return what the pod's RuntimeClass added to it; ``None`` if it added nothing."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(PROVENANCE)
    if not text:
        return None
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None  # the annotation was written by hand


def admit(request: Request) -> None:
    """Merge the pod's RuntimeClass into it.

    Raises:
        Forbidden: the class is missing, its nodeSelector conflicts, or the pod states another
            overhead (C14).
        BadRequest: the body is no Pod.
    """
    if not request.is_pod() or request.operation != CREATE:
        return
    spec = request.manifest.get("spec") or {}
    if spec.get("runtimeClassName") is None and "overhead" not in spec:
        return
    request.require_pod_body()
    runtime_class = find(request)
    if runtime_class is None:
        if spec.get("runtimeClassName") is not None:
            _wait(request)
        return
    try:
        merge(request.manifest, runtime_class)
    except Conflict as conflict:
        raise request.forbidden(str(conflict)) from conflict


def find(request: Request) -> Manifest | None:
    """Return the pod's RuntimeClass, ``None`` if it names none, or may wait for a missing one.

    Raises:
        Forbidden: the class is missing, and pods do not wait, or this pod names its node: a waiting
            pod has a scheduling gate, and only a pod without gates may have a node.
    """
    spec = request.manifest.get("spec") or {}
    name = spec.get("runtimeClassName")
    if name is None:
        return None
    runtime_class = request.context.runtime_class(name)
    waits = request.context.settings.wait_for_runtime_class and not spec.get("nodeName")
    if runtime_class is None and not waits:
        raise request.forbidden(f'pod rejected: RuntimeClass "{name}" not found')
    return runtime_class


def _wait(request: Request) -> None:
    gates = request.manifest["spec"].setdefault("schedulingGates", [])
    if {"name": WAIT_GATE} not in gates:
        gates.append({"name": WAIT_GATE})
    name = request.manifest["spec"]["runtimeClassName"]
    request.warnings.append(f'RuntimeClass "{name}" not found: the pod waits until it is created')


def merge(pod: Manifest, runtime_class: Manifest) -> None:
    """Merge overhead and scheduling of the class into ``pod``, and note what was added.

    Raises:
        Conflict: with the reason.
    """
    before = pod["spec"]
    own_selector = dict(before.get("nodeSelector") or {})
    own_tolerations = list(before.get("tolerations") or ())
    set_overhead(pod, runtime_class)
    set_scheduling(pod, runtime_class)
    selector = tuple(
        sorted(key for key in before.get("nodeSelector") or {} if key not in own_selector)
    )
    tolerations = tuple(t for t in before.get("tolerations") or () if t not in own_tolerations)
    if selector or tolerations:
        note = Provenance(
            name=before.get("runtimeClassName", ""),
            node_selector=selector,
            tolerations=tolerations,
        )
        annotations = pod.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[PROVENANCE] = msgspec.json.encode(note).decode()


def resume(pod: Manifest, runtime_class: Manifest) -> Manifest:
    """Return a pod that waited for its RuntimeClass, with the class merged and the gate removed.

    Raises:
        Conflict: pod and class disagree; the pod must keep waiting.
    """
    resumed: Manifest = msgspec.json.decode(msgspec.json.encode(pod))
    if resumed["spec"].get("overhead") is not None and _pod_fixed(runtime_class) is None:
        raise Conflict(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )
    merge(resumed, runtime_class)
    gates = [g for g in resumed["spec"].get("schedulingGates") or () if g.get("name") != WAIT_GATE]
    if gates:
        resumed["spec"]["schedulingGates"] = gates
    else:
        resumed["spec"].pop("schedulingGates", None)
    return resumed


def set_overhead(pod: Manifest, runtime_class: Manifest) -> None:
    """Write the overhead of the class into the pod (R137).

    Raises:
        Conflict: the pod states another one (C14).
    """
    fixed = _pod_fixed(runtime_class)
    if fixed is None:
        return
    spec = pod.setdefault("spec", {})
    overhead = spec.get("overhead")
    if overhead is not None and not _equal(overhead, fixed):
        raise Conflict("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if fixed:
        spec["overhead"] = dict(fixed)


def set_scheduling(pod: Manifest, runtime_class: Manifest) -> None:
    """Unite nodeSelector and tolerations of pod and class (R47-R49).

    Raises:
        Conflict: both select on the same key with different values (R48).
    """
    scheduling = runtime_class.get("scheduling")
    if not scheduling:
        return
    spec = pod.setdefault("spec", {})
    added = scheduling.get("nodeSelector") or {}
    if added:
        selector = spec.setdefault("nodeSelector", {})
        for key, value in added.items():
            own = selector.get(key)
            if own is not None and own != value:
                raise Conflict(
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                    f"pod.spec.nodeSelector[{key}] = {own}"
                )
            selector[key] = value
    tolerations = scheduling.get("tolerations") or []
    if tolerations:
        spec["tolerations"] = unite_tolerations(spec.get("tolerations") or [], tolerations)


def unite_tolerations(first: list[Manifest], second: list[Manifest]) -> list[Manifest]:
    """Return the union as manifests, without those that another one covers."""
    everything = [*first, *second]
    original: dict[int, Manifest] = {}
    values: list[Toleration] = []
    for toleration in everything:
        value = msgspec.convert(toleration, Toleration)
        original[id(value)] = toleration
        values.append(value)
    merged = merge_tolerations(values[: len(first)], values[len(first) :])
    return [original[id(value)] for value in merged]


def validate(request: Request) -> None:
    """Refuse an overhead that is not the one of the class.

    Raises:
        Forbidden: it differs, or no class defines one.
    """
    if not request.is_pod() or request.operation != CREATE:
        return
    spec = request.manifest.get("spec") or {}
    name = spec.get("runtimeClassName")
    if name is None and "overhead" not in spec:
        return
    runtime_class = find(request)
    if runtime_class is None and name is not None:
        return  # # the pod waits; its overhead is checked when the class appears
    validate_overhead(request, runtime_class)


def validate_overhead(request: Request, runtime_class: Manifest | None) -> None:
    """Refuse an overhead that is not the one of ``runtime_class``.

    Raises:
        Forbidden: it differs, or no class defines one.
    """
    overhead = (request.manifest.get("spec") or {}).get("overhead")
    fixed = _pod_fixed(runtime_class)
    if fixed is not None:
        if not _equal(overhead or {}, fixed):
            raise request.forbidden(
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            )
    elif overhead is not None:
        raise request.forbidden(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )


def _pod_fixed(runtime_class: Manifest | None) -> dict[str, Any] | None:
    overhead = (runtime_class or {}).get("overhead")
    return None if overhead is None else overhead.get("podFixed") or {}


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two resource lists hold the same amounts, however they are written."""
    if one.keys() != other.keys():
        return False
    return all(
        value == other[name] or parse(value) == parse(other[name]) for name, value in one.items()
    )
