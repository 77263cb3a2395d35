"""Shared by all workload controllers: create, delete and adopt pods, write statuses and events.

After a refusal (a quota, a terminating namespace) the next attempt of the same owner waits twice as
long as the one before it, and begins with a single pod.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

import msgspec
import structlog

from clusterstate.actions import objects
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.actions.writing.stored import StoredObject
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.errors import AlreadyExists, Conflict, NotFound, StatusError
from clusterstate.objects.values.labels import is_dns1123_subdomain
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.scheduler import decisions
from scheduling.controllers.workloads.pods import OwnedPod
from scheduling.controllers.workloads.world import NamespaceState, selector_of

logger = structlog.get_logger(__name__)

COMPONENTS: Final = {
    "Deployment": "deployment-controller",
    "ReplicaSet": "replicaset-controller",
    "ReplicationController": "replication-controller",
    "DaemonSet": "daemonset-controller",
    "StatefulSet": "statefulset-controller",
    "Job": "job-controller",
    "CronJob": "cronjob-controller",
    "HorizontalPodAutoscaler": "horizontal-pod-autoscaler",
}
_LONGEST_WAIT: Final = 64.0
_RETRY_SECONDS: Final = 8.0
_TERMINATING: Final = "NamespaceTerminating"
_POD: Final = KINDS["Pod"]


class _Refused(msgspec.Struct, frozen=True):
    """How often in a row an owner's pods were refused, and until when it does not try again."""

    times: int
    generation: int
    until: datetime


_refused: dict[str, _Refused] = {}
memory.when_replaced(_refused.clear)


class CreatedPods(msgspec.Struct, frozen=True):
    """The result of creating pods: names, the last error, and when to try again."""

    names: list[str]
    error: str = ""
    due_at: datetime | None = None


NOTHING_MADE: Final = CreatedPods([])


