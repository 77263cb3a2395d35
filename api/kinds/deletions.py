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
    """Return the answer to a deletion, its status code, and warnings.

    The answer is the object if it still exists or is a pod, else a Status. The code is 202 if the
    object still exists and the client sent ``orphanDependents=false``; old clients expect 200.
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
    """Return the answer to the deletion of a collection, a Status."""
    success = errors.success(details=_details(kind, ""))
    return replies.reply(success, warnings=_warnings(kind, delete_options))


def _warnings(kind: Kind, delete_options: Manifest) -> list[str]:
    """Return the warning for a deletion without a policy that leaves the object's dependents."""
    text = ORPHANED_UNASKED.get(kind.name)
    return [text] if text and not delete_options.get("propagationPolicy") else []


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"kind": kind.plural}
    if name:
        details["name"] = name
    if kind.group:
        details["group"] = kind.group
    return details
