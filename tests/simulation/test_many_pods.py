"""Many pods at once: decided together as one by one, admitted once by shape, victims that leave."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest
from scheduling.engine import deciding
from tests.builders import make_node, make_pod
from tests.simulation.builders import document, result, results, simulate
from tests.strategies import by_chance

PRIORITIES: list[Manifest] = [
    {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    for name, value in (("high", 1000), ("low", 10))
]

amounts = st.sampled_from(["100m", "500m", "1", "3"])
kinds = st.sampled_from(["plain", "plain", "plain", "other", "gated", "wrong", "placed", "again"])


def _pod(number: int, kind: str, cpu: str, priority: str) -> Manifest:
    pod = make_pod().named(f"p{number}").asks(cpu=cpu)
    pod = pod.with_("spec", "priorityClassName", value=priority)
    if kind == "other":
        pod = pod.labelled(number=str(number))
    elif kind == "gated":
        pod = pod.with_("spec", "schedulingGates", value=[{"name": "later"}])
    elif kind == "wrong":
        pod = pod.with_("spec", "containers", value=[])
    elif kind == "placed":
        pod = pod.on("n1")
    elif kind == "again":
        pod = pod.named("p0")
    return pod.manifest


@by_chance
@given(
    st.lists(st.tuples(kinds, amounts, st.sampled_from(["high", "low"])), min_size=16, max_size=40),
    st.sampled_from(["describe", "perform"]),
    st.integers(0, 5),
)
def test_pods_decided_together_go_where_they_go_one_by_one(
    asked: list[tuple[str, str, str]], preemption: str, seed: int
) -> None:
    """``explain: none`` takes compiled loops and shapes; with tables each pod goes its own way."""
    deciding.warm()
    nodes = [make_node().named(f"n{n}").offers(cpu=8, pods=9).manifest for n in range(3)]
    pods = [_pod(number, *one) for number, one in enumerate(asked)]
    spec: dict[str, Any] = {"tieBreak": "random", "seed": seed, "preemption": preemption}
    told = ("pod", "status", "nodeName", "message", "total", "errors", "preemptedBy", "preemption")

    def outcome(explain: str) -> list[Manifest]:
        found = results([*PRIORITIES, *nodes], pods, explain=explain, **spec)
        return [{key: one.get(key) for key in told} for one in found]

    for together, alone in zip(outcome("none"), outcome("full"), strict=True):
        assert together == alone


def test_a_victim_leaves_and_the_pod_takes_its_place() -> None:
    low = make_pod().named("low").asks(cpu=3).with_("spec", "priorityClassName", value="low")
    high = make_pod().named("high").asks(cpu=3).with_("spec", "priorityClassName", value="high")
    asked = document([*PRIORITIES, make_node()], [low, high], preemption="perform")
    status = simulate(asked)["status"]
    first, second = status["results"]
    assert (first["nodeName"], first["preemptedBy"]) == ("node-1", "default/high")
    assert (second["status"], second["nodeName"]) == ("scheduled", "node-1")
    assert second["preemption"]["victims"] == ["default/low"]
    assert status["evictions"] == [
        {"pod": "default/low", "nodeName": "node-1", "by": "default/high"}
    ]


def test_each_victim_counts_against_its_budget() -> None:
    """Two nodes, one disruption allowed: the second preemptor takes the pod without a budget."""
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    nodes = [make_node().named(name) for name in ("a", "b", "c")]
    old = make_pod().asks(cpu=3).with_("spec", "priority", value=10)
    there = [
        old.named("web-a").on("a").labelled(app="web"),
        old.named("web-b").on("b").labelled(app="web"),
        old.named("free").on("c").with_("spec", "priority", value=20),
    ]
    high = make_pod().asks(cpu=3).with_("spec", "priorityClassName", value="high")
    found = results(
        [*PRIORITIES, *nodes, *there, budget],
        [high.named("h1"), high.named("h2")],
        preemption="perform",
    )
    victims = [one["preemption"]["victims"] for one in found]
    assert victims == [["default/web-a"], ["default/free"]]


def test_a_label_that_is_a_nodes_name_stays_what_it_is() -> None:
    """Nodes of one shape are checked once; the second one's label is the first one's name."""
    nodes = [
        make_node().named(name).labelled(tier=tier)
        for name, tier in (("a", "a"), ("b", "b"), ("c", "a"))
    ]
    pod = make_pod().with_("spec", "nodeSelector", value={"tier": "a"})
    assert result(nodes, pod)["feasible"] == ["a", "c"]


def test_preemption_is_performed_in_order_only() -> None:
    asked = document([make_node()], [make_pod()], preemption="perform", mode="independent")
    with pytest.raises(Invalid, match=r"spec\.preemption"):
        simulate(asked)
