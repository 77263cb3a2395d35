"""Nodes with their taints: look, edit, cordon, uncordon, delete."""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from clusterstate.actions import objects
from clusterstate.admin import look
from clusterstate.admin.base import (
    BaseInlineFormSet,
    ModelForm,
    ObjectAdmin,
    TabularInline,
    display,
    requester,
)
from clusterstate.admin.clock import now
from clusterstate.admin.forms import MapField, as_lines, refusals, show
from clusterstate.admission.request import User
from clusterstate.models import Node, Pod, Taint
from clusterstate.objects import document
from clusterstate.objects.errors import Conflict, StatusError
from clusterstate.objects.meta import Manifest
from clusterstate.queries.objects import find_object, get_manifest

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CHANGED_MEANWHILE = (
    "Somebody else changed this node since you opened this page, so nothing was saved. Open the"
    " node again and repeat your change."
)
_FIELDS = {
    "metadata.name": "name",
    "metadata.labels": "labels",
    "status.allocatable": "allocatable",
    "status.capacity": "allocatable",
    "spec.unschedulable": "unschedulable",
}
# Kubernetes names taints under metadata in its errors (ValidateNode, v1.36).
_TAINT = re.compile(r"(?:metadata|spec)\.taints(?:\[(\d+)\](?:\.(key|value|effect))?)?")
_ADDED = "AddedByAdministrator"
_HOSTNAME = "kubernetes.io/hostname"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a form asks of a node; ``None`` leaves that part as it is.

    ``seen`` is the fingerprint of the node that the form showed; empty asks nothing.
    """

    labels: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    unschedulable: bool | None = None
    taints: list[Manifest] | None = None
    seen: str = ""

    def applied_to(self, manifest: Manifest) -> Manifest:
        """Return the manifest with these parts; what is the same already stays untouched.

        Raises:
            Conflict: the manifest is not the one the form showed.
        """
        if self.seen and self.seen != fingerprint(manifest):
            raise Conflict(CHANGED_MEANWHILE)
        metadata = manifest["metadata"]
        spec = manifest.get("spec") or {}
        status = manifest.get("status") or {}
        if self.labels is not None:
            _put(metadata, "labels", self.labels)
        if self.unschedulable is not None:
            _put(spec, "unschedulable", self.unschedulable)
        if self.taints is not None:
            # A taint that stays keeps the time at which it came: its evictions count from then.
            times = {_identity(taint): taint.get("timeAdded") for taint in spec.get("taints") or ()}
            _put(spec, "taints", [_with_time(taint, times) for taint in self.taints])
        if self.allocatable is not None:
            if (status.get("capacity") or {}) == (status.get("allocatable") or {}):
                _put(status, "capacity", self.allocatable)
            _put(status, "allocatable", self.allocatable)
        return {
            **manifest,
            **({"spec": spec} if spec else {}),
            **({"status": status} if status else {}),
        }


def _put(part: dict[str, Any], name: str, value: Any) -> None:
    """Set a member; remove it where it is empty, and leave it where it is empty already."""
    if value:
        part[name] = value
    elif part.get(name):
        del part[name]


def _identity(taint: Manifest) -> tuple[Any, Any]:
    return taint.get("key"), taint.get("effect")


def _with_time(taint: Manifest, times: dict[tuple[Any, Any], Any]) -> Manifest:
    time = times.get(_identity(taint))
    return {**taint, "timeAdded": time} if time else taint


def fingerprint(manifest: Manifest) -> str:
    """Return a digest of what the form edits.

    Not the resourceVersion: an agent's heartbeats raise that without touching anything here.
    """
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    parts = (
        manifest["metadata"].get("labels") or {},
        bool(spec.get("unschedulable")),
        [(t.get("key"), t.get("value") or "", t.get("effect")) for t in spec.get("taints") or ()],
        status.get("allocatable") or {},
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def write(name: str, wanted: Wanted, *, new: bool, user: User, dry_run: bool = False) -> None:
    """Create or update the node through the action.

    Spec and status are two requests, as in the API; the caller's transaction makes them one.

    Raises:
        StatusError: refused.
    """
    for call in _requests(name, wanted, new=new, user=user, dry_run=dry_run):
        call()


def tried(name: str, wanted: Wanted, *, new: bool, user: User) -> list[tuple[str, str]]:
    """Return everything that speaks against writing this: field path and message each."""
    problems: list[tuple[str, str]] = []
    for call in _requests(name, wanted, new=new, user=user, dry_run=True):
        try:
            call()
        except StatusError as error:
            problems += [found for found in refusals(error) if found not in problems]
    return problems


def _requests(
    name: str, wanted: Wanted, *, new: bool, user: User, dry_run: bool
) -> list[Callable[[], object]]:
    if new:
        # Nobody's agent reports for a node that a person adds; it is taken to be ready.
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": _ADDED,
            "message": "Added in the admin.",
            "lastTransitionTime": document.format_time(now()),
        }
        bare: Manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"conditions": [condition]},
        }
        return [
            lambda: objects.create(
                "Node", "", wanted.applied_to(bare), now=now(), user=user, dry_run=dry_run
            )
        ]
    unseen = msgspec.structs.replace(wanted, seen="")
    return [
        lambda: objects.update(
            "Node", "", name, wanted.applied_to, now=now(), user=user, dry_run=dry_run
        ),
        lambda: objects.update(
            "Node", "", name, unseen.applied_to, subresource="status", now=now(), user=user,
            dry_run=dry_run,
        ),
    ]  # fmt: skip


class NodeForm(ModelForm[Node]):
    """What a person edits of a node; checked by a dry run with the node's taints as they are."""

    user = User()  # set by the admin for each request

    labels = MapField(label="Labels")
    allocatable = MapField(
        label="Allocatable",
        help_text="What pods may use, one resource a line: cpu=4, memory=8Gi, pods=110.",
    )
    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Node
        fields = ("name", "unschedulable")
        labels = {"unschedulable": "Cordoned"}
        widgets = {"name": UnfoldAdminTextInputWidget}
        help_texts = {"unschedulable": "No new pods are placed on a cordoned node."}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            manifest = get_manifest("Node", "", self.instance.name)
            self.initial["labels"] = manifest["metadata"].get("labels") or {}
            self.initial["allocatable"] = (manifest.get("status") or {}).get("allocatable") or {}
            self.initial["seen"] = fingerprint(manifest)
        elif "allocatable" in self.fields:
            self.initial.setdefault("allocatable", {"cpu": "4", "memory": "8Gi", "pods": "110"})

    def wanted(self, taints: list[Manifest] | None) -> Wanted:
        """Return what the fields ask for, with these taints."""
        submitted = self.cleaned_data
        return Wanted(
            labels=submitted["labels"],
            allocatable=submitted["allocatable"],
            unschedulable=submitted["unschedulable"],
            taints=taints,
            seen=submitted.get("seen") or "",
        )

    def clean(self) -> dict[str, Any]:
        """Try the save without the taints, which are another form's."""
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            new = not self.instance.pk
            name = cleaned["name"] if new else self.instance.name
            found = tried(name, self.wanted(None), new=new, user=self.user)
            # The capacity follows the allocatable; its problems are the same, said twice.
            told = {path for path, _ in found}
            found = [
                (path, message)
                for path, message in found
                if not path.startswith("status.capacity")
                or path.replace("capacity", "allocatable", 1) not in told
            ]
            show(self, found, _FIELDS)
        return cleaned

    def validate_unique(self) -> None:
        """Leave names to the action: it says who has it."""

    def _get_validation_exclusions(self) -> set[str]:
        """Leave every field to admission, which knows more than the columns do."""
        return {field.name for field in Node._meta.get_fields()}


