"""Permissions in the admin, derived from the roles of the API.

`clusterstate.access.people` maps a person to a user of the API. Each permission of a screen is a
check by `clusterstate.access`, for all namespaces, since a screen shows them all. Permissions given
in the admin hold in addition.
"""

from typing import Any, Final

from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from clusterstate.access import authorizer
from clusterstate.access.people import user_of
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kinds import ALL_KINDS

_APP: Final = "clusterstate"
_VERBS: Final = {"view": "list", "add": "create", "change": "update", "delete": "delete"}
_OTHERS: Final = {
    "schedulerconfiguration": ("stowage.dev", "schedulerconfiguration"),
    "evictiontimer": ("stowage.dev", "evictions"),
    "auditline": ("audit.k8s.io", "events"),
}
"""Screens without a kind: the group and resource whose rights they need."""
_INTERNAL: Final = "internal.stowage.dev"
"""The group of tables that the API does not serve: only users with all rights may see them."""


class RolesBackend(BaseBackend):
    """A Django authentication backend: answers permission checks from roles and bindings."""

    def has_perm(
        self, user_obj: AbstractBaseUser | AnonymousUser, perm: str, obj: Any = None
    ) -> bool:
        """Return whether a person's roles allow the API request behind a permission."""
        app, _, code = perm.partition(".")
        action, _, model = code.partition("_")
        if app != _APP or action not in _VERBS:
            return False
        user = user_of(user_obj)
        if not user.name:
            return False
        group, resource = resource_of(model)
        return authorizer.decide(user, Attributes(_VERBS[action], group, resource)).allowed

    def has_module_perms(self, user_obj: AbstractBaseUser | AnonymousUser, app_label: str) -> bool:
        """Return whether a person may see any object of the cluster."""
        return app_label == _APP and any(
            self.has_perm(user_obj, f"{_APP}.view_{model}") for model in _resources()
        )


def resource_of(model: str) -> tuple[str, str]:
    """Return (group, resource) of the rows of a model, by its name in lower case."""
    return _resources().get(model, (_INTERNAL, model))


def _resources() -> dict[str, tuple[str, str]]:
    """Return (group, resource) by the lower-case name of the model."""
    return {**{kind.name.lower(): (kind.group, kind.plural) for kind in ALL_KINDS}, **_OTHERS}
