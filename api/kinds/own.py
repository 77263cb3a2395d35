"""Resources that no kind of the registry has: reviews, and what is Stowage's own."""

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from api.kinds.views import ActionsMixin, StatusView
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.objects.errors import BadRequest

GROUP: Final = "stowage.dev"
API_VERSION: Final = f"{GROUP}/v1"

_VERBS: Final = {
    "list": "list",
    "retrieve": "get",
    "create": "create",
    "update": "update",
}


class OwnViewSet(ActionsMixin, StatusView):
    """A resource, by the words that permissions use for it.

    ``subresource``: the resource is one, of objects called as ``owner`` is in the path. ``asks``:
    answers come from an advisor, which may take a minute; such requests wait in a lane of their own
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
    """What its objects are called, where they are of the group ``stowage.dev``."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Judge the request. None of these resources knows its past, so none pretends to.

        Raises:
            BadRequest: the past is asked for.
        """
        super().initial(request, *args, **kwargs)
        if "at" in request.query_params:
            raise BadRequest("at: only reads of objects that are stored may say at")

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return what the action does with what the path names."""
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
