"""The brake: evictions that would empty too much of a zone or a namespace wait for approval."""

import pytest

from clusterstate.actions import brakes as actions
from clusterstate.objects.errors import NotFound
from clusterstate.queries.brakes import brakes
from clusterstate.queries.eviction_timers import due_taints, next_due, unforeseen
from scheduling.answers import questions
from scheduling.controllers.evictions import brake, firing, timers
from tests.clock import after
from tests.controllers.support import (
    make_node,
    make_pod,
    set_labels,
    set_taints,
    taint,
    terminating,
)

pytestmark = pytest.mark.django_db
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def zones(settings):
    """Zones a and b with two nodes of ten pods each; two fifths of a zone may leave."""
    settings.BRAKE_ZONE_PERCENT = 40
    settings.BRAKE_LEAST = 5
    for zone in ("a", "b"):
        for number in range(2):
            name = f"{zone}{number}"
            make_node(name, labels={ZONE: zone})
            for pod in range(10):
                make_pod(f"{name}-{pod}", name)


def evict(seconds):
    """Look once as the timekeeper does; return how many pods were evicted."""
    now = after(seconds)
    brake.judge(now, changed=timers.follow(now) > 0)
    if unforeseen(now, limit=1):
        questions.foresee(now)
    held = brake.held()
    labels = firing.fire_executions(now, held)
    due = due_taints(now, limit=firing.BATCH, held=held)
    return len(firing.fire_taints(due, now).evicted) + len(labels.evicted)


def test_a_taint_on_half_of_a_zone_waits_for_approval_and_other_zones_do_not(zones):
    set_taints("a0", taint(), now=after(1))
    assert evict(2) == 0
    (held,) = brakes()
    assert (held.key, held.state, held.leaving, held.total) == ("zone.a", "Held", 10, 20)
    assert next_due(brake.held()) is None, "the loop does not look for them all the time"
    make_node("b2", labels={ZONE: "b"})
    make_pod("alone", "b2")
    set_taints("b2", taint(), now=after(2))
    assert evict(3) == 1
    approved = actions.approve("zone.a", by="somebody", now=after(4))
    assert (approved.state, approved.approved_by) == ("Approved", "somebody")
    assert evict(5) == 10
    assert terminating("a0-3")


def test_less_than_the_share_leaves_at_once(zones, settings):
    settings.BRAKE_ZONE_PERCENT = 50
    set_taints("a0", taint(), now=after(1))
    assert evict(2) == 10
    assert brakes() == []


def test_a_brake_ends_with_its_cause(zones):
    set_taints("a0", taint(), now=after(1))
    assert evict(2) == 0
    set_taints("a0", now=after(3))
    assert evict(4) == 0
    assert brakes() == []
    with pytest.raises(NotFound, match=r"zone\.a"):
        actions.approve("zone.a", by="somebody", now=after(5))


def test_labels_that_pods_require_are_a_cause_as_well(settings):
    settings.BRAKE_NAMESPACE_PERCENT = 40
    settings.BRAKE_LEAST = 3
    settings.REQUIRED_DURING_EXECUTION_RATE = 0
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingRequiredDuringExecution": terms}}
    make_node("n1", labels={"disk": "ssd"})
    for number in range(6):
        make_pod(f"pod-{number}", "n1", affinity=required)
    set_labels("n1", now=after(1))
    assert evict(20) == 0
    assert [one.key for one in brakes()] == ["namespace.default"]
    actions.approve("namespace.default", by="somebody", now=after(21))
    assert evict(22) == 6


def test_an_approval_holds_for_its_hour_and_no_longer(zones):
    """Also where few pods are due meanwhile; what is still to leave an hour later is held again."""
    set_taints("a0", taint(), now=after(1))
    evict(2)
    actions.approve("zone.a", by="somebody", now=after(3))
    assert evict(4) == 10
    actions.settle([], now=after(1800))
    assert [one.state for one in brakes()] == ["Approved"]
    actions.settle([], now=after(3604))
    assert brakes() == []
    set_taints("a1", taint(), now=after(3605))
    assert evict(3606) == 0
    assert [one.state for one in brakes()] == ["Held"]


def test_at_the_default_nothing_is_counted():
    assert not brake.is_on()
    make_node("n1", labels={ZONE: "a"})
    for number in range(30):
        make_pod(f"pod-{number}", "n1")
    set_taints("n1", taint(), now=after(1))
    assert evict(2) == 30