class NamespaceControl:
    """Carries out the actions of workload controllers in one namespace (Kubernetes' PodControl).

    ``wrote``: whether anything was written. Events are collected until ``finish`` records them.
    """

    def __init__(self, world: NamespaceState, now: datetime) -> None:
        self.world = world
        self.now = now
        self.wrote = False
        self._events: list[Occurrence] = []
        self._when_recorded: list[Callable[[], object]] = []
        self._dues: list[datetime] = []

    @cached_property
    def compatibility(self) -> Compatibility:
        """The version of Kubernetes whose behaviour applies. Queries once."""
        return decisions.admission_rules().compatibility

    def look_again(self, at: datetime | None) -> None:
        """Set a time at which the namespace must be processed again, even without a change."""
        if at is not None:
            self._dues.append(at)

    def retry(self) -> None:
        """Note that a write was refused and must be retried."""
        self.look_again(self.now + timedelta(seconds=_RETRY_SECONDS))

    def finish(self) -> datetime | None:
        """Record the events; return when to process the namespace again without a change."""
        if self._events:
            events.record_many(self._events, now=self.now)
        for note in self._when_recorded:
            note()
        return min(self._dues, default=None)

    def record_event(self, owner: Manifest, type_: str, reason: str, message: str) -> None:
        """Collect an event about an owner, to be recorded with the others."""
        metadata = owner["metadata"]
        self._events.append(
            Occurrence(
                kind=owner["kind"],
                api_version=owner["apiVersion"],
                namespace=metadata["namespace"],
                name=metadata["name"],
                uid=metadata["uid"],
                type=type_,
                reason=reason,
                message=message,
                component=COMPONENTS[owner["kind"]],
            )
        )

    def when_recorded(self, note: Callable[[], object]) -> None:
        """Call ``note`` once the events are recorded; not at all if the pass fails before that."""
        self._when_recorded.append(note)

    # Owners ---------------------------------------------------------------------------------------

    def write(
        self, owner: Manifest, change: Callable[[Manifest], Manifest], *, subresource: str = ""
    ) -> Manifest | None:
        """Change a workload; return the stored one, ``None`` if it is gone or was replaced."""
        kind, metadata = owner["kind"], owner["metadata"]

        def changed(manifest: Manifest) -> Manifest:
            same = manifest["metadata"]["uid"] == metadata["uid"]
            return change(manifest) if same else manifest

        try:
            stored = objects.update(
                kind,
                metadata["namespace"],
                metadata["name"],
                changed,
                subresource=subresource,
                now=self.now,
            )
        except NotFound:
            self.world.replace(kind, metadata["name"], None)
            return None
        self.wrote = self.wrote or stored.changed
        new = decode_object(stored.manifest)
        self.world.replace(kind, metadata["name"], new)
        return new

    def write_status(self, owner: Manifest, status: Manifest) -> None:
        """Write a workload's status if it differs."""
        if (owner.get("status") or {}) != status:
            self.write(owner, lambda one: {**one, "status": status}, subresource="status")

    def delete(self, owner: Manifest) -> None:
        """Delete a workload, and its dependents in the background."""
        metadata = owner["metadata"]
        options = {
            "preconditions": {"uid": metadata["uid"]},
            "propagationPolicy": "Background",
        }
        try:
            objects.delete(
                owner["kind"], metadata["namespace"], metadata["name"], options, now=self.now
            )
        except (NotFound, Conflict):
            return
        self.wrote = True
        self.world.replace(owner["kind"], metadata["name"], None)

    # Pods -----------------------------------------------------------------------------------------

    def waits(self, owner: Manifest) -> bool:
        """Return whether an owner backs off, because its pods were refused a short time ago."""
        metadata = owner["metadata"]
        refusal = _refused.get(metadata["uid"])
        if refusal is None or refusal.generation != (metadata.get("generation") or 0):
            return False
        if not self.now < refusal.until <= self.now + timedelta(seconds=_LONGEST_WAIT):
            return False
        self.look_again(refusal.until)
        return True

    def create(self, owner: Manifest, pods: Sequence[Manifest]) -> CreatedPods:
        """Create as many of an owner's pods as are admitted."""
        if not pods or self.waits(owner):
            return NOTHING_MADE
        uid = owner["metadata"]["uid"]
        names: list[str] = []
        error: StatusError | None = None
        # An owner whose pods were refused before tries one, and the others only if that was
        # created.
        probes = [pods[:1], pods[1:]] if uid in _refused else [pods]
        for some in probes:
            if not some or error is not None:
                continue
            for result in create_pods(some, now=self.now, all_or_nothing=False):
                if isinstance(result, StoredObject):
                    names.append(decode_object(result.manifest)["metadata"]["name"])
                elif error is None and not _is_harmless(result):
                    error = result
        self.wrote = self.wrote or bool(names)
        for name in names:
            self.record_event(owner, "Normal", "SuccessfulCreate", f"Created pod: {name}")
        if error is None:
            _refused.pop(uid, None)
            return CreatedPods(names)
        return self._was_refused(owner, names, error)

    def _was_refused(self, owner: Manifest, names: list[str], error: StatusError) -> CreatedPods:
        metadata = owner["metadata"]
        causes = error.details.get("causes") or ()
        if any(one.get("reason") == _TERMINATING for one in causes):
            return CreatedPods(names)  # the namespace is being deleted: its owners need no pods
        refusal = _refused.get(metadata["uid"])
        times = 1 if refusal is None else refusal.times + 1
        until = self.now + timedelta(seconds=min(_LONGEST_WAIT, 2.0 ** (times - 1)))
        generation = metadata.get("generation") or 0
        _refused[metadata["uid"]] = _Refused(times, generation, until)
        self.look_again(until)
        self.record_event(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
        logger.warning("pods_refused", owner=metadata["name"], error=error.message)
        return CreatedPods(names, error.message, until)

    def remove(self, owner: Manifest, pods: Sequence[OwnedPod]) -> str:
        """Delete pods of an owner; return why one could not be deleted, empty if all were."""
        if not pods:
            return ""
        deletions = [
            Deletion(namespace=self.world.namespace, name=one.name, uid=one.uid) for one in pods
        ]
        error = ""
        results = objects.delete_each(_POD, deletions, now=self.now)
        for one, result in zip(pods, results, strict=True):
            if not isinstance(result, StatusError):
                self.record_event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {one.name}")
                self.wrote = True
            elif not isinstance(result, NotFound | Conflict):
                error = error or result.message
        if error:
            self.record_event(owner, "Warning", "FailedDelete", f"Error deleting: {error}")
        return error

    def claim(
        self, owner: Manifest, *, is_named: Callable[[OwnedPod], bool] = lambda pod: True
    ) -> list[OwnedPod]:
        """Return an owner's pods, after releasing those it no longer selects and adopting orphans.

        ``is_named``: whether a pod's name is one that the owner gives; other pods are not adopted.
        """
        selector = selector_of(owner)

        def belongs(pod: OwnedPod) -> bool:
            return selector.matches(pod.labels) and is_named(pod)

        if owner["metadata"].get("deletionTimestamp"):
            return [one for one in self.world.pods_of(owner) if belongs(one)]
        pods = []
        for pod in self.world.pods_of(owner):
            if belongs(pod) or not pod.is_active:
                pods.append(pod)
            else:
                self._change_owners(pod, [], owner)
        orphans = [one for one in self.world.orphans() if one.is_active and belongs(one)]
        if orphans and not self.may_adopt(owner):
            orphans = []
        for pod in orphans:
            if self._change_owners(pod, [reference(owner)], owner):
                self.world.orphans().remove(pod)
                pods.append(msgspec.structs.replace(pod, owner=owner["metadata"]["uid"]))
        return pods

    def may_adopt(self, owner: Manifest) -> bool:
        """Return whether an owner exists and is not being deleted, read from the database now.

        It may have been deleted, and its pods orphaned (``--cascade=orphan``), after its namespace
        was read: an adopted pod would then be deleted with it. Rule: ``RecheckDeletionTimestamp``,
        pkg/controller/controller_ref_manager.go, v1.36.
        """
        metadata = owner["metadata"]
        text = find_object(owner["kind"], metadata["namespace"], metadata["name"])
        if text is None:
            return False
        found = decode_object(text)["metadata"]
        return bool(found["uid"] == metadata["uid"] and not found.get("deletionTimestamp"))

    def _change_owners(self, pod: OwnedPod, references: list[Manifest], owner: Manifest) -> bool:
        """Replace a pod's reference to this owner by ``references``; return whether it changed."""
        uid = owner["metadata"]["uid"]

        def changed(manifest: Manifest) -> Manifest:
            metadata = manifest["metadata"]
            owners = metadata.get("ownerReferences") or []
            others = [one for one in owners if one.get("uid") != uid]
            if metadata["uid"] != pod.uid or metadata.get("deletionTimestamp"):
                return manifest
            if not pod.owner and any(one.get("controller") for one in others):
                return manifest  # another client changed it first
            new = {**metadata, "ownerReferences": [*others, *references]}
            if not new["ownerReferences"]:
                del new["ownerReferences"]
            return {**manifest, "metadata": new}

        return self.change_pod(pod, changed)

    def change_pod(self, pod: OwnedPod, change: Callable[[Manifest], Manifest]) -> bool:
        """Change a pod's manifest; return whether it changed."""
        try:
            done = objects.update("Pod", self.world.namespace, pod.name, change, now=self.now)
        except (NotFound, Conflict):
            return False
        self.wrote = self.wrote or done.changed
        return done.changed


def _is_harmless(error: StatusError) -> bool:
    """Return whether a pod of this name exists already, from an earlier attempt."""
    return isinstance(error, AlreadyExists)


def reference(owner: Manifest) -> Manifest:
    """Return the ``ownerReferences`` entry for an object that ``owner`` creates and manages."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(
    owner: Manifest,
    template: Manifest,
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a pod of an owner by a template (``GetPodFromTemplate``)."""
    metadata = owner["metadata"]
    meta = template.get("metadata") or {}
    prefix = f"{metadata['name']}-"
    if is_dns1123_subdomain(prefix.rstrip("-") or "x"):
        prefix = metadata["name"]
    own: dict[str, Any] = {
        key: meta[key] for key in ("labels", "annotations", "finalizers") if meta.get(key)
    }
    if labels:
        own["labels"] = {**own.get("labels", {}), **labels}
    if annotations:
        own["annotations"] = {**own.get("annotations", {}), **annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **own,
            **({"name": name} if name else {"generateName": prefix}),
            "namespace": metadata["namespace"],
            "ownerReferences": [reference(owner)],
        },
        "spec": template.get("spec") or {},
    }
