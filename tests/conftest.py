"""Fixtures that every folder shares."""

import os
from collections.abc import Iterator

import pytest
import redis


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
