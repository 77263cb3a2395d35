"""Partitions are made and dropped while somebody reads the table for long, as a backup does."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connection

from clusterstate.actions import past
from clusterstate.actions.scheduler import decisions
from clusterstate.actions.writing import partitions
from clusterstate.database import sql
from tests.waiting import until

pytestmark = [pytest.mark.django_db, pytest.mark.real_clock]
LONG_AGO = datetime(2021, 3, 1, tzinfo=UTC)
"""Before anything that another test keeps."""
LATER = LONG_AGO + timedelta(days=3)
TABLES = {
    "decision": (
        decisions.make_partitions,
        lambda: decisions.trim(now=LATER, keep_seconds=0),
        "decision_20210301_00",
    ),
    "past_block": (
        past.make_partitions,
        lambda: past.trim(now=LATER, keep_hours=0),
        "past_block_20210301",
    ),
}
Make = Callable[[list[datetime]], None]
Trim = Callable[[], int]


@pytest.fixture(params=list(TABLES))
def table(request: pytest.FixtureRequest) -> tuple[str, Make, Trim, str]:
    name: str = request.param
    make, trim, partition = TABLES[name]
    return name, make, trim, partition


@pytest.fixture
def reader(table: tuple[str, Make, Trim, str]) -> Iterator[Callable[[], None]]:
    """A session that has read the table and whose transaction goes on; yields what ends it."""
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {table[0]}")
        yield other.rollback
    finally:
        other.close()


def partitions_of(table: str) -> set[str]:
    rows = sql.fetch(
        "SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = %s::regclass",
        (table,),
    )
    return {name for (name,) in rows}


def test_a_partition_is_made_beside_a_reader(table, reader) -> None:
    name, make, _, partition = table
    sql.run("SET LOCAL lock_timeout = '2s'")
    make([LONG_AGO])
    make([LONG_AGO])
    assert partition in partitions_of(name)
    indexes = "SELECT count(*) FROM pg_indexes WHERE tablename = %s"
    assert sql.fetch(indexes, (partition,)) == sql.fetch(indexes, (name,))


def test_a_partition_is_dropped_when_the_reader_has_ended(table, reader) -> None:
    name, make, trim, partition = table
    make([LONG_AGO])
    began = time.monotonic()
    assert trim() == 0
    assert time.monotonic() - began < 5
    assert partition in partitions_of(name)
    reader()
    assert trim() == 1
    assert partition not in partitions_of(name)


def test_who_is_silent_for_long_keeps_no_partition(table, monkeypatch) -> None:
    """A shell whose transaction was never ended; one that spoke a moment ago is left alone."""
    name, make, trim, partition = table
    make([LONG_AGO])
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {name}")
        assert trim() == 0
        with other.cursor() as cursor:
            cursor.execute("SELECT 1")
        monkeypatch.setattr(partitions, "SILENT_SECONDS", 0)
        assert trim() == 0
        until(lambda: trim() == 1, seconds=30, what="the partition is dropped")
        assert partition not in partitions_of(name)
        with other.cursor() as cursor, pytest.raises(OperationalError):
            cursor.execute("SELECT 1")
    finally:
        other.close()
