"""The permission class of all views, which calls `clusterstate.access`."""

from typing import Any

from rest_framework.permissions import BasePermission

from api.access import auth


class RoleBased(BasePermission):
    """Allows requests by roles and bindings, and by the rights of nodes.

    A view has ``user``, and ``wants(request)`` yields the rights that the request needs. A view
    that yields none is a defect, and refuses everybody.
    """

    def has_permission(self, request: Any, view: Any) -> bool:
        """Return True.

        Raises:
            AccessDenied: the user lacks a right; the message names it.
        """
        user = view.user
        if auth.MASTERS not in user.groups:
            for wants in view.wants(request):
                auth.require(user, wants)
        return True
