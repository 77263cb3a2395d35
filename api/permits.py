"""Pods that Permit plugins keep waiting: ``waitingpods`` of the group ``stowage.dev``.

They have a node that is set aside for them. ``kubectl get waitingpods -A`` prints them, the longest
waiting first; posting to ``permit`` allows or rejects one on behalf of a plugin (R163, R164).
"""

from typing import Annotated, Literal

import msgspec
from django.http import HttpResponse
from rest_framework.request import Request

from api import auth, clock, negotiation, replies, tables, wire
from api.views import StatusView
from clusterstate import changes, reservations
from clusterstate.access.rules import Attributes
from clusterstate.actions import reservations as actions
from clusterstate.objects.document import format_time
from clusterstate.objects.errors import INVALID, FieldError, Invalid
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest
from clusterstate.reservations import Reservation

GROUP = "stowage.dev"
KIND = Kind(
    name="WaitingPod",
    group=GROUP,
    plural="waitingpods",
    singular="waitingpod",
    wire_type=msgspec.Struct,
)


class Permit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a decision about a waiting pod."""

    plugin: Annotated[str, msgspec.Meta(min_length=1)]
    decision: Literal["Allow", "Reject"]
    message: str = ""
    kind: str = "Permit"
    apiVersion: str = KIND.api_version  # noqa: N815  # as it is written


class WaitingPodsView(StatusView):
    """Lists of waiting pods: all, of a namespace; and one by its name."""

    http_method_names = ["get"]

    def get(self, request: Request, namespace: str = "", name: str = "") -> HttpResponse:
        """Return a WaitingPodList or a WaitingPod, as JSON or as a Table."""
        verb = "get" if name else "list"
        wants = Attributes(
            verb=verb, group=GROUP, resource=KIND.plural, namespace=namespace, name=name
        )
        auth.require(self.user, wants)
        revision = changes.watermark()
        items = [manifest(one) for one in reservations.waiting(namespace=namespace, name=name)]
        if name and not items:
            raise actions.not_found(name)
        metadata = replies.list_metadata(revision, "")
        query = request.query_params
        if negotiation.form(request.META.get("HTTP_ACCEPT", "")) == negotiation.TABLE:
            include = replies.include_object(query.get("includeObject"))
            shown = tables.table(KIND, items, metadata, now=clock.now(), include=include)
            return replies.reply(replies.encode(shown))
        document: Manifest = {
            "kind": KIND.list_kind,
            "apiVersion": KIND.api_version,
            "metadata": metadata,
            "items": items,
        }
        body = replies.encode(items[0] if name else document)
        if wire.boolean(query.get("pretty"), "pretty"):
            body = replies.pretty(body)
        return replies.reply(body)


class PermitView(StatusView):
    """Allowing and rejecting a waiting pod on behalf of a plugin."""

    http_method_names = ["post"]

    def post(self, request: Request, namespace: str, name: str) -> HttpResponse:
        """Carry out the decision; return the pod as it waited until then."""
        wants = Attributes(
            verb="create",
            group=GROUP,
            resource=KIND.plural,
            subresource="permit",
            namespace=namespace,
            name=name,
        )
        auth.require(self.user, wants)
        document = wire.decode(request.body, request.META.get("CONTENT_TYPE"))
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
            message=permit.message or f"rejected by {self.user.name}",
        )
        return replies.reply(replies.encode(manifest(found)), status=201)


def manifest(one: Reservation) -> Manifest:
    """Return a waiting pod as clients read it."""
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
