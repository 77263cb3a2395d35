"""Rules of Deployments: rolling out, scaling and pruning their ReplicaSets.

Pure: ``reconcile`` takes a Deployment, its ReplicaSets and the time, and returns the writes. The
ReplicaSets' own statuses have the numbers of present and available pods, so one call makes one
step, and the next step follows from its effect. Rules: pkg/controller/deployment (``sync.go``,
``rolling.go``, ``recreate.go``, ``util/deployment_util.go``), v1.36.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads.deployment_records import (
    HASH_LABEL,
    NO_LIMIT,
    REVISION,
    ReplicaSet,
    fenceposts,
    same_template,
    template_hash,
    wanted_replicas,
)
from scheduling.controllers.workloads.deployment_status import (
    PROGRESSING,
    TIMED_OUT,
    DeploymentStatus,
    condition,
    has_deadline,
    set_condition,
)

REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MAXIMUM: Final = "deployment.kubernetes.io/max-replicas"
_PAUSED: Final = "DeploymentPaused"
_NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAXIMUM,
        "deprecated.deployment.rollback.to",
    }
)
_LONGEST_HISTORY: Final = 2000


class DeploymentWrites(msgspec.Struct, kw_only=True):
    """The writes for a Deployment.

    ``created``: a new ReplicaSet's manifest without its owner; ``changed``: those whose replicas,
    annotations or ``minReadySeconds`` differ from the stored ones; ``deleted``: old ones beyond the
    history limit. ``revision``: the Deployment's own annotation. ``events``: type, reason and
    message of each. ``due_at``: when to reconcile again without a change.
    """

    status: Manifest
    revision: str | None
    created: Manifest | None = None
    changed: list[ReplicaSet]
    deleted: list[ReplicaSet]
    events: list[tuple[str, str, str]]
    due_at: datetime | None = None


def _number(text: str | None) -> int:
    try:
        return int(text or "0")
    except ValueError:
        return 0


# The step -------------------------------------------------------------------------------------


def reconcile(
    deployment: Manifest,
    sets: Iterable[ReplicaSet],
    *,
    busy: Collection[str],
    now: datetime,
    note: str = "",
) -> DeploymentWrites:
    """Return the next step of a Deployment.

    Args:
        deployment: as stored.
        sets: the ReplicaSets that it owns.
        busy: uids of those ReplicaSets with pods that have not ended, including terminating ones.
        now: the time, for conditions and the progress deadline.
        note: text about the pods for users; appended to the message of *Available*.
    """
    return _Reconciler(deployment, sets, busy, now, note).reconcile()


class _Reconciler:
    """Collects the writes of one step. ``status``: as stored, with the conditions set so far."""

    def __init__(
        self,
        deployment: Manifest,
        sets: Iterable[ReplicaSet],
        busy: Collection[str],
        now: datetime,
        note: str,
    ) -> None:
        self._deployment = deployment
        self._name: str = deployment["metadata"]["name"]
        self._spec: Manifest = deployment["spec"]
        sets = list(sets)
        self._stored = {one.name: one for one in sets}
        self._sets = sorted(
            (msgspec.structs.replace(one, annotations=dict(one.annotations)) for one in sets),
            key=lambda one: (one.created, one.name),
        )
        self._busy = busy
        self._now = now
        self._note = note
        self._status: Manifest = dict(deployment.get("status") or {})
        self._replicas = wanted_replicas(deployment)
        self._surge, self._unavailable = fenceposts(deployment)
        annotations = deployment["metadata"].get("annotations") or {}
        self._revision: str | None = annotations.get(REVISION)
        self._created: Manifest | None = None
        self._deleted: list[ReplicaSet] = []
        self._events: list[tuple[str, str, str]] = []
        self._new = next(
            (one for one in self._sets if same_template(one.template, self._spec["template"])), None
        )

    def reconcile(self) -> DeploymentWrites:
        if self._deployment["metadata"].get("deletionTimestamp"):
            return self._done(self._status_writer().current())
        self._note_pause()
        self._follow_revision()
        if self._spec.get("paused"):
            self._scale()
            self._clean_up()
            return self._done(self._status_writer().current())
        if self._is_scaled():
            self._scale()
            return self._done(self._status_writer().current())
        if (self._spec.get("strategy") or {}).get("type") == "Recreate":
            self._recreate()
        else:
            self._roll()
        writer = self._status_writer()
        status = writer.of_rollout()
        return self._done(status, writer.due_at)

    def _done(self, status: Manifest, due_at: datetime | None = None) -> DeploymentWrites:
        changed = [
            one
            for one in self._sets
            if one.name in self._stored and _comparable(one) != _comparable(self._stored[one.name])
        ]
        return DeploymentWrites(
            status=status,
            revision=self._revision,
            created=self._created,
            changed=changed,
            deleted=self._deleted,
            events=self._events,
            due_at=due_at,
        )

    @property
    def _old(self) -> list[ReplicaSet]:
        """The ReplicaSets of other templates, the oldest first."""
        return [one for one in self._sets if one is not self._new]

    @property
    def _active(self) -> list[ReplicaSet]:
        return [one for one in self._sets if one.replicas > 0]

    def _status_writer(self) -> DeploymentStatus:
        return DeploymentStatus(
            self._deployment,
            self._sets,
            self._new,
            before=self._status,
            now=self._now,
            note=self._note,
        )

    def _set(self, type_: str, value: str, reason: str, message: str) -> None:
        set_condition(self._status, type_, value, reason, message, self._now)

    # Pausing and revisions ------------------------------------------------------------------------

    def _note_pause(self) -> None:
        if not has_deadline(self._deployment):
            return
        present = condition(self._status, PROGRESSING)
        reason = None if present is None else present.get("reason")
        if reason == TIMED_OUT:
            return
        if self._spec.get("paused") and reason != _PAUSED:
            self._set(PROGRESSING, "Unknown", _PAUSED, "Deployment is paused")
        elif not self._spec.get("paused") and reason == _PAUSED:
            self._set(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed")

    def _next_revision(self) -> int:
        return max((_number(one.annotations.get(REVISION)) for one in self._old), default=0) + 1

    def _follow_revision(self) -> None:
        """Give the ReplicaSet of the current template the newest revision and the annotations."""
        new = self._new
        if new is None:
            return
        self._annotate(new, self._next_revision())
        new.min_ready_seconds = self._spec.get("minReadySeconds") or 0
        self._revision = new.annotations[REVISION]
        if has_deadline(self._deployment) and condition(self._status, PROGRESSING) is None:
            text = f'Found new replica set "{new.name}"'
            self._set(PROGRESSING, "True", "FoundNewReplicaSet", text)

    def _annotate(self, one: ReplicaSet, revision: int) -> None:
        annotations = self._deployment["metadata"].get("annotations") or {}
        one.annotations |= {k: v for k, v in annotations.items() if k not in _NOT_COPIED}
        before = one.annotations.get(REVISION)
        if _number(before) >= revision:
            return
        one.annotations[REVISION] = str(revision)
        if before is not None:
            history = [
                part for part in one.annotations.get(REVISION_HISTORY, "").split(",") if part
            ]
            history.append(before)
            while history and len(",".join(history)) > _LONGEST_HISTORY:
                del history[0]
            one.annotations[REVISION_HISTORY] = ",".join(history)

    def _create_new(self) -> None:
        """Plan to create the ReplicaSet of the current template, if there is none."""
        if self._new is not None:
            return
        template, metadata = self._spec["template"], self._deployment["metadata"]
        digest = template_hash(template, self._status.get("collisionCount") or 0)
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
        new = ReplicaSet(
            name=f"{self._name}-{digest}",
            uid="",
            created="",
            template={
                **template,
                "metadata": {**(template.get("metadata") or {}), "labels": labels},
            },
            annotations={},
            replicas=0,
            min_ready_seconds=self._spec.get("minReadySeconds") or 0,
        )
        self._annotate(new, self._next_revision())
        self._revision = new.annotations[REVISION]
        new.replicas = self._growth(new)
        self._size(new)
        self._sets.append(new)
        self._new = new
        selector = self._spec.get("selector") or {}
        self._created = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": new.name,
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": new.annotations,
            },
            "spec": {
                "replicas": new.replicas,
                "minReadySeconds": new.min_ready_seconds,
                "selector": {
                    **selector,
                    "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest},
                },
                "template": new.template,
            },
        }
        if new.replicas:
            self._record_scaling(new, 0)
        if has_deadline(self._deployment):
            text = f'Created new replica set "{new.name}"'
            self._set(PROGRESSING, "True", "NewReplicaSetCreated", text)

    # Scaling --------------------------------------------------------------------------------------

    def _size(self, one: ReplicaSet) -> bool:
        """Annotate a ReplicaSet with the Deployment's replicas; return whether that changed."""
        sizes = {DESIRED: str(self._replicas), MAXIMUM: str(self._replicas + self._surge)}
        if all(one.annotations.get(key) == value for key, value in sizes.items()):
            return False
        one.annotations |= sizes
        return True

    def _record_scaling(self, one: ReplicaSet, before: int) -> None:
        way = "up" if one.replicas > before else "down"
        text = f"Scaled {way} replica set {one.name} from {before} to {one.replicas}"
        self._events.append(("Normal", "ScalingReplicaSet", text))

    def _resize(self, one: ReplicaSet, replicas: int) -> bool:
        """Set a ReplicaSet's replicas; return whether the number changed."""
        before, one.replicas = one.replicas, replicas
        self._size(one)
        if before == replicas:
            return False
        if one.uid:
            self._record_scaling(one, before)
        return True

    def _is_scaled(self) -> bool:
        """Return whether the Deployment's own replicas changed since its sets were sized."""
        return any(
            DESIRED in one.annotations and _number(one.annotations[DESIRED]) != self._replicas
            for one in self._active
        )

    def _scale(self) -> None:
        """Spread the Deployment's replicas over its ReplicaSets in proportion to their sizes."""
        active = self._active
        if len(active) <= 1:
            one = active[0] if active else self._new or (self._old[-1] if self._old else None)
            if one is not None and one.replicas != self._replicas:
                self._resize(one, self._replicas)
            elif one is not None and DESIRED in one.annotations:
                self._size(one)
            return
        if self._is_saturated():
            for old in self._old:
                if old.replicas:
                    self._resize(old, 0)
            return
        if (self._spec.get("strategy") or {}).get("type") != "RollingUpdate":
            return
        allowed = self._replicas + self._surge if self._replicas else 0
        missing = allowed - sum(one.replicas for one in active)
        # Among equal sizes, newer sets grow first and older ones shrink first. Sorting is stable.
        ordered = sorted(
            sorted(active, key=lambda one: (one.created, one.name), reverse=missing > 0),
            key=lambda one: -one.replicas,
        )
        sizes = {}
        distributed = 0
        for one in ordered:
            share = self._share(one, missing, distributed)
            distributed += share
            sizes[one.name] = one.replicas + share
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + missing - distributed)
        for one in ordered:
            self._resize(one, sizes[one.name])

    def _share(self, one: ReplicaSet, missing: int, distributed: int) -> int:
        if one.replicas == 0 or missing in (0, distributed):
            return 0
        if self._replicas == 0:
            fraction = -one.replicas
        else:
            before = _number(one.annotations.get(MAXIMUM)) or self._status.get("replicas") or 0
            if before == 0:
                return 0
            exact = one.replicas * (self._replicas + self._surge) / before
            fraction = math.floor(exact + 0.5) - one.replicas
        remaining = missing - distributed
        return min(fraction, remaining) if missing > 0 else max(fraction, remaining)

    def _is_saturated(self) -> bool:
        new = self._new
        return (
            new is not None
            and new.replicas == self._replicas
            and _number(new.annotations.get(DESIRED)) == self._replicas
            and new.available == self._replicas
        )

    # Rolling out ----------------------------------------------------------------------------------

    def _roll(self) -> None:
        self._create_new()
        new = self._new
        assert new is not None
        if self._created is not None or self._grow(new):
            return
        if self._shrink_old(new):
            return
        if self._status_writer().is_complete(self._status):
            self._clean_up()

    def _growth(self, new: ReplicaSet) -> int:
        """Return how many replicas the new ReplicaSet may have now."""
        if (self._spec.get("strategy") or {}).get("type") == "Recreate":
            return self._replicas
        room = self._replicas + self._surge - sum(one.replicas for one in self._sets)
        if room <= 0:
            return new.replicas
        return new.replicas + min(room, self._replicas - new.replicas)

    def _grow(self, new: ReplicaSet) -> bool:
        if new.replicas == self._replicas:
            return False
        size = self._replicas if new.replicas > self._replicas else self._growth(new)
        return self._resize(new, size) if size != new.replicas else False

    def _shrink_old(self, new: ReplicaSet) -> bool:
        """Reduce old ReplicaSets as far as availability allows; return whether any was.

        Unhealthy pods go first, since a rollout that waited for them might never end.
        """
        old = [one for one in self._old if one.replicas > 0]
        if not old:
            return False
        least = self._replicas - self._unavailable
        total = sum(one.replicas for one in old) + new.replicas
        most = total - least - (new.replicas - new.available)
        if most <= 0:
            return False
        unhealthy = self._take(old, most, lambda one: one.replicas - one.available)
        # At most the replicas of its spec: the others are about to terminate.
        available = sum(min(one.available, one.replicas) for one in self._sets)
        healthy = self._take(old, max(0, available - least), lambda one: one.replicas)
        return unhealthy + healthy > 0

    def _take(self, old: Sequence[ReplicaSet], most: int, spare: Any) -> int:
        total = 0
        for one in old:
            count = min(most - total, spare(one))
            if one.replicas and count > 0:
                self._resize(one, one.replicas - count)
                total += count
        return total

    def _recreate(self) -> None:
        active = [one for one in self._old if one.replicas > 0]
        for one in active:
            self._resize(one, 0)
        if active or self._old_pods_run():
            return
        self._create_new()
        new = self._new
        assert new is not None
        if self._created is None and new.replicas != self._replicas:
            self._resize(new, self._replicas)
        if self._status_writer().is_complete(self._status):
            self._clean_up()

    def _old_pods_run(self) -> bool:
        return any(one.present > 0 or one.uid in self._busy for one in self._old)

    def _clean_up(self) -> None:
        """Delete the oldest revisions that exceed the history limit and have no pods."""
        limit = self._spec.get("revisionHistoryLimit")
        if limit is None or limit == NO_LIMIT:
            return
        old = [one for one in self._old if not one.is_leaving]
        beyond = len(old) - limit
        if beyond <= 0:
            return
        old.sort(key=lambda one: _number(one.annotations.get(REVISION)))
        self._deleted = [
            one
            for one in old[:beyond]
            if one.present == 0
            and one.replicas == 0
            and one.is_observed
            and self._stored[one.name].replicas == 0
        ]


def _comparable(one: ReplicaSet) -> tuple[int, int, dict[str, str]]:
    return one.replicas, one.min_ready_seconds, one.annotations
