"""Base classes of all screens, and the admin's classes with the types that Unfold lacks.

All imports of Unfold are here and in `clusterstate.admin.look`, so that only these two modules
change if Django's own look is used again.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse

from clusterstate.access.people import user_of
from clusterstate.access.rules import Attributes
from clusterstate.admin import look, trail
from clusterstate.admin.roles import resource_of
from clusterstate.admission.request import User
from clusterstate.middleware import DID
from clusterstate.objects.values.actor import current
from clusterstate.objects.values.errors import StatusError

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin, TabularInline
    from django.forms import BaseInlineFormSet, ModelForm
else:
    from unfold import admin as unfold_admin
    from unfold.forms import PaginationInlineFormSet

    class ModelAdmin(unfold_admin.ModelAdmin):
        """Unfold's class, with the type parameter of django-stubs."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls

    class TabularInline(unfold_admin.TabularInline):
        """Unfold's class, with type parameters."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls

    class ModelForm(forms.ModelForm):
        """Django's class, with a type parameter."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls

    class BaseInlineFormSet(PaginationInlineFormSet):
        """Unfold's class, with type parameters."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls


MOST_AT_ONCE: Final = 200
"""The most objects of one action: a cordon of this many takes about three seconds."""
_DELETE: Final = "delete_selected"

Method = TypeVar("Method", bound=Callable[..., Any])
Object = TypeVar("Object", bound=Model)


def display(*, description: str, ordering: str | None = None) -> Callable[[Method], Method]:
    """Set a column's title, and the field by which a click on the title sorts the list."""

    def decorate(method: Method) -> Method:
        options = {"short_description": description}
        if ordering is not None:
            options["admin_order_field"] = ordering
        for name, value in options.items():
            setattr(method, name, value)
        return method

    return decorate


def requester(request: HttpRequest) -> User:
    """Return the logged-in person as admission's user; permissions were checked before."""
    return msgspec.structs.replace(user_of(request.user), request=current().cause)


def _tell_audit(request: HttpRequest, model: type[Model], verb: str, named: Any = None) -> None:
    """Record a form's write for the audit log, as the equivalent request of the API.

    ``named``: the row that it changes, or the form's data; without either, several objects.
    """
    group, resource = resource_of(model._meta.model_name or "")
    of = named.get if isinstance(named, QueryDict) else partial(_attribute, named)
    place = {name: str(of(name) or "") for name in ("namespace", "name")}
    request.META[DID] = Attributes(verb, group, resource, **place)


def _attribute(row: Any, name: str) -> Any:
    return getattr(row, name, "")


class CommonAdmin(ModelAdmin[Object]):
    """Base of all lists: actions and their limits, columns, the history of an object."""

    list_per_page = 25
    label_column = ""
    """The column that a search for ``label=value`` reads, if there is one."""
    nobody_may: frozenset[str] = frozenset()
    """Those of add, change and delete that this screen never allows, whatever the roles."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the person may create an object."""
        return "add" not in self.nobody_may and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Object | None = None) -> bool:
        """Return whether the person may change an object, or this one."""
        return "change" not in self.nobody_may and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Object | None = None) -> bool:
        """Return whether the person may delete an object, or this one."""
        return "delete" not in self.nobody_may and super().has_delete_permission(request, obj)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Object], search_term: str
    ) -> tuple[QuerySet[Object], bool]:
        """Return the objects that a search finds, by words and by ``label=value``."""
        words = []
        for word in search_term.split():
            key, sign, value = word.partition("=")
            if sign and self.label_column:
                queryset = queryset.filter(**{f"{self.label_column}__contains": {key: value}})
            else:
                words.append(word)
        return super().get_search_results(request, queryset, " ".join(words))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Answer with the list, or run an action.

        Raises:
            PermissionDenied: the person may not run the action; Django would show the list.
        """
        if request.method == "POST":
            _tell_audit(request, self.opts.model, "delete" if self._deletes(request) else "update")
            actions = {one for one in request.POST.getlist("action") if one}
            if not actions <= self.get_actions(request).keys():
                raise PermissionDenied("Your roles do not allow this for the chosen objects.")
        return super().changelist_view(request, extra_context)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Object], *args: Any, **kwargs: Any
    ) -> Any:
        """Run an action, unless so many objects are chosen that the request would take too long.

        The confirmation of a deletion lists each object, and each one is deleted by itself.
        """
        chosen = len(request.POST.getlist(ACTION_CHECKBOX_NAME))
        if request.POST.get("select_across", "0") not in ("", "0"):
            chosen = queryset.count()
        if chosen > MOST_AT_ONCE:
            self.message_user(
                request,
                f"At most {MOST_AT_ONCE} at a time, and {chosen:,} are chosen, so nothing was done."
                " Narrow the list by a search or a filter.",
                messages.ERROR,
            )
            return None
        return super().response_action(request, queryset, *args, **kwargs)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions; the deletion, which cannot be undone, comes last."""
        found: dict[str, Any] = super().get_actions(request)
        if _DELETE in found:
            found[_DELETE] = found.pop(_DELETE)
        return found

    def _deletes(self, request: HttpRequest) -> bool:
        return _DELETE in request.POST.getlist("action")

    @display(description="Created", ordering="created_at")
    def created(self, stored: Any) -> str:
        """Return when the object was created, in UTC."""
        return look.moment(stored.created_at)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Answer with all changes of the object in the change log, not only the admin's."""
        stored = self.get_object(request, object_id)
        found = None if stored is None else trail.entries(stored)
        if found is not None:
            extra_context = {"action_list": found, **(extra_context or {})}
        return super().history_view(request, object_id, extra_context)


