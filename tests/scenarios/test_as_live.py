"""A cluster in virtual time decides as the live scheduler does: same world, pods and seed."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.database import sql
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.pods import find_pod_id
from scheduling.engine.reference.decision import Decision
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.types import PodRecord
from scheduling.simulation.cluster import VirtualCluster
from scheduling.simulation.preparing import Preparer, Ready
from scheduling.simulation.running import build_frameworks
from scheduling.simulation.world import Base, World
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW
from tests.creating import create_pod

pytestmark = pytest.mark.django_db

SEED = 7
STEPS = 8
ZONE = "topology.kubernetes.io/zone"
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
]
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "apart"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}

Happening = tuple[str, Any]


def node(name: str, chance: random.Random, *, taints: Sequence[Manifest] = ()) -> Manifest:
    cpu, zone = chance.choice(("2", "4", "8")), chance.choice(("a", "b"))
    offer = {"cpu": cpu, "memory": "16Gi", "pods": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, ZONE: zone}},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"allocatable": offer, "capacity": offer},
    }


def pod(name: str, chance: random.Random) -> Manifest:
    kind = chance.choice(("plain", "plain", "spread", "apart", "tolerant", "gated"))
    requests = {"cpu": chance.choice(("250m", "1", "2")), "memory": "256Mi"}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "nginx:1", "resources": {"requests": requests}}],
        "priorityClassName": chance.choice(("low", "low", "high")),
    }
    if kind == "spread":
        spec["topologySpreadConstraints"] = SPREAD
    elif kind == "apart":
        spec["affinity"] = APART
    elif kind == "tolerant":
        spec["tolerations"] = [{"key": "closed", "operator": "Exists"}]
    elif kind == "gated":
        spec["schedulingGates"] = [{"name": "example.com/later"}]
    meta = {"name": name, "namespace": "default", "labels": {"app": kind}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def story(seed: int) -> list[list[Happening]]:
    """Return what happens, step by step: nodes come, close and go; pods come and go."""
    chance = random.Random(seed)
    nodes = {f"n{number}": node(f"n{number}", chance) for number in range(5)}
    steps: list[list[Happening]] = [[("node", one) for one in nodes.values()]]
    pods: list[str] = []
    for step in range(STEPS):
        happenings: list[Happening] = []
        if pods and chance.random() < 0.6:
            happenings.append(("leave", pods.pop(chance.randrange(len(pods)))))
        if chance.random() < 0.5:
            name = chance.choice(sorted(nodes))
            closed = [{"key": "closed", "effect": "NoSchedule"}]
            now_closed = not nodes[name]["spec"].get("taints")
            nodes[name] = {**nodes[name], "spec": {"taints": closed} if now_closed else {}}
            happenings.append(("node", nodes[name]))
        if step == STEPS // 2:
            nodes["n9"] = node("n9", chance)
            happenings.append(("node", nodes["n9"]))
        for number in range(chance.randrange(1, 7)):
            name = f"p{step}-{number}"
            pods.append(name)
            happenings.append(("pod", pod(name, chance)))
        steps.append(happenings)
    return steps


class Live:
    """The real one: rows in PostgreSQL, the scheduler's cycle, and an agent that ends victims."""

    def __init__(self) -> None:
        self.scheduler = Scheduler(default_configuration(), lambda: SEED)
        self.loaded = False

    def do(self, happenings: Sequence[Happening], step: int) -> None:
        now = NOW + timedelta(seconds=20 * step)
        for what, told in happenings:
            if what == "pod":
                create_pod(told, now=now)
            elif what == "leave":
                if find_pod_id("default", told) is not None:
                    objects.delete("Pod", "default", told, {"gracePeriodSeconds": 0}, now=now)
            elif not sql.fetch_one(
                "SELECT 1 FROM node WHERE name = %s", (told["metadata"]["name"],)
            ):
                objects.create("Node", "", told, now=now)
            else:
                name, spec = told["metadata"]["name"], told["spec"]
                objects.update(
                    "Node", "", name, lambda old, spec=spec: {**old, "spec": spec}, now=now
                )
        if not self.loaded:
            self.scheduler.load(now.timestamp())
            self.loaded = True
        for _ in range(2):
            while self.scheduler.cycle(now.timestamp()):
                self.scheduler.binder.finish_batch(now.timestamp())
            self.scheduler.binder.finish_batch(now.timestamp())
            for (name,) in sql.fetch("SELECT name FROM pod WHERE deletion_at IS NOT NULL"):
                objects.delete("Pod", "default", name, {"gracePeriodSeconds": 0}, now=now)

    def places(self) -> dict[str, str]:
        return {
            name: get_manifest("Pod", "default", name)["spec"].get("nodeName", "")
            for (name,) in sql.fetch("SELECT name FROM pod")
        }


