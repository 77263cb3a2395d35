"""Two schedulers work: one is killed or stopped, or busy with a slow plugin; the other goes on."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterstate.database import locks
from clusterstate.health import heartbeats
from tests import faults
from tests.faults.test_frozen import SLACK, first_words, place, post, stopped
from tests.faults.test_standby import bound_twice, unbound
from tests.forms import few
from tests.live import Service, node, pod, started
from tests.plugins.packages import install
from tests.waiting import running, until

pytestmark = faults.MARKS
PODS = "/api/v1/namespaces/default/pods"
CONFIGURATION = "/apis/stowage.dev/v1/schedulerconfiguration"
SLOW = """
import time


class Sluggish:
    name = "Sluggish"

    def filter_node(self, pod, node):
        time.sleep(0.05)
"""
PROJECT = """
[project]
name = "sluggish"
version = "1.0"

[project.entry-points."stowage.plugins"]
Sluggish = "sluggish:Sluggish"
"""


def apart_from(app: str) -> dict[str, Any]:
    """Return a pod's part of a spec: it goes to no node with such pods."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


APART = apart_from("never-there")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    source, packages = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("packages")
    (source / "sluggish.py").write_text(SLOW)
    (source / "pyproject.toml").write_text(PROJECT)
    install(source, packages)
    settings = {"PYTHONPATH": str(packages), "STOWAGE_ACTIVE_SCHEDULERS": "2"}
    with started(STOWAGE_SCHEDULERS="2", **settings) as service:
        plugins = {"multiPoint": {"enabled": [{"name": "Sluggish"}]}}
        profiles = [
            {"schedulerName": "default-scheduler"},
            {"schedulerName": "slow", "plugins": plugins},
        ]
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": profiles,
        }
        assert service.request("PUT", CONFIGURATION, document)[0] == 200
        for number in range(10):
            labels = {"kubernetes.io/hostname": f"n{number}"}
            body = node(f"n{number}", cpu="64", memory="4Ti", pods="9999")
            body["metadata"]["labels"] = labels
            assert service.request("POST", "/api/v1/nodes", body)[0] == 201
        both_at_work(service)
        yield service


def at_work(service: Service) -> dict[int, int]:
    """Return the schedulers that live and said last that they work: pids by number."""
    found = {}
    for number, name in enumerate(("scheduler", "scheduler-1")):
        pid = int(first_words(service, name).rpartition(":")[2] or 0)
        if pid and running(pid) and pid not in found.values():
            found[number] = pid
    return found


def both_at_work(service: Service) -> dict[int, int]:
    until(lambda: len(at_work(service)) == 2, seconds=90, what="two schedulers at work")
    return at_work(service)


def decided_by(service: Service, name: str) -> int:
    """Return the number of the scheduler that placed a pod."""

    def look() -> tuple[int, ...] | None:
        with service.database() as connection:
            return connection.execute(
                "SELECT scheduler FROM decision WHERE name = %s AND outcome = 'scheduled'", [name]
            ).fetchone()

    return int(until(look, seconds=20, what="the record")[0])


def placed(service: Service, name: str) -> float:
    began = time.monotonic()
    until(lambda: name not in unbound(service), seconds=30, what=f"{name} on a node")
    return time.monotonic() - began


def test_pods_of_unrelated_rules_are_the_work_of_both(service: Service) -> None:
    some = [post(service, **apart_from(f"app-{number}")) for number in range(12)]
    again = [post(service, **apart_from(f"app-{number}")) for number in range(12)]
    found = [decided_by(service, name) for name in some]
    assert set(found) == {0, 1}
    assert found == [decided_by(service, name) for name in again]
    assert decided_by(service, post(service)) == 1


