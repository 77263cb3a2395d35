"""The permission class of all views, which asks `clusterstate.access`."""

from typing import Any

from rest_framework.permissions import BasePermission

from api.access import auth


class RoleBased(BasePermission):
    """Allows what roles and bindings give, and what nodes may do for themselves.

    A view has ``user``, and ``wants(request)`` yields what the sender has to be allowed to do. A
    view without an answer to what it wants is a defect, and open to nobody.
    """

    def has_permission(self, request: Any, view: Any) -> bool:
        """Return True.

        Raises:
            AccessDenied: the user may not do that; the sentence says what.
        """
        user = view.user
        if auth.MASTERS not in user.groups:
            for wants in view.wants(request):
                auth.require(user, wants)
        return True
