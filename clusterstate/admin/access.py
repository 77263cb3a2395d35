"""Users, groups, tokens and one-time codes; failed log-ins, whose deletion ends a lock-out."""

from axes.models import AccessAttempt
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.forms import (
    AdminPasswordChangeForm,
    AuthenticationForm,
    UserChangeForm,
    UserCreationForm,
)

from clusterstate.actions.people import codes, tokens
from clusterstate.admin.base import CommonAdmin, display
from clusterstate.models.people import OneTimeCodes
from clusterstate.models.tokens import ApiToken

admin.site.unregister([User, Group])


class PasswordForm(AuthenticationForm):
    """The admin's own sign-in, by password alone, for people without one-time codes."""

    def confirm_login_allowed(self, user: AbstractBaseUser) -> None:
        """Refuse people without access to the admin, and those who have one-time codes."""
        super().confirm_login_allowed(user)
        if isinstance(user, User) and codes.since(user) is not None:
            raise ValidationError(
                "Your account has one-time codes: sign in at /console/ first, then open this page"
                " again.",
                code="codes",
            )


admin.site.login_form = PasswordForm


@admin.register(User)
class PersonAdmin(UserAdmin, CommonAdmin[User]):  # type: ignore[type-arg]  # only in the stubs
    """People: Django's screens, in the look of this admin."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "is_active", "is_staff", "is_superuser", "last_login")


@admin.register(Group)
class PeopleAdmin(GroupAdmin, CommonAdmin[Group]):
    """Groups of people, which have permissions."""


@admin.register(ApiToken)
class ApiTokenAdmin(CommonAdmin[ApiToken]):
    """API tokens: the user of each and when it expires; deleting a token revokes it.

    They are made on the command line, which shows them once.
    """

    list_display = ("id", "stands_for", "name", "groups", "created_at", "expires_at")
    list_select_related = ("user",)
    search_fields = ("user__username", "identity", "name")
    ordering = ("-created_at",)
    fields = readonly_fields = ("stands_for", "name", "groups", "created_at", "expires_at")
    nobody_may = frozenset({"add", "change"})  # `manage.py createtoken` makes another one

    @display(description="user", ordering="user__username")
    def stands_for(self, token: ApiToken) -> str:
        """Return the user name of the token's requests."""
        return token.stands_for

    def delete_model(self, request: HttpRequest, obj: ApiToken) -> None:
        """Revoke one token."""
        tokens.revoke([obj.pk])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Revoke several tokens."""
        tokens.revoke(list(queryset.values_list("pk", flat=True)))


@admin.register(OneTimeCodes)
class OneTimeCodesAdmin(CommonAdmin[OneTimeCodes]):
    """People with one-time codes; after an entry is deleted, the password alone is enough."""

    list_display = ("person", "since", "failures", "failed_at")
    search_fields = ("person__username",)
    list_select_related = ("person",)
    ordering = ("person__username",)
    fields = readonly_fields = ("person", "since", "failures", "failed_at")
    nobody_may = frozenset({"add", "change"})  # each person sets codes up in the console


@admin.register(AccessAttempt)
class AccessAttemptAdmin(CommonAdmin[AccessAttempt]):
    """Wrong passwords by name and address; deleting one unlocks that person."""

    list_display = ("username", "ip_address", "failures_since_start", "attempt_time")
    search_fields = ("username", "ip_address")
    ordering = ("-attempt_time",)
    fields = readonly_fields = (
        "username", "ip_address", "user_agent", "failures_since_start", "attempt_time",
    )  # fmt: skip
    nobody_may = frozenset({"add", "change"})  # the log-in counts attempts
