"""Which kind, object and subresource a path names.

Views (threads) and watches (event loop) share this reading of a path, so it is plain text work
without Django's resolver. A trailing slash means nothing: clients write both forms, and a redirect
would turn their PATCH into a GET.
"""

import msgspec

from clusterstate.objects.kinds import KINDS, Kind

_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


class Target(msgspec.Struct, frozen=True):
    """What a path names. Empty texts mean: no namespace, the collection, the object itself."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def split(path: str) -> tuple[str, str, list[str]] | None:
    """Return group, version and the remaining parts of an API path, or None for another path."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 2:
        return "", parts[1], parts[2:]
    if parts[0] == "apis" and len(parts) >= 3:
        return parts[1], parts[2], parts[3:]
    return None


def resolve(path: str) -> Target | None:
    """Return what ``path`` names, or None when no kind is served there."""
    found = split(path)
    if found is None:
        return None
    group, version, parts = found
    namespace = ""
    if len(parts) >= 3 and parts[0] == "namespaces" and parts[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, parts = parts[1], parts[2:]
        if not namespace:
            return None
    if not parts or len(parts) > 3 or not all(parts):
        return None
    kind = KINDS.get((group, parts[0]))
    if kind is None or version not in kind.versions:
        return None
    if namespace and not kind.namespaced:
        return None
    name = parts[1] if len(parts) > 1 else ""
    if name and kind.namespaced and not namespace:
        return None
    subresource = parts[2] if len(parts) > 2 else ""
    if subresource and subresource not in kind.subresources:
        return None
    return Target(kind, namespace, name, subresource)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def verb(method: str, target: Target) -> str:
    """Return Kubernetes' word for what a method does there."""
    known = _VERBS.get(method)
    if known is not None:
        return known
    if method == "GET":
        return "get" if target.name else "list"
    return "delete" if target.name else "deletecollection"
