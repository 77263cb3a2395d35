"""Why a pod waits or is where it is: ``pods/NAME/why`` of the group ``stowage.dev``.

The answers come from ``scheduling.answers``, which is imported with the first question. They are
columns of thousands of nodes, so they are compressed for clients that take that.
"""

import gzip
from collections.abc import Iterable
from typing import Any, cast

import msgspec
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from rest_framework.response import Response

from api import replies, wire
from api.own import OwnViewSet
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.objects.errors import BadRequest

_WORTH_IT = 1_400
_LEVEL = 5


class CompressedViewSet(OwnViewSet):
    """A resource whose answers are compressed with gzip, where the client takes that."""

    def finalize_response(  # type: ignore[override]  # as ``StatusView`` has it
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return the written answer, compressed if it is worth it."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        content = getattr(answer, "content", b"")
        if len(content) < _WORTH_IT or answer.has_header("Content-Encoding"):
            return answer
        patch_vary_headers(answer, ("Accept-Encoding",))
        if "gzip" in request.META.get("HTTP_ACCEPT_ENCODING", ""):
            answer.content = gzip.compress(content, _LEVEL, mtime=0)  # type: ignore[attr-defined]
            answer["Content-Encoding"] = "gzip"
            if answer.has_header("Content-Length"):
                answer["Content-Length"] = str(len(answer.content))  # type: ignore[attr-defined]
        return answer


class WhyViewSet(CompressedViewSet):
    """What every filter says of every node about a pod, the scores, and what would help."""

    kind = "Explanation"
    resource, subresource, owner = "pods", "why", "name"
    is_namespaced = True
    is_single = True

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to get it."""
        return (msgspec.structs.replace(*super().wants(request), verb="get"),)

    def retrieve(self, request: Request, namespace: str, name: str) -> Response:
        """Return an Explanation with a page of the nodes."""
        from scheduling.answers import why

        query = request.query_params
        limit = wire.integer(query.get("limit"), "limit")
        world = query.get("world") or ""
        if world not in ("", why.NOW, why.THEN):
            raise BadRequest(f'invalid value "{world}" for world: supported values: now, then')
        found = why.why(
            namespace,
            name,
            world=cast("why.World", world),
            limit=why.DEFAULT_LIMIT if limit is None else min(limit, why.MOST),
            token=query.get("continue") or "",
            rejected_by=query.get("rejectedBy") or "",
        )
        return replies.reply(found)