class TaintForm(ModelForm[Taint]):
    """One taint."""

    key = forms.CharField(widget=UnfoldAdminTextInputWidget)
    value = forms.CharField(widget=UnfoldAdminTextInputWidget, required=False)
    effect = forms.ChoiceField(
        choices=[(effect, effect) for effect in EFFECTS], widget=UnfoldAdminSelectWidget
    )

    class Meta:
        model = Taint
        fields = ("key", "value", "effect")

    def _get_validation_exclusions(self) -> set[str]:
        """Leave every field to admission, which knows more than the columns do."""
        return {field.name for field in Taint._meta.get_fields()}


class TaintFormSet(BaseInlineFormSet[Taint, Node, TaintForm]):
    """A node's taints; checked by a dry run with the node's other fields as they are."""

    user = User()  # set by the admin for each request

    def rows(self) -> list[TaintForm]:
        """Return the forms that stand for a taint, in the order of ``spec.taints``."""
        return [
            form
            for form in self.forms
            if form.cleaned_data.get("key") and not form.cleaned_data.get("DELETE")
        ]

    def taints(self) -> list[Manifest]:
        """Return ``spec.taints`` as submitted."""
        names = ("key", "value", "effect")
        return [
            {name: row.cleaned_data[name] for name in names if row.cleaned_data.get(name)}
            for row in self.rows()
        ]

    def clean(self) -> None:
        """Try the save, and put each refusal to the row it is about."""
        if any(self.errors):
            return
        new = not self.instance.pk
        name = "new" if new else self.instance.name
        rows = self.rows()
        others = []
        for path, message in tried(name, Wanted(taints=self.taints()), new=new, user=self.user):
            match = _TAINT.match(path)
            if match and match[1] and int(match[1]) < len(rows):
                text = message.removeprefix(match[0]).removeprefix(": ")
                rows[int(match[1])].add_error(match[2], text)
            elif match or not new:
                others.append(message)
        if others:
            raise forms.ValidationError(others)

    def validate_unique(self) -> None:
        """Leave duplicates to admission, which names key and effect."""

    def note_changes(self) -> None:
        """Fill in what a saved formset tells the object's history; writes nothing."""
        rows = self.rows()
        deleted = [form.instance for form in self.initial_forms if form not in rows]
        self.new_objects = [form.instance for form in self.extra_forms if form in rows]
        self.changed_objects = [
            (form.instance, form.changed_data)
            for form in self.initial_forms
            if form in rows and form.has_changed()
        ]
        self.deleted_objects = deleted


