"""The brake: evictions that would empty too much of a zone or a namespace wait for approval."""

import pytest

from clusterstate.actions import brakes as actions
from clusterstate.actions.pods.evict import evict_on_request
from clusterstate.admission.request import NOBODY
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import causes
from clusterstate.objects.values.errors import NotFound, TooManyRequests
from clusterstate.queries.evictions.brakes import brakes, count_asked, limits
from clusterstate.queries.evictions.eviction_timers import (
    due_taints,
    next_due,
    unforeseen,
    waiting_timers,
)
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.past import provenance, trail
from scheduling.controllers.evictions import brake, firing, timers
from scheduling.processes import landings
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
def zones(settings, monkeypatch):
    """Zones a and b with two nodes of ten pods each; two fifths of a zone may leave."""
    # The loop counts once a second. Here a minute passes within one.
    monkeypatch.setattr(brake, "_EVERY_SECONDS", 0.0)
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
        landings.foresee(now)
    held = brake.held_now(now)
    labels = firing.fire_executions(now, held)
    due = due_taints(now, limit=firing.BATCH, held=held)
    return len(firing.fire_taints(due, now).evicted) + len(labels.evicted)


def test_a_taint_on_half_of_a_zone_waits_for_approval_and_other_zones_do_not(zones):
    set_taints("a0", taint(), now=after(1))
    assert evict(2) == 0
    (held,) = brakes()
    assert (held.key, held.state, held.leaving, held.total) == ("zone.a", "Held", 10, 20)
    assert next_due(brake.held_now(after(2))) is None, (
        "the loop does not look for them all the time"
    )
    (first,) = waiting_timers(limit=1, held=brake.held_now(after(2)))
    assert first.blocked_by == "brake zone.a"
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


@pytest.mark.parametrize("scope", ["ZONE", "NAMESPACE", "OWNER"])
@pytest.mark.parametrize("cause", ["taint", "label"])
def test_pods_that_are_gone_at_once_count_together_for_a_minute(settings, scope, cause):
    """Nodes lose their pods one after the other, none of which stays long enough to be seen."""
    setattr(settings, f"BRAKE_{scope}_PERCENT", 40)
    settings.BRAKE_LEAST = 5
    settings.REQUIRED_DURING_EXECUTION_RATE = 0
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingRequiredDuringExecution": terms}}
    for node in range(10):
        make_node(f"n{node}", labels={ZONE: "a", "disk": "ssd"})
        for pod in range(2):
            make_pod(
                f"p{node}-{pod}", f"n{node}", affinity=required, metadata=owned("web"),
                terminationGracePeriodSeconds=0,
            )  # fmt: skip
    left = 0
    for node in range(10):
        if cause == "taint":
            set_taints(f"n{node}", taint(), now=after(node))
        else:
            set_labels(f"n{node}", now=after(node), **{ZONE: "a"})
        left += evict(node + 0.5)
        assert len(list_page("Pod").items) == 20 - left
    assert left == 8
    (held,) = brakes()
    assert (held.scope, held.state, held.leaving, held.total) == (scope.lower(), "Held", 20, 20)
    actions.approve(held.key, by="somebody", now=after(20))
    assert evict(21) == 12
    assert count_asked(after(21 - 60)) == 20


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
    assert not limits()
    make_node("n1", labels={ZONE: "a"})
    for number in range(30):
        make_pod(f"pod-{number}", "n1")
    set_taints("n1", taint(), now=after(1))
    assert evict(2) == 30


def owned(name, kind="ReplicaSet"):
    """Return the metadata of a pod of this controller, beside an owner that does not control it."""
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "beside", "uid": "uid-beside"}
    return {"ownerReferences": [other, {**reference, "controller": True}]}


def test_the_pods_of_an_owner_wait_and_those_of_others_beside_them_go(settings):
    settings.BRAKE_OWNER_PERCENT = 50
    settings.BRAKE_LEAST = 3
    make_node("n1")
    make_node("n2")
    for number in range(6):
        make_pod(f"web-{number}", "n1" if number < 4 else "n2", metadata=owned("web"))
        make_pod(f"db-{number}", "n1" if number < 3 else "n2", metadata=owned("db"))
    make_pod("alone", "n1")
    set_taints("n1", taint(), now=after(1))
    assert evict(2) == 4
    (held,) = brakes()
    assert (held.key, held.leaving, held.total) == ("owner.default.ReplicaSet.web", 4, 6)
    assert terminating("db-0")
    assert terminating("alone")
    shown = waiting_timers(owner="default.ReplicaSet.web", held=brake.held_now(after(2)))
    assert {one.blocked_by for one in shown} == {"brake owner.default.ReplicaSet.web"}
    assert [one.name for one in shown] == ["web-0", "web-1", "web-2", "web-3"]
    actions.approve(held.key, by="somebody", now=after(3))
    assert evict(4) == 4


def ask(name, seconds):
    """Evict a pod as a client asks for it; return the message of who refuses, '' for nobody."""
    try:
        evict_on_request("default", name, {}, now=after(seconds), user=NOBODY)
    except TooManyRequests as error:
        return error.details["causes"][0]["message"]
    return ""


