"""The queue of pending pods: order, backoff, events, nothing lost (R151)."""

from fractions import Fraction
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from clusterstate.objects.values.meta import ObjectMeta
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.pod_group import PodGroup
from scheduling.engine.queue.pending import Backoff, PendingPod, Stage, aged_sort
from scheduling.engine.queue.scheduling_queue import PriorityQueue
from scheduling.framework.configuration.plugin_args import MOST_AGE_POINTS
from scheduling.framework.events import Action, ClusterEvent, Registration, Resource
from tests.builders import make_pod
from tests.forms import many

PLAIN = msgspec.convert({}, Pod)
GATED = msgspec.convert({"spec": {"schedulingGates": [{"name": "g"}]}}, Pod)


def node(**labels):
    return msgspec.convert({"metadata": {"name": "n", "labels": labels}}, Node)


def wants(label):
    """A hint that says yes to nodes with a label."""
    return lambda _pod, event: event.new is not None and label in event.new.metadata.labels


def cares_about(label):
    """Nodes that come with a label, and that the waiting pod itself gets it."""
    return [
        Registration(resource=Resource.NODE, actions=Action.ADD, hint=wants(label)),
        Registration(
            resource=Resource.PENDING_POD, actions=Action.UPDATE_POD_LABEL, hint=wants(label)
        ),
    ]


REGISTRATIONS = {
    "default-scheduler": {"A": cares_about("a"), "B": cares_about("b"), "Deaf": []},
}


def added(**labels):
    return ClusterEvent(resource=Resource.NODE, action=Action.ADD, new=node(**labels))


def relabelled(**labels):
    new = msgspec.convert({"metadata": {"labels": labels}}, Pod)
    return ClusterEvent(
        resource=Resource.PENDING_POD, action=Action.UPDATE_POD_LABEL, old=PLAIN, new=new
    )


def queue(**kwargs):
    return PriorityQueue(registrations=REGISTRATIONS, **kwargs)


def pod(number, priority=0, class_id=1, spec=PLAIN):
    return PendingPod(number, class_id, spec, priority)


def ids(pods):
    return [p.pod_id for p in pods]


def rejected(number=1, by=("A",), now=0.0, **kwargs):
    q = queue(**kwargs)
    q.add(pod(number), now)
    q.pop_batch(now, 1)
    q.requeue_unschedulable(number, by, now)
    return q


def test_pods_come_by_priority_then_by_time_then_by_id():
    q = queue()
    q.add(pod(5, 0), 1.0)
    q.add(pod(4, 0), 1.0)
    q.add(pod(3, 10), 2.0)
    q.add(pod(2, 0), 0.5)
    assert ids(q.pop_batch(3.0, 3)) == [3, 2, 4]
    assert ids(q.pop_batch(3.0, 3)) == [5]
    assert q.counts()[Stage.IN_FLIGHT] == 4


@given(
    points=st.integers(1, MOST_AGE_POINTS),
    pods=st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 400_000_000)), max_size=8
    ),
    later=st.integers(0, 4_000_000_000),
)
def test_with_ageing_pods_come_by_their_priority_and_the_time_that_they_waited(points, pods, later):
    """Priorities are worked out at the moment of asking, in fractions; times are microseconds."""
    begin = 1_760_000_000_000_000
    now = begin + 400_000_000 + later
    key = partial(aged_sort, points_per_minute=points)
    q = queue(sort_key=lambda one, at, since: key(one.priority, at, since))
    aged = []
    for number, (priority, after) in enumerate(pods, 1):
        came = begin + after
        q.add(pod(number, priority), came / 1_000_000)
        grown = priority + Fraction(points * (now - came), 60_000_000)
        aged.append((-grown, came, number))
    assert ids(q.pop_batch(now / 1_000_000, len(pods))) == [one[2] for one in sorted(aged)]


def test_with_ageing_a_pod_that_was_refused_keeps_the_time_that_it_waited():
    q = queue(sort_key=lambda one, at, since: aged_sort(one.priority, at, since, 60))
    q.add(pod(1, priority=0), 1000.0)
    q.pop_batch(1000.0, 1)
    q.requeue_failed(1, 1000.0)
    q.add(pod(2, priority=50), 1100.0)
    assert ids(q.pop_batch(1101.0, 2)) == [1, 2], "101 points against 51"
    fresh = queue(sort_key=lambda one, at, since: aged_sort(one.priority, at, since, 60))
    fresh.restore(pod(1, priority=0), q.place(1), 1102.0)
    fresh.add(pod(2, priority=50), 1100.0)
    assert ids(fresh.pop_batch(1103.0, 2)) == [1, 2], "after a restart, too"


def test_a_pod_that_is_done_is_gone():
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.done(1)
    assert len(q) == 0
    assert q.next_due(0) is None


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (5000, 10)]
)
def test_the_backoff_doubles_from_one_to_ten_seconds(attempts, seconds):
    assert Backoff().after(attempts) == seconds


@pytest.mark.parametrize(
    ("now", "attempts", "over"),
    [
        (10.0, 1, 12.0), (10.5, 1, 12.0), (10.999, 1, 12.0),
        (11.0, 1, 13.0), (10.5, 3, 15.0), (10.5, 9, 21.0), (10.5, 0, 10.5),
    ],
)  # fmt: skip
def test_a_backoff_lasts_to_the_end_of_the_second_in_which_the_wait_ends(now, attempts, over):
    """What kube-scheduler compares is the second of its end with that of the clock."""
    assert Backoff().until(now, attempts) == over


