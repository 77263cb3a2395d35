"""Which form of answer a client accepts.

Everything is stored as JSON; a ``Table`` and a ``PartialObjectMetadata`` are JSON with other
contents. A client that takes JSON gets JSON, whatever it names first, since that costs neither side
anything; one that takes protobuf alone gets protobuf, written from JSON at the end
(`api.protobuf`).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request

from api.errors import NotAcceptable

PLAIN = "plain"
TABLE = "table"
PARTIAL = "partial"
PROTOBUF = "application/vnd.kubernetes.protobuf"

DISCOVERY = "apidiscovery.k8s.io"

_JSON = ("application/json", "*/*", "application/*")
_SHAPES = {
    "Table": TABLE,
    "PartialObjectMetadata": PARTIAL,
    "PartialObjectMetadataList": PARTIAL,
}


@lru_cache(maxsize=256)
def _taken(accept: str) -> str | None:
    """Return the form of the first clause that takes JSON, else ``PROTOBUF`` if one takes that.

    ``None``: the client takes neither. Each distinct header is read once.
    """
    if not accept.strip():
        return PLAIN
    found = None
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        shape = values.get("as")
        if media.lower() in _JSON:
            if shape is None:
                return PLAIN
            if values.get("g") == "meta.k8s.io" and shape in _SHAPES:
                return _SHAPES[shape]
        elif media.lower() == PROTOBUF and shape is None:
            found = PROTOBUF
    return found


def form(accept: str) -> str:
    """Return ``TABLE``, ``PARTIAL`` or ``PLAIN`` for an ``Accept`` header.

    An empty one accepts anything. Where protobuf alone is taken the form is ``PLAIN`` as well,
    since ``api.protobuf`` writes it from JSON.

    Raises:
        NotAcceptable: nothing in it can be given.
    """
    found = _taken(accept)
    if found is None:
        raise not_acceptable()
    return PLAIN if found == PROTOBUF else found


def discovery_version(accept: str) -> str | None:
    """Return in which version a client wants discovery in one answer; None if it does not."""
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


def wants_protobuf(accept: str) -> bool:
    """Return whether an ``Accept`` header takes protobuf and no JSON."""
    return "protobuf" in accept.lower() and _taken(accept) == PROTOBUF


def not_acceptable() -> NotAcceptable:
    """Return the failure that names what can be given."""
    return NotAcceptable(
        f"only the following media types are accepted: application/json, {PROTOBUF}, "
        "application/json;as=Table;v=v1;g=meta.k8s.io, "
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    )


class Negotiation(BaseContentNegotiation):
    """DRF's negotiation without its work: views look at ``Accept`` themselves, where it matters."""

    def select_parser(self, request: Request, parsers: Iterable[Any]) -> None:
        """Return no parser: ``wire.decode`` reads bodies."""
        return

    def select_renderer(
        self, request: Request, renderers: Iterable[Any], format_suffix: str | None = None
    ) -> tuple[None, str]:
        """Return no renderer: views answer with bytes."""
        return None, "application/json"
