"""A NoExecute taint, a timer, an eviction: the worked examples of the design documents."""

import pytest

from clusterstate.actions import evictions, objects
from clusterstate.processes import memory
from clusterstate.queries.evictions.eviction_timers import waiting_timers
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers.evictions import timers
from tests.clock import moment
from tests.controllers.support import (
    NOW,
    after,
    bind,
    evict,
    fire,
    make_node,
    make_pod,
    pod,
    set_taints,
    taint,
    terminating,
    timer,
    tolerate_too,
    tolerates,
)
from tests.rows import count_timers

pytestmark = pytest.mark.django_db


def test_a_pod_that_does_not_tolerate_leaves_at_once():
    """R122, R120: the condition says why, the grace period is the pod's own."""
    make_node("n1")
    make_pod("p", "n1", terminationGracePeriodSeconds=7)
    set_taints("n1", taint(), now=after(1))
    assert timer("p") == 1
    assert evict(1) == ["p"]
    found = pod("p")
    assert found["metadata"]["deletionTimestamp"] == moment(8)
    assert found["metadata"]["deletionGracePeriodSeconds"] == 7
    condition = found["status"]["conditions"][1]
    assert condition["type"] == "DisruptionTarget"
    assert condition["reason"] == "DeletionByTaintManager"
    assert condition["status"] == "True"
    assert found["spec"]["nodeName"] == "n1"
    assert count_timers() == 0


def test_a_pod_that_tolerates_without_seconds_stays_forever():
    """R122."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates()])
    set_taints("n1", taint())
    assert timer("p") is None
    assert evict(1e8) == []


def test_a_pod_that_tolerates_for_an_hour_leaves_after_an_hour():
    """R122, R123: not a moment earlier."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates(seconds=3600)])
    set_taints("n1", taint(), now=after(10))
    assert timer("p") == 3610
    assert evict(3609.999) == []
    assert evict(3610) == ["p"]
    assert evict(3611) == []


def test_a_taint_from_a_clock_that_is_ahead_counts_from_now():
    """R122, C22: not when that clock would be right, and writing it again moves nothing."""
    make_node("n1")
    make_pod("p", "n1")
    make_pod("patient", "n1", tolerations=[tolerates(seconds=60)])
    ahead = {**taint(), "timeAdded": moment(3600)}
    set_taints("n1", ahead, now=after(10))
    assert (timer("p"), timer("patient")) == (10, 70)
    set_taints("n1", ahead, taint("other", "NoSchedule"), now=after(30))
    assert timer("patient") == 70
    assert evict(10) == ["p"]
    assert evict(70) == ["patient"]


def test_a_taint_removed_in_time_keeps_the_pod():
    """R123, R112: `kubectl taint ... key-` removes."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates(seconds=3600)])
    set_taints("n1", taint())
    assert timer("p") == 3600
    set_taints("n1", now=after(3599))
    assert timer("p") is None
    assert evict(3600) == []
    assert not terminating("p")


def test_a_taint_removed_before_the_follower_looks_keeps_the_pod():
    """A due timer is judged again on the rows as they are."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates(seconds=60)])
    set_taints("n1", taint())
    assert timer("p") == 60
    set_taints("n1", now=after(59))
    done = fire(after(61))
    assert done.evicted == []
    assert count_timers() == 0
    assert not terminating("p")


def test_the_worked_example_keeps_running():
    """R121: three taints, two tolerations; NoSchedule of key2 does not evict."""
    make_node("n1")
    tolerations = [
        {"key": "key1", "operator": "Equal", "value": "value1", "effect": "NoSchedule"},
        {"key": "key1", "operator": "Equal", "value": "value1", "effect": "NoExecute"},
    ]
    make_pod("p", "n1", tolerations=tolerations)
    make_pod("other", "n1")
    set_taints(
        "n1",
        taint("key1", "NoSchedule", "value1"),
        taint("key1", "NoExecute", "value1"),
        taint("key2", "NoSchedule", "value2"),
    )
    assert timer("p") is None
    assert evict(0) == ["other"]


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule"])
def test_other_effects_evict_nobody(effect):
    """R113, R119."""
    make_node("n1")
    make_pod("p", "n1")
    set_taints("n1", taint(effect=effect))
    assert timer("p") is None


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        ({"key": "key", "operator": "Equal", "value": "v", "effect": "NoExecute"}, True),
        ({"key": "key", "value": "v", "effect": "NoExecute"}, True),
        ({"key": "key", "value": "w", "effect": "NoExecute"}, False),
        ({"key": "key", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "key", "operator": "Exists", "effect": "NoSchedule"}, False),
    ],
    ids=["R114-Equal", "R115-default-operator", "R116-other-value", "R118-no-effect",
         "R117-no-key", "R116-other-effect"],
)  # fmt: skip
def test_which_toleration_answers(toleration, stays):
    make_node("n1")
    make_pod("p", "n1", tolerations=[toleration])
    set_taints("n1", taint(value="v"))
    assert (timer("p") is None) == stays


