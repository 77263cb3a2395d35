"""The chain over decisions: what was changed, removed or put in is found, and old ones go."""

import threading
import uuid
from datetime import datetime, timedelta

import pytest
from django.core.management import CommandError
from django.db import connection, transaction

from clusterstate.actions.past import audit_log
from clusterstate.actions.scheduler import decisions, seals
from clusterstate.database import sql
from clusterstate.queries.scheduler import seals as queries
from clusterstate.queries.scheduler.decisions import Turn
from tests.clock import NOW
from tests.clusterstate.support import new_pod, verified

pytestmark = pytest.mark.django_db(transaction=True)


def decide(count: int, *, at: datetime = NOW) -> None:
    """Record decisions about one pod."""
    rows = sql.fetch("SELECT id FROM pod WHERE name = 'p'")
    pod_id = rows[0][0] if rows else new_pod("p")
    made = [
        decisions.NewDecision(
            pod_id=pod_id, at=at, class_id=1, snapshot_revision=1, profile="default-scheduler",
            profile_revision=0, seed=1, draw=number, start=0, outcome="unschedulable",
            node_name="", total=0, margin=None, ties=0, node_count=1, evaluated=1, feasible=0,
            message="0/1 nodes are available", body=b"x",
        )
        for number in range(count)
    ]  # fmt: skip
    assert decisions.record_many(made, Turn(0, 1, 1)) == count


def seal_digest(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("seal ")).split()[-1]


def test_decisions_are_sealed_once_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "STRETCH", 4)
    decide(6)
    assert seals.seal() == 6
    decide(3)
    assert seals.seal() == 3
    assert seals.seal() == 0
    stretches = sql.fetch("SELECT decisions FROM decision_seal ORDER BY id")
    assert stretches == [(4,), (2,), (3,)]
    text = verified()
    assert "9 decisions match their seals" in text
    digest = seal_digest(text)
    decide(1)
    seals.seal()
    assert verified("--contains", digest)


COPY = "INSERT INTO decision SELECT (jsonb_populate_record(d, '{\"id\": GAP}')).* FROM decision d"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE decision SET node_name = 'n9' WHERE draw = 2",
        "UPDATE decision SET body = 'y' WHERE draw = 2",
        "UPDATE decision SET margin = 0 WHERE draw = 2",
        "DELETE FROM decision WHERE draw = 2",
        f"{COPY} WHERE draw = 2",
        "UPDATE decision_seal SET decisions = 4",
        "UPDATE decision_seal SET rows_digest = 'x'",
        "UPDATE decision_seal SET digest = 'x'",
        "DELETE FROM decision_seal",
    ],
)
def test_a_decision_or_a_seal_that_was_changed_is_found(change: str) -> None:
    decide(3)
    ((gap,),) = sql.fetch("SELECT nextval('decision_id')")
    decide(2)
    seals.seal()
    assert verified()
    sql.run(change.replace("GAP", str(gap)))
    with pytest.raises(CommandError):
        verified()


def test_what_was_decided_after_the_last_seal_breaks_nothing() -> None:
    decide(2)
    seals.seal()
    decide(2)
    assert "2 decisions match their seals" in verified()


def test_seals_go_with_their_decisions_and_the_rest_is_still_a_chain() -> None:
    decide(2, at=NOW - timedelta(days=3))
    seals.seal()
    decide(3, at=NOW - timedelta(days=2))
    seals.seal()
    decide(4)
    seals.seal()
    assert decisions.trim(now=NOW, keep_seconds=3600) >= 2  # others' tests leave empty ones
    text = verified()
    assert "4 decisions match their seals" in text
    assert "decisions made before 20" in text
    assert "seal 4:" in text
    seals_kept = sql.fetch("SELECT id, dropped IS NULL FROM decision_seal ORDER BY id")
    assert seals_kept == [(3, True), (4, False)]
    sql.run("DELETE FROM decision WHERE draw = 0")
    with pytest.raises(CommandError, match="4 sealed, 3 stored"):
        verified()


def test_a_seal_over_the_border_of_what_is_kept_is_told_apart() -> None:
    decide(2, at=NOW - timedelta(days=3))
    decide(3)
    seals.seal()
    decide(4)
    seals.seal()
    decisions.trim(now=NOW, keep_seconds=3600)
    assert "4 decisions match their seals (5 more are partly trimmed)" in verified()


def test_a_decision_that_is_being_recorded_is_not_passed_over() -> None:
    decide(1)
    ready, go = threading.Event(), threading.Event()

    def slowly() -> None:
        try:
            with transaction.atomic():
                decide(1)
                ready.set()
                go.wait(20)
        finally:
            connection.close()

    thread = threading.Thread(target=slowly)
    thread.start()
    assert ready.wait(20)
    assert seals.seal() == 0  # who records holds the table
    go.set()
    thread.join(20)
    assert seals.seal() == 2
    assert "2 decisions match their seals" in verified()


TRIMMED = """
    UPDATE seal_head SET trimmed_id = s.id, trimmed_digest = s.digest, trimmed_decision = s.last_id
"""


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE seal_head SET trimmed_at = now() + interval '90 days'",
        f"{TRIMMED} FROM decision_seal s WHERE s.id = 1",
        f"WITH s AS (DELETE FROM decision_seal WHERE id = 1 RETURNING *) {TRIMMED} FROM s",
    ],
)
def test_nobody_hides_a_change_by_declaring_decisions_to_be_old(lie: str) -> None:
    decide(3)
    seals.seal()
    decide(2)
    seals.seal()
    sql.run("UPDATE decision SET node_name = 'n9' WHERE id = (SELECT min(id) FROM decision)")
    sql.run(lie)
    with pytest.raises(CommandError):
        verified()


def test_what_a_seal_says_was_dropped_is_not_there() -> None:
    decide(3)
    seals.seal()
    with transaction.atomic():
        seals.trim(before=NOW + timedelta(days=1), now=NOW)
    with pytest.raises(CommandError, match="are recorded as dropped"):
        verified()
    sql.run("DELETE FROM decision")
    assert verified()
    sql.run("UPDATE decision_seal SET dropped = '0' || dropped WHERE dropped IS NOT NULL")
    with pytest.raises(CommandError, match="differs from what was sealed"):
        verified()


def test_decisions_that_are_dropped_while_the_chain_is_verified_are_no_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decide(2, at=NOW - timedelta(days=3))
    decide(3)
    seals.seal()
    decide(4)
    seals.seal()
    rows = queries.rows

    def dropped_before(*arguments: int) -> queries.Rows:
        monkeypatch.setattr(queries, "rows", rows)
        decisions.trim(now=NOW, keep_seconds=3600)
        return rows(*arguments)

    monkeypatch.setattr(queries, "rows", dropped_before)
    assert "4 decisions match their seals (5 more are partly trimmed)" in verified()


def test_an_audit_log_that_says_too_much_was_dropped_is_found() -> None:
    line = audit_log.AuditLine(NOW, uuid.uuid4(), "ann", "get", "pods", "", "", 200, "{}")
    audit_log.append([line, line])
    assert verified()
    sql.run(
        "UPDATE audit_head SET trimmed_id = l.id, trimmed_digest = l.digest FROM audit_line l"
        " WHERE l.id = audit_head.last_id"
    )
    with pytest.raises(CommandError, match="are recorded as deleted"):
        verified()
