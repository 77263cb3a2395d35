"""Nodes with their taints: look, edit; cordon, drain and delete by the console's preview."""

from collections.abc import Iterable
from typing import Any

import msgspec
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString

from clusterstate.admin import look
from clusterstate.admin.base import (
    PreviewedAdmin,
    TabularInline,
    display,
    preview,
    requester,
)
from clusterstate.admin.forms import as_lines
from clusterstate.admin.node_changes import evicting, write
from clusterstate.admin.node_forms import NodeForm, TaintForm, TaintFormSet
from clusterstate.models import Node, Pod, Taint
from clusterstate.objects.rules.matching import EFFECTS
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME
from clusterstate.queries.objects import find_object

_PREVIEW = "stowage.preview"
"""Key of ``request.META``: the redirect to the preview of a change that was not saved."""


class TaintInline(TabularInline[Taint, Node]):
    """Taints as rows of their node; people who may edit the node may edit them."""

    model = Taint
    form = TaintForm
    formset = TaintFormSet  # type: ignore[assignment]  # the stubs fix the form's class
    fields = ("key", "value", "effect")
    extra = 0
    hide_title = True

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Return the formset's class, with the user of the request."""
        formset: type[Any] = super().get_formset(request, obj, **kwargs)
        return type(formset.__name__, (formset,), {"user": requester(request)})

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the person may see nodes."""
        return request.user.has_perm("clusterstate.view_node") or self._may_edit(request, obj)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the person may edit the node."""
        return self._may_edit(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the person may edit the node."""
        return self._may_edit(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the person may edit the node."""
        return self._may_edit(request, obj)

    def _may_edit(self, request: HttpRequest, node: Node | None) -> bool:
        return request.user.has_perm(f"clusterstate.{'add' if node is None else 'change'}_node")


class CordonedFilter(admin.SimpleListFilter):
    """Filters nodes by whether they are cordoned."""

    title = "scheduling"
    parameter_name = "cordoned"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return value and title of each choice of the filter."""
        return [("no", "Schedulable"), ("yes", "Cordoned")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Node]) -> QuerySet[Node]:
        """Return the nodes of the chosen state."""
        if self.value() is None:
            return queryset
        return queryset.filter(unschedulable=self.value() == "yes")


class TaintFilter(admin.SimpleListFilter):
    """Filters nodes by the effect of a taint."""

    title = "taints"
    parameter_name = "taint"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return value and title of each choice of the filter."""
        return [("none", "No taint"), *((effect, effect) for effect in EFFECTS)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Node]) -> QuerySet[Node]:
        """Return the nodes with a taint of the chosen effect."""
        taints = Taint.objects.filter(node=OuterRef("pk"))
        if self.value() is None:
            return queryset
        if self.value() == "none":
            return queryset.filter(~Exists(taints))
        return queryset.filter(Exists(taints.filter(effect=self.value())))


