"""Which kind, object and subresource a path names.

``of`` reads the path of a request once and keeps the ``Route`` in its ASGI scope; limits, lanes,
watches and metrics ask it there, and the WSGI environment hands it to the view. ``urls`` only names
the views of the paths that no kind has. A trailing slash means nothing: clients write both forms,
and a redirect would turn their PATCH into a GET.
"""

import re
from collections.abc import MutableMapping
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode

import msgspec

from clusterstate.middleware import is_page
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS, VIEWS
from clusterstate.objects.values.remembered import remembered

ROUTE = "stowage.route"
"""The key of the ``Route`` in an ASGI scope and in a WSGI environment."""

_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


class Target(msgspec.Struct, frozen=True):
    """The target of a path. Empty texts mean: no namespace, the collection, the object itself."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def is_deleted_together(self) -> bool:
        """Whether a DELETE of the collection deletes its objects."""
        return self.kind.deleted_together and bool(self.namespace or not self.kind.namespaced)


class Route(msgspec.Struct, frozen=True, gc=False):
    """The purpose of a path.

    ``target``: what it names, where it names objects of a kind. ``is_api``: below ``/api`` or
    ``/apis``, so that a token is needed. ``is_page``: a browser asks, for a page or file of the
    admin or to read what the API has. ``version``: the one in the path, empty where there is none.
    """

    target: Target | None = None
    is_api: bool = False
    is_page: bool = False
    version: str = ""


class HasPath(Protocol):
    """A request."""

    @property
    def path_info(self) -> str:
        """The path, without parameters."""


def of(scope: MutableMapping[str, Any]) -> Route:
    """Return the route of an ASGI request, read at the first call and kept in the scope."""
    found: Route | None = scope.get(ROUTE)
    if found is None:
        method = scope["method"]
        accept, has_token = b"", False
        if method == "GET":
            for name, value in scope["headers"]:
                if name == b"accept":
                    accept = accept or value
                elif name == b"authorization":
                    has_token = True
        found = scope[ROUTE] = read(scope["path"], method, accept.decode("latin-1"), has_token)
    return found


_FORMER_WATCH: Final = "/watch/"
_DEPTHS: Final = {"/api/": 2, "/apis": 3}
"""How many parts a path has before the resource, by how it begins."""


def bring_up_to_date(scope: MutableMapping[str, Any]) -> None:
    """Turn the path of a watch of former times into today's, in place.

    ``/api/v1/watch/namespaces/NS/pods/NAME`` stands for the collection with ``watch=true`` and a
    field selector for the name. Rule: ``registerResourceHandlers``, apiserver
    ``endpoints/installer.go``, v1.36, which serves these paths to clients that still know them.
    """
    path = scope["path"]
    if scope["method"] != "GET" or _FORMER_WATCH not in path:
        return
    before, _, rest = path.partition(_FORMER_WATCH)
    target = resolve(f"{before}/{rest}") if before.count("/") == _DEPTHS.get(before[:5]) else None
    if target is None or target.subresource:
        return
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    parts = rest.rstrip("/").split("/")
    if target.name:
        name = re.sub(r"([\\,=])", r"\\\1", parts.pop())
        selectors = [f"metadata.name={name}"]
        selectors += [value for key, value in query if key == "fieldSelector" and value]
        query = [one for one in query if one[0] != "fieldSelector"]
        query.append(("fieldSelector", ",".join(selectors)))
    query = [*(one for one in query if one[0] != "watch"), ("watch", "true")]
    scope["path"] = f"{before}/{'/'.join(parts)}"
    scope["query_string"] = urlencode(query).encode("latin-1")


def route_of(meta: MutableMapping[str, Any], request: HasPath) -> Route:
    """Return the route of a request; the server has read it before the request came to a thread."""
    found: Route | None = meta.get(ROUTE)
    if found is None:
        found = meta[ROUTE] = read(request.path_info)
    return found


def target_of(meta: MutableMapping[str, Any], request: HasPath) -> Target | None:
    """Return the object or collection that a request's path names."""
    return route_of(meta, request).target


def read(path: str, method: str = "", accept: str = "", has_token: bool = True) -> Route:  # noqa: FBT001
    """Return what a request is for."""
    found = _of_path(path)
    if is_page(method, path, accept, has_token):
        return msgspec.structs.replace(found, is_page=True)
    return found


@remembered(4096)
def _of_path(path: str) -> Route:
    """Return the route of a path, cached: most requests repeat earlier paths."""
    if not path.startswith(("/api/", "/apis/")):
        return Route()
    found = split(path)
    if found is None:
        return Route(is_api=True)
    return Route(_target(*found), is_api=True, version=found[1])


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
    return None if found is None else _target(*found)


def _target(group: str, version: str, parts: list[str]) -> Target | None:
    namespace = ""
    if len(parts) >= 3 and parts[0] == "namespaces" and parts[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, parts = parts[1], parts[2:]
        if not namespace:
            return None
    if not parts or len(parts) > 3 or not all(parts):
        return None
    kind = KINDS.get((group, parts[0])) or VIEWS.get((group, version, parts[0]))
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
    """Return the RBAC verb of a method on a target, such as ``list`` or ``deletecollection``."""
    word = _VERBS.get(method)
    if word is not None:
        return word
    if method == "GET":
        return "get" if target.name else "list"
    return "delete" if target.name else "deletecollection"
