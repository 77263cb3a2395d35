"""Object metadata as a lens, and the small rules that all kinds share."""

from typing import Any, Final

import msgspec

Manifest = dict[str, Any]
"""A JSON object as decoded: the document form of any Kubernetes object."""


def prepare(*types: type[msgspec.Struct]) -> None:
    """Have msgspec prepare the fields of Structs now, on the importing thread.

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


NO_NODE: Final[Manifest] = {
    "matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "Exists"},
        {"key": "kubernetes.io/hostname", "operator": "DoesNotExist"},
    ]
}
"""A term of a node selector that matches nothing: what ``null`` means there (R9)."""


_PLAIN: Final = frozenset({str, int, bool, float})


def strip_nulls(value: Any) -> Any:
    """Return ``value`` without JSON nulls in its objects; Go clients send ``null`` for absent.

    A term of a node selector that is ``null`` matches nothing (R9), and so does a preferred term
    (R18). Among others it is left out; where it is alone, ``NO_NODE`` takes its place.
    """
    if isinstance(value, dict):
        return {
            k: v if type(v) in _PLAIN else _stripped(k, v)
            for k, v in value.items()
            if v is not None
        }
    if isinstance(value, list):
        return [strip_nulls(v) for v in value]
    return value


def _stripped(key: str, value: Any) -> Any:
    """Return the member ``key`` of an object without nulls."""
    if isinstance(value, list) and None in value:
        if key == "nodeSelectorTerms":
            value = [term for term in value if term is not None] or [NO_NODE]
        elif key == "preferredDuringSchedulingIgnoredDuringExecution":
            value = [term for term in value if term is not None]
    return strip_nulls(value)
