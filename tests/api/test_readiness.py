"""What /readyz tells of a database that takes no writes, of a full disk, and of a wrong clock."""

import logging
import socket
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import OperationalError, connection

from api import clock
from api.forms import errors
from api.server import health, health_texts
from api.server.health_texts import Part
from tests.health_parts import parts_now

pytestmark = pytest.mark.django_db


def found(name: str) -> Part:
    (part,) = [one for one in parts_now() if one.name == name]
    return part


def refused_for_room() -> errors.errors.StatusError:
    error = OperationalError("could not extend file")
    error.__cause__ = psycopg.errors.DiskFull("could not extend file")
    return errors.translate(error)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_trouble", errors.Trouble())
    errors._no_room.clear()


def test_a_database_that_only_reads_is_not_ready() -> None:
    assert found("database") == Part("database")
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
    assert found("database").problem == "is read-only: it is a replica, or was made one"
    assert found("database").needed


def test_a_disk_that_is_nearly_full_is_told_and_stays_ready(settings, tmp_path) -> None:
    assert found("disk") == Part("disk", needed=False)
    settings.DATABASE_FOLDER, settings.DISK_RESERVE_BYTES = tmp_path, 1 << 60
    health.room._room._last = (float("-inf"), None)
    problem = found("disk").problem
    assert problem.startswith("nothing was written, because the disk is full: ")
    assert not found("disk").needed


def test_a_write_that_found_no_room_elsewhere_is_told_for_a_while(monkeypatch) -> None:
    assert refused_for_room().code == 507
    assert found("disk") == Part("disk", errors.DISK_FULL, needed=False)
    monkeypatch.setattr(health, "_FULL_SECONDS", 0.0)
    assert found("disk") == Part("disk", needed=False)


@pytest.mark.parametrize(
    ("ahead", "told"), [(0, ""), (-600, "600 s behind"), (600, "600 s ahead of"), (3, "")]
)
def test_a_clock_that_differs_from_the_databases_is_told(ahead, told, settings, monkeypatch):
    settings.SERVES = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        (seconds,) = cursor.fetchone()
    began = time.monotonic()
    monkeypatch.setattr(clock._ClockOffset, "ahead", timedelta(0))
    monkeypatch.setattr(health.time, "time", lambda: seconds + ahead + time.monotonic() - began)
    (part,) = [one for one in health._work() if one.name == "clock"]
    assert not part.needed
    assert part.problem == (
        f"is {told} the database's clock, by which times are stored" if told else ""
    )
    host = datetime.now(UTC)  # noqa: TID251  # the host's own clock is what is judged
    assert abs((host - clock.now()).total_seconds() - ahead) < 1


def test_a_process_that_was_stopped_between_two_looks_at_clocks_learns_nothing(monkeypatch) -> None:
    monkeypatch.setattr(clock._ClockOffset, "ahead", timedelta(0))
    assert clock.compare(database=1000.0, before=1000.0, after=1060.0) == 0.0
    assert clock.compare(database=1000.0, before=1600.0, after=1600.1) == 600.0
    assert clock.compare(database=1010.0, before=1010.0, after=1640.0) == 600.0
    assert clock.compare(database=1020.0, before=1020.9, after=1021.0) == 0.0
    assert clock.compare(database=1030.0, before=400.0, after=400.5) == -629.5


def test_without_the_database_nobody_knows_whether_an_advisor_runs(
    settings, redis_client, monkeypatch
) -> None:
    settings.SERVES = True
    assert list(health._advisor()) == [Part("advisor", "not running", needed=False)]
    monkeypatch.setattr(health, "_or_none", lambda ask: None)
    (told,) = health._advisor()
    assert told == Part("advisor", health_texts.UNREAD, needed=False)
    found = health_texts.troubles([told, Part("database", "is gone"), Part("disk", "is full")])
    assert [one.name for one in found] == ["database", "disk"], "what follows has no line"


def test_requests_that_are_refused_for_one_reason_are_one_line(caplog) -> None:
    with caplog.at_level(logging.WARNING, logger="api.forms.errors"):
        for _ in range(100):
            refused_for_room()
            errors.translate(OperationalError("the connection is lost"))
    told = [one.getMessage() for one in caplog.records if one.name == "api.forms.errors"]
    assert told == [
        f"refused: {errors.DISK_FULL} (requests: 1)",
        f"refused: {errors.UNAVAILABLE} (requests: 1)",
    ]


def test_the_console_is_waited_for_once_and_told_of_afterwards(settings, tmp_path, monkeypatch):
    """Pods are placed without it: a proxy that asks here must not take the API away."""
    path = tmp_path / "console.sock"
    monkeypatch.setattr(health, "_console_answered", set())
    monkeypatch.setattr(health, "_BEGAN", time.monotonic() - 5)
    settings.CONSOLE_AT = ""
    assert "console" not in {one.name for one in parts_now()}
    settings.CONSOLE_AT = f"unix:{path}"
    assert found("console") == Part("console", "does not answer (FileNotFoundError): it begins")
    with monkeypatch.context() as later:
        later.setattr(health, "_BEGAN", time.monotonic() - 61)
        assert not found("console").needed
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert found("console") == Part("console", needed=False)
    told = Part("console", "does not answer (ConnectionRefusedError)", needed=False)
    assert found("console") == told
    with socket.create_server(("127.0.0.1", 0)) as listening:
        settings.CONSOLE_AT = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert found("console") == Part("console", needed=False)
