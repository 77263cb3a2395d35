"""Runs decided by compiled loops: the decisions, and the snapshot after them, of the plain path."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.node import Node
from clusterstate.objects.pod import Pod
from scheduling.engine import runs
from scheduling.engine.class_cache import Cache
from scheduling.engine.cycle import Options, PodToPlace, mix, schedule_batch
from scheduling.engine.requirements import from_pod
from scheduling.engine.snapshot import Snapshot
from tests import strategies
from tests.builders import make_node, make_pod
from tests.harness import build_snapshot, kubernetes_framework
from tests.properties.test_recorded_worlds import told

Manifest = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    pytest.importorskip("numba")
    assert runs.warm()
    yield
    runs.cool()


def plain_pods() -> st.SearchStrategy[Manifest]:
    """Pods that only ask for resources, and for a kind of node."""
    return st.builds(
        lambda cpu, memory, label, priority: (
            make_pod("p")
            .asks(**{k: v for k, v in (("cpu", cpu), ("memory", memory)) if v})
            .labelled(app=label)
            .priority(priority)
            .manifest
        ),
        st.sampled_from(["", "50m", "300m", "1", "3"]),
        st.sampled_from(["", "1Gi", "100Mi", "3000Mi"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 1),
    )


def state_of(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "requested": snapshot.requested.tolist(),
        "nonzero": snapshot.nonzero_requested.tolist(),
        "count": snapshot.pod_count.tolist(),
        "on": {
            row: [(r.key, r.info.digest, r.terminating) for r in snapshot.pods_on(row)]
            for row in snapshot.rows().tolist()
        },
        "assumed": {r.key for r in snapshot.pods() if snapshot.is_assumed(r.key)},
    }


steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.lists(st.integers(0, 4), min_size=1, max_size=30)),
        st.tuples(st.just("place"), st.lists(st.integers(0, 2), min_size=10, max_size=40)),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("replace node"), st.integers(0, 12)),
        st.tuples(st.just("remove node"), st.integers(0, 12)),
    ),
    min_size=2,
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(
    strategies.clusters(),
    st.lists(plain_pods(), min_size=3, max_size=3),
    st.lists(strategies.pods(), min_size=2, max_size=2),
    steps,
    st.data(),
    st.integers(0, 2**70),
)
def test_a_run_decides_as_the_plain_path(
    world: Manifest,
    plain: list[Manifest],
    others: list[Manifest],
    happenings: list[tuple[str, Any]],
    data: st.DataObject,
    seed: int,
) -> None:
    framework = kubernetes_framework()
    worlds = [build_snapshot(world), build_snapshot(world)]
    for number in range(12):
        node = make_node(f"more-{number}").labelled({"kubernetes.io/hostname": f"h{number}"})
        if number % 5 == 0:
            node = node.tainted("spot", effect="PreferNoSchedule")
        for snapshot in worlds:
            snapshot.set_node(node.build())
    cache = Cache(worlds[1], framework)
    pods = [msgspec.convert(m, Pod) for m in (*plain, *others)]
    infos = [[snapshot.intern(from_pod(pod)) for pod in pods] for snapshot in worlds]
    placed: list[str] = [str(record.key) for record in worlds[0].pods()]
    draw = 0
    for number, (what, which) in enumerate(happenings):
        if what == "place":
            decided = []
            for snapshot, classes, shortcut in zip(worlds, infos, (None, cache), strict=True):
                batch = [
                    PodToPlace(f"default/new-{number}-{i}", classes[kind])
                    for i, kind in enumerate(which)
                ]
                decided.append(
                    schedule_batch(
                        snapshot, framework, batch, Options(seed=seed), draw=draw, cache=shortcut
                    )
                )
            for slow, fast in zip(*decided, strict=True):
                assert told(fast) == told(slow)
            draw += len(which)
            placed += [str(d.key) for d in decided[0] if d.scheduled]
        elif what == "remove" and placed:
            key = placed.pop(which % len(placed))
            for snapshot in worlds:
                snapshot.remove_pod(key)
        elif what == "replace node":
            node_lens = msgspec.convert(data.draw(strategies.nodes(which % 5)), Node)
            for snapshot in worlds:
                snapshot.set_node(node_lens)
        elif what == "remove node":
            for snapshot in worlds:
                snapshot.remove_node(f"more-{which}" if which % 2 else f"node-{which}")
        assert state_of(worlds[0]) == state_of(worlds[1])


def test_plain_pods_are_decided_in_runs_until_a_node_is_full() -> None:
    """The compiled loop really is what decides, and it stops where a node fills up."""
    framework = kubernetes_framework()
    snapshot = Snapshot()
    for number in range(20):
        snapshot.set_node(make_node(f"n-{number}").build())
    info = snapshot.intern(from_pod(make_pod("p").asks(cpu="100m", memory="10Mi").build()))
    cache = Cache(snapshot, framework)
    pods = [PodToPlace(f"default/p-{i}", info) for i in range(60)]
    run = cache.decide_run(pods, 0, Options(seed=3))
    assert [d.key for d in run] == [pod.key for pod in pods]
    assert snapshot.pod_count.sum() == len(pods)


@given(st.integers(0, 2**64), st.integers(0, 2**40), st.integers(1, 50))
def test_runs_throw_the_same_dice(seed: int, draw: int, count: int) -> None:
    high, low = runs._random(seed, draw, count)
    together = [
        (upper << 32) | lower for upper, lower in zip(high.tolist(), low.tolist(), strict=True)
    ]
    assert together == [mix(seed, draw + i) for i in range(count)]
    assert high.dtype == np.int64
