"""Results of views, before a renderer writes them.

Stored objects are bytes and stay bytes: a LIST joins them. Only a form that needs more (a Table, a
page) decodes them. A *content* is one stored object, a list of them, or manifests that were
composed for the answer; any other result (a review, a ``Status``) is a plain value.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.http import SimpleCookie
from django.http.response import HttpResponseBase, ResponseHeaders
from rest_framework.response import Response

from api import clock
from api.forms import tables
from api.forms.errors import NO_CACHE
from api.forms.negotiation import V1
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest

encode = msgspec.json.Encoder().encode
decode = msgspec.json.decode

_WARNING_LENGTH = 256
_WARNINGS_LENGTH = 4096


class Content(msgspec.Struct, frozen=True, gc=False):
    """The objects in an answer, all of one kind; base of the forms below."""

    kind: Kind

    def json(self) -> bytes:
        """Return the objects as they are stored."""
        raise NotImplementedError

    def manifests(self) -> list[Manifest]:
        """Return each object as a manifest."""
        raise NotImplementedError

    def table(self, include: str, version: str = V1) -> dict[str, Any]:
        """Return the objects as a Table; ``include``: how much of each object its row includes.

        ``version``: of meta.k8s.io.
        """
        raise NotImplementedError

    def partial(self, version: str = V1) -> bytes:
        """Return only the metadata of the objects; ``version``: of meta.k8s.io."""
        raise NotImplementedError


class StoredAnswer(Content, frozen=True, gc=False):
    """One object as stored; ``moment``: the past time of its state, None for now."""

    body: bytes
    moment: datetime | None = None

    def json(self) -> bytes:
        """Return the object."""
        return self.body

    def manifests(self) -> list[Manifest]:
        """Return the object as a list of one."""
        return [decode(self.body)]

    def table(self, include: str, version: str = V1) -> dict[str, Any]:
        """Return a Table with one row."""
        item: Manifest = decode(self.body)
        metadata = {"resourceVersion": item["metadata"].get("resourceVersion", "")}
        now = self.moment or clock.now()
        return tables.table(self.kind, [item], metadata, now=now, include=include, version=version)

    def partial(self, version: str = V1) -> bytes:
        """Return the object's ``PartialObjectMetadata``."""
        return partial_object(self.body, version)


class StoredList(Content, frozen=True, gc=False):
    """A list of objects as stored; ``metadata``: the list's own.

    ``moment``: the past time of their state, None for now.
    """

    items: Sequence[bytes]
    metadata: dict[str, Any]
    moment: datetime | None = None

    def json(self) -> bytes:
        """Return the list, its items unparsed."""
        return join_list(self.kind, self.items, self.metadata)

    def manifests(self) -> list[Manifest]:
        """Return the items."""
        return [decode(item) for item in self.items]

    def table(self, include: str, version: str = V1) -> dict[str, Any]:
        """Return a Table with a row for each object."""
        items = (decode(item) for item in self.items)
        now = self.moment or clock.now()
        return tables.table(
            self.kind, items, self.metadata, now=now, include=include, version=version
        )

    def partial(self, version: str = V1) -> bytes:
        """Return a ``PartialObjectMetadataList``."""
        items = b",".join(partial_object(item, version) for item in self.items)
        return (
            b'{"kind":"PartialObjectMetadataList","apiVersion":"%s",'
            b'"metadata":%s,"items":[%s]}' % (version.encode(), encode(self.metadata), items)
        )


class MadeManifests(Content, frozen=True, gc=False):
    """Manifests that are not stored: one object, or a list with its own ``metadata``."""

    items: list[Manifest]
    metadata: dict[str, Any]
    alone: bool = False

    def json(self) -> bytes:
        """Return the one object, or the list."""
        if self.alone:
            return encode(self.items[0])
        return encode(
            {
                "kind": self.kind.list_kind,
                "apiVersion": self.kind.api_version,
                "metadata": self.metadata,
                "items": self.items,
            }
        )

    def manifests(self) -> list[Manifest]:
        """Return the manifests."""
        return self.items

    def table(self, include: str, version: str = V1) -> dict[str, Any]:
        """Return a Table with a row for each object."""
        return tables.table(
            self.kind, self.items, self.metadata, now=clock.now(), include=include, version=version
        )

    def partial(self, version: str = V1) -> bytes:
        """Return the metadata of each."""
        items = [encode(item) for item in self.items]
        if self.alone:
            return partial_object(items[0], version)
        return StoredList(self.kind, items, self.metadata).partial(version)


