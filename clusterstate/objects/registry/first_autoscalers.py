"""HorizontalPodAutoscalers of ``autoscaling/v1``, which are stored as ``autoscaling/v2``; pure.

The older version knows one metric, the use of CPU, and no behaviour. What it does not know stays as
it is when a client changes an object by it. Rule: pkg/apis/autoscaling/v1/conversion.go, v1.36,
without the annotations in which it hides the rest: those who read them read v2.
"""

from typing import Any, Final

from clusterstate.objects.values.meta import Manifest

VERSION: Final = "v1"
API_VERSION: Final = "autoscaling/v1"
_SECOND: Final = "autoscaling/v2"
_TARGET: Final = "targetCPUUtilizationPercentage"
_CURRENT: Final = "currentCPUUtilizationPercentage"
_STATUS: Final = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")


def stored(value: Any) -> Any:
    """Return an autoscaler of version 1, or a list of them, as version 2 has it."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("items"), list):
        return {**value, "apiVersion": _SECOND, "items": [stored(one) for one in value["items"]]}
    result: Manifest = {**value, "apiVersion": _SECOND}
    spec, status = value.get("spec"), value.get("status")
    if isinstance(spec, dict) and _TARGET in spec:
        target = {"type": "Utilization", "averageUtilization": spec[_TARGET]}
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
        rest = {name: one for name, one in spec.items() if name != _TARGET}
        result["spec"] = {**rest, "metrics": [metric]}
    if isinstance(status, dict) and _CURRENT in status:
        current = {"averageUtilization": status[_CURRENT]}
        metric = {"type": "Resource", "resource": {"name": "cpu", "current": current}}
        rest = {name: one for name, one in status.items() if name != _CURRENT}
        result["status"] = {**rest, "currentMetrics": [metric]}
    return result


def shown(manifest: Manifest) -> Manifest:
    """Return a stored autoscaler, or a list of them, as version 1 has it."""
    if isinstance(manifest.get("items"), list):
        items = [shown(one) for one in manifest["items"]]
        return {**manifest, "apiVersion": API_VERSION, "items": items}
    spec = dict(manifest.get("spec") or {})
    spec.pop("behavior", None)
    target = _of_cpu(spec.pop("metrics", None), "target")
    if target is not None:
        spec[_TARGET] = target
    before = manifest.get("status") or {}
    status = {name: before[name] for name in _STATUS if name in before}
    current = _of_cpu(before.get("currentMetrics"), "current")
    if current is not None:
        status[_CURRENT] = current
    return {**manifest, "apiVersion": API_VERSION, "spec": spec, "status": status}


def with_unknown_fields(new: Manifest, old: Manifest) -> Manifest:
    """Return an autoscaler that a client wrote as ``autoscaling/v1``, completed.

    Its fields that version 1 cannot express are those of the stored object, ``old``.
    """
    result = dict(new)
    for part, name, words in (
        ("spec", "metrics", "target"),
        ("status", "currentMetrics", "current"),
    ):
        before: Manifest = old.get(part) or {}
        after: Manifest = dict(new.get(part) or {})
        others = [one for one in before.get(name) or () if _of_cpu([one], words) is None]
        if others:
            after[name] = [*(after.get(name) or ()), *others]
        for unknown in ("behavior", "conditions"):
            if unknown in before:
                after.setdefault(unknown, before[unknown])
        if after:
            result[part] = after
    return result


def _of_cpu(metrics: Any, words: str) -> int | None:
    """Return the use of CPU that one of the metrics speaks of."""
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        use = (resource.get(words) or {}).get("averageUtilization")
        if resource.get("name") == "cpu" and use is not None:
            return int(use)
    return None
