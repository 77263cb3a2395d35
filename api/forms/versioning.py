"""The version of a request stands in its path: ``/api/v1``, ``/apis/apps/v1``."""

from typing import Any

from rest_framework.versioning import BaseVersioning

from api import routes
from api.forms import errors


class PathVersioning(BaseVersioning):
    """Reads the version where ``routes`` found it."""

    def determine_version(self, request: Any, *args: Any, **kwargs: Any) -> str:
        """Return the version that the path names, empty outside of ``/api`` and ``/apis``."""
        return routes.route_of(request.META, request).version


class KindVersioning(PathVersioning):
    """Serves the versions that the registry of kinds knows."""

    def determine_version(self, request: Any, *args: Any, **kwargs: Any) -> str:
        """Return the version.

        Raises:
            NotFound: no kind is served there in it.
        """
        route = routes.route_of(request.META, request)
        if route.target is None:
            raise errors.unknown_path(request.path_info)
        return route.version
