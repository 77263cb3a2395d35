"""The audit log, read-only: each request, its author and its answer. For administrators."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from clusterstate.admin import look
from clusterstate.admin.base import ReadOnlyAdmin, display
from clusterstate.models import AuditLine

_VERBS = ("create", "update", "patch", "delete", "deletecollection", "get", "list", "watch", "post")
_OUTCOMES = {"done": (200, 399), "refused": (401, 403), "failed": (400, 599)}


class VerbFilter(admin.SimpleListFilter):
    """Filters by verb."""

    title = "verb"
    parameter_name = "verb"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return value and title of each choice; a fixed list, since the table is long."""
        return [(verb, verb) for verb in _VERBS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditLine]) -> QuerySet[AuditLine]:
        """Return the lines with the chosen verb."""
        return queryset.filter(verb=self.value()) if self.value() in _VERBS else queryset


class OutcomeFilter(admin.SimpleListFilter):
    """Filters by the response's status."""

    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return value and title of each choice of the filter."""
        return [(word, word.capitalize()) for word in _OUTCOMES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[AuditLine]) -> QuerySet[AuditLine]:
        """Return the lines with the chosen outcome."""
        if self.value() not in _OUTCOMES:
            return queryset
        return queryset.filter(code__range=_OUTCOMES[str(self.value())])


@admin.register(AuditLine)
class AuditLineAdmin(ReadOnlyAdmin[AuditLine]):
    """Requests, the newest first; each has a link to the whole Event."""

    list_display = ("when", "username", "verb", "what", "code", "address")
    list_filter = (VerbFilter, OutcomeFilter)
    search_fields = ("=username", "=name", "=audit_id")
    search_help_text = "A user, the name of an object, or the audit id of a request, in full."
    list_fullwidth = True
    show_full_result_count = False
    ordering = ("-id",)
    fields = readonly_fields = ("when", "username", "verb", "what", "code", "address", "event")

    @display(description="Time", ordering="id")
    def when(self, stored: AuditLine) -> str:
        """Return when the line was written, in UTC."""
        return look.moment(stored.at)

    @display(description="Of what")
    def what(self, stored: AuditLine) -> str:
        """Return the object, or the path if the request was for no resource."""
        if not stored.resource:
            return str(_event(stored).get("requestURI", ""))
        place = f"{stored.namespace}/{stored.name}".strip("/")
        return f"{stored.resource} {place}".strip()

    @display(description="From")
    def address(self, stored: AuditLine) -> str:
        """Return the client's IP address."""
        return ", ".join(_event(stored).get("sourceIPs", ())) or look.EMPTY

    @display(description="Event")
    def event(self, stored: AuditLine) -> SafeString:
        """Return the whole Event as text."""
        return format_html("<pre>{}</pre>", json.dumps(_event(stored), indent=2))


def _event(stored: AuditLine) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stored.line)
    return found
