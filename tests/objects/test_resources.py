"""What pods ask for (R137-R146) and their quality of service."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.rules import resources
from clusterstate.objects.rules.resources import PodResourcesOptions
from clusterstate.objects.values.pod import Pod

AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]),
    st.sampled_from(["0", "1", "100m", "0.5m", "1Gi", "1500", "2e3", "3n"]),
)
CONTAINERS = st.lists(
    st.builds(
        lambda requests, policy: {
            "name": "c",
            "resources": {"requests": requests},
            **({"restartPolicy": policy} if policy else {}),
        },
        AMOUNTS,
        st.sampled_from([None, "Always"]),
    ),
    max_size=3,
)
PODS = st.builds(
    lambda containers, init, overhead, whole: pod(
        containers,
        initContainers=init,
        overhead=overhead,
        **({"resources": whole} if whole else {}),
    ),
    CONTAINERS,
    CONTAINERS,
    AMOUNTS,
    st.none() | st.builds(lambda requests: {"requests": requests}, AMOUNTS),
)


def pod(containers, **spec):
    return msgspec.convert({"spec": {"containers": containers, **spec}}, Pod)


def asks(**requests):
    return {"name": "c", "resources": {"requests": requests}}


@given(PODS)
def test_the_integers_are_the_exact_sums_rounded_up_once(p):
    exact = resources.pod_requests(p)
    assert resources.pod_request_ints(p) == {
        name: q.milli_value() if name == "cpu" else q.value() for name, q in exact.items()
    }


@given(PODS)
def test_a_missing_request_counts_in_scoring_only(p):
    cpu, memory = resources.non_zero_requests(p)
    exact = resources.pod_request_ints(p)
    assert cpu >= exact.get("cpu", 0)
    assert memory >= exact.get("memory", 0)
    if all(
        {"cpu", "memory"} <= c.resources.requests.keys()
        for c in (*p.spec.containers, *p.spec.init_containers)
    ):
        assert (cpu, memory) == (exact.get("cpu", 0), exact.get("memory", 0))


def test_an_empty_container_counts_as_100m_and_200mi_in_scoring():
    assert resources.non_zero_requests(pod([{"name": "c"}])) == (100, 200 * 1024 * 1024)
    assert resources.non_zero_requests(pod([asks(cpu="0")])) == (0, 200 * 1024 * 1024)


def test_fractions_are_added_before_rounding():
    assert resources.pod_request_ints(pod([asks(cpu="0.5m"), asks(cpu="0.5m")])) == {"cpu": 1}


def test_overhead_is_added_to_the_requests():
    """R139, R143: 500m + 1500m + 250m CPU and 100Mi + 100Mi + 120Mi."""
    p = pod(
        [asks(cpu="500m", memory="100Mi"), asks(cpu="1500m", memory="100Mi")],
        overhead={"cpu": "250m", "memory": "120Mi"},
    )
    assert {n: str(q) for n, q in resources.pod_requests(p).items()} == {
        "cpu": "2250m",
        "memory": "320Mi",
    }
    assert resources.pod_request_ints(p)["memory"] == 335544320
    without = resources.pod_requests(p, PodResourcesOptions(exclude_overhead=True))
    assert str(without["cpu"]) == "2"


def test_overhead_is_added_to_limits_only_where_there_are_limits():
    """R146."""
    limited = {"name": "c", "resources": {"limits": {"memory": "100Mi"}}}
    p = pod([limited], overhead={"cpu": "250m", "memory": "120Mi"})
    assert {n: str(q) for n, q in resources.pod_limits(p).items()} == {"memory": "220Mi"}


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ([asks(cpu="3")], 3000),
        ([{**asks(cpu="1"), "restartPolicy": "Always"}], 3000),
        ([{**asks(cpu="1"), "restartPolicy": "Always"}, asks(cpu="5")], 6000),
        ([asks(cpu="5"), {**asks(cpu="1"), "restartPolicy": "Always"}], 5000),
    ],
)
def test_init_containers_and_sidecars(init, expected):
    p = pod([asks(cpu="2")], initContainers=init)
    assert resources.pod_request_ints(p) == {"cpu": expected}


def test_pod_level_requests_stand_over_those_of_containers():
    p = pod([asks(cpu="2", memory="1Gi")], resources={"requests": {"cpu": "3"}})
    assert resources.pod_request_ints(p) == {"cpu": 3000, "memory": 1024**3}
    p = pod([{"name": "c"}], resources={"requests": {"cpu": "3"}})
    assert resources.non_zero_requests(p) == (3000, 200 * 1024 * 1024)


def test_a_pod_being_resized_holds_the_larger_amount():
    status = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "4"}}]}
    p = msgspec.convert({"spec": {"containers": [asks(cpu="2")]}, "status": status}, Pod)
    assert resources.pod_request_ints(p) == {"cpu": 4000}


GUARANTEED = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([{"requests": {"example.com/gpu": "1"}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Burstable"),
        ([GUARANTEED], "Guaranteed"),
        ([GUARANTEED, {}], "Burstable"),
        ([{}, GUARANTEED], "Burstable"),
        ([GUARANTEED, GUARANTEED], "Guaranteed"),
    ],
)
def test_quality_of_service(spec, expected):
    assert resources.qos_class(pod([{"name": "c", "resources": r} for r in spec])) == expected


def test_quality_of_service_of_the_whole_pod():
    assert resources.qos_class(pod([{"name": "c"}], resources=GUARANTEED)) == "Guaranteed"
    assert (
        resources.qos_class(pod([{"name": "c"}], resources={"limits": {"cpu": "1"}})) == "Burstable"
    )
