"""Rules of Jobs: pods to create or delete, whether the Job is over, and its status.

Pure. An ended pod is *counted* once, when the transaction that raises the Job's numbers removes its
finalizer, so a deleted pod is neither lost nor counted twice. Pods that the Job no longer needs, as
when it is suspended or made smaller, lose the finalizer before they are deleted: they have not
failed. Rules: pkg/controller/job (``job_controller.go``, ``indexed_job_utils.go``,
``backoff_utils.go``), v1.36. `job_policy_rules` has the effect of a failed pod, and when enough
indexes succeeded.

With a limit per index, the last failed pod of an index is released only when its successor exists,
which continues the count of failures: else a deleted pod would take the count with it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects.values import document, moments
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads import job_policy_rules as policies
from scheduling.controllers.workloads.job_indexes import Indexes
from scheduling.controllers.workloads.job_policy_rules import index_of, is_failed
from scheduling.controllers.workloads.pods import OwnedPod, surplus

TRACKING: Final = "batch.kubernetes.io/job-tracking"
JOB_LABEL: Final = "batch.kubernetes.io/job-name"
CONTROLLER: Final = "kubernetes.io/job-controller"
BURST: Final = 500
"""Pods that are created, deleted or counted for one Job in a pass."""
_COMPLETE, _FAILED, _SUSPENDED = "Complete", "Failed", "Suspended"
_INTERIM: Final = {_COMPLETE: "SuccessCriteriaMet", _FAILED: "FailureTarget"}
_BACKOFF, _LONGEST_BACKOFF = 10.0, 600.0


class JobActions(msgspec.Struct, kw_only=True):
    """Actions for a Job. ``create`` has an index for each pod, ``None`` where it needs none.

    ``failures``: how often those indexes failed before, counted and ignored, with a limit per
    index. ``count``: pods to release in the transaction that writes the status, before the pods in
    ``delete`` are deleted. ``expired``: the Job itself must be deleted. ``events``: type, reason
    and message.
    """

    status: Manifest
    create: list[int | None]
    failures: dict[int, tuple[int, int]]
    delete: list[OwnedPod]
    count: list[OwnedPod]
    events: list[tuple[str, str, str]]
    expired: bool = False
    due_at: datetime | None = None


def is_mine(job: Manifest) -> bool:
    """Return whether this controller manages a Job (``spec.managedBy``)."""
    return job["spec"].get("managedBy") in (None, "", CONTROLLER)


def finished(job: Manifest) -> str:
    """Return ``Complete`` or ``Failed`` for a Job that is over, else an empty string."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one.get("type") in (_COMPLETE, _FAILED) and one.get("status") == "True":
            return str(one["type"])
    return ""


def reconcile(job: Manifest, pods: Sequence[OwnedPod], *, now: datetime) -> JobActions:
    """Return what to do for a Job now."""
    return _Reconciler(job, pods, now).reconcile()


def _order(pod: OwnedPod) -> tuple[datetime, int]:
    return pod.finished_at or pod.created_at, pod.id


