"""Who counts whom, found in an index: the same as when everybody is compared with everybody."""

import random
from typing import Any

import msgspec
import pytest

from clusterstate.objects.values.workloads import ReplicaSet, Service
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.reach import anchors, anchors_of, term_anchors
from scheduling.framework.types import PodInfo
from scheduling.plugins.pod_topology_spread import PodTopologySpread
from tests.builders import make_node, make_pod
from tests.engine.test_programs import pod_of
from tests.harness import kubernetes_framework


def test_a_counter_within_its_reach_weighs_whom_it_would_weigh_among_all() -> None:
    """For every counter that the plugins make, over classes that come before and after it."""
    framework = kubernetes_framework()
    for seed in range(20):
        dice = random.Random(seed)
        snapshot = Snapshot()
        for number in range(4):
            snapshot.set_node(make_node(f"n{number}").build())
        for number in range(12):
            info = snapshot.intern(from_pod(pod_of(number, dice)))
            snapshot.assume(("pod", number), info, number % 4)
            for plugin in framework.pre_filter_plugins:
                if plugin.name == "InterPodAffinity":
                    plugin.affinity_terms(info, snapshot)
                    plugin.untouched_terms(info, snapshot)
        assert snapshot._counters or seed
        for counter in snapshot._counters.values():
            for info in snapshot.classes:
                weight = counter.weigh(info)
                found = [w for c, w in snapshot.counted_by(info) if c is counter]
                assert found == ([weight] if weight else [])
            expected = [0] * 4
            for number, info in enumerate(snapshot.classes):
                expected[number % 4] += counter.weigh(info)
            assert counter.rows[:4].tolist() == expected


def test_a_new_term_marks_only_the_classes_that_it_means() -> None:
    snapshot = Snapshot()
    web = snapshot.intern(from_pod(make_pod("w").labelled(app="web").build()))
    db = snapshot.intern(from_pod(make_pod("d").labelled(app="db").build()))
    other = snapshot.intern(
        from_pod(
            make_pod("o").labelled(app="web").with_("metadata", "namespace", value="far").build()
        )
    )
    before = [snapshot.peer_stamp(info) for info in (web, db, other)]
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    shy = make_pod("s").labelled(app="shy").with_("spec", "affinity", value=rules).build()
    info = snapshot.intern(from_pod(shy))
    now = [snapshot.peer_stamp(info) for info in (web, db, other)]
    assert now == [before[0] + 1, before[1], before[2]]
    assert [snapshot.has_term_about(one) for one in (web, db, other)] == [True, False, False]
    assert list(snapshot.anti_affinity_keys(web)) == ["kubernetes.io/hostname"]
    assert set(term_anchors(info.anti_affinity[0])) <= set(anchors_of(web))
    assert anchors(info.anti_affinity[0].selector, None) == ((None, "app", "web"),)


def meta(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace}


def change_what_is_selected(snapshot: Snapshot, dice: random.Random) -> None:
    """Add, change or remove a Service or a ReplicaSet."""
    name, namespace = f"w{dice.randrange(3)}", dice.choice(["default", "far"])
    labels = dice.choice([{}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}])
    match dice.randrange(6):
        case 0:
            snapshot.remove_service(namespace, name)
        case 1:
            snapshot.remove_controller("ReplicaSet", namespace, name)
        case 2 | 3:
            service = {"metadata": meta(name, namespace), "spec": {"selector": labels}}
            snapshot.set_service(msgspec.convert(service, Service))
        case _:
            controller = {
                "metadata": meta(name, namespace), "spec": {"selector": {"matchLabels": labels}},
            }  # fmt: skip
            snapshot.set_controller(msgspec.convert(controller, ReplicaSet))


def class_of(snapshot: Snapshot, dice: random.Random) -> PodInfo:
    """Return a class that Services may select, and that a ReplicaSet may own."""
    pod = (
        make_pod("p")
        .asks(cpu=f"{dice.randrange(1, 4)}00m")
        .labelled(app=dice.choice("ab"), tier=dice.choice("xy"))
    )
    pod = pod.with_("metadata", "namespace", value=dice.choice(["default", "far"]))
    if dice.random() < 0.5:
        owner = {
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"w{dice.randrange(3)}",
            "uid": "u", "controller": True,
        }  # fmt: skip
        pod = pod.with_("metadata", "ownerReferences", value=[owner])
    return snapshot.intern(from_pod(pod.build()))


@pytest.mark.parametrize("seed", range(10))
def test_classes_are_spread_by_what_selects_them_now(seed: int) -> None:
    """And a Service or controller changes the stamps of those alone that it can mean."""
    dice = random.Random(seed)
    snapshot, plugin = Snapshot(), PodTopologySpread()
    for _ in range(60):
        class_of(snapshot, dice)
        before = [
            (snapshot.peer_stamp(info), snapshot.default_selector(info))
            for info in snapshot.classes
        ]
        change_what_is_selected(snapshot, dice)
        kept = 0
        for info, (stamp, selector) in zip(snapshot.classes, before, strict=True):
            now = snapshot.default_selector(info)
            spread = plugin._constraints(info, snapshot).soft_counted()
            assert {one for _, one in spread} == (set() if now is None else {now})
            if now != selector:
                assert snapshot.peer_stamp(info) > stamp
            kept += snapshot.peer_stamp(info) == stamp
        assert kept or len(before) < 20, "classes of the other namespace at least are left alone"


