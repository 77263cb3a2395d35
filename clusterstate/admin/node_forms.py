"""The forms of a node and of its taints; a dry run of the change checks both."""

import re
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from clusterstate.admin.base import (
    BaseInlineFormSet,
    ModelForm,
)
from clusterstate.admin.forms import MapField, show
from clusterstate.admin.node_changes import NodeFormChanges, fingerprint, tried
from clusterstate.admission.request import User
from clusterstate.models import Node, Taint
from clusterstate.objects.rules.matching import EFFECTS
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import get_manifest

_FIELDS = {
    "metadata.name": "name",
    "metadata.labels": "labels",
    "status.allocatable": "allocatable",
    "status.capacity": "allocatable",
    "spec.unschedulable": "unschedulable",
}
# Kubernetes names taints under metadata in its errors (ValidateNode, v1.36).
_TAINT = re.compile(r"(?:metadata|spec)\.taints(?:\[(\d+)\](?:\.(key|value|effect))?)?")


class NodeForm(ModelForm[Node]):
    """The editable fields of a node; checked by a dry run with the node's present taints."""

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

    def changes(self, taints: list[Manifest] | None) -> NodeFormChanges:
        """Return the changes in the fields, with these taints."""
        submitted = self.cleaned_data
        return NodeFormChanges(
            labels=submitted["labels"],
            allocatable=submitted["allocatable"],
            unschedulable=submitted["unschedulable"],
            taints=taints,
            seen=submitted.get("seen") or "",
        )

    def clean(self) -> dict[str, Any]:
        """Dry-run the save without the taints, which another form has."""
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            new = not self.instance.pk
            name = cleaned["name"] if new else self.instance.name
            found = tried(name, self.changes(None), new=new, user=self.user)
            # The capacity follows the allocatable; its problems are the same, said twice.
            named = {path for path, _ in found}
            found = [
                (path, message)
                for path, message in found
                if not path.startswith("status.capacity")
                or path.replace("capacity", "allocatable", 1) not in named
            ]
            show(self, found, _FIELDS)
        return cleaned

    def validate_unique(self) -> None:
        """Skip the check of the name: the action's error names the existing object."""

    def _get_validation_exclusions(self) -> set[str]:
        """Exclude every field from Django's validation; admission checks them."""
        return {field.name for field in Node._meta.get_fields()}


class TaintForm(ModelForm[Taint]):
    """One taint."""

    # The rows of a table have no labels but its head, which belongs to no field.
    key = forms.CharField(widget=UnfoldAdminTextInputWidget({"aria-label": "Key"}))
    value = forms.CharField(
        widget=UnfoldAdminTextInputWidget({"aria-label": "Value"}), required=False
    )
    effect = forms.ChoiceField(
        choices=[(effect, effect) for effect in EFFECTS],
        widget=UnfoldAdminSelectWidget({"aria-label": "Effect"}),
    )

    class Meta:
        model = Taint
        fields = ("key", "value", "effect")

    def _get_validation_exclusions(self) -> set[str]:
        """Exclude every field from Django's validation; admission checks them."""
        return {field.name for field in Taint._meta.get_fields()}


class TaintFormSet(BaseInlineFormSet[Taint, Node, TaintForm]):
    """A node's taints; checked by a dry run with the node's other fields as they are."""

    user = User()  # set by the admin for each request

    def rows(self) -> list[TaintForm]:
        """Return the forms of taints, without empty and deleted ones, in their order."""
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
        """Dry-run the save, and add each error to the row that it is about."""
        if any(self.errors):
            return
        new = not self.instance.pk
        name = "new" if new else self.instance.name
        rows = self.rows()
        others = []
        for path, message in tried(
            name, NodeFormChanges(taints=self.taints()), new=new, user=self.user
        ):
            match = _TAINT.match(path)
            if match and match[1] and int(match[1]) < len(rows):
                text = message.removeprefix(match[0]).removeprefix(": ")
                rows[int(match[1])].add_error(match[2], text)
            elif match or not new:
                others.append(message)
        if others:
            raise forms.ValidationError(others)

    def validate_unique(self) -> None:
        """Skip the check for duplicates: admission's error names key and effect."""

    def note_changes(self) -> None:
        """Set the lists of changed rows that Django's history reads; writes nothing."""
        rows = self.rows()
        deleted = [form.instance for form in self.initial_forms if form not in rows]
        self.new_objects = [form.instance for form in self.extra_forms if form in rows]
        self.changed_objects = [
            (form.instance, form.changed_data)
            for form in self.initial_forms
            if form in rows and form.has_changed()
        ]
        self.deleted_objects = deleted