def test_without_a_backoff_a_pod_is_tried_again_at_once():
    q = queue(backoff=Backoff(initial=0.0, longest=0.0))
    q.add(pod(1), 0.5)
    q.pop_batch(0.5, 1)
    q.requeue_failed(1, 0.5)
    assert ids(q.pop_batch(0.5, 1)) == [1]


def test_a_failed_attempt_is_repeated_after_its_backoff():
    q = queue()
    q.add(pod(1), 0)
    for now, wait in ((0, 2), (2, 3), (5, 5), (10, 9), (19, 11), (30, 11)):
        assert ids(q.pop_batch(now, 1)) == [1]
        q.requeue_failed(1, now)
        assert q.place(1).stage is Stage.BACKOFF
        assert q.next_due(now) == now + wait
        assert q.pop_batch(now + wait - 0.01, 1) == []


def test_pods_whose_waits_end_in_the_same_second_come_back_together_the_most_urgent_first():
    q = queue()
    q.add(pod(1, 0), 0.1)
    assert ids(q.pop_batch(0.1, 1)) == [1]
    q.requeue_failed(1, 0.1)
    q.add(pod(2, 10, 2), 0.9)
    assert ids(q.pop_batch(0.9, 1)) == [2]
    q.requeue_failed(2, 0.9)
    assert q.next_due(0.9) == 2.0
    assert q.pop_batch(1.99, 9) == []
    assert ids(q.pop_batch(2.0, 9)) == [2, 1]


def test_refusals_and_failures_count_apart_for_the_backoff():
    """One who fails for want of a database does not wait for that when a plugin refuses it."""
    q = queue()
    q.add(pod(1), 0.0)
    now = 0.0
    for _ in range(4):
        assert ids(q.pop_batch(now, 1)) == [1]
        q.requeue_failed(1, now)
        now = q.place(1).not_before
    assert ids(q.pop_batch(now, 1)) == [1]
    q.requeue_unschedulable(1, ("A",), now)
    assert q.place(1).not_before == now + 2, "the first refusal"
    q.move_on_event(added(a=""), now)
    assert ids(q.pop_batch(now, 1)) == [1]
    q.requeue_failed(1, now)
    assert q.place(1).not_before == now + 2, "the first failure since"
    assert q.place(1).attempts == 6


def test_a_clock_that_is_set_back_delays_no_pod_beyond_its_backoff():
    """The clock ran 90 s ahead while a pod was refused, a pod failed and two pods came."""
    q = rejected(1, by=("A",), now=90.0)
    q.add(pod(2, class_id=2), 90.0)
    assert ids(q.pop_batch(90.0, 9)) == [2]
    q.requeue_failed(2, 90.0)
    q.add(pod(3), 90.0)
    q.add(pod(4), 91.0)
    assert ids(q.pop_batch(0.0, 1)) == [3]
    q.add(pod(5), 0.5)
    q.move_on_event(added(a="1"), 0.5)
    popped = ids(q.pop_batch(1.5, 9))
    assert sorted(popped) == [4, 5], "pod 1 may be tried before, pod 2 may not"
    popped += ids(q.pop_batch(1.5, 9))
    assert q.place(2).not_before == 2.0
    popped += ids(q.pop_batch(2.0, 9))
    assert popped[2:] == [1, 2]
    assert popped.index(4) < popped.index(5), "who came first is tried first"


def test_the_flush_counts_from_the_time_that_the_clock_was_set_to():
    q = rejected(1, by=("A",), now=1000.0)
    assert q.pop_batch(0.0, 9) == []
    assert q.next_due(0.0) == 300.0
    assert ids(q.pop_batch(300.0, 9)) == [1]


def test_a_place_from_before_the_clock_was_set_back_is_limited_after_a_restart():
    q = rejected(1, by=(), now=1000.0)
    place = q.place(1)
    assert place.not_before == 1002.0
    q = queue()
    q.restore(pod(1), place, 5.0)
    assert q.pop_batch(6.0, 9) == []
    assert ids(q.pop_batch(7.0, 9)) == [1]


def test_a_rejected_pod_waits_for_its_plugins_and_not_for_time():
    q = rejected()
    assert q.place(1).rejected_by == ("A",)
    assert q.pop_batch(200, 1) == []
    assert q.move_on_event(added(b=""), 200) == 0
    assert q.move_on_event(added(a=""), 200) == 1
    assert ids(q.pop_batch(200, 1)) == [1]


def test_an_event_during_the_backoff_moves_to_backoff():
    q = rejected()
    assert q.move_on_event(added(a=""), 0.5) == 1
    assert q.place(1).stage is Stage.BACKOFF
    q.add(pod(2, class_id=2), 0.5)
    assert ids(q.pop_batch(0.5, 9)) == [2], "who is active comes first"
    assert q.next_due(0.5) == 0.5
    assert ids(q.pop_batch(0.5, 9)) == [1], "where nobody is, it does not wait"
    q.requeue_unschedulable(1, ("A",), 0.5)
    assert (q.place(1).stage, q.place(1).not_before) == (Stage.UNSCHEDULABLE, 3.0)


def test_a_plugin_that_answered_pending_wakes_without_backoff():
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.requeue_unschedulable(1, [], 0, pending_by=["A"])
    q.move_on_event(added(a=""), 0.1)
    assert q.place(1).stage is Stage.ACTIVE


def test_a_plugin_that_registered_nothing_known_is_woken_by_every_event():
    q = rejected(by=("Foreign",))
    assert q.move_on_event(added(), 5) == 1


def test_after_five_minutes_a_pod_is_tried_in_any_case():
    q = rejected(by=("Deaf",))
    assert q.move_on_event(added(a="", b=""), 1) == 0
    assert q.next_due(1) == 300
    assert q.pop_batch(299, 1) == []
    assert ids(q.pop_batch(300, 1)) == [1]


