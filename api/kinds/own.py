"""Base of resources without a kind in the registry: reviews, and Stowage's own."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from api import clock
from api.access import reach
from api.forms import options
from api.kinds.views import ActionsMixin, StatusView
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.change_log import changes, lineage
from clusterstate.objects.values.errors import BadRequest, Expired
from clusterstate.queries import past

GROUP: Final = "stowage.dev"
API_VERSION: Final = f"{GROUP}/v1"

_VERBS: Final = {
    "list": "list",
    "retrieve": "get",
    "create": "create",
    "update": "update",
}


class OwnViewSet(ActionsMixin, StatusView):
    """A resource, with its names in permissions.

    ``subresource``: the resource is a subresource, of the objects that the path calls ``owner``.
    ``asks``: an advisor answers, which may take a minute; such requests have a lane of their own
    (``api.serving``).
    """

    group = GROUP
    resource = ""
    subresource = ""
    owner = ""
    is_namespaced: ClassVar[bool] = False
    is_single: ClassVar[bool] = False
    asks: ClassVar[bool] = False
    lookup_url_kwarg: ClassVar[str] = "name"
    kind: ClassVar[str] = ""
    """The kind of its objects, if they are of the group ``stowage.dev``."""
    dated: ClassVar[Collection[str]] = ()
    """The actions that can answer for a past moment: they read ``moment``."""
    versioned: ClassVar[Collection[str]] = ()
    """The actions that can answer for a past revision: they read ``revision``."""
    no_past: ClassVar[str] = "only its present state is kept"
    """The reason why the other actions have no past."""

    moment: datetime | None = None
    """The requested moment; None: the present."""
    revision: int | None = None
    """The revision of that moment, or the requested one; None: the present."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Check the request; set the past moment or revision that it reads.

        Raises:
            BadRequest: the action has no past.
            Expired: that past is not stored any more.
        """
        super().initial(request, *args, **kwargs)
        query = request.query_params
        if "at" in query or query.get("resourceVersionMatch") == options.EXACT:
            self._look_back(request, query)

    def _look_back(self, request: Request, query: Mapping[str, str]) -> None:
        name = "at" if "at" in query else "resourceVersionMatch"
        if request.method != "GET":
            raise BadRequest(f"{name}: only reads may ask about the past")
        if self.action not in (*self.dated, *self.versioned):
            raise BadRequest(f"{name}: no former states of {self._what()} are kept: {self.no_past}")
        now = clock.now()
        moment = options.moment(query, now=now)
        if self.action in self.versioned:
            if moment is not None:
                self.revision = past.revision_at(moment, now=now)
            elif (revision := options.exact_version(query)) is not None:
                lineage.require_reached(revision)
                past.require(revision)
                self.revision = changes.whole(revision)
        elif moment is None:
            raise BadRequest(
                f"{name}: {self._what()} can only be read at a moment: use the parameter at"
            )
        elif moment > now + past.AHEAD:
            raise BadRequest(f"at: Invalid value: {moment:%Y-%m-%dT%H:%M:%SZ} is in the future")
        self.moment = moment
        for wants in self.wants(request):
            if self.revision is not None:
                reach.require(self.user, wants, self.revision)
            elif moment is not None:
                reach.require_moment(self.user, wants, moment)

    def require_kept(self, seconds: float) -> None:
        """Check that the requested moment is at most ``seconds`` ago.

        Raises:
            Expired: it is older: such rows are deleted.
        """
        if self.moment is not None and self.moment < clock.now() - timedelta(seconds=seconds):
            raise Expired(f"only the last {seconds:.0f} seconds of {self._what()} are kept")

    def _what(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right for the action: its verb on the object in the path."""
        named: dict[str, Any] = self.kwargs
        return (
            Attributes(
                verb=_VERBS.get(self.action or "", "create"),
                group=self.group,
                resource=self.resource,
                subresource=self.subresource,
                namespace=named.get("namespace", ""),
                name=named.get(self.owner or self.lookup_url_kwarg, ""),
            ),
        )
