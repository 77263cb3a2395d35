"""Object metadata as a lens, and the small rules that all kinds share."""

from typing import Any

import msgspec

Manifest = dict[str, Any]
"""A JSON object as decoded: the document form of any Kubernetes object."""


def prepare(*types: type[msgspec.Struct]) -> None:
    """Let msgspec work out the fields of Structs now, on the thread that imports them.

    It does so when it first meets a type, without a lock: two threads that first decode the same
    type at the same moment crash the process (msgspec 0.22).
    """
    for each in types:
        msgspec.json.Decoder(each)


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of ``metadata.ownerReferences``; ``controller`` marks the managing owner."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of ``metadata`` that decisions read. Times are RFC 3339 text, empty when absent."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


def strip_nulls(value: Any) -> Any:
    """Return ``value`` without JSON nulls in its objects; Go clients send ``null`` for absent."""
    if isinstance(value, dict):
        return {k: strip_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [strip_nulls(v) for v in value]
    return value