def test_an_event_while_the_pod_is_in_flight_is_not_lost():
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.move_on_event(added(a=""), 0)
    q.requeue_unschedulable(1, ["A"], 0)
    assert q.place(1).stage is Stage.BACKOFF


def test_a_refusal_by_a_state_that_is_gone_keeps_no_sister_from_an_early_attempt():
    q = queue()
    q.add(pod(1), 0)
    q.add(pod(2), 0)
    q.pop_batch(0, 2)
    q.requeue_unschedulable(1, ["A"], 0)
    q.move_on_event(added(a=""), 0)  # it may help both; 2 was decided without it
    q.requeue_unschedulable(2, ["A"], 0)
    assert q.place(1).stage is Stage.BACKOFF
    assert ids(q.pop_batch(0, 1)) == [1], "the refusal of 2 says nothing of 1"


def test_a_refusal_by_the_state_of_now_keeps_its_sisters_from_an_early_attempt():
    q = queue()
    q.add(pod(1), 0)
    q.add(pod(2), 0)
    q.pop_batch(0, 1)
    q.requeue_unschedulable(1, ["A"], 0)
    q.move_on_event(added(a=""), 0)
    q.pop_batch(0, 1)
    q.requeue_unschedulable(2, ["A"], 0)  # decided after the event
    assert q.place(1).stage is Stage.BACKOFF
    assert q.pop_batch(0, 1) == []


def test_an_event_before_the_pod_was_popped_does_not_count():
    q = queue()
    q.add(pod(1), 0)
    q.add(pod(2), 0)
    q.pop_batch(0, 1)
    q.move_on_event(added(a=""), 0)
    q.pop_batch(0, 1)
    q.requeue_unschedulable(2, ["A"], 0)
    assert q.place(2).stage is Stage.UNSCHEDULABLE
    q.requeue_unschedulable(1, ["A"], 0)
    assert q.place(1).stage is Stage.BACKOFF


def test_gates_hold_a_pod_until_they_are_gone():
    q = queue()
    q.add(pod(1, spec=GATED), 0)
    assert q.place(1).stage is Stage.GATED
    assert q.place(1).rejected_by == ("SchedulingGates",)
    assert q.pop_batch(1e6, 1) == []
    q.update(pod(1, class_id=2), 5)
    assert ids(q.pop_batch(5, 1)) == [1]


def test_a_pod_waits_from_when_nothing_holds_it_back_any_more():
    """TestPerPodSchedulingMetrics, scheduling_queue_test.go, v1.36; also after a restart."""
    q = queue()
    q.add(pod(1, spec=GATED), 1)
    restored = queue()
    restored.restore(pod(1, spec=GATED), q.place(1), 100)
    for one in (q, restored):
        one.update(pod(1, class_id=2), 3600)
        (place,) = one.places()
        assert (place.stage, place.since, place.queued_at) == (Stage.ACTIVE, 3600, 1)
        one.pop_batch(3600, 1)
        one.requeue_unschedulable(1, ["Deaf"], 3600)
        one.activate([1], 4000)
        assert one.place(1).since == 3600, "it was tried since"


def test_a_changed_pod_is_tried_again():
    q = rejected()
    q.update(pod(1, class_id=2), 5)
    assert ids(q.pop_batch(5, 1))[0] == 1


def test_a_pod_that_changed_in_flight_is_tried_again_as_it_is_now():
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.update(pod(1, class_id=2), 0)
    q.requeue_unschedulable(1, ["Deaf"], 0)
    assert [p.class_id for p in q.pop_batch(1, 1)] == [2]


@pytest.mark.parametrize(
    ("by", "helped"), [(["A"], True), (["B"], False), (["B", "A"], True), (["Deaf"], False)]
)
def test_a_change_in_flight_counts_if_it_matters_to_who_rejected_the_pod(by, helped):
    """addEventsIfPodInFlight, backend/queue/active_queue.go, v1.36."""
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.update(pod(1, class_id=2), 0, relabelled(a=""))
    q.update(pod(1, class_id=3), 0, relabelled(c=""))
    q.requeue_unschedulable(1, by, 0)
    assert q.place(1).stage is (Stage.BACKOFF if helped else Stage.UNSCHEDULABLE)
    q.move_on_event(added(a="", b=""), 1)
    for popped in q.pop_batch(1, 1):
        assert popped.class_id == 3
        q.requeue_unschedulable(1, by, 1)
        assert q.place(1).stage is Stage.UNSCHEDULABLE, "what was seen does not count again"


def test_a_stale_binding_keeps_its_turn_and_costs_no_attempt():
    q = queue()
    q.add(pod(1), 0)
    q.add(pod(2), 1)
    q.pop_batch(1, 1)
    q.requeue_stale(1, 1)
    assert ids(q.pop_batch(1, 1)) == [1]
    assert q.place(1).attempts == 1


def test_a_pod_deleted_in_flight_does_not_come_back():
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.delete(1)
    q.requeue_unschedulable(1, ["A"], 0)
    assert 1 not in q


def test_activation_skips_backoff_and_plugins():
    q = rejected(by=("Deaf",))
    q.activate([1, 99], 0.1)
    assert ids(q.pop_batch(0.1, 1)) == [1]


def test_who_is_activated_in_flight_is_tried_again_if_it_comes_back():
    """What it was activated for may have come after the decision (``activate``, v1.36)."""
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.activate([1], 0)
    q.requeue_unschedulable(1, ["Deaf"], 0)
    assert q.place(1).stage is Stage.BACKOFF
    assert ids(q.pop_batch(2, 10)) == [1]
    q.requeue_unschedulable(1, ["Deaf"], 2)
    assert q.place(1).stage is Stage.UNSCHEDULABLE, "it was activated for one attempt"


