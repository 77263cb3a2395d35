"""Firing on several connections: each pod leaves once, and the clock may be wrong."""

import pytest

from clusterstate.actions.cluster import bootstrap
from clusterstate.database import sql
from clusterstate.queries.evictions.eviction_timers import timer_totals
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers.evictions import firing, timekeeper, timers, workers
from tests.controllers.support import NOW, after, make_node, make_pod, set_taints, taint, tolerates
from tests.roundtrips import counted
from tests.rows import count_timers

PODS = 60


@pytest.fixture
def condemned(transactional_db, monkeypatch):
    """Pods on three nodes that are due ten seconds after NOW; batches of four."""
    monkeypatch.setattr(firing, "BATCH", 4)
    bootstrap.ensure(now=NOW)
    for number in range(3):
        make_node(f"n{number}")
    ids = [
        make_pod(f"p{number}", f"n{number % 3}", tolerations=[tolerates(seconds=10)])
        for number in range(PODS)
    ]
    for number in range(3):
        set_taints(f"n{number}", taint())
    timers.follow(NOW)
    assert count_timers() == PODS
    return ids


def departures():
    """Return how often each pod got a deletion time, by the log."""
    rows = sql.fetch(
        "SELECT object_id, count(*) FROM (SELECT object_id, deletion_at, lag(deletion_at)"
        " OVER (PARTITION BY object_id ORDER BY revision) AS before FROM change WHERE kind = 1) c"
        " WHERE deletion_at IS NOT NULL AND before IS NULL GROUP BY object_id"
    )
    return dict(rows)


def fire(clock):
    with workers.Workers() as helpers:
        return helpers.fire(clock)


def test_a_look_at_nothing_that_is_due_costs_one_statement_with_brakes_or_without(
    condemned, settings
):
    settings.BRAKE_ZONE_PERCENT = 40
    with workers.Workers() as helpers, counted() as count:
        assert helpers.fire(after(9).timestamp).evicted == []
    assert count.number == 1


@pytest.mark.parametrize("connections", [1, 3])
def test_each_pod_leaves_once_however_many_connections_fire(condemned, settings, connections):
    settings.TIMER_CONNECTIONS = connections
    done = fire(after(11).timestamp)
    assert sorted(done.evicted) == sorted(condemned)
    assert done.batches >= PODS / 4
    assert min(done.lateness) == max(done.lateness) == 1
    assert not done.again
    assert departures() == dict.fromkeys(condemned, 1)
    assert count_timers() == 0


def test_a_clock_that_jumps_back_delays_and_one_that_jumps_on_hurries_and_nobody_goes_twice(
    condemned,
):
    """The rows hold the due times; the clock only says which have come."""
    readings = iter([9.0, 9.9, -3600.0, 5.0, 9.99])
    for seconds in readings:
        assert fire(after(seconds).timestamp).evicted == []
        timers.follow(after(seconds))
    assert count_timers() == PODS
    assert len(fire(after(86400).timestamp).evicted) == PODS
    for seconds in (0.0, 11.0, 86401.0):
        timers.follow(after(seconds))
        timers.restate_everything(after(seconds))
        assert fire(after(seconds).timestamp).evicted == []
    assert departures() == dict.fromkeys(condemned, 1)


def test_the_runner_records_events_and_figures(condemned):
    moments = iter(range(11, 1000))
    evicted = timekeeper.run(longest=100, clock=lambda: after(next(moments)).timestamp())
    assert evicted == PODS
    figures = timer_totals(NOW).figures
    assert figures.evicted == PODS
    assert figures.seconds >= PODS
    events = [decode_object(item) for item in list_page("Event", "default").items]
    assert sum(event["reason"] == "TaintManagerEviction" for event in events) == PODS
