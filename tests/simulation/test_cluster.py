"""A cluster in virtual time wakes whom the live queue would wake."""

from collections.abc import Sequence

import pytest

from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.simulation.cluster import VirtualCluster
from tests.builders import PodBuilder, make_node, make_pod

NOMINATED, LOW, HIGH = 1, 2, 3


class Cluster:
    """One node of 4 CPUs with the label ``disk``, and a pod nominated for it that needs that.

    Two pods waited for room beside it and were refused: of lower priority, and of higher.
    """

    def __init__(self) -> None:
        self.where: dict[int, str] = {}
        self.tried: list[int] = []
        self.made_room: list[int] = []
        self.snapshot = Snapshot()
        self.node = make_node("n1").offers(cpu="4", memory="8Gi", pods="10")
        self.snapshot.set_node(self.node.labelled(disk="ssd").build())
        self.cluster = VirtualCluster(
            self.snapshot, default_configuration(), seeds=lambda: 0, observer=self, now=0.0
        )
        wanted = self.info(make_pod("nominated").asks(cpu="3").selects(disk="ssd").priority(5))
        self.snapshot.nominate(NOMINATED, wanted, "n1")
        self.wanted = wanted
        self.cluster.add(LOW, self.info(make_pod("low").asks(cpu="2")))
        self.cluster.add(HIGH, self.info(make_pod("high").asks(cpu="5").priority(10)))
        self.cluster.cycle()
        assert self.tried == [HIGH, LOW]
        assert not self.where
        self.tried.clear()

    def info(self, pod: PodBuilder) -> PodInfo:
        return self.snapshot.intern(from_pod(pod.build()))

    def go_on(self) -> None:
        self.cluster.now += 20.0
        while self.cluster.cycle():
            pass

    # What the cluster tells.

    def decided(self, decisions: Sequence[Decision]) -> None:
        self.tried += [one.key for one in decisions if isinstance(one.key, int)]

    def placed(self, pod_ids: Sequence[int], node_names: Sequence[str]) -> None:
        self.where |= dict(zip(pod_ids, node_names, strict=True))

    def refused(self, pod_id: int, decision: Decision) -> None: ...

    def preempts(self, pod_id: int, node_name: str, victims: Sequence[PodRecord]) -> None:
        self.made_room.append(pod_id)


def test_a_pod_that_is_refused_gives_away_the_room_that_it_was_nominated_for() -> None:
    """Rule: eventhandlers.go ``hasNominatedNodeNameChanged``, v1.36."""
    world = Cluster()
    world.cluster.set_node(world.node.build())  # which the nominated pod does not fit any more
    world.cluster.add(NOMINATED, world.wanted)
    world.go_on()
    assert world.where == {LOW: "n1"}
    assert world.tried == [NOMINATED, LOW], "nothing changed for the pod of higher priority"


@pytest.mark.parametrize("waits", [True, False])
def test_a_nominated_pod_that_goes_gives_its_room_away(waits: bool) -> None:
    world = Cluster()
    if waits:
        world.cluster.add(NOMINATED, world.wanted)
    world.cluster.leave(NOMINATED)
    world.go_on()
    assert world.where == {LOW: "n1"}
    assert world.tried == [LOW]


@pytest.mark.parametrize("priority", [4, 5, 6])
def test_who_makes_room_on_a_node_ends_nominations_of_lower_priority_there(priority: int) -> None:
    """Rule: preemption/executor.go ``getLowerPriorityNominatedPods``, v1.36."""
    world = Cluster()
    world.snapshot.add_pod("there", world.info(make_pod("there").asks(cpu="4")), "n1")
    world.cluster.add(4, world.info(make_pod("comes").asks(cpu="1").priority(priority)))
    world.cluster.cycle()
    assert world.made_room == [4]
    assert world.snapshot.nominated_node_of(NOMINATED) == ("" if priority > 5 else "n1")


def test_a_nominated_pod_that_is_placed_gives_nothing_away() -> None:
    world = Cluster()
    world.cluster.add(NOMINATED, world.wanted)
    world.go_on()
    assert world.where == {NOMINATED: "n1"}
    assert world.tried == [NOMINATED]


def test_a_claim_that_is_given_back_lets_its_pod_find_another_node() -> None:
    """As live: PostFilter of DynamicResources, and the event that the claim changed."""
    world = Cluster()
    world.snapshot.set_node(make_node("n2").offers(cpu="4", memory="8Gi", pods="10").build())
    devices = world.snapshot.devices
    devices.set("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}})
    for node in ("n1", "n2"):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.io", "nodeName": node, "pool": pool, "devices": [{"name": "a"}]}
        devices.set("ResourceSlice", {"metadata": {"name": node}, "spec": spec})
    held = {"driver": "d.io", "pool": "n1", "device": "a", "request": "r"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    allocation = {
        "devices": {"results": [held]}, "nodeSelector": {"nodeSelectorTerms": [term]},
    }  # fmt: skip
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    claim = {
        "metadata": {"name": "c", "namespace": "default", "uid": "u"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {"allocation": allocation},
    }
    devices.set("ResourceClaim", claim)
    entry = {"name": "c", "resourceClaimName": "c"}
    pod = make_pod("claims").asks(cpu="3").append("spec", "resourceClaims", value=entry)
    world.snapshot.add_pod("full", world.info(make_pod("full").asks(cpu="2")), "n1")
    world.cluster.add(4, world.info(pod))
    world.cluster.cycle()
    assert 4 not in world.where
    assert "status" not in devices.claims["default", "c"]
    world.go_on()
    assert world.where[4] == "n2"
