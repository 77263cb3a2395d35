"""What the timers ask in every round is planned once, not each time.

PostgreSQL plans a statement anew where its parameters promise a cheaper plan, and planning these
questions takes up to a hundred times as long as answering them.
"""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import DataError, connection, transaction

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.queries.evictions.eviction_news import eviction_news
from clusterstate.queries.pods.terminating import finishable
from tests.clock import NOW
from tests.clusterstate.support import create_node

pytestmark = pytest.mark.django_db

TRIED = 5
"""So often PostgreSQL plans a statement for its parameters, before it compares the costs."""
ROUNDS = 15


def plans(text: str) -> tuple[int, int]:
    """Return how often this session planned statements with such a text, and used a kept plan."""
    row = sql.fetch_one(
        "SELECT coalesce(sum(custom_plans), 0)::bigint, coalesce(sum(generic_plans), 0)::bigint"
        " FROM pg_prepared_statements WHERE position(%s::text in statement) > 0"
        " AND position('pg_prepared_statements' in statement) = 0",
        (text,),
    )
    assert row is not None
    return row[0], row[1]


def check(text: str, ask: Callable[[], object]) -> None:
    """Ask often; a kept plan answers from the sixth time on."""
    planned, kept = plans(text)
    for _ in range(ROUNDS):
        ask()
    planned_then, kept_then = plans(text)
    assert planned_then - planned <= TRIED
    assert kept_then - kept >= ROUNDS - TRIED


def test_deletions_to_finish_are_looked_for_by_a_kept_plan() -> None:
    now = NOW

    def ask() -> None:
        nonlocal now
        now += timedelta(seconds=1)
        finishable(now=now, overdue_at=now - timedelta(seconds=30), limit=2000)

    check("FROM terminating_pod t,", ask)


def test_changes_that_matter_to_timers_are_read_by_kept_plans() -> None:
    cursor = changes.watermark()
    for number in range(3):
        create_node(f"n{number}")

    def ask() -> None:
        news = eviction_news(cursor)
        assert news is not None
        assert [one.name for one in news.nodes] == ["n0", "n1", "n2"]

    check("SELECT c.name, c.at, c.verb,", ask)


def test_pods_that_matter_to_timers_are_read_by_a_kept_plan() -> None:
    cursor = changes.watermark()
    create_node("n")
    check("SELECT DISTINCT c.object_id", lambda: eviction_news(cursor))


def test_statements_stay_prepared_over_rollbacks_unless_the_schema_was_changed() -> None:
    def prepared() -> int:
        row = sql.fetch_one(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 7::int8'"
        )
        assert row is not None
        count: int = row[0]
        return count

    def change_schema(kind: str) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE made_here (value {kind})")
            assert sql.fetch("SELECT value FROM made_here") == []
            transaction.set_rollback(True)

    sql.fetch("SELECT 7::int8")
    with transaction.atomic():
        transaction.set_rollback(True)
    assert prepared() == 1
    change_schema("int8")
    assert prepared() == 0
    change_schema("text")


def test_a_statement_that_a_failed_pipeline_left_out_is_prepared_when_it_is_sent_again() -> None:
    late = ("SELECT 8::int8", ())
    for _ in range(2):
        with pytest.raises(DataError), transaction.atomic():
            sql.fetch_together(("SELECT 1 / 0", ()), late)
        assert sql.fetch(*late) == [(8,)]
