"""Runs decided by the compiled loop: decisions, and the snapshot after, of the reference path."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from scheduling.engine.deciding import Decider
from scheduling.engine.fast import counter_columns, fast_lane
from scheduling.engine.fast.run import Run
from scheduling.engine.reference.cycle import Options, PodToPlace, draws, mix, schedule_batch
from scheduling.engine.reference.decision import Decision, Decisions
from scheduling.engine.reference.record import pack, unpack
from scheduling.engine.snapshot import Snapshot, touched
from scheduling.engine.snapshot.requirements import from_pod
from tests import strategies
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.forms import many
from tests.harness import build_snapshot, kubernetes_framework
from tests.properties.test_recorded_worlds import facts_of

Manifest = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(fast_lane):
        yield


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


LABELS = ({"app": "a"}, {"app": "b"}, {"app": "a", "tier": "b"})
selectors = st.sampled_from(
    [
        {"matchLabels": {"app": "a"}},
        {"matchLabels": {"app": "b"}},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {},
    ]
)
keys = st.sampled_from([strategies.ZONE, strategies.ZONE, strategies.HOSTNAME, "rack"])
terms = st.builds(
    lambda key, selector, everywhere: {
        "topologyKey": key,
        "labelSelector": selector,
        **({"namespaceSelector": {}} if everywhere else {}),
    },
    keys,
    selectors,
    st.booleans(),
)
weighted_terms = st.builds(
    lambda weight, term: {"weight": weight, "podAffinityTerm": term},
    st.sampled_from([1, 7, 100]),
    terms,
)


def _affinity(
    kind: str, required: list[Manifest], preferred: list[Manifest]
) -> tuple[str, Manifest]:
    return kind, {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }


affinities = st.lists(
    st.builds(
        _affinity,
        st.sampled_from(["podAffinity", "podAntiAffinity"]),
        st.lists(terms, max_size=2),
        st.lists(weighted_terms, max_size=2),
    ),
    min_size=1,
    max_size=2,
).map(dict)
constraints = st.lists(
    st.builds(
        lambda key, skew, hard, selector, most, policy: {
            "topologyKey": key,
            "maxSkew": skew,
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": selector,
            **({"minDomains": most} if hard and most else {}),
            **({"nodeTaintsPolicy": policy} if policy else {}),
        },
        keys,
        st.integers(1, 3),
        st.booleans(),
        selectors,
        st.sampled_from([0, 0, 2, 5]),
        st.sampled_from(["", "", "Honor"]),
    ),
    min_size=1,
    max_size=3,
)


def _grouped_pod(
    cpu: str, labels: dict[str, str], rules: Manifest, taint: bool, namespace: str
) -> Manifest:
    pod = make_pod("p").asks(cpu=cpu).labelled(**labels).manifest
    pod["metadata"]["namespace"] = namespace
    pod["spec"].update(rules)
    if taint:
        pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    return pod


def grouped_pods() -> st.SearchStrategy[Manifest]:
    """Pods whose rules look at other pods, and often at each other."""
    rules = st.one_of(
        affinities.map(lambda found: {"affinity": found}),
        constraints.map(lambda found: {"topologySpreadConstraints": found}),
        st.tuples(affinities, constraints).map(
            lambda both: {"affinity": both[0], "topologySpreadConstraints": both[1]}
        ),
        st.just({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}),
    )
    return st.builds(
        _grouped_pod,
        st.sampled_from(["50m", "300m", "1"]),
        st.sampled_from(LABELS),
        rules,
        st.booleans(),
        st.sampled_from(["default", "default", "blue"]),
    )


steps = strategies.happenings(
    st.lists(st.integers(0, 7), min_size=1, max_size=30),
    st.lists(st.integers(0, 2), min_size=10, max_size=40),
    st.lists(st.integers(2, 5), min_size=10, max_size=40),
    fewest=2, most=10,
    remove=30, terminate=30, replace_node=12, remove_node=12, join_node=25, move_node=25,
)  # fmt: skip


@cache
def more_nodes(count: int, *, single: bool) -> list[Node]:
    """Small nodes in three zones, one of which has only tainted ones."""
    found = []
    for number in range(count):
        labels = {"kubernetes.io/hostname": f"h{number}"}
        if number % 6:
            labels[strategies.ZONE] = f"zone-{number % 3}"
        if single or number % 4:
            labels["rack"] = f"rack-{number if single else number % 2}"
        node = make_node(f"more-{number}").labelled(labels).offers(cpu="2", pods="9")
        if number % 3 == 2:
            node = node.tainted("spot", effect="PreferNoSchedule" if number % 2 else "NoSchedule")
        found.append(node.build())
    return found


def moved(node: Node) -> st.SearchStrategy[Node]:
    """The node with other labels, taints or amounts."""
    labels = st.fixed_dictionaries(
        {},
        optional={
            strategies.HOSTNAME: st.sampled_from([node.metadata.name, "h0"]),
            strategies.ZONE: st.sampled_from(["zone-0", "zone-1", "zone-9"]),
            "rack": st.sampled_from(["rack-0", "rack-1", "rack-9"]),
        },
    )

    def build(labels: dict[str, str], soft: bool, cordoned: bool, cpu: str) -> Node:
        made = make_node(node.metadata.name).labelled(labels).offers(cpu=cpu, pods="9")
        if soft:
            made = made.tainted("spot", effect="PreferNoSchedule")
        return (made.cordoned() if cordoned else made).build()

    return st.builds(build, labels, st.booleans(), st.booleans(), st.sampled_from(["2", "4"]))


def read(packed: bytes) -> Any:
    """What a body says, with columns written out."""
    body = unpack(packed)
    columns = [c if isinstance(c, tuple) else (c,) * len(body.names) for c in body.columns]
    return msgspec.structs.replace(body, columns=tuple(columns))


def assert_counts_are_true(snapshot: Snapshot) -> None:
    """Counters and tables that followed the runs hold what counting all pods again would."""
    records = [record for record in snapshot.pods() if record.row >= 0]
    for counter in snapshot._counters.values():
        rows = np.zeros(snapshot.capacity, np.int64)
        for record in records:
            if not (record.terminating and counter.live_only):
                rows[record.row] += counter.weigh(record.info)
        assert counter.rows.tolist() == rows.tolist()
        for table in counter.tables.values():
            if table.version == snapshot.node_version:
                sums = np.zeros(len(table.column.values), np.int64)
                for row, value in enumerate(table.column.ids.tolist()):
                    if value >= 0 and (table.eligible is None or table.eligible[row]):
                        sums[value] += rows[row]
                assert table.counts.tolist() == sums.tolist()


class World:
    """One cluster and one way to decide for it."""

    def __init__(self, world: Manifest, more: int, *, single: bool) -> None:
        self.snapshot = build_snapshot(world)
        for node in more_nodes(more, single=single):
            self.snapshot.set_node(node)
        self.framework = kubernetes_framework()
        self.decider: Decider | None = None

    def place(self, keys: list[str], pods: list[Pod], seed: int, draw: int) -> Decisions:
        batch = [
            PodToPlace(key, self.snapshot.intern(from_pod(pod)))
            for key, pod in zip(keys, pods, strict=True)
        ]
        return schedule_batch(
            self.snapshot,
            self.framework,
            batch,
            Options(seed=seed),
            draw=draw,
            decider=self.decider,
        )


class Uncompiled:
    """The decider without the fast lane."""

    def __init__(self, decider: Decider) -> None:
        self.decide = decider.decide
        self.refused = decider.refused
        self.keep = decider.keep

    def decide_run(self, *_: Any, **__: Any) -> list[Decision]:
        return []


def agree(
    world: Manifest,
    more: int,
    pods: list[Pod],
    happenings: list[tuple[str, Any]],
    data: st.DataObject,
    seed: int,
) -> None:
    single = data.draw(st.booleans())
    worlds = [World(world, more, single=single) for _ in range(3)]
    worlds[1].decider = Uncompiled(Decider(worlds[1].snapshot, worlds[1].framework))
    worlds[2].decider = Decider(worlds[2].snapshot, worlds[2].framework)
    placed: list[str] = [str(record.key) for record in worlds[0].snapshot.pods()]
    draw = 0
    for number, (what, which) in enumerate(happenings):
        if what == "place":
            keys = [f"default/new-{number}-{i}" for i in range(len(which))]
            wanted = [pods[kind % len(pods)] for kind in which]
            plain, cached, compiled = (w.place(keys, wanted, seed, draw) for w in worlds)
            for slow, middle, fast in zip(plain, cached, compiled, strict=True):
                assert facts_of(middle) == facts_of(slow)
                assert facts_of(fast) == facts_of(slow)
            for part in compiled.parts:
                if isinstance(part, Run):
                    assert [read(b) for b in part.bodies()] == [read(pack(d)) for d in part]
                    assert part.node_names() == [d.node_name for d in part]
            draw += len(which)
            placed += [str(d.key) for d in plain if d.scheduled]
        elif what == "remove" and placed:
            key = placed.pop(which % len(placed))
            for each in worlds:
                each.snapshot.remove_pod(key)
        elif what == "terminate" and placed:
            key = placed[which % len(placed)]
            for each in worlds:
                record = each.snapshot.pod(key)
                node = each.snapshot.node_of(key)
                assert record is not None
                assert node is not None
                each.snapshot.add_pod(key, record.info, node, terminating=True)
        elif what == "replace node":
            node = msgspec.convert(data.draw(strategies.nodes(which % 5)), Node)
            for each in worlds:
                each.snapshot.set_node(node)
        elif what == "remove node":
            for each in worlds:
                each.snapshot.remove_node(f"more-{which}" if which % 2 else f"node-{which}")
        elif what in ("join node", "move node"):
            node = more_nodes(26, single=single)[which]
            if what == "move node":  # its pods are counted elsewhere then, and it may be cordoned
                node = data.draw(moved(node))
            for each in worlds:
                each.snapshot.set_node(node)
        assert state_of(worlds[0].snapshot) == state_of(worlds[2].snapshot)
        assert_counts_are_true(worlds[2].snapshot)


def decided_alike(
    examples: int, more: st.SearchStrategy[int], *pods: st.SearchStrategy[list[Manifest]]
) -> Callable[[], None]:
    """Return a test: worlds with so many more nodes, in which pods of all these kinds come."""

    @settings(max_examples=examples, deadline=None)
    @given(strategies.clusters(), more, st.tuples(*pods), steps, st.data(), st.integers(0, 2**70))
    def test(
        world: Manifest,
        more: int,
        kinds: tuple[list[Manifest], ...],
        happenings: list[tuple[str, Any]],
        data: st.DataObject,
        seed: int,
    ) -> None:
        read = [msgspec.convert(manifest, Pod) for kind in kinds for manifest in kind]
        agree(world, more, read, happenings, data, seed)

    return test


test_a_run_decides_as_the_reference_path = decided_alike(
    many(10, 200),
    st.just(12),
    st.lists(plain_pods(), min_size=3, max_size=3),
    st.lists(strategies.pods(), min_size=2, max_size=2),
)
_looking_at_pods = (
    st.lists(plain_pods(), min_size=1, max_size=1),
    st.lists(grouped_pods(), min_size=5, max_size=5),
)
test_a_run_of_pods_that_look_at_pods_decides_as_the_reference_path = decided_alike(
    many(15, 300), st.just(12), *_looking_at_pods
)
test_a_run_over_several_blocks_of_rows_decides_as_the_reference_path = decided_alike(
    many(6, 60),
    st.sampled_from([150, 290]),  # a block has 64 rows
    *_looking_at_pods,
)


ZONES = 3


def small_case(pods: int) -> tuple[list[Decision], list[Decision], int]:
    """Decide for pods of six kinds, plainly and with runs; return also how many runs decided.

    Nodes hold four pods each, so that some fill up on the way.
    """
    base = make_pod("p").asks(cpu="100m", memory="10Mi")
    kinds = [
        base.labelled(app="plain"),
        base.labelled(app="web").near(strategies.ZONE, app="web"),
        base.labelled(app="one").away_from(strategies.HOSTNAME, app="one"),
        base.labelled(app="red").near(strategies.HOSTNAME, 5, app="red"),
        base.labelled(app="web").spread(strategies.ZONE, 1, app="web"),
        base.labelled(app="wide").spread(strategies.HOSTNAME, 1, hard=False, app="wide"),
        base.labelled(app="port").with_(
            "spec", "containers", value=[{"name": "c", "ports": [{"hostPort": 80}]}]
        ),
    ]
    decided = []
    by_runs = 0
    for compiled in (False, True):
        snapshot = Snapshot(capacity=4)
        for number in range(24):
            node = make_node(f"n-{number}").offers(cpu="4", memory="1Gi", pods="4")
            labels = {strategies.HOSTNAME: f"n-{number}", strategies.ZONE: f"z{number % ZONES}"}
            snapshot.set_node(node.labelled(labels).build())
        framework = kubernetes_framework()
        decider = Decider(snapshot, framework) if compiled else None
        infos = [snapshot.intern(from_pod(kind.build())) for kind in kinds]
        batch = [PodToPlace(f"default/p-{i}", infos[i % len(infos)]) for i in range(pods)]
        found = schedule_batch(snapshot, framework, batch, Options(seed=5), decider=decider)
        by_runs = sum(len(part) for part in found.parts if isinstance(part, Run))
        decided.append(list(found))
    return decided[0], decided[1], by_runs


def test_one_run_decides_for_pods_of_all_kinds_while_nodes_fill_up() -> None:
    """The compiled loop really is what decides."""
    plain, compiled, by_runs = small_case(90)
    assert [facts_of(d) for d in compiled] == [facts_of(d) for d in plain]
    assert any(r.status.reasons == ("Too many pods",) for d in plain for r in d.rejections)
    assert by_runs >= 80


def test_classes_that_find_no_room_are_decided_without_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counter_columns, "_BYTES", 400)
    plain, others, by_runs = small_case(60)
    assert [facts_of(d) for d in others] == [facts_of(d) for d in plain]
    assert by_runs < 60


def test_lines_follow_when_the_log_drops_its_older_half(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched, "_LOG_LIMIT", 2048)
    decided = []
    for compiled in (False, True):
        snapshot = Snapshot()
        for number in range(30):
            labels = {strategies.HOSTNAME: f"n-{number}", strategies.ZONE: f"z{number % ZONES}"}
            snapshot.set_node(make_node(f"n-{number}").offers(cpu="9").labelled(labels).build())
        base = make_pod("p").asks(cpu="50m").labelled(app="a")
        often = snapshot.intern(from_pod(base.build()))
        seldom = snapshot.intern(
            from_pod(base.spread(strategies.HOSTNAME, 5, hard=False, app="a").build())
        )
        framework = kubernetes_framework()
        decider = Decider(snapshot, framework) if compiled else None
        batch = [
            PodToPlace(f"default/p-{i}", seldom if i % 1300 < 3 else often) for i in range(2700)
        ]
        decided.append(schedule_batch(snapshot, framework, batch, Options(seed=1), decider=decider))
        assert snapshot.log_start > 0
    assert [d.node_name for d in decided[0]] == [d.node_name for d in decided[1]]


def test_without_compilation_the_same_loops_are_plain_python() -> None:
    """With NUMBA_DISABLE_JIT=1 the very functions run that are compiled otherwise."""
    program = (
        "from types import FunctionType\n"
        "from scheduling.engine.fast import fast_lane as lane\n"
        "from tests.engine.test_runs import small_case, facts_of\n"
        "assert lane.warm()\n"
        "from scheduling.engine.compiled import loop\n"
        "assert isinstance(loop.decide, FunctionType)\n"
        "plain, others, by_runs = small_case(40)\n"
        "assert [facts_of(d) for d in others] == [facts_of(d) for d in plain]\n"
        "assert by_runs >= 35, by_runs\n"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, cwd=ROOT, check=True)


def test_a_scheduler_without_the_compiled_loops_says_so_and_ends(tmp_path: Path) -> None:
    """A Numba that does not load must not become a scheduler that is a hundred times slower."""
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less')\n")
    program = "from scheduling import celery\ncelery._warm_up()\nprint('went on')\n"
    environment = {
        **os.environ, "PYTHONPATH": str(tmp_path), "STOWAGE_PROCESS": "scheduler",
        "STOWAGE_STATE": str(tmp_path), "DJANGO_SETTINGS_MODULE": "clusterstate.settings",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "import django; django.setup()\n" + program],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "went on" not in done.stdout
    assert "Numba needs NumPy 2.3 or less" in done.stderr
    assert "make clean" in done.stderr


@given(st.integers(-(2**63), 2**64), st.integers(0, 2**40), st.integers(1, 50))
def test_runs_throw_the_same_dice(seed: int, draw: int, count: int) -> None:
    high, low = draws(seed, draw, count)
    together = [
        (upper << 32) | lower for upper, lower in zip(high.tolist(), low.tolist(), strict=True)
    ]
    assert together == [mix(seed, draw + i) for i in range(count)]
    assert high.dtype == np.int64
