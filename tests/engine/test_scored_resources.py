"""The loop scores by any strategy and any resources, and breaks ties by name, as the plugins do."""

import random
from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest

from clusterstate.objects.values.pod import Pod
from scheduling.engine.deciding import Decider
from scheduling.engine.fast import fast_lane
from scheduling.engine.fast.run import Run
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration.plugin_args import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from scheduling.framework.runtime import Framework
from scheduling.plugins.catalogue import build_framework
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.harness import kubernetes_profile
from tests.properties.test_recorded_worlds import facts_of
from tests.simulation.builders import result

GPU = "example.com/gpu"
SHAPE = ((0, 10), (40, 3), (100, 7))


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(fast_lane):
        yield


def profile_of(kind: str, resources: dict[str, int], balanced: tuple[str, ...]) -> Framework:
    """Return the default profile with another strategy and other resources."""
    profile = kubernetes_profile()
    shape = tuple(UtilizationShapePoint(utilization=x, score=y) for x, y in SHAPE)
    strategy = ScoringStrategy(
        type=kind,
        resources=tuple(ResourceSpec(name=name, weight=w) for name, w in resources.items()),
        shape=shape if kind == "RequestedToCapacityRatio" else (),
    )
    args = {
        **profile.args,
        "NodeResourcesFit": NodeResourcesFitArgs(scoring_strategy=strategy),
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(
            resources=tuple(ResourceSpec(name=name) for name in balanced)
        ),
    }
    return build_framework(msgspec.structs.replace(profile, args=args))


def world(nodes: int, dice: random.Random) -> Snapshot:
    snapshot = Snapshot()
    for number in range(nodes):
        offer = {"cpu": dice.choice(["2", "4", "16", "0"]), "memory": "8Gi", "pods": "20"}
        if dice.random() < 0.6:
            offer[GPU] = dice.choice(["2", "8"])
        if dice.random() < 0.6:
            offer["ephemeral-storage"] = dice.choice(["10Gi", "1Gi"])
        node = make_node(f"n{dice.randrange(10**6)}-{number}")
        snapshot.set_node(node.with_("status", "allocatable", value=offer).build())
    return snapshot


def pod_of(dice: random.Random) -> Pod:
    asked = {"cpu": dice.choice(["50m", "200m", "0"]), "memory": dice.choice(["10Mi", "900Mi"])}
    if dice.random() < 0.5:
        asked[GPU] = "1"
    if dice.random() < 0.5:
        asked["ephemeral-storage"] = "200Mi"
    return make_pod("p").asks(**asked).build()


@pytest.mark.parametrize("tie_break", ["random", "first"])
@pytest.mark.parametrize(
    ("kind", "resources", "balanced"),
    [
        ("LeastAllocated", {"cpu": 1, "memory": 1}, ("cpu", "memory")),
        ("LeastAllocated", {"memory": 3}, ("memory", "cpu")),
        ("LeastAllocated", {"cpu": 1, "memory": 2, GPU: 5}, ("cpu", "memory")),
        ("LeastAllocated", {"cpu": 1}, ("cpu", "memory", GPU, "ephemeral-storage")),
        ("MostAllocated", {"cpu": 1, "memory": 1}, ("cpu", "memory")),
        ("MostAllocated", {GPU: 1, "ephemeral-storage": 2}, ("cpu",)),
        ("RequestedToCapacityRatio", {"cpu": 2, "memory": 1, GPU: 3}, ("cpu", GPU)),
    ],
)
def test_any_strategy_over_any_resources(
    kind: str,
    resources: dict[str, int],
    balanced: tuple[str, ...],
    tie_break: Literal["random", "first"],
) -> None:
    framework = profile_of(kind, resources, balanced)
    dice = random.Random(f"{kind} {resources}")
    pods = [pod_of(dice) for _ in range(6)]
    order = [dice.randrange(6) for _ in range(120)]
    seed = dice.randrange(1000)
    decided = []
    for cached in (False, True):
        snapshot = world(70, random.Random(seed))
        decider = Decider(snapshot, framework) if cached else None
        infos = [snapshot.intern(from_pod(pod)) for pod in pods]
        batch = [PodToPlace(f"default/p-{at}", infos[which]) for at, which in enumerate(order)]
        options = Options(seed=3, tie_break=tie_break, preempt=False)
        decided.append(schedule_batch(snapshot, framework, batch, options, decider=decider))
    plain, fast = list(decided[0]), list(decided[1])
    assert [facts_of(decision) for decision in fast] == [facts_of(decision) for decision in plain]
    by_loop = sum(len(part) for part in decided[1].parts if isinstance(part, Run))
    assert by_loop == sum(decision.scheduled for decision in plain) > 60


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage", "example.com/x"])
@pytest.mark.parametrize("amounts", [["7Ei", "7Ei"], ["9223372036854775807", "1"], ["7Ei"], ["9E"]])
@pytest.mark.parametrize(
    "strategy", ["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
)
def test_amounts_beyond_64_bits_saturate(resource: str, amounts: list[str], strategy: str) -> None:
    """What is asked for and what a node has; a sum of containers, too (kubernetes#141305)."""
    shape = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
    scoring = {
        "type": strategy,
        "resources": [{"name": resource, "weight": 1}],
        **({"requestedToCapacityRatio": shape} if strategy.startswith("Requested") else {}),
    }
    plugin = {"name": "NodeResourcesFit", "args": {"scoringStrategy": scoring}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [plugin]}],
    }
    containers = [
        {"name": f"c{n}", "image": "i", "resources": {"requests": {resource: amount}}}
        for n, amount in enumerate(amounts)
    ]
    pod = make_pod("p").with_("spec", "containers", value=containers)
    large = [make_node(name).offers_also({resource: "20Ei"}) for name in ("n", "m")]
    small = make_node("small").offers_also({resource: "1"})
    found = result(
        [*large, small], pod, configuration=configuration, explain="full", admission=False
    )
    assert (found["status"], found["feasible"]) == ("scheduled", ["m", "n"]), found["message"]
