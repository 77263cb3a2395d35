"""The snapshot depends on the last state of each object, never on the way there."""

import contextlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.workloads import ReplicaSet, Service
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.nodes import (
    KEPT_FOR_NODES,
    MOST_RESOURCES,
    ZONE_LABELS,
    TooManyResources,
)
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.reach import Reach
from scheduling.framework.types import PodInfo
from tests import strategies
from tests.builders import make_node, make_pod
from tests.forms import many
from tests.strategies import HOSTNAME, ZONE

Manifest = dict[str, Any]


def labelled_a(info: PodInfo) -> int:
    return int("a" in info.labels.values())


def accounts(snapshot: Snapshot) -> dict[str, Any]:
    """Everything that plugins can see, by names instead of numbers."""
    counter = snapshot.counter("labelled a", labelled_a, live_only=True)
    resources = snapshot.resources.values
    nodes = {}
    for name in snapshot.node_names():
        row = snapshot.row_of(name)
        assert row is not None
        of_labels = {}
        for key in (ZONE, HOSTNAME, "rack", "app"):
            number = int(snapshot.label_column(key).ids[row])
            of_labels[key] = None if number < 0 else snapshot.label_column(key).values[number]
        nodes[name] = {
            "allocatable": _named(resources, snapshot.allocatable[row]),
            "requested": _named(resources, snapshot.requested[row]),
            "nonzero": snapshot.nonzero_requested[row].tolist(),
            "places": int(snapshot.allowed_pods[row]),
            "pods": sorted(str(record.key) for record in snapshot.pods_on(row)),
            "count": int(snapshot.pod_count[row]),
            "cordoned": bool(snapshot.unschedulable[row]),
            "taints": snapshot.taint_sets[snapshot.taint_set[row]],
            "labels": of_labels,
            "counted": int(counter.rows[row]),
            "images": int(snapshot.image_score_column(("base:latest",))[row]),
        }
    sums = {}
    for key in (ZONE, HOSTNAME):
        table = counter.table(snapshot.label_column(key), snapshot.node_version)
        values = table.column.values
        sums[key] = {values[v]: int(table.counts[v]) for v in table.present.tolist()}
    return {"nodes": nodes, "sums": sums, "rows": len(snapshot.rows())}


def _named(names: list[str], amounts: Any) -> dict[str, int]:
    return {name: int(amounts[i]) for i, name in enumerate(names) if amounts[i]}


def _empty(snapshot: Snapshot) -> None:
    free = np.setdiff1d(np.arange(snapshot.capacity), snapshot.rows())
    assert not snapshot.requested[free].any()
    assert not snapshot.pod_count[free].any()


