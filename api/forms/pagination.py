"""Lists in pages: ``limit`` and ``continue``, as Kubernetes has them."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from rest_framework.pagination import BasePagination

from api.forms import replies, wire
from api.forms.negotiation import PAGE
from api.requests import Request

Item = TypeVar("Item")

_OF_A_PAGE = 100
_MOST_OF_A_PAGE = 500
_LONGEST = 1 << 31
"""Rows of a page for people: usually, and at most."""


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """Part of a list: its items, and the token of the next page (empty: there is none).

    ``remaining``: how many objects follow, None if unknown.
    """

    items: list[Item]
    revision: int
    token: str | None = ""
    remaining: int | None = None


Source = Callable[[int | None, str], Page[Any]]
"""Reads a page, given how many items it may have (None: all) and the token to go on from."""


class ContinuePagination(BasePagination):
    """Reads one page and writes the list's metadata.

    ``most``: the limit of items on a page, whatever is requested; 0 for none.
    """

    most = 0

    def paginate_queryset(self, queryset: Source, request: Request, view: Any = None) -> list[Any]:  # type: ignore[override]  # a function that reads, no query set
        """Return the items of the requested page.

        Raises:
            BadRequest: ``limit`` is no number, or the token was not issued here.
        """
        query = request.query_params
        requested = (wire.signed(query.get("limit"), "limit") or 0) if query else 0
        # As in kube-apiserver's storage; no list is longer than the largest number.
        limit = min(requested, _LONGEST) if requested > 0 else None
        if request.accepted_renderer.format == PAGE:
            limit = min(limit or _OF_A_PAGE, _MOST_OF_A_PAGE)
        if self.most:
            limit = min(limit or self.most, self.most)
        self.page = queryset(limit, query.get("continue") or "")
        return self.page.items

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the list whose page was read."""
        page = self.page
        return replies.list_metadata(page.revision, page.token, page.remaining)
