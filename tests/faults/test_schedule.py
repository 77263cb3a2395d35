"""Schedules come from seeds, survive being written down, and shrink to what matters."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from clusterstate.local import parts
from tests.faults import schedule, world
from tests.faults.schedule import Fault, Life
from tests.faults.shrink import shrink
from tests.faults.system import OWN, System


def test_a_seed_gives_the_same_life_again_and_another_seed_another() -> None:
    one, again = (schedule.life("s", 1, 10, small_disk=True, clock=True) for _ in range(2))
    assert one == again
    assert one != schedule.life("t", 1, 10, small_disk=True, clock=True)


def test_a_life_survives_json() -> None:
    one = schedule.life("s", 0, 10, small_disk=True, clock=True)
    assert Life.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    ("number", "only"), [(0, {"full"}), (1, {"silent", "cut", "rival", "fail over"})]
)
def test_every_fault_of_a_topology_is_drawn(number: int, only: set[str]) -> None:
    life = schedule.life("s", number, 60, small_disk=True, clock=True)
    kinds = {fault.kind for faults in life.rounds for fault in faults}
    always = {"kill", "stop", "flush", "prepare", "hostile", "clock", "restore", "starved"}
    assert kinds == always | only
    killed = {fault.part for faults in life.rounds for fault in faults if fault.kind == "kill"}
    assert killed == set(schedule.PARTS)


def test_every_process_of_the_supervisor_is_killed_stopped_and_cut_off() -> None:
    """A process that is added to the supervisor's list is harmed without another word."""
    wanted = parts.PartOptions(
        http_port=1, https_port=2, host="h", certificate=Path("c"), key=Path("k"), console=Path("s")
    )
    names = {part.name for part in parts.parts(wanted)}
    assert names >= {"http", "https", "scheduler", "standby", "timers", "worker", "advisor", "beat"}
    assert names >= {"console", "timers-standby"}
    life = schedule.life("s", 1, 120, small_disk=True, clock=True)
    faults = [fault for faults in life.rounds for fault in faults]
    for kind in ("kill", "stop"):
        assert {fault.part for fault in faults if fault.kind == kind} >= names
    cut = {fault.part for fault in faults if fault.kind in ("silent", "cut")}
    # Without sessions, or with those of the process that works.
    told = names - {"beat", "standby", "timers-standby"}
    assert cut == {"redis", "postgres", *(f"postgres {name}" for name in told)}


def test_a_process_that_no_fault_harms_is_told_of() -> None:
    system = System(OWN, say=lambda _: None)
    started = []
    try:
        for name in ("advisor", "newcomer"):
            environment = system.environment() | {"STOWAGE_PROCESS": name}
            command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
            started.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE))
        assert system.pids("advisor") == [started[0].pid]
        assert system.unknown_processes() == {"newcomer"}
    finally:
        for one in started:
            one.communicate()
        system.stop()


def test_what_is_not_possible_is_not_drawn() -> None:
    life = schedule.life("s", 0, 60, small_disk=False, clock=False)
    kinds = {fault.kind for faults in life.rounds for fault in faults}
    assert not kinds & {"full", "clock"}


@pytest.mark.parametrize("culprits", [{3}, {3, 17}, {0, 1, 19}, set(range(20))])
def test_shrinking_finds_exactly_the_rounds_that_fail(culprits: set[int]) -> None:
    asked = 0

    def fails(rounds: list[int]) -> bool:
        nonlocal asked
        asked += 1
        return culprits <= set(rounds)

    assert set(shrink(range(20), fails, tries=200)) == culprits
    assert asked <= 200


def test_shrinking_ends_after_the_tries_it_is_given() -> None:
    asked = []
    left = shrink(range(64), lambda rounds: bool(asked.append(rounds)) or len(rounds) > 32, tries=3)
    assert len(asked) == 3
    assert len(left) > 32


def test_faults_tell_what_they_are() -> None:
    assert Fault("kill", "scheduler").title == "kill scheduler"


def test_every_class_of_pods_has_a_manifest_of_its_own() -> None:
    rng = random.Random(1)
    pods = [world.pod(f"p{number}", rng) for number in range(300)]
    apps = {pod["metadata"]["labels"]["app"] for pod in pods}
    assert apps >= {"plain", "idle", "urgent", "tolerant", "apart", "together", "spread", "gated"}
