"""How many sessions of the database the processes may hold: what is stated against the code."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.handlers.wsgi import WSGIHandler
from django.db import connection

from api.serving import Application
from clusterstate.local import capacity, parts, preparation
from scheduling.answers import advising
from scheduling.controllers import manager
from scheduling.controllers.evictions.workers import Workers
from scheduling.processes import duties, loops
from scheduling.worker import binding_cycle

ROOT = Path(__file__).resolve().parents[2]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
BESIDE = 3  # a worker process's keeper, what adds its numbers, and a thread of Celery's
STARTS = {"Thread", "ThreadPoolExecutor", "OwnThread", "Lane", "Calls", "Loop", "_Lane", "Workers"}
# What starts threads, and how many of one process's sessions that is, at most; 0: none queries.
STARTED = {
    "api/serving.py": "lanes",  # counted below, from the application itself
    "api/server/lanes.py": "lanes",
    "api/server/pulse.py": 0,
    "api/server/health.py": 1,
    "api/server/audit.py": 1,
    "api/streaming/rights.py": 1,
    "api/streaming/hub.py": 1,  # the reader; the other one listens to Redis
    "api/console/live/stream.py": 1,
    "clusterstate/actions/loops/metrics.py": 1,
    "clusterstate/database/postgres/base.py": 0,  # asks a silent host by a connection for a moment
    "clusterstate/database/sessions.py": 1,
    "clusterstate/change_log/replica.py": 1,
    "clusterstate/change_log/wake.py": 0,
    "scheduling/answers/advising.py": "advisor",
    "scheduling/controllers/evictions/timekeeper.py": "timers",
    "scheduling/controllers/evictions/workers.py": "timers",
    "scheduling/controllers/webhooks/client.py": 0,
    "scheduling/framework/http_calls.py": 0,
    "scheduling/packing/gangs.py": 0,  # waits for the solver's process
    "scheduling/processes/broker.py": 0,
    "scheduling/processes/duties.py": "worker",
    "scheduling/processes/loop.py": "loops",
    "scheduling/processes/loops.py": "loops",
    "scheduling/processes/own_thread.py": "worker",
    "scheduling/worker/binder.py": 1,
    "scheduling/worker/loop.py": 1,
    "scheduling/worker/warming.py": 0,
}
_WEB = ("health", "audit", "rights", "hub", "stream", "metrics", "replica")


def _starters() -> Iterator[str]:
    for floor in ("api", "clusterstate", "scheduling"):
        for path in sorted((ROOT / floor).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    called = node.func
                    name = getattr(called, "attr", None) or getattr(called, "id", None)
                    if name in STARTS:
                        yield path.relative_to(ROOT).as_posix()


def test_every_module_that_starts_threads_is_counted() -> None:
    assert set(_starters()) - {"clusterstate/local/hollow/__init__.py"} == set(STARTED)


@pytest.mark.parametrize("threads", [1, 4, 64])
@pytest.mark.parametrize("process", ["web", "http", "https", "console"])
def test_a_web_process_has_a_session_for_each_thread(threads: int, process: str, settings: Any):
    settings.WEB_THREADS, settings.PROCESS = threads, process
    application = Application(WSGIHandler(), threads=threads)
    lanes = [*application._lanes, application._calls._lane]
    # What holds lanes and is in neither of the two would not be counted.
    held = [one for one in vars(application).values() if type(one).__name__ in ("Lane", "Calls")]
    assert len({id(one) for one in lanes}) == len(held)
    beside = sum(
        int(number)
        for path, number in STARTED.items()
        if isinstance(number, int) and Path(path).stem in _WEB
    )
    assert capacity.of(process) == sum(lane._threads for lane in lanes) + beside


def test_a_worker_process_has_a_session_for_each_thread(settings: Any) -> None:
    def loops_of(process: str) -> int:
        return 1 + len(loops.BESIDE.get(process, ()))

    tasks = int(_threads_of(parts.parts(_wanted()), "worker"))
    own = Counter(re.findall(r'OwnThread\("(\w+)"\)', Path(duties.__file__).read_text()))
    assert capacity.of("worker") == (
        loops_of("worker")
        + len(manager.CONTROLLERS)
        + sum(own.values())
        + duties._DELIVERING_AT_ONCE
        + binding_cycle.AT_ONCE
        + BESIDE
        + tasks
        - 1
    )
    settings.TIMER_CONNECTIONS = 5
    assert capacity.of("timers") == loops_of("timers") + len(Workers()._helpers) + BESIDE
    compares = STARTED["clusterstate/change_log/replica.py"]
    assert capacity.of("advisor") == loops_of("advisor") + advising.THREADS + compares + BESIDE
    beside = STARTED["scheduling/worker/binder.py"], STARTED["scheduling/worker/loop.py"]
    assert capacity.of("scheduler") == loops_of("scheduler") + sum(map(int, beside)) + BESIDE
    assert capacity.of("beat") == 0
    assert set(loops.LOOPS) == {"scheduler", "timers", "worker", "advisor"}


def _wanted(**changed: int) -> parts.PartOptions:
    here = Path("/nowhere")
    return parts.PartOptions(
        http_port=1, https_port=2, host="", certificate=here, key=here, console=here, **changed
    )


def _threads_of(processes: Iterator[parts.Part], name: str) -> str:
    (arguments,) = [one.arguments for one in processes if one.name == name]
    return arguments[arguments.index("--threads") + 1]


def test_the_embedded_server_takes_the_sessions_of_all_its_processes(settings: Any) -> None:
    usual = list(parts.parts(_wanted()))
    most = capacity.of_embedded(usual)
    assert most - capacity.RESERVED >= capacity.of_parts(usual)
    more = list(parts.parts(_wanted(web_workers=2, advisors=3, schedulers=3)))
    added = capacity.of("http") + capacity.of("https") + 2 * capacity.of("advisor")
    assert capacity.of_parts(more) - capacity.of_parts(usual) == added + capacity.of("scheduler")
    assert capacity.of_embedded(more) - most == added + capacity.of("scheduler")
    assert capacity.of_embedded([]) == capacity.LEAST
    settings.WEB_THREADS = 64
    huge = list(parts.parts(_wanted(web_workers=64)))
    assert capacity.of_embedded(huge) == capacity.MOST


def test_the_server_of_the_composition_takes_the_sessions_of_all_containers() -> None:
    processes = []
    for service in SERVICES.values():
        name = service.get("environment", {}).get("STOWAGE_PROCESS")
        if name is not None:
            command = service["command"]
            workers = int(command[command.index("--workers") + 1]) if "--workers" in command else 1
            replicas = service.get("deploy", {}).get("replicas", 1)
            processes += [name] * (workers * replicas)
    assert set(processes) == {
        "web", "https", "console", "scheduler", "timers", "worker", "advisor", "beat",
    }  # fmt: skip
    command = SERVICES["postgres"]["command"]
    (stated,) = [one for one in command if one.startswith("-cmax_connections=")]
    # A second one of what docs/operations.md says there may be two of.
    twice = [*processes, "web", "web", "timers", "worker"]
    assert int(stated.partition("=")[2]) >= capacity.needed(twice) + capacity.RESERVED


def test_the_page_on_operations_states_the_same_numbers(settings: Any) -> None:
    usual = [part.process for part in parts.parts(_wanted())]
    text = " ".join((ROOT / "docs/operations.md").read_text().split())
    found = re.search(
        r"three times `STOWAGE_WEB_THREADS` \+ (\d+) for each web process, (\d+) more for the"
        r" console, (\d+) for a worker, (\d+) for a scheduler, `STOWAGE_TIMER_CONNECTIONS` \+ (\d+)"
        r" for timers, (\d+) for an advisor, and (\d+) for commands",
        text,
    )
    assert found is not None
    assert f"That is {capacity.needed(usual)} for what `make up` starts" in text
    assert f"and {capacity.of('worker')} more while it renews" in text
    settings.WEB_THREADS, settings.TIMER_CONNECTIONS = 0, 0
    assert [int(one) for one in found.groups()] == [
        capacity.of("web"),
        capacity.of("console") - capacity.of("web"),
        capacity.of("worker"),
        capacity.of("scheduler"),
        capacity.of("timers"),
        capacity.of("advisor"),
        capacity.SPARE,
    ]


@pytest.mark.django_db
def test_what_a_server_and_a_role_allow_is_found() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW max_connections")
        most = int(cursor.fetchone()[0])
        assert preparation.sessions_allowed() == most - capacity.RESERVED
        cursor.execute("ALTER ROLE CURRENT_USER CONNECTION LIMIT 7")
        assert preparation.sessions_allowed() == 7
