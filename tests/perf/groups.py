"""Groups of pods: one large gang, the shapes of Kueue's benchmark, a gang with very many victims.

The shapes are those of Kueue's ``test/performance/scheduler/configs/tas/generator.yaml`` (0.19):
640 nodes of 96 CPUs in ten racks of one block. Its balanced workloads ask for one rack here. A
workload ends when nine tenths of the CPUs are in use, the oldest first.
"""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import UTC, datetime
from random import Random
from typing import Any

import django
from django.conf import settings
from django.db import connection

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.change_log import wake
from clusterstate.database import sql
from clusterstate.processes import collector
from clusterstate.queries.objects import kind_of
from scheduling.engine import deciding
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests.perf import rehearsal
from tests.perf.database import spent, throw_away
from tests.perf.workloads import Manifest, node, pod

RACK, BLOCK = "cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"
SHAPES = (
    (50, 4, "2", RACK), (30, 8, "4", RACK), (20, 16, "8", RACK), (30, 4, "2", RACK),
    (20, 8, "4", BLOCK), (15, 16, "4", RACK), (10, 32, "8", RACK),
)  # fmt: skip
"""How many workloads of 175, of how many pods, of how many CPUs each, in one of what."""
Say = Callable[[str], None]
_LIST = 1000
_AT_ONCE = 100
_FULL = 0.9
"""Share of the CPUs in use at which the oldest workloads end. Kueue's CI has 62.4 % in use."""


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def group(name: str, count: int, key: str = "", **more: Any) -> Manifest:
    """Return a gang, in one domain of a level if one is named."""
    spec: Manifest = {"schedulingPolicy": {"gang": {"minCount": count}}, **more}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    }  # fmt: skip


def members(name: str, count: int, cpu: str, **spec: Any) -> list[Manifest]:
    """Return the pods of a group."""
    found = []
    for number in range(count):
        made = pod(number, cpu=cpu, memory="100Mi", **spec)
        made["metadata"] |= {"name": f"{name}-{number}", "namespace": "default"}
        made["spec"]["schedulingGroup"] = {"podGroupName": name}
        found.append(made)
    return found


def workloads(count: int) -> Iterator[tuple[str, int, str, str]]:
    """Yield name, number of pods, CPUs of each and level of so many workloads, shuffled."""
    order = [shape for many, *shape in SHAPES for _ in range(many)]
    Random(1).shuffle(order)
    for number in range(count):
        pods, cpu, key = order[number % len(order)]
        yield f"job-{number}", pods, cpu, key


def run(*, workloads: int, victims: int, say: Say) -> Iterator[dict[str, Any]]:
    """Yield the figures, each on a database of its own."""
    for measure in (
        lambda: one_gang(say=say),
        lambda: shapes(workloads, say=say),
        lambda: displaced(victims, say=say),
    ):
        with throw_away():
            yield measure()


def _begin(nodes: list[Manifest], copies: int = 0) -> Scheduler:
    with wake.without_scheduler():
        objects.create_all([("Node", "", one) for one in nodes], now=_now())
    if copies:
        rehearsal.copy_node(nodes[0]["metadata"]["name"], "node-", copies)
    deciding.warm()
    scheduler = Scheduler(default_configuration(), lambda: 1)
    scheduler.load(time.time())
    collector.calm()  # as the scheduling worker does
    return scheduler


def _create(groups: list[Manifest], pods: list[Manifest]) -> None:
    with wake.without_scheduler():
        objects.create_all([("PodGroup", "default", one) for one in groups], now=_now())
        for first in range(0, len(pods), _LIST):
            create_pods(pods[first : first + _LIST], now=_now())


def _cycles(scheduler: Scheduler) -> None:
    while scheduler.cycle(time.time()):
        pass


def _bound() -> int:
    row = sql.fetch_one("SELECT count(*) FROM pod WHERE node_name <> '' AND deletion_at IS NULL")
    assert row is not None
    return int(row[0])


