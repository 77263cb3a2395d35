"""Views of the discovery documents: what `api.discovery` knows, behind a token."""

from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request

from api import auth, discovery, errors, mixed_lists, negotiation, replies, views, wire
from clusterstate.access.rules import Attributes
from clusterstate.objects.errors import NotFound


class DocumentView(views.StatusView):
    """A document that everybody with a token may read."""

    http_method_names = ["get", "post"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, and ask whether the user may read this path."""
        super().initial(request, *args, **kwargs)
        if request.method == "GET":
            auth.require(self.user, Attributes(verb="get", path=request.path_info))

    def reply(self, request: Request, document: dict[str, Any] | None) -> HttpResponse:
        """Return the document as JSON; 404 for None."""
        if document is None:
            raise NotFound(errors.UNKNOWN_PATH)
        negotiation.form(request.META.get("HTTP_ACCEPT", ""))
        body = wire.encode(document)
        if wire.boolean(request.query_params.get("pretty"), "pretty"):
            body = replies.pretty(body)
        return replies.reply(body)

    def aggregated(self, request: Request, *, core: bool) -> HttpResponse | None:
        """Return the resources of all groups if the client wants them in one answer, else None."""
        version = negotiation.discovery_version(request.META.get("HTTP_ACCEPT", ""))
        if version is None:
            return None
        response = replies.reply(wire.encode(discovery.aggregated(version, core=core)))
        response["Content-Type"] = (
            f"application/json;g={negotiation.DISCOVERY};v={version};as=APIGroupDiscoveryList"
        )
        return response


class RootView(DocumentView):
    """``/``: the paths that are served."""

    def get(self, request: Request) -> HttpResponse:
        """Return them."""
        return self.reply(request, discovery.paths())


class VersionView(DocumentView):
    """``/version``."""

    def get(self, request: Request) -> HttpResponse:
        """Return it."""
        return self.reply(request, discovery.VERSION)


class CoreVersionsView(DocumentView):
    """``/api``."""

    def get(self, request: Request) -> HttpResponse:
        """Return the versions of the core group, or in one answer all of its resources."""
        return self.aggregated(request, core=True) or self.reply(
            request, discovery.core_versions(request.get_host())
        )


class CoreView(mixed_lists.MixedListView, DocumentView):
    """``/api/v1``: GET lists the core resources, POST creates a mixed ``List``."""

    http_method_names = ["get", "post"]

    def get(self, request: Request) -> HttpResponse:
        """Return the core resources."""
        return self.reply(request, discovery.resources("", "v1"))


class GroupsView(DocumentView):
    """``/apis``."""

    def get(self, request: Request) -> HttpResponse:
        """Return the groups, or in one answer all of their resources."""
        return self.aggregated(request, core=False) or self.reply(request, discovery.groups())


class GroupView(DocumentView):
    """``/apis/GROUP``."""

    def get(self, request: Request, group: str) -> HttpResponse:
        """Return the versions of a group."""
        return self.reply(request, discovery.group(group))


class GroupVersionView(DocumentView):
    """``/apis/GROUP/VERSION``."""

    def get(self, request: Request, group: str, version: str) -> HttpResponse:
        """Return the resources of a group-version."""
        return self.reply(request, discovery.resources(group, version))
