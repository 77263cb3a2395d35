"""Bulk statements stay bulk: none compares every row of a table with every row of a batch.

Asked of PostgreSQL's planner at the worst moment: its statistics are of a quiet hour, when no pod
waited, or there are none, and then thousands wait. Scanning for the pod or two that it expects, and
comparing each with the batch, would take time by the square of the backlog.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.actions.scheduler import decisions
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import pods_by_id
from clusterstate.queries.scheduler.decisions import Turn
from tests.clusterstate.support import NOW, create_node, pod
from tests.perf import rehearsal
from tests.rows import load_pending, overcommitted_nodes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

NODES, QUIET, BACKLOG, BATCH, LONG = 300, 1500, 3000, 1000, 500

Statement = tuple[str, Sequence[Any]]
Plan = dict[str, Any]


def nodes_of(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def gambles(plan: Plan) -> list[Plan]:
    """Return the scans of whole tables that are thought to find a row at most.

    Whatever joins that row is then free to try it with everything else.
    """
    return [
        node
        for node in nodes_of(plan)
        if node["Node Type"] == "Seq Scan"
        and node["Relation Name"] in ("pod", "pending_pod")
        and node["Plan Rows"] <= 1
        and "= ANY" not in node.get("Filter", "")
    ]


def squares(plan: Plan) -> list[Plan]:
    """Return the nodes that compare each row of a batch with all others of the batch.

    A nested loop with a join filter does, and so does an index look-up for each row that also takes
    the whole batch as an array, since PostgreSQL sorts the array for each.
    """
    return [
        node
        for node in nodes_of(plan)
        if (node["Node Type"] == "Nested Loop" and "Join Filter" in node)
        or node.get("Index Cond", "").count("id = ") > 1
    ]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of all statements that take a long array, as they are about to run."""
    seen: list[Plan] = []
    fetch, together, run = sql.fetch, sql.fetch_together, sql.run

    def look(statement: str, parameters: Sequence[Any]) -> None:
        arrays = [one for one in parameters if isinstance(one, sql.Array)]
        if any(len(one.values) > LONG for one in arrays):
            ((told,),) = fetch(f"EXPLAIN (FORMAT JSON) {statement}", parameters)
            seen.append(told[0]["Plan"])

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
    create_pods(manifests, now=NOW)
    return [row.id for row in load_pending()]


def bind(ids: Sequence[int], gang: int = 0) -> None:
    for first in range(0, len(ids), BATCH):
        part = ids[first : first + BATCH]
        bindings = [
            Binding(pod_id, f"n{pod_id % NODES}", group=gang, leans=gang > 0, gang=gang)
            for pod_id in part
        ]
        done = bind_pods(bindings, snapshot_revision=changes.watermark(), now=NOW)
        assert len(done.bound) == len(part)


def decided(pod_id: int) -> decisions.NewDecision:
    return decisions.NewDecision(
        pod_id=pod_id, at=NOW, class_id=1, snapshot_revision=1, profile="default-scheduler",
        profile_revision=0, seed=1, draw=0, start=0, outcome="scheduled", node_name="n1", total=1,
        margin=None, ties=1, node_count=10, evaluated=10, feasible=10, message="", body=b"",
    )  # fmt: skip


@pytest.mark.parametrize("known", ["nothing", "a quiet hour"])
def test_a_backlog_after_a_quiet_hour_is_marked_bound_and_told_row_by_row(
    plans: list[Plan], known: str
) -> None:
    create_node("n", allocatable={"cpu": "100", "memory": "1Ti", "pods": "100"})
    rehearsal.copy_node("n", "n", NODES)
    bind(created("quiet", QUIET))
    if known == "a quiet hour":
        sql.run("ANALYZE")
    plans.clear()

    ids = created("late", BACKLOG)
    assert len(ids) == BACKLOG
    refused = [Unschedulable(pod_id=pod_id, message="0/10 nodes") for pod_id in ids]
    set_unschedulable(refused, now=NOW)
    bind(ids)
    assert decisions.record_many([decided(pod_id) for pod_id in ids], Turn(0, 1, 1)) == BACKLOG
    rows = pods_by_id(ids)
    news = [
        Occurrence(
            kind="Pod", namespace=row.namespace, name=row.name, uid=row.uid, type="Normal",
            reason="Scheduled", message="assigned",
        )
        for row in rows.values()
    ]  # fmt: skip
    events.record_many(news, now=NOW)

    assert len(plans) >= 6
    assert [scan for plan in plans for scan in gambles(plan)] == []
    on_one = list_page("Pod", field_selector="spec.nodeName=n3").items
    assert len(on_one) == (QUIET + BACKLOG) // NODES
    assert overcommitted_nodes() == []


def test_the_pods_of_a_gang_are_bound_and_deleted_row_by_row(plans: list[Plan]) -> None:
    create_node("n", allocatable={"cpu": "100", "memory": "1Ti", "pods": "100"})
    rehearsal.copy_node("n", "n", NODES)
    ids = created("gang", BATCH)
    plans.clear()

    bind(ids, gang=1)
    leaving = [
        Deletion(namespace="default", name=f"gang{i:05}", grace_seconds=0) for i in range(BATCH)
    ]
    gone = delete_pods_each(leaving, now=NOW)

    assert not any(isinstance(one, Exception) for one in gone)
    assert len(plans) >= 2
    assert [node for plan in plans for node in squares(plan)] == []
