"""Who works alone, under a lock of its session, does nothing more once that session has ended.

Its lock has gone with the session, and another process works by now. What it read before is old:
pods that it finds missing have been made by the other one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from clusterstate.actions.loops import aside as setting_aside
from clusterstate.database import locks, sql
from clusterstate.health import aside
from tests.controllers.support import NOW, make_node
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

LOCK = locks.webhook(1)


@pytest.fixture(autouse=True)
def _hang_up(transactional_db: None) -> Iterator[None]:
    """Leave no dead connection, as the loops do."""
    yield
    connection.close()


@contextmanager
def another() -> Iterator[Any]:
    """A session of another client."""
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            yield cursor
    finally:
        other.close()


def backend() -> int:
    row = sql.fetch_one("SELECT pg_backend_pid()")
    assert row is not None
    return int(row[0])


def end(pid: int) -> None:
    with another() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))


def wait_for_end(pid: int) -> None:
    def gone() -> bool:
        with another() as cursor:
            cursor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,))
            return cursor.fetchone() is None

    until(gone, seconds=20, what="the session to end")


def is_free(lock: int) -> bool:
    with another() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", (lock,))
        return bool(cursor.fetchone()[0])


def test_no_statement_follows_the_end_of_the_session_that_held_the_lock() -> None:
    with locks.alone(LOCK) as mine:
        assert mine
        assert not is_free(LOCK)
        end(backend())
        for _ in range(3):
            with pytest.raises(OperationalError):
                sql.fetch("SELECT 1")
            connection.close()
        with pytest.raises(OperationalError), transaction.atomic():
            sql.fetch("SELECT 1")
    assert sql.fetch("SELECT 1") == [(1,)]
    assert is_free(LOCK)


def test_a_lock_within_a_lock_is_given_back_alone() -> None:
    with locks.alone(LOCK):
        with locks.alone(locks.webhook(2)):
            assert not is_free(locks.webhook(2))
        assert is_free(locks.webhook(2))
        assert not is_free(LOCK)
        end(backend())
        with pytest.raises(OperationalError):
            sql.fetch("SELECT 1")
    connection.close()
    assert is_free(LOCK)


def test_without_a_lock_one_works_on_in_another_session() -> None:
    end(backend())
    with pytest.raises(OperationalError):
        sql.fetch("SELECT 1")
    connection.close()
    assert sql.fetch("SELECT 1") == [(1,)]


def fall_silent() -> None:
    """Begin a transaction and say nothing until the server has ended the session."""
    sql.run("SET idle_in_transaction_session_timeout = '20ms'")
    wait_for_end(backend())


def make_read_only() -> None:
    sql.run("SET TRANSACTION READ ONLY")


@pytest.mark.parametrize("failing", [fall_silent, make_read_only])
def test_a_session_that_ends_or_only_reads_is_no_objects_fault(failing) -> None:
    """Django calls both an InternalError, as it does what a value may be to blame for."""
    make_node("n1")

    def work(names: object) -> None:
        with transaction.atomic():
            failing()
            sql.run("UPDATE node SET revision = revision")

    with pytest.raises(DatabaseError) as raised:
        setting_aside.each("nodes", ["n1"], work, which=setting_aside.node, now=NOW)
    assert not setting_aside.is_an_objects_fault(raised.value)
    connection.close()
    assert aside.objects("nodes") == {}


def test_a_value_that_the_database_refuses_is_the_objects_fault() -> None:
    with pytest.raises(DatabaseError) as raised:
        sql.fetch("SELECT 1 / 0")
    assert setting_aside.is_an_objects_fault(raised.value)
    assert setting_aside.is_an_objects_fault(ValueError("x"))
