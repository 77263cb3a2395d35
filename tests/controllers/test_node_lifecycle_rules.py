"""Conditions to taints, silence, zones and the rate of NoExecute taints (R126-R133, C17, C23)."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.rules.node_taints import NOT_READY, UNREACHABLE, governed
from clusterstate.objects.values.node import Node
from scheduling.controllers.nodes.lifecycle_rules import (
    Settings,
    TokenBucket,
    ZoneState,
    full_bucket,
    monitor,
    observe,
    with_condition_taints,
    zone_of,
    zone_rate,
    zone_state,
)

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Settings()


def later(seconds):
    return T0 + timedelta(seconds=seconds)


def node(name="n1", zone="z1", ready="True", taints=(), unschedulable=False, **conditions):
    if ready is not None:
        conditions["Ready"] = ready
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "labels": {"topology.kubernetes.io/zone": zone},
                "creationTimestamp": T0.isoformat(),
            },
            "spec": {
                "unschedulable": unschedulable,
                "taints": [dict(zip(("key", "effect"), t, strict=True)) for t in taints],
            },
            "status": {"conditions": [{"type": k, "status": v} for k, v in conditions.items()]},
        },
        Node,
    )


def taints_of(node_or_change):
    taints = getattr(node_or_change, "taints", None)
    if taints is None:
        taints = node_or_change.spec.taints
    return {(t.key.rpartition("/")[2], t.effect) for t in taints}


def judge(nodes, **more):
    return monitor([observe(one) for one in nodes], **more)


def run(nodes, now=T0, heard=None, zones=None):
    heard = dict.fromkeys((n.metadata.name for n in nodes), now) if heard is None else heard
    return judge(nodes, heard_at=heard, zones=zones or {}, now=now)


def apply(nodes, result):
    changes = {c.name: c for c in result.changes}
    found = []
    for one in nodes:
        change = changes.get(one.metadata.name)
        if change is not None:
            status, spec = one.status, one.spec
            if change.conditions is not None:
                status = msgspec.structs.replace(status, conditions=change.conditions)
            if change.taints is not None:
                spec = msgspec.structs.replace(spec, taints=change.taints)
            one = msgspec.structs.replace(one, status=status, spec=spec)
        found.append(one)
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (node(), set()),
        (node(ready="False"), {"not-ready"}),
        (node(ready="Unknown"), {"unreachable"}),
        (node(MemoryPressure="True"), {"memory-pressure"}),
        (node(DiskPressure="True"), {"disk-pressure"}),
        (node(PIDPressure="True"), {"pid-pressure"}),
        (node(NetworkUnavailable="True"), {"network-unavailable"}),
        (node(OutOfDisk="True"), {"out-of-disk"}),
        (node(MemoryPressure="False", DiskPressure="Unknown"), set()),
        (node(unschedulable=True), {"unschedulable"}),
    ],
)
def test_conditions_become_no_schedule_taints(given, expected):
    """R126, R133, C17."""
    found = with_condition_taints(given)
    assert {(t.key.rpartition("/")[2], t.effect) for t in found} == {
        (key, "NoSchedule") for key in expected
    }


def test_a_condition_that_is_over_takes_its_taint_with_it_and_leaves_others():
    """R128."""
    given = node(
        taints=[
            ("dedicated", "NoSchedule"),
            ("node.kubernetes.io/disk-pressure", "NoSchedule"),
            ("node.kubernetes.io/disk-pressure", "NoExecute"),
        ]
    )
    assert [(t.key, t.effect) for t in with_condition_taints(given)] == [
        ("dedicated", "NoSchedule"),
        ("node.kubernetes.io/disk-pressure", "NoExecute"),
    ]


@pytest.mark.parametrize("after", [[], [{"type": "DiskPressure", "status": "False"}]])
def test_a_write_that_ends_a_pressure_leaves_a_taint_that_somebody_set_to_evict(after):
    """``doNoScheduleTaintingPass``, v1.36: of its own effect alone."""
    key = "node.kubernetes.io/disk-pressure"
    taints = [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    found = governed(
        taints, unschedulable=False, after=after,
        before=[{"type": "DiskPressure", "status": "True"}],
    )  # fmt: skip
    assert found == [{"key": key, "effect": "NoExecute"}]


def test_a_node_that_is_not_ready_gets_a_no_execute_taint_with_its_time():
    """R126, R128."""
    nodes = [node("n1", ready="False"), node("n2")]
    [change] = run(nodes).changes
    assert taints_of(change) == {("not-ready", "NoSchedule"), ("not-ready", "NoExecute")}
    [evicting] = [t for t in change.taints if t.effect == "NoExecute"]
    assert evicting.time_added == "2026-03-01T12:00:00Z"


def test_a_node_is_silent_after_forty_seconds():
    nodes = [node("n1"), node("n2")]
    heard = {"n1": T0, "n2": later(39)}
    early = run(nodes, later(39), heard)
    assert early.changes == ()
    [change] = run(nodes, later(40), heard).changes
    assert {c.type: c.status for c in change.conditions} == dict.fromkeys(
        ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"), "Unknown"
    )
    assert ("unreachable", "NoExecute") in taints_of(change)


def test_a_node_that_never_reported_has_the_startup_grace_period():
    nodes = [node("n1", ready=None), node("n2")]
    patient = Settings(startup_grace_period_seconds=60)

    def changes(now):
        heard = {"n2": now}
        return judge(nodes, heard_at=heard, zones={}, now=now, settings=patient).changes

    assert changes(later(59)) == ()
    [change] = changes(later(60))
    assert change.conditions[0].reason == "NodeStatusNeverUpdated"


def test_nodes_without_an_agent_are_left_alone():
    nodes = [node("n1", ready=None), node("n2", ready="True")]
    result = run(nodes, later(1e6), heard={})
    assert result.changes == ()
    assert result.zones["/z1"].state is ZoneState.NORMAL


def test_silence_is_written_once():
    nodes = [node("n1"), node("n2")]
    heard = {"n1": T0, "n2": later(100)}
    first = run(nodes, later(100), heard)
    second = run(apply(nodes, first), later(101), heard, first.zones)
    assert second.changes == ()
    assert second.unready == ("n1",)


def test_a_node_that_recovers_loses_both_taints_at_once():
    """R128."""
    lost = node(
        taints=[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute"), ("a", "NoExecute")]
    )
    [change] = run([lost]).changes
    assert taints_of(change) == {("a", "NoExecute")}


def test_not_ready_and_unreachable_are_exchanged_without_waiting():
    nodes = [node("n1", ready="Unknown", taints=[(NOT_READY, "NoExecute")]), node("n2")]
    empty = full_bucket(0.1, T0).take(T0)[0]
    zones = {"/z1": run(nodes).zones["/z1"]}
    zones["/z1"] = msgspec.structs.replace(zones["/z1"], bucket=empty)
    [change] = run(nodes, zones=zones).changes
    assert taints_of(change) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}


def test_taints_come_one_in_ten_seconds_per_zone():
    """R129: 0.1 a second."""
    nodes = [node(f"n{i}", ready="False") for i in range(2)] + [node(f"m{i}") for i in range(5)]
    heard = {n.metadata.name: later(1_000) for n in nodes}
    result = run(nodes, T0, heard)
    assert result.waiting == ("n1",)
    nodes = apply(nodes, result)
    result = run(nodes, later(9.9), heard, result.zones)
    assert result.waiting == ("n1",)
    nodes = apply(nodes, result)
    result = run(nodes, later(10), heard, result.zones)
    assert result.waiting == ()
    assert all(("not-ready", "NoExecute") in taints_of(n) for n in apply(nodes, result)[:2])


@pytest.mark.parametrize("gaps", [[1.0], [1.3], [1.0, 1.0, 1.5], [0.7, 1.4]])
def test_passes_that_come_late_do_not_slow_the_taints_down(gaps):
    limits = Settings(eviction_rate=2, pass_seconds=1)
    nodes = [node(f"n{i}", ready="False" if i < 80 else "True") for i in range(200)]
    zones, seconds, tainted = {}, 0.0, []
    for place in range(25):
        heard = dict.fromkeys((n.metadata.name for n in nodes), later(seconds))
        result = judge(nodes, heard_at=heard, zones=zones, now=later(seconds), settings=limits)
        zones, nodes = result.zones, apply(nodes, result)
        tainted.append((seconds, 80 - len(result.waiting)))
        seconds += gaps[place % len(gaps)]
    off = [(at, n) for at, n in tainted if not 2 * at - 1 < n <= 1 + 2 * at + 1e-6]
    assert off == []


def test_a_zone_where_nobody_waited_gives_the_tokens_of_one_pass_at_once():
    limits = Settings(eviction_rate=2, pass_seconds=1)
    lost = [node(f"n{i}", ready="False" if i < 8 else "True") for i in range(50)]
    calm = [node(f"n{i}") for i in range(50)]
    zones = {}
    for seconds, nodes in ((0, calm), (1, calm), (600, lost)):
        heard = dict.fromkeys((n.metadata.name for n in nodes), later(seconds))
        result = judge(nodes, heard_at=heard, zones=zones, now=later(seconds), settings=limits)
        zones = result.zones
    assert len(result.waiting) == 6


def test_zones_have_limits_of_their_own():
    nodes = [node(z, z, ready="False") for z in ("a", "b")] + [node(z + "2", z) for z in ("a", "b")]
    assert run(nodes).waiting == ()


@pytest.mark.parametrize(
    ("ready", "not_ready", "state"),
    [
        (10, 0, ZoneState.NORMAL),
        (0, 0, ZoneState.NORMAL),
        (0, 1, ZoneState.FULL_DISRUPTION),
        (1, 2, ZoneState.NORMAL),  # two are never many
        (2, 3, ZoneState.PARTIAL_DISRUPTION),
        (45, 55, ZoneState.PARTIAL_DISRUPTION),
        (46, 54, ZoneState.NORMAL),
    ],
)
def test_the_state_of_a_zone(ready, not_ready, state):
    assert zone_state(ready=ready, not_ready=not_ready, settings=LIMITS) is state


@pytest.mark.parametrize(
    ("state", "size", "rate"),
    [
        (ZoneState.NORMAL, 1000, 0.1),
        (ZoneState.FULL_DISRUPTION, 10, 0.1),
        (ZoneState.PARTIAL_DISRUPTION, 51, 0.01),
        (ZoneState.PARTIAL_DISRUPTION, 50, 0.0),
    ],
)
def test_the_rate_of_a_zone(state, size, rate):
    """R129."""
    assert zone_rate(state, size, settings=LIMITS) == rate


def test_when_every_zone_is_lost_nothing_is_evicted():
    nodes = [
        node("a", "a", ready="Unknown", taints=[(UNREACHABLE, "NoExecute")]),
        node("b", "b", ready="False"),
    ]
    result = run(nodes)
    assert not any(
        effect == "NoExecute" for n in apply(nodes, result) for _, effect in taints_of(n)
    )
    assert ("unreachable", "NoSchedule") in taints_of(apply(nodes, result)[0])
    assert {z.bucket.rate for z in result.zones.values()} == {0.0}


def test_when_the_first_node_is_back_all_count_as_heard_of():
    nodes = [node("a", "a", ready="Unknown"), node("b", "b", ready="Unknown")]
    dark = run(nodes)
    assert not dark.reset_heartbeats
    nodes = [node("a", "a"), *apply(nodes, dark)[1:]]
    assert run(nodes, later(1), zones=dark.zones).reset_heartbeats


def test_one_lost_zone_of_two_is_evicted_at_the_usual_rate():
    nodes = [node("a", "a", ready="Unknown"), node("b", "b")]
    result = run(nodes)
    assert result.zones["/a"].state is ZoneState.FULL_DISRUPTION
    assert ("unreachable", "NoExecute") in taints_of(apply(nodes, result)[0])


def test_the_zone_is_region_and_zone_with_the_old_labels_too():
    assert (
        zone_of({"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}) == "r/z"
    )
    assert zone_of({"failure-domain.beta.kubernetes.io/zone": "z"}) == "/z"
    assert zone_of({}) == ""


def test_a_token_comes_when_its_time_has_passed_and_none_without_a_rate():
    bucket, taken = full_bucket(0.1, T0).take(T0)
    assert taken
    assert not bucket.take(later(9))[1]
    assert bucket.take(later(10))[1]
    assert not bucket.with_rate(0, later(5)).take(later(1e6))[1]


@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.1, 1.0]),
)
def test_a_bucket_never_gives_more_than_its_rate(steps, rate):
    now, bucket, taken = T0, full_bucket(rate, T0), 0
    for step in steps:
        now += timedelta(seconds=step)
        bucket, got = bucket.take(now)
        taken += got
        # Stored and read again by another process it is the same.
        bucket = msgspec.json.decode(msgspec.json.encode(bucket), type=TokenBucket)
    assert taken <= 1 + (now - T0).total_seconds() * rate + 1e-6
