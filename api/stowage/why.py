"""Why pods wait or are where they are: ``pods/NAME/why`` and ``waitinggroups``.

An advisor answers (``scheduling.answers.advisor``), in columns of thousands of nodes, so the
answers are compressed for clients that accept gzip.
"""

import gzip
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from rest_framework.response import Response

from api.forms import renderers, replies, wire
from api.forms.replies import MadeManifests
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest
from scheduling.answers import advisor

_WORTH_IT = 1_400
_LEVEL = 5


class CompressedViewSet(OwnViewSet):
    """An advisor's answers, compressed with gzip if the client accepts that."""

    asks = True

    def restrictions(self, namespace: str, name: str = "") -> Manifest:
        """Return fields that restrict the answer if the user may not get the pods."""
        wants = Attributes("get", resource="pods", namespace=namespace, name=name)
        return {} if authorizer.decide(self.user, wants).allowed else {"patches": False}

    def finalize_response(  # type: ignore[override]  # as ``StatusView`` has it
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Return the rendered answer, compressed if it is large enough."""
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
    """Each filter's verdict on every node for a pod, the scores, and remedies."""

    kind = "Explanation"
    no_past = "use world=then for the cluster at the time of the last decision"
    resource, subresource, owner = "pods", "why", "name"
    is_namespaced = True
    is_single = True

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to get the subresource."""
        return (msgspec.structs.replace(*super().wants(request), verb="get"),)

    def retrieve(self, request: Request, namespace: str, name: str) -> Response:
        """Return an Explanation with one page of the nodes."""
        query = request.query_params
        limit = wire.integer(query.get("limit"), "limit")
        world = query.get("world") or ""
        if world not in ("", "now", "then"):
            raise BadRequest(f'invalid value "{world}" for world: supported values: now, then')
        spec = {
            "namespace": namespace,
            "name": name,
            "world": world,
            "token": query.get("continue") or "",
            "rejectedBy": query.get("rejectedBy") or "",
            "remedies": _unless_refused(query.get("remedies")),
        }
        if limit is not None:
            spec["limit"] = limit
        spec |= self.restrictions(namespace, name)
        return replies.reply(advisor.ask_text("why", spec))


KIND: Final = Kind(name="WaitingGroup", group=GROUP)


class WaitingGroupsViewSet(CompressedViewSet):
    """The pending pods of a namespace or of all, grouped by reason; or one group."""

    kind = KIND.name
    resource = KIND.plural
    renderer_classes = renderers.OF_OBJECTS

    def list(self, request: Request, namespace: str = "") -> Response:
        """Return a WaitingGroupList, the largest first; ``remedies`` adds helpful changes."""
        with_remedies = wire.boolean(request.query_params.get("remedies"), "remedies")
        restrictions = self.restrictions(namespace) if with_remedies else {}
        found = _groups(namespace=namespace, remedies=with_remedies, **restrictions)
        metadata = replies.list_metadata(found["revision"])
        if found["notExamined"]:
            metadata["podsNotExamined"] = found["notExamined"]
        return replies.reply(MadeManifests(KIND, found["items"], metadata))

    def retrieve(self, request: Request, name: str, namespace: str = "") -> Response:
        """Return a WaitingGroup with its remedies and all of its pods."""
        found = _groups(namespace=namespace, name=name, **self.restrictions(namespace))
        metadata = replies.list_metadata(found["revision"])
        return replies.reply(MadeManifests(KIND, found["items"], metadata, alone=True))


def _groups(**question: Any) -> Manifest:
    found: Manifest = advisor.ask("waiting-groups", question)
    return found


def _unless_refused(text: str | None) -> bool:
    """Return the boolean in ``remedies``; True if it is absent."""
    return True if not text else wire.boolean(text, "remedies")
