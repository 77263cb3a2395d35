"""What a Job wants of its pods now, whether it is over, and its status.

Pure. A pod that ended is *counted* once, when its finalizer is taken away in the transaction that
raises the Job's numbers, so a deleted pod is neither lost nor counted twice. Rules: pkg/controller/
job (``job_controller.go``, ``indexed_job_utils.go``, ``backoff_utils.go``), v1.36. Not done here:
``podFailurePolicy``, ``successPolicy``, ``backoffLimitPerIndex``.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects import document, moments
from clusterstate.objects.meta import Manifest
from scheduling.controllers.workloads.pods import OwnedPod, surplus

TRACKING: Final = "batch.kubernetes.io/job-tracking"
JOB_LABEL: Final = "batch.kubernetes.io/job-name"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
CONTROLLER: Final = "kubernetes.io/job-controller"
BURST: Final = 500
"""Pods that are created, deleted or counted for one Job in a pass."""
_COMPLETE, _FAILED, _SUSPENDED = "Complete", "Failed", "Suspended"
_INTERIM: Final = {_COMPLETE: "SuccessCriteriaMet", _FAILED: "FailureTarget"}
_BACKOFF, _LONGEST_BACKOFF = 10.0, 600.0


class Plan(msgspec.Struct, kw_only=True):
    """What to do for a Job. ``create`` has an index for each pod, ``None`` where it needs none.

    ``count`` are pods to let go in the transaction that writes the status. ``expired``: the Job
    itself is to be deleted. ``events`` are type, reason and message each.
    """

    status: Manifest
    create: list[int | None]
    delete: list[OwnedPod]
    count: list[OwnedPod]
    events: list[tuple[str, str, str]]
    expired: bool = False
    due_at: datetime | None = None


def is_mine(job: Manifest) -> bool:
    """Return whether this controller is to look after a Job (``spec.managedBy``)."""
    return job["spec"].get("managedBy") in (None, "", CONTROLLER)


def finished(job: Manifest) -> str:
    """Return ``Complete`` or ``Failed`` for a Job that is over, else nothing."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one.get("type") in (_COMPLETE, _FAILED) and one.get("status") == "True":
            return str(one["type"])
    return ""


def index_of(pod: OwnedPod) -> int | None:
    """Return the completion index of a pod, ``None`` without one."""
    text = pod.annotations.get(INDEX, "")
    return int(text) if text.isdecimal() else None


def parse_indexes(text: str) -> set[int]:
    """Return the indexes of a text like ``0,3-5``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Collection[int]) -> str:
    """Return indexes as text: runs of three and more as ``3-5``."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), None]:
        if run and (index is None or index != run[-1] + 1):
            parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
            run = []
        if index is not None:
            run.append(index)
    return ",".join(parts)


def plan(job: Manifest, pods: Sequence[OwnedPod], *, now: datetime) -> Plan:
    """Return what to do for a Job now."""
    return _Planner(job, pods, now).plan()


def _is_failed(pod: OwnedPod) -> bool:
    """Return whether a pod counts as failed: who is deleted may never get so far."""
    return pod.phase == "Failed" or (pod.is_leaving and pod.phase != "Succeeded")


