"""Requests of the group ``events.k8s.io``: the core group's Events under other names of fields.

There is one store of Events. What comes in is renamed before a view sees it, and what goes out
is renamed after it, so that selectors, patches and watches work as for the core group (see
`objects.event_names`).
"""

import msgspec
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase

from api import errors, protobuf, routes, wire
from clusterstate.objects import event_names
from clusterstate.objects.kinds import KINDS


def is_asked(target: routes.Target) -> bool:
    """Return whether a path is one of this group."""
    return target.kind.group == event_names.GROUP


def in_core(target: routes.Target) -> routes.Target:
    """Return what the same path of the core group names."""
    return msgspec.structs.replace(target, kind=KINDS["Event"])


def rename_request(request: HttpRequest) -> None:
    """Rename the fields of the body and of the field selector, in place.

    Raises:
        UnsupportedMediaType, BadRequest: the body does not decode.
    """
    if request.body:
        value = wire.decode_patch(request.body, request.META.get("CONTENT_TYPE"))
        request._body = wire.encode(event_names.stored(value))
        if wire.media_type(request.META.get("CONTENT_TYPE")) == protobuf.MEDIA_TYPE:
            request.META["CONTENT_TYPE"] = wire.JSON
    selector = request.GET.get("fieldSelector")
    if selector:
        query: QueryDict = request.GET.copy()
        query["fieldSelector"] = event_names.stored_selector(selector)
        request.GET = query  # type: ignore[assignment]  # not changed after this


def rename_answer(response: HttpResponseBase) -> None:
    """Rename the fields of an answer that holds Events, in place."""
    if not isinstance(response, HttpResponse) or response.get("Content-Type") != errors.JSON:
        return
    value = msgspec.json.decode(response.content)
    if value.get("kind") in ("Event", "EventList"):
        response.content = wire.encode(event_names.shown(value))
