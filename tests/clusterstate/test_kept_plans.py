"""What the timers ask in every round is planned once, not each time.

PostgreSQL plans a statement anew where its parameters promise a cheaper plan, and planning these
questions takes up to a hundred times as long as answering them.
"""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from django.db import DataError, NotSupportedError, connection, transaction

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
    def prepared(statement: str = "SELECT 7::int8") -> bool:
        return statement in {
            text for (text,) in sql.fetch("SELECT statement FROM pg_prepared_statements")
        }

    sql.fetch("SELECT 7::int8")
    with transaction.atomic():
        transaction.set_rollback(True)
    assert prepared()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE made_here (value int8)")
        with transaction.atomic():
            transaction.set_rollback(True)
        assert not prepared()
        cursor.execute("ALTER TABLE made_here ADD other text")
        sql.fetch("SELECT * FROM made_here")
        assert prepared("SELECT * FROM made_here")
        transaction.set_rollback(True)
    assert not prepared("SELECT * FROM made_here")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("together", [False, True])
def test_a_statement_fails_once_when_another_session_has_changed_what_it_returns(
    together: bool,
) -> None:
    def ask() -> list[tuple[object, ...]]:
        if not together:
            return sql.fetch("SELECT * FROM made_there")
        return sql.fetch_together(("SELECT * FROM made_there", ()))[0]

    settings = connection.get_connection_params()
    names = ("host", "port", "dbname", "user", "password")
    with psycopg.connect(**{n: settings[n] for n in names if n in settings}) as other:
        other.autocommit = True
        other.execute("CREATE TABLE made_there (value int8)")
        try:
            for number in range(2):
                assert ask() == []
                other.execute(f"ALTER TABLE made_there ADD also{number} text")
                with pytest.raises(NotSupportedError), transaction.atomic():
                    ask()
            assert ask() == []
        finally:
            other.execute("DROP TABLE made_there")


def test_a_statement_that_a_failed_pipeline_left_out_is_prepared_when_it_is_sent_again() -> None:
    late = ("SELECT 8::int8", ())
    for _ in range(2):
        with pytest.raises(DataError), transaction.atomic():
            sql.fetch_together(("SELECT 1 / 0", ()), late)
        assert sql.fetch(*late) == [(8,)]