class _Reconciler:
    def __init__(self, job: Manifest, pods: Sequence[OwnedPod], now: datetime) -> None:
        self._job, self._spec, self._now = job, job["spec"], now
        self._pods = pods
        self._active = [one for one in pods if one.is_active]
        self._before: Manifest = job.get("status") or {}
        self._conditions: list[Manifest] = list(self._before.get("conditions") or ())
        self._indexed = self._spec.get("completionMode") == "Indexed"
        self._namespace: str = job["metadata"].get("namespace") or ""
        self._per_index = self._indexed and self._spec.get("backoffLimitPerIndex") is not None
        self._completions: int = self._spec.get("completions") or 0
        self._ended = [
            one for one in pods if one.is_tracked and (one.phase == "Succeeded" or self._fails(one))
        ]
        self._indexes = self._indexes_before("completedIndexes")
        self._failed_indexes = self._indexes_before("failedIndexes")
        if self._indexed:
            done = (index_of(one) for one in self._ended if one.phase == "Succeeded")
            self._indexes |= Indexes.of(
                one for one in done if one is not None and one < self._completions
            )
        if self._per_index:
            self._failed_indexes |= Indexes.of(
                index
                for one in self._ended
                if (index := index_of(one)) is not None
                and index < self._completions
                and self._fails(one)
                and policies.fails_index(self._spec, one, self._namespace)
            )
        self._last_failures = self._find_last_failures()
        self._choose(self._ended, [one for one in self._ended if self._fails(one)])
        self._started: str | None = self._before.get("startTime")
        self._completed: str | None = self._before.get("completionTime")
        self._actions = JobActions(
            status={}, create=[], failures={}, delete=[], count=[], events=[], due_at=None
        )

    def _indexes_before(self, field: str) -> Indexes:
        return Indexes.parse(self._before.get(field) or "", self._completions)

    def _fails(self, pod: OwnedPod) -> bool:
        return is_failed(self._spec, pod)

    def _find_last_failures(self) -> dict[int, OwnedPod]:
        """Return the last failed pod of each index that is neither done nor failed for good."""
        last: dict[int, OwnedPod] = {}
        for one in self._pods if self._per_index else ():
            index = index_of(one)
            if index is None or not self._fails(one):
                continue
            if index in self._indexes or index in self._failed_indexes:
                continue
            before = last.get(index)
            if before is None or _order(one) > _order(before):
                last[index] = one
        return last

    def _choose(self, ended: Sequence[OwnedPod], failed: Sequence[OwnedPod]) -> None:
        """Choose the pods to release now, and count them, some of them as failed."""
        self._count = list(ended)[:BURST]
        chosen = {one.id for one in self._count}
        counting = (
            policies.judge(self._spec, one, self._namespace).counts
            for one in failed
            if one.id in chosen and self._has_place(one)
        )
        self._failed = (self._before.get("failed") or 0) + sum(counting)
        if self._indexed:
            self._succeeded = self._indexes.number
        else:
            succeeded = sum(one.phase == "Succeeded" for one in self._count)
            self._succeeded = (self._before.get("succeeded") or 0) + succeeded

    def _has_place(self, pod: OwnedPod) -> bool:
        """Return whether a pod's index is one of the Job's; other pods do not count."""
        if not self._indexed:
            return True
        index = index_of(pod)
        return index is not None and index < self._completions

    def _keep_last_failures(self) -> None:
        """Keep the pods whose number of failures no later pod has recorded yet."""
        following = {index_of(one) for one in self._active}
        ids = {one.id for index, one in self._last_failures.items() if index not in following}
        ended = [one for one in self._ended if one.id not in ids]
        self._choose(ended, [one for one in ended if self._fails(one)])

    def _let_go_of_all(self, *, failed: bool) -> None:
        """Release also the pods that have not ended, as failed ones if the Job failed.

        If the Job succeeded, they count neither as succeeded nor as failed.
        """
        ids = {one.id for one in self._ended}
        rest = [one for one in self._pods if one.is_tracked and one.id not in ids]
        failures = [one for one in self._ended if self._fails(one)]
        self._choose([*self._ended, *rest], [*failures, *rest] if failed else failures)

    def reconcile(self) -> JobActions:
        if finished(self._job):
            self._actions.delete = self._active[:BURST]
            self._expire()
        elif not self._job["metadata"].get("deletionTimestamp"):
            self._go_on()
        self._actions.count += self._count
        self._actions.status = self._status()
        return self._actions

    # Over or not ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        suspended = bool(self._spec.get("suspend"))
        if not suspended and not self._started:
            self._started = document.format_time(self._now)
        outcome = self._outcome()
        if outcome is None and self._per_index:
            self._keep_last_failures()
        if outcome is not None:
            self._end(*outcome)
        elif suspended:
            self._give_up(self._active)
            self._started = None
            self._note_suspension(suspended=True)
        else:
            self._note_suspension(suspended=False)
            self._size()

    def _outcome(self) -> tuple[str, str, str] | None:
        """Return condition, reason and message with which the Job ends; ``None``: not yet."""
        for type_, interim in _INTERIM.items():
            found = self._condition(interim)
            if found is not None and found.get("status") == "True":
                return type_, found.get("reason") or "", found.get("message") or ""
        for pod in self._pods:
            if pod.is_tracked and self._fails(pod):
                fatal = policies.judge(self._spec, pod, self._namespace).fails_job
                if fatal:
                    return _FAILED, "PodFailurePolicy", fatal
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
        over = self._outcome_of_indexes()
        if over is not None:
            return over
        completions = self._spec.get("completions")
        if completions is None:
            done = self._succeeded > 0 and not self._active
        else:
            done = self._succeeded >= completions
        if done and not self._has_more_to_count():
            return _COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _outcome_of_indexes(self) -> tuple[str, str, str] | None:
        if self._per_index:
            most, failed = self._spec.get("maxFailedIndexes"), self._failed_indexes.number
            if most is not None and failed > most:
                text = "Job has exceeded the specified maximal number of failed indexes"
                return _FAILED, "MaxFailedIndexesExceeded", text
            if failed and failed + self._indexes.number >= self._completions:
                return _FAILED, "FailedIndexes", "Job has failed indexes"
        if self._indexed and (matched := policies.success(self._spec, self._indexes)):
            return _COMPLETE, "SuccessPolicy", matched
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
        """End the Job: set the interim condition, and the final one once no pod runs any more."""
        self._let_go_of_all(failed=type_ == _FAILED)
        self._actions.delete = self._active[:BURST]
        self._set(_INTERIM[type_], "True", reason, message)
        leaving = [one for one in self._pods if one.is_leaving and not one.phase_is_final]
        if self._active or leaving or len(self._count) == BURST:
            return
        self._set(type_, "True", reason, message)
        if type_ == _COMPLETE:
            self._completed = document.format_time(self._now)
            self._actions.events.append(("Normal", "Completed", "Job completed"))
        else:
            self._actions.events.append(("Warning", reason, message))

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
        self._actions.expired = at <= self._now
        self._look_at(at)

    def _note_suspension(self, *, suspended: bool) -> None:
        present = self._condition(_SUSPENDED)
        if suspended and (present is None or present.get("status") != "True"):
            self._set(_SUSPENDED, "True", "JobSuspended", "Job suspended")
            self._actions.events.append(("Normal", "Suspended", "Job suspended"))
        elif not suspended and present is not None and present.get("status") == "True":
            self._set(_SUSPENDED, "False", "JobResumed", "Job resumed")
            self._started = document.format_time(self._now)
            self._actions.events.append(("Normal", "Resumed", "Job resumed"))

    # Pods -----------------------------------------------------------------------------------------

    def _size(self) -> None:
        size = parallelism = self._spec.get("parallelism", 1)
        completions = self._spec.get("completions")
        if completions is not None:
            size = max(0, min(parallelism, completions - self._succeeded))
        elif self._succeeded:
            size = len(self._active)
        excess = len(self._active) - size
        if unwanted := self._unwanted(excess):
            self._give_up(unwanted)
            return
        if policies.only_replaces_failed(self._spec):
            excess += sum(one.is_leaving and not one.phase_is_final for one in self._pods)
        if excess >= 0 or (not self._per_index and self._is_backing_off()):
            return
        missing = min(-excess, BURST)
        if not self._indexed:
            self._actions.create = [None] * missing
            return
        chosen = list(self._free_indexes(missing))
        self._actions.create = list(chosen)
        if self._per_index:
            self._actions.failures = {index: self._failures_before(index) for index in chosen}

    def _unwanted(self, excess: int) -> list[OwnedPod]:
        """Return ``excess`` or more pods to delete, with all that lack an index of their own."""
        chosen: list[OwnedPod] = []
        others = self._active
        if self._indexed:
            by_index: dict[int, list[OwnedPod]] = {}
            for one in self._active:
                if self._has_place(one) and (index := index_of(one)) is not None:
                    by_index.setdefault(index, []).append(one)
                else:
                    chosen.append(one)
            for same in by_index.values():
                chosen += surplus(same, len(same) - 1, related=same, now=self._now)
            ids = {one.id for one in chosen}
            others = [one for one in self._active if one.id not in ids]
        more = max(0, excess - len(chosen))
        return [*chosen, *surplus(others, more, related=self._active, now=self._now)]

    def _give_up(self, pods: Sequence[OwnedPod]) -> None:
        """Delete surplus running pods, without counting them."""
        self._actions.delete = list(pods[:BURST])
        self._actions.count = [one for one in self._actions.delete if one.is_tracked]

    def _free_indexes(self, count: int) -> Iterable[int]:
        present = self._active
        if policies.only_replaces_failed(self._spec):
            present = [one for one in self._pods if not one.phase_is_final]
        used = self._indexes | self._failed_indexes
        used |= Indexes.of(index for one in present if (index := index_of(one)) is not None)
        free = (one for one in used.missing(self._completions) if not self._rests(one))
        return [index for _, index in zip(range(count), free, strict=False)]

    def _failures_before(self, index: int) -> tuple[int, int]:
        last = self._last_failures.get(index)
        return policies.failures_after(self._spec, last, self._namespace) if last else (0, 0)

    def _rests(self, index: int) -> bool:
        """Return whether an index with its own limit is in its backoff after a failure."""
        last = self._last_failures.get(index)
        if last is None:
            return False
        times = sum(self._failures_before(index))
        seconds = min(_LONGEST_BACKOFF, _BACKOFF * 2.0 ** min(20, times - 1))
        until = moments.after(last.finished_at or last.created_at, seconds)
        if until <= self._now:
            return False
        self._look_at(until)
        return True

    def _is_backing_off(self) -> bool:
        """Return whether the Job is in its backoff after failures of pods."""
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
        due_at = self._actions.due_at
        self._actions.due_at = at if due_at is None else min(due_at, at)

    def _condition(self, type_: str) -> Manifest | None:
        return next((one for one in self._conditions if one.get("type") == type_), None)

    def _set(self, type_: str, value: str, reason: str, message: str) -> None:
        present = self._condition(type_)
        if present is not None and present.get("status") == value:
            return
        at = document.format_time(self._now)
        condition = {
            "type": type_, "status": value, "lastProbeTime": at, "lastTransitionTime": at,
            "reason": reason, "message": message,
        }  # fmt: skip
        self._conditions = [one for one in self._conditions if one is not present] + [condition]

    def _status(self) -> Manifest:
        deleted = {one.id for one in self._actions.delete}
        active = [one for one in self._active if one.id not in deleted]
        leaving = [one for one in self._pods if one.is_leaving and not one.phase_is_final]
        status: Manifest = {
            "active": len(active) + len(self._actions.create),
            "ready": sum(one.is_ready for one in active),
            "terminating": len(leaving) + len(deleted),
            "succeeded": self._succeeded,
            "failed": self._failed,
            "startTime": self._started,
            "completionTime": self._completed,
            "conditions": self._conditions,
            "completedIndexes": self._indexes.text() if self._indexed else "",
            "failedIndexes": self._failed_indexes.text() if self._per_index else None,
            "uncountedTerminatedPods": {},
        }
        always = ("ready", "terminating", "uncountedTerminatedPods")
        return {
            key: value
            for key, value in status.items()
            if value or key in always or (key == "failedIndexes" and self._per_index)
        }
