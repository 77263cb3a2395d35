"""Jobs, CronJobs and HorizontalPodAutoscalers.

Rules: pkg/apis/batch/validation/validation.go, pkg/apis/autoscaling/validation/validation.go and
the schedule format of robfig/cron (``ParseStandard``), v1.36.
"""

import zoneinfo
from collections.abc import Callable
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    forbidden,
    invalid,
    none_negative,
    not_supported,
    one_of,
    require_form,
    required,
)
from clusterstate.admission.validation.core.metadata import (
    IMMUTABLE,
    validate_immutable,
    validate_label_selector,
)
from clusterstate.admission.validation.core.options import CURRENT_TEMPLATE
from clusterstate.admission.validation.pods import validate_pod_template
from clusterstate.admission.validation.workloads.job_policies import validate_policies
from clusterstate.admission.validation.workloads.pod_groups import validate_job_scheduling
from clusterstate.objects.values.cron import BOUNDS, DESCRIPTORS, EVERY
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.remembered import remembered

_MODES: Final = ("Indexed", "NonIndexed")
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
_POLICIES: Final = ("Allow", "Forbid", "Replace")
_COUNTS: Final = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
    "backoffLimitPerIndex", "ttlSecondsAfterFinished", "maxFailedIndexes",
)  # fmt: skip
_FIXED: Final = (
    "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy",
)  # fmt: skip
_LONGEST_CRON_JOB_NAME: Final = 52
_LONGEST_SCHEDULE: Final = 1024
"""Characters; one with every value of every field has 400. Controllers parse it each time."""


def _job_spec(spec: Manifest, path: str) -> Errors:
    """Return the errors in the spec of a Job, or of a CronJob's template."""
    errors = none_negative(spec, path, *_COUNTS)
    mode = spec.get("completionMode")
    errors += one_of(mode, f"{path}.completionMode", _MODES)
    if mode == "Indexed" and spec.get("completions") is None:
        detail = "when completion mode is Indexed"
        errors.append(required(f"{path}.completions", detail))
    if spec.get("backoffLimitPerIndex") is not None and mode != "Indexed":
        detail = "requires indexed completion mode"
        errors.append(invalid(f"{path}.backoffLimitPerIndex", spec["backoffLimitPerIndex"], detail))
    where = f"{path}.podReplacementPolicy"
    errors += one_of(spec.get("podReplacementPolicy"), where, _REPLACEMENTS)
    errors += validate_policies(spec, path)
    if (scheduling := spec.get("scheduling")) is not None:
        errors += validate_job_scheduling(scheduling, f"{path}.scheduling")
    template = spec.get("template")
    if template is None:
        return [*errors, required(f"{path}.template")]
    errors += validate_pod_template(template, f"{path}.template", CURRENT_TEMPLATE)
    restart = (template.get("spec") or {}).get("restartPolicy") or ""
    where = f"{path}.template.spec.restartPolicy"
    if restart in ("", "Always"):
        return [*errors, required(where, 'valid values: "OnFailure", "Never"')]
    return errors + one_of(restart, where, ("OnFailure", "Never"))


