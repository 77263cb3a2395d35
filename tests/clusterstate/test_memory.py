"""What a process remembers of rows goes with the history that the rows belonged to."""

import uuid

import pytest

from clusterstate.actions.cluster import bootstrap
from clusterstate.change_log import lineage
from clusterstate.database import sql
from clusterstate.processes import memory
from clusterstate.queries.evictions.eviction_timers import waiting_timers
from scheduling.controllers.evictions import timers
from tests.controllers.support import NOW, after, make_node, make_pod, set_taints, taint, tolerates

pytestmark = pytest.mark.django_db


def due() -> dict[str, float]:
    """Return by pod after how many seconds it leaves."""
    return {one.name: (one.due_at - NOW).total_seconds() for one in waiting_timers()}


def test_ids_of_another_history_are_not_those_that_were_known():
    """A restore brings other classes under the same ids; the timers must follow the new ones."""
    bootstrap.add_missing(now=NOW)
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates(seconds=100)])
    set_taints("n1", taint())
    timers.follow(NOW)
    lineage.kept_after()
    sql.run(
        "UPDATE scheduling_class SET spec = replace(spec, '\"tolerationSeconds\":100',"
        " '\"tolerationSeconds\":7')"
    )
    timers.restate_everything(after(1))
    assert due() == {"p": 100}
    sql.run("UPDATE history SET uid = %s WHERE id = 1", (uuid.uuid4(),))
    lineage.kept_after()
    timers.restate_everything(after(1))
    assert due() == {"p": 7}


def test_the_same_history_forgets_nothing():
    kept = {"a": 1}
    memory.when_replaced(kept.clear)
    first = uuid.uuid4()
    memory.belongs_to(first)
    kept["a"] = 1
    memory.belongs_to(first)
    memory.belongs_to(None)
    assert kept == {"a": 1}
    memory.belongs_to(uuid.uuid4())
    assert kept == {}
