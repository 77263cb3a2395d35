"""Pods that wait for Permit plugins: ``waitingpods`` of the group ``stowage.dev``.

Each has a reserved node. ``kubectl get waitingpods -A`` prints them, the longest-waiting first; a
POST to ``permit`` allows or rejects one on behalf of a plugin (R163, R164).
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from rest_framework.decorators import action
from rest_framework.response import Response

from api.forms import renderers, replies
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.actions.scheduler import reservations as actions
from clusterstate.admission.request import User
from clusterstate.change_log import changes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import INVALID, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler import reservations
from clusterstate.queries.scheduler.reservations import Reservation

KIND = Kind(name="WaitingPod", group=GROUP)


class Permit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body that allows or rejects a waiting pod."""

    plugin: Annotated[str, msgspec.Meta(min_length=1)]
    decision: Literal["Allow", "Reject"]
    message: str = ""
    kind: str = "Permit"
    apiVersion: str = KIND.api_version  # noqa: N815  # as it is written


class WaitingPodsViewSet(OwnViewSet):
    """Lists of waiting pods, all or of a namespace; and one by its name."""

    kind = "WaitingPod"
    resource = KIND.plural
    is_namespaced = True
    renderer_classes = renderers.OF_OBJECTS

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to read waiting pods, or to decide about one."""
        (found,) = super().wants(request)
        if self.action == "permit":
            found = msgspec.structs.replace(found, verb="create", subresource="permit")
        return (found,)

    def list(self, request: Request, namespace: str = "") -> Response:
        """Return a WaitingPodList."""
        metadata = replies.list_metadata(changes.watermark(), "")
        items = [manifest(one) for one in reservations.waiting(namespace=namespace)]
        return replies.reply(replies.MadeManifests(KIND, items, metadata))

    def retrieve(self, request: Request, namespace: str, name: str) -> Response:
        """Return a WaitingPod."""
        metadata = replies.list_metadata(changes.watermark(), "")
        items = [manifest(one) for one in reservations.waiting(namespace=namespace, name=name)]
        if not items:
            raise actions.not_found(name)
        return replies.reply(replies.MadeManifests(KIND, items, metadata, alone=True))

    @action(detail=True, methods=["post"])
    def permit(self, request: Request, namespace: str, name: str) -> Response:
        """Allow or reject on behalf of a plugin; return the waiting pod as it was before."""
        return _decide(request.data, namespace, name, self.user)


class PodPermitViewSet(OwnViewSet):
    """``pods/NAME/permit``: the same by the pod's own path."""

    kind = "Permit"
    resource, subresource = KIND.plural, "permit"
    is_namespaced = True

    def create(self, request: Request, namespace: str, name: str) -> Response:
        """Allow or reject on behalf of a plugin; return the waiting pod as it was before."""
        return _decide(request.data, namespace, name, self.user)


def _decide(document: Any, namespace: str, name: str, user: User) -> Response:
    """Apply a Permit."""
    try:
        permit = msgspec.convert(document, Permit)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        path = where.rstrip("`").lstrip(".")
        raise Invalid("Permit", name, [FieldError(INVALID, path, None, text)], GROUP) from error
    found = actions.decide(
        namespace,
        name,
        plugin=permit.plugin,
        allowed=permit.decision == "Allow",
        message=permit.message or f"rejected by {user.name}",
    )
    return replies.reply(manifest(found), status=201)


def manifest(one: Reservation) -> Manifest:
    """Return a waiting pod as in the API."""
    waits = sorted(one.waits.items(), key=lambda item: (item[1], item[0]))
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.name,
        "metadata": {
            "name": one.name,
            "namespace": one.namespace,
            "uid": one.uid,
            "creationTimestamp": format_time(one.since),
        },
        "spec": {
            "nodeName": one.node_name,
            "schedulerName": one.profile,
            "profileRevision": one.profile_revision,
        },
        "status": {
            "waitingFor": [
                {"plugin": plugin, "dueAt": due.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
                for plugin, due in waits
            ],
        },
    }