def _job(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = _job_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
    else:
        errors += validate_label_selector(selector, "spec.selector")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        match_labels = selector.get("matchLabels") or {}
        if any(labels.get(key) != value for key, value in match_labels.items()):
            detail = "`selector` does not match template `labels`"
            errors.append(invalid("spec.template.metadata.labels", labels, detail))
    if old is None:
        return errors
    before = old.get("spec") or {}
    for name in _FIXED:
        errors += validate_immutable(spec.get(name), before.get(name), f"spec.{name}")
    errors += validate_immutable(selector, before.get("selector"), "spec.selector")
    errors += validate_immutable(_without_size(spec), _without_size(before), "spec.scheduling")
    if spec.get("completions") != before.get("completions"):
        follows = spec.get("completionMode") == "Indexed" and (
            spec.get("completions") == spec.get("parallelism")
        )
        if not follows:
            errors.append(invalid("spec.completions", spec.get("completions"), IMMUTABLE))
    template = before.get("template")
    if _may_be_redirected(before, old.get("status") or {}):
        template = _redirected(template or {}, spec.get("template") or {})
    errors += validate_immutable(spec.get("template"), template, "spec.template")
    return errors


def _without_size(spec: Manifest) -> Manifest | None:
    """Return ``spec.scheduling`` of a Job without the size of its gang, which may change."""
    scheduling: Manifest | None = spec.get("scheduling")
    policy = (scheduling or {}).get("schedulingPolicy") or {}
    if scheduling is None or policy.get("gang") is None:
        return scheduling
    return {**scheduling, "schedulingPolicy": {**policy, "gang": {}}}


def _may_be_redirected(spec: Manifest, status: Manifest) -> bool:
    """Return whether a Job is suspended and has no pods, so that their scheduling may change.

    Rule: ``validationOptionsForJob`` in pkg/registry/batch/job/strategy.go, v1.36, with
    MutableSchedulingDirectivesForSuspendedJobs and MutablePodResourcesForSuspendedJobs.
    """
    if not spec.get("suspend") or status.get("active"):
        return False
    return not status.get("startTime") or any(
        one.get("type") == "Suspended" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )


def _redirected(template: Manifest, new_template: Manifest) -> Manifest:
    """Return a pod template with the scheduling directives and resources of ``new_template``.

    Nothing else of a Job's template can change. Rule: ``validatePodTemplateUpdate``.
    """
    spec, other = template.get("spec") or {}, new_template.get("spec") or {}
    spec = _taking(spec, other, ("nodeSelector", "tolerations", "schedulingGates"))
    affinity, of_other = spec.get("affinity"), other.get("affinity")
    merged = _taking(affinity or {}, of_other or {}, ("nodeAffinity",))
    if merged or of_other is not None:
        spec["affinity"] = merged
    else:
        spec.pop("affinity", None)
    for field in ("containers", "initContainers"):
        mine, others = spec.get(field) or [], other.get(field) or []
        if mine and len(mine) == len(others):
            spec[field] = [
                _taking(one, another, ("resources",))
                for one, another in zip(mine, others, strict=True)
            ]
    found = {**template, "spec": spec}
    metadata, of_other = template.get("metadata"), new_template.get("metadata")
    merged = _taking(metadata or {}, of_other or {}, ("labels", "annotations"))
    if merged or of_other is not None:
        found["metadata"] = merged
    else:
        found.pop("metadata", None)
    return found


def _taking(mine: Manifest, other: Manifest, fields: tuple[str, ...]) -> Manifest:
    """Return a copy of ``mine`` in which the named fields have the values of ``other``."""
    rest = {key: value for key, value in mine.items() if key not in fields}
    return rest | {key: other[key] for key in fields if key in other}


# Cron jobs ------------------------------------------------------------------------------------


@remembered(1024, longest=_LONGEST_SCHEDULE)
def schedule_problem(schedule: str) -> str:
    """Return the problem of a schedule of cron's five fields, empty if there is none."""
    text = schedule.strip()
    if len(text) > _LONGEST_SCHEDULE:
        return f"must be no more than {_LONGEST_SCHEDULE} characters"
    if text.startswith("@"):
        is_valid = text in DESCRIPTORS or EVERY.fullmatch(text)
        return "" if is_valid else f"unrecognized descriptor: {text}"
    parts = text.split()
    if len(parts) != len(BOUNDS):
        return f"expected exactly 5 fields, found {len(parts)}: {parts}"
    for part, (low, high, names) in zip(parts, BOUNDS, strict=True):
        for item in part.split(","):
            if problem := _item_problem(item, low, high, names):
                return problem
    return ""


def _item_problem(item: str, low: int, high: int, names: dict[str, int]) -> str:
    """Return the problem of ``*``, ``a``, ``a-b`` or one of these with ``/step``, or empty."""
    span, *steps = item.split("/")
    ends = span.split("-")
    if len(steps) > 1 or len(ends) > 2:
        return f"too many slashes or hyphens: {item}"
    if steps and not natural(steps[0], digits=9):
        return f"step of range should be a positive number: {item}"
    if span in ("*", "?"):
        return ""
    numbers = []
    for end in ends:
        number = names.get(end.lower())
        if number is None:
            number = natural(end, digits=9)
        if number is None:
            return f"failed to parse int from {end}: {item}"
        numbers.append(number)
    if min(numbers) < low:
        return f"beginning of range ({min(numbers)}) below minimum ({low}): {item}"
    if max(numbers) > high:
        return f"end of range ({max(numbers)}) above maximum ({high}): {item}"
    if numbers[0] > numbers[-1]:
        return f"beginning of range ({numbers[0]}) beyond end of range ({numbers[-1]}): {item}"
    return ""


@remembered(1024)
def is_zone(name: str) -> bool:
    """Return whether a time zone has this name."""
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False
    return True


def _cron_job(new: Manifest, old: Manifest | None) -> Errors:
    errors: Errors = []
    name = (new.get("metadata") or {}).get("name") or ""
    if old is None and len(name) > _LONGEST_CRON_JOB_NAME:
        errors.append(invalid("metadata.name", name, "must be no more than 52 characters"))
    spec = new.get("spec") or {}
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        errors.append(required("spec.schedule"))
    elif "TZ" in schedule:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid("spec.schedule", schedule, detail))
    elif problem := schedule_problem(schedule):
        errors.append(invalid("spec.schedule", schedule, problem))
    if zone is not None:
        if not zone:
            errors.append(
                invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")
            )
        elif zone.lower() == "local":
            detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
            errors.append(invalid("spec.timeZone", zone, detail))
        elif not is_zone(zone):
            errors.append(invalid("spec.timeZone", zone, f"unknown time zone {zone}"))
    names = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    errors += none_negative(spec, "spec", *names)
    errors += one_of(spec.get("concurrencyPolicy") or "", "spec.concurrencyPolicy", _POLICIES)
    job = (spec.get("jobTemplate") or {}).get("spec")
    if job is None:
        return [*errors, required("spec.jobTemplate.spec")]
    if job.get("selector") is not None:
        detail = "`selector` will be auto-generated"
        errors.append(invalid("spec.jobTemplate.spec.selector", job["selector"], detail))
    if job.get("manualSelector"):
        supported = ("nil", "false")
        errors.append(not_supported("spec.jobTemplate.spec.manualSelector", True, supported))
    return errors + _job_spec(job, "spec.jobTemplate.spec")


