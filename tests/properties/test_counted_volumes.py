"""Pods whose bound volumes count: the loop decides what the reference path decides."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusterstate.objects.values.meta import Manifest, ObjectMeta
from clusterstate.objects.values.storage import KINDS, StorageClass
from scheduling.engine.deciding import Decider
from scheduling.engine.fast import fast_lane
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.attached_volumes import AttachedVolumes
from tests.builders import make_node, make_pod
from tests.engine import lanes
from tests.harness import kubernetes_framework
from tests.perf.workloads import HOSTNAME, ZONE

DRIVERS = ("ebs.csi.aws.com", "other.csi.example.com", "unlimited.csi.example.com")
NODES = 4


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> Iterator[None]:
    with lanes.only(fast_lane):
        yield


# A claim is a number; of it follow its driver, its zone, and whether it is shared or missing.
CLAIMS = st.integers(0, 11)
PODS = st.tuples(
    st.lists(CLAIMS, max_size=3, unique=True),
    st.sampled_from(["", "200m", "1"]),
    st.sampled_from(["", "", "spread", "device"]),
)
BATCHES = st.lists(st.tuples(PODS, st.integers(1, 3)), min_size=1, max_size=6).map(
    lambda found: [pod for pod, times in found for _ in range(times)]
)
STEPS = st.one_of(
    st.tuples(st.just("decide"), BATCHES),
    st.tuples(st.just("limit"), st.tuples(st.integers(0, NODES - 1), st.integers(0, 3))),
    st.tuples(st.just("leave"), st.integers(0, 20)),
    st.tuples(st.just("move"), st.tuples(st.integers(0, 20), st.integers(0, NODES - 1))),
    st.tuples(st.just("node"), st.integers(0, NODES - 1)),
    st.tuples(st.just("no node"), st.integers(0, NODES - 1)),
    st.tuples(st.just("attach"), st.tuples(st.integers(0, NODES - 1), CLAIMS)),
    st.tuples(st.just("claim"), st.tuples(CLAIMS, st.integers(0, 20))),
    st.tuples(st.just("no claim"), CLAIMS),
    st.tuples(st.just("nominate"), st.tuples(PODS, st.integers(0, NODES - 1))),
)


class World:
    """A cluster with volumes, of which one is decided in loops and one is not."""

    def __init__(self, *, quick: bool) -> None:
        self.snapshot = Snapshot(capacity=64)
        for number in range(NODES):
            self.do("node", number)
            self.do("limit", (number, number % 3))
        for number in range(12):
            self.do("claim", (number, number))
        slices = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        devices = self.snapshot.devices
        devices.set("DeviceClass", {"metadata": {"name": "any"}, "spec": {}})
        of_one = {"driver": "d", "pool": slices, "nodeName": "n1", "devices": [{"name": "d0"}]}
        devices.set("ResourceSlice", {"metadata": {"name": "s"}, "spec": of_one})
        self.framework = kubernetes_framework()
        self.decider = Decider(self.snapshot, self.framework) if quick else None
        self.made = 0
        self.keys: list[str] = []

    def set(self, kind: str, name: str, spec: Manifest, **more: Any) -> None:
        namespace = "default" if kind == "PersistentVolumeClaim" else ""
        meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **more}
        self.snapshot.set_object(msgspec.convert({"metadata": meta, "spec": spec}, KINDS[kind]))

    def claim(self, number: int, volume: int) -> None:
        """Bind a claim to a volume; two claims may name one, and of some the volume is missing."""
        spec: Manifest = {
            "csi": {"driver": DRIVERS[number % 3], "volumeHandle": f"handle-{volume}"},
            "claimRef": {"namespace": "default", "name": f"c{number}", "uid": f"uid-c{number}"},
        }
        if number % 4 == 1:
            term = {"key": ZONE, "operator": "In", "values": [f"z{number % 2}"]}
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            }
        labels = {ZONE: "z1"} if number % 4 == 2 else {}
        self.set("PersistentVolume", f"v{volume}", spec, labels=labels)
        bound = {"pv.kubernetes.io/bind-completed": "true"}
        of_claim = {"volumeName": f"v{volume}", "storageClassName": ""}
        self.set("PersistentVolumeClaim", f"c{number}", of_claim, annotations=bound)

    def pod(self, wanted: tuple[list[int], str, str]) -> PodToPlace:
        claims, cpu, more = wanted
        name = f"pod{self.made}"
        self.made += 1
        pod = make_pod(name).labelled(app="a").asks(**({"cpu": cpu} if cpu else {}))
        volumes = [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
            for number in claims
        ]
        pod = pod.with_("spec", "volumes", value=volumes)
        if more == "spread":
            constraint = {
                "maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "a"}},
            }  # fmt: skip
            pod = pod.with_("spec", "topologySpreadConstraints", value=[constraint])
        if more == "device":
            asked = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
            spec = {"devices": {"requests": [{"name": "r", "exactly": asked}]}}
            meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
            self.snapshot.devices.set("ResourceClaim", {"metadata": meta, "spec": spec})
            entries = [{"name": "c", "resourceClaimName": name}]
            pod = pod.with_("spec", "resourceClaims", value=entries)
        return PodToPlace(name, self.snapshot.intern(from_pod(pod.build())))

    def do(self, step: str, what: Any) -> list[Any]:
        """Take a step; return what must be the same in both worlds."""
        snapshot = self.snapshot
        if step == "node":
            node = make_node(f"n{what}").offers(cpu=str(1 + what), memory="8Gi")
            node = node.labelled({ZONE: f"z{what % 2}"} if what else {})
            snapshot.set_node(node.build())
        elif step == "no node":
            snapshot.remove_node(f"n{what}")
        elif step == "limit":
            name, count = f"n{what[0]}", what[1]
            drivers = [
                {"name": driver, "nodeID": name, "allocatable": {"count": count + at}}
                for at, driver in enumerate(DRIVERS[:2])
            ]
            self.set("CSINode", name, {"drivers": drivers[: 3 - count]})
        elif step == "claim":
            self.claim(*what)
        elif step == "no claim":
            snapshot.remove_object("PersistentVolumeClaim", "default", f"c{what}")
        elif step == "attach":
            node, volume = what
            source = {"persistentVolumeName": f"v{volume}"}
            spec = {"attacher": DRIVERS[volume % 3], "nodeName": f"n{node}", "source": source}
            self.set("VolumeAttachment", f"a{node}-{volume}", spec)
        elif step == "leave" and what < len(self.keys):
            snapshot.remove_pod(self.keys[what])
        elif step == "move" and what[0] < len(self.keys):
            # As the log tells of a pod that was made again by its name, and bound by another.
            key = self.keys[what[0]]
            if (found := snapshot.pod(key)) is not None:
                snapshot.remove_pod(key)
                snapshot.add_pod(key, found.info, f"n{what[1]}")
        elif step == "nominate":
            pod = self.pod(what[0])
            snapshot.nominate(pod.key, pod.info, f"n{what[1]}")
        elif step == "decide":
            waiting = [self.pod(one) for one in what]
            made = schedule_batch(
                snapshot, self.framework, waiting, Options(seed=3, preempt=False),
                decider=self.decider,
            )  # fmt: skip
            self.keys += [str(one.key) for one in made if one.scheduled]
            return [
                (one.node_name, one.total, one.plugins, one.rejections, one.message) for one in made
            ]
        return []


ALONE = [([number], "", "") for number in range(12)]


@example((ALONE, [("leave", 1), ("decide", ALONE)]))
@example(([([0], "", "device"), ([1], "", "device"), ([2], "", "spread")], []))
@example(([], [("nominate", (([0], "", ""), 1)), ("decide", [([6], "", "")])]))
@example(([([0], "", ""), ([1], "", ""), ([1], "", "")], [("no claim", 1), ("limit", (3, 1))]))
@example((ALONE[3:4], [("limit", (1, 0)), ("limit", (2, 0)), ("decide", ALONE[:1])]))
@example((ALONE[:4], [("move", (0, 3)), ("move", (0, 0)), ("decide", ALONE[6:])]))
@given(st.tuples(BATCHES, st.lists(STEPS, max_size=8)))
def test_the_loop_counts_volumes_as_the_reference_path_does(
    world: tuple[list[Any], list[Any]],
) -> None:
    first, after = world
    quick, plain = World(quick=True), World(quick=False)
    for step, what in [("decide", first), *after]:
        assert quick.do(step, what) == plain.do(step, what), step
        anew = AttachedVolumes()
        anew.follow(quick.snapshot, lambda row: None)
        assert counts(quick.snapshot.attached_volumes()) == counts(anew), step


def counts(attached: AttachedVolumes) -> Any:
    """Return what is attached where, and the limits, without drivers of which there is nothing."""
    used = {driver: found.tolist() for driver, found in attached.used.items() if found.any()}
    limits = {
        driver: found.tolist()
        for driver, found in attached.limits.items()
        if found.min() < found.max()
    }
    return used, limits, attached.at


def test_a_class_of_a_missing_volume_counts_by_the_driver_that_it_has_now() -> None:
    world = World(quick=False)
    bound = {"pv.kubernetes.io/bind-completed": "true"}
    of_claim = {"volumeName": "gone", "storageClassName": "made"}
    world.set("PersistentVolumeClaim", "c0", of_claim, annotations=bound)
    placed = world.pod(([0], "", ""))
    world.snapshot.add_pod(placed.key, placed.info, "n1")
    for driver in DRIVERS[:2]:
        made = StorageClass(metadata=ObjectMeta(name="made"), provisioner=driver)
        world.snapshot.set_object(made)
        used = world.snapshot.attached_volumes().used
        assert [name for name, column in used.items() if column.any()] == [driver]


def test_pods_with_volumes_of_their_own_are_decided_in_one_run() -> None:
    world = World(quick=True)
    assert world.decider is not None
    waiting = [world.pod(one) for one in ALONE[:4]]
    run = world.decider.decide_run(waiting, 0, Options(seed=3))
    assert len(run) == 4
