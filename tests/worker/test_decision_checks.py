"""Decisions that are made again from rows alone, and what is told when one differs."""

from datetime import timedelta

import pytest
from django.db import connection

from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.scheduler import decision_checks as actions
from clusterstate.queries.scheduler import decision_checks, decisions
from clusterstate.queries.scheduler.decisions import Record
from scheduling.answers import questions
from scheduling.processes import decision_checks as checks
from tests.clock import NOW
from tests.controllers.support import make_node, pod_manifest
from tests.worker.worker import Worker

pytestmark = pytest.mark.django_db
LATER = timedelta(minutes=1)


@pytest.fixture(autouse=True)
def all_decisions(settings: object) -> None:
    settings.CHECKED_DECISIONS = 1.0  # type: ignore[attr-defined]


def decided(count: int, **spec: object) -> list[Record]:
    """Return the records of pods that were placed on two of three nodes."""
    bootstrap.add_missing(now=NOW)
    for name in ("a", "b"):
        make_node(name)
    make_node("closed", taints=[{"key": "closed", "effect": "NoSchedule"}])
    worker = Worker()
    create_pods([pod_manifest(f"p{number}", **spec) for number in range(count)], now=NOW)
    worker.decide()
    worker.binder.recorder.record()
    worker.binder.close()
    return [
        record
        for number in range(count)
        for record in decisions.of_pod("default", f"p{number}", limit=1)
    ]


def falsify(record: Record, column: str, value: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE decision SET {column} = %s WHERE id = %s", [value, record.id])


def test_each_decision_is_checked_once_the_latest_first() -> None:
    records = decided(3)
    latest = max(record.at for record in records) + LATER
    assert [checks.check_next(now=latest, since=NOW) for _ in range(4)] == [
        "same",
        "same",
        "same",
        None,
    ]
    assert decision_checks.counts() == {"same": 3, "differs": 0, "impossible": 0}
    assert decision_checks.problem() == ""
    (verified,) = questions._verified()
    assert (verified["type"], verified["status"]) == ("DecisionsVerified", "True")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("total", 1, "total: recorded 1"), ("node_name", "closed", "closed is not among the best")],
)
def test_a_decision_that_rows_do_not_give_again_is_told(
    column: str, value: object, said: str
) -> None:
    (record,) = decided(1)
    falsify(record, column, value)
    assert checks.check_next(now=record.at + LATER, since=NOW) == "differs"
    problem = decision_checks.problem()
    assert f"decision {record.id} about pod default/p0" in problem
    assert said in problem
    (verified,) = questions._verified()
    assert verified["status"] == "False"
    assert verified["message"] == problem


def test_a_decision_whose_world_is_gone_counts_for_neither() -> None:
    (record,) = decided(1)
    falsify(record, "profile", "gone")
    assert checks.check_next(now=record.at + LATER, since=NOW) == "impossible"
    assert decision_checks.problem() == ""


def test_a_pod_with_a_claim_is_decided_again_with_its_volumes() -> None:
    (record,) = decided(1, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    assert checks.check_next(now=record.at + LATER, since=NOW) == "same"


def test_only_pods_that_a_profile_is_to_try_keep_the_machine_busy() -> None:
    bootstrap.add_missing(now=NOW)
    create_pods([pod_manifest("of-another", schedulerName="another")], now=NOW)
    assert not checks.pods_wait()
    create_pods([pod_manifest("of-ours")], now=NOW)
    assert checks.pods_wait()


def test_a_decision_waits_until_its_bind_is_in_the_log_and_old_ones_are_left() -> None:
    (record,) = decided(1)
    assert checks.check_next(now=record.at, since=NOW) is None
    assert checks.check_next(now=record.at + timedelta(hours=1), since=NOW) is None
    assert checks.check_next(now=record.at + LATER, since=record.at + timedelta(seconds=1)) is None
    assert checks.check_next(now=record.at + LATER, since=record.at) == "same"


def test_the_share_is_that_of_the_decisions(settings: object) -> None:
    settings.CHECKED_DECISIONS = 0.2  # type: ignore[attr-defined]
    records = decided(100)
    latest = max(record.at for record in records) + LATER
    sample = 0
    while (one := decision_checks.next_one(0.2, now=latest, since=NOW)) is not None:
        actions.note(one, "same", [], now=latest)
        sample += 1
    assert 5 <= sample <= 40


def test_checks_go_with_the_decisions(settings: object) -> None:
    (record,) = decided(1)
    checks.check_next(now=record.at + LATER, since=NOW)
    actions.trim(now=record.at + LATER)
    assert decision_checks.counts()["same"] == 1
    actions.trim(now=record.at + timedelta(days=2))
    assert decision_checks.counts()["same"] == 0
