"""The status of a Deployment: counts, conditions, and whether a rollout makes progress.

Pure. Rules: pkg/controller/deployment (``sync.go``, ``progress.go``, ``util/deployment_util.go``),
v1.36.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from clusterstate.objects.values import document, moments
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads.deployment_records import (
    NO_LIMIT,
    REPLICA_FAILURE,
    ReplicaSet,
    fenceposts,
    wanted_replicas,
)

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
NEW_SET_AVAILABLE: Final = "NewReplicaSetAvailable"
TIMED_OUT: Final = "ProgressDeadlineExceeded"


# Conditions -----------------------------------------------------------------------------------


def condition(status: Manifest, type_: str) -> Manifest | None:
    """Return the condition of a type, ``None`` if there is none."""
    for one in status.get("conditions") or ():
        if one.get("type") == type_:
            found: Manifest = one
            return found
    return None


def set_condition(
    status: Manifest, type_: str, value: str, reason: str, message: str, now: datetime
) -> None:
    """Set a condition of a status, in place, unless one has this value and reason already."""
    present = condition(status, type_)
    if present and present.get("status") == value and present.get("reason") == reason:
        return
    at = document.format_time(now)
    is_same = present is not None and present.get("status") == value
    since = present["lastTransitionTime"] if present is not None and is_same else at
    _put(status, type_, value, reason, message, at, since)


def _put(
    status: Manifest, type_: str, value: str, reason: str, message: str, at: str, since: str
) -> None:
    others = [one for one in status.get("conditions") or () if one.get("type") != type_]
    status["conditions"] = [
        *others,
        {
            "type": type_,
            "status": value,
            "lastUpdateTime": at,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        },
    ]


def _drop(status: Manifest, type_: str) -> None:
    if condition(status, type_) is not None:
        status["conditions"] = [one for one in status["conditions"] if one.get("type") != type_]


def has_deadline(deployment: Manifest) -> bool:
    """Return whether the Deployment has a progress deadline."""
    return deployment["spec"].get("progressDeadlineSeconds") not in (None, NO_LIMIT)


def collided(status: Manifest) -> Manifest:
    """Return the status after the new ReplicaSet's name turned out to be taken."""
    return {**status, "collisionCount": (status.get("collisionCount") or 0) + 1}


def failed_to_create(deployment: Manifest, name: str, error: str, now: datetime) -> Manifest:
    """Return the status after the new ReplicaSet was refused."""
    status = dict(deployment.get("status") or {})
    if has_deadline(deployment):
        text = f'Failed to create new replica set "{name}": {error}'
        set_condition(status, PROGRESSING, "False", "ReplicaSetCreateError", text, now)
    return status


_ALWAYS: Final = "observedGeneration"


