"""Which pods a node under pressure fails first (R135, R141, chapter 6 of the seeds)."""

import msgspec
import pytest

from clusterstate.objects.rules.resources import qos_class
from clusterstate.objects.values.pod import Pod
from scheduling.controllers.nodes.pressure_rules import (
    Pressure,
    Usage,
    candidate,
    is_critical,
    message,
    next_victims,
    rank,
)

MI = 1024 * 1024


def pod(name, request=None, priority=0, overhead=None, limit=None, **annotations):
    resources = {"requests": {"memory": request} if request else {}}
    if limit:
        resources["limits"] = limit
        resources["requests"] = limit
    return msgspec.convert(
        {
            "metadata": {"namespace": "d", "name": name, "annotations": annotations},
            "spec": {
                "containers": [{"name": "main", "resources": resources}],
                "overhead": {"memory": overhead} if overhead else {},
                "priority": priority,
            },
        },
        Pod,
    )


def using(one, mebibytes, pressure=Pressure.MEMORY, **kwargs):
    usage = None if mebibytes is None else Usage(memory_bytes=mebibytes * MI, **kwargs)
    return candidate(one, usage, pressure)


def names(candidates):
    return [c.pod.metadata.name for c in candidates]


def test_memory_ranks_by_use_above_request_then_priority_then_use():
    given = [
        using(pod("within", "500Mi"), 400),
        using(pod("above-important", "100Mi", priority=10), 900),
        using(pod("above-little", "100Mi"), 150),
        using(pod("above-much", "100Mi"), 300),
        using(pod("within-important", "500Mi", priority=10), 499),
        using(pod("besteffort"), 10),
    ]
    assert names(rank(given, Pressure.MEMORY)) == [
        "above-much",
        "above-little",
        "besteffort",
        "above-important",
        "within",
        "within-important",
    ]


def test_overhead_counts_as_requested():
    """R141."""
    given = [
        using(pod("with", "100Mi", overhead="100Mi"), 150),
        using(pod("without", "100Mi"), 101),
    ]
    assert names(rank(given, Pressure.MEMORY)) == ["without", "with"]


def test_a_pod_without_figures_goes_first():
    given = [using(pod("a"), 100), using(pod("b", priority=100), None)]
    assert names(rank(given, Pressure.MEMORY)) == ["b", "a"]


def test_processes_rank_by_priority_then_number():
    given = [
        candidate(pod(name, priority=p), Usage(processes=n), Pressure.PID)
        for name, p, n in (("a", 1, 900), ("b", 0, 10), ("c", 0, 20))
    ]
    assert names(rank(given, Pressure.PID)) == ["c", "b", "a"]


def test_equal_pods_go_by_name():
    given = [using(pod(name), 10) for name in ("b", "a", "c")]
    assert names(rank(given, Pressure.MEMORY)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod("a"), False),
        (pod("a", priority=1_999_999_999), False),
        (pod("a", priority=2_000_000_000), True),
        (pod("a", **{"kubernetes.io/config.mirror": "x"}), True),
        (pod("a", **{"kubernetes.io/config.source": "file"}), True),
        (pod("a", **{"kubernetes.io/config.source": "api"}), False),
    ],
)
def test_critical_pods_are_never_failed(one, expected):
    assert is_critical(one) is expected


def test_victims_until_enough_is_free():
    given = [using(pod(f"p{i}"), 100 - i) for i in range(5)]

    def victims(available, reclaim=0):
        found = next_victims(
            given,
            Pressure.MEMORY,
            available=available * MI,
            threshold=100 * MI,
            minimum_reclaim=reclaim * MI,
        )
        return names(found)

    assert victims(100) == []
    assert victims(99) == ["p0"]
    assert victims(50, reclaim=100) == ["p0", "p1"]
    assert victims(0, reclaim=10_000) == ["p0", "p1", "p2", "p3", "p4"]


def test_what_leaves_already_counts_as_free_and_critical_pods_stay():
    given = [
        using(pod("leaving"), 80),
        using(pod("critical", priority=2_000_000_000), 500),
        using(pod("other"), 50),
    ]
    found = next_victims(
        given,
        Pressure.MEMORY,
        available=10 * MI,
        threshold=100 * MI,
        finished=lambda c: c.pod.metadata.name == "leaving",
    )
    assert names(found) == ["other"]


def test_the_message_is_the_kubelets():
    victim = using(pod("a", "100Mi"), 200, containers={"main": 200 * MI})
    assert message(victim, Pressure.MEMORY, available=50 * MI, threshold=100 * MI) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container main was using 200Mi, request is 100Mi, has larger consumption of memory. "
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod("a"), "BestEffort"),
        (pod("a", "1Mi"), "Burstable"),
        (pod("a", limit={"cpu": "1", "memory": "1Mi"}), "Guaranteed"),
    ],
)
def test_the_class_of_service(one, expected):
    assert qos_class(one) == expected
