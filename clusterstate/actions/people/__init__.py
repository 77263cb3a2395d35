"""Users from an identity provider: their rows, and the groups that the provider assigns.

::

    users, codes                   people who sign in; one-time codes as a second factor
    tokens                         bearer tokens of the API
    account_tokens, agent_tokens   tokens of service accounts; those that a node's agent may request
    signing_keys                   the keys that sign them
"""

from collections.abc import Iterable
from typing import Final

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.utils.crypto import get_random_string

MOST_GROUPS: Final = 500
_LONGEST: Final = 150
"""How long names are at most, as Django's columns are."""
_VOUCHED: Final = f"{UNUSABLE_PASSWORD_PREFIX}provider:"
"""Begins the stored password of people that the provider authenticates: no password matches."""
_RESERVED: Final = "system:"
"""How the cluster's own names begin, such as ``system:kube-scheduler``, to which roles are bound.
"""


class NotAPerson(Exception):  # a refusal with a sentence for the user
    """The name belongs to another user, or to one who may not sign in."""


def from_provider(name: str, groups: Iterable[str]) -> User:
    """Return the user of that name, in exactly these groups; created if there is none.

    Such a user has no password. Missing groups are created. Group names that are too long or not
    printable, and those after the first ``MOST_GROUPS``, are left out.

    Raises:
        NotAPerson: the name is empty, too long or reserved for the cluster; or the user was created
            locally, with a password or only for tokens, or is not active.
    """
    if not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise NotAPerson("the name claim of the identity provider is empty or too long")
    if name.startswith(_RESERVED):
        raise NotAPerson(f"names that begin with {_RESERVED} are reserved for the cluster")
    printed = {one for one in groups if 0 < len(one) <= _LONGEST and one.isprintable()}
    group_names = sorted(printed)[:MOST_GROUPS]
    with transaction.atomic():
        person, is_new = User.objects.get_or_create(username=name)
        if is_new:
            person.password = f"{_VOUCHED}{get_random_string(40)}"
            person.save(update_fields=["password"])
        elif person.has_usable_password():
            raise NotAPerson(f"{name} is a local user, who signs in with a password")
        elif not person.password.startswith(_VOUCHED):
            raise NotAPerson(f"{name} is a local user for tokens, who cannot sign in")
        elif not person.is_active:
            raise NotAPerson(f"{name} is deactivated here")
        had = set(person.groups.values_list("name", flat=True))
        if had != set(group_names):
            Group.objects.bulk_create(
                [Group(name=one) for one in group_names if one not in had], ignore_conflicts=True
            )
            person.groups.set(Group.objects.filter(name__in=group_names))
    return person


def for_tokens(name: str) -> None:
    """Create a user without a password, for tokens, unless one of that name exists."""
    with transaction.atomic():
        person, is_new = User.objects.get_or_create(username=name)
        if is_new:
            person.set_unusable_password()
            person.save(update_fields=["password"])
