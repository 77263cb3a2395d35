"""People who log in, and what they look at."""

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from clusterstate import catalogue


@pytest.fixture(autouse=True)
def fresh(db: None) -> None:
    """What a process remembers of the classes and namespaces goes with the test's transaction."""
    catalogue.reload()


def person(name: str, *permissions: str, superuser: bool = False) -> Client:
    """Log in a new person with these permissions; return the browser."""
    user = User.objects.create_user(name, password="pass word 123", is_staff=True)
    user.is_superuser = superuser
    user.save()
    for permission in permissions:
        user.user_permissions.add(Permission.objects.get(codename=permission))
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def administrator() -> Client:
    return person("anna", superuser=True)


@pytest.fixture
def viewer() -> Client:
    return person("victor", "view_node", "view_pod")
