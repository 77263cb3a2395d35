"""Rules of HorizontalPodAutoscalers without metrics: bounds on replicas, and the status.

Pure. Nothing here measures the use of pods, so an autoscaler acts as in a cluster without a metrics
server: its condition says why it cannot compute a number, and it keeps its target between
``minReplicas`` and ``maxReplicas``. Rules: pkg/controller/podautoscaler/horizontal.go
(``reconcileAutoscaler``), v1.36.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest

_METRICS: Final[Mapping[str, tuple[str, str]]] = {
    "Resource": ("FailedGetResourceMetric", "pods.metrics.k8s.io"),
    "ContainerResource": ("FailedGetContainerResourceMetric", "pods.metrics.k8s.io"),
    "Pods": ("FailedGetPodsMetric", "pods.custom.metrics.k8s.io"),
    "Object": ("FailedGetObjectMetric", "custom.metrics.k8s.io"),
    "External": ("FailedGetExternalMetric", "external.metrics.k8s.io"),
}
"""Why a metric of a type cannot be had, and which interface would have it."""


class AutoscalerAction(msgspec.Struct, kw_only=True):
    """The action. ``replicas`` is the target's new size, ``None`` if it stays."""

    status: Manifest
    replicas: int | None = None
    events: list[tuple[str, str, str]]


def reconcile(autoscaler: Manifest, target: Manifest | None, *, now: datetime) -> AutoscalerAction:
    """Return the action for an autoscaler; ``target`` ``None``: its target does not exist."""
    spec, before = autoscaler["spec"], autoscaler.get("status") or {}
    action = AutoscalerAction(status={}, events=[])
    conditions = _Conditions(before.get("conditions") or (), now)
    current, desired = 0, int(before.get("desiredReplicas") or 0)
    scaled_at = before.get("lastScaleTime")
    if target is None:
        named = spec.get("scaleTargetRef") or {}
        text = f"{named.get('kind')} {named.get('name')} not found"
        _fail(action, conditions, text)
    else:
        conditions.set(
            "AbleToScale", "True", "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        )  # fmt: skip
        replicas = target["spec"].get("replicas")
        size = 1 if replicas is None else int(replicas)
        current = int((target.get("status") or {}).get("replicas") or 0)
        least, most = int(spec.get("minReplicas") or 1), int(spec["maxReplicas"])
        if size == 0:
            desired = 0
            conditions.set(
                "ScalingActive", "False", "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            )  # fmt: skip
        elif not least <= size <= most:
            desired = action.replicas = min(max(size, least), most)
            scaled_at = document.format_time(now)
            side = "above Spec.MaxReplicas" if size > most else "below Spec.MinReplicas"
            text = f"New size: {desired}; reason: Current number of replicas {side}"
            action.events.append(("Normal", "SuccessfulRescale", text))
            conditions.set(
                "AbleToScale", "True", "SucceededRescale",
                f"the HPA controller was able to update the target scale to {desired}",
            )  # fmt: skip
        else:
            _miss(action, conditions, spec)
    status = {
        "observedGeneration": autoscaler["metadata"].get("generation"),
        "lastScaleTime": scaled_at,
        "conditions": conditions.all(),
    }
    action.status = {
        "currentReplicas": current,
        "desiredReplicas": desired,
        **{key: value for key, value in status.items() if value},
    }
    return action


def _fail(action: AutoscalerAction, conditions: "_Conditions", text: str) -> None:
    message = f"the HPA controller was unable to get the target's current scale: {text}"
    if conditions.set("AbleToScale", "False", "FailedGetScale", message):
        action.events.append(("Warning", "FailedGetScale", text))


def _miss(action: AutoscalerAction, conditions: "_Conditions", spec: Manifest) -> None:
    """Set the condition that the first metric is not available."""
    metric: Manifest = next(iter(spec.get("metrics") or ()), {"type": "Resource"})
    reason, interface = _METRICS.get(metric.get("type") or "", _METRICS["Resource"])
    what = (metric.get("resource") or {}).get("name") or "cpu"
    text = "nothing here measures the use of pods"
    if reason == "FailedGetResourceMetric":
        text = (
            f"failed to get {what} utilization: unable to get metrics for resource {what}: "
            "unable to fetch metrics from resource metrics API: "
            f"the server could not find the requested resource (get {interface})"
        )
    message = f"the HPA was unable to compute the replica count: {text}"
    if conditions.set("ScalingActive", "False", reason, message):
        action.events.append(("Warning", reason, text))


class _Conditions:
    """The conditions of an autoscaler; a changed status gets a new transition time."""

    def __init__(self, present: list[Manifest] | tuple[()], now: datetime) -> None:
        self._by_type = {one.get("type") or "": one for one in present}
        self._now = document.format_time(now)

    def all(self) -> list[Manifest]:
        return list(self._by_type.values())

    def set(self, type_: str, value: str, reason: str, message: str) -> bool:
        """Set a condition; return whether it changed."""
        previous = self._by_type.get(type_) or {}
        since = previous.get("lastTransitionTime") if previous.get("status") == value else None
        self._by_type[type_] = {
            "type": type_, "status": value, "lastTransitionTime": since or self._now,
            "reason": reason, "message": message,
        }  # fmt: skip
        return (previous.get("status"), previous.get("reason")) != (value, reason)
