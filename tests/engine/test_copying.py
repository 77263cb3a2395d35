"""A copied snapshot decides as the original does, and neither sees the other's changes."""

from scheduling.engine.reference.cycle import Options, schedule_batch, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.engine.snapshot.requirements import from_pod
from tests.builders import make_node, make_pod
from tests.harness import kubernetes_framework, to_place

ZONE = "topology.kubernetes.io/zone"


def world(nodes: int = 12) -> Snapshot:
    snapshot = Snapshot(capacity=4)
    for n in range(nodes):
        node = make_node(f"node-{n}").in_zone(f"zone-{n % 3}").offers(cpu="4")
        snapshot.set_node(node.offers_also({"example.com/gpu": "2"}).build())
    for n in range(nodes):
        pod = make_pod(f"old-{n}").labelled(app=f"app-{n % 2}").asks(cpu="1")
        pod = pod.away_from(ZONE, 5, app="app-0").spread(ZONE, 2, hard=False, app="app-1")
        info = snapshot.intern(from_pod(pod.build()))
        snapshot.add_pod(f"default/old-{n}", info, f"node-{n % 5}")
    snapshot.set_namespace("default", {"team": "a"})
    return snapshot


def new_pods() -> list:
    spread = make_pod("a").labelled(app="app-1").spread(ZONE, 1, app="app-1")
    near = make_pod("b").near(ZONE, app="app-1").asks_also({"example.com/gpu": "1"})
    return [spread.build(), near.build(), make_pod("c").asks(cpu="3").build()]


def decisions(snapshot: Snapshot) -> list:
    framework = kubernetes_framework()
    pods = [to_place(snapshot, pod) for pod in new_pods()]
    found = schedule_batch(snapshot, framework, pods, Options(tie_break="first", full=True))
    return [(d.node_name, d.total, d.message, d.full) for d in found]


def test_a_copy_decides_alike() -> None:
    original = world()
    assert decisions(copy_snapshot(original)) == decisions(original)


def test_what_happens_to_a_copy_stays_there() -> None:
    original = world()
    pod = to_place(original, new_pods()[2])
    framework = kubernetes_framework()
    before = schedule_pod(original, framework, pod, Options(full=True))
    copy = copy_snapshot(original)
    decisions(copy)
    copy.remove_node("node-7")
    copy.set_node(make_node("node-3").tainted("a").offers_also({"example.com/fpga": "1"}).build())
    copy.remove_pod("default/old-1")
    copy.set_namespace("default", {})
    copy.nominate("x", copy.classes[0], "node-2")
    after = schedule_pod(original, framework, pod, Options(full=True))
    assert (after.node_name, after.full) == (before.node_name, before.full)
    assert original.pod("default/old-1") is not None
    assert original.labels_of_namespace("default") == {"team": "a"}
    assert not original.has_any_nomination


def test_what_happens_to_the_original_is_not_seen_by_the_copy() -> None:
    original = world()
    copy = copy_snapshot(original)
    before = decisions(copy_snapshot(original))
    decisions(original)
    original.remove_node("node-7")
    assert decisions(copy) == before


def test_a_copy_shares_what_nobody_changes() -> None:
    """The nodes, and the lenses of the classes: what would make a copy expensive."""
    original = world()
    copy = copy_snapshot(original)
    for row in range(original.node_count):
        assert copy.node(row) is original.node(row)
    for ours, theirs in zip(copy.classes, original.classes, strict=True):
        assert ours is not theirs
        assert ours.pod is theirs.pod