class DeploymentStatus:
    """Computes a Deployment's status from its ReplicaSets after a step.

    ``before``: the stored status with the conditions that the step set. ``due_at``, set by
    ``of_rollout``: when the progress deadline will pass, ``None`` if it cannot.
    """

    def __init__(
        self,
        deployment: Manifest,
        sets: Sequence[ReplicaSet],
        new: ReplicaSet | None,
        *,
        before: Manifest,
        now: datetime,
        note: str,
    ) -> None:
        self._deployment = deployment
        self._name: str = deployment["metadata"]["name"]
        self._spec: Manifest = deployment["spec"]
        self._sets = sets
        self._new = new
        self._before = before
        self._now = now
        self._note = note
        self._replicas = wanted_replicas(deployment)
        self._unavailable = fenceposts(deployment)[1]
        self.due_at: datetime | None = None

    def is_complete(self, status: Manifest) -> bool:
        """Return whether a status has as many available pods of this template as desired."""
        generation = self._deployment["metadata"].get("generation") or 0
        return (
            (status.get("updatedReplicas") or 0) == self._replicas
            and (status.get("replicas") or 0) == self._replicas
            and (status.get("availableReplicas") or 0) == self._replicas
            and (status.get("observedGeneration") or 0) >= generation
        )

    def current(self) -> Manifest:
        """Return the status from the ReplicaSets, with the conditions of this step."""
        available = sum(one.available for one in self._sets)
        status: Manifest = {
            "observedGeneration": self._deployment["metadata"].get("generation") or 0,
            "replicas": sum(one.present for one in self._sets),
            "updatedReplicas": 0 if self._new is None else self._new.present,
            "readyReplicas": sum(one.ready for one in self._sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, sum(one.replicas for one in self._sets) - available),
            "terminatingReplicas": sum(one.terminating for one in self._sets),
            "collisionCount": self._before.get("collisionCount") or 0,
        }
        status = {key: value for key, value in status.items() if value or key == _ALWAYS}
        if conditions := self._before.get("conditions"):
            status["conditions"] = conditions
        if available >= self._replicas - self._unavailable:
            self._tell_available(
                status, "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
            )
        else:
            self._tell_available(
                status, "False", "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )  # fmt: skip
        return status

    def _tell_available(self, status: Manifest, value: str, reason: str, message: str) -> None:
        if self._note:
            message = f"{message} {self._note}"
        set_condition(status, AVAILABLE, value, reason, message, self._now)
        present = condition(status, AVAILABLE)
        assert present is not None
        if present["message"] != message:  # the same fact with another explanation
            status["conditions"] = [
                {**one, "message": message} if one is present else one
                for one in status["conditions"]
            ]

    def of_rollout(self) -> Manifest:
        """Return the status of a rollout: its progress, or since when it makes none."""
        status = self.current()
        current = condition(self._before, PROGRESSING)
        if not has_deadline(self._deployment):
            _drop(status, PROGRESSING)
        elif (
            status.get("replicas", 0) != status.get("updatedReplicas", 0)
            or current is None
            or current.get("reason") != NEW_SET_AVAILABLE
        ):
            self._judge_progress(status, current)
        failure = next(
            (one.failure for one in [*self._new_alone(), *self._sets] if one.failure), None
        )
        if failure is None:
            _drop(status, REPLICA_FAILURE)
        else:
            set_condition(
                status, REPLICA_FAILURE, failure.get("status") or "True",
                failure.get("reason") or "", failure.get("message") or "", self._now,
            )  # fmt: skip
        return status

    def _new_alone(self) -> list[ReplicaSet]:
        return [] if self._new is None else [self._new]

    def _judge_progress(self, status: Manifest, current: Manifest | None) -> None:
        whose = f'Deployment "{self._name}"'
        if self._new is not None:
            whose = f'ReplicaSet "{self._new.name}"'
        if self.is_complete(status):
            text = f"{whose} has successfully progressed."
            set_condition(status, PROGRESSING, "True", NEW_SET_AVAILABLE, text, self._now)
        elif self._is_progressing(status):
            at = document.format_time(self._now)
            is_same = current is not None and current.get("status") == "True"
            since = current["lastTransitionTime"] if current is not None and is_same else at
            text = f"{whose} is progressing."
            _put(status, PROGRESSING, "True", "ReplicaSetUpdated", text, at, since)
        elif self._is_timed_out(status):
            text = f"{whose} has timed out progressing."
            set_condition(status, PROGRESSING, "False", TIMED_OUT, text, self._now)
        latest = condition(status, PROGRESSING)
        if latest is not None and latest.get("reason") not in (NEW_SET_AVAILABLE, TIMED_OUT):
            self.due_at = self._deadline(latest)

    def _is_progressing(self, status: Manifest) -> bool:
        before = self._before

        def count(of: Manifest, name: str) -> int:
            return int(of.get(name) or 0)

        def old(of: Manifest) -> int:
            return count(of, "replicas") - count(of, "updatedReplicas")

        return old(status) < old(before) or any(
            count(status, name) > count(before, name)
            for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
        )

    def _deadline(self, progressing: Manifest) -> datetime:
        seconds = self._spec["progressDeadlineSeconds"]
        return moments.after(document.parse_time(progressing["lastUpdateTime"]), seconds)

    def _is_timed_out(self, status: Manifest) -> bool:
        present = condition(status, PROGRESSING)
        if present is None or present.get("reason") == NEW_SET_AVAILABLE:
            return False
        return present.get("reason") == TIMED_OUT or self._deadline(present) < self._now
