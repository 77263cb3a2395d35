"""Who may log in and what they may do; failed log-ins, whose deletion ends a lock-out."""

from axes.models import AccessAttempt
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from clusterstate.admin.base import ModelAdmin

admin.site.unregister([User, Group])


@admin.register(User)
class PersonAdmin(UserAdmin, ModelAdmin[User]):  # type: ignore[type-arg]  # only in the stubs
    """People: Django's screens in this look."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "is_active", "is_staff", "is_superuser", "last_login")


@admin.register(Group)
class PeopleAdmin(GroupAdmin, ModelAdmin[Group]):
    """Groups of people, by which permissions are given."""


@admin.register(AccessAttempt)
class AccessAttemptAdmin(ModelAdmin[AccessAttempt]):
    """Wrong passwords by name and address; deleting one lets that person try again."""

    list_display = ("username", "ip_address", "failures_since_start", "attempt_time")
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    fields = readonly_fields = (
        "username", "ip_address", "user_agent", "failures_since_start", "attempt_time",
    )  # fmt: skip

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: they are counted by the log-in."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: AccessAttempt | None = None) -> bool:
        """Return False: they are counted by the log-in."""
        return False
