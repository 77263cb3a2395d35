"""Each checker of the fault machine finds the violation that was planted for it, and only that."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.faults import checkers
from tests.faults.checkers import Audit, Violation
from tests.faults.history import FAILED, OK, UNKNOWN, Operation
from tests.faults.replay import Event, Object, State

NOW = 1_000_000.0
AT = "1970-01-12T13:46:40Z"
"""NOW, as the wire has it."""


def node(name: str = "n1", *, revision: int = 1, cpu: str = "1", **spec: Any) -> Object:
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "resourceVersion": str(revision),
            "labels": {"kubernetes.io/hostname": name},
        },
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "10"}},
    }  # fmt: skip


def pod(
    name: str, *, revision: int = 2, on: str = "", cpu: str = "400m", labels: Any = None,
    status: Any = None, deletion: str | None = None, **spec: Any,
) -> Object:  # fmt: skip
    conditions = (
        [{"type": "PodScheduled", "status": "True", "lastTransitionTime": AT}] if on else []
    )
    metadata = {
        "name": name, "namespace": "soak", "uid": f"uid-{name}", "resourceVersion": str(revision),
        "labels": labels or {},
    }  # fmt: skip
    if deletion:
        metadata["deletionTimestamp"] = deletion
    resources = {"requests": {"cpu": cpu, "memory": "1Mi"}}
    base: Object = {"containers": [{"name": "c", "resources": resources}]}
    base |= {"schedulerName": "default-scheduler", **({"nodeName": on} if on else {}), **spec}
    return {
        "metadata": metadata,
        "spec": base,
        "status": {"phase": "Pending", "conditions": conditions, **(status or {})},
    }


def told(verb: str, item: Object, kind: str = "Pod") -> Event:
    return Event(int(item["metadata"]["resourceVersion"]), kind, verb, item, NOW)


def later(item: Object, revision: int, **metadata: Any) -> Object:
    return {
        **item, "metadata": {**item["metadata"], **metadata, "resourceVersion": str(revision)},
    }  # fmt: skip


def with_cause(item: Object, reason: str, at: str = AT) -> Object:
    cause = {"type": "DisruptionTarget", "reason": reason, "lastTransitionTime": at}
    status = item["status"]
    return {**item, "status": {**status, "conditions": [*status["conditions"], cause]}}


def columns(violations: list[Violation]) -> list[str]:
    return [one.column for one in violations]


def judged(*events: Event, **settings: Any) -> list[str]:
    audit = Audit(**settings)
    audit.take(events)
    return columns(audit.violations)


def placed(name: str, at: int, on: str = "n1", **given: Any) -> list[Event]:
    return [
        told("ADDED", pod(name, revision=at, **given)),
        told("MODIFIED", pod(name, revision=at + 1, on=on, **given)),
    ]


N1 = told("ADDED", node(), "Node")
N2 = told("ADDED", node("n2", revision=2), "Node")


def test_what_is_right_is_left_alone() -> None:
    gone = later(pod("a", on="n1"), 9)
    events = [N1, *placed("a", 3), *placed("b", 5), told("DELETED", gone)]
    assert judged(*events, meddled=lambda _: {"delete"}) == []


def test_a_second_binding() -> None:
    events = [N1, N2, *placed("a", 3), told("MODIFIED", pod("a", revision=9, on="n2"))]
    assert judged(*events) == [checkers.BOUND_TWICE]


def test_a_binding_that_is_taken_back() -> None:
    events = [N1, *placed("a", 3), told("MODIFIED", pod("a", revision=9))]
    assert judged(*events) == [checkers.BOUND_TWICE]


def test_an_overcommitted_node() -> None:
    assert judged(N1, *placed("a", 3), *placed("b", 5), *placed("c", 7)) == [checkers.OVERCOMMITTED]
    assert judged(N1, *[e for n in range(11) for e in placed(f"p{n}", 3 + 2 * n, cpu="1m")]) == [
        checkers.OVERCOMMITTED
    ]


def test_overcommitment_that_ends_before_the_rest_is_found() -> None:
    """At every revision, not only at the end."""
    gone = told("DELETED", pod("a", revision=9, on="n1"))
    events = [N1, *placed("a", 3), *placed("b", 5), *placed("c", 7), gone]
    assert judged(*events, meddled=lambda _: {"delete"}) == [checkers.OVERCOMMITTED]


def test_a_pod_placed_by_hand_on_a_full_node_is_on_trial_and_judged_at_rest() -> None:
    audit = Audit()
    audit.take([N1, told("ADDED", pod("a", revision=3, on="n1", cpu="2"))])
    assert audit.violations == []
    assert columns(checkers.room_violations(audit.state)) == [checkers.OVERCOMMITTED]


@pytest.mark.parametrize(
    "spec",
    [
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"taints": [{"key": "k", "effect": "NoExecute"}]},
        {"unschedulable": True},
    ],
)
def test_a_node_that_keeps_pods_away(spec: Any) -> None:
    tainted = told("ADDED", node(**spec), "Node")
    assert judged(tainted, *placed("a", 3)) == [checkers.WRONG_NODE]
    tolerations = [{"operator": "Exists"}]
    assert judged(tainted, *placed("a", 3, tolerations=tolerations)) == []


def test_a_taint_that_came_before_the_binding() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}]
    added, bound = placed("a", 3)
    tainted = told("MODIFIED", node(revision=4, taints=taints), "Node")
    bound = told("MODIFIED", later(bound.item, 5))
    assert judged(N1, added, tainted, bound) == [checkers.WRONG_NODE]


def test_labels_that_are_missing_and_nodes_that_are_gone() -> None:
    assert judged(N1, *placed("a", 3, nodeSelector={"disk": "ssd"})) == [checkers.WRONG_NODE]
    assert judged(*placed("a", 3)) == [checkers.WRONG_NODE]


def _rule(kind: str, labels: dict[str, str]) -> Object:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


APART = {"labels": {"app": "a"}, "affinity": _rule("podAntiAffinity", {"app": "a"}), "cpu": "1m"}


def test_anti_affinity_both_ways() -> None:
    assert judged(N1, *placed("a", 3, **APART), *placed("b", 5, **APART)) == [checkers.WRONG_NODE]
    plain = {"labels": {"app": "a"}, "cpu": "1m"}
    assert judged(N1, *placed("a", 3, **APART), *placed("b", 5, **plain)) == [checkers.WRONG_NODE]
    assert judged(N1, N2, *placed("a", 3, **APART), *placed("b", 5, on="n2", **APART)) == []


def test_affinity() -> None:
    near = {"affinity": _rule("podAffinity", {"app": "a"}), "cpu": "1m"}
    assert judged(N1, *placed("b", 3, **near)) == [checkers.WRONG_NODE]
    assert judged(N1, *placed("a", 3, labels={"app": "a"}), *placed("b", 5, **near)) == []
    assert judged(N1, *placed("b", 3, labels={"app": "a"}, **near)) == []  # the first of its kind


def test_neighbours_count_as_of_the_decision_or_later() -> None:
    near = {"affinity": _rule("podAffinity", {"app": "a"}), "cpu": "1m"}
    first = placed("a", 3, labels={"app": "a"})
    gone = told("DELETED", later(first[1].item, 6))
    added, bound = placed("b", 5, **near)
    events = [N1, *first, added, gone, told("MODIFIED", later(bound.item, 7))]
    meddled: Callable[[Object], set[str]] = lambda _: {"delete"}  # noqa: E731
    assert judged(*events, meddled=meddled, decided_on=lambda _: 5) == []
    assert judged(*events, meddled=meddled, decided_on=lambda _: 6) == [checkers.WRONG_NODE]


def test_spreading() -> None:
    rule = {
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }  # fmt: skip
    given = {"labels": {"app": "a"}, "cpu": "1m", "topologySpreadConstraints": [rule]}
    events = [N1, N2, *placed("a", 3, **given), *placed("b", 5, **given)]
    assert judged(*events) == [checkers.WRONG_NODE]
    assert judged(N1, N2, *placed("a", 3, **given), *placed("b", 5, on="n2", **given)) == []


def test_a_batch_is_bound_in_any_order_and_nobody_in_it_excludes_anybody() -> None:
    """The second was decided first: alone it was right, and the other allows a skew of two."""

    def spread(skew: int) -> Object:
        rule = {
            "maxSkew": skew, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}},
        }  # fmt: skip
        return {"labels": {"app": "a"}, "cpu": "1m", "topologySpreadConstraints": [rule]}

    events = [N1, N2, *placed("b", 3, **spread(2)), *placed("a", 5, **spread(1))]
    assert judged(*events, decided_on=lambda _: 2) == []
    assert judged(*events, decided_on={"uid-a": 4, "uid-b": 2}.get) == [checkers.WRONG_NODE]
    near = {"affinity": _rule("podAffinity", {"app": "a"}), "cpu": "1m"}
    events = [N1, *placed("b", 3, **near), *placed("a", 5, labels={"app": "a"})]
    assert judged(*events, decided_on=lambda _: 2) == []
    assert judged(*events, decided_on={"uid-a": 4, "uid-b": 2}.get) == [checkers.WRONG_NODE]
    events = [N1, *placed("a", 3, **APART), *placed("b", 5, **APART)]
    assert judged(*events, decided_on=lambda _: 2) == [checkers.WRONG_NODE]


def test_a_revision_that_goes_back_and_a_pod_that_comes_back() -> None:
    assert judged(N1, *placed("a", 5), told("ADDED", pod("b", revision=4))) == [checkers.REVISIONS]
    events = [told("ADDED", pod("a", revision=3)), told("DELETED", pod("a", revision=4))]
    events.append(told("ADDED", pod("a", revision=5)))
    assert judged(*events, meddled=lambda _: {"delete"}) == [checkers.WATCH]


def test_news_of_what_was_never_told() -> None:
    assert judged(told("MODIFIED", pod("a", revision=3))) == [checkers.WATCH]


def test_a_pod_that_leaves_for_no_reason() -> None:
    gone = told("DELETED", pod("a", revision=9, on="n1"))
    assert judged(N1, *placed("a", 3), gone) == [checkers.LOST]
    removed = told("DELETED", node(revision=8), "Node")
    assert judged(N1, *placed("a", 3), removed, gone) == []


def leaves(reason: str, at: str = AT, **given: Any) -> Event:
    return told(
        "MODIFIED", with_cause(pod("a", revision=9, on="n1", deletion=AT, **given), reason, at)
    )


def test_evictions_that_nobody_asked_for() -> None:
    assert judged(N1, *placed("a", 3), leaves("EvictionByEvictionAPI")) == [checkers.LOST]
    assert judged(N1, *placed("a", 3), leaves("DeletionByTaintManager")) == [checkers.TIMERS]


def test_an_eviction_that_comes_early() -> None:
    """Counted from the binding where the taint is older: C22 as amended."""
    tolerations = [{"operator": "Exists", "tolerationSeconds": 60}]
    taint = {"key": "k", "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"}
    tainted = told("ADDED", node(taints=[taint]), "Node")
    events = [tainted, *placed("a", 3, tolerations=tolerations)]
    early = leaves("DeletionByTaintManager", "1970-01-12T13:46:50Z", tolerations=tolerations)
    assert judged(*events, early) == [checkers.TIMERS]
    just = leaves("DeletionByTaintManager", "1970-01-12T13:47:40Z", tolerations=tolerations)
    assert judged(*events, just) == []


def test_an_eviction_that_happens_twice() -> None:
    meddled: Callable[[Object], set[str]] = lambda _: {"evict", "delete"}  # noqa: E731
    first = leaves("EvictionByEvictionAPI")
    again = told("MODIFIED", later(first.item, 10, deletionTimestamp="1970-01-12T14:00:00Z"))
    assert judged(N1, *placed("a", 3), first, again, meddled=meddled) == [checkers.EVICTED_TWICE]
    taken_back = told("MODIFIED", pod("a", revision=10, on="n1"))
    found = judged(N1, *placed("a", 3), first, taken_back, meddled=meddled)
    assert set(found) == {checkers.EVICTED_TWICE}


def test_preemption_needs_a_higher_priority_that_waits() -> None:
    events = [N1, *placed("a", 3, priority=5)]
    equal = told("ADDED", pod("b", revision=6, priority=5))
    higher = told("ADDED", pod("b", revision=6, priority=6))
    never = told("ADDED", pod("b", revision=6, priority=6, preemptionPolicy="Never"))
    victim = leaves("PreemptionByScheduler", priority=5)
    assert judged(*events, equal, victim) == [checkers.PREEMPTION]
    assert judged(*events, never, victim) == [checkers.PREEMPTION]
    assert judged(*events, higher, victim) == []


def test_a_budget_that_is_exceeded() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    budgets = [("soak", {"matchLabels": {"app": "a"}}, 2)]
    events = [N1]
    for number, name in enumerate(("a", "b")):
        given = {"labels": {"app": "a"}, "cpu": "1m"}
        events += placed(name, 3 + 3 * number, **given)
        running = pod(name, revision=5 + 3 * number, on="n1", status=ready, **given)
        events.append(told("MODIFIED", running))
    event = leaves("EvictionByEvictionAPI", labels={"app": "a"}, status=ready, cpu="1m")
    given_up = judged(*events, event, budgets=budgets, meddled=lambda _: {"evict"})
    assert given_up == [checkers.BUDGETS]
    assert judged(*events, event, budgets=[(*budgets[0][:2], 1)], meddled=lambda _: {"evict"}) == []


def operation(verb: str, name: str, outcome: str, **given: Any) -> Operation:
    return Operation(0, "c", verb, name, NOW, **{"outcome": outcome, **given})


def test_acknowledged_pods_that_nobody_saw() -> None:
    one = operation("create pod", "soak/a", OK, uid="u")
    assert columns(checkers.history_violations([one], [], [])) == [checkers.LOST]
    assert checkers.history_violations([one], ["u"], ["soak/a"]) == []
    several = operation("create pods", "soak/a", OK, detail={"names": ["soak/a", "soak/b"]})
    assert columns(checkers.history_violations([several], [], ["soak/a"])) == [checkers.LOST]


def test_an_internal_error() -> None:
    one = operation("get", "soak/a", UNKNOWN, status=500, detail={"answer": "a traceback"})
    assert columns(checkers.history_violations([one], [], [])) == [checkers.ANSWERED_500]


def test_a_list_that_was_carried_out_in_part() -> None:
    one = operation("create pods", "soak/a", UNKNOWN, detail={"names": ["soak/a", "soak/b"]})
    assert columns(checkers.history_violations([one], [], ["soak/b"])) == [checkers.LOST]
    assert checkers.history_violations([one], [], ["soak/a", "soak/b"]) == []
    assert checkers.history_violations([one], [], []) == []


def test_what_was_refused_or_rehearsed_and_is_there() -> None:
    refused = operation("create pod", "soak/a", FAILED, status=422)
    dry = operation("create pod", "soak/a", UNKNOWN, detail={"dry": True})
    for one in (refused, dry):
        found = checkers.history_violations([one], [], ["soak/a"])
        assert columns(found) == [checkers.REFUSED_YET_DONE]


def test_writers_and_lists_that_are_told_old_revisions() -> None:
    stale = operation("create pod", "soak/a", OK, revision=7, saw=7)
    assert columns(checkers.revision_violations([stale])) == [checkers.REVISIONS]
    lists = [operation("list", "pods", OK, revision=revision) for revision in (9, 8)]
    assert columns(checkers.revision_violations(lists)) == [checkers.REVISIONS]


def test_a_patch_that_is_lost() -> None:
    def patch(mark: str, outcome: str) -> Operation:
        return operation("patch", "soak/a", outcome, detail={"uid": "uid-a", "mark": mark})

    there = {"uid-a": pod("a", labels={"mark": "1"})}
    lost = checkers.patch_violations([patch("1", OK), patch("2", OK)], "mark", there)
    assert columns(lost) == [checkers.LOST]
    open_one = [patch("1", UNKNOWN), patch("2", OK)]
    assert checkers.patch_violations(open_one, "mark", there) == []


def test_a_watch_that_differs_from_a_list() -> None:
    one, other = {"uid-a": pod("a")}, [pod("a")]
    assert checkers.list_violations("Pod", one, other, "w") == []
    for watched, listed in (
        ({}, other), (one, []), ({"uid-a": pod("a", revision=1)}, other),
        ({"uid-a": pod("a", labels={"a": "b"})}, other),
    ):  # fmt: skip
        found = checkers.list_violations("Pod", watched, listed, "w")
        assert columns(found) == [checkers.WATCH]


def test_timers_that_differ_from_what_taints_ask() -> None:
    taint = {"key": "k", "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"}
    tolerations = [{"operator": "Exists", "tolerationSeconds": 60}]
    one = pod("a", on="n1", tolerations=tolerations)
    state = State({"n1": node(taints=[taint])}, {"uid-a": one})
    right = {"uid-a": NOW + 60}
    assert checkers.timer_violations(state, right, NOW) == []
    for due in ({}, {"uid-a": NOW}, right | {"uid-b": NOW}):
        assert columns(checkers.timer_violations(state, due, NOW)) == [checkers.TIMERS]
    assert columns(checkers.timer_violations(state, right, NOW + 100)) == [checkers.TIMERS]
    tolerations.append({"operator": "Exists"})  # the first that matches counts
    assert checkers.timer_violations(state, right, NOW) == []
    tolerations[0]["tolerationSeconds"] = 10**12  # beyond the last date: never, timer or none
    assert checkers.timer_violations(state, {"uid-a": 1e15}, NOW) == []
    assert checkers.timer_violations(state, {}, NOW) == []


def test_a_queue_that_differs_from_the_unbound_pods() -> None:
    assert checkers.queue_violations(["a"], ["a"]) == []
    assert columns(checkers.queue_violations(["a"], [])) == [checkers.QUEUE]
    assert columns(checkers.queue_violations([], ["a"])) == [checkers.QUEUE]


def test_a_pod_that_waits_although_it_fits() -> None:
    state = State({"n1": node()}, {"uid-a": pod("a")})
    assert columns(checkers.stuck_violations(state)) == [checkers.STUCK]
    for waits in (pod("a", cpu="2"), pod("a", schedulingGates=[{"name": "g"}])):
        assert checkers.stuck_violations(State({"n1": node()}, {"uid-a": waits})) == []


def test_too_many_and_too_few_replicas() -> None:
    state = State({}, {"uid-a": pod("a", labels={"app": "a"})})
    for wanted, expected in ((1, []), (2, [checkers.REPLICAS]), (0, [checkers.REPLICAS])):
        found = checkers.replica_violations(state, {"a": ("soak", {"app": "a"}, wanted)})
        assert columns(found) == expected


def replica_set(replicas: int, revision: int) -> Event:
    metadata = {
        "name": "web", "namespace": "soak", "uid": "uid-web", "resourceVersion": str(revision),
    }  # fmt: skip
    item = {"metadata": metadata, "spec": {"replicas": replicas}}
    return told("ADDED" if revision < 3 else "MODIFIED", item, "ReplicaSet")


def owned(name: str, at: int, owner: str = "uid-web") -> Event:
    references = [{"uid": owner, "kind": "ReplicaSet", "controller": True}]
    return told("ADDED", later(pod(name), at, ownerReferences=references))


def gone(event: Event, at: int) -> Event:
    return told("DELETED", later(event.item, at))


def test_a_replica_set_that_makes_one_more_pod_than_it_asks_for() -> None:
    few = [replica_set(2, 1), owned("a", 3), owned("b", 4), owned("x", 5, "uid-other")]
    assert judged(*few) == []
    assert judged(*few, owned("c", 6)) == [checkers.REPLICAS]
    assert judged(*few, replica_set(3, 6), owned("c", 7)) == []
    leaving = told("MODIFIED", later(few[1].item, 6, deletionTimestamp=AT))
    by_client: dict[str, Any] = {"meddled": lambda _: {"delete"}}
    assert judged(*few, leaving, owned("c", 7), **by_client) == []
    assert judged(*few, gone(few[1], 6), owned("c", 7), **by_client) == []
    # What a controller made too much is a violation, and that it goes again is no second one.
    again = owned("c", 6)
    assert judged(*few, again, gone(again, 7)) == [checkers.REPLICAS]


def test_a_replica_set_whose_pod_leaves_though_there_are_not_too_many() -> None:
    pods = [owned("a", 3), owned("b", 4)]
    assert judged(replica_set(2, 1), *pods, gone(pods[0], 6)) == [checkers.LOST]
    assert judged(replica_set(2, 1), *pods, replica_set(1, 5), gone(pods[0], 6)) == []
    # It scaled up again after its controller had read that it asks for one only.
    back = [replica_set(1, 5), replica_set(2, 6), gone(pods[0], 7)]
    assert judged(replica_set(2, 1), *pods, *back) == []
    too_many_went = [replica_set(1, 5), gone(pods[0], 6), gone(pods[1], 5000)]
    assert judged(replica_set(2, 1), *pods, *too_many_went) == [checkers.LOST]


def test_what_grows_without_bound() -> None:
    floor = {"rows": 10.0}
    grows = {"rows of change": [float(100 * n) for n in range(18)]}
    assert columns(checkers.growth_violations(grows, floor=floor)) == [checkers.BOUNDS]
    steady = {"rows of change": [0.0] * 5 + [500.0] * 13, "rows of event": [0.0] * 17 + [9.0]}
    steady["rows of a peak"] = [50.0] * 14 + [900.0] * 2 + [50.0] * 2
    assert checkers.growth_violations(steady, floor=floor) == []
