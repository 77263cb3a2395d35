"""Paths under which objects have another form than the stored one.

Events of ``events.k8s.io`` are the core group's with other field names; autoscalers of
``autoscaling/v1`` have fewer fields than those of ``autoscaling/v2``; PodGroups and Workloads have
older versions. Each is stored once. A request is converted before a view sees it, and its answer
after the view, so that selectors, patches and watches work alike in both forms.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from rest_framework.response import Response

from api import routes
from api.forms import parsers, replies, wire
from api.forms.negotiation import PARTIAL, TABLE
from api.requests import Request
from clusterstate.objects.registry import first_autoscalers, older_pod_groups
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import event_names, event_rules
from clusterstate.objects.values.meta import Manifest


class Form(msgspec.Struct, frozen=True):
    """A second form of a kind, with the conversions to and from the stored one.

    ``stored`` converts bodies, and patches unless ``patches_shown``: then a patch is applied to the
    object in this form. ``kept`` adds to a changed object those fields of the old one that this
    form lacks. ``require`` raises if this form does not allow a new object, or an update; it gets
    both objects in the stored form.
    """

    kind: Kind
    api_version: str
    stored: Callable[[Any], Any]
    shown: Callable[[Manifest], Manifest]
    stored_selector: Callable[[str], str] = lambda text: text
    kept: Callable[[Manifest, Manifest], Manifest] = lambda new, old: new
    patches_shown: bool = False
    require: Callable[[Manifest, Manifest | None], None] = lambda new, old: None

    def target(self, target: routes.Target) -> routes.Target:
        """Return the target of the same path in the stored form."""
        return msgspec.structs.replace(target, kind=self.kind)

    def change_request(self, request: Request) -> None:
        """Convert a request's body and field selector from this form to the stored one, in place.

        Raises:
            UnsupportedMediaType, BadRequest: the body does not decode.
        """
        if request.body and request.method != "DELETE" and not self._is_patch(request):
            request._full_data = self.stored(request.data)
        selector = request.query_params.get("fieldSelector")
        if selector:
            query = request.query_params.copy()
            query["fieldSelector"] = self.stored_selector(selector)
            request.query_params = query

    def _is_patch(self, request: Request) -> bool:
        """Return whether the body is a patch of an object in this form."""
        if not self.patches_shown or request.method != "PATCH":
            return False
        return parsers.media_type(request.META.get("CONTENT_TYPE")) != parsers.APPLY

    def change_answer(self, request: Request, response: Response) -> None:
        """Convert the objects in an answer to this form; a Table or metadata alone stays."""
        renderer = getattr(request, "accepted_renderer", None)
        if response.exception or renderer is None or renderer.format in (TABLE, PARTIAL):
            return
        value = replies.value_of(response.data)
        if value.get("kind") in (self.kind.name, self.kind.list_kind):
            response.data = self.shown(value)


def _stored_autoscaler(value: Any) -> Any:
    """Return a body in the form of version 2.

    Raises:
        BadRequest: it is of another kind or version.
    """
    if isinstance(value, dict) and "items" not in value:
        value = wire.typed(value, "HorizontalPodAutoscaler", first_autoscalers.API_VERSION)
    return first_autoscalers.stored(value)


EVENTS: Final = Form(
    KINDS["Event"],
    event_names.API_VERSION,
    event_names.stored,
    event_names.shown,
    event_names.stored_selector,
    require=event_rules.require,
)
AUTOSCALERS: Final = Form(
    KINDS["HorizontalPodAutoscaler"],
    first_autoscalers.API_VERSION,
    _stored_autoscaler,
    first_autoscalers.shown,
    kept=first_autoscalers.with_unknown_fields,
    patches_shown=True,
)


def _group_form(name: str, version: str) -> Form:
    """Return the form of PodGroups or Workloads in an older version."""

    def stored(value: Any) -> Any:
        if isinstance(value, dict) and "items" not in value:
            value = wire.typed(value, name, older_pod_groups.api_version(version))
        return older_pod_groups.stored(value, version)

    return Form(
        KINDS[name],
        older_pod_groups.api_version(version),
        stored,
        lambda manifest: older_pod_groups.shown(manifest, version),
        kept=older_pod_groups.with_unknown_fields
        if version == "v1alpha2"
        else lambda new, old: new,
        patches_shown=True,
    )


_GROUPS: Final = {
    (name, version): _group_form(name, version)
    for name in ("PodGroup", "Workload")
    for version in older_pod_groups.VERSIONS[1:]
}


def of(target: routes.Target, version: str) -> Form | None:
    """Return the form of objects under a path of this version; ``None``: as stored."""
    if target.kind.group == event_names.GROUP:
        return EVENTS
    if target.kind is AUTOSCALERS.kind and version == first_autoscalers.VERSION:
        return AUTOSCALERS
    if target.kind.group == older_pod_groups.GROUP:
        return _GROUPS.get((target.kind.name, version))
    return None