def test_who_is_activated_while_it_is_parked_is_tried_again_if_it_comes_back():
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.park(1)
    q.activate([1], 0)
    q.requeue_unschedulable(1, ["Deaf"], 0)
    assert q.place(1).stage is Stage.BACKOFF


@pytest.mark.parametrize(("stage", "asked"), [(Stage.BACKOFF, 0), (Stage.UNSCHEDULABLE, 1)])
def test_activation_asks_pre_enqueue_about_those_who_waited_for_an_event(stage, asked):
    """Those in backoff passed it when they came there (TestPriorityQueue_moveToActiveQ, v1.36)."""
    calls = []
    q = rejected(
        by=["A"] if stage is Stage.UNSCHEDULABLE else [],
        pre_enqueue=lambda one: calls.append(one.pod_id) or "",
    )
    assert q.place(1).stage is stage
    before = len(calls)
    q.activate([1], 0.1)
    assert len(calls) - before == asked
    assert ids(q.pop_batch(0.1, 10)) == [1]


def test_a_hint_that_fails_counts_as_one_that_says_yes():
    """Otherwise the pod would wait for ever (Test_isPodWorthRequeuing, v1.36)."""

    def fails(_pod, _event):
        raise RuntimeError("no hint today")

    every = Registration(resource=Resource.NODE, actions=Action.ADD, hint=fails)
    q = PriorityQueue(registrations={"default-scheduler": {"A": [every]}})
    for number in (1, 2):
        q.add(pod(number), 0)
    q.pop_batch(0, 2)
    q.requeue_unschedulable(1, ["A"], 0)
    q.move_on_event(added(x="y"), 0)  # one waits, the other is being decided
    q.requeue_unschedulable(2, ["A"], 0)
    assert {q.place(number).stage for number in (1, 2)} == {Stage.BACKOFF}


def test_places_survive_a_restart():
    q = rejected(by=("A",), now=10.0)
    [place] = q.take_changes()
    assert (place.stage, place.attempts, place.not_before) == (Stage.UNSCHEDULABLE, 1, 12.0)
    assert q.take_changes() == []
    again = queue()
    again.restore(pod(1), place, 20.0)
    assert again.place(1) == place
    assert again.move_on_event(added(a=""), 20.0) == 1


def test_a_pod_in_flight_at_the_restart_is_active():
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.park(1)
    [place] = q.take_changes()
    assert place.stage is Stage.IN_FLIGHT
    again = queue()
    again.restore(pod(1), place, 5)
    assert ids(again.pop_batch(5, 1)) == [1]


def parked(events=()):
    """Return a queue with pod 1 waiting on Permit, and the events that came meanwhile."""
    q = queue()
    q.add(pod(1), 0)
    q.pop_batch(0, 1)
    q.park(1)
    for event in events:
        q.move_on_event(event, 0)
    return q


def test_a_parked_pod_waits_for_an_event_unless_there_was_one():
    """R163: what happens during a long wait is counted, not kept."""
    q = parked()
    q.requeue_unschedulable(1, ("A",), 1.0)
    assert q.place(1).stage is Stage.UNSCHEDULABLE
    q = parked([added(b="")])
    assert not q._in_flight._events
    q.requeue_unschedulable(1, ("A",), 1.0)
    assert (q.place(1).stage, q.place(1).not_before) == (Stage.BACKOFF, 3.0)


def test_a_parked_pod_is_parked_again_after_a_restart():
    q = parked()
    again = queue()
    again.restore_parked(pod(1), q.place(1))
    assert again.place(1) == q.place(1)
    assert again.pop_batch(5, 1) == []
    again.requeue_unschedulable(1, ("A",), 6.0)
    assert again.place(1).stage is Stage.BACKOFF, "what happened before the restart is not known"
    again = queue()
    again.restore_parked(pod(1), q.place(1))
    again.done(1)
    assert 1 not in again


def test_who_caused_an_event_is_not_woken_by_it():
    q = rejected(by=("Deaf", "A"))
    assert q.move_on_event(added(a=""), 0.1, but_not=[1]) == 0
    assert q.place(1).stage is Stage.UNSCHEDULABLE
    assert q.move_on_event(added(a=""), 0.1) == 1


# --- before a backoff is over ---------------------------------------------------------------------


def test_who_failed_otherwise_waits_for_the_end_of_its_backoff():
    q = rejected(1, by=())
    assert q.place(1).stage is Stage.BACKOFF
    assert q.next_due(0) == 2
    assert q.pop_batch(1.9, 9) == []


@pytest.mark.parametrize("meanwhile", [[], [added(b="")]])
def test_who_comes_back_from_permit_waits_for_the_end_of_its_backoff(meanwhile):
    q = parked(meanwhile)
    q.requeue_unschedulable(1, ("A",), 1.0)
    q.move_on_event(added(a=""), 1.0)
    assert q.place(1).stage is Stage.BACKOFF
    assert q.next_due(1.0) == 3.0
    assert q.pop_batch(1.5, 9) == []
    assert ids(q.pop_batch(3.0, 9)) == [1]


def test_those_whose_backoff_ends_first_are_tried_first_and_of_one_second_the_most_urgent():
    q = queue()
    for number, priority in ((1, 0), (2, 5), (3, 9)):
        q.add(pod(number, priority, number), 0.0)
        q.pop_batch(0.0, 1)
        q.requeue_unschedulable(number, ("A",), 0.5 if number < 3 else 1.5)
    q.move_on_event(added(a=""), 1.6)
    assert ids(q.pop_batch(1.6, 9)) == [2, 1, 3]
    assert q.incoming[Stage.ACTIVE, "PopFromBackoffQ"] == 3