def test_the_earliest_of_several_taints_counts_each_from_its_own_time():
    """C22: the deadline moves down and up again with the taints."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates("a", seconds=100), tolerates("b", seconds=10)])
    set_taints("n1", taint("a"))
    assert timer("p") == 100
    set_taints("n1", taint("a"), taint("b"), now=after(50))
    assert timer("p") == 60
    set_taints("n1", taint("a"), now=after(55))
    assert timer("p") == 100


def test_a_toleration_added_later_moves_the_deadline():
    """C22: the deadline goes up again; an added toleration helps an untolerated taint."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates("a", seconds=100)])
    set_taints("n1", taint("a"), taint("b"))
    assert timer("p") == 0
    tolerate_too("p", tolerates("b", seconds=300))
    assert timer("p") == 100


def test_a_pod_bound_after_the_taint_has_its_full_time():
    """R122, C22: it remains bound for the specified amount of time."""
    make_node("n1", taints=[taint()])
    assert evict(0) == []
    pod_id = make_pod("p", tolerations=[tolerates(seconds=60)])
    bind(pod_id, "n1", now=after(20))
    assert timer("p") == 80
    assert evict(79.999) == []
    assert evict(80) == ["p"]


def test_replacements_on_an_old_taint_are_evicted_no_faster_than_they_tolerate():
    """C22: counted from the taint alone, each replacement would leave as soon as it came."""
    make_node("n1", taints=[taint()])
    evicted = []
    pod_id, made = make_pod("p0", tolerations=[tolerates(seconds=2)]), 1
    bind(pod_id, "n1", now=after(100))
    for tenth in range(200):
        now = 100 + tenth / 10
        for name in evict(now):
            evicted.append(name)
            objects.delete("Pod", "default", name, {"gracePeriodSeconds": 0}, now=after(now))
            pod_id = make_pod(f"p{made}", tolerations=[tolerates(seconds=2)], now=after(now))
            bind(pod_id, "n1", now=after(now))
            made += 1
    assert evicted == [f"p{number}" for number in range(9)]


def test_pods_of_one_class_on_one_node_each_count_from_their_own_binding():
    make_node("n1", taints=[taint()])
    for number, seconds in enumerate((10, 30, 20)):
        make_pod(f"p{number}", tolerations=[tolerates(seconds=60)])
        bind(find_pod_id("default", f"p{number}"), "n1", now=after(seconds))
    assert [timer(f"p{number}") for number in range(3)] == [70, 90, 80]
    assert evict(85) == ["p0", "p2"]
    assert timer("p1") == 90


def test_which_taint_decides_depends_on_the_binding():
    """The older taint is tolerated for longer: it decides for a pod that was there before both."""
    tolerations = [tolerates("old", seconds=100), tolerates("new", seconds=50)]
    make_node("n1")
    make_pod("early", "n1", tolerations=tolerations)
    set_taints("n1", taint("old"))
    set_taints("n1", taint("old"), taint("new"), now=after(80))
    pod_id = make_pod("late", tolerations=tolerations)
    bind(pod_id, "n1", now=after(90))
    assert (timer("early"), timer("late")) == (100, 140)
    found = {one.name: one.taint_key for one in waiting_timers()}
    assert found == {"early": "old", "late": "new"}


def test_what_an_agent_says_of_a_pods_conditions_does_not_move_its_timer():
    """The binding is this service's own fact; a status comes from whoever may write it."""
    make_node("n1", taints=[taint()])
    pod_id = make_pod("p", tolerations=[tolerates(seconds=60)])
    bind(pod_id, "n1", now=after(20))
    scheduled = {"type": "PodScheduled", "status": "True"}
    later = {**scheduled, "lastTransitionTime": "2030-01-01T00:00:00Z"}
    for conditions in ([later], [], [{**scheduled, "status": "False"}]):

        def report(manifest, conditions=conditions):
            status = {**manifest["status"], "phase": "Running", "conditions": conditions}
            return {**manifest, "status": status}

        objects.update("Pod", "default", "p", report, subresource="status", now=after(30))
        timers.restate_everything(after(31))
        assert timer("p") == 80