def test_a_new_service_lets_other_classes_stay_compiled() -> None:
    snapshot, framework = Snapshot(), kubernetes_framework()
    for number in range(4):
        snapshot.set_node(make_node(f"n{number}").build())
    decider = Decider(snapshot, framework)
    infos = [
        snapshot.intern(from_pod(make_pod("p").asks(cpu="1m").labelled(app=app).build()))
        for app in "ab"
    ]
    versions = decider._lane._versions()
    stamps = [snapshot.peer_stamp(info) for info in infos]
    for app in "bc":
        service = {"metadata": meta(app, "default"), "spec": {"selector": {"app": app}}}
        snapshot.set_service(msgspec.convert(service, Service))
    pods = [PodToPlace(f"default/{at}", info) for at, info in enumerate(infos)]
    schedule_batch(snapshot, framework, pods, Options(seed=1), decider=decider)
    assert decider._lane._versions() == versions
    assert [snapshot.peer_stamp(info) - was for info, was in zip(infos, stamps, strict=True)] == [
        0, 1,
    ]  # fmt: skip


def test_classes_that_a_service_renews_are_compiled_together_again() -> None:
    snapshot = Snapshot()
    for number in range(4):
        snapshot.set_node(make_node(f"n{number}").build())
    lane = Decider(snapshot, kubernetes_framework())._lane
    pod = make_pod("p").asks(cpu="1m")
    infos = [
        snapshot.intern(from_pod(pod.labelled(app="web", tier="x", kind=kind).build()))
        for kind in "abcd"
    ]

    def compiled() -> list[bool]:
        return [lane._ahead._compiled(info, lane._versions()) is not None for info in infos]

    for name, labels in (("first", {"app": "web"}), ("second", {"tier": "x"})):
        service = {"metadata": meta(name, "default"), "spec": {"selector": labels}}
        snapshot.set_service(msgspec.convert(service, Service))
        assert not any(compiled())
        for _ in range(2):  # the first of all makes labels known
            made = lane._compiler.compile(infos[0], lane._versions())
            infos[0].memo[lane._memo_key] = made
            lane._ahead._compile_alike(infos, lane._versions())
        assert all(compiled()), name


@pytest.mark.parametrize("seed", range(10))
def test_counters_follow_the_labels_of_namespaces(seed: int) -> None:
    """Whoever selects namespaces, and whenever they come, change and go."""
    dice = random.Random(seed)
    snapshot, framework = Snapshot(), kubernetes_framework()
    snapshot.set_node(make_node("n0").build())
    (plugin,) = [one for one in framework.pre_filter_plugins if one.name == "InterPodAffinity"]
    for step in range(30):
        name = f"ns-{dice.randrange(4)}"
        if dice.random() < 0.2:
            snapshot.remove_namespace(name)
        else:
            snapshot.set_namespace(name, {"team": dice.choice("ab")})
        pod = make_pod("p").labelled(app=dice.choice("ab"))
        pod = pod.with_("metadata", "namespace", value=f"ns-{dice.randrange(4)}")
        if step > 10 and dice.random() < 0.4:
            term = {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": dice.choice("ab")}},
                "namespaceSelector": {"matchLabels": {"team": dice.choice("ab")}},
            }
            rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            pod = pod.with_("spec", "affinity", value=rules)
        snapshot.assume(("pod", step), snapshot.intern(from_pod(pod.build())), 0)
        for info in snapshot.classes:
            about = any(
                term.means(info, snapshot.labels_of_namespace)
                for other in snapshot.classes
                for term in other.anti_affinity
            )
            assert snapshot.has_term_about(info) == about
            plugin.affinity_terms(info, snapshot)
        for counter in snapshot._counters.values():
            for info in snapshot.classes:
                found = [w for c, w in snapshot.counted_by(info) if c is counter]
                assert found == ([counter.weigh(info)] if counter.weigh(info) else [])
    assert snapshot._counters


def test_a_plugins_counter_follows_the_labels_of_the_namespaces_that_it_looks_at() -> None:
    """Those of other packages may, also where no pod's affinity selects namespaces."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("n0").build())
    snapshot.set_namespace("looked-at", {"team": "a"})
    pod = make_pod("p").with_("metadata", "namespace", value="looked-at")
    snapshot.assume("p", snapshot.intern(from_pod(pod.build())), 0)

    def of_team_a(other: PodInfo) -> int:
        return int((snapshot.namespace_labels(other.namespace) or {}).get("team") == "a")

    def counted() -> int:
        return snapshot.counter("of team a", of_team_a, live_only=False).total

    assert counted() == 1
    version = snapshot.peer_version
    snapshot.set_namespace("another", {"team": "a"})
    assert snapshot.peer_version == version
    snapshot.set_namespace("looked-at", {"team": "b"})
    assert counted() == 0
    assert snapshot.peer_version > version