def test_of_a_class_in_backoff_one_is_tried_and_its_sisters_wait_for_what_may_help_it():
    q = waiting({1: 50, 2: 50})
    q.move_on_event(added(a=""), 0.5)
    q.move_on_event(added(b=""), 0.5)
    first = q.pop_batch(0.5, 1000)
    assert classes(first) == [1, 2]
    q.requeue_unschedulable(first[0].pod_id, ("A",), 0.5)
    q.requeue_unschedulable(first[1].pod_id, ("B",), 0.5)
    assert q.pop_batch(0.5, 1000) == []
    assert q.next_due(0.5) == 2.0
    q.move_on_event(added(b=""), 0.6)
    assert q.next_due(0.6) == 0.6
    assert classes(q.pop_batch(0.6, 1000)) == [2], "the other class is not helped"
    q.requeue_unschedulable(first[1].pod_id, ("B",), 0.6)


def test_when_one_of_a_class_in_backoff_is_placed_its_sisters_follow():
    q = waiting({1: 50})
    q.move_on_event(added(a=""), 0.5)
    [first] = q.pop_batch(0.5, 1000)
    q.done(first.pod_id)
    assert len(q.pop_batch(0.5, 1000)) == 49


def test_a_nominated_pod_in_backoff_is_tried_whatever_became_of_its_sisters():
    """Room is held for it that none of them may take."""
    q = waiting({1: 3}, is_nominated=lambda number: number == 10_002)
    q.move_on_event(added(a=""), 0.5)
    assert ids(q.pop_batch(0.5, 1000)) == [10_002]
    refuse(q, [pod(10_002)], 0.5)
    assert ids(q.pop_batch(0.5, 9)) == [10_000]
    refuse(q, [pod(10_000)], 0.5)
    assert q.pop_batch(0.5, 9) == []


@pytest.mark.parametrize(("priority", "order"), [(9, [1, 2]), (0, [2, 1])])
def test_a_nominated_pod_that_is_woken_comes_by_its_priority_among_those_that_are_active(
    priority, order
):
    q = queue(is_nominated=lambda number: number == 1)
    q.add(pod(1, priority, 1), 0)
    q.pop_batch(0, 9)
    q.requeue_unschedulable(1, ("A",), 0)
    q.move_on_event(added(a=""), 0.5)
    q.add(pod(2, 5, 2), 0.5)
    assert q.next_due(0.5) == 0.5
    assert ids(q.pop_batch(0.5, 9)) == order


def test_who_makes_room_for_itself_does_not_keep_its_sisters_from_trying_it_too():
    nominated = set()
    q = waiting({1: 3}, is_nominated=nominated.__contains__)
    q.move_on_event(added(a=""), 0.5)
    for number in (10_000, 10_001, 10_002):
        assert ids(q.pop_batch(0.5, 1000)) == [number]
        nominated.add(number)
        refuse(q, [pod(number)], 0.5)
    assert q.pop_batch(0.5, 1000) == []


def test_a_pod_restored_in_its_backoff_may_be_tried_before_its_end():
    q = rejected(1, now=10.0)
    q.move_on_event(added(a=""), 10.0)
    again = queue()
    again.restore(pod(1), q.place(1), 10.5)
    assert again.place(1).stage is Stage.BACKOFF
    assert ids(again.pop_batch(10.5, 9)) == [1]


def test_who_was_changed_in_its_backoff_is_tried_as_it_is_now():
    q = waiting({1: 2})
    q.move_on_event(added(a=""), 0.5)
    [first] = q.pop_batch(0.5, 9)
    q.requeue_unschedulable(first.pod_id, ("A",), 0.5)
    q.update(pod(10_001, class_id=7), 0.5)
    assert classes(q.pop_batch(0.5, 9)) == [7]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("nominated", [False, True])
def test_a_pod_that_is_woken_and_refused_again_and_again_waits_for_its_backoff(
    nominated, restarted
):
    q = rejected(is_nominated=lambda number: nominated)
    tried = 0
    for _ in range(50):
        if restarted:
            place, q = q.place(1), queue(is_nominated=lambda number: nominated)
            q.restore(pod(1), place, 0.5)
            assert q.place(1).early == place.early
        q.move_on_event(added(a=""), 0.5)
        for one in q.pop_batch(0.5, 9):
            tried += 1
            q.requeue_unschedulable(one.pod_id, ("A",), 0.5)
    assert tried == 5
    at = q.place(1).not_before
    assert q.next_due(0.5) == at
    assert ids(q.pop_batch(at, 9)) == [1]
    q.requeue_unschedulable(1, ("A",), at)
    q.move_on_event(added(a=""), at)
    assert ids(q.pop_batch(at, 9)) == [1], "it waited, and may come early again"


def test_so_many_attempts_at_most_come_early_and_to_nothing():
    """Kinds of pods by the thousand, and a hundred times a second something that may help them."""
    q = waiting(dict.fromkeys(range(1, 5001), 1))
    for hundredth in range(1000):
        now = 400 + hundredth / 100
        q.move_on_event(added(a=""), now)
        while popped := q.pop_batch(now, 1000):
            refuse(q, popped, now)
    assert 1400 <= q.incoming[Stage.ACTIVE, "PopFromBackoffQ"] <= 1600
    assert q.next_due(now) > now
    assert q.next_due(now) <= now + 0.2
    q.add(pod(1, class_id=9999), now)
    assert ids(q.pop_batch(now, 9)) == [1], "who is active does not wait for that"