@pytest.mark.parametrize("number", few([0, 1]))
def test_after_a_kill_the_other_one_decides_all_pods(service: Service, number: int) -> None:
    old = both_at_work(service)[number]
    posted: list[str] = []
    ended = threading.Event()

    def keep_posting() -> None:
        while not ended.is_set():
            posted.append(post(service))
            posted.append(post(service, **APART))
            time.sleep(0.05)

    posting = threading.Thread(target=keep_posting)
    posting.start()
    try:
        time.sleep(0.5)
        os.kill(old, signal.SIGKILL)
        times = [placed(service, post(service, **rules)) for rules in ({}, APART)]
        both_at_work(service)
    finally:
        ended.set()
        posting.join(30)
    assert sum(times) < 2 + SLACK, times
    until(lambda: not unbound(service), seconds=20, what="all pods on nodes")
    assert bound_twice(service) == []
    until(service.ready, seconds=60, what="ready")


@pytest.mark.parametrize("number", few([0, 1]))
def test_one_that_is_stopped_is_replaced_and_what_it_decided_before_is_refused(
    service: Service, number: int
) -> None:
    old = both_at_work(service)[number]
    with stopped(service.process.pid), stopped(old):  # as on another host: nobody replaces it
        times = [placed(service, post(service, **rules)) for rules in ({}, APART)]
        with service.database() as connection:
            assert len(connection.execute(locks.CYCLES).fetchall()) == 2, (
                f"its session had ended: {times}"
            )
        assert max(times) < 1 + SLACK, times
    until(lambda: not unbound(service), seconds=20, what="all pods on nodes")
    assert bound_twice(service) == []
    until(service.ready, seconds=90, what="ready")
    both_at_work(service)


def test_a_slow_plugin_holds_up_the_pods_of_its_profile_alone(service: Service) -> None:
    both_at_work(service)
    slow = [post(service, schedulerName="slow") for _ in range(8)]  # half a second each
    times = [place(service) for _ in range(10)]
    assert set(slow) & unbound(service), "they were done before"
    assert max(times) < 0.5 + SLACK, times
    assert sorted(times)[5] < 0.25, times
    until(lambda: not unbound(service), seconds=60, what="the slow ones on nodes")
    assert {decided_by(service, name) for name in slow} == {0}


def timers(service: Service) -> dict[str, int]:
    """Return the processes that evict, or stand by for that, by their names."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if f"STOWAGE_STATE={service.state}\0".encode() in environment:
            for name in ("timers", "timers-standby"):
                if f"--name\0{name}\0".encode() in command:
                    found[name] = int(folder.name)
    return found


def test_after_a_kill_the_standby_of_the_timers_evicts_in_time(service: Service) -> None:
    """The due time comes while the process that worked is away."""
    until(
        lambda: len(heartbeats.beating(service.state, "timers")) == 2, seconds=90, what="a standby"
    )
    assert service.request("POST", "/api/v1/nodes", node("tainted"))[0] == 201
    name = "tolerates-for-a-while"
    spec = {
        "nodeName": "tainted",
        "terminationGracePeriodSeconds": 0,
        "tolerations": [
            {"key": "gone", "effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 3}
        ],
    }
    assert service.request("POST", PODS, pod(name, cpu="1m", **spec))[0] == 201
    taint = {"spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]}}
    kind = "application/strategic-merge-patch+json"
    status, body = service.request("PATCH", "/api/v1/nodes/tainted", taint, content_type=kind)
    assert status == 200, body
    began = time.monotonic()
    with service.database() as connection:
        until(
            lambda: connection.execute("SELECT 1 FROM eviction_timer").fetchall(),
            seconds=3,
            what="the timer",
        )
    host, _, pid = first_words(service, "timers").rpartition(":")
    assert host == socket.gethostname()
    assert int(pid) in timers(service).values()
    until(lambda: time.monotonic() - began > 2.5, what="its last moment")
    os.kill(int(pid), signal.SIGKILL)
    until(
        lambda: service.request("GET", f"{PODS}/{name}")[0] == 404, seconds=30, what="its eviction"
    )
    assert time.monotonic() - began < 3 + 2 + SLACK
    until(lambda: not first_words(service, "timers").endswith(f":{pid}"), seconds=10, what="a word")
