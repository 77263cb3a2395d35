"""GPUFragmentation: its compiled form against the rule for people, and what it prefers."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState
from scheduling.plugins.shipped.gpu_fragmentation import (
    FragmentationArgs,
    GPUFragmentation,
    Task,
)
from tests.builders import make_node, make_pod
from tests.reference.gpu_fragmentation import fragment_plainly, score_plainly
from tests.simulation.builders import results
from tests.strategies import by_chance

GPU = "stowage.dev/gpu-milli"
models = st.sampled_from(["T4", "G2", "P100"])
shares = st.sampled_from([100, 250, 460, 500, 1000, 2000, 8000])
tasks = st.builds(
    Task,
    gpu_milli=shares,
    cpu=st.sampled_from(["0", "500m", "4", "16"]),
    memory=st.sampled_from(["0", "1Gi", "64Gi"]),
    models=st.lists(models, max_size=2, unique=True).map(tuple),
    weight=st.integers(1, 50),
)
nodes = st.tuples(st.integers(0, 8), models, st.integers(1, 64), st.integers(1, 128))


def _node(number: int, gpus: int, model: str, cpu: int, memory: int) -> Node:
    made = make_node().named(f"n{number}").offers(cpu=cpu, memory=f"{memory}Gi", pods=50)
    made = made.offers_also({GPU: str(1000 * gpus)})
    return (made.labelled({"gpu-model": model}) if gpus else made).build()


def _pod(cpu: int, gpu: int) -> Pod:
    made = make_pod().asks(cpu=f"{cpu}m", memory="1Gi")
    return made.asks_also({GPU: str(gpu)} if gpu else {}).build()


@by_chance
@given(
    st.lists(nodes, min_size=1, max_size=5),
    st.lists(tasks, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 4000), shares, st.integers(0, 4)), max_size=6),
    st.integers(0, 8000),
    st.sampled_from([0, 100, 460, 1000, 2000]),
)
def test_the_compiled_form_is_the_plain_rule(
    offered: list[tuple[int, str, int, int]],
    typical: list[Task],
    there: list[tuple[int, int, int]],
    cpu: int,
    gpu: int,
) -> None:
    snapshot = Snapshot()
    for number, one in enumerate(offered):
        snapshot.set_node(_node(number, *one))
    for number, (milli, share, on) in enumerate(there):
        info = snapshot.intern(from_pod(_pod(milli, share)))
        snapshot.assume(("there", number), info, on % len(offered))
    plugin = GPUFragmentation(FragmentationArgs(tasks=tuple(typical)))
    info = snapshot.intern(from_pod(_pod(cpu, gpu)))
    rows = snapshot.rows()
    scores = plugin.score(CycleState(), info, snapshot, rows).tolist()
    weights = sum(task.weight for task in typical)
    for row, score in zip(rows.tolist(), scores, strict=True):
        columns = [snapshot.resource(name) for name in ("cpu", "memory", GPU)]
        left = (snapshot.allocatable - snapshot.requested)[row, columns].tolist()
        asked = [info.requests.get(name, 0) for name in ("cpu", "memory", GPU)]
        model = snapshot.node(row).metadata.labels.get("gpu-model", "")
        before = fragment_plainly((left[0], left[1], left[2]), model, typical)
        rest = [a - b for a, b in zip(left, asked, strict=True)]
        after = fragment_plainly((rest[0], rest[1], rest[2]), model, typical)
        assert score == score_plainly(before, after, weights)
        assert 0 <= score <= 100


def test_by_hand() -> None:
    """Half a GPU beside a free one: of no use to whole GPUs, and too little for a share of 600."""
    whole, large, small = Task(gpu_milli=1000), Task(gpu_milli=600), Task(gpu_milli=400)
    free = (8000, 2**34, 1500)
    assert fragment_plainly(free, "T4", [whole]) == 500
    assert fragment_plainly(free, "T4", [large]) == 500
    assert fragment_plainly(free, "T4", [small]) == 0
    assert fragment_plainly(free, "T4", [Task(gpu_milli=2000)]) == 1500, "it does not fit at all"
    assert fragment_plainly(free, "T4", [Task(gpu_milli=100, models=("G2",))]) == 1500
    assert fragment_plainly((100, 2**34, 1500), "T4", [Task(gpu_milli=100, cpu="1")]) == 1500
    assert score_plainly(500, 500, 1) == 50
    assert score_plainly(1000, 0, 1) == 75
    assert score_plainly(0, 1000, 1) == 25


def test_a_shared_pod_goes_to_the_gpu_that_is_in_use() -> None:
    args: dict[str, Any] = {"tasks": [{"gpuMilli": 1000, "weight": 3}, {"gpuMilli": 500}]}
    profile = {
        "plugins": {
            "multiPoint": {"enabled": [{"name": "GPUFragmentation", "weight": 100}]},
        },
        "pluginConfig": [{"name": "GPUFragmentation", "args": args}],
    }
    configuration: Manifest = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    offered = [make_node().named(name).offers_also({GPU: "2000"}) for name in ("a", "b")]
    half = make_pod().asks_also({GPU: "500"})
    there = half.named("there").on("b")
    found = results(
        [*offered, there], [half.named("new")], admission=False, configuration=configuration
    )
    assert found[0]["nodeName"] == "b"


def test_its_arguments_are_checked() -> None:
    for wrong in ({"tasks": []}, {"tasks": [{"gpuMilli": 0}]}, {"tasks": [{}]}, {}):
        try:
            msgspec.convert(wrong, FragmentationArgs)
        except msgspec.ValidationError:
            continue
        raise AssertionError(wrong)
