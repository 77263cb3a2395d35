"""Reads from a replica, without one: which revision it must have, and what happens if it fails."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DEFAULT_DB_ALIAS, ProgrammingError, connection, connections

from api.running import hang_up
from clusterstate.change_log import changes, replica
from clusterstate.database import sql
from clusterstate.database.postgres.base import DatabaseWrapper, last_answer
from tests.clusterstate.support import new_pod

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def wrapper(settings) -> Iterator[DatabaseWrapper]:
    """A connection to the primary that passes for one to a replica."""
    settings.READS_FROM_REPLICA, settings.REPLICA_LAG_SECONDS = True, 5
    found = DatabaseWrapper(connection.settings_dict, replica.ALIAS)
    connections[replica.ALIAS] = found
    yield found
    found.close()
    del connections[replica.ALIAS]
    connection.close()
    sql.fetch("SELECT 1")


def test_a_new_process_reads_no_replica_that_is_further_behind_than_its_first_look(wrapper) -> None:
    new_pod("a")
    standing = replica.Standing()
    standing.look()
    assert standing.failure == ""
    assert standing.floor == changes.watermark() > 0


def test_what_fails_on_the_replica_alone_is_read_from_the_primary(wrapper, monkeypatch) -> None:
    """As in the moment in which the primary is migrated and the replica is not."""
    standing = replica.Standing()
    standing.look()
    standing.floor = 0
    monkeypatch.setattr(standing, "start", lambda: None)
    monkeypatch.setattr(replica, "standing", standing)
    asked = []

    def ask() -> str:
        asked.append(replica.is_used())
        return str(sql.fetch("SELECT no_such_column" if replica.is_used() else "SELECT 'whole'"))

    assert replica.read(ask) == "[('whole',)]"
    assert asked == [True, False]
    with pytest.raises(ProgrammingError):
        replica.read(lambda: sql.fetch("SELECT no_such_column"))


def test_nobody_waits_for_a_replica_that_is_far_behind(wrapper, monkeypatch) -> None:
    standing = replica.Standing()
    standing.look()
    standing.floor = changes.watermark() + 1_000_000
    monkeypatch.setattr(standing, "start", lambda: None)
    monkeypatch.setattr(replica, "standing", standing)
    began = time.monotonic()
    assert replica.read(replica.is_used, least=standing.floor + 1, patience=5.0) is False
    assert time.monotonic() - began < 2


@contextmanager
def used(alias: str) -> Iterator[None]:
    before = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[alias]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = before


def test_an_answer_of_the_replica_is_none_of_the_primary(wrapper) -> None:
    """Else requests would wait for a primary that is away as for one that is slow."""
    sql.fetch("SELECT 1")
    assert last_answer() > 0
    with used(replica.ALIAS):
        sql.fetch("SELECT 1")
    assert last_answer() == 0  # both are at one address here


def test_a_thread_that_ends_leaves_no_session_at_the_replica(wrapper, monkeypatch) -> None:
    with used(replica.ALIAS):
        sql.fetch("SELECT 1")
    assert wrapper.connection is not None
    monkeypatch.setitem(connections.settings, replica.ALIAS, connection.settings_dict)
    hang_up()
    assert wrapper.connection is None