def test_attempts_that_place_a_pod_use_nothing_up():
    q = waiting(dict.fromkeys(range(1, 5001), 1))
    q.move_on_event(added(a=""), 0.5)
    placed = 0
    while popped := q.pop_batch(0.5, 1000):
        placed += len(popped)
        for one in popped:
            q.done(one.pod_id)
    assert placed == 5000


def test_what_backs_off_while_others_are_always_active_does_not_pile_up():
    q = queue(backoff=Backoff(initial=1.0, longest=1.0))
    q.add(pod(1, class_id=1), 0)
    q.add(pod(2, class_id=2), 0)
    for now in range(0, 20_000, 2):
        assert sorted(ids(q.pop_batch(now, 9))) == [1, 2]
        q.requeue_unschedulable(1, ("A",), now)
        q.move_on_event(added(a=""), now)
        assert q.place(1).stage is Stage.BACKOFF
        q.requeue_stale(2, now)
    assert len(q._early._others.fresh) < 5000
    assert sum(len(one.pods) for one in q._early._others.retried.values()) < 5000


# --- many -----------------------------------------------------------------------------------------


def waiting(counts, *, priority=0, **kwargs):
    """Return a queue of refused pods, so many of each class: ids are class * 10,000 and on."""
    q = queue(**kwargs)
    for class_id, count in counts.items():
        for number in range(count):
            q.add(pod(class_id * 10_000 + number, priority, class_id), 0)
    while popped := q.pop_batch(0, 1000):
        for one in popped:
            q.requeue_unschedulable(one.pod_id, ("A",), 0)
    q.take_changes()
    return q


def classes(pods):
    return [p.class_id for p in pods]


def refuse(q, pods, now):
    for one in pods:
        q.requeue_unschedulable(one.pod_id, ("A",), now)


def test_a_fresh_pod_does_not_wait_for_thousands_that_were_refused_before():
    q = waiting(dict.fromkeys(range(1, 51), 100), priority=10)
    q.move_on_event(added(a=""), 10)
    q.add(pod(1, 0, 99), 10)
    first = q.pop_batch(10, 1000)
    assert 1 in ids(first)
    assert len(first) < 100, "the fresh pod is bound when its whole batch is decided"
    assert len(set(classes(first))) <= 20


def test_one_pod_of_a_class_is_tried_before_its_sisters():
    q = waiting({1: 500, 2: 500})
    q.move_on_event(added(a=""), 10)
    first = q.pop_batch(10, 1000)
    assert ids(first) == [10_000, 20_000]
    q.requeue_unschedulable(20_000, ("A",), 10)
    q.done(10_000)
    second = q.pop_batch(10, 400)
    assert classes(second).count(1) >= 375, "the class that fits is bound as a backlog is"
    assert ids(second)[0] == 10_001


def test_after_a_restart_one_pod_of_a_class_that_was_refused_once_is_tried_before_the_others():
    q, again = waiting({1: 500}), queue()
    for number in range(10_000, 10_500):
        place = q.place(number)
        assert place.attempts == 1
        again.restore(pod(number, 0, 1), place, 5)
    again.move_on_event(added(a=""), 10)
    assert ids(again.pop_batch(10, 1000)) == [10_000]


def test_sisters_of_a_refused_pod_are_tried_when_nothing_else_waits():
    q = waiting({1: 500})
    q.move_on_event(added(a=""), 10)
    tried = set()
    while popped := q.pop_batch(10, 100):
        tried |= set(ids(popped))
        refuse(q, popped, 10)
    assert len(tried) == 500


def test_a_refused_pod_of_higher_priority_is_not_starved_by_fresh_ones():
    q = waiting({1: 300}, priority=10)
    for number in range(5000):
        q.add(pod(100_000 + number, 0, 2), 5)
    q.move_on_event(added(a=""), 10)
    first = q.pop_batch(10, 1000)
    assert ids(first)[0] == 10_000
    assert len(first) <= 65, "few take the room that its sisters may need"
    q.done(10_000)
    assert ids(q.pop_batch(10, 1000))[:299] == list(range(10_001, 10_300))


@pytest.mark.parametrize("verdict", ["done", "refused"])
def test_refused_pods_get_their_turn_although_fresh_ones_never_end(verdict):
    q = waiting({1: 200, 2: 200})
    q.move_on_event(added(a=""), 10)
    tried, fresh = set(), 100_000
    for turn in range(80):
        for _ in range(100):
            fresh += 1
            q.add(pod(fresh, 0, 3), 10 + turn)
        popped = q.pop_batch(10 + turn, 100)
        assert len(popped) <= 100
        for one in popped:
            if one.class_id == 3 or verdict == "done":
                q.done(one.pod_id)
            else:
                tried.add(one.pod_id)
                q.requeue_unschedulable(one.pod_id, ("A",), 10 + turn)
        tried |= {one.pod_id for one in popped if one.class_id != 3}
    assert len(tried) == 400


def test_shut_lines_are_tried_again_after_an_event():
    q = waiting({1: 200})
    q.move_on_event(added(a=""), 10)
    refuse(q, q.pop_batch(10, 100), 10)
    for number in range(50):
        q.add(pod(100_000 + number, 0, 3), 5)
    assert sorted(classes(q.pop_batch(10, 100))) == [1] * 6 + [3] * 50
    q.add(pod(200_000, 0, 3), 20)
    q.move_on_event(added(c=""), 10)
    assert classes(q.pop_batch(10, 100)) == [1, 3]


