"""Kills in the middle of binds and evictions of groups: at no revision is a group partly there.

A round has a gang of unlike pods, which only the search places, a gang of like pods, and one of
higher priority that needs the room of the latter. Scheduler, solver or database are killed, at a
random moment, while the gangs are placed, while one displaces the other, and while pods of two of
them are evicted.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.live import Service, node, pod
from tests.waiting import until

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
NODES = 6
PARTS = ("scheduler", "solver", "postgres")


def prepare(service: Service) -> None:
    """Make the nodes of the gangs, and the priority of the one that displaces another."""
    for number in range(NODES):
        node_ = node(f"like{number}", cpu="1", room="like")
        assert surely(service, "POST", "/api/v1/nodes", node_) in (201, 409)
    for number in range(2):
        node_ = node(f"unlike{number}", cpu="4", room="unlike")
        assert surely(service, "POST", "/api/v1/nodes", node_) in (201, 409)
    high = {"metadata": {"name": "high"}, "value": 10}
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert surely(service, "POST", path, high) in (201, 409)


def surely(service: Service, method: str, path: str, body: Any = None) -> int:
    """Ask until there is an answer that is no failure; return its status."""

    def ask() -> int:
        with suppress(OSError):
            status = service.request(method, path, body)[0]
            return status if status < 500 and status != 429 else 0
        return 0

    return until(ask, seconds=180, what=f"an answer to {method} {path}")


def members(service: Service, name: str, cpus: list[str], room: str, **more: Any) -> int:
    """Post the pods of a gang, which wait until it is there; return their number."""
    for number, cpu in enumerate(cpus):
        made = pod(
            f"{name}-{number}", cpu=cpu, nodeSelector={"room": room},
            schedulingGroup={"podGroupName": name}, terminationGracePeriodSeconds=0, **more,
        )  # fmt: skip
        made["metadata"]["labels"] = {"gang": name}
        assert surely(service, "POST", PODS, made) == 201
    return len(cpus)


def gang(service: Service, name: str, size: int, **more: Any) -> None:
    """Post a gang, whose pods can be placed from now on."""
    policy = {"gang": {"minCount": size}}
    spec = {"schedulingPolicy": policy, "disruptionMode": {"all": {}}, **more}
    assert surely(service, "POST", GROUPS, {"metadata": {"name": name}, "spec": spec}) in (201, 409)


def solver(service: Service) -> int:
    """Return the process that searches for the scheduler, 0 if there is none."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                b"scheduling.packing.gangs" in (folder / "cmdline").read_bytes()
                and f"STOWAGE_STATE={service.state}\0".encode() in (folder / "environ").read_bytes()
            ):
                return int(folder.name)
    return 0


def kill(service: Service, part: str) -> None:
    if part != "solver":
        old = service.kill(part)
        until(lambda: service.pid(part) != old, seconds=120, what=f"{part} to be back")
        return
    with suppress(AssertionError):  # it ends where nobody has asked for a while
        os.kill(until(lambda: solver(service), seconds=5), signal.SIGKILL)


def killed_within(
    service: Service, chance: random.Random, part: str, work: Callable[[], object]
) -> None:
    """Do this while a part is killed at a random moment."""
    working = threading.Thread(target=work)
    working.start()
    time.sleep(chance.uniform(0, 0.4))  # any moment of the work
    kill(service, part)
    working.join(180)
    assert not working.is_alive()
    until(service.ready, seconds=180, what=f"ready after {part} was killed")


def placed(service: Service, name: str, at: str = "") -> int:
    """Return how many pods of a gang are on a node and stay, now or at a revision."""
    query = f"?labelSelector=gang={name}"
    if at:
        query += f"&resourceVersionMatch=Exact&resourceVersion={at}"
    status, found = service.request("GET", PODS + query)
    assert status == 200, found
    return sum(
        bool(one["spec"].get("nodeName")) and "deletionTimestamp" not in one["metadata"]
        for one in found["items"]
    )


def partly(service: Service, gangs: dict[str, int]) -> list[str]:
    """Return at which revisions a part of a gang was placed."""
    found = []
    for name, size in gangs.items():
        with service.database() as connection:
            rows = connection.execute(
                "SELECT revision FROM change WHERE kind = 1 AND name LIKE %s AND"
                " (verb = 3 OR deletion_at IS NOT NULL"
                " OR node_name IS DISTINCT FROM previous_node_name) ORDER BY 1",
                (f"{name}-%",),
            ).fetchall()
        assert len(rows) >= size
        for (revision,) in rows:
            if (there := placed(service, name, str(revision))) not in (0, size):
                found.append(f"{there} of {size} pods of {name} are placed at {revision}")
    return found


def live_through(service: Service, seed: int) -> list[str]:
    """Live one round; return at which revisions a part of a gang was placed."""
    prepare(service)
    chance = random.Random(seed)
    parts = [PARTS[(seed + number) % 3] for number in range(3)]
    unlike, like, high = (f"{name}{seed}" for name in ("unlike", "like", "high"))
    cpus = ["100m"] * 10 * NODES if seed % 2 else ["1"] * NODES
    sizes = {
        unlike: members(service, unlike, ["2", "2", "4"], "unlike"),
        like: members(service, like, cpus, "like"),
        high: members(service, high, cpus, "like", priorityClassName="high"),
    }

    def place() -> None:
        gang(service, unlike, sizes[unlike])
        gang(service, like, sizes[like])

    def displace() -> None:
        gang(service, high, sizes[high], priorityClassName="high")

    def evict() -> None:
        for name in (f"{unlike}-0", f"{high}-0"):
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            assert surely(service, "POST", f"{PODS}/{name}/eviction", body) in (201, 404)

    work: tuple[tuple[Callable[[], None], tuple[str, ...], tuple[str, ...]], ...] = (
        (place, (unlike, like), ()), (displace, (high,), (like,)), (evict, (), (unlike, high)),
    )  # fmt: skip
    for part, (one, there, gone) in zip(parts, work, strict=True):
        killed_within(service, chance, part, one)
        for name in (*there, *gone):
            size = sizes[name] if name in there else 0
            until(
                lambda name=name, size=size: placed(service, name) == size,
                seconds=180, what=f"{size} pods of {name} after {part} was killed",
            )  # fmt: skip
    return partly(service, sizes)