def test_evictions_that_clients_ask_for_count_and_are_refused_as_by_a_budget(zones):
    """Eight of twenty are 40 %, and also those that are gone by then count; then nobody goes."""
    for number in range(8):
        assert not ask(f"a{number % 2}-{number}", 1)
    assert ask("a0-8", 2) == "The brake zone.a holds evictions back until it is approved."
    (held,) = brakes()
    assert (held.key, held.state, held.leaving, held.total) == ("zone.a", "Held", 9, 20)
    assert not terminating("a0-8")
    assert not ask("b0-0", 2)
    for seconds in range(7, 120, 5):  # kubectl drain asks every five seconds
        assert ask("a0-8", seconds)
        evict(seconds)
    assert [one.key for one in brakes()] == ["zone.a"], "as long as somebody asks"
    actions.approve("zone.a", by="somebody", now=after(121))
    assert not ask("a0-8", 122)


def test_a_brake_ends_when_nobody_asks_any_more(zones):
    for number in range(8):
        ask(f"a0-{number}", 1)
    assert ask("a0-8", 2)
    evict(61)
    assert [one.key for one in brakes()] == ["zone.a"]
    evict(63)
    assert brakes() == []
    assert not ask("a0-8", 64)


def test_a_dry_run_is_refused_alike_and_counts_for_nothing(zones):
    for number in range(8):
        evict_on_request("default", f"a0-{number}", {"dryRun": ["All"]}, now=after(1), user=NOBODY)
    for number in range(8):
        assert not ask(f"a0-{number}", 2)
    with pytest.raises(TooManyRequests):
        evict_on_request("default", "a0-8", {"dryRun": ["All"]}, now=after(3), user=NOBODY)
    assert brakes() == []


def test_what_clients_asked_for_holds_timers_back(zones):
    for number in range(8):
        ask(f"a1-{number}", 1)
    set_taints("a0", taint(), now=after(2))
    assert evict(3) == 0
    assert [(one.leaving, one.total) for one in brakes()] == [(18, 20)]


def test_a_pod_that_a_timer_evicts_between_two_requests_counts_once(zones, settings):
    """As a timer that is due it was counted a moment ago, and then as evicted."""
    settings.BRAKE_ZONE_PERCENT = 60
    set_taints("a0", taint(), now=after(1))
    timers.follow(after(1))
    assert not ask("a1-0", 2)
    assert evict(2.1) == 10
    assert not ask("a1-1", 2.2), "twelve of twenty, not twenty-two"
    assert brakes() == []
    assert "zone.a" in ask("a1-2", 2.3)


def test_a_rate_lets_so_many_pods_of_each_zone_go_in_a_second(settings):
    settings.ZONE_EVICTION_RATE = 2
    for zone in ("a", "b", ""):
        name = f"n-{zone or 'none'}"
        make_node(name, labels={ZONE: zone} if zone else {})
        for number in range(5):
            make_pod(f"{name}-{number}", name)
        set_taints(name, taint(), now=after(1))
    assert evict(2) == 6
    assert evict(2) == 0
    assert ask("n-b-4", 2) == "The eviction rate of zone b is 2 a second."
    shown = waiting_timers(node_name="n-b", held=brake.held_now(after(2)))
    assert {one.blocked_by for one in shown} == {"the eviction rate of its zone"}
    assert evict(2.5) == 3
    assert not ask("n-b-4", 3)
    assert evict(3) == 2, "what a client asked for was taken out of the same bucket"
    assert evict(60) == 4 - 1 + 0
    brake.judge(after(200), changed=True)
    assert evict(200) == 0


def test_a_clock_that_is_set_back_holds_no_zone(settings):
    settings.ZONE_EVICTION_RATE = 1
    make_node("n1")
    for number in range(3):
        make_pod(f"p-{number}", "n1")
    set_taints("n1", taint(), now=after(1))
    assert evict(3600) == 1
    brake.judge(after(100), changed=True)
    assert evict(100) == 1
    assert evict(100) == 0


def test_what_was_asked_for_before_a_clock_was_set_back_counts_no_more(zones):
    ask("a0-0", 3600)
    brake.judge(after(3601), changed=True)
    assert count_asked(after(3600 - 60)) == 1
    brake.judge(after(100), changed=True)
    assert count_asked(after(100 - 60)) == 0


def test_labels_go_at_the_rate_of_their_zone_as_well(settings):
    settings.ZONE_EVICTION_RATE = 1
    settings.REQUIRED_DURING_EXECUTION_RATE = 0
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingRequiredDuringExecution": terms}}
    for name in ("n1", "n2"):
        make_node(name, labels={"disk": "ssd", ZONE: name})
        for number in range(3):
            make_pod(f"{name}-{number}", name, affinity=required)
        set_labels(name, now=after(1), **{ZONE: name})
    assert evict(20) == 2
    assert evict(20.5) == 0
    assert evict(21) == 2


def test_who_leaves_after_an_approval_names_it_and_who_gave_it(zones):
    set_taints("a0", taint(), now=after(1))
    set_taints("b0", taint("other"), now=after(1))
    evict(2)
    actions.approve("zone.a", by="somebody", now=after(3))
    assert evict(4) == 10
    (brake_of_a, _) = brakes()
    uid = str(causes.uid_of(causes.APPROVAL, brake_of_a.approval))
    gone = provenance.gone_for(uid, limit=100)
    assert {one.name for one in gone} == {f"a0-{n}" for n in range(10)}
    assert provenance.gone_for(uid, limit=3) == gone[:3]
    step = trail.trail_of(KINDS["Pod"], "default", "a0-3", limit=1).steps[0]
    assert step.request == uid
    found = provenance.wanted_by(uid)
    assert (found.kind, found.name, found.by) == ("Brake", "zone.a", "somebody")
    actions.settle([], now=after(2 * 3600))
    assert provenance.wanted_by(uid) == found, "also when the brake is gone"
    assert actions.trim(now=after(8 * 86400)) == 1
    assert provenance.wanted_by(uid).name == ""
