"""DaemonSets and Services follow nodes, whoever makes the passes and whichever pass fails."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from django.db import OperationalError, connection

from clusterstate.actions import objects
from clusterstate.database import sql
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.endpoints import follower as endpoints
from scheduling.controllers.workloads import follower as workloads
from tests.clusterstate.part import Part
from tests.controllers.support import NOW, make_node, make_pod, set_labels
from tests.controllers.test_daemon_sets import make_daemon_set
from tests.controllers.test_endpoints import make_service, report, slices_of

pytestmark = pytest.mark.django_db(transaction=True)

ZONE = endpoints.ZONE


def daemons() -> int:
    found = [decode_object(item) for item in list_page("Pod", "default").items]
    return sum(not one["metadata"].get("deletionTimestamp") for one in found)


def zones() -> list[str]:
    return [one.get("zone", "") for part in slices_of() for one in part.get("endpoints") or ()]


def look_here() -> None:
    """Make passes until nothing is left that they wrote themselves."""
    for _ in range(3):
        workloads.follow(NOW)
        endpoints.follow(NOW)


def fail(what: str) -> None:
    """Have the database say at new pods that it ends, or no longer."""
    if what == "begin":
        sql.run(
            "CREATE OR REPLACE FUNCTION pg_temp.fail() RETURNS trigger LANGUAGE plpgsql AS"
            " $$BEGIN RAISE admin_shutdown; END$$"
        )
        sql.run(
            "CREATE TRIGGER fail BEFORE INSERT ON pod FOR EACH ROW EXECUTE FUNCTION pg_temp.fail()"
        )
    else:
        sql.run("DROP TRIGGER fail ON pod")


def test_a_node_that_came_in_a_pass_that_failed_gets_its_daemon() -> None:
    make_daemon_set()
    make_node("n1")
    look_here()
    assert daemons() == 1
    make_node("n2")
    fail("begin")
    try:
        with pytest.raises(OperationalError):
            workloads.follow(NOW)
    finally:
        fail("end")
    assert daemons() == 1
    workloads.follow(NOW)
    assert daemons() == 2


@pytest.fixture
def another() -> Iterator[Part]:
    """A worker of another host."""
    one = connection.settings_dict
    host, user, password = (quote(str(one[key]), safe="") for key in ("HOST", "USER", "PASSWORD"))
    part = Part(f"postgresql://{user}:{password}@/{one['NAME']}?host={host}&port={one['PORT']}")
    yield part
    part.close()


def test_a_node_that_is_again_as_this_worker_saw_it_last_is_looked_at(another: Part) -> None:
    """In between another worker acted upon it."""
    make_daemon_set(nodeSelector={"disk": "ssd"})
    make_service()
    before = {ZONE: "a", "kubernetes.io/hostname": "n1"}
    make_node("n1", labels=before)
    make_pod("web", "n1", metadata={"labels": {"app": "web"}})
    report("web", "10.0.0.1")

    look_here()
    assert (daemons(), zones()) == (1, ["a"])
    set_labels("n1", **{**before, ZONE: "b", "disk": "ssd"})
    for _ in range(3):
        assert another("controllers") is None
    assert (daemons(), zones()) == (2, ["b"])
    set_labels("n1", **before)
    look_here()
    assert (daemons(), zones()) == (1, ["a"])


def test_a_node_that_changes_in_what_matters_to_nobody_makes_no_namespace_be_looked_at() -> None:
    make_daemon_set()
    make_service()
    make_node("n1")
    look_here()
    set_labels("n1", other="label")
    assert workloads.follow(NOW) == 1, "daemons may select it"
    assert endpoints.follow(NOW) == 0
    workloads.follow(NOW)
    beat("n1")
    assert workloads.follow(NOW) == 0


def beat(name: str) -> None:
    def change(node: Manifest) -> Manifest:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T12:00:00Z"}
        return {**node, "status": {**node["status"], "conditions": [ready]}}

    objects.update("Node", "", name, change, subresource="status", now=NOW)
