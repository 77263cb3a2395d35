"""The version of a request, from its path: ``/api/v1``, ``/apis/apps/v1``."""

from typing import Any

from rest_framework.versioning import BaseVersioning

from api import routes
from api.forms import errors


class PathVersioning(BaseVersioning):
    """Returns the version that ``routes`` found in the path."""

    def determine_version(self, request: Any, *args: Any, **kwargs: Any) -> str:
        """Return the version in the path, empty outside of ``/api`` and ``/apis``."""
        return routes.route_of(request.META, request).version


class KindVersioning(PathVersioning):
    """Accepts the versions in the registry of kinds."""

    def determine_version(self, request: Any, *args: Any, **kwargs: Any) -> str:
        """Return the version.

        Raises:
            NotFound: no kind is served in that version.
        """
        route = routes.route_of(request.META, request)
        if route.target is None:
            raise errors.unknown_path(request.path_info)
        return route.version