class ObjectAdmin(CommonAdmin[Object]):
    """Shows a message if an action refuses a write after the form was checked.

    Forms are checked by a dry run, so this happens if two people save at the same moment, or if an
    object is deleted under the screen. Django's views run in a transaction, which the error has
    already rolled back.
    """

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Answer with the form, or with a message if the action refused."""
        if request.method == "POST":
            stored = None if object_id is None else self.get_object(request, unquote(object_id))
            verb = "create" if object_id is None else "update"
            _tell_audit(request, self.opts.model, verb, stored or request.POST)
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except StatusError as error:
            return self._refuse(request, error)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Answer with the confirmation, or with a message if the action refused."""
        if request.method == "POST":
            stored = self.get_object(request, unquote(object_id))
            _tell_audit(request, self.opts.model, "delete", stored)
        try:
            return super().delete_view(request, object_id, extra_context)
        except StatusError as error:
            return self._refuse(request, error)

    def _refuse(self, request: HttpRequest, error: StatusError) -> HttpResponseRedirect:
        self.message_user(request, error.message, messages.ERROR)
        if request.method == "POST" and not request.path.endswith("/delete/"):
            return HttpResponseRedirect(request.get_full_path())
        names = f"{self.opts.app_label}_{self.opts.model_name}"
        return HttpResponseRedirect(reverse(f"{self.admin_site.name}:{names}_changelist"))


class PreviewedAdmin(ObjectAdmin[Object]):
    """Deletes by the console's preview, which shows the effects on pods before the confirmation."""

    def preview_of(self, do: str, rows: Iterable[Any]) -> HttpResponseRedirect:
        """Redirect to the preview of a change of these rows."""
        raise NotImplementedError

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the preview of the deletion.

        Raises:
            PermissionDenied: the person may not delete it.
        """
        stored = self.get_object(request, unquote(object_id))
        if stored is None:
            return super().delete_view(request, object_id, extra_context)  # says that it is gone
        if not self.has_delete_permission(request, stored):
            raise PermissionDenied
        return self.preview_of("delete", [stored])

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions; a deletion of several objects redirects to a preview, too."""
        found = super().get_actions(request)
        if _DELETE in found:
            found[_DELETE] = (type(self)._delete, _DELETE, found[_DELETE][2])
        return found

    def _delete(self, request: HttpRequest, queryset: QuerySet[Object]) -> HttpResponseRedirect:
        return self.preview_of("delete", queryset)


def preview(do: str, *named: tuple[str, str]) -> HttpResponseRedirect:
    """Redirect to the console's preview of a change; ``named``: parameters of its URL."""
    return HttpResponseRedirect(f"{reverse('console:change')}?{urlencode([('do', do), *named])}")


class ReadOnlyAdmin(CommonAdmin[Object]):
    """Read-only: only the API creates, changes and deletes these objects."""

    nobody_may = frozenset({"add", "change", "delete"})


__all__ = [
    "MOST_AT_ONCE",
    "BaseInlineFormSet",
    "CommonAdmin",
    "ModelAdmin",
    "ModelForm",
    "ObjectAdmin",
    "PreviewedAdmin",
    "ReadOnlyAdmin",
    "TabularInline",
    "display",
    "preview",
    "requester",
]
