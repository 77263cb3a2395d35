"""RuntimeClasses, PriorityClasses and namespaces, read-only, with the document as YAML."""

from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.utils.safestring import SafeString

from clusterstate.admin import look
from clusterstate.admin.base import ReadOnlyAdmin, display
from clusterstate.models import Namespace, PriorityClass, RuntimeClass
from clusterstate.models.base import ClusterObject
from clusterstate.queries.objects import find_object
from clusterstate.queries.objects.selections import runtime_class_selections

Stored = TypeVar("Stored", bound=ClusterObject)


class _DocumentAdmin(ReadOnlyAdmin[Stored]):
    """A list, and a page with the document of each object."""

    search_fields = ("name",)
    ordering = ("name",)
    list_fullwidth = True

    @display(description="Manifest")
    def manifest(self, stored: Stored) -> SafeString | str:
        """Return the document as YAML."""
        return look.document(find_object(type(stored).__name__, "", stored.name))


# Django adds an s. Not in the models' Meta: the wording of a screen is no matter for a migration.
RuntimeClass._meta.verbose_name_plural = "runtime classes"
PriorityClass._meta.verbose_name_plural = "priority classes"


@admin.register(RuntimeClass)
class RuntimeClassAdmin(_DocumentAdmin[RuntimeClass]):
    """RuntimeClasses."""

    list_display = ("name", "handler", "nodes", "pods", "shares_nodes_with", "created")
    fields = readonly_fields = ("name", "handler", "created", "manifest")

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Return the list; each row has the number of nodes that its class selects (R41)."""
        listing = super().get_changelist_instance(request)
        found = {one.of.name: one for one in runtime_class_selections()}
        for stored in listing.result_list:
            stored.selection = found.get(stored.name)
        return listing

    @display(description="Nodes")
    def nodes(self, stored: Any) -> int:
        """Return how many nodes the class selects."""
        return stored.selection.count if stored.selection else 0

    @display(description="Pods")
    def pods(self, stored: Any) -> int:
        """Return how many unfinished pods use the class."""
        return stored.selection.users if stored.selection else 0

    @display(description="Shares nodes with")
    def shares_nodes_with(self, stored: Any) -> str:
        """Return the classes that select some of the same nodes, with their number."""
        if stored.selection is None:
            return ""
        named = [f"{other.name} ({other.count})" for other in stored.selection.overlaps]
        more = stored.selection.overlapping - len(named)
        return ", ".join([*named, f"{more} more"] if more else named)


@admin.register(PriorityClass)
class PriorityClassAdmin(_DocumentAdmin[PriorityClass]):
    """PriorityClasses."""

    list_display = ("name", "value", "global_default", "created")
    fields = readonly_fields = ("name", "value", "global_default", "created", "manifest")


@admin.register(Namespace)
class NamespaceAdmin(_DocumentAdmin[Namespace]):
    """Namespaces."""

    list_display = ("name", "phase", "created")
    fields = readonly_fields = ("name", "phase", "created", "manifest")
