"""Beat tells seldom that Redis takes nothing."""

from types import SimpleNamespace
from typing import Any

import redis
from celery import Celery
from celery.beat import ScheduleEntry, Scheduler
from structlog.testing import capture_logs

from scheduling.processes.nudges import QUIET_SECONDS, Nudges

ENTRY = SimpleNamespace(task="scheduling.tasks.run_cycles")


def test_trouble_is_told_once_a_minute_and_its_end_with_what_was_lost() -> None:
    clock = SimpleNamespace(at=1000.0)
    wrong: list[Exception] = [redis.exceptions.OutOfMemoryError("used memory > 'maxmemory'")]

    def send(entry: Any, *, producer: Any, advance: bool) -> None:
        if wrong:
            raise wrong[0]

    nudges = Nudges(send, now=lambda: clock.at)
    with capture_logs() as lines:
        for _ in range(100):
            nudges.apply_entry(ENTRY)
            clock.at += 1.0
        wrong.clear()
        nudges.apply_entry(ENTRY)
        nudges.apply_entry(ENTRY)
    told = [(one["event"], one["lost"]) for one in lines]
    second = int(QUIET_SECONDS) + 1
    again = ("nudges_sent_again", 100)
    assert told == [("nudges_not_sent", 1), ("nudges_not_sent", second), again]
    assert lines[0]["error"] == "used memory > 'maxmemory'"


def test_an_error_of_another_kind_comes_with_its_traceback() -> None:
    def send(entry: Any, **_: Any) -> None:
        raise ValueError("no such task")

    with capture_logs() as lines:
        Nudges(send).apply_entry(ENTRY)
    assert [(one["event"], one["log_level"]) for one in lines] == [("nudge_failed", "error")]
    assert lines[0]["exc_info"]


class Full(Celery):
    """An application whose broker takes no message."""

    def send_task(self, *args: Any, **named: Any) -> Any:
        raise redis.exceptions.OutOfMemoryError("command not allowed: used memory > 'maxmemory'")


def test_what_celery_makes_of_a_full_redis_is_one_line() -> None:
    # The current application stays this process's own: other tests send their tasks by it.
    app = Full("test", broker="memory://", set_as_current=False)
    scheduler = Scheduler(app, lazy=True)
    entry = ScheduleEntry(name="n", task="t", schedule=5.0, app=app)
    nudges = Nudges(scheduler.apply_async)
    with capture_logs() as lines:
        nudges.apply_entry(entry)
        nudges.apply_entry(entry)
    app.close()
    assert [(one["event"], one["lost"]) for one in lines] == [("nudges_not_sent", 1)]
    assert "maxmemory" in lines[0]["error"]
