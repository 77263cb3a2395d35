"""PodTolerationRestriction: a namespace's default tolerations, and those it allows.

Off by default. Namespaces state both in annotations; the settings hold the cluster's own for
namespaces that state nothing. Rule: plugin/pkg/admission/podtolerationrestriction/admission.go,
v1.36.
"""

from typing import Any

import msgspec

from clusterstate.admission.plugins.runtime_class import unite_tolerations
from clusterstate.admission.request import CREATE, UPDATE, Request
from clusterstate.objects.registry import wire_types
from clusterstate.objects.rules.matching import verify_whitelist
from clusterstate.objects.rules.resources import qos_class
from clusterstate.objects.values.errors import BadRequest, Forbidden, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import Pod, Toleration
from clusterstate.objects.wire.reading import read_embedded

DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_MEMORY_PRESSURE = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}
_FIELDS = {
    name.lower(): name for name in ("key", "operator", "value", "effect", "tolerationSeconds")
}


def admit(request: Request) -> None:
    """Add the default tolerations to a new pod, and to any pod the one for memory pressure.

    A pod with requests or limits tolerates memory pressure: the node can evict others first. A pod
    that was stored without this toleration gets it with its next update.

    Raises:
        Forbidden: the pod tolerates more than its namespace allows.
        NotFound: its namespace does not exist.
        BadRequest: the annotation does not decode.
    """
    if _is_ignored(request):
        return
    spec = request.manifest.setdefault("spec", {})
    added: list[Manifest] = []
    if request.operation == CREATE:
        defaults = _annotated(_namespace(request), DEFAULTS)
        if defaults is None:
            defaults = [dict(t) for t in request.context.settings.cluster_default_tolerations or ()]
        added += defaults
    if _quality_of_service(request.manifest) != "BestEffort":
        added.append(dict(_MEMORY_PRESSURE))
    if added:
        spec["tolerations"] = unite_tolerations(spec.get("tolerations") or [], added)
    validate(request)


def _is_ignored(request: Request) -> bool:
    """Return whether the request is none for pods, or its body is of another kind."""
    if not request.is_pod() or request.operation not in (CREATE, UPDATE):
        return True
    return bool(request.manifest.get("kind", "Pod") != "Pod")


def _quality_of_service(pod: Manifest) -> str:
    """Return the QoS class that the status states, else the one that follows from the spec."""
    qos = (pod.get("status") or {}).get("qosClass")
    return str(qos) if qos else qos_class(msgspec.convert({"spec": pod["spec"]}, Pod))


def validate(request: Request) -> None:
    """Refuse tolerations that the whitelist of the namespace, or of the cluster, does not cover.

    Raises:
        Forbidden: such a toleration.
        NotFound: the namespace does not exist.
    """
    if _is_ignored(request):
        return
    tolerations = (request.manifest.get("spec") or {}).get("tolerations")
    if not tolerations:
        return
    whitelist = _annotated(_namespace(request), WHITELIST)
    if whitelist is None:
        cluster = request.context.settings.cluster_toleration_whitelist
        whitelist = list(cluster or ())
    if not whitelist:
        return
    if not verify_whitelist(
        msgspec.convert(tolerations, list[Toleration]),
        msgspec.convert(whitelist, list[Toleration]),
    ):
        raise Forbidden(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with "
            "its namespace whitelist"
        )


def _namespace(request: Request) -> Manifest:
    namespace = request.context.namespace(request.namespace)
    if namespace is None:
        raise NotFound(
            f'namespaces "{request.namespace}" not found',
            {"name": request.namespace, "kind": "namespaces"},
        )
    return namespace


def _annotated(namespace: Manifest, key: str) -> list[Manifest] | None:
    """Return the tolerations in an annotation, ``None`` without it.

    Go decodes field names without regard to case, and such annotations exist in both spellings.
    """
    text = ((namespace.get("metadata") or {}).get("annotations") or {}).get(key)
    if text is None:
        return None
    if text == "":
        return []
    try:
        decoded = read_embedded(text, list[dict[str, Any]] | None)
        folded = [_fold(toleration) for toleration in decoded or ()]
        msgspec.convert(folded, list[wire_types.Toleration])  # type: ignore[valid-type]
    except ValueError as error:
        raise BadRequest(f"annotation {key} does not decode: {error}") from error
    return folded


def _fold(toleration: dict[str, Any]) -> Manifest:
    folded = {_FIELDS.get(name.lower(), name): value for name, value in toleration.items()}
    return {name: value for name, value in folded.items() if value not in (None, "")}
