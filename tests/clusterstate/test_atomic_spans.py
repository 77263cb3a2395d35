"""At no revision is a group of pods there in part, whoever reads and however (issue 34)."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from clusterstate.actions import past
from clusterstate.actions.past import history, housekeeping
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.change_log import changes
from clusterstate.database import locks, sql
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.past import revision_at
from tests.clock import after
from tests.clusterstate.support import Worker, create_node, items, new_pod
from tests.waiting import BLOCKED, until

pytestmark = pytest.mark.django_db(transaction=True)
KEY = locks.REVISION_TAG << 48
BARRIER = 4711


def bound_at(revision: int | None = None) -> set[str]:
    found = items(list_page("Pod", exact=revision))
    return {name for (_, name), pod in found.items() if pod["spec"].get("nodeName")}


def bind_gang(size: int) -> tuple[int, list[int]]:
    """Bind a gang and a pod beside it; return the revision of before, and those of the bindings."""
    for name in ("n1", "n2"):
        create_node(name)
    ids = [new_pod(f"p{n}") for n in range(size)]
    start = changes.watermark()
    batch = [
        Binding(one, f"n{1 + n % 2}", group=1, gang=1, leans=True) for n, one in enumerate(ids)
    ]
    found = bind_pods(batch, snapshot_revision=start, now=after(5))
    return start, [revision for _, revision in found.bound]


def test_a_group_is_there_whole_or_not_at_all_at_every_revision():
    start, revisions = bind_gang(5)
    everybody = {f"p{n}" for n in range(5)}
    for revision in range(start, revisions[-1] + 1):
        page = list_page("Pod", exact=revision)
        assert bound_at(revision) == (everybody if revision >= revisions[0] else set())
        assert page.revision == (revisions[-1] if revision >= revisions[0] else revision)
    assert revision_at(after(5), now=after(60)) == revisions[-1]
    new_pod("later")
    assert bound_at(revisions[-1]) == bound_at() == everybody


@pytest.fixture
def other() -> Iterator[Any]:
    """Another connection."""
    apart = connection.copy()
    yield apart
    apart.close()


def test_a_writer_that_began_among_the_revisions_of_a_group_lets_nobody_see_a_part(other):
    _, revisions = bind_gang(4)
    for revision in revisions:
        with transaction.atomic(), other.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", (KEY + revision,))
            last = revision == revisions[-1]
            assert changes.watermark() == (revision if last else revisions[0] - 1)
            assert len(bound_at()) == (4 if last else 0)
            assert changes.settled(patience=0).lacking == (not last)
            cursor.execute("ROLLBACK")


def test_a_group_that_is_bound_while_the_watermark_is_asked_is_seen_whole_or_not_at_all(other):
    """The locks are read later than the statement began: by then a group may have come."""
    with transaction.atomic(), other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (BARRIER,))
        worker = Worker(
            lambda: sql.fetch(
                "SELECT CASE WHEN pg_advisory_xact_lock(%s::bigint) IS NOT NULL"
                " THEN whole_before(%s::bigint) END",
                (BARRIER, 1_000_001),
            )
        )
        until(lambda: sql.fetch(BLOCKED))
        cursor.execute("INSERT INTO atomic_span (revisions) VALUES (int8range(1000000, 1000005))")
        cursor.execute("COMMIT")
    assert worker.result() == [(999_999,)]


def test_spans_that_overlap_are_one():
    sql.run("INSERT INTO atomic_span (revisions) VALUES ('[10,20)'), ('[15,30)'), ('[30,31)')")
    assert [changes.whole(one) for one in (9, 10, 17, 25, 30, 31)] == [9, 31, 31, 31, 31, 31]
    found = sql.fetch("SELECT whole_before(n) FROM unnest(ARRAY[9, 10, 17, 25, 31]) AS n")
    assert found == [(9,), (9,), (9,), (9,), (31,)]


def test_a_span_goes_with_the_changes_that_it_tells_of():
    _, revisions = bind_gang(3)
    housekeeping.drop_leftovers(now=after(60))
    assert sql.fetch("SELECT lower(revisions), upper(revisions) FROM atomic_span") == [
        (revisions[0], revisions[-1])
    ]
    past.forget()
    new_pod("later")
    history.trim(now=after(10**6), keep_seconds=0)
    past.forget()
    housekeeping.drop_leftovers(now=after(10**6))
    assert sql.fetch("SELECT count(*) FROM atomic_span") == [(0,)]