def test_a_class_that_fits_gives_more_classes_their_turn():
    q = waiting(dict.fromkeys(range(1, 200), 1))
    q.move_on_event(added(a=""), 10)
    sizes = []
    while popped := q.pop_batch(10, 1000):
        sizes.append(len(popped))
        for one in popped:
            q.done(one.pod_id)
    assert sizes[0] == 16
    assert sizes[1] == 32
    assert sizes[2] == 64
    assert sum(sizes) == 199


@pytest.mark.parametrize("how", ["event", "flush", "backoff"])
def test_ten_thousand_that_wake_do_so_by_and_by_and_fresh_ones_come_between(how):
    q = waiting({1: 10_000})
    now = 10.0
    if how == "backoff":
        q.move_on_event(added(a=""), 0)
        assert q.counts()[Stage.BACKOFF] == 2000
    elif how == "event":
        assert q.move_on_event(added(a=""), 10) == 2000
    else:
        now = 300.0
    q.add(pod(1, 0, 99), now)
    assert 1 in ids(q.pop_batch(now, 100))
    assert len(q.take_changes(100)) <= 100
    tried, turns = set(), 0
    while popped := q.pop_batch(now, 1000):
        tried |= set(ids(popped))
        turns += 1
        for one in popped:
            q.done(one.pod_id)
    assert len(tried) >= 9_999
    assert turns < 20
    assert q.next_due(now) is None


def test_an_event_that_comes_while_pods_wake_skips_the_backoff_of_all_of_them():
    q = queue()
    for number in range(5000):
        q.add(pod(number + 1), 0)
    for one in q.pop_batch(0, 5000):
        q.requeue_unschedulable(one.pod_id, ("B",), 0, pending_by=["A"])
    q.move_on_event(added(b=""), 0.1)
    q.move_on_event(added(a=""), 0.1)
    active = 0
    while popped := q.pop_batch(0.1, 5000):
        active += len(popped) if q.counts()[Stage.BACKOFF] == 2000 else 0
    assert q.counts()[Stage.UNSCHEDULABLE] == 0
    assert active == 3000