def test_a_restart_and_late_notice_do_not_move_a_timer():
    """C22: a controller that was away for an hour states what it would have stated."""
    make_node("n1", taints=[taint()])
    pod_id = make_pod("p", tolerations=[tolerates(seconds=6000)])
    bind(pod_id, "n1", now=after(20))
    timers.follow(after(3600))
    assert timer("p") == 6020
    memory.forget()
    timers.restate_everything(after(5000))
    assert timer("p") == 6020


def test_a_pod_that_names_its_node_has_its_timer_too():
    make_node("n1", taints=[taint()])
    evict(0)
    make_pod("p", nodeName="n1", tolerations=[tolerates(seconds=60)], now=after(5))
    assert timer("p") == 65


def test_default_tolerations_give_five_minutes():
    """R131: admission adds not-ready and unreachable with 300 s."""
    make_node("n1")
    make_pod("p", "n1")
    set_taints("n1", taint("node.kubernetes.io/unreachable"), now=after(5))
    assert timer("p") == 305


def test_own_seconds_for_unreachable_are_kept():
    """R130: 6000 s."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates("node.kubernetes.io/unreachable", seconds=6000)])
    set_taints("n1", taint("node.kubernetes.io/unreachable"))
    assert timer("p") == 6000


def test_deleted_finished_and_moved_pods_have_no_timer():
    make_node("n1")
    for name in ("deleted", "finished"):
        make_pod(name, "n1", tolerations=[tolerates(seconds=60)])
    set_taints("n1", taint())
    assert timer("deleted") == timer("finished") == 60
    objects.delete("Pod", "default", "deleted", {"gracePeriodSeconds": 0}, now=NOW)

    def finish(manifest):
        return {**manifest, "status": {**manifest["status"], "phase": "Succeeded"}}

    objects.update("Pod", "default", "finished", finish, subresource="status", now=NOW)
    timers.follow(NOW)
    assert count_timers() == 0


def test_a_new_pod_of_the_same_name_is_another_pod():
    make_node("n1")
    make_node("n2")
    make_pod("p", "n1", tolerations=[tolerates(seconds=60)])
    set_taints("n1", taint())
    assert timer("p") == 60
    objects.delete("Pod", "default", "p", {"gracePeriodSeconds": 0}, now=NOW)
    make_pod("p", "n2")
    assert fire(after(61)).evicted == []
    assert not terminating("p")
    assert count_timers() == 0


def test_a_pod_without_grace_is_gone_at_once_and_one_with_a_finalizer_is_not():
    make_node("n1")
    make_pod("quick", "n1", terminationGracePeriodSeconds=0)
    make_pod("kept", "n1", terminationGracePeriodSeconds=0, metadata={"finalizers": ["a.b/c"]})
    set_taints("n1", taint())
    evict(0)
    assert pod("quick") is None
    assert terminating("kept")


def test_nothing_fires_twice():
    make_node("n1")
    for number in range(20):
        make_pod(f"p{number}", "n1")
    set_taints("n1", taint())
    assert len(evict(0)) == 20
    timers.restate_everything(NOW)
    assert count_timers() == 0
    assert evict(1) == []


def test_an_event_tells_of_the_eviction():
    make_node("n1")
    make_pod("p", "n1")
    set_taints("n1", taint())
    timers.follow(NOW)
    evictions.record(fire(NOW).news, now=NOW)
    events = [decode_object(item) for item in list_page("Event", "default").items]
    mine = [event for event in events if event["reason"] == "TaintManagerEviction"]
    assert [event["involvedObject"]["name"] for event in mine] == ["p"]
    assert mine[0]["message"] == "Marking for deletion Pod default/p"


def test_timers_survive_a_lost_cursor_and_lost_rows():
    """C22: what is computed from nothing is what was computed step by step."""
    make_node("n1")
    make_pod("p", "n1", tolerations=[tolerates(seconds=60)])
    set_taints("n1", taint(), now=after(3))
    assert timer("p") == 63
    before = waiting_timers()
    timers.restate_everything(after(30))
    assert waiting_timers() == before
