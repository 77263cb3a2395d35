"""The chain over decisions: what was changed, removed or put in is found, and old ones go."""

import io
import threading
from datetime import datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from clusterstate import sql
from clusterstate.actions import decisions, seals
from clusterstate.decisions import Turn
from tests.clock import NOW
from tests.clusterstate.support import new_pod

pytestmark = pytest.mark.django_db(transaction=True)


def decide(count: int, *, at: datetime = NOW) -> None:
    """Record decisions about one pod."""
    rows = sql.fetch("SELECT id FROM pod WHERE name = 'p'")
    pod_id = rows[0][0] if rows else new_pod("p")
    made = [
        decisions.Made(
            pod_id=pod_id, at=at, class_id=1, snapshot_revision=1, profile="default-scheduler",
            profile_revision=0, seed=1, draw=number, start=0, outcome="unschedulable",
            node_name="", total=0, margin=None, ties=0, node_count=1, evaluated=1, feasible=0,
            message="0/1 nodes are available", body=b"x",
        )
        for number in range(count)
    ]  # fmt: skip
    assert decisions.record_many(made, Turn(0, 1, 1)) == count


def verified(*arguments: str) -> str:
    out = io.StringIO()
    call_command("auditlog", *arguments, stdout=out)
    return out.getvalue()


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
    assert "9 decisions are as they were sealed" in text
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
    assert "2 decisions are as they were sealed" in verified()


def test_seals_go_with_their_decisions_and_the_rest_is_still_a_chain() -> None:
    decide(2, at=NOW - timedelta(days=3))
    seals.seal()
    decide(3, at=NOW - timedelta(days=2))
    seals.seal()
    decide(4)
    seals.seal()
    assert decisions.trim(now=NOW, keep_seconds=3600) >= 2  # others' tests leave empty ones
    text = verified()
    assert "4 decisions are as they were sealed" in text
    assert "seal 3:" in text
    assert sql.fetch("SELECT id FROM decision_seal") == [(3,)]
    sql.run("DELETE FROM decision WHERE draw = 0")
    with pytest.raises(CommandError, match="4 are 3"):
        verified()


def test_a_seal_over_the_border_of_what_is_kept_is_told_apart() -> None:
    decide(2, at=NOW - timedelta(days=3))
    decide(3)
    seals.seal()
    decide(4)
    seals.seal()
    decisions.trim(now=NOW, keep_seconds=3600)
    assert "4 decisions are as they were sealed (5 more are partly gone)" in verified()


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
    assert "2 decisions are as they were sealed" in verified()
