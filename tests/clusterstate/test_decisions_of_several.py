"""Several schedulers record decisions at the same time."""

import threading
from datetime import timedelta

import msgspec
import pytest
from django.db import DatabaseError

from clusterstate.actions.scheduler import decisions
from clusterstate.database import sql
from clusterstate.queries.scheduler.decisions import Turn
from tests.clock import NOW
from tests.clusterstate.support import Worker, new_pod
from tests.clusterstate.test_decisions import a_decision

pytestmark = pytest.mark.django_db(transaction=True)


def test_all_find_the_partition_that_one_of_them_makes() -> None:
    pod_id, rounds, several = new_pod("a"), 12, 4
    barrier = threading.Barrier(several)

    def record(scheduler: int) -> int:
        count = 0
        for number in range(rounds):
            at = NOW + timedelta(hours=6 * number)
            made = msgspec.structs.replace(a_decision(pod_id), at=at)
            barrier.wait(60)
            try:
                count += decisions.record_many([made], Turn(scheduler, 1, number + 1))
            except DatabaseError as error:
                failed.append(error)
        return count

    failed: list[DatabaseError] = []
    workers = [Worker(lambda one=one: record(one)) for one in range(several)]
    found = [worker.result(120) for worker in workers]
    assert failed == []
    assert found == [rounds] * several
    assert sql.fetch("SELECT count(*) FROM decision") == [(rounds * several,)]
