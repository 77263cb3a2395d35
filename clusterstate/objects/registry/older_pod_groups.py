"""PodGroups and Workloads of older versions of ``scheduling.k8s.io``, stored as v1beta1; pure.

``v1alpha3`` of 1.37 has the same fields. ``v1alpha2`` of 1.36 names the template of a PodGroup by
``podGroupTemplateRef``, has the disruption mode as a text, and calls the condition
``PodGroupInitiallyScheduled`` ``PodGroupScheduled``. Rules: pkg/apis/scheduling/v1alpha2/conversion
and the types of both versions, v1.36 and v1.37.
"""

from collections.abc import Callable
from typing import Any, Final

from clusterstate.objects.values.meta import Manifest

GROUP: Final = "scheduling.k8s.io"
STORED: Final = f"{GROUP}/v1beta1"
VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""The condition that says whether the members that a group needs were placed."""

_SCHEDULED_1_36: Final = "PodGroupScheduled"
_MODES: Final[dict[str, Manifest]] = {"Pod": {"single": {}}, "PodGroup": {"all": {}}}
_UNKNOWN: Final = ("preemptionPolicy",)
"""Fields of groups and of templates that v1alpha2 does not know."""


def api_version(version: str) -> str:
    """Return the ``apiVersion`` of a version."""
    return f"{GROUP}/{version}"


def stored(value: Any, version: str) -> Any:
    """Return an object of an older version, or a list of them, as v1beta1 has it."""
    return _changed(value, STORED, _newer if version == "v1alpha2" else _same)


def shown(manifest: Manifest, version: str) -> Manifest:
    """Return a stored object, or a list of them, as an older version has it."""
    change = _older if version == "v1alpha2" else _same
    result: Manifest = _changed(manifest, api_version(version), change)
    return result


def with_unknown_fields(new: Manifest, old: Manifest) -> Manifest:
    """Return an object changed by v1alpha2, with the old object's fields that v1alpha2 lacks."""
    spec, before = new.get("spec"), old.get("spec") or {}
    if not isinstance(spec, dict):
        return new
    spec = {**{name: before[name] for name in _UNKNOWN if name in before}, **spec}
    old_templates = {one.get("name"): one for one in before.get("podGroupTemplates") or ()}
    if spec.get("podGroupTemplates"):
        spec["podGroupTemplates"] = [
            {
                **{
                    name: old_templates[one.get("name")][name]
                    for name in _UNKNOWN
                    if name in old_templates.get(one.get("name"), {})
                },
                **one,
            }
            for one in spec["podGroupTemplates"]
        ]
    return {**new, "spec": spec}


def _changed(value: Any, name: str, change: Callable[[Manifest], Manifest]) -> Any:
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("items"), list):
        items = [_changed(one, name, change) for one in value["items"]]
        return {**value, "apiVersion": name, "items": items}
    return {**change(value), "apiVersion": name}


def _same(value: Manifest) -> Manifest:
    return value


def _newer(value: Manifest) -> Manifest:
    result = dict(value)
    if isinstance(spec := value.get("spec"), dict):
        spec = result["spec"] = _with_mode(spec, _MODES)
        reference = spec.pop("podGroupTemplateRef", None)
        if isinstance(reference, dict):
            named = reference.get("workload")
            names = ("workloadName", "workloadName"), ("podGroupTemplateName", "templateName")
            spec["workloadRef"] = {
                new: named.get(old, "") for old, new in names if isinstance(named, dict)
            }
        _each_template(spec, _MODES)
    _rename_condition(result, _SCHEDULED_1_36, SCHEDULED)
    return result


def _older(value: Manifest) -> Manifest:
    result = dict(value)
    if isinstance(spec := value.get("spec"), dict):
        spec = result["spec"] = _without_unknown(_with_mode(spec, None))
        if (reference := spec.pop("workloadRef", None)) is not None:
            spec["podGroupTemplateRef"] = {
                "workload": {
                    "workloadName": reference.get("workloadName"),
                    "podGroupTemplateName": reference.get("templateName"),
                }
            }
        _each_template(spec, None)
        if "podGroupTemplates" in spec:
            spec["podGroupTemplates"] = [_without_unknown(one) for one in spec["podGroupTemplates"]]
    _rename_condition(result, SCHEDULED, _SCHEDULED_1_36)
    return result


def _without_unknown(spec: Manifest) -> Manifest:
    return {name: value for name, value in spec.items() if name not in _UNKNOWN}


def _with_mode(spec: Manifest, modes: dict[str, Manifest] | None) -> Manifest:
    """Return a copy of a PodGroup's spec with the disruption mode in the form of another version.

    ``modes``: the object for each text; ``None``: objects become texts. An unknown mode stays, and
    validation refuses it.
    """
    mode = spec.get("disruptionMode")
    if mode is None:
        return dict(spec)
    if modes is None:
        mode = next((text for text, form in _MODES.items() if mode == form), mode)
    elif isinstance(mode, str):
        mode = modes.get(mode, mode)
    return {**spec, "disruptionMode": mode}


def _each_template(spec: Manifest, modes: dict[str, Manifest] | None) -> None:
    if isinstance(templates := spec.get("podGroupTemplates"), list):
        spec["podGroupTemplates"] = [
            _with_mode(one, modes) if isinstance(one, dict) else one for one in templates
        ]


def _rename_condition(result: Manifest, before: str, after: str) -> None:
    status = result.get("status")
    if isinstance(status, dict) and isinstance(status.get("conditions"), list):
        conditions = [
            {**one, "type": after} if isinstance(one, dict) and one.get("type") == before else one
            for one in status["conditions"]
        ]
        result["status"] = {**status, "conditions": conditions}
