"""Which form of answer a client accepts.

Everything is stored as JSON; a ``Table`` is JSON with other contents. A client that takes JSON gets
JSON, whatever it names first, since that costs neither side anything; one that takes protobuf alone
gets protobuf, written from JSON at the end (`api.protobuf`).
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request

from api.errors import NotAcceptable

PLAIN = "plain"
TABLE = "table"
PROTOBUF = "application/vnd.kubernetes.protobuf"

_JSON = ("application/json", "*/*", "application/*")


@lru_cache(maxsize=256)
def _first(accept: str, *, protobuf: bool) -> str | None:
    """Return the form that the first clause asks for which can be given, ``None`` if none can."""
    if not accept.strip():
        return PLAIN
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        shape = values.get("as")
        if media.lower() == PROTOBUF and shape is None and protobuf:
            return PROTOBUF
        if media.lower() not in _JSON:
            continue
        if shape is None:
            return PLAIN
        if shape == "Table" and values.get("g") == "meta.k8s.io":
            return TABLE
    return None


def form(accept: str) -> str:
    """Return ``TABLE`` or ``PLAIN`` for an ``Accept`` header; an empty one accepts anything.

    Where protobuf alone is taken the form is ``PLAIN`` as well, since ``api.protobuf`` writes it
    from JSON.

    Raises:
        NotAcceptable: nothing in it can be given.
    """
    found = _first(accept, protobuf=False)
    if found is None and not wants_protobuf(accept):
        raise not_acceptable()
    return found or PLAIN


def wants_protobuf(accept: str) -> bool:
    """Return whether an ``Accept`` header takes protobuf and no JSON."""
    return (
        "protobuf" in accept
        and _first(accept, protobuf=True) == PROTOBUF
        and _first(accept, protobuf=False) is None
    )


def not_acceptable() -> NotAcceptable:
    """Return the failure that names what can be given."""
    return NotAcceptable(
        f"only the following media types are accepted: application/json, {PROTOBUF}, "
        "application/json;as=Table;v=v1;g=meta.k8s.io"
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
