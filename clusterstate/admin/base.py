"""The admin's classes with the types that Unfold lacks, and what all screens have in common.

Everything that comes from Unfold comes through here and `clusterstate.admin.look`: going back to
Django's own look is a change of these two modules.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from clusterstate.access.people import user_of
from clusterstate.admin import look, trail
from clusterstate.admission.request import User
from clusterstate.objects.values.actor import current
from clusterstate.objects.values.errors import StatusError

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin, TabularInline
    from django.forms import BaseInlineFormSet, ModelForm
else:
    from unfold import admin as unfold_admin
    from unfold.forms import PaginationInlineFormSet

    class ModelAdmin(unfold_admin.ModelAdmin):
        """Unfold's, with the type parameter that django-stubs gives it."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls

    class TabularInline(unfold_admin.TabularInline):
        """Unfold's, with type parameters."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls

    class ModelForm(forms.ModelForm):
        """Django's, with a type parameter."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls

    class BaseInlineFormSet(PaginationInlineFormSet):
        """Unfold's, with type parameters."""

        def __class_getitem__(cls, _: Any) -> type:
            return cls


MOST_AT_ONCE: Final = 200
"""Objects that one action is for: a cordon of so many takes about three seconds."""
_DELETE: Final = "delete_selected"

Method = TypeVar("Method", bound=Callable[..., Any])
Object = TypeVar("Object", bound=Model)


def display(*, description: str, ordering: str | None = None) -> Callable[[Method], Method]:
    """Name a column, and what the list is sorted by when its title is clicked."""

    def decorate(method: Method) -> Method:
        options = {"short_description": description}
        if ordering is not None:
            options["admin_order_field"] = ordering
        for name, value in options.items():
            setattr(method, name, value)
        return method

    return decorate


def requester(request: HttpRequest) -> User:
    """Return the logged-in person as admission sees them; permissions were checked before."""
    return msgspec.structs.replace(user_of(request.user), request=current().cause)


class CommonAdmin(ModelAdmin[Object]):
    """What every list has: its actions and their bounds, columns, the history of an object."""

    nobody_may: frozenset[str] = frozenset()
    """Which of add, change and delete nobody may do here, whatever the person's roles allow."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the person may add an object."""
        return "add" not in self.nobody_may and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Object | None = None) -> bool:
        """Return whether the person may change an object, or this one."""
        return "change" not in self.nobody_may and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Object | None = None) -> bool:
        """Return whether the person may delete an object, or this one."""
        return "delete" not in self.nobody_may and super().has_delete_permission(request, obj)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Answer with the list, or carry an action out.

        Raises:
            PermissionDenied: the person does not have the action; Django would show the list.
        """
        if request.method == "POST":
            asked = {one for one in request.POST.getlist("action") if one}
            if not asked <= self.get_actions(request).keys():
                raise PermissionDenied("You may not do that with these objects.")
        return super().changelist_view(request, extra_context)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Object], *args: Any, **kwargs: Any
    ) -> Any:
        """Carry an action out, unless so many objects are chosen that a request would be too long.

        The confirmation of a deletion names each object, and every one is a change of its own.
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
        """Return the actions, what cannot be undone as the last of them."""
        found: dict[str, Any] = super().get_actions(request)
        if _DELETE in found:
            found[_DELETE] = found.pop(_DELETE)
        return found

    @display(description="Created", ordering="created_at")
    def created(self, stored: Any) -> str:
        """Return when the object was created, in UTC."""
        return look.moment(stored.created_at)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Return every change of the object, whoever made it, and not those of the admin alone."""
        stored = self.get_object(request, object_id)
        found = None if stored is None else trail.entries(stored)
        if found is not None:
            extra_context = {"action_list": found, **(extra_context or {})}
        return super().history_view(request, object_id, extra_context)


class ObjectAdmin(CommonAdmin[Object]):
    """Turns what an action refuses after the form was checked into a message, nothing written.

    Forms are tried before they are saved, so this is the case of two saves at the same moment and
    of objects that vanish under the screen. Django's views run in a transaction, which the error
    has rolled back when it arrives here.
    """

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Answer with the form, or with a message where the action refused."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except StatusError as error:
            return self._refuse(request, error)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Answer with the confirmation, or with a message where the action refused."""
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


class ReadOnlyAdmin(CommonAdmin[Object]):
    """Looking only: these objects are made, changed and deleted by the API."""

    nobody_may = frozenset({"add", "change", "delete"})


__all__ = [
    "MOST_AT_ONCE",
    "BaseInlineFormSet",
    "CommonAdmin",
    "ModelAdmin",
    "ModelForm",
    "ObjectAdmin",
    "ReadOnlyAdmin",
    "TabularInline",
    "display",
    "requester",
]
