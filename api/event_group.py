"""Requests of the group ``events.k8s.io``: the core group's Events under other names of fields.

There is one store of Events. What comes in is renamed before a view sees it, and what goes out
is renamed after it, so that selectors, patches and watches work as for the core group (see
`objects.event_names`).
"""

import msgspec
from rest_framework.response import Response

from api import replies, routes
from api.negotiation import PARTIAL, TABLE
from api.requests import Request
from clusterstate.objects import event_names
from clusterstate.objects.kinds import KINDS


def is_asked(target: routes.Target) -> bool:
    """Return whether a path is one of this group."""
    return target.kind.group == event_names.GROUP


def in_core(target: routes.Target) -> routes.Target:
    """Return what the same path of the core group names."""
    return msgspec.structs.replace(target, kind=KINDS["Event"])


def rename_request(request: Request) -> None:
    """Rename the fields of the body and of the field selector, in place.

    Raises:
        UnsupportedMediaType, BadRequest: the body does not decode.
    """
    if request.body:
        request._full_data = event_names.stored(request.data)
    selector = request.query_params.get("fieldSelector")
    if selector:
        query = request.query_params.copy()
        query["fieldSelector"] = event_names.stored_selector(selector)
        request.query_params = query


def rename_answer(request: Request, response: Response) -> None:
    """Rename the fields of an answer that holds Events, unless the form has no such fields."""
    renderer = getattr(request, "accepted_renderer", None)
    if response.exception or renderer is None or renderer.format in (TABLE, PARTIAL):
        return
    value = replies.value_of(response.data)
    if value.get("kind") in ("Event", "EventList"):
        response.data = event_names.shown(value)
