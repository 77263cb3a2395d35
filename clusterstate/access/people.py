"""People who are signed in to the admin, as access and admission see them.

A person is a user of the same name, in the groups that the admin stores for the person, except
those named ``system:...``, which only the cluster gives. A superuser is in ``system:masters``.
"""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.auth.models import User as Person

from clusterstate.access import authorizer
from clusterstate.admission.request import User


def user_of(person: AbstractBaseUser | AnonymousUser) -> User:
    """Return the signed-in person as a user, empty if there is none. Queries once a request."""
    if not isinstance(person, Person) or not person.is_active:
        return User()
    user: User | None = getattr(person, "_stowage_user", None)
    if user is None:
        groups = [
            name
            for name in person.groups.order_by("name").values_list("name", flat=True)
            if not name.startswith("system:")
        ]
        if person.is_superuser:
            groups.insert(0, authorizer.MASTERS)
        groups.append(authorizer.AUTHENTICATED)
        user = User(name=person.get_username(), groups=tuple(groups), uid=str(person.pk))
        person._stowage_user = user  # type: ignore[attr-defined]  # lives as long as the request
    return user
