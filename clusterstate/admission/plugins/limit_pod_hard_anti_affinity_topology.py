"""LimitPodHardAntiAffinityTopology: required anti-affinity by host only (R94, C11).

A pod whose required anti-affinity names a zone keeps every other matching pod out of that zone.
Off by default (`AdmissionSettings`); a namespace switches it for itself with the annotation
``admission.stowage.dev/limit-pod-hard-anti-affinity-topology: "true"`` or ``"false"``.
Rule: plugin/pkg/admission/antiaffinity/admission.go, v1.36.
"""

from clusterstate.admission.request import Request
from clusterstate.objects.rules.own_annotations import LIMITS_ANTI_AFFINITY
from clusterstate.objects.values.node import HOSTNAME


def is_enabled(request: Request) -> bool:
    """Return the switch of the pod's namespace, or else of the settings."""
    namespace = request.context.namespace(request.namespace) if request.namespace else None
    annotations = ((namespace or {}).get("metadata") or {}).get("annotations")
    if annotations and LIMITS_ANTI_AFFINITY in annotations:
        return bool(annotations[LIMITS_ANTI_AFFINITY] == "true")
    return request.context.settings.limit_pod_hard_anti_affinity_topology


def validate(request: Request) -> None:
    """Refuse a required anti-affinity term whose topology key is not the hostname.

    Raises:
        Forbidden: such a term.
        BadRequest: the body is no Pod.
    """
    if not request.is_pod():
        return
    request.require_pod_body()
    affinity = (request.manifest.get("spec") or {}).get("affinity")
    anti_affinity = affinity.get("podAntiAffinity") if affinity else None
    if not anti_affinity:
        return
    for term in anti_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        key = term.get("topologyKey", "")
        if key != HOSTNAME:
            raise request.forbidden(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey "
                f"{key} but only key {HOSTNAME} is allowed"
            )
