"""Fixtures that every folder shares."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import redis
from django.conf import settings as django_settings
from django.db import connection
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker

from clusterstate import memory
from tests import emptying
from tests.live import Service, state_folder

if TYPE_CHECKING:
    from tests.api.serve import Server

# A property says nothing about speed, and machines may be slow.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


_WITHOUT_THE_ENGINE = ("test_dry_run.py", "test_every_kind.py", "test_schema.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take minutes, so that no worker is left alone with one at the end.

    They wait most of the time, and the many short ones fill the other workers. The first service
    of a fresh clone compiles the engine's loops for a minute, on one core, and whoever else needs
    these waits for it: the other workers begin with long files that need none. The runner keeps
    this order with --no-loadscope-reorder.
    """
    items.sort(
        key=lambda item: (
            item.path.name != "test_soak.py",
            item.path.name not in _WITHOUT_THE_ENGINE,
            "faults" not in item.path.parts,
        )
    )


emptying.install()


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """Let no test meet what another test's rows left in this process's memories."""
    memory.forget()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Let every test fail that writes a change and does not say who makes it.

    Users' tables take such changes, since the version before writes them during an upgrade.
    """
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE change ADD CONSTRAINT change_has_actor CHECK (actor_id IS NOT NULL)"
        )


@pytest.fixture(scope="session")
def live() -> Iterator[Service]:
    """The whole service, started once for all tests that leave it running."""
    with state_folder() as state:
        service = Service(state, STOWAGE_ADVISORS="1")  # tests of all folders ask it
        try:
            service.start()
            yield service
        finally:
            service.stop()


@pytest.fixture(scope="session")
def web_process(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator["Server"]:
    """The web process's own server, in a thread of the tests, for the whole run.

    It writes no audit log but in the tests about that, since tables are emptied between tests.
    """
    from tests.api.serve import serving

    django_settings.AUDIT_KEEP_HOURS = 0
    with django_db_blocker.unblock(), serving() as found:
        yield found


@pytest.fixture
def server(web_process: "Server", transactional_db: None) -> "Server":
    """The server on an empty database."""
    return web_process


@pytest.fixture
def servers() -> dict[str, str]:
    """The URLs of the running PostgreSQL (without Django's test database) and Redis."""
    return {"DATABASE_URL": os.environ["DATABASE_URL"], "REDIS_URL": os.environ["REDIS_URL"]}


@pytest.fixture
def redis_client(servers: dict[str, str]) -> Iterator["redis.Redis"]:
    """An empty Redis database."""
    with redis.Redis.from_url(servers["REDIS_URL"], socket_timeout=None) as client:
        client.flushdb()
        yield client
