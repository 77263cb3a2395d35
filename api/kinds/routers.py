"""Kubernetes' paths for viewsets: which action serves which path and method.

A *kind* of the registry is served below ``/api/VERSION`` or ``/apis/GROUP/VERSION`` as a collection
(in a namespace, or in all), as an object, and as an object's subresources. Sixty kinds would need
some hundred patterns, all compared with each request. Instead ``routes`` parses such a path at
once, and the router has one view for each *shape* of path. Resources without a kind are registered
by their path. A trailing slash is ignored: clients write both forms, and a redirect would turn
their PATCH into a GET.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, re_path
from rest_framework.routers import BaseRouter

from api import routes
from api.routes import Target

View = Callable[..., HttpResponseBase]

COLLECTION: Final = {"get": "list", "post": "create", "delete": "deletecollection"}
UNDELETED: Final = {"get": "list", "post": "create"}
"""A collection that does not support deletecollection: that of all namespaces, and that of a kind
whose objects are deleted one by one (``registerResourceHandlers``, apiserver
``endpoints/installer.go``, v1.36)."""
OBJECT: Final = {
    "get": "retrieve",
    "put": "update",
    "patch": "partial_update",
    "delete": "destroy",
}
SINGLE: Final = {"get": "retrieve", "put": "update"}
"""The action of a viewset for each method."""


class Kinds:
    """The view of all kinds, with one viewset for each shape of path."""

    def __init__(self, viewset: Any) -> None:
        self.cls = viewset
        self.collection: View = viewset.as_view(dict(COLLECTION))
        self.undeleted: View = viewset.as_view(dict(UNDELETED))
        self.object: View = viewset.as_view(dict(OBJECT))
        self.subresources: dict[str, View] = {
            action.url_path: viewset.as_view(dict(action.mapping))
            for action in viewset.get_extra_actions()
        }
        self.csrf_exempt = True  # nothing here looks at cookies but to read

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer a request to the path of a kind, or 404."""
        return self.view(routes.target_of(request.META, request))(request)

    def view(self, target: Target | None) -> View:
        """Return the view for a target; for ``None``, one that answers 404."""
        if target is None:
            return self.undeleted
        if not target.name:
            return self.collection if target.is_deleted_together else self.undeleted
        return self.subresources[target.subresource] if target.subresource else self.object


class KubernetesRouter(BaseRouter):
    """Collects viewsets, and makes their URL patterns."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Kinds | None = None

    def register_kinds(self, viewset: Any) -> Kinds:
        """Serve every kind of the registry with a viewset; return its view."""
        self.kinds = Kinds(viewset)
        return self.kinds

    def register(self, prefix: str, viewset: Any, basename: str | None = None) -> None:
        """Serve a resource without a kind below a path such as ``apis/G/V/nodes/{node}/usage``.

        The viewset may be registered under several paths. ``is_single``: the path names one object.
        ``is_namespaced``: its objects have no path without a namespace.
        """
        self.registry.append((prefix, viewset, basename or self.get_default_basename(viewset)))

    def get_default_basename(self, viewset: Any) -> str:
        """Return the name of the resource."""
        return str(viewset.resource)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Return the URL patterns; those of single paths come before those of the kinds."""
        found: list[URLPattern | URLResolver] = [
            pattern
            for prefix, viewset, basename in self.registry
            for pattern in self._patterns(prefix, viewset, basename)
        ]
        if self.kinds is not None:
            found.append(re_path(r"^api/v1/.", self.kinds, name="objects"))
            found.append(re_path(r"^apis/[^/]+/[^/]+/.", self.kinds, name="objects"))
        return found

    def served(self, prefix: str) -> Iterator[tuple[str, Any, dict[str, str]]]:
        """Yield each path without a kind below a prefix, with its viewset and its actions."""
        for where, viewset, basename in self.registry:
            if where.startswith(prefix):
                for path, actions, _ in _paths(where, viewset, basename):
                    yield path, viewset, actions

    def _patterns(self, prefix: str, viewset: Any, basename: str) -> list[URLPattern]:
        return [
            _pattern(path, viewset, actions, name)
            for path, actions, name in _paths(prefix, viewset, basename)
        ]


def _paths(prefix: str, viewset: Any, basename: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield each path of a viewset, its actions by method, and its name."""
    shapes: list[tuple[str, Mapping[str, str], str]]
    one = f"{prefix}/{{{viewset.lookup_url_kwarg}}}"
    if viewset.is_single:
        shapes = [(prefix, SINGLE, basename)]
    else:
        shapes = [(prefix, COLLECTION, f"{basename}-list")]
        if not viewset.is_namespaced or "{namespace}" in prefix:
            shapes.append((one, OBJECT, f"{basename}-detail"))
            shapes += [
                (f"{one}/{action.url_path}", action.mapping, f"{basename}-{action.url_name}")
                for action in viewset.get_extra_actions()
            ]
    for path, mapping, name in shapes:
        actions = {method: action for method, action in mapping.items() if hasattr(viewset, action)}
        if actions:
            yield path, actions, name


def _pattern(path: str, viewset: Any, actions: dict[str, str], name: str) -> URLPattern:
    """Return the pattern of a path."""
    parts = re.split(r"\{(\w+)\}", path)
    text = "".join(
        rf"(?P<{part}>[^/]+)" if number % 2 else re.escape(part)
        for number, part in enumerate(parts)
    )
    found: URLPattern = re_path(rf"^{text}/?$", viewset.as_view(actions), name=name)
    return found
