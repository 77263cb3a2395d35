"""Sessions of a PostgreSQL that freezes: every wait ends, and what only takes long goes on."""

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.errors import ConnectionTimeout

from clusterstate.database.postgres.base import Session
from clusterstate.local import embedded
from tests import faults
from tests.faults.freezing import frozen
from tests.faults.proxy import Proxy
from tests.live import free_ports, state_folder
from tests.waiting import until

pytestmark = faults.MARKS

PROMISED_SECONDS = 20.0


class OnPort(embedded.Postgres):
    """One that listens on a port as well, after which its socket is called, too."""

    def url(self, database: str = "stowage") -> str:
        port = self._settings.get("port")
        return super().url(database) + (f"&port={port}" if port else "")


@contextmanager
def server(state: Path, **settings: str) -> Iterator[tuple[embedded.Postgres, int]]:
    postgres = OnPort(state, durable=False, settings=settings)
    process = postgres.spawn(subprocess.DEVNULL)
    try:
        embedded.wait_ready(postgres, process)
        yield postgres, process.pid
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def two() -> Iterator[list[tuple[embedded.Postgres, int]]]:
    with ExitStack() as stack:
        states = [stack.enter_context(state_folder()) for _ in range(2)]
        yield [stack.enter_context(server(state)) for state in states]


def socket_of(postgres: embedded.Postgres) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(postgres.url())["host"])


def connect(*servers: tuple[embedded.Postgres, int], **given: Any) -> Session:
    hosts = ",".join(socket_of(postgres) for postgres, _ in servers)
    found = Session.connect(
        host=hosts, dbname="stowage", user="postgres", autocommit=True, connect_timeout="8", **given
    )
    found.limit_seconds = 300
    return found


def timed(act: Callable[[], object]) -> tuple[float, BaseException | None]:
    """Return how long it took and what it raised."""
    began = time.monotonic()
    try:
        act()
    except psycopg.Error as error:
        return time.monotonic() - began, error
    return time.monotonic() - began, None


def test_each_wait_ends_and_the_first_that_gives_up_ends_all_older_sessions(
    two: list[tuple[embedded.Postgres, int]],
) -> None:
    first, _ = two
    with ThreadPoolExecutor(4) as threads, ExitStack() as stack:
        early, late, idle, writes = (stack.enter_context(connect(first)) for _ in range(4))
        writes.execute("BEGIN")
        running = threads.submit(timed, lambda: early.execute("SELECT pg_sleep(120)"))
        until(lambda: early.info.transaction_status == 1, what="the statement to run")
        with frozen(first[1]):
            began = time.monotonic()
            waits = [
                running,
                threads.submit(timed, lambda: writes.execute("COMMIT")),
                threads.submit(timed, lambda: time.sleep(4) or late.execute("SELECT 1")),
            ]
            found = [wait.result(PROMISED_SECONDS) for wait in waits]
            assert time.monotonic() - began < PROMISED_SECONDS
            assert all(isinstance(error, psycopg.OperationalError) for _, error in found), found
            # One asked for all: they ended at one moment, also the wait that began 4 s later.
            took = [seconds for seconds, _ in found]
            assert max(took) - min(took) < 1, took
            # One that nobody used fails with its next statement, and waits for nothing.
            seconds, error = timed(lambda: idle.execute("SELECT 1"))
            assert seconds < 1
            assert isinstance(error, psycopg.OperationalError)
            # Who wants a session is told at once, for as long as it lasts.
            time.sleep(2.5)
            tries = [threads.submit(timed, lambda: connect(first)) for _ in range(4)]
            assert max(one.result(PROMISED_SECONDS)[0] for one in tries) < 1
            assert all(isinstance(one.result()[1], ConnectionTimeout) for one in tries)
        # Thawed, it is found again.
        until(
            lambda: timed(lambda: connect(first).close())[1] is None, seconds=15, what="a session"
        )


def test_an_answer_to_another_session_before_the_host_froze_makes_no_wait_longer(
    two: list[tuple[embedded.Postgres, int]],
) -> None:
    _, second = two
    with ThreadPoolExecutor(1) as threads, connect(second) as early, connect(second) as other:
        running = threads.submit(timed, lambda: early.execute("SELECT pg_sleep(120)"))
        until(lambda: early.info.transaction_status == 1, what="the statement to run")
        assert other.execute("SELECT 1").fetchone() == (1,)
        with frozen(second[1]):
            seconds, error = running.result(2 * PROMISED_SECONDS)
        assert isinstance(error, psycopg.OperationalError)
        assert seconds < PROMISED_SECONDS
    until(lambda: timed(lambda: connect(second).close())[1] is None, seconds=15, what="entry")


def test_a_statement_that_takes_long_is_waited_for(
    two: list[tuple[embedded.Postgres, int]],
) -> None:
    """A migration, an archive, a report: silent for longer than a frozen host would be given."""
    with connect(two[0]) as session, connect(two[0]) as other:
        assert session.execute("SELECT pg_sleep(21)").fetchone() == ("",)
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_lets_nobody_else_in_answers_all_the_same() -> None:
    with (
        state_folder() as state,
        server(state, max_connections="6", superuser_reserved_connections="0") as only,
        ExitStack() as stack,
    ):
        sessions = [stack.enter_context(connect(only)) for _ in range(6)]
        assert isinstance(timed(lambda: connect(only))[1], psycopg.OperationalError)
        assert sessions[0].execute("SELECT pg_sleep(8)").fetchone() == ("",)


def test_an_answer_that_a_network_swallowed_is_given_up_and_others_are_not() -> None:
    (port,) = free_ports(1)
    with (
        state_folder() as state,
        server(state, listen_addresses="127.0.0.1", port=str(port)) as (postgres, _),
    ):
        admitted = "local all all trust\nhost all all 127.0.0.1/32 trust\n"
        (postgres.data / "pg_hba.conf").write_text(admitted)
        with psycopg.connect(postgres.url(), autocommit=True) as db:
            db.execute("SELECT pg_reload_conf()")
        proxy = Proxy(port)
        try:
            url = f"postgresql://postgres@127.0.0.1:{proxy.port}/stowage?sslmode=disable"
            until(lambda: timed(lambda: Session.connect(url).close())[1] is None, what="access")
            lost = Session.connect(url, application_name="stowage-lost", autocommit=True)
            other = Session.connect(url, application_name="stowage-other", autocommit=True)
            for one in (lost, other):
                one.limit_seconds = 300
            proxy.hush("lost")
            seconds, error = timed(lambda: lost.execute("SELECT 1"))
            assert isinstance(error, psycopg.OperationalError)
            assert seconds < 10
            assert lost.closed
            assert other.execute("SELECT 1").fetchone() == (1,)
            other.close()
        finally:
            proxy.close()


def test_the_host_that_answered_last_comes_first_and_a_frozen_one_last(
    two: list[tuple[embedded.Postgres, int]],
) -> None:
    first, second = two
    where = "SELECT system_identifier FROM pg_control_system()"
    with connect(first) as one, connect(second) as other:
        names = [session.execute(where).fetchone() for session in (other, one)]
    second_name = names[0]
    with connect(first) as session, frozen(first[1]):
        seconds, error = timed(lambda: session.execute("SELECT 1"))
        assert isinstance(error, psycopg.OperationalError)
        assert seconds < PROMISED_SECONDS
        for _ in range(3):
            began = time.monotonic()
            with connect(first, second) as found:
                assert found.execute(where).fetchone() == second_name
            assert time.monotonic() - began < 1
    with connect(first, second) as found:
        assert found.execute(where).fetchone() == second_name
