"""How far the loops are, as told to whoever asks the database."""

import pytest
from django.db import connection

from clusterstate.actions.loops import progress as actions_progress
from clusterstate.actions.loops.progress import Reporter
from clusterstate.database import sql
from clusterstate.health import progress
from tests.clusterstate.support import Worker
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


def standing() -> progress.WorkState:
    return progress.standing(patience=5)


def test_a_loop_has_ended_when_the_session_that_reported_is_gone() -> None:
    """Sooner than the age of its report tells, and until another process reports."""
    Reporter("scheduler").note()
    Worker(lambda: Reporter("timers").note()).result()  # closes its connection as it ends
    until(lambda: standing().ended == {"timers"}, what="the session's end")
    assert standing().silent_seconds["timers"] < progress.SILENT_SECONDS
    Reporter("timers").note()
    assert standing().ended == set()


def test_a_report_without_a_session_is_judged_by_its_age_alone() -> None:
    """As a process of an older version writes it."""
    sql.run(
        "INSERT INTO loop_progress (name, at, revision, holder)"
        " VALUES ('scheduler', clock_timestamp(), 1, 'old')"
    )
    assert standing().ended == set()
    assert standing().silent_seconds["scheduler"] < progress.SILENT_SECONDS


def test_a_part_of_long_work_is_told_by_the_keeper_once_the_loop_has_reported(monkeypatch) -> None:
    monkeypatch.setattr(actions_progress, "_EVERY_SECONDS", 0.0)
    actions_progress.step("timers")
    actions_progress.tell_steps()
    assert standing().silent_seconds == {}  # another process may hold what the loop works under
    Reporter("timers").note()
    sql.run("UPDATE loop_progress SET at = at - interval '9 s'")
    actions_progress.tell_steps()
    assert standing().silent_seconds["timers"] > 8  # nothing was done
    actions_progress.step("timers")
    actions_progress.tell_steps()
    assert standing().silent_seconds["timers"] < 5
    sql.run("UPDATE loop_progress SET at = at - interval '9 s', holder = 'another'")
    actions_progress.step("timers")
    actions_progress.tell_steps()
    assert standing().silent_seconds["timers"] > 8  # another process took over


def test_a_loop_may_be_silent_for_as_long_as_its_keeper_says(settings) -> None:
    Reporter("timers").note()
    assert standing().patience == {"timers": progress.SILENT_SECONDS}
    keeper = connection.copy()
    try:
        with keeper.cursor() as cursor:
            cursor.execute(f"SET application_name = '{settings.SESSION_NAME}+4'")
        assert standing().patience == {"timers": 4 * progress.SILENT_SECONDS}
    finally:
        keeper.close()