@admin.register(Node)
class NodeAdmin(PreviewedAdmin[Node]):
    """The node list and the node form."""

    form = NodeForm
    inlines = (TaintInline,)
    list_display = (
        "name", "state", "pod_number", "cpu_use", "memory_use", "taint_list", "label_list",
    )  # fmt: skip
    list_filter = (CordonedFilter, TaintFilter)
    search_fields = ("name",)
    search_help_text = "Name of a node, or label=value"
    label_column = "labels"
    ordering = ("name",)
    actions = ("cordon", "uncordon", "drain")
    list_fullwidth = True
    warn_unsaved_form = True
    change_form_after_template = "clusterstate/manifest.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Node]:
        """Return nodes with taints, documents, and the requests of their unfinished pods."""
        # The condition on '' lets PostgreSQL use the partial index.
        here = (
            Pod.objects.filter(node_name=OuterRef("name"))
            .filter(~Q(node_name=""), ~Q(phase__in=("Succeeded", "Failed")))
            .order_by()
            .values("node_name")
        )
        cpu = here.annotate(total=Sum("scheduling_class__cpu_milli")).values("total")
        memory = here.annotate(total=Sum("scheduling_class__memory_bytes")).values("total")
        number = here.annotate(total=Count("id")).values("total")
        return (
            super()
            .get_queryset(request)
            .select_related("document")
            .prefetch_related("taints")
            .annotate(
                pod_count=Coalesce(Subquery(number), 0),
                cpu_used=Coalesce(Subquery(cpu), 0),
                memory_used=Coalesce(Subquery(memory), 0),
            )
        )

    def get_form(
        self,
        request: HttpRequest,
        obj: Node | None = None,
        change: bool = False,  # noqa: FBT001  # Django's signature
        **options: Any,
    ) -> Any:
        """Return the form's class with the user who sends the request, for admission."""
        options.setdefault("form", NodeForm)
        form: type[Any] = super().get_form(request, obj, change, **options)
        return type(form.__name__, (form,), {"user": requester(request)})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the read-only fields, followed by the editable ones."""
        if obj is None:
            return [(None, {"fields": ("name", "unschedulable", "labels", "allocatable", "seen")})]
        shown = ("name", "state", "use", "created")
        if self.has_change_permission(request, obj):
            edited: tuple[str, ...] = ("unschedulable", "labels", "allocatable", "seen")
        else:
            edited = ("label_lines", "allocatable_lines")
        return [(None, {"fields": (*shown, *edited)})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the read-only fields; for a stored node also the name, since it cannot change."""
        if obj is None:
            return ()
        shown = ("name", "state", "use", "created")
        if self.has_change_permission(request, obj):
            return shown
        return (*shown, "label_lines", "allocatable_lines")

    @display(description="Status", ordering="unschedulable")
    def state(self, node: Node) -> SafeString:
        """Return the status as ``kubectl get nodes`` prints it."""
        found = []
        if node.deletion_at is not None:
            found.append(("Terminating", "danger"))
        found.append(_readiness(_manifest(node)))
        if node.unschedulable:
            found.append(("SchedulingDisabled", "warning"))
        return look.badges(found)

    @display(description="Pods", ordering="pod_count")
    def pod_number(self, node: Any) -> SafeString:
        """Return how many pods are on the node, and how many it allows."""
        return look.bar(node.pod_count, node.pods, f"{node.pod_count} / {node.pods}")

    @display(description="CPU, cores", ordering="cpu_used")
    def cpu_use(self, node: Any) -> SafeString:
        """Return the CPU requests of the node's pods, and its allocatable CPU."""
        used, offered = look.cpu(node.cpu_used), look.cpu(node.cpu_milli)
        return look.bar(node.cpu_used, node.cpu_milli, f"{used} / {offered}")

    @display(description="Memory", ordering="memory_used")
    def memory_use(self, node: Any) -> SafeString:
        """Return the memory requests of the node's pods, and its allocatable memory."""
        used, offered = look.memory(node.memory_used), look.memory(node.memory_bytes)
        return look.bar(node.memory_used, node.memory_bytes, f"{used} / {offered}")

    @display(description="In use")
    def use(self, node: Any) -> SafeString:
        """Return a sentence with the pods' requests, and links to the pods and to a drain."""
        target = reverse("admin:clusterstate_pod_changelist")
        number = f"{node.pod_count} pod{'' if node.pod_count == 1 else 's'}"
        sentence = (
            f", asking for {look.cpu(node.cpu_used)} of {look.cpu(node.cpu_milli)} cores"
            f" and {look.memory(node.memory_used)} of {look.memory(node.memory_bytes)} memory"
        )
        drain = preview("drain", ("node", node.name)).url
        pods = look.link(f"{target}?node_name={node.name}", number)
        return pods + SafeString(f"{sentence}. ") + look.link(drain, "Preview a drain")

    @display(description="Taints")
    def taint_list(self, node: Node) -> SafeString | str:
        """Return the taints as kubectl writes them."""
        return look.chips(
            f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}"
            for t in node.taints.all()
        )

    @display(description="Labels")
    def label_list(self, node: Node) -> SafeString | str:
        """Return three labels; the hostname label is left out if it is the node's name."""
        shown = {k: v for k, v in node.labels.items() if (k, v) != (HOSTNAME, node.name)}
        return look.chips((f"{key}={shown[key]}" for key in sorted(shown)), limit=3, width=9)

    @display(description="Labels")
    def label_lines(self, node: Node) -> str:
        """Return all labels, one a line."""
        return as_lines(node.labels) or look.EMPTY

    @display(description="Allocatable")
    def allocatable_lines(self, node: Node) -> str:
        """Return ``status.allocatable``, one resource a line."""
        return (
            as_lines((_manifest(node).get("status") or {}).get("allocatable") or {}) or look.EMPTY
        )

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Answer with the form, and with the document as YAML below the taints."""
        node = None if object_id is None else self.get_object(request, unquote(object_id))
        shown = None if node is None else look.document(find_object("Node", "", node.name))
        context = {**(extra_context or {}), "manifest": shown}
        return super().changeform_view(request, object_id, form_url, context)

    def save_model(self, request: HttpRequest, obj: Node, form: Any, change: bool) -> None:  # noqa: FBT001
        """Write nothing yet: ``save_related`` saves fields and taints as one change."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        """Save fields and taints by one action.

        If labels or taints may evict pods, these two are left to the console's preview.
        """
        name = form.instance.name
        taints = formsets[0].taints() if formsets else None
        changes = form.changes(taints)
        if change and (edits := evicting(_manifest(form.instance), name, changes)):
            request.META[_PREVIEW] = preview("edit", ("node", name), *edits)
            changes = msgspec.structs.replace(changes, labels=None, taints=None)
        write(name, changes, new=not change, user=requester(request))
        if not change:
            form.instance.pk = Node.objects.only("id").get(name=name).pk
        for formset in formsets:
            formset.note_changes()

    def response_change(self, request: HttpRequest, obj: Node) -> HttpResponse:
        """Answer a saved form; if the change may evict pods, redirect to its preview."""
        found: HttpResponse | None = request.META.get(_PREVIEW)
        return super().response_change(request, obj) if found is None else found

    def preview_of(self, do: str, rows: Iterable[Node]) -> HttpResponseRedirect:
        """Redirect to the console's preview of a change of these nodes."""
        return preview(do, *(("node", node.name) for node in rows))

    @admin.action(description="Cordon: place no new pods", permissions=["change"])
    def cordon(self, request: HttpRequest, queryset: QuerySet[Node]) -> HttpResponseRedirect:
        """Redirect to the preview of a cordon of the selected nodes."""
        return self.preview_of("cordon", queryset)

    @admin.action(description="Uncordon: place new pods again", permissions=["change"])
    def uncordon(self, request: HttpRequest, queryset: QuerySet[Node]) -> HttpResponseRedirect:
        """Redirect to the preview of an uncordon."""
        return self.preview_of("uncordon", queryset)

    @admin.action(description="Drain: cordon, and evict the pods", permissions=["change"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Node]) -> HttpResponseRedirect:
        """Redirect to the preview of a drain."""
        return self.preview_of("drain", queryset)


def _manifest(node: Node) -> Manifest:
    return document.decode(node.document.text, node.revision)


def _readiness(manifest: Manifest) -> tuple[str, str]:
    """Return kubectl's word for the Ready condition, and its colour."""
    for condition in (manifest.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            ready = condition.get("status") == "True"
            return ("Ready", "success") if ready else ("NotReady", "danger")
    return "Unknown", ""
