"""Tasks of another version, or without a database: a worker tells of them and goes on."""

import threading
from collections.abc import Iterator

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import task_failure
from django.conf import settings
from django.db import DataError, OperationalError
from structlog.testing import capture_logs

from scheduling.celery import app as service
from tests.waiting import until


@pytest.fixture
def app() -> Iterator[Celery]:
    """An application with the service's own settings, whose messages stay in this process."""
    own = Celery("test", set_as_current=False, task_cls=service.task_cls)
    own.config_from_object(settings, namespace="CELERY")
    own.conf.update(broker_url="memory://", worker_hijack_root_logger=False)
    yield own
    own.close()
    # A worker that is started makes its application the one by which tasks are looked up.
    service.set_current()
    service.set_default()


def test_tasks_that_are_not_known_are_told_once_each_and_harm_nothing(
    app: Celery, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []
    ready = threading.Event()

    @app.task(name="known")
    def known(*, number: int, **_: object) -> None:
        done.append(number)
        ready.set()

    with (
        capture_logs() as lines,
        start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=20),
    ):
        for number in range(3):
            for name in ("judge_nodes", "deliver_webhooks"):
                app.send_task(name, kwargs={"of": "another version"})
            app.send_task("known", kwargs={"number": number, "later": "keyword"})
        until(lambda: len(done) == 3, seconds=20)
    assert done == [0, 1, 2]
    told = [(one["event"], one["log_level"], one["task"]) for one in lines if "task" in one]
    assert told == [
        ("task_of_another_version", "info", "judge_nodes"),
        ("task_of_another_version", "info", "deliver_webhooks"),
    ]
    assert not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]


def test_tasks_for_which_the_database_is_away_are_a_line_and_others_fail(app: Celery) -> None:
    fails: list[Exception] = [OperationalError("gone\nLINE 1: SELECT 1") for _ in range(3)]
    fails.append(DataError("a row that nobody can read"))
    done = threading.Event()
    failed: list[Exception] = []

    def note(*, exception: Exception, **_: object) -> None:
        failed.append(exception)

    @app.task(name="asks")
    def asks(**_: object) -> None:
        if fails:
            raise fails.pop(0)
        done.set()

    @app.task(name="needs_nothing")
    def needs_nothing(**_: object) -> None:
        """Does not end the trouble of the other one."""

    task_failure.connect(note)
    try:
        with (
            capture_logs() as lines,
            start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=20),
        ):
            for name in ("asks", "asks", "needs_nothing", "asks", "asks", "asks"):
                app.send_task(name)
            assert done.wait(20)
    finally:
        task_failure.disconnect(note)
    told = [(one["event"], one["error"]) for one in lines if one.get("work") == "asks"]
    assert told == [("lost_the_database", "gone")]
    assert [type(one) for one in failed] == [DataError]
