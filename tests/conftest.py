"""Fixtures that every folder shares."""

import functools
import os
import sys
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import redis
from django.conf import settings as django_settings
from django.db import connection
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import engine
from pytest_django import DjangoDbBlocker

from clusterstate.processes import collector, memory
from tests import distribution, emptying, prepared, static_files
from tests.forms import many
from tests.live import Service, shared

if TYPE_CHECKING:
    from tests.api.serve import Server

# A property says nothing about speed, and machines may be slow.
settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=many(12, 400),
)
settings.load_profile("any-machine")
# A counterexample is made smaller for five minutes, and it says no more than after some seconds.
assert hasattr(engine, "MAX_SHRINKING_SECONDS")
engine.MAX_SHRINKING_SECONDS = many(20, 300)


if sys.version_info < (3, 12):
    # Each isinstance of a protocol looks for its members anew: a tenth of a scheduler's beginning,
    # which happens in thousands of tests. Later versions of Python remember them.
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)  # type: ignore[attr-defined]


emptying.install()
static_files.install()
prepared.install()
django_settings.PASSWORD_HASHERS = ["tests.passwords.FewTurns"]


_calm = collector.calm


def pytest_collection_finish() -> None:
    """Let the collector pass by ten thousand tests and all modules, as a loaded service does.

    Once: what runs in this process would do so after each load, and half a second of CPU each time
    goes into tests and modules.
    """
    collector.calm()
    collector.calm = collector.seldom


@pytest.fixture
def calming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``collector.calm`` collect and freeze all that there is, as in the service."""
    monkeypatch.setattr(collector, "calm", _calm)


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


@pytest.fixture(scope="module")
def live(request: pytest.FixtureRequest) -> Service:
    """The whole service, started once for all tests that leave it running.

    Each file begins without the nodes of the one before: pods would be placed on them.
    """
    assert distribution.shares(request.node.nodeid), "name this file in tests/distribution.py"
    service = shared.service()
    service.request("DELETE", "/api/v1/nodes")
    return service


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
