"""A backlog of pending pods to bound rows: the scheduler's own cycles over a throw-away database.

What ``runner.run`` does when it meets a long queue, without the web server that filled it. Events
and decisions are told afterwards, as the runner does while there is a queue, and timed apart. Each
step says what the database server took of it for each pod; ``tools/scale.py`` counts with that.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.change_log import wake
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.processes import collector
from scheduling.controllers.pods import resource_claims
from scheduling.engine import deciding
from scheduling.framework.configuration.documents import default_configuration
from scheduling.worker.scheduler import Scheduler
from tests.perf import database, rehearsal
from tests.perf.catalogue import by_name
from tests.perf.workloads import Manifest, Workload

_LIST = 1000
_SEED = 1


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def run(
    name: str, *, nodes: int, waiting: int, say: Callable[[str], None], times: int = 3
) -> list[dict[str, Any]]:
    """Return a result for each turn, the last one of that in which the nodes are full.

    The database must be empty and migrated.
    """
    workload = by_name(name)
    say(f"{nodes} nodes")
    template = workload.node(0)
    looked_up = workload.objects(nodes)
    with wake.without_scheduler():  # it is here
        for number in range(nodes if looked_up else 1):  # devices are those of nodes by their names
            objects.create("Node", "", workload.node(number), now=_now())
        for manifest in [*looked_up, *filter(None, [workload.template_of_claims])]:
            _create(manifest)
        if workload.service is not None:
            for number in range(workload.services):
                objects.create("Service", "default", workload.service(number), now=_now())
    if not looked_up:
        rehearsal.copy_node(template["metadata"]["name"], "node-", nodes - 1)
    deciding.warm()
    scheduler = Scheduler(default_configuration(), lambda: _SEED)
    try:
        results: list[dict[str, Any]] = []
        for turn in range(times):
            results.append(_turn(scheduler, workload, turn, nodes, waiting, say))
            if results[-1]["pods"] < waiting:
                say(f"the {nodes} nodes are full, so further turns would measure refusals")
                break
        results.append(_deleted(waiting, say))
        return results
    finally:
        scheduler.binder.close()


def _turn(
    scheduler: Scheduler,
    workload: Workload,
    turn: int,
    nodes: int,
    waiting: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    say(f"{waiting} pods wait")
    waiting_pod = workload.template(nodes)
    waiters = [
        _named(waiting_pod(turn * waiting + number), f"turn-{turn}-{number}")
        for number in range(waiting)
    ]
    if not scheduler.mirror.loaded:
        scheduler.load(time.time())
        collector.calm()  # as the scheduling worker does
    with wake.without_scheduler():
        for number in range(waiting):
            for manifest in workload.objects_of(turn * waiting + number):
                _create(manifest)
    at_first = database.spent()
    with wake.without_scheduler():
        for first in range(0, waiting, _LIST):
            create_pods(waiters[first : first + _LIST], now=_now())
    created = database.spent()
    began, cpu = time.perf_counter(), time.process_time()
    if workload.template_of_claims is not None:
        say("make their claims")
        with wake.without_scheduler():
            resource_claims.follow(_now())
    claims, claims_cpu = time.perf_counter() - began, time.process_time() - cpu
    claimed = database.spent()
    before = _bound()
    say("schedule them")
    began, cpu = time.perf_counter(), time.process_time()
    scheduler.mirror.refresh(time.time())
    read = time.perf_counter() - began
    while scheduler.cycle(time.time()):
        pass
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    decided = database.spent()
    bound = _bound() - before
    say("tell what happened")
    told = time.perf_counter()
    scheduler.binder.write_records(time.time())
    told = time.perf_counter() - told
    all_done = database.spent()
    return {
        "mode": "backlog",
        "workload": workload.name,
        "nodes": nodes,
        "pods": bound,
        "seconds": round(seconds, 3),
        "pods_per_second": round(bound / seconds),
        "read_seconds": round(read, 3),
        "cpu_microseconds_per_pod": round(cpu / bound * 1e6, 1),
        "told_seconds": round(told, 3),
        **(
            {
                "claims_seconds": round(claims, 3),
                "claims_cpu_microseconds_per_pod": round(claims_cpu / waiting * 1e6, 1),
            }
            if workload.template_of_claims
            else {}
        ),
        "database": {
            "created": created.since(at_first).per(waiting),
            "claimed": claimed.since(created).per(waiting),
            "bound": decided.since(claimed).per(bound),
            "told": all_done.since(decided).per(bound),
        },
    }


def _create(manifest: Manifest) -> None:
    kind, where = manifest["kind"], manifest["metadata"].get("namespace", "")
    group = KINDS[kind].group
    version = f"{group}/v1" if group else "v1"
    objects.create(kind, where, {"apiVersion": version, **manifest}, now=_now())


def _deleted(waiting: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Delete the pods of the first turn in lists; return what that takes of the database."""
    say(f"delete {waiting} pods")
    wanted = [
        Deletion(namespace="default", name=f"turn-0-{number}", grace_seconds=0)
        for number in range(waiting)
    ]
    before = database.spent()
    for first in range(0, waiting, _LIST):
        delete_pods_each(wanted[first : first + _LIST], now=_now())
    return {
        "mode": "backlog, deleted",
        "pods": waiting,
        "database": {"deleted": database.spent().since(before).per(waiting)},
    }


def _named(manifest: Manifest, name: str) -> Manifest:
    manifest["metadata"] |= {"name": name, "namespace": "default"}
    return manifest


def _bound() -> int:
    row = sql.fetch_one("SELECT count(*) FROM pod WHERE node_name <> ''")
    assert row is not None
    count: int = row[0]
    return count
