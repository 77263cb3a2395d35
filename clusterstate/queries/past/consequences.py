"""Finds the user's change behind a controller's deletion, by following owners.

A controller's change has the controller's name, and not what made it act. That follows from the
objects that it reads: a ReplicaSet's pod is deleted because the ReplicaSet was changed, which the
Deployment's controller did because a user changed the Deployment; an orphan because its owner was
deleted, a pod of a lost node because the node was, objects in a namespace because that was. So the
last change of that object before the deletion is the cause: the one of its spec, or its own
deletion. If another controller made it, its cause is searched in the same way.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.actor import CONTROLLERS, TAINT_EVICTION
from clusterstate.objects.values.errors import Expired
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries import past
from clusterstate.queries.past.trail import TrailEntry, trail_of

_LONGEST: Final = 5
"""This many causes are followed: CronJob, Job, pod, and two more."""
_STEPS_BACK: Final = 100
"""This many changes of an object are looked at for the one of its spec."""
_OF_NODES: Final = frozenset({"pod-garbage-collector", "node-controller"})
_DELETION: Final = f"""
    SELECT max(revision) FROM change
    WHERE verb = {changes.DELETED} AND kind = %s::smallint AND namespace = %s AND name = %s
      AND revision <= %s::bigint
"""


class Cause(msgspec.Struct, frozen=True):
    """A change of an object that caused another one."""

    kind: Kind
    namespace: str
    name: str
    step: TrailEntry


class _Subject(msgspec.Struct, frozen=True):
    """An object that a controller read; ``uid`` is empty if unknown."""

    kind: Kind
    namespace: str
    name: str
    uid: str = ""


def causes_of(step: TrailEntry, kind: Kind, namespace: str, name: str) -> Iterator[Cause]:
    """Yield the causes of an object's deletion, the nearest first; nothing for other changes.

    Ends at the first cause that is no longer known. Queries up to ten times for each.
    """
    if not _is_leaving(step):
        return
    try:
        for _ in range(_LONGEST):
            controller = _controller(step)
            if not controller:
                return
            subject = _looked_at(controller, kind, namespace, name, step.revision)
            cause = None if subject is None else _last(subject, step.revision)
            if cause is None:
                return
            yield cause
            step, kind, namespace, name = cause.step, cause.kind, cause.namespace, cause.name
    except Expired:
        return


def _is_leaving(step: TrailEntry) -> bool:
    return step.verb == "DELETED" or "metadata.deletionTimestamp" in step.fields


def _controller(step: TrailEntry) -> str:
    """Return the short name of the controller that made a change, empty if none did.

    A taint's eviction has a cause of its own kind (`queries.past.provenance`).
    """
    if step.actor == TAINT_EVICTION.name or not step.actor.startswith(CONTROLLERS):
        return ""
    return step.actor.removeprefix(CONTROLLERS)


def _looked_at(
    controller: str, kind: Kind, namespace: str, name: str, revision: int
) -> _Subject | None:
    """Return the object to which a controller reacted with the change of this revision.

    Raises:
        Expired: the changed object is not known any more.
    """
    if controller == "namespace-controller":
        return _Subject(KINDS["Namespace"], "", namespace) if namespace else None
    body = past.find_at(kind, namespace, name, revision - 1)
    if body is None:
        return None
    manifest: Manifest = msgspec.json.decode(body)
    if controller in _OF_NODES:
        node = (manifest.get("spec") or {}).get("nodeName")
        return _Subject(KINDS["Node"], "", node) if node else None
    return _owner(manifest, namespace)


def _owner(manifest: Manifest, namespace: str) -> _Subject | None:
    """Return the controller among an object's owners, or else the first owner."""
    owners: list[dict[str, Any]] = manifest["metadata"].get("ownerReferences") or []
    found = next((one for one in owners if one.get("controller")), next(iter(owners), None))
    if found is None:
        return None
    kind = KINDS.get(found.get("kind", ""))
    if kind is None or kind.api_version != found.get("apiVersion"):
        return None
    space = namespace if kind.namespaced else ""
    return _Subject(kind, space, found.get("name", ""), found.get("uid", ""))


def _last(subject: _Subject, revision: int) -> Cause | None:
    """Return the last change of an object's spec, or its deletion, up to a revision.

    Raises:
        Expired: that is not known any more.
    """
    kind, namespace, name = subject.kind, subject.namespace, subject.name
    before = 0
    body = past.find_at(kind, namespace, name, revision)
    if body is not None:
        metadata = msgspec.json.decode(body)["metadata"]
        if subject.uid in ("", metadata["uid"]):
            before = int(metadata["resourceVersion"])
    if not before:
        row = sql.fetch_one(_DELETION, (kind.code, namespace, name, revision))
        before = row[0] or 0 if row is not None else 0
    for step in trail_of(kind, namespace, name, limit=_STEPS_BACK, before=before).steps:
        if step.revision <= revision and _matters(step):
            return Cause(kind, namespace, name, step)
    return None


def _matters(step: TrailEntry) -> bool:
    return step.verb != "MODIFIED" or any(
        field.startswith("spec") or field == "metadata.deletionTimestamp" for field in step.fields
    )