class _Planner:
    def __init__(self, job: Manifest, pods: Sequence[OwnedPod], now: datetime) -> None:
        self._job, self._spec, self._now = job, job["spec"], now
        self._pods = pods
        self._active = [one for one in pods if one.is_active]
        self._before: Manifest = job.get("status") or {}
        self._conditions: list[Manifest] = list(self._before.get("conditions") or ())
        self._indexed = self._spec.get("completionMode") == "Indexed"
        uncounted = [one for one in pods if one.is_tracked]
        self._count = [one for one in uncounted if one.phase == "Succeeded" or _is_failed(one)][
            :BURST
        ]
        self._failed = (self._before.get("failed") or 0) + sum(map(_is_failed, self._count))
        self._indexes = parse_indexes(self._before.get("completedIndexes") or "")
        succeeded = [one for one in self._count if one.phase == "Succeeded"]
        self._succeeded = (self._before.get("succeeded") or 0) + len(succeeded)
        if self._indexed:
            completions = self._spec.get("completions") or 0
            found = {index for one in succeeded if (index := index_of(one)) is not None}
            self._indexes |= {index for index in found if index < completions}
            self._succeeded = len(self._indexes)
        self._started: str | None = self._before.get("startTime")
        self._completed: str | None = self._before.get("completionTime")
        self._plan = Plan(
            status={}, create=[], delete=[], count=self._count, events=[], due_at=None
        )

    def plan(self) -> Plan:
        if finished(self._job):
            self._plan.delete = self._active
            self._expire()
        elif not self._job["metadata"].get("deletionTimestamp"):
            self._go_on()
        self._plan.status = self._status()
        return self._plan

    # Over or not ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        suspended = bool(self._spec.get("suspend"))
        if not suspended and not self._started:
            self._started = document.format_time(self._now)
        outcome = self._outcome()
        if outcome is not None:
            self._end(*outcome)
        elif suspended:
            self._plan.delete = self._active
            self._started = None
            self._note_suspension(suspended=True)
        else:
            self._note_suspension(suspended=False)
            self._size()

    def _outcome(self) -> tuple[str, str, str] | None:
        """Return how the Job ends: the condition, its reason and its message; ``None``: not yet."""
        for type_, interim in _INTERIM.items():
            found = self._condition(interim)
            if found is not None and found.get("status") == "True":
                return type_, found.get("reason") or "", found.get("message") or ""
        limit = self._spec.get("backoffLimit")
        limit = 6 if limit is None else limit
        if self._failed > limit or self._restarted_too_often(limit):
            text = "Job has reached the specified backoff limit"
            return _FAILED, "BackoffLimitExceeded", text
        deadline = self._deadline()
        if deadline is not None and not self._spec.get("suspend"):
            if deadline <= self._now:
                text = "Job was active longer than specified deadline"
                return _FAILED, "DeadlineExceeded", text
            self._look_at(deadline)
        completions = self._spec.get("completions")
        if completions is None:
            done = self._succeeded > 0 and not self._active
        else:
            done = self._succeeded >= completions
        if done and not self._has_more_to_count():
            return _COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _has_more_to_count(self) -> bool:
        return any(one.is_tracked and not one.is_active for one in self._pods) and (
            len(self._count) == BURST
        )

    def _restarted_too_often(self, limit: int) -> bool:
        template = (self._spec.get("template") or {}).get("spec") or {}
        if template.get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(one.restarts for one in self._active)
        return restarts > 0 if limit == 0 else restarts >= limit

    def _deadline(self) -> datetime | None:
        seconds = self._spec.get("activeDeadlineSeconds")
        if seconds is None or not self._started:
            return None
        return moments.after(document.parse_time(self._started), seconds)

    def _end(self, type_: str, reason: str, message: str) -> None:
        """Tell what comes of the Job, and that it has come when no pod runs any more."""
        self._plan.delete = self._active
        self._set(_INTERIM[type_], "True", reason, message)
        leaving = [one for one in self._pods if one.is_leaving and not one.phase_is_final]
        if self._active or leaving:
            return
        self._set(type_, "True", reason, message)
        if type_ == _COMPLETE:
            self._completed = document.format_time(self._now)
            self._plan.events.append(("Normal", "Completed", "Job completed"))
        else:
            self._plan.events.append(("Warning", reason, message))

    def _expire(self) -> None:
        ttl = self._spec.get("ttlSecondsAfterFinished")
        if ttl is None:
            return
        since = [
            one["lastTransitionTime"]
            for one in self._conditions
            if one.get("type") in (_COMPLETE, _FAILED) and one.get("lastTransitionTime")
        ]
        at = moments.after(document.parse_time(since[0]), ttl) if since else self._now
        self._plan.expired = at <= self._now
        self._look_at(at)

    def _note_suspension(self, *, suspended: bool) -> None:
        present = self._condition(_SUSPENDED)
        if suspended and (present is None or present.get("status") != "True"):
            self._set(_SUSPENDED, "True", "JobSuspended", "Job suspended")
            self._plan.events.append(("Normal", "Suspended", "Job suspended"))
        elif not suspended and present is not None and present.get("status") == "True":
            self._set(_SUSPENDED, "False", "JobResumed", "Job resumed")
            self._started = document.format_time(self._now)
            self._plan.events.append(("Normal", "Resumed", "Job resumed"))

    # Pods -----------------------------------------------------------------------------------------

    def _size(self) -> None:
        wanted = parallelism = self._spec.get("parallelism", 1)
        completions = self._spec.get("completions")
        if completions is not None:
            wanted = max(0, min(parallelism, completions - self._succeeded))
        elif self._succeeded:
            wanted = min(parallelism, len(self._active))
        excess = len(self._active) - wanted
        if excess > 0:
            self._plan.delete = surplus(self._active, excess, related=self._active, now=self._now)[
                :BURST
            ]
            return
        if self._spec.get("podReplacementPolicy") == "Failed":
            excess += sum(one.is_leaving and not one.phase_is_final for one in self._pods)
        if excess >= 0 or self._is_backing_off():
            return
        missing = min(-excess, BURST)
        self._plan.create = list(self._free_indexes(missing)) if self._indexed else [None] * missing

    def _free_indexes(self, count: int) -> Iterable[int]:
        taken = self._indexes | {
            index for one in self._active if (index := index_of(one)) is not None
        }
        free = (one for one in range(self._spec.get("completions") or 0) if one not in taken)
        return [index for _, index in zip(range(count), free, strict=False)]

    def _is_backing_off(self) -> bool:
        """Return whether pods failed so lately that no other one is started yet."""
        ended = sorted(
            (one.finished_at or one.created_at, one.phase == "Succeeded")
            for one in self._pods
            if one.phase_is_final
        )
        failures: list[datetime] = []
        for at, succeeded in ended:
            failures = [] if succeeded else [*failures, at]
        if not failures:
            return False
        seconds = min(_LONGEST_BACKOFF, _BACKOFF * 2.0 ** min(20, len(failures) - 1))
        until = moments.after(failures[-1], seconds)
        if until <= self._now:
            return False
        self._look_at(until)
        return True

    # Status ---------------------------------------------------------------------------------------

    def _look_at(self, at: datetime) -> None:
        known = self._plan.due_at
        self._plan.due_at = at if known is None else min(known, at)

    def _condition(self, type_: str) -> Manifest | None:
        return next((one for one in self._conditions if one.get("type") == type_), None)

    def _set(self, type_: str, value: str, reason: str, message: str) -> None:
        present = self._condition(type_)
        if present is not None and present.get("status") == value:
            return
        at = document.format_time(self._now)
        made = {
            "type": type_, "status": value, "lastProbeTime": at, "lastTransitionTime": at,
            "reason": reason, "message": message,
        }  # fmt: skip
        self._conditions = [one for one in self._conditions if one is not present] + [made]

    def _status(self) -> Manifest:
        deleted = {one.id for one in self._plan.delete}
        active = [one for one in self._active if one.id not in deleted]
        leaving = [one for one in self._pods if one.is_leaving and not one.phase_is_final]
        status: Manifest = {
            "active": len(active) + len(self._plan.create),
            "ready": sum(one.is_ready for one in active),
            "terminating": len(leaving) + len(deleted),
            "succeeded": self._succeeded,
            "failed": self._failed,
            "startTime": self._started,
            "completionTime": self._completed,
            "conditions": self._conditions,
            "completedIndexes": format_indexes(self._indexes) if self._indexed else "",
            "uncountedTerminatedPods": {},
        }
        kept = ("ready", "terminating", "uncountedTerminatedPods")
        return {key: value for key, value in status.items() if value or key in kept}
