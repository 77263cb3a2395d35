"""Schedulers at work at the same time: how much of what they decide comes back, and what it costs.

Each is a process with the loop of the product, on a throw-away database. Pods of a mixed load come
in lists, and as many leave at random, so that the nodes stay as full as they are. ``main`` is such
a process: it answers each line of its input with what it counted.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.local import places
from clusterstate.objects.registry.kinds import KINDS
from tests import rows
from tests.perf import database
from tests.perf.catalogue import by_name
from tests.perf.workloads import ZONE, Manifest, term

_LIST = 200
_WAITING = 100
"""The next list comes when no more pods than this wait."""
_LONGEST = 3.0
"""Seconds until it comes all the same: pods that fit nowhere wait for ever."""
_ATTEMPTS, _OVERTAKEN = "scheduler_schedule_attempts_total", "stowage_overtaken_pods_total"
_SHOWN = (_ATTEMPTS, _OVERTAKEN, "stowage_divided_pods_total")
_HARD = 10
_HIGH = "high"
"""One Deployment of so many has a hard spread over zones."""


def run(
    *, nodes: int, schedulers: int, full: int, seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the figures of so many schedulers on nodes that are ``full`` percent full."""
    with database.throw_away() as state:
        trace = by_name("TraceMix")
        for number in range(nodes):
            objects.create("Node", "", trace.node(number), now=_now())
        for number in range(trace.services):
            assert trace.service is not None
            objects.create("Service", "default", trace.service(number), now=_now())
        of = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        objects.create("PriorityClass", "", {**of, "metadata": {"name": _HIGH}}, now=_now())
        sql.run("ANALYZE")
        started = changes.watermark()
        workers = [_Worker(state, schedulers) for _ in range(schedulers)]
        try:
            load = _Load(nodes * 4000 * full // 100)
            say(f"{nodes} nodes, {schedulers} schedulers: fill them to {full} %")
            load.keep(0)
            end = time.monotonic() + 120
            while not load.is_full and time.monotonic() < end:
                load.keep(0)
            say(f"{_bound()} pods are bound")
            before, spent = _counted(workers), _spent()
            created, began = load.created, time.monotonic()
            while time.monotonic() < began + seconds:
                load.keep(_LIST)
            took = time.monotonic() - began
            spent, counted = _spent() - spent, _counted(workers) - before
        finally:
            for worker in workers:
                worker.end()
        bound = sum(
            count for name, count in counted.items()
            if name.startswith(f"{_ATTEMPTS}{{") and 'result="scheduled"' in name
        )  # fmt: skip
        overtaken = counted[_OVERTAKEN]
        return {
            "mode": "several",
            "schedulers": schedulers,
            "nodes": nodes,
            "full": full,
            "seconds": round(took, 1),
            "created": load.created - created,
            "bound": bound,
            "overtaken": overtaken,
            "came_back_percent": round(100 * overtaken / (bound + overtaken), 2),
            "scheduler_us": round(counted["cpu"] / bound, 1),
            "database_us": round(spent / bound * 1e6, 1),
            "counted": {n: c for n, c in counted.items() if n.startswith(_SHOWN) and "{" in n},
            "overcommitted": [str(one) for one in rows.overcommitted_nodes()],
            "overcommitted_at": _overcommitted_at(started),
        }


def _counted(workers: list["_Worker"]) -> Counter[str]:
    total: Counter[str] = Counter()
    for worker in workers:
        total.update(worker.counted())
    return total


class _Worker:
    """One scheduler, as a process."""

    def __init__(self, state: Path, schedulers: int) -> None:
        environment = {
            **os.environ,
            "STOWAGE_STATE": str(state),
            "DATABASE_URL": places.postgres_url(state),
            "REDIS_URL": places.redis_url(state),
            "STOWAGE_ACTIVE_SCHEDULERS": str(schedulers),
            "STOWAGE_LOG_LEVEL": "ERROR",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.perf.several"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.counted()

    def counted(self) -> dict[str, int]:
        """Return what the process counted since it began."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, int] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        """End the process: its input is at its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


class _Load:
    """Pods of TraceMix and of 900 Deployments in turn, as many as keep the nodes so full."""

    def __init__(self, cpu_milli: int) -> None:
        self.created = 0
        self._target = cpu_milli
        self._mixes = [by_name(name).pod for name in ("TraceMix", "Deployments900")]
        self._rng = random.Random(1)

    def _pod(self) -> Manifest:
        number = self.created
        self.created += 1
        made = self._mixes[number % 2](number // 2)
        made["metadata"] |= {"name": f"p{number}", "namespace": "default"}
        if made["spec"].pop("priority", 0):
            made["spec"]["priorityClassName"] = _HIGH
        app = made["metadata"]["labels"]["app"]
        if number % 2 and not int(app.rpartition("-")[2]) % _HARD:
            made["metadata"]["labels"]["app"] = f"hard-{app}"
            rule = {**term(ZONE, app=f"hard-{app}"), "maxSkew": 1}
            rule["whenUnsatisfiable"] = "DoNotSchedule"
            made["spec"]["topologySpreadConstraints"] = [rule]
        return made

    @property
    def is_full(self) -> bool:
        return self._missing() < 0.01 * self._target and not _waiting()

    def _missing(self) -> int:
        row = sql.fetch_one(
            "SELECT coalesce(sum(c.cpu_milli), 0)::bigint FROM pod p"
            " JOIN scheduling_class c ON c.id = p.class_id"
        )
        assert row is not None
        return self._target - int(row[0])

    def keep(self, leave: int) -> None:
        """Let so many pods leave, and create what is missing then; wait until most are placed."""
        gone = sql.fetch(
            "SELECT name FROM pod WHERE node_name <> '' ORDER BY random() LIMIT %s::int", (leave,)
        )
        delete_pods_each(
            [Deletion(namespace="default", name=row[0], grace_seconds=0) for row in gone],
            now=_now(),
        )
        missing = self._missing()
        some = []
        while missing > 0 and len(some) < 2 * _LIST:
            some.append(self._pod())
            cpu = some[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            missing -= int(cpu.rstrip("m"))
        if some:
            create_pods(some, now=_now())
        end = time.monotonic() + _LONGEST
        while _waiting() > _WAITING and time.monotonic() < end:
            time.sleep(0.01)


def _waiting() -> int:
    row = sql.fetch_one("SELECT count(*) FROM pending_pod WHERE attempts = 0")
    assert row is not None
    return int(row[0])


def _bound() -> int:
    row = sql.fetch_one("SELECT count(*) FROM pod WHERE node_name <> ''")
    assert row is not None
    return int(row[0])


def _spent() -> float:
    """Return the CPU seconds of the sessions of the schedulers. Queries once."""
    pids = sql.fetch(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
        " AND pid <> pg_backend_pid()"
    )
    texts = [Path(f"/proc/{row[0]}/schedstat").read_text() for row in pids]
    return sum(int(text.split()[0]) for text in texts) / 1e9


def _overcommitted_at(started: int) -> int:
    """Return at how many bindings since a revision a node had too little CPU or memory."""
    offers = {
        row[0]: (row[1], row[2], row[3])
        for row in sql.fetch("SELECT name, cpu_milli, memory_bytes, pods FROM node")
    }
    asks = {
        row[0]: (row[1], row[2], 1)
        for row in sql.fetch("SELECT id, cpu_milli, memory_bytes FROM scheduling_class")
    }
    used = {name: [0, 0, 0] for name in offers}
    at: dict[int, tuple[str, int]] = {}
    broken = 0
    for key, verb, node_name, class_id in sql.fetch(
        "SELECT object_id, verb, node_name, class_id FROM change"
        " WHERE kind = %s::smallint AND revision > %s::bigint ORDER BY revision",
        (KINDS["Pod"].code, started),
    ):
        held = at.pop(key, None)
        if held is not None:
            for place, amount in enumerate(asks[held[1]]):
                used[held[0]][place] -= amount
        if node_name and verb != changes.DELETED:
            at[key] = node_name, class_id
            for place, amount in enumerate(asks[class_id]):
                used[node_name][place] += amount
            if held is None and any(map(int.__gt__, used[node_name], offers[node_name])):
                broken += 1
    return broken


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  # a benchmark is an edge


def main() -> None:
    """Be one scheduler until the input ends."""
    from clusterstate.telemetry.metrics import families
    from scheduling.worker import loop

    counts: Counter[str] = Counter()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the log
    ended = threading.Event()

    def answer() -> None:
        for _ in sys.stdin:
            for one in families.take_all():
                if len(one.figures) == 1:
                    counts[one.name] += int(one.figures[0])
                    counts[f"{one.name}{{{one.labels}}}"] += int(one.figures[0])
            counts["cpu"] = round(time.process_time() * 1e6)
            print(json.dumps(counts), file=answers, flush=True)
        ended.set()

    threading.Thread(target=answer, daemon=True).start()
    loop.run(stopping=ended.is_set)


if __name__ == "__main__":
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "clusterstate.settings")
    django.setup()
    main()
