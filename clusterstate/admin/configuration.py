"""The scheduler's configuration: its revisions, and a form for the next one."""

from typing import Any

import msgspec
import yaml
from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from clusterstate.actions.scheduler import scheduler_configuration as actions
from clusterstate.admin import look
from clusterstate.admin.base import ModelForm, ObjectAdmin, display
from clusterstate.admin.clock import now
from clusterstate.admin.forms import refusals
from clusterstate.models import SchedulerConfiguration
from clusterstate.objects.values.errors import Conflict, StatusError
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.scheduler import decisions

DEFAULT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
"""
"""The form's initial text if nothing is stored: the default configuration, written out."""
_HELP = (
    "A KubeSchedulerConfiguration as YAML or JSON; older versions of the API and a Policy are"
    " translated."
    " It takes effect within a second; earlier revisions are kept."
)
_CHANGED_MEANWHILE = (
    "Another user stored a configuration since you opened this page, so nothing was saved. Open"
    " the page again and repeat your change."
)


class ConfigurationForm(ModelForm[SchedulerConfiguration]):
    """The document of a new revision, checked before it is stored."""

    document = forms.CharField(
        label="Configuration",
        help_text=_HELP,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 24, "style": "font-family: monospace"}),
    )
    seen = forms.IntegerField(widget=forms.HiddenInput)
    checked = ""
    advice: list[str] = []

    class Meta:
        model = SchedulerConfiguration
        fields = ("document",)

    def clean(self) -> dict[str, Any]:
        """Check the document; errors name the wrong fields by their paths."""
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                self.checked, self.advice = actions.check(cleaned["document"])
            except StatusError as error:
                for _, message in refusals(error):
                    self.add_error(None, message.removeprefix(": "))  # above the long text
        return cleaned


@admin.register(SchedulerConfiguration)
class SchedulerConfigurationAdmin(ObjectAdmin[SchedulerConfiguration]):
    """Revisions, the latest first; saving stores a new one, and none is ever changed."""

    form = ConfigurationForm
    list_display = ("revision", "state", "stored", "by", "profiles", "next_from")
    list_display_links = ("revision",)
    ordering = ("-revision",)
    actions = ("make_current",)
    warn_unsaved_form = True
    list_fullwidth = True
    nobody_may = frozenset({"change", "delete"})  # decisions name the revision that made them

    def get_fields(self, request: HttpRequest, obj: SchedulerConfiguration | None = None) -> Any:
        """Return the form's fields, or the fields of a stored revision."""
        if obj is None:
            return ("document", "seen")
        return ("revision", "state", "stored", "by", "next_from", "manifest")

    def get_readonly_fields(
        self, request: HttpRequest, obj: SchedulerConfiguration | None = None
    ) -> tuple[str, ...]:
        """Return the read-only fields."""
        return () if obj is None else tuple(self.get_fields(request, obj))

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Start from the configuration in force, or from the revision ``from``."""
        found = decisions.configuration(natural(request.GET.get("from", "")))
        document = DEFAULT if found is None else _as_yaml(found.document)
        return {"document": document, "seen": decisions.configuration_revision()}

    def save_model(
        self,
        request: HttpRequest,
        obj: SchedulerConfiguration,
        form: Any,
        change: bool,  # noqa: FBT001  # Django's signature
    ) -> None:
        """Store the document as a new revision, unless somebody stored one in between."""
        obj.pk = self._store(request, form.checked, seen=form.cleaned_data["seen"])
        for text in form.advice:
            self.message_user(request, text, messages.WARNING)

    def _store(self, request: HttpRequest, document: str, *, seen: int) -> int:
        try:
            return actions.store(
                document=document, by=request.user.get_username(), now=now(), replaces=seen
            )
        except Conflict as error:
            raise Conflict(_CHANGED_MEANWHILE) from error

    @admin.action(description="Make current again", permissions=["add"])
    def make_current(
        self, request: HttpRequest, queryset: QuerySet[SchedulerConfiguration]
    ) -> None:
        """Store the document of an earlier revision as a new one, with today's checks."""
        chosen = list(queryset)
        if len(chosen) != 1:
            self.message_user(request, "Choose one revision.", messages.ERROR)
            return
        (earlier,) = chosen
        shown = decisions.configuration_revision()
        try:
            document, advice = actions.check(earlier.document)
            revision = self._store(request, document, seen=shown)
        except StatusError as error:
            for _, message in refusals(error):
                self.message_user(request, message, messages.ERROR)
            return
        if revision == shown:
            text = f"Revision {earlier.pk} is the same as the configuration in force."
            self.message_user(request, text, messages.INFO)
            return
        text = f"Revision {earlier.pk} is in force again, as revision {revision}."
        self.message_user(request, text, messages.SUCCESS)
        for text in advice:
            self.message_user(request, text, messages.WARNING)

    @display(description="State")
    def state(self, stored: SchedulerConfiguration) -> SafeString | str:
        """Return a label for the revision in force, a dash for others."""
        if stored.pk == decisions.configuration_revision():
            return look.badge("In force", "success")
        return look.EMPTY

    @display(description="Stored", ordering="at")
    def stored(self, stored: SchedulerConfiguration) -> str:
        """Return when the configuration was stored, in UTC."""
        return look.moment(stored.at)

    @display(description="Profiles")
    def profiles(self, stored: SchedulerConfiguration) -> SafeString | str:
        """Return the names of the profiles."""
        found = msgspec.json.decode(stored.document).get("profiles") or [{}]
        return look.chips(one.get("schedulerName") or "default-scheduler" for one in found)

    @display(description="Next revision")
    def next_from(self, stored: SchedulerConfiguration) -> SafeString:
        """Return a link to a form that starts from this revision."""
        target = reverse("admin:clusterstate_schedulerconfiguration_add")
        return look.link(f"{target}?from={stored.pk}", "Edit as a new revision")

    @display(description="Configuration")
    def manifest(self, stored: SchedulerConfiguration) -> SafeString | str:
        """Return the document as YAML."""
        return look.document(stored.document.encode())


def _as_yaml(document: str) -> str:
    text: str = yaml.safe_dump(msgspec.json.decode(document), sort_keys=False, allow_unicode=True)
    return text
