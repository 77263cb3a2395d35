"""Views of the documents of `api.description.discovery`, for users with a token."""

from collections.abc import Iterable
from typing import Any

from rest_framework.response import Response

from api.description import discovery
from api.forms import errors, negotiation, renderers, replies
from api.kinds import mixed_lists, views
from api.requests import Request
from clusterstate.access.rules import Attributes


class DocumentView(views.StatusView):
    """A document that all users with a token may read."""

    renderer_classes = (*renderers.OF_DOCUMENTS, renderers.DiscoveryRenderer)

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to read this path; handlers of POST check further rights."""
        return (Attributes(verb="get", path=request.path_info),) if request.method == "GET" else ()

    def reply(self, document: dict[str, Any] | None) -> Response:
        """Return the document; 404 for None."""
        if document is None:
            raise errors.unknown_path(self.request.path_info)
        return replies.reply(document)

    def aggregated(self, request: Request, *, core: bool) -> Response | None:
        """Return the resources of all groups if the client accepts that form, else None."""
        if request.accepted_renderer.format != negotiation.DISCOVERY_FORM:
            return None
        version = negotiation.discovery_version(request.META.get("HTTP_ACCEPT", "")) or "v2"
        response = replies.reply(discovery.aggregated(version, core=core))
        response.content_type = (
            f"application/json;g={negotiation.DISCOVERY};v={version};as=APIGroupDiscoveryList"
        )
        return response


class RootView(DocumentView):
    """``/``: the served paths."""

    def get(self, request: Request) -> Response:
        """Return the paths."""
        return self.reply(discovery.paths())


class VersionView(DocumentView):
    """``/version``."""

    def get(self, request: Request) -> Response:
        """Return the version."""
        return self.reply(discovery.VERSION)


class CoreVersionsView(DocumentView):
    """``/api``."""

    def get(self, request: Request) -> Response:
        """Return the versions of the core group or, aggregated, all of its resources."""
        return self.aggregated(request, core=True) or self.reply(
            discovery.core_versions(request.META.get("HTTP_HOST") or request.META["SERVER_NAME"])
        )


class CoreView(mixed_lists.MixedListView, DocumentView):
    """``/api/v1``: GET lists the core resources, POST creates a mixed ``List``."""

    def get(self, request: Request) -> Response:
        """Return the core resources."""
        return self.reply(discovery.resources("", "v1"))


class GroupsView(DocumentView):
    """``/apis``."""

    def get(self, request: Request) -> Response:
        """Return the groups or, aggregated, all of their resources."""
        return self.aggregated(request, core=False) or self.reply(discovery.groups())


class GroupView(DocumentView):
    """``/apis/GROUP``."""

    def get(self, request: Request, group: str) -> Response:
        """Return the versions of a group."""
        return self.reply(discovery.group(group))


class GroupVersionView(DocumentView):
    """``/apis/GROUP/VERSION``."""

    def get(self, request: Request, group: str, version: str) -> Response:
        """Return the resources of a group-version."""
        return self.reply(discovery.resources(group, version))
