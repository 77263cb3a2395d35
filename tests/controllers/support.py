"""Short ways to a cluster in PostgreSQL, with a clock that stands still."""

import datetime as dt
from typing import Any

from clusterstate.actions import objects
from clusterstate.actions.evictions import FiredTimers
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.writing.stored import StoredObject
from clusterstate.change_log import changes
from clusterstate.queries.evictions.eviction_timers import due_taints, unforeseen, waiting_timers
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.pods import find_pod_id, pods_by_id
from scheduling.controllers.evictions import firing, timers
from scheduling.framework.configuration.documents import default_configuration
from scheduling.processes import landings
from scheduling.worker.scheduler import Scheduler
from tests.clock import NOW, after
from tests.creating import create_pod


def schedule(now: dt.datetime) -> None:
    """Run the scheduler from a cold start until nothing is left to try."""
    scheduler = Scheduler(default_configuration(), lambda: 7)
    scheduler.load(now.timestamp())
    while scheduler.cycle(now.timestamp()):
        scheduler.binder.finish_batch(now.timestamp())
    scheduler.binder.finish_batch(now.timestamp())
    scheduler.binder.write_records(now.timestamp())


def taint(key: str = "key", effect: str = "NoExecute", value: str = "") -> dict[str, str]:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def tolerates(key: str = "key", *, seconds: int | None = None, **more: str) -> dict[str, Any]:
    return {
        "key": key,
        "operator": "Exists",
        "effect": "NoExecute",
        **({} if seconds is None else {"tolerationSeconds": seconds}),
        **more,
    }


def make_node(name: str, *, taints: Any = (), now: dt.datetime = NOW, **metadata: Any) -> None:
    objects.create(
        "Node",
        "",
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, **metadata},
            "spec": {"taints": list(taints)} if taints else {},
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
        },
        now=now,
    )


def make_owner(kind: str, name: str, count: int, *, app: str = "web", **spec: Any) -> None:
    """Create a ReplicaSet, or what else asks for so many pods with the label ``app``."""
    labels = {"app": app}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
            },
            **spec,
        },
    }
    objects.create(kind, "default", manifest, now=NOW)


def pod_manifest(name: str, *, now: dt.datetime = NOW, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", **spec.pop("metadata", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}], **spec},
    }


def make_pod(name: str, node: str = "", *, now: dt.datetime = NOW, **spec: Any) -> int:
    """Create a pod, bound to the node if one is named, and return its id."""
    create_pod(pod_manifest(name, **spec), now=now)
    pod_id = find_pod_id("default", name)
    assert pod_id is not None
    if node:
        bind(pod_id, node, now=now)
    return pod_id


def bind(pod_id: int, node: str, *, now: dt.datetime = NOW) -> None:
    found = bind_pods([Binding(pod_id, node)], snapshot_revision=changes.watermark(), now=now)
    assert found.bound


def set_taints(node: str, *taints: dict[str, str], now: dt.datetime = NOW) -> StoredObject:
    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        return {**manifest, "spec": {**(manifest.get("spec") or {}), "taints": list(taints)}}

    return objects.update("Node", "", node, change, now=now)


def set_labels(node: str, now: dt.datetime = NOW, **labels: str) -> None:
    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        return {**manifest, "metadata": {**manifest["metadata"], "labels": labels}}

    objects.update("Node", "", node, change, now=now)


def tolerate_too(name: str, toleration: dict[str, Any], *, now: dt.datetime = NOW) -> None:
    """Add a toleration, which Kubernetes allows for a pod that runs."""

    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        spec = manifest["spec"]
        return {
            **manifest,
            "spec": {**spec, "tolerations": [*spec.get("tolerations", ()), toleration]},
        }

    objects.update("Pod", "default", name, change, now=now)


def pod(name: str) -> dict[str, Any] | None:
    found = find_object("Pod", "default", name)
    return None if found is None else decode_object(found)


def timer(name: str) -> float | None:
    """Follow the log; return after how many seconds the pod must leave, None for never."""
    timers.follow(NOW)
    found = waiting_timers(namespace="default", name=name)
    return (found[0].due_at - NOW).total_seconds() if found else None


def fire(now: dt.datetime) -> FiredTimers:
    """Evict one batch of what is due, here; ``workers`` does that on several connections."""
    labels = firing.fire_executions(now)
    taints = firing.fire_taints(due_taints(now, limit=firing.BATCH), now)
    return FiredTimers(
        labels.evicted + taints.evicted,
        labels.changed + taints.changed,
        labels.busy + taints.busy,
        labels.news + taints.news,
        labels.due_at + taints.due_at,
    )


def evict(seconds: float) -> list[str]:
    """Let the clock stand so many seconds later; return who was evicted."""
    now = after(seconds)
    timers.follow(now)
    if unforeseen(now, limit=1):
        landings.foresee(now)
    done = fire(now)
    timers.follow(now)
    rows = pods_by_id(done.evicted)
    return sorted(row.name for row in rows.values())


def terminating(name: str) -> bool:
    found = pod(name)
    assert found is not None
    return "deletionTimestamp" in found["metadata"]