class TaintInline(TabularInline[Taint, Node]):
    """Taints as rows of their node; whoever may edit the node may edit them."""

    model = Taint
    form = TaintForm
    formset = TaintFormSet  # type: ignore[assignment]  # the stubs fix the form's class
    fields = ("key", "value", "effect")
    extra = 0
    hide_title = True

    def get_formset(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
        """Return the formset's class, knowing who asks."""
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
    """Nodes that take pods, or do not."""

    title = "scheduling"
    parameter_name = "cordoned"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [("no", "Schedulable"), ("yes", "Cordoned")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Node]) -> QuerySet[Node]:
        """Return the nodes chosen."""
        if self.value() is None:
            return queryset
        return queryset.filter(unschedulable=self.value() == "yes")


class TaintFilter(admin.SimpleListFilter):
    """Nodes with a taint of some effect."""

    title = "taints"
    parameter_name = "taint"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return [("none", "No taint"), *((effect, effect) for effect in EFFECTS)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Node]) -> QuerySet[Node]:
        """Return the nodes chosen."""
        taints = Taint.objects.filter(node=OuterRef("pk"))
        if self.value() is None:
            return queryset
        if self.value() == "none":
            return queryset.filter(~Exists(taints))
        return queryset.filter(Exists(taints.filter(effect=self.value())))