def text_of(data: Any) -> bytes:
    """Return a view's answer as JSON text."""
    if isinstance(data, Content):
        return data.json()
    return data if isinstance(data, bytes) else encode(data)


def value_of(data: Any) -> Any:
    """Return a view's answer as Python values (dicts and lists)."""
    if isinstance(data, Content | bytes):
        return decode(text_of(data))
    return data


class Answer(Response):
    """DRF's response, without the work of Django's constructors that the renderer overwrites.

    They set a content type and an empty content, which takes a third of the framework's own time
    for a request.
    """

    def __init__(self, data: Any, status: int) -> None:
        # The attributes that the constructors of DRF's and Django's responses set.
        self.data, self.status_code = data, status
        self.headers = ResponseHeaders({})
        self.headers["Cache-Control"] = NO_CACHE
        self.cookies = SimpleCookie()
        self.exception = self.closed = self._is_rendered = False
        self._post_render_callbacks: list[Any] = []
        self._resource_closers: list[Any] = []
        self._container: list[bytes] = []
        own: Any = self  # the stubs declare it as always present
        own.content_type = own.template_name = own.context_data = own.using = None
        own._request = own._charset = own._reason_phrase = own._handler_class = None


def reply(data: Any, *, status: int = 200, warnings: Sequence[str] = ()) -> Response:
    """Return an answer: a content, a value, or JSON text as bytes."""
    response = Answer(data, status)
    if warnings:
        response.headers["Warning"] = warning_header(warnings)
    return response


def warn(response: HttpResponseBase, text: str) -> None:
    """Add a warning to an answer, before its other warnings."""
    others = response.headers.get("Warning")
    response.headers["Warning"] = ", ".join(filter(None, (warning_header([text]), others)))


def warning_header(warnings: Iterable[str]) -> str:
    """Return warnings as one header value, cut where Kubernetes' API server cuts them."""
    texts = list(dict.fromkeys(warnings))
    longest = _WARNING_LENGTH if sum(map(len, texts)) > _WARNINGS_LENGTH else _WARNINGS_LENGTH
    parts: list[str] = []
    size = 0
    for text in texts:
        plain = "".join(c if " " <= c <= "~" else "?" for c in text[:longest])
        escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
        size += len(escaped)
        if size > _WARNINGS_LENGTH:
            break
        parts.append(f'299 - "{escaped}"')
    return ", ".join(parts)


def pretty(body: bytes) -> bytes:
    """Return JSON text with line breaks and indentation."""
    return msgspec.json.format(body, indent=2) + b"\n"


def list_metadata(
    revision: int, continue_token: str | None = None, remaining: int | None = None
) -> dict[str, Any]:
    """Return the ``metadata`` of a list."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if continue_token:
        metadata["continue"] = continue_token
        if remaining is not None:
            metadata["remainingItemCount"] = remaining
    return metadata


def join_list(kind: Kind, items: Sequence[bytes], metadata: dict[str, Any]) -> bytes:
    """Return a list manifest around stored objects, unparsed."""
    head = b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[' % (
        kind.list_kind.encode(),
        kind.api_version.encode(),
        encode(metadata),
    )
    # The list's items omit kind and apiVersion in Kubernetes, and its clients do not need them.
    prefix = b'{"apiVersion":"%s","kind":"%s",' % (kind.api_version.encode(), kind.name.encode())
    length = len(prefix)
    parts = [b"{" + one[length:] if one.startswith(prefix) else one for one in items]
    if not parts:
        return head + b"]}"
    parts[0] = head + parts[0]  # without a copy of the whole
    parts[-1] += b"]}"
    return b",".join(parts)


class _HasMetadata(msgspec.Struct):
    """The only part of an object in a PartialObjectMetadata."""

    metadata: msgspec.Raw


def partial_object(body: bytes, version: str = V1) -> bytes:
    """Return the ``PartialObjectMetadata`` of a stored object."""
    metadata = bytes(decode(body, type=_HasMetadata).metadata)
    return b'{"kind":"PartialObjectMetadata","apiVersion":"%s","metadata":%s}' % (
        version.encode(),
        metadata,
    )


def include_object(text: str | None) -> str:
    """Return the checked ``includeObject`` parameter of a Table request."""
    if not text:
        return "Metadata"
    if text not in ("None", "Metadata", "Object"):
        raise BadRequest(
            f"includeObject: Invalid value: {encode(text).decode()}: "
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return text
