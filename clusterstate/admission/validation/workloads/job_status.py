"""Rules for writes of a Job's status: no step back, and no contradictory end.

Most rules check only changed fields, so that a Job whose status broke a rule before can still be
written. Rules: pkg/apis/batch/validation/validation.go (``ValidateJobUpdateStatus``) and
``getStatusValidationOptions`` in pkg/registry/batch/job/strategy.go, v1.36.
"""

from collections.abc import Iterable

from clusterstate.admission.validation.core.field import Errors, duplicate, invalid, required
from clusterstate.admission.validation.workloads.job_policies import read_indexes
from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.errors import OMITTED
from clusterstate.objects.values.meta import Manifest

_CONDITIONS = "status.conditions"


def validate_job_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a status of a Job; ``statuses`` checks its counts."""
    spec, status = new.get("spec") or {}, new.get("status") or {}
    before = (old or {}).get("status") or {}
    errors = _uncounted(status)
    errors += _ends(spec, status, before)
    errors += _indexes(spec, status, before)
    return errors + _steps(spec, status, before)


def _true(status: Manifest) -> set[str]:
    """Return the types of the conditions that are True."""
    found = status.get("conditions") or ()
    return {one["type"] for one in found if one.get("status") == "True"}


def _said(*details: str) -> Errors:
    return [invalid(_CONDITIONS, OMITTED, detail) for detail in details]


def _uncounted(status: Manifest) -> Errors:
    """Return the errors in ``uncountedTerminatedPods``."""
    errors: Errors = []
    seen: set[str] = set()
    for name in ("succeeded", "failed"):
        pods = (status.get("uncountedTerminatedPods") or {}).get(name) or ()
        for index, uid in enumerate(pods):
            path = f"status.uncountedTerminatedPods.{name}[{index}]"
            if not uid:
                errors.append(invalid(path, uid, "must not be empty"))
            elif uid in seen:
                errors.append(duplicate(path, uid))
            seen.add(uid)
    return errors


def _ends(spec: Manifest, status: Manifest, before: Manifest) -> Errors:
    """Return the errors in the end of a Job, and in the status of a Job that has ended."""
    holds, held = _true(status), _true(before)
    errors: Errors = []

    def turned(*types: str) -> bool:
        """Return whether one of these conditions became True, or ceased to be True."""
        return any((one in holds) is not (one in held) for one in types)

    def changed(*names: str) -> bool:
        return any(status.get(name) != before.get(name) for name in names)

    started, completed = status.get("startTime"), status.get("completionTime")
    complete, failed = "Complete" in holds, "Failed" in holds
    finished = complete or failed
    finish = finished is not bool(held & {"Complete", "Failed"})
    if complete and failed and turned("Complete", "Failed"):
        errors += _said("cannot set Complete=True and Failed=true conditions")
    if complete and "FailureTarget" in holds and turned("Complete", "FailureTarget"):
        errors += _said("cannot set Complete=True and FailureTarget=true conditions")
    time_or_end = turned("Complete") or changed("completionTime")
    if completed and not complete and time_or_end:
        detail = "cannot set completionTime when there is no Complete=True condition"
        errors.append(invalid("status.completionTime", completed, detail))
    if complete and not completed and time_or_end:
        detail = "completionTime is required for Complete jobs"
        errors.append(required("status.completionTime", detail))
    times = changed("startTime", "completionTime")
    if started and completed and times and parse_time(completed) < parse_time(started):
        detail = "completionTime cannot be set before startTime"
        errors.append(invalid("status.completionTime", completed, detail))
    if failed and "FailureTarget" not in holds and turned("Failed", "FailureTarget"):
        errors += _said("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and "SuccessCriteriaMet" not in holds and turned("Complete", "SuccessCriteriaMet"):
        errors += _said(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        )
    if finished:
        errors += _left_over(status, [name for name in _NONE if finish or changed(name)])
        never_began = spec.get("suspend") and spec.get("completions") == 0
        if not started and (finish or changed("startTime")) and not never_began:
            errors.append(required("status.startTime", "startTime is required for finished job"))
    ready = status.get("ready")
    if ready is not None and ready > (status.get("active") or 0) and changed("ready", "active"):
        errors.append(invalid("status.ready", ready, "cannot set more ready pods than active"))
    if "SuccessCriteriaMet" in holds:
        if failed:
            errors += _said("cannot set SuccessCriteriaMet=True and Failed=true conditions")
        if "FailureTarget" in holds:
            errors += _said("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    elif complete and spec.get("successPolicy") is not None:
        errors += _said(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        )
    return errors


_NONE = ("active", "terminating", "uncountedTerminatedPods")
"""The fields that must be empty or 0 in a Job that has ended."""


def _left_over(status: Manifest, names: Iterable[str]) -> Errors:
    errors: Errors = []
    for name in names:
        value = status.get(name)
        if name == "uncountedTerminatedPods":
            is_left = value and any(value.values())
            detail = "uncountedTerminatedPods needs to be empty for finished job"
        else:
            is_left, detail = value, f"{name}>0 is invalid for finished job"
        if is_left:
            errors.append(invalid(f"status.{name}", value, detail))
    return errors


def _indexes(spec: Manifest, status: Manifest, before: Manifest) -> Errors:
    """Return the errors in the completed and failed indexes."""
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    completions, limit = spec.get("completions"), spec.get("backoffLimitPerIndex")
    of_completed = completed != (before.get("completedIndexes") or "")
    of_failed = failed != before.get("failedIndexes")
    errors: Errors = []
    path = "status.completedIndexes"
    if of_completed and completions is not None and completed:
        errors += _unreadable(completed, path, completions)
    if of_failed and completions is not None and limit is not None and failed:
        errors += _unreadable(failed, "status.failedIndexes", completions)
    if of_completed and completed and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errors.append(invalid(path, completed, detail))
    if of_failed and failed is not None and limit is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.append(invalid("status.failedIndexes", failed, detail))
    if (of_failed or of_completed) and completions is not None and failed and completed:
        both = _first_of_both(completed, failed, completions)
        if both is not None:
            detail = f"failedIndexes and completedIndexes overlap at index: {both}"
            errors.append(invalid("status.failedIndexes", failed, detail))
    return errors


def _unreadable(text: str, path: str, completions: int) -> Errors:
    problem, _ = read_indexes(text, completions)
    if not problem:
        return []
    return [invalid(path, text, f"error parsing {path.rpartition('.')[2]}: {problem}")]


def _first_of_both(completed: str, failed: str, completions: int) -> int | None:
    """Return the least index in both lists, ``None`` if there is none or a list is invalid."""
    if any(read_indexes(text, completions)[0] for text in (completed, failed)):
        return None
    one, other = (
        [tuple(map(int, part.split("-"))) for part in text.split(",")]
        for text in (completed, failed)
    )
    at = beside = 0
    while at < len(one) and beside < len(other):
        first, second = one[at], other[beside]
        if (index := max(first[0], second[0])) <= min(first[-1], second[-1]):
            return index
        if first[-1] < second[-1]:
            at += 1
        else:
            beside += 1
    return None


def _steps(spec: Manifest, status: Manifest, before: Manifest) -> Errors:
    """Return the errors in fields that a write must not reset or decrease."""
    holds, held = _true(status), _true(before)
    errors = _said(
        *(
            f"cannot disable the terminal {one}=True condition"
            for one in ("Failed", "Complete", "FailureTarget")
            if one in held - holds
        )
    )
    # As many pods as completions, each with an index of its own: the Job may become smaller.
    elastic = spec.get("completionMode") == "Indexed" and (
        spec.get("completions") == spec.get("parallelism")
    )
    for name in ("failed",) if elastic else ("failed", "succeeded"):
        count = status.get(name) or 0
        if count < (before.get(name) or 0):
            detail = f"cannot decrease the {name} counter"
            errors.append(invalid(f"status.{name}", count, detail))
    completed, former = status.get("completionTime"), before.get("completionTime")
    if completed and former and completed != former:
        detail = "completionTime cannot be mutated"
        errors.append(invalid("status.completionTime", completed, detail))
    started, former = status.get("startTime"), before.get("startTime")
    resumed = "Suspended" in held - holds
    if former and started != former and not spec.get("suspend") and not resumed:
        detail = "field is immutable for unsuspended job once set"
        errors.append(invalid("status.startTime", started, detail))
    if "SuccessCriteriaMet" in held - holds:
        errors += _said("cannot disable the SuccessCriteriaMet=True condition")
    if "Complete" in held and "SuccessCriteriaMet" in holds - held:
        errors += _said(
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        )
    return errors
