"""People whom a provider of identities knows: their rows, and the groups that it puts them in."""

from collections.abc import Iterable
from typing import Final

from django.contrib.auth.models import Group, User
from django.db import transaction

MOST_GROUPS: Final = 500
_LONGEST: Final = 150
"""How long names are at most, as Django's columns are."""


class NotAPerson(Exception):  # a refusal with a sentence for the person
    """The name cannot be taken, or is that of somebody who may not sign in."""


def from_provider(name: str, groups: Iterable[str]) -> User:
    """Return the person of that name, in just these groups; made where there is none.

    Such a person has no password. Groups that have no row yet get one. Names of groups that are
    too long, and those after the first ``MOST_GROUPS``, are left out.

    Raises:
        NotAPerson: the name is empty or too long; or the person was made here, with a password, or
            is not active.
    """
    if not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise NotAPerson("the name that the provider gives is empty or too long")
    wanted = sorted({one for one in groups if 0 < len(one) <= _LONGEST})[:MOST_GROUPS]
    with transaction.atomic():
        person, made = User.objects.get_or_create(username=name)
        if made:
            person.set_unusable_password()
            person.save(update_fields=["password"])
        elif person.has_usable_password():
            raise NotAPerson(f"{name} is somebody who signs in with a password here")
        elif not person.is_active:
            raise NotAPerson(f"{name} may not sign in any more")
        had = set(person.groups.values_list("name", flat=True))
        if had != set(wanted):
            Group.objects.bulk_create(
                [Group(name=one) for one in wanted if one not in had], ignore_conflicts=True
            )
            person.groups.set(Group.objects.filter(name__in=wanted))
    return person
