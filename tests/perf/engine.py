"""A workload on the decision core alone: no database, no network, one thread."""

import resource
import time
from collections.abc import Callable
from typing import Any

import msgspec

from clusterstate.objects.dra.claimcontroller import new_claim
from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.storage import KINDS as VOLUME_KINDS
from clusterstate.objects.values.workloads import Service
from clusterstate.processes import collector
from scheduling.engine import deciding
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_class
from scheduling.framework.configuration.documents import default_configuration
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo
from scheduling.plugins.catalogue import build_framework
from tests.perf.workloads import Manifest, Template, Workload

_BATCH = 1000
_CHURN_BATCH = 100
"""Pods between two changes of the cluster, where a workload has such."""
Progress = Callable[[str], None]


class _World:
    """A snapshot and what it takes to place pods in it."""

    def __init__(self, workload: Workload, nodes: int) -> None:
        self.snapshot = Snapshot(capacity=nodes)
        for number in range(nodes):
            self.snapshot.set_node(msgspec.convert(workload.node(number), Node))
        if workload.service is not None:
            for number in range(workload.services):
                self.snapshot.set_service(msgspec.convert(workload.service(number), Service))
        for manifest in workload.objects(nodes):
            self._set(manifest)
        self._workload = workload
        self.framework: Framework = build_framework(default_configuration().profiles[0])
        self.decider = Decider(self.snapshot, self.framework)
        self._classes: dict[bytes, PodInfo] = {}
        self._draw = 0

    def _set(self, manifest: Manifest) -> None:
        kind = manifest["kind"]
        if kind in VOLUME_KINDS:
            self.snapshot.set_object(msgspec.convert(manifest, VOLUME_KINDS[kind]))
        else:
            self.snapshot.devices.set(kind, manifest)

    def info(self, manifest: Manifest) -> PodInfo:
        """Return the class of a pod, made when it is first met."""
        digest, spec = scheduling_class.encode(manifest)
        if digest not in self._classes:
            self._classes[digest] = self.snapshot.intern(from_class(digest, spec))
        return self._classes[digest]

    def pods(self, template: Template, first: int, count: int) -> list[PodToPlace]:
        """Return pods to place, parsed; what each needs beside it is made."""
        for number in range(first, first + count):
            for manifest in self._workload.objects_of(number):
                self._set(manifest)
        return [
            PodToPlace(("pod", number), self.info(self._with_claims(template(number))))
            for number in range(first, first + count)
        ]

    def _with_claims(self, manifest: Manifest) -> Manifest:
        """Make the claims of a pod that has some, as the controller of claims does."""
        template = self._workload.template_of_claims
        if template is None:
            return manifest
        name = manifest["metadata"]["name"]
        manifest["metadata"] |= {"namespace": "default", "uid": f"uid-of-{name}"}
        statuses = []
        for entry in manifest["spec"]["resourceClaims"]:
            claim = new_claim(manifest, "Pod", entry, lambda _: template)
            named = f"{name}-{entry['name']}"
            claim["metadata"] |= {"name": named, "uid": f"uid-of-{named}"}
            self.snapshot.devices.set("ResourceClaim", claim)
            statuses.append({"name": entry["name"], "resourceClaimName": named})
        manifest["status"] = {"resourceClaimStatuses": statuses}
        return manifest

    def place(self, pods: list[PodToPlace], *, preempt: bool = False) -> tuple[int, int]:
        """Decide in batches; return how many pods were placed, and how many preempt."""
        placed = nominated = 0
        churns = self._workload.relabel or self._workload.leave > 0
        size = _CHURN_BATCH if churns else _BATCH
        for start in range(0, len(pods), size):
            decisions = schedule_batch(
                self.snapshot, self.framework, pods[start : start + size],
                Options(seed=1, preempt=preempt), draw=self._draw, decider=self.decider,
            )  # fmt: skip
            self._draw += len(decisions)
            unplaced = decisions.unplaced()
            placed += len(decisions) - len(unplaced)
            for decision in unplaced:
                if decision.nomination is not None and decision.nomination.node_name:
                    nominated += 1
                    for victim in decision.nomination.victims:
                        self.snapshot.remove_pod(victim.key)
            if churns:
                self._churn(pods[start : start + size])
        return placed, nominated

    def _churn(self, batch: list[PodToPlace]) -> None:
        """Change the cluster as the workload has it, after a batch was placed."""
        if self._workload.relabel:
            manifest = self._workload.node(self._draw % self.snapshot.node_count)
            manifest["metadata"]["labels"]["bench/seen"] = str(self._draw)
            self.snapshot.set_node(msgspec.convert(manifest, Node))
        for pod in batch[: int(len(batch) * self._workload.leave)]:
            if self.snapshot.knows(pod.key):
                self.snapshot.remove_pod(pod.key)

    def shares(self) -> dict[str, float]:
        """Return which share of each resource that the workload asks about its nodes have given."""
        table = self.snapshot
        rows = table.rows()
        found = {}
        for name in self._workload.shares:
            column = table.resource(name)
            offered = int(table.allocatable[rows, column].sum())
            found[name] = round(int(table.requested[rows, column].sum()) / offered, 4)
        return found


def run(workload: Workload, nodes: int, *, say: Progress) -> dict[str, Any]:
    """Run a workload once and return its figures: decisions a second of wall and of CPU."""
    nodes = workload.node_count or nodes
    say(f"{workload.name}: {nodes} nodes")
    deciding.warm()
    world = _World(workload, nodes)
    init = workload.init(nodes)
    if init and workload.init_pod is not None:
        world.place(world.pods(workload.init_pod, 0, init))
    if workload.beside and workload.beside_pod is not None:
        world.place(world.pods(workload.beside_pod, 10_000_000, workload.beside))
    count = workload.measured(nodes)
    template = workload.template(nodes)
    pods = world.pods(template, init, count)
    if workload.warms and not workload.preempts:
        # The first pod of a class builds what the others use.
        world.place(world.pods(template, 20_000_000, min(workload.classes, 200)))
    collector.calm()  # as the scheduling worker does
    began, cpu = time.perf_counter(), time.process_time()
    placed, nominated = world.place(pods, preempt=workload.preempts)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "mode": "engine",
        "workload": workload.name,
        "nodes": nodes,
        "pods": count,
        "classes": workload.classes,
        "placed": placed,
        **({"shares": world.shares()} if workload.shares else {}),
        **({"preempted_for": nominated} if workload.preempts else {}),
        "seconds": round(wall, 4),
        "cpu_seconds": round(cpu, 4),
        "per_second": round(count / wall, 1),
        "per_cpu_second": round(count / cpu, 1) if cpu else None,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