def one_gang(*, nodes: int = 5000, size: int = 1000, say: Say) -> dict[str, Any]:
    """A gang of like pods on many nodes: decided, and bound; the best of three."""
    say(f"a gang of {size} pods, {nodes} nodes")
    scheduler = _begin([node(0)], nodes - 1)
    best: dict[str, float] = {}
    try:
        for turn in range(3):
            _create([group(f"g{turn}", size)], members(f"g{turn}", size, "100m"))
            scheduler.mirror.refresh(time.time())
            taken: list[float] = []
            decide = scheduler._decide_group

            def timed(*args: Any, taken: list[float] = taken, decide: Any = decide) -> None:
                began = time.perf_counter()
                decide(*args)
                taken.append(time.perf_counter() - began)

            scheduler._decide_group = timed  # type: ignore[method-assign]
            began, cpu = time.perf_counter(), time.process_time()
            scheduler.cycle(time.time())
            scheduler.binder.finish_batch(time.time())
            found = {
                "decided_ms": round(sum(taken) * 1e3, 1),
                "bound_ms": round((time.perf_counter() - began) * 1e3, 1),
                "cpu_ms": round((time.process_time() - cpu) * 1e3, 1),
            }
            scheduler._decide_group = decide  # type: ignore[method-assign]
            _cycles(scheduler)
            best = found if not best or found["bound_ms"] < best["bound_ms"] else best
    finally:
        scheduler.binder.close()
    return {"mode": "groups", "workload": "OneGang", "nodes": nodes, "pods": _bound() // 3, **best}


def shapes(count: int, *, most: int = 1500, say: Say) -> dict[str, Any]:
    """Kueue's topology-aware benchmark: so many workloads, created, bound and gone again.

    A process of its own creates and ends them, as the API's processes do, while this one schedules.
    ``most``: it creates no more while so many pods wait.
    """
    say(f"{count} workloads of Kueue's shapes")
    nodes = []
    for number in range(640):
        made = node(number)
        made["metadata"]["labels"] |= {RACK: f"rack-{number // 64}", BLOCK: "block-0"}
        offer = {"cpu": "96", "memory": "256Gi", "pods": "110"}
        made["status"]["allocatable"] = made["status"]["capacity"] = offer
        nodes.append(made)
    scheduler = _begin(nodes)
    mirror, left, running = scheduler.mirror, list(workloads(count)), deque[tuple[str, int]]()
    pods, use = sum(size for _, size, *_ in left), []
    spawn = multiprocessing.get_context("spawn")
    creating: Future[None] | None = None
    ending: Future[None] | None = None
    try:
        with ProcessPoolExecutor(1, mp_context=spawn, initializer=django.setup) as api:
            api.submit(_connect, dict(connection.settings_dict), settings.REDIS_URL).result()
            api_cpu = api.submit(time.process_time).result()
            began, cpu, server = time.perf_counter(), time.process_time(), spent()
            while left or len(mirror.queue) or creating:
                done = scheduler.cycle(time.time())
                if creating is not None and creating.done():
                    creating = creating.result()
                if ending is not None and ending.done():
                    ending = ending.result()
                if left and creating is None and len(mirror.queue) < most:
                    some, left = left[:_AT_ONCE], left[_AT_ONCE:]
                    running += [(name, size) for name, size, *_ in some]
                    creating = api.submit(_create_workloads, some)
                snapshot = mirror.snapshot
                use.append(snapshot.requested[:, 0].sum() / snapshot.allocatable[:, 0].sum())
                if use[-1] > _FULL and ending is None:
                    oldest = [running.popleft() for _ in range(_AT_ONCE)]
                    ending = api.submit(_end, oldest)
                if not done:
                    time.sleep(0.001)
            seconds = time.perf_counter() - began
            api_cpu = api.submit(time.process_time).result() - api_cpu
    finally:
        scheduler.binder.close()
    return {
        "mode": "groups", "workload": "KueueTopology", "nodes": 640, "groups": count, "pods": pods,
        "seconds": round(seconds, 2), "groups_per_second": round(count / seconds, 1),
        "scheduler_cpu_seconds": round(time.process_time() - cpu, 2),
        "api_cpu_seconds": round(api_cpu, 2),
        "server_cpu_seconds": round(spent().since(server).cpu_seconds, 2),
        "use": round(float(sum(use[len(use) // 4 :]) / max(1, len(use[len(use) // 4 :]))), 3),
    }  # fmt: skip


def _connect(database: dict[str, Any], redis_url: str) -> None:
    """Let a new process write to the same servers."""
    connection.settings_dict.update(database)
    settings.REDIS_URL = redis_url
    collector.calm()  # as the API's processes do


def _create_workloads(some: list[tuple[str, int, str, str]]) -> None:
    _create(
        [group(name, size, key) for name, size, _, key in some],
        [one for name, size, cpu, _ in some for one in members(name, size, cpu)],
    )


def _end(groups: list[tuple[str, int]]) -> None:
    with wake.without_scheduler():
        delete_pods_each(
            [
                Deletion(namespace="default", name=f"{name}-{number}", grace_seconds=0)
                for name, size in groups
                for number in range(size)
            ],
            now=_now(),
        )
        objects.delete_each(
            kind_of("PodGroup"),
            [Deletion(namespace="default", name=name) for name, _ in groups],
            now=_now(),
        )


def displaced(victims: int, *, say: Say) -> dict[str, Any]:
    """A gang that needs so many victims, three a node: chosen and deleted, then the gang bound."""
    nodes = victims // 3
    say(f"a gang of {nodes} pods that needs {victims} victims")
    scheduler = _begin([node(0)], nodes - 1)
    names = [row[0] for row in sql.fetch("SELECT name FROM node ORDER BY id")]
    try:
        with wake.without_scheduler():
            high = {
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 100,
                "metadata": {"name": "high"},
            }  # fmt: skip
            objects.create("PriorityClass", "", high, now=_now())
            placed = []
            for number in range(4 * nodes):
                one = pod(number, cpu="1", memory="100Mi", nodeName=names[number % nodes])
                one["metadata"] |= {"name": f"low-{number}", "namespace": "default"}
                placed.append(one)
            for first in range(0, len(placed), _LIST):
                create_pods(placed[first : first + _LIST], now=_now())
        _cycles(scheduler)  # can the nodes run the pods that were put there?
        high_group = group("g", nodes, priorityClassName="high")
        _create([high_group], members("g", nodes, "3", priorityClassName="high"))
        scheduler.mirror.refresh(time.time())
        began, cpu = time.perf_counter(), time.process_time()
        _cycles(scheduler)
        chosen, chosen_cpu = time.perf_counter() - began, time.process_time() - cpu
        ending = sql.fetch("SELECT namespace, name FROM pod WHERE deletion_at IS NOT NULL")
        with wake.without_scheduler():  # as the nodes' agents do
            for first in range(0, len(ending), _LIST):
                delete_pods_each(
                    [
                        Deletion(namespace=namespace, name=name, grace_seconds=0)
                        for namespace, name in ending[first : first + _LIST]
                    ],
                    now=_now(),
                )
        again = time.perf_counter()
        _cycles(scheduler)
        again = time.perf_counter() - again
    finally:
        scheduler.binder.close()
    bound = sql.fetch_one("SELECT count(*) FROM pod WHERE node_name <> '' AND name LIKE 'g-%%'", ())
    assert bound is not None
    return {
        "mode": "groups", "workload": "Displaced", "nodes": nodes, "pods": bound[0],
        "victims": len(ending), "chosen_and_deleted": round(chosen, 2),
        "cpu_seconds": round(chosen_cpu, 2), "bound_after": round(again, 2),
    }  # fmt: skip
