"""Responses to deletions."""

from typing import Any

from rest_framework.response import Response

from api.forms import errors, replies
from clusterstate.actions.writing.stored import DeletedObject
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules.ownership import ORPHANED_UNASKED
from clusterstate.objects.values.meta import Manifest


def outcome(
    kind: Kind, name: str, deleted: DeletedObject, delete_options: Manifest
) -> tuple[Any, int, list[str]]:
    """Return what a deletion is answered, its code and warnings.

    The answer is the object, where it stays or is a pod; otherwise that it is gone. The code is 202
    where it stays and the client says ``orphanDependents=false``; old clients know no code but 200.
    ``delete_options`` are the DeleteOptions. Rule: DeleteResource, apiserver
    ``endpoints/handlers/delete.go``.
    """
    accepted = not deleted.gone and delete_options.get("orphanDependents") is False
    status, warnings = 202 if accepted else 200, _warnings(kind, delete_options)
    if kind.returns_deleted or not deleted.gone:
        return replies.StoredAnswer(kind, deleted.manifest), status, warnings
    details = _details(kind, name)
    if deleted.uid:
        details["uid"] = deleted.uid
    return errors.success(details=details, revision=deleted.revision), status, warnings


def answer_of_collection(kind: Kind, delete_options: Manifest) -> Response:
    """Return the answer to the deletion of a collection: its objects are gone, or begin to go."""
    success = errors.success(details=_details(kind, ""))
    return replies.reply(success, warnings=_warnings(kind, delete_options))


def _warnings(kind: Kind, delete_options: Manifest) -> list[str]:
    """Return the warning for a deletion that names no policy and leaves its dependents."""
    text = ORPHANED_UNASKED.get(kind.name)
    return [text] if text and not delete_options.get("propagationPolicy") else []


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"kind": kind.plural}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    return details
