"""Answers that are not errors: headers, lists joined from stored text, tables.

Stored objects are bytes and stay bytes: a LIST joins them. Only a Table, which needs cells, and
``pretty=true`` look inside.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from django.http import HttpResponse

from api import clock, tables
from api.errors import JSON, NO_CACHE
from clusterstate.objects.errors import BadRequest
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest

encode = msgspec.json.Encoder().encode
decode = msgspec.json.decode

_WARNING_LENGTH = 256
_WARNINGS_LENGTH = 4096


def reply(body: bytes, *, status: int = 200, warnings: Sequence[str] = ()) -> HttpResponse:
    """Return a JSON answer."""
    response = HttpResponse(body, content_type=JSON, status=status)
    response.headers["Cache-Control"] = NO_CACHE
    if warnings:
        response.headers["Warning"] = warning_header(warnings)
    return response


def warning_header(warnings: Iterable[str]) -> str:
    """Return warnings as one header value, cut where Kubernetes' API server cuts them."""
    parts: list[str] = []
    size = 0
    for text in dict.fromkeys(warnings):
        plain = "".join(c if " " <= c <= "~" else "?" for c in text[:_WARNING_LENGTH])
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
    # Kubernetes' items do not say what the list says, and its clients do not ask them.
    said = b'{"apiVersion":"%s","kind":"%s",' % (kind.api_version.encode(), kind.name.encode())
    length = len(said)
    return b"%s%s]}" % (
        head,
        b",".join([b"{" + one[length:] if one.startswith(said) else one for one in items]),
    )


class _HasMetadata(msgspec.Struct):
    """The only part of an object that a partial one has."""

    metadata: msgspec.Raw


def partial_object(body: bytes) -> bytes:
    """Return the ``PartialObjectMetadata`` of a stored object."""
    metadata = bytes(decode(body, type=_HasMetadata).metadata)
    return (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}' % metadata
    )


def partial_list(items: Iterable[bytes], metadata: dict[str, Any]) -> bytes:
    """Return a ``PartialObjectMetadataList`` of stored objects."""
    return (
        b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",'
        b'"metadata":%s,"items":[%s]}' % (encode(metadata), b",".join(map(partial_object, items)))
    )


def include_object(text: str | None) -> str:
    """Return the checked ``includeObject`` parameter of a Table request."""
    if not text:
        return "Metadata"
    if text not in ("None", "Metadata", "Object"):
        raise BadRequest(
            f'unrecognized includeObject value: "{text}": must be None, Metadata or Object'
        )
    return text


def object_table(kind: Kind, body: bytes, include: str) -> bytes:
    """Return one stored object as a Table."""
    item: Manifest = decode(body)
    metadata = {"resourceVersion": item["metadata"].get("resourceVersion", "")}
    return encode(tables.table(kind, [item], metadata, now=clock.now(), include=include))


def list_table(kind: Kind, items: Iterable[bytes], metadata: dict[str, Any], include: str) -> bytes:
    """Return stored objects as a Table."""
    manifests = (decode(item) for item in items)
    return encode(tables.table(kind, manifests, metadata, now=clock.now(), include=include))
