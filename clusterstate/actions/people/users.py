"""Users who log in to the admin, and the groups to which the default roles are bound."""

from typing import Final

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group
from django.db import transaction


def ensure_administrator(*, name: str, password: str) -> bool:
    """Create the administrator unless a user has that name. Return whether it was created.

    An existing user keeps the password: it may have been changed since.
    """
    model = get_user_model()
    if model.objects.filter(**{model.USERNAME_FIELD: name}).exists():
        return False  # before hashing a password, which takes half a second
    with transaction.atomic():
        _, created = model.objects.get_or_create(
            **{model.USERNAME_FIELD: name},
            defaults={
                "password": make_password(password),
                "is_staff": True,
                "is_superuser": True,
                "is_active": True,
            },
        )
    return created


GROUPS: Final = ("stowage:viewer", "stowage:operator", "stowage:administrator")
"""Groups of people: who reads everything, who runs workloads and nodes, who may everything."""


def ensure_groups() -> list[str]:
    """Create the groups that are missing; return their names."""
    return [name for name in GROUPS if Group.objects.get_or_create(name=name)[1]]
