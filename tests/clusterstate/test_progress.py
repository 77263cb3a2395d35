"""How far the loops are, as told to whoever asks the database."""

import pytest

from clusterstate import progress, sql
from clusterstate.actions.progress import Reporter
from tests.clusterstate.support import Worker
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


def standing() -> progress.Standing:
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
