"""A Deployment in memory: the rules of Deployments and ReplicaSets without a database.

``Cluster`` plays what carries the writes out, and the agents that report pods ready.
"""

import datetime as dt
from typing import Any

import msgspec

from clusterstate.objects.values import document
from scheduling.controllers.workloads import deployment_records as records
from scheduling.controllers.workloads import deployment_rules as rules
from scheduling.controllers.workloads import deployment_status, replica_set_rules
from scheduling.controllers.workloads.pods import OwnedPod, surplus
from tests.clock import NOW


def template(image: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "web", **labels}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }


def deployment(replicas: int = 10, image: str = "nginx:1", **spec: Any) -> dict[str, Any]:
    """Return a Deployment as it is stored, with Kubernetes' defaults."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(image),
            "strategy": rolling("25%", "25%"),
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            **spec,
        },
    }


def rolling(surge: int | str, unavailable: int | str) -> dict[str, Any]:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


class Cluster:
    """One Deployment, its ReplicaSets and their pods, on a clock of its own."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.deployment = manifest
        self.sets: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, list[OwnedPod]] = {}
        self.now = NOW
        self.events: list[str] = []
        self._number = 0

    # What is there ----------------------------------------------------------------------------

    def active(self) -> list[OwnedPod]:
        return [pod for pods in self.pods.values() for pod in pods if pod.is_active]

    def available(self) -> int:
        patience = self.deployment["spec"].get("minReadySeconds", 0)
        return sum(pod.is_available(patience, self.now) for pod in self.active())

    def sizes(self) -> dict[str, int]:
        """Return how many replicas each ReplicaSet is asked for, by its image, without empty."""
        return {
            one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"]
            for one in self.sets.values()
            if one["spec"]["replicas"]
        }

    def condition(self, type_: str) -> tuple[str, str] | None:
        found = deployment_status.condition(self.status, type_)
        return None if found is None else (found["status"], found["reason"])

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.deployment.get("status") or {}
        return found

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.deployment["metadata"].setdefault("annotations", {})
        return found

    # What a client does -----------------------------------------------------------------------

    def edit(self, **spec: Any) -> None:
        self.deployment["spec"] = {**self.deployment["spec"], **spec}
        self.deployment["metadata"]["generation"] += 1

    def roll_to(self, image: str) -> None:
        self.edit(template=template(image))

    # What goes on -----------------------------------------------------------------------------

    def later(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)

    def reconcile(self) -> rules.DeploymentWrites:
        busy = {uid for uid, pods in self.pods.items() if any(_lives(pod) for pod in pods)}
        return rules.reconcile(
            self.deployment,
            map(records.replica_set_of, self.sets.values()),
            busy=busy,
            now=self.now,
        )

    def step(self) -> rules.DeploymentWrites:
        """Let the ReplicaSets see their pods, the Deployment act once, and its ReplicaSets."""
        for name in self.sets:
            self._sync(name)
        actions = self.reconcile()
        if actions.created is not None:
            self._number += 1
            metadata = {
                **actions.created["metadata"],
                "uid": f"rs{self._number}",
                "generation": 1,
                "creationTimestamp": document.format_time(NOW + dt.timedelta(seconds=self._number)),
            }
            self.sets[metadata["name"]] = {**actions.created, "metadata": metadata}
            self.pods[metadata["uid"]] = []
        for one in actions.changed:
            stored = self.sets[one.name]
            stored["spec"]["replicas"] = one.replicas
            stored["spec"]["minReadySeconds"] = one.min_ready_seconds
            stored["metadata"]["annotations"] = one.annotations
        for one in actions.deleted:
            del self.pods[self.sets.pop(one.name)["metadata"]["uid"]]
        self.events += [message for _, _, message in actions.events]
        if actions.revision is not None:
            self.annotations[records.REVISION] = actions.revision
        self.deployment["status"] = actions.status
        for name in self.sets:
            self._sync(name)
        return actions

    def _sync(self, name: str) -> None:
        one = self.sets[name]
        uid = one["metadata"]["uid"]
        active = [pod for pod in self.pods[uid] if pod.is_active]
        short = replica_set_rules.missing(one, len(active))
        if short < 0:
            gone = {pod.id for pod in surplus(active, -short, related=active, now=self.now)}
            self.pods[uid] = [pod for pod in self.pods[uid] if pod.id not in gone]
        for _ in range(short):
            self._number += 1
            labels = one["spec"]["template"]["metadata"]["labels"]
            pod = OwnedPod(
                id=self._number, uid=f"p{self._number}", name=f"p{self._number}", owner=uid,
                labels=labels, created_at=self.now,
            )  # fmt: skip
            self.pods[uid].append(pod)
        counts, _ = replica_set_rules.count(one, self.pods[uid], created=0, now=self.now)
        one["status"] = replica_set_rules.status(one, counts, short=0, error="", now=self.now)
        one["status"]["observedGeneration"] = one["metadata"]["generation"]

    def start(self, count: int | None = None) -> None:
        """Let pods become ready: the oldest that are not, or all."""
        waiting = sorted(
            (pod for pod in self.active() if not pod.is_ready), key=lambda pod: pod.id
        )[:count]
        for pod in waiting:
            self._change(pod, phase="Running", node_name="n", ready_at=self.now)

    def break_one(self, image: str) -> None:
        """Let one ready pod of this image stop being ready, for good."""
        for one in self.sets.values():
            if one["spec"]["template"]["spec"]["containers"][0]["image"] == image:
                ready = [pod for pod in self.pods[one["metadata"]["uid"]] if pod.is_ready]
                self._change(ready[0], ready_at=None)
                return

    def delete_slowly(self) -> None:
        """Mark all active pods as leaving."""
        for pod in self.active():
            self._change(pod, is_leaving=True)

    def end_leaving(self) -> None:
        for uid, pods in self.pods.items():
            self.pods[uid] = [pod for pod in pods if not pod.is_leaving]

    def _change(self, pod: OwnedPod, **fields: Any) -> None:
        pods = self.pods[pod.owner]
        pods[pods.index(pod)] = msgspec.structs.replace(pod, **fields)

    def _picture(self) -> tuple[Any, ...]:
        active = self.active()
        return self.sizes(), self.status, len(active), sum(pod.is_ready for pod in active)

    def settle(self, rounds: int = 60) -> None:
        """Let everything go on, pods become ready, until nothing changes any more."""
        for _ in range(rounds):
            before = self._picture()
            self.step()
            self.start()
            if before == self._picture():
                return
        raise AssertionError(f"never settled: {self.sizes()}")


def _lives(pod: OwnedPod) -> bool:
    return pod.phase not in ("Succeeded", "Failed")


def settled(manifest: dict[str, Any]) -> Cluster:
    """Return a Deployment that is rolled out completely."""
    cluster = Cluster(manifest)
    cluster.settle()
    return cluster
