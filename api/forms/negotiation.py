"""Which parser reads a body, and in which form a client gets its answer.

Everything is stored as JSON; a ``Table`` and a ``PartialObjectMetadata`` are JSON with other
contents, and protobuf is converted from JSON at the end. A client gets the form that it names
first, or with the highest weight, of those available: client-go names protobuf before JSON, and
some kinds have no message there. Rule: ``NegotiateMediaTypeOptions``, apiserver
``endpoints/handlers/negotiation/negotiate.go``, v1.36.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rest_framework.negotiation import BaseContentNegotiation

from api.forms import parsers as bodies
from api.forms.errors import NotAcceptable
from api.forms.protobuf import MEDIA_TYPE
from clusterstate import middleware
from clusterstate.objects.values.remembered import remembered

PLAIN: Final = "json"
TABLE: Final = "table"
PARTIAL: Final = "partial"
YAML: Final = "yaml"
PROTOBUF: Final = "protobuf"
PARTIAL_PROTOBUF: Final = "partial-protobuf"
PAGE: Final = "page"
DISCOVERY_FORM: Final = "discovery"

DISCOVERY: Final = "apidiscovery.k8s.io"

V1: Final = "meta.k8s.io/v1"
V1BETA1: Final = "meta.k8s.io/v1beta1"

_JSON = ("application/json", "*/*", "application/*")
_YAML = ("application/yaml", "text/yaml", "application/x-yaml")
_SHAPES = {
    "Table": TABLE,
    "PartialObjectMetadata": PARTIAL,
    "PartialObjectMetadataList": PARTIAL,
}


@remembered(256)
def forms(accept: str) -> tuple[str, ...]:
    """Return the forms that an ``Accept`` header accepts, the preferred one first.

    An empty header accepts anything. A ``Table`` is never in protobuf. Each distinct header is
    parsed once.
    """
    if not accept.strip():
        return (PLAIN,)
    return tuple(dict.fromkeys(form for form, _ in _named(accept)))


def meta_version(accept: str, chosen_form: str) -> str:
    """Return the version of meta.k8s.io for an answer in ``chosen_form``.

    It is the one in the clause of that form: kubectl before 1.16 reads only ``v1beta1``. Rule:
    ``transformResponseObject``, apiserver ``endpoints/handlers/response.go``, v1.36.
    """
    return next((version for form, version in _named(accept) if form == chosen_form), V1)


def _named(accept: str) -> Iterator[tuple[str, str]]:
    """Yield each form that an ``Accept`` header names, and its version of meta.k8s.io if any."""
    for clause in sorted(accept.split(","), key=_weight, reverse=True):
        media, *parameters = (part.strip() for part in clause.split(";"))
        media = media.lower()
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        shape = values.get("as")
        if media in _JSON:
            if shape is None:
                if not values.keys() & {"g", "v"}:
                    yield PLAIN, ""
            elif shape in _SHAPES and (version := _version_of_meta(values)):
                yield _SHAPES[shape], version
            elif discovery_version(clause) is not None:
                yield DISCOVERY_FORM, ""
        elif media in _YAML and shape is None:
            yield YAML, ""
        elif media == MEDIA_TYPE and shape is None:
            yield PROTOBUF, ""
        elif (
            media == MEDIA_TYPE
            and _SHAPES.get(shape or "") == PARTIAL
            and (version := _version_of_meta(values))
        ):
            yield PARTIAL_PROTOBUF, version


def _weight(clause: str) -> float:
    """Return the ``q`` of a clause, from 0 to 1; 1 if it is missing or malformed."""
    found = _QUALITY.search(clause)
    return min(float(found[1]), 1.0) if found else 1.0


_QUALITY: Final = re.compile(r";\s*q=([0-9]{1,9}(?:\.[0-9]{0,9})?)\s*(?:;|$)", re.ASCII)


def _version_of_meta(values: Mapping[str, str]) -> str:
    """Return the ``apiVersion`` of meta.k8s.io in a clause, empty without one.

    Rule: ``AllowsMediaTypeTransform``, apiserver ``endpoints/handlers/rest.go``, v1.36.
    """
    version = f"{values.get('g')}/{values.get('v')}"
    return version if version in (V1, V1BETA1) else ""


def form(accept: str, *, has_message: bool) -> str:
    """Return the media type of the events of a watch or a wait (lines or frames).

    One of ``PLAIN``, ``TABLE``, ``PARTIAL``, ``PARTIAL_PROTOBUF`` and, where objects of the kind
    have a message (``has_message``), ``PROTOBUF``.

    Raises:
        NotAcceptable: none of these is accepted.
    """
    for found in forms(accept):
        if found in _OF_LINES or (found == PROTOBUF and has_message):
            return found
    raise not_acceptable()


_OF_LINES: Final = (PLAIN, TABLE, PARTIAL, PARTIAL_PROTOBUF)


def discovery_version(accept: str) -> str | None:
    """Return the version of aggregated discovery that a client accepts, ``None`` for none."""
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        if media.lower() != "application/json":
            continue
        if values.get("as") != "APIGroupDiscoveryList" or values.get("g") != DISCOVERY:
            return None
        if values.get("v") in ("v2", "v2beta1"):
            return values["v"]
    return None


def for_failures(accept: str) -> str:
    """Return the form of a failure: JSON, unless the client names YAML or protobuf first."""
    found = forms(accept)
    first = found[0] if found else PLAIN
    if first == PARTIAL_PROTOBUF:
        return PROTOBUF
    return first if first in (YAML, PROTOBUF) else PLAIN


def not_acceptable() -> NotAcceptable:
    """Return the error 406, which lists the available media types."""
    return NotAcceptable(
        f"only the following media types are accepted: application/json, {MEDIA_TYPE}, "
        "application/yaml, application/json;as=Table;v=v1;g=meta.k8s.io, "
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )


class Negotiation(BaseContentNegotiation):
    """Chooses by Content-Type and Accept."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        """Return the parser for the body of a request.

        Raises:
            UnsupportedMediaType: none of them reads it.
        """
        return bodies.select(request.META.get("CONTENT_TYPE"), parsers)

    def select_renderer(
        self, request: Any, renderers: Any, format_suffix: str | None = None
    ) -> tuple[Any, str]:
        """Return the renderer for the answer, and the media type of its header.

        Raises:
            NotAcceptable: the client accepts none of the renderers' media types.
        """
        accept = request.META.get("HTTP_ACCEPT", "")
        if "text/html" in accept and middleware.is_browser(request._request):
            for renderer in renderers:
                if renderer.format == PAGE:
                    return renderer, renderer.media_type
        for renderer in fitting(accept, renderers):
            return renderer, renderer.media_type
        raise not_acceptable()


def fitting(accept: str, renderers: Iterable[Any]) -> Iterator[Any]:
    """Yield the renderers that an ``Accept`` header accepts, in its order."""
    for form in forms(accept):
        for renderer in renderers:
            if renderer.format == form:
                yield renderer
