"""The pass over all controllers: one that fails does not keep the others from their work."""

import msgspec
import pytest
from django.db import DatabaseError, connection

from clusterstate.actions import objects
from clusterstate.actions.agents import usage
from clusterstate.actions.loops import controller_state
from clusterstate.database import sql
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import (
    cluster_roles,
    garbage,
    manager,
    namespace_defaults,
    runtime_classes,
)
from scheduling.controllers.budgets import statuses
from scheduling.controllers.endpoints import follower as endpoints
from scheduling.controllers.evictions import devices as device_taints
from scheduling.controllers.pods import podgc, resource_claims
from scheduling.controllers.volumes import follower as volumes
from scheduling.controllers.workloads import follower as workloads
from tests.controllers.support import NOW, after, make_node, make_owner, make_pod

pytestmark = pytest.mark.django_db


def namespace_left(name):
    return sql.fetch_one("SELECT 1 FROM namespace WHERE name = %s", (name,)) is not None


@pytest.mark.parametrize("failing", [None, *manager.CONTROLLERS])
def test_one_that_fails_is_passed_over(failing, monkeypatch):
    def fail(now):
        raise DatabaseError("gone")

    assert connection.in_atomic_block
    if failing:
        kept = manager.CONTROLLERS[failing]
        monkeypatch.setitem(manager.CONTROLLERS, failing, msgspec.structs.replace(kept, look=fail))
    objects.create("Namespace", "", {"metadata": {"name": "old"}}, now=NOW)
    objects.delete("Namespace", "", "old", now=NOW)
    make_owner("ReplicaSet", "web", 2)
    manager.run(NOW)
    assert namespace_left("old") == (failing == "namespaces")
    made = len(list(list_page("Pod", "default").items))
    assert made == (0 if failing == "workloads" else 2)


def _looked(now):
    """Return who looked because something happened; the collector of pods looks at times."""
    return [name for name in manager.run(now) if name != podgc.NAME]


def test_the_collector_of_pods_looks_at_times():
    while manager.run(NOW):
        pass
    assert manager.run(after(4)) == []
    assert manager.run(after(5)) == [podgc.NAME]
    assert manager.run(after(6)) == []


def test_nobody_looks_when_nothing_happened():
    while _looked(NOW):
        pass
    assert _looked(after(60)) == []
    make_node("n")
    make_pod("p", "n")
    followers = [
        statuses.NAME, runtime_classes.NAME, workloads.NAME, endpoints.NAME,
        namespace_defaults.NAME, cluster_roles.NAME, resource_claims.NAME, device_taints.NAME,
        garbage.NAME, volumes.NAME,
    ]  # fmt: skip
    assert _looked(after(61)) == followers
    assert _looked(after(62)) == []
    objects.create("Namespace", "", {"metadata": {"name": "old", "finalizers": ["a/b"]}}, now=NOW)
    objects.delete("Namespace", "", "old", now=NOW)
    assert _looked(after(63)) == [*followers, "namespaces"]
    while statuses.NAME in (looked := _looked(after(64))):
        pass  # the namespace's status is a change, too
    assert looked == ["namespaces"]
    usage.report("n", {"memory": {"available": 9, "threshold": 1}}, now=after(64))
    assert "pressure" in _looked(after(65))
    assert "pressure" not in _looked(after(66))


def test_a_budget_that_waits_for_the_time_is_looked_at_then():
    while _looked(NOW):
        pass
    controller_state.set_state(statuses.NAME, {"default": after(10).isoformat()})
    assert _looked(after(9)) == []
    assert _looked(after(10)) == [statuses.NAME]
