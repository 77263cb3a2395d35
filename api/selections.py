"""What selects pods and nodes, how many, and what two of a kind share (R41): ``selections``.

``kubectl get selections -A`` prints them: Services, controllers and disruption budgets with their
pods, RuntimeClasses with their nodes and the pods that use them.
"""

from typing import Final

import msgspec
from django.http import HttpResponse
from rest_framework.request import Request

from api import auth, clock, negotiation, replies, tables, wire
from api.views import StatusView
from clusterstate import changes
from clusterstate.access.rules import Attributes
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest
from clusterstate.objects.selections import Selection
from clusterstate.queries.selections import pod_selections, runtime_class_selections

GROUP: Final = "stowage.dev"
KIND: Final = Kind(
    name="Selection",
    group=GROUP,
    plural="selections",
    singular="selection",
    wire_type=msgspec.Struct,
)


class SelectionsView(StatusView):
    """Lists of selections: all, or of what selects the pods of a namespace."""

    http_method_names = ["get"]

    def get(self, request: Request, namespace: str = "") -> HttpResponse:
        """Return a SelectionList, as JSON or as a Table; with ``overlapping``, those that do."""
        wants = Attributes(verb="list", group=GROUP, resource=KIND.plural, namespace=namespace)
        auth.require(self.user, wants)
        query = request.query_params
        only_overlapping = wire.boolean(query.get("overlapping"), "overlapping")
        metadata = replies.list_metadata(changes.watermark())
        found = pod_selections(namespace)
        if not namespace:
            found += runtime_class_selections()
        items = [manifest(one) for one in found if one.overlapping or not only_overlapping]
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
        body = replies.encode(document)
        if wire.boolean(query.get("pretty"), "pretty"):
            body = replies.pretty(body)
        return replies.reply(body)


def manifest(one: Selection) -> Manifest:
    """Return a selection as clients read it."""
    of = one.of
    metadata: Manifest = {"name": f"{of.kind.lower()}.{of.name}"}
    if of.namespace:
        metadata["namespace"] = of.namespace
    status: Manifest = {
        "pods" if of.namespace else "nodes": one.count,
        "overlapping": one.overlapping,
        "overlaps": [
            {"kind": other.kind, "name": other.name, "shared": other.count}
            for other in one.overlaps
        ],
    }
    if one.users is not None:
        status["pods"] = one.users
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.name,
        "metadata": metadata,
        "spec": {"kind": of.kind, "name": of.name, "selector": str(of.selector)},
        "status": status,
    }