class Virtual:
    """The one without a database."""

    def __init__(self) -> None:
        self.world = World(Base(), admission=True)
        for name, value in (("low", 10), ("high", 1000)):
            policy = {"preemptionPolicy": "PreemptLowerPriority"}
            self.world.put("PriorityClass", {"metadata": {"name": name}, "value": value, **policy})
        self.cluster = VirtualCluster(
            self.world.snapshot, default_configuration(), seeds=lambda: SEED, observer=self,
            now=NOW.timestamp(),
        )  # fmt: skip
        self.preparer = Preparer(self.world, build_frameworks(default_configuration()))
        self.ids: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.where: dict[str, str] = {}
        self.victims: list[int] = []

    def do(self, happenings: Sequence[Happening], step: int) -> None:
        self.cluster.now = NOW.timestamp() + 20 * step
        for what, told in happenings:
            if what == "node":
                self.cluster.set_node(msgspec.convert(self.world.prepared(told), Node))
            elif what == "leave":
                self.leave(told)
            else:
                self.come(told)
        for _ in range(2):
            while self.cluster.cycle():
                pass
            victims, self.victims = self.victims, []
            for victim in victims:
                self.leave(self.names[victim])

    def come(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        self.ids[name] = len(self.ids) + 1
        self.names[self.ids[name]] = name
        self.where[name] = ""
        # PreEnqueue is asked by the queue, so a gated pod comes in as any other.
        gates = manifest["spec"].pop("schedulingGates", None)
        found = self.preparer.prepare(manifest, 0)
        assert isinstance(found, Ready), found
        if gates is None:
            self.cluster.add(self.ids[name], found.info)

    def leave(self, name: str) -> None:
        if name in self.where:
            self.cluster.leave(self.ids[name])
            del self.where[name]

    def places(self) -> dict[str, str]:
        return self.where

    # What the cluster tells.

    def decided(self, decisions: Sequence[Decision]) -> None:
        pass

    def placed(self, pod_ids: Sequence[int], node_names: Sequence[str]) -> None:
        for pod_id, node_name in zip(pod_ids, node_names, strict=True):
            self.where[self.names[pod_id]] = node_name

    def refused(self, pod_id: int, decision: Decision) -> None:
        assert decision.outcome == "unschedulable", decision.message

    def preempts(self, pod_id: int, node_name: str, victims: Sequence[PodRecord]) -> None:
        for victim in victims:
            self.cluster.terminate(victim, preempted=True)
            assert isinstance(victim.key, int)
            self.victims.append(victim.key)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 7, 8])
def test_virtual_and_live_place_alike(seed: int) -> None:
    """After every step each pod is on the same node, or waits in both; victims are the same.

    In five of these stories pods are preempted.
    """
    bootstrap.add_missing(now=NOW)
    for name, value in (("low", 10), ("high", 1000)):
        manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": name}, "value": value}  # fmt: skip
        objects.create("PriorityClass", "", manifest, now=NOW)
    live, virtual = Live(), Virtual()
    bound = 0
    for step, happenings in enumerate(story(seed)):
        told = msgspec.json.encode(happenings)
        live.do(msgspec.json.decode(told), step)
        virtual.do(msgspec.json.decode(told), step)
        assert virtual.places() == live.places(), f"after step {step}"
        bound += sum(map(bool, live.places().values()))
    assert bound > 0
    live.scheduler.binder.close()