events = st.lists(
    st.tuples(
        st.sampled_from(("pod", "pod", "pod", "gone", "node", "node", "lost", "assume", "forget")),
        st.integers(0, 5),
        st.integers(0, 4),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=many(20, 500), deadline=None)
@given(
    st.lists(strategies.pods(), min_size=4, max_size=4),
    st.lists(st.integers(0, 4).flatmap(strategies.nodes), min_size=5, max_size=5),
    events,
)
def test_deltas_give_what_a_rebuild_gives(
    templates: list[Manifest], shapes: list[Manifest], happenings: list[tuple[Any, ...]]
) -> None:
    pods = [msgspec.convert(t, Pod) for t in templates]
    followed = Snapshot(capacity=1)
    # Made early, so that every delta must keep it right.
    followed.counter("labelled a", labelled_a, live_only=True).table(
        followed.label_column(ZONE), followed.node_version
    )
    infos = [followed.intern(from_pod(pod)) for pod in pods]
    nodes: dict[str, Node] = {}
    placed: dict[str, tuple[int, str, bool]] = {}
    for what, which, where, shape, flag in happenings:
        key, name = f"default/p-{which}", f"node-{where}"
        if what == "pod":
            followed.add_pod(key, infos[shape], name, terminating=flag)
            placed[key] = (shape, name, flag)
        elif what == "gone":
            followed.remove_pod(key)
            placed.pop(key, None)
        elif what == "node":
            node = msgspec.convert(shapes[shape], Node)
            node = msgspec.structs.replace(
                node, metadata=msgspec.structs.replace(node.metadata, name=name)
            )
            followed.set_node(node)
            nodes[name] = node
        elif what == "lost":
            followed.remove_node(name)
            nodes.pop(name, None)
        elif what == "assume" and key not in placed and name in nodes:
            row = followed.row_of(name)
            assert row is not None
            followed.assume(key, infos[shape], row)
            assert followed.is_assumed(key)
            if flag:
                followed.add_pod(key, infos[shape], name)  # confirmed
                placed[key] = (shape, name, False)
            else:
                followed.forget(key)
        elif what == "forget":
            followed.forget(key)  # confirmed pods stay
    rebuilt = Snapshot()
    for key, (shape, name, terminating) in sorted(placed.items(), reverse=True):
        info = rebuilt.intern(from_pod(pods[shape]))
        rebuilt.add_pod(key, info, name, terminating=terminating)
    for node in nodes.values():
        rebuilt.set_node(node)
    assert accounts(followed) == accounts(rebuilt)
    _empty(followed)


@settings(max_examples=many(15, 200), deadline=None)
@given(
    st.lists(strategies.pods(), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(0, 5),
    st.lists(st.booleans(), max_size=30),
)
def test_many_pods_at_once_are_as_many_single_ones(
    templates: list[Manifest], chosen: list[tuple[int, int, bool]], gone: int, leave: list[bool]
) -> None:
    pods = [msgspec.convert(t, Pod) for t in templates]
    both = []
    for bulk in (False, True):
        snapshot = Snapshot()
        for number in range(4):
            snapshot.set_node(
                make_node(f"node-{number}").labelled({ZONE: f"z{number % 2}"}).build()
            )
        infos = [snapshot.intern(from_pod(pod)) for pod in pods]
        counters = [
            snapshot.counter(("one", live_only), lambda info: 1, live_only=live_only)
            for live_only in (False, True)
        ]
        for number in range(gone):  # whose places are taken again
            snapshot.add_pod(f"default/gone-{number}", infos[0], "node-0")
        for number in range(gone):
            snapshot.remove_pod(f"default/gone-{number}")
        keys = [f"default/p-{i}" for i in range(len(chosen))]
        snapshot.nominate("default/p-1", infos[0], "node-0")
        if bulk:
            snapshot.add_pods(
                keys,
                np.array([infos[shape].index for shape, _, _ in chosen], np.int32),
                np.array([snapshot.row_of(f"node-{n}") for _, n, _ in chosen], np.int32),
                terminating=np.array([flag for _, _, flag in chosen], np.bool_),
            )
        else:
            for key, (shape, number, flag) in zip(keys, chosen, strict=True):
                snapshot.add_pod(key, infos[shape], f"node-{number}", terminating=flag)
        orders = [[r.key for r in snapshot.pods_on(row)] for row in snapshot.rows().tolist()]
        leaving = [key for key, leaves in zip(keys, leave, strict=False) if leaves]
        if bulk:
            snapshot.remove_pods(leaving, snapshot.slots_of(leaving))
        else:
            for key in leaving:
                snapshot.remove_pod(key)
        left = [[r.key for r in snapshot.pods_on(row)] for row in snapshot.rows().tolist()]
        snapshot.add_pod("default/last", infos[0], "node-0")
        orders += [*left, [r.slot for r in snapshot.pods()]]
        touched = snapshot.touched_since(snapshot.log_start)
        assert touched is not None
        counts = [(counter.rows.tolist(), counter.total) for counter in counters]
        guests = dict(snapshot.nominated_pods(0, None))
        both.append((orders, accounts(snapshot), counts, sorted(touched.tolist()), guests.keys()))
    assert both[0] == both[1]


def test_a_dry_run_leaves_no_trace() -> None:
    snapshot = Snapshot()
    snapshot.set_node(make_node("node-1").labelled({ZONE: "z"}).build())
    info = snapshot.intern(from_pod(make_pod("p").labelled(app="a").asks(cpu="1").build()))
    for number in range(3):
        snapshot.add_pod(f"default/p-{number}", info, "node-1")
    before = accounts(snapshot)
    end = snapshot.log_end
    record = snapshot.pods_on(0)[1]
    snapshot.detach(record)
    assert snapshot.requested[0, 0] == 2000
    snapshot.attach(record)
    assert accounts(snapshot) == before
    assert snapshot.log_end == end


def test_zones_take_turns() -> None:
    """R178: zone1 {1, 2, 3, 4} and zone2 {5, 6} give 1, 5, 2, 6, 3, 4."""
    snapshot = Snapshot()
    for number in range(1, 7):
        zone = "zone1" if number <= 4 else "zone2"
        snapshot.set_node(make_node(str(number)).labelled({ZONE: zone}).build())
    order = [snapshot.node_name(row) for row in snapshot.ordered_rows().tolist()]
    assert order == ["1", "5", "2", "6", "3", "4"]


def test_a_row_of_a_lost_node_is_used_again() -> None:
    snapshot = Snapshot(capacity=2)
    for name in ("a", "b"):
        snapshot.set_node(make_node(name).build())
    row = snapshot.row_of("a")
    snapshot.remove_node("a")
    snapshot.set_node(make_node("c").build())
    assert snapshot.row_of("c") == row
    assert snapshot.capacity == 2


def test_the_log_tells_what_was_touched_until_it_is_too_old() -> None:
    snapshot = Snapshot()
    rows = [snapshot.set_node(make_node(name).build()) for name in ("a", "b")]
    info = snapshot.intern(from_pod(make_pod("p").build()))
    position = snapshot.log_end
    snapshot.add_pod("default/p", info, "b")
    touched = snapshot.touched_since(position)
    assert touched is not None
    assert touched.tolist() == [rows[1]]
    for _ in range(snapshot.log_limit):
        snapshot.remove_pod("default/p")
        snapshot.add_pod("default/p", info, "a")
    assert snapshot.touched_since(position) is None
    assert snapshot.touched_since(snapshot.log_end) is not None


def test_labels_that_nobody_asks_for_leave_the_version_of_the_nodes_alone() -> None:
    snapshot = Snapshot()
    snapshot.set_node(make_node("a").labelled(disk="ssd").build())
    assert snapshot.label_column("disk").values == ["ssd"]
    before = snapshot.node_version
    snapshot.set_node(make_node("a").labelled(disk="ssd", seen="1").build())
    assert snapshot.node_version == before
    snapshot.set_node(make_node("a").labelled(disk="hdd", seen="1").build())
    assert snapshot.node_version == before + 1
    snapshot.set_node(make_node("a").labelled({"disk": "hdd", ZONE_LABELS[0]: "z1"}).build())
    assert snapshot.node_version == before + 2, "nodes are looked at in turns of zones"
    snapshot.reads_whole_nodes = True
    snapshot.set_node(make_node("a").labelled({"new": "1", ZONE_LABELS[0]: "z1"}).build())
    assert snapshot.node_version > before + 2


def test_only_another_selector_of_a_service_or_controller_makes_classes_obsolete() -> None:
    """Whenever one of its pods starts, the status of a ReplicaSet changes."""
    snapshot = Snapshot()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    pod = make_pod("p").labelled(app="a").with_("metadata", "ownerReferences", value=[owner])
    info = snapshot.intern(from_pod(pod.build()))

    def set_both(status: int, **labels: str) -> str:
        meta = {"name": "r", "namespace": "default", "resourceVersion": str(status)}
        replicas = {"selector": {"matchLabels": labels}, "replicas": status}
        snapshot.set_service(
            msgspec.convert({"metadata": meta, "spec": {"selector": labels}}, Service)
        )
        snapshot.set_controller(
            msgspec.convert(
                {"metadata": meta, "spec": replicas, "status": {"replicas": status}}, ReplicaSet
            )
        )
        return str(snapshot.default_selector(info))

    first = set_both(1, app="a")
    stamp = snapshot.peer_stamp(info)
    assert set_both(2, app="a") == first
    assert snapshot.peer_stamp(info) == stamp
    assert set_both(3, app="b") != first
    assert snapshot.peer_stamp(info) > stamp
    snapshot.remove_service("default", "r")
    snapshot.remove_controller("ReplicaSet", "default", "r")
    assert snapshot.default_selector(info) is None
    assert set_both(4, app="a") == first


def test_a_nominated_pod_that_is_taken_back_is_nominated_again() -> None:
    """Its row says so still, and a snapshot that is loaded anew reads the row."""
    snapshot = Snapshot()
    rows = [snapshot.set_node(make_node(name).build()) for name in ("n1", "n2")]
    info = snapshot.intern(from_pod(make_pod("p").build()))
    snapshot.nominate("p", info, "n1")
    snapshot.assume("p", info, rows[1])
    assert not snapshot.nominated_node_of("p")
    snapshot.forget("p")
    assert snapshot.nominated_node_of("p") == "n1"
    # What the scheduler is told meanwhile ends the nomination for good, and so does the binding.
    snapshot.assume("p", info, rows[1])
    snapshot.unnominate("p")
    snapshot.forget("p")
    assert not snapshot.nominated_node_of("p")
    snapshot.nominate("p", info, "n1")
    snapshot.assume("p", info, rows[1])
    assert snapshot.confirm("p", info, "n2")
    snapshot.remove_pod("p")
    assert not snapshot.nominated_node_of("p")


def asking(name: str, *resources: str) -> PodInfo:
    requests = dict.fromkeys(resources, "1")
    return from_pod(msgspec.convert(make_pod(name).asks(**requests).manifest, Pod))


def test_an_object_with_more_resources_than_are_counted_is_refused_and_takes_none() -> None:
    """A column of every node for each of them would be gigabytes, for ever."""
    snapshot = Snapshot(capacity=4)
    snapshot.set_node(msgspec.convert(make_node("n").manifest, Node))
    many = [f"example.com/r{number}" for number in range(MOST_RESOURCES)]
    before = len(snapshot.resources), snapshot.allocatable.shape
    with pytest.raises(TooManyResources, match="512 new resource names"):
        snapshot.intern(asking("greedy", *many))
    offers = make_node("n").offers(**dict.fromkeys(many, "1")).manifest
    with pytest.raises(TooManyResources):
        snapshot.set_node(msgspec.convert(offers, Node))
    assert (len(snapshot.resources), snapshot.allocatable.shape) == before
    assert list(snapshot.node_names()) == ["n"]
    info = snapshot.intern(asking("usual", "example.com/gpu"))
    assert snapshot.resources.values[-1] == "example.com/gpu"
    assert (snapshot.resources.number("example.com/gpu"), 1) in info.amounts


def test_pods_leave_room_for_the_resources_of_nodes() -> None:
    """Else whoever may create pods could have every node set aside that brings something new."""
    snapshot = Snapshot(capacity=4)
    for number in range(MOST_RESOURCES):
        with contextlib.suppress(TooManyResources):
            snapshot.intern(asking(f"p{number}", f"example.com/r{number}"))
    assert len(snapshot.resources) == MOST_RESOURCES - KEPT_FOR_NODES
    offers = {f"example.com/n{number}": "1" for number in range(KEPT_FOR_NODES)}
    snapshot.set_node(msgspec.convert(make_node("n").offers(**offers).manifest, Node))
    assert list(snapshot.node_names()) == ["n"]
    info = snapshot.intern(asking("uses", "example.com/n7"))
    assert (snapshot.resources.number("example.com/n7"), 1) in info.amounts
    other = make_node("m").offers(**{"example.com/more": "1"}).manifest
    with pytest.raises(TooManyResources):
        snapshot.set_node(msgspec.convert(other, Node))


def test_ten_thousand_deployments_keep_their_counters() -> None:
    """Each has one of its own; were all forgotten now and then, every class were compiled again."""
    snapshot = Snapshot(capacity=4)
    snapshot.set_node(make_node("n").build())
    infos = [
        snapshot.intern(from_pod(make_pod("p").labelled(app=f"a{number}").build()))
        for number in range(10_000)
    ]
    for number, info in enumerate(infos[:50]):
        snapshot.add_pod(f"default/p{number}", info, "n")
    version = snapshot.peer_version
    counters = [
        snapshot.counter(
            info.peer_key,
            lambda other, app=info.labels["app"]: int(other.labels["app"] == app),
            live_only=True,
            reach=Reach((("default", "app", info.labels["app"]),)),
        )
        for info in infos
    ]
    assert snapshot.peer_version == version
    assert [counter.total for counter in counters] == [1] * 50 + [0] * 9_950


def test_hundreds_of_resources_make_the_columns_wider_a_few_times() -> None:
    snapshot = Snapshot(capacity=4)
    version = snapshot.node_version
    snapshot.intern(asking("p", *(f"example.com/r{number}" for number in range(400))))
    assert snapshot.node_version - version < 16
    assert snapshot.allocatable.shape[1] >= 400
