"""Bulk statements stay bulk: none compares every row of a table with every row of a batch.

Asked of PostgreSQL's planner at the worst moment: its statistics are of a quiet hour, when no pod
waited, and then thousands do. A plan of nested loops without an index would take time by the square
of the backlog; a ``Join Filter`` on the rows' identity is how it shows.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clusterstate import changes, queries, sql
from clusterstate.actions import decisions, events, pods
from clusterstate.actions.events import Occurrence
from tests.clusterstate.support import NOW, create_node, pod

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

EACH_WITH_EACH = re.compile(r"Nested Loop[^\n]*\n\s+Join Filter: [^\n]*id = ")
QUIET, BACKLOG, LONG = 1500, 2000, 500

Statement = tuple[str, Sequence[Any]]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plans of all statements that take a long array, as they are about to run."""
    seen: list[str] = []
    fetch, together, run = sql.fetch, sql.fetch_together, sql.run

    def look(statement: str, parameters: Sequence[Any]) -> None:
        arrays = [one for one in parameters if isinstance(one, sql.Array)]
        if any(len(one.values) > LONG for one in arrays):
            seen.append("\n".join(row[0] for row in fetch(f"EXPLAIN {statement}", parameters)))

    def and_look(work: Callable[..., Any]) -> Callable[..., Any]:
        def both(statement: str, parameters: Sequence[Any] = ()) -> Any:
            look(statement, parameters)
            return work(statement, parameters)

        return both

    def all_together(*statements: Statement) -> list[list[sql.Row]]:
        for statement, parameters in statements:
            look(statement, parameters)
        return together(*statements)

    monkeypatch.setattr(sql, "fetch", and_look(fetch))
    monkeypatch.setattr(sql, "run", and_look(run))
    monkeypatch.setattr(sql, "fetch_together", all_together)
    return seen


def created(prefix: str, count: int) -> list[int]:
    manifests = [pod(f"{prefix}{i:05}", labels={"app": str(i % 100)}) for i in range(count)]
    pods.create_pods(manifests, now=NOW)
    return [row.id for row in queries.load_pending()]


def bind(ids: Sequence[int]) -> None:
    bindings = [pods.Binding(pod_id, f"n{pod_id % 10}") for pod_id in ids]
    done = pods.bind_pods(bindings, snapshot_revision=changes.watermark(), now=NOW)
    assert len(done.bound) == len(ids)


def decided(pod_id: int) -> decisions.Made:
    return decisions.Made(
        pod_id=pod_id, at=NOW, class_id=1, snapshot_revision=1, profile="default-scheduler",
        profile_revision=0, seed=1, draw=0, start=0, outcome="scheduled", node_name="n1", total=1,
        margin=None, ties=1, node_count=10, evaluated=10, feasible=10, message="", body=b"",
    )  # fmt: skip


def test_a_backlog_after_a_quiet_hour_is_marked_bound_and_told_row_by_row(
    plans: list[str],
) -> None:
    for number in range(10):
        create_node(f"n{number}", allocatable={"cpu": "1000", "pods": "1000"})
    bind(created("quiet", QUIET))
    sql.run("ANALYZE")
    plans.clear()

    ids = created("late", BACKLOG)
    assert len(ids) == BACKLOG
    refused = [pods.Unschedulable(pod_id=pod_id, message="0/10 nodes") for pod_id in ids]
    pods.set_unschedulable(refused, now=NOW)
    bind(ids)
    assert decisions.record_many([decided(pod_id) for pod_id in ids]) == BACKLOG
    rows = queries.pods_by_id(ids)
    news = [
        Occurrence(
            kind="Pod", namespace=row.namespace, name=row.name, uid=row.uid, type="Normal",
            reason="Scheduled", message="assigned",
        )
        for row in rows.values()
    ]  # fmt: skip
    events.record_many(news, now=NOW)

    assert len(plans) >= 6
    assert [plan for plan in plans if EACH_WITH_EACH.search(plan)] == []
    on_one = queries.list_page("Pod", field_selector="spec.nodeName=n3").items
    assert len(on_one) == (QUIET + BACKLOG) // 10
    assert queries.overcommitted_nodes() == []