@admin.register(Node)
class NodeAdmin(ObjectAdmin[Node]):
    """The node list and the node form."""

    form = NodeForm
    inlines = (TaintInline,)
    list_display = (
        "name", "state", "pod_number", "cpu_use", "memory_use", "taint_list", "label_list",
    )  # fmt: skip
    list_filter = (CordonedFilter, TaintFilter)
    search_fields = ("name",)
    search_help_text = "Name of a node"
    ordering = ("name",)
    list_per_page = 50
    actions = ("cordon", "uncordon")
    list_fullwidth = True
    warn_unsaved_form = True
    change_form_after_template = "clusterstate/manifest.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Node]:
        """Return nodes with taints and documents, and what their unfinished pods ask for."""
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
        """Return the form's class, knowing who asks."""
        options.setdefault("form", NodeForm)
        form: type[Any] = super().get_form(request, obj, change, **options)
        return type(form.__name__, (form,), {"user": requester(request)})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what is edited, and above it what is only told."""
        if obj is None:
            return [(None, {"fields": ("name", "unschedulable", "labels", "allocatable", "seen")})]
        told = ("name", "state", "use", "created")
        if self.has_change_permission(request, obj):
            edited: tuple[str, ...] = ("unschedulable", "labels", "allocatable", "seen")
        else:
            edited = ("label_lines", "allocatable_lines")
        return [(None, {"fields": (*told, *edited)})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return what is only told; the name, too, for a node that exists: it is its identity."""
        if obj is None:
            return ()
        told = ("name", "state", "use", "created")
        if self.has_change_permission(request, obj):
            return told
        return (*told, "label_lines", "allocatable_lines")

    @display(description="Status", ordering="unschedulable")
    def state(self, node: Node) -> SafeString:
        """Return what ``kubectl get nodes`` calls the status."""
        found = []
        if node.deletion_at is not None:
            found.append(("Terminating", "danger"))
        found.append(_readiness(_manifest(node)))
        if node.unschedulable:
            found.append(("SchedulingDisabled", "warning"))
        return look.badges(found)

    @display(description="Pods", ordering="pod_count")
    def pod_number(self, node: Any) -> SafeString:
        """Return how many pods are on the node, and how many may be."""
        return look.bar(node.pod_count, node.pods, f"{node.pod_count} / {node.pods}")

    @display(description="CPU", ordering="cpu_used")
    def cpu_use(self, node: Any) -> SafeString:
        """Return what the pods ask for and what the node offers."""
        used, offered = look.cpu(node.cpu_used), look.cpu(node.cpu_milli)
        return look.bar(node.cpu_used, node.cpu_milli, f"{used} / {offered}")

    @display(description="Memory", ordering="memory_used")
    def memory_use(self, node: Any) -> SafeString:
        """Return what the pods ask for and what the node offers."""
        used, offered = look.memory(node.memory_used), look.memory(node.memory_bytes)
        return look.bar(node.memory_used, node.memory_bytes, f"{used} / {offered}")

    @display(description="In use")
    def use(self, node: Any) -> SafeString:
        """Return a sentence about what is on the node, with the way to its pods."""
        target = reverse("admin:clusterstate_pod_changelist")
        number = f"{node.pod_count} pod{'' if node.pod_count == 1 else 's'}"
        asked = (
            f", asking for {look.cpu(node.cpu_used)} of {look.cpu(node.cpu_milli)} CPU"
            f" and {look.memory(node.memory_used)} of {look.memory(node.memory_bytes)} memory"
        )
        return look.link(f"{target}?node_name={node.name}", number) + SafeString(asked)

    @display(description="Taints")
    def taint_list(self, node: Node) -> SafeString | str:
        """Return the taints as kubectl writes them."""
        return look.chips(
            f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}"
            for t in node.taints.all()
        )

    @display(description="Labels")
    def label_list(self, node: Node) -> SafeString | str:
        """Return a few labels; not the host's name where it is the node's."""
        shown = {k: v for k, v in node.labels.items() if (k, v) != (_HOSTNAME, node.name)}
        return look.chips((f"{key}={shown[key]}" for key in sorted(shown)), limit=3, width=9)

    @display(description="Labels")
    def label_lines(self, node: Node) -> str:
        """Return all labels, one a line."""
        return as_lines(node.labels) or look.EMPTY

    @display(description="Allocatable")
    def allocatable_lines(self, node: Node) -> str:
        """Return what pods may use, one resource a line."""
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
        """Answer with the form, and under the taints the document as YAML."""
        node = None if object_id is None else self.get_object(request, unquote(object_id))
        shown = None if node is None else look.document(find_object("Node", "", node.name))
        context = {**(extra_context or {}), "manifest": shown}
        return super().changeform_view(request, object_id, form_url, context)

    def save_model(self, request: HttpRequest, obj: Node, form: Any, change: bool) -> None:  # noqa: FBT001
        """Write nothing yet: fields and taints are one change, made in ``save_related``."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        """Run the action for fields and taints together."""
        name = form.instance.name
        taints = formsets[0].taints() if formsets else None
        write(name, form.wanted(taints), new=not change, user=requester(request))
        if not change:
            form.instance.pk = Node.objects.only("id").get(name=name).pk
        for formset in formsets:
            formset.note_changes()

    def delete_model(self, request: HttpRequest, obj: Node) -> None:
        """Delete the node; its pods stay, as in Kubernetes."""
        deleted = objects.delete("Node", "", obj.name, now=now(), user=requester(request))
        if not deleted.gone:
            self.message_user(
                request, f"{obj.name} stays until its finalizers are gone.", messages.WARNING
            )

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        """Delete each node by the action."""
        for node in queryset:
            self.delete_model(request, node)

    @admin.action(description="Cordon: place no new pods", permissions=["change"])
    def cordon(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        """Cordon the selected nodes."""
        self._set_unschedulable(request, queryset, Wanted(unschedulable=True), "cordoned")

    @admin.action(description="Uncordon: take pods again", permissions=["change"])
    def uncordon(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        """Uncordon the selected nodes."""
        self._set_unschedulable(request, queryset, Wanted(unschedulable=False), "uncordoned")

    def _set_unschedulable(
        self, request: HttpRequest, queryset: QuerySet[Node], wanted: Wanted, word: str
    ) -> None:
        done = same = 0
        for node in queryset:
            try:
                stored = objects.update(
                    "Node", "", node.name, wanted.applied_to, now=now(), user=requester(request)
                )
            except StatusError as error:
                self.message_user(request, f"{node.name}: {error.message}", messages.ERROR)
                continue
            if stored.changed:
                self.log_change(request, node, word.capitalize())
            done += stored.changed
            same += not stored.changed
        if done:
            self.message_user(request, f"{_nodes(done)} {word}.", messages.SUCCESS)
        if same:
            self.message_user(request, f"{_nodes(same)} already {word}.", messages.INFO)


def _nodes(number: int) -> str:
    return "1 node was" if number == 1 else f"{number} nodes were"


def _manifest(node: Node) -> Manifest:
    return document.decode(node.document.text, node.revision)


def _readiness(manifest: Manifest) -> tuple[str, str]:
    """Return kubectl's word for the Ready condition, and its colour."""
    for condition in (manifest.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            ready = condition.get("status") == "True"
            return ("Ready", "success") if ready else ("NotReady", "danger")
    return "Unknown", ""
