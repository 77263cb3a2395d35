"""The subresource ``scale``: the desired and the actual replicas of an object."""

from datetime import datetime
from typing import Final

from rest_framework.response import Response

from api.forms import replies
from api.forms.cells import NONE, format_selector
from clusterstate.objects.registry import wire_types
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import Conflict
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire import managed_fields
from clusterstate.objects.wire.managed_fields import Manager

KIND: Final = Kind(name="Scale", wire_type=wire_types.Scale, group="autoscaling")
"""A kind without stored objects: a Scale is composed when it is read."""


def shown(scale: Manifest) -> Response:
    """Return a ``Scale`` as an answer, in the form that the client accepts."""
    version = {"resourceVersion": scale["metadata"].get("resourceVersion", "")}
    return replies.reply(
        replies.MadeManifests(kind=KIND, items=[scale], metadata=version, alone=True)
    )


def scale_of(kind: Kind, item: Manifest) -> Manifest:
    """Return the ``Scale`` of an object with replicas."""
    metadata = item["metadata"]
    spec, status = item.get("spec") or {}, item.get("status") or {}
    selector = spec.get("selector")
    if kind.has_plain_selector:
        selector = {"matchLabels": selector or {}}
    text = format_selector(selector)
    copied = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in copied if key in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": "" if text == NONE else text,
        },
    }


def with_replicas(current: Manifest, scale: Manifest) -> Manifest:
    """Return the object with the replicas of a ``Scale``.

    Raises:
        Conflict: the ``Scale`` is of another object of that name.
    """
    metadata, own = scale["metadata"], current["metadata"]
    _require_same(metadata, own)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    result = {**current, "metadata": dict(own)}
    result["spec"] = {**(current.get("spec") or {}), "replicas": replicas}
    if metadata.get("resourceVersion"):
        result["metadata"]["resourceVersion"] = metadata["resourceVersion"]
    return result


def applied(
    kind: Kind, current: Manifest, scale: Manifest, manager: Manager, *, force: bool, now: datetime
) -> Manifest:
    """Return an object after ``manager`` has applied a ``Scale`` to it.

    Rule: ``ScaleHandler``, apimachinery ``managedfields/scalehandler.go``, v1.36: the manager owns
    the replicas of the object itself.

    Raises:
        Conflict: the ``Scale`` is of another object of that name, or another manager owns its
            replicas and ``force`` is not set.
    """
    metadata, own = scale["metadata"], current["metadata"]
    _require_same(metadata, own)
    applied_fields: Manifest = {"apiVersion": kind.api_version, "kind": kind.name}
    copied = ("name", "resourceVersion")
    applied_fields["metadata"] = {key: metadata[key] for key in copied if key in metadata}
    if "replicas" in (scale.get("spec") or {}):
        applied_fields["spec"] = {"replicas": scale["spec"]["replicas"]}
    result = managed_fields.apply(kind, current, applied_fields, manager, force=force, now=now)
    result["spec"] = {"replicas": 0, **(result.get("spec") or {})}
    return result


def _require_same(metadata: Manifest, own: Manifest) -> None:
    if metadata.get("uid", own.get("uid")) != own["uid"]:
        raise Conflict(
            f"Precondition failed: UID in precondition: {metadata['uid']}, "
            f"UID in object meta: {own['uid']}"
        )
