"""``POST /api/v1``: a ``List`` of objects of any kinds, created together."""

from typing import Any

from rest_framework.response import Response

from api import clock
from api.access import auth
from api.forms import options, replies, wire
from api.forms.bodies import checked_item, list_items, metadata_of
from api.kinds.views import StatusView
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.actions import objects
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire import managed_fields


class MixedListView(StatusView):
    """``POST /api/v1``: create every item of a ``List`` of any kinds, or none."""

    def post(self, request: Request) -> Response:
        """Create the items in their order; the user needs the right to create each."""
        body = wire.typed(request.data, "List", "v1")
        mode = request.query_params.get("fieldValidation", "")
        new_objects: list[tuple[Kind, str, Manifest]] = []
        warnings: list[str] = []
        for index, item in enumerate(list_items(body)):
            kind = _kind_of(item, index)
            manifest, found = checked_item(item, kind, index, mode)
            namespace = metadata_of(manifest).get("namespace") or ""
            auth.require(
                self.user,
                Attributes("create", kind.group, kind.plural, namespace=namespace),
            )
            new_objects.append((kind, namespace, manifest))
            warnings += found
        manager = options.field_manager(request)
        for kind, _, manifest in new_objects:
            managed_fields.claim(kind, manifest, manager)
        done = objects.create_all(new_objects, now=clock.now(), user=self.user)
        revision = max((stored.revision for stored in done), default=0)
        for stored in done:
            warnings += stored.warnings
        head = wire.encode(replies.list_metadata(revision))
        body_bytes = (
            b'{"kind":"List","apiVersion":"v1","metadata":%s,"items":[' % head
            + b",".join(stored.manifest for stored in done)
            + b"]}"
        )
        return replies.reply(body_bytes, status=201, warnings=warnings)


def _kind_of(item: Any, index: int) -> Kind:
    """Return the kind of an item of a mixed list."""
    if isinstance(item, dict):
        name = item.get("kind")
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is not None and item.get("apiVersion") == kind.api_version:
            return kind
    raise BadRequest(f"items[{index}]: kind and apiVersion name no kind that is served")