class Law(RuleBasedStateMachine):
    """Whatever happens: no pod is lost, order holds, a helpful event moves its pods."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.q = queue()
        self.model = {}  # pod id -> None (not in flight) or list of events since the pop
        self.rejected = {}  # pod id -> plugins
        self.parked = set()
        self.next = 0

    @rule(priority=st.integers(0, 2), class_id=st.integers(1, 2))
    def add(self, priority, class_id):
        self.next += 1
        self.model[self.next] = None
        self.q.add(pod(self.next, priority, class_id), self.now)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 5.0, 400.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule(limit=st.integers(1, 4))
    def pop(self, limit):
        due = self.q.next_due(self.now)
        popped = self.q.pop_batch(self.now, limit)
        assert bool(popped) == (due is not None and due <= self.now)
        keys = [-p.priority for p in popped]
        assert keys == sorted(keys)
        for p in popped:
            assert self.model[p.pod_id] is None
            self.model[p.pod_id] = []
            self.rejected.pop(p.pod_id, None)

    def _flying(self):
        return sorted(k for k, v in self.model.items() if v is not None)

    @precondition(lambda self: self._flying())
    @rule(data=st.data(), plugins=st.sets(st.sampled_from(["A", "B", "Deaf"])))
    def come_back(self, data, plugins):
        number = data.draw(st.sampled_from(self._flying()))
        events = self.model[number]
        self.model[number] = None
        self.q.requeue_unschedulable(number, plugins, self.now)
        stage = self.q.place(number).stage
        helped = not plugins or bool({"A", "B"} & plugins & {e.upper() for e in events})
        if number in self.parked:  # what happened meanwhile was counted, not kept
            self.parked.discard(number)
            helped = not plugins or bool(events)
        assert stage is (Stage.BACKOFF if helped else Stage.UNSCHEDULABLE)
        if stage is Stage.UNSCHEDULABLE:
            self.rejected[number] = plugins

    @precondition(lambda self: self._flying())
    @rule(data=st.data(), label=st.sampled_from(["a", "b", "c"]), class_id=st.integers(3, 4))
    def change_in_flight(self, data, label, class_id):
        number = data.draw(st.sampled_from(self._flying()))
        old = self.q.pod(number)
        if old.class_id != class_id:
            new = msgspec.structs.replace(old, class_id=class_id)
            self.q.update(new, self.now, relabelled(**{label: ""}))
            self.model[number].append(label)

    @precondition(lambda self: set(self._flying()) - self.parked)
    @rule(data=st.data())
    def park(self, data):
        number = data.draw(st.sampled_from(sorted(set(self._flying()) - self.parked)))
        self.parked.add(number)
        self.q.park(number)

    @precondition(lambda self: self._flying())
    @rule(data=st.data(), how=st.sampled_from(["done", "delete", "stale"]))
    def leave(self, data, how):
        number = data.draw(st.sampled_from(self._flying()))
        self.parked.discard(number)
        if how == "stale":
            self.model[number] = None
            self.q.requeue_stale(number, self.now)
            assert self.q.place(number).stage is Stage.ACTIVE
            return
        del self.model[number]
        getattr(self.q, how)(number)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_any(self, data):
        number = data.draw(st.sampled_from(sorted(self.model)))
        del self.model[number]
        self.parked.discard(number)
        self.rejected.pop(number, None)
        self.q.delete(number)

    @rule(label=st.sampled_from(["a", "b", "c"]))
    def happen(self, label):
        waiting = {
            n: plugins
            for n, plugins in self.rejected.items()
            if self.q.place(n).stage is Stage.UNSCHEDULABLE
        }
        self.q.move_on_event(added(**{label: ""}), self.now)
        for number, plugins in waiting.items():
            woken = self.q.place(number).stage is not Stage.UNSCHEDULABLE
            assert woken == (label.upper() in plugins)
        for events in self.model.values():
            if events is not None:
                events.append(label)

    @rule()
    def restart(self):
        """Everything in memory goes; rows and pods stay; what was in flight is active again.

        Unless it is parked, which its row tells; what happened before is not known then.
        """
        places = list(self.q.places())
        pods = {p.pod_id: self.q._entries[p.pod_id].pod for p in places}
        self.q = queue()
        for place in places:
            if place.pod_id in self.parked:
                self.q.restore_parked(pods[place.pod_id], place)
            else:
                self.q.restore(pods[place.pod_id], place, self.now)
        self.model = {number: ["?"] if number in self.parked else None for number in self.model}

    @invariant()
    def nothing_is_lost(self):
        assert {p.pod_id for p in self.q.places()} == set(self.model)
        flying = {p.pod_id for p in self.q.places() if p.stage is Stage.IN_FLIGHT}
        assert flying == set(self._flying())

    @invariant()
    def no_event_is_kept_for_nobody(self):
        if not set(self._flying()) - self.parked:
            assert not self.q._in_flight._events

    def teardown(self):
        """Left alone, every pod is tried within the flush time."""
        later = self.now + 1_000
        tried = set(self._flying())
        while popped := self.q.pop_batch(later, 10_000):
            tried |= {p.pod_id for p in popped}
        assert tried == set(self.model)


Law.TestCase.settings = settings(max_examples=many(20, 200), stateful_step_count=40, deadline=None)
TestLaw = Law.TestCase


def test_the_pods_of_a_gang_are_let_in_together_and_taken_out_together():
    """Each pod asks once: a group of any size costs no more for each of its pods."""
    asked = 0

    def holds(pod: PendingPod) -> str:
        nonlocal asked
        asked += 1
        return "" if queue.members(("default", "g")) >= 50 else "GangScheduling"

    queue = PriorityQueue(registrations={"default-scheduler": {}}, pre_enqueue=holds)
    group = {"podGroupName": "g"}
    spec = make_pod("p").with_("spec", "schedulingGroup", value=group).build()
    for number in range(49):
        queue.add(PendingPod(number, 1, spec), 1.0)
    assert queue.counts()[Stage.GATED] == 49
    for number in range(49, 100):
        queue.add(PendingPod(number, 1, spec), 1.0)
    assert queue.counts()[Stage.ACTIVE] == 100
    assert asked == 149
    (first,) = queue.pop_batch(1.0, 1)
    others = queue.pop_members(("default", "g"))
    assert len({first.pod_id, *(one.pod_id for one in others)}) == 100
    assert queue.counts()[Stage.IN_FLIGHT] == 100


def test_what_happens_to_a_group_is_asked_about_its_own_waiting_pods_alone():
    """However many groups wait, a new one costs no hint of the others."""
    asked = []

    def hint(pod: Pod, event: ClusterEvent) -> bool:
        asked.append(pod.spec.scheduling_group.pod_group_name)
        return True

    events = [
        Registration(resource=resource, actions=Action.ADD, hint=hint, own=True)
        for resource in (Resource.POD_GROUP, Resource.ASSIGNED_POD)
    ]
    made = PriorityQueue(registrations={"default-scheduler": {"A": events}})
    specs = {}
    for number, name in enumerate("abc"):
        value = {"podGroupName": name}
        specs[name] = make_pod("p").with_("spec", "schedulingGroup", value=value).build()
        made.add(PendingPod(number, number, specs[name]), 0.0)
    for one in made.pop_batch(0.0, 3):
        made.requeue_unschedulable(one.pod_id, ("A",), 0.0)
    group = PodGroup(metadata=ObjectMeta(namespace="default", name="b"))
    for resource, new in ((Resource.POD_GROUP, group), (Resource.ASSIGNED_POD, specs["c"])):
        event = ClusterEvent(resource=resource, action=Action.ADD, new=new)
        assert made.move_on_event(event, 1.0) == 1
    assert asked == ["b", "c"]


def test_what_happens_to_a_claim_is_asked_about_the_pods_that_name_it_alone():
    """However many pods wait for claims of their own, one that is made costs no hint of others."""
    asked = []

    def hint(pod: Pod, event: ClusterEvent) -> bool:
        asked.append(pod.spec.resource_claims[0].resource_claim_name)
        return True

    events = [
        Registration(
            resource=Resource.RESOURCE_CLAIM, actions=Action.ADD | Action.UPDATE | Action.DELETE,
            hint=hint, own=True,
        )
    ]  # fmt: skip
    made = PriorityQueue(registrations={"default-scheduler": {"A": events}})
    for number, name in enumerate("abc"):
        claims = [{"name": "gpu", "resourceClaimName": name}]
        spec = make_pod("p").with_("spec", "resourceClaims", value=claims).build()
        made.add(PendingPod(number, number, spec), 0.0)
    for one in made.pop_batch(0.0, 3):
        made.requeue_unschedulable(one.pod_id, ("A",), 0.0)
    claim = {"metadata": {"namespace": "default", "name": "b"}}
    event = ClusterEvent(resource=Resource.RESOURCE_CLAIM, action=Action.ADD, new=claim)
    assert made.move_on_event(event, 1.0) == 1
    assert asked == ["b"]
    other = {
        "metadata": {"namespace": "default", "name": "other"},
        "status": {"allocation": {"devices": {}}},
    }
    freed = ClusterEvent(
        resource=Resource.RESOURCE_CLAIM, action=Action.UPDATE, old=other,
        new={**other, "status": {}},
    )  # fmt: skip
    assert made.move_on_event(freed, 1.0) == 2, "devices that any pod may get"
