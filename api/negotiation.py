"""Which form of answer a client accepts.

Everything is JSON; a ``Table`` is JSON with other contents. Clients name protobuf or a Table first
and JSON after it, so an ``Accept`` is satisfied when any part of it can be.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request

from api.errors import NotAcceptable

PLAIN = "plain"
TABLE = "table"


@lru_cache(maxsize=256)
def form(accept: str) -> str:
    """Return ``TABLE`` or ``PLAIN`` for an ``Accept`` header; an empty one accepts anything.

    Raises:
        NotAcceptable: nothing in it can be given.
    """
    if not accept.strip():
        return PLAIN
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media.lower() not in ("application/json", "*/*", "application/*"):
            continue
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        shape = values.get("as")
        if shape is None:
            return PLAIN
        if shape == "Table" and values.get("g") == "meta.k8s.io":
            return TABLE
    raise NotAcceptable(
        "only the following media types are accepted: application/json, "
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
