"""RuntimeClasses, PriorityClasses and namespaces: looking, with the document as YAML."""

from typing import TypeVar

from django.contrib import admin
from django.utils.safestring import SafeString

from clusterstate.admin import look
from clusterstate.admin.base import ReadOnlyAdmin, display
from clusterstate.models import Namespace, PriorityClass, RuntimeClass
from clusterstate.models.base import ClusterObject
from clusterstate.queries.objects import find_object

Stored = TypeVar("Stored", bound=ClusterObject)


class _DocumentAdmin(ReadOnlyAdmin[Stored]):
    """A list, and the document of each object."""

    search_fields = ("name",)
    ordering = ("name",)
    list_fullwidth = True

    @display(description="Manifest")
    def manifest(self, stored: Stored) -> SafeString | str:
        """Return the document as YAML."""
        return look.document(find_object(type(stored).__name__, "", stored.name))


@admin.register(RuntimeClass)
class RuntimeClassAdmin(_DocumentAdmin[RuntimeClass]):
    """RuntimeClasses."""

    list_display = ("name", "handler", "created")
    fields = readonly_fields = ("name", "handler", "created", "manifest")


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
