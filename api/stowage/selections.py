"""``selections``: selectors of pods and nodes, their sizes and overlaps (R41).

``kubectl get selections -A`` prints them: Services, controllers and disruption budgets with their
pods, RuntimeClasses with their nodes and the pods that use them.
"""

from typing import Final

from rest_framework.response import Response

from api.forms import renderers, replies, wire
from api.forms.replies import MadeManifests
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.change_log import changes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules.selections import Selection
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects.selections import pod_selections, runtime_class_selections

KIND: Final = Kind(name="Selection", group=GROUP)


class SelectionsViewSet(OwnViewSet):
    """Lists selectors and their objects: budgets, Services and so on, of one or all namespaces."""

    kind = "Selection"
    resource = KIND.plural
    is_namespaced = True
    renderer_classes = renderers.OF_OBJECTS
    versioned = ("list",)

    def list(self, request: Request, namespace: str = "") -> Response:
        """Return a SelectionList; ``overlapping``: only those that overlap with another."""
        only_overlapping = wire.boolean(request.query_params.get("overlapping"), "overlapping")
        then = self.revision
        metadata = replies.list_metadata(changes.watermark() if then is None else then)
        found = pod_selections(namespace, at=then)
        if not namespace:
            found += runtime_class_selections(at=then)
        items = [manifest(one) for one in found if one.overlapping or not only_overlapping]
        return replies.reply(MadeManifests(KIND, items, metadata))


def manifest(one: Selection) -> Manifest:
    """Return a selection as in the API."""
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