# Autoscalers ----------------------------------------------------------------------------------

_METRICS: Final = {
    "ContainerResource": "containerResource", "External": "external", "Object": "object",
    "Pods": "pods", "Resource": "resource",
}  # fmt: skip


def _autoscaler(new: Manifest, old: Manifest | None) -> Errors:
    del old
    spec = new.get("spec") or {}
    errors: Errors = []
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 1:
        errors.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most < 1:
        errors.append(invalid("spec.maxReplicas", most, "must be greater than 0"))
    if least is not None and most < least:
        detail = "must be greater than or equal to `minReplicas`"
        errors.append(invalid("spec.maxReplicas", most, detail))
    target = spec.get("scaleTargetRef") or {}
    for name in ("kind", "name"):
        value, path = target.get(name) or "", f"spec.scaleTargetRef.{name}"
        errors += require_form(value, path, formats.path_segment)
    for index, metric in enumerate(spec.get("metrics") or ()):
        path, type_ = f"spec.metrics[{index}]", metric.get("type") or ""
        if not type_:
            errors.append(required(f"{path}.type", "must specify a metric source type"))
            continue
        if type_ not in _METRICS:
            errors.append(not_supported(f"{path}.type", type_, sorted(_METRICS)))
            continue
        own = _METRICS[type_]
        if metric.get(own) is None:
            detail = "must populate information for the given metric source"
            errors.append(required(f"{path}.{own}", detail))
        for other in _METRICS.values():
            if other != own and metric.get(other) is not None:
                detail = "must populate the given metric source only"
                errors.append(forbidden(f"{path}.{other}", detail))
    return errors


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "CronJob": _cron_job,
    "HorizontalPodAutoscaler": _autoscaler,
    "Job": _job,
}
