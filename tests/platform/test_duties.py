"""What the controllers' process does each second: no controller holds up another, nor the loop."""

import threading
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import msgspec
import pytest
from django.db import DatabaseError, DataError, OperationalError, connection
from django.db.backends.signals import connection_created
from structlog.testing import capture_logs

from api.server import health
from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.database import bulk, sql
from clusterstate.health import progress
from clusterstate.processes import steady_clock
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from scheduling.controllers import manager
from scheduling.controllers.nodes import lifecycle
from scheduling.engine import deciding
from scheduling.processes import duties, loops
from scheduling.processes.loop import Loop
from scheduling.processes.own_thread import OwnThread
from tests.forms import few
from tests.health_parts import parts_now
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = 20.0
_FIRST = ("namespaces", "namespace-defaults", "trim", "landings")
SLOW = (*_FIRST, *(name for name in manager.CONTROLLERS if name not in _FIRST))
"""What may take long; first come those of which the test waits for something."""


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """An event that what is held waits for; it is set when the test ends, however it ends."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def running() -> Iterator[Callable[..., Loop]]:
    """Start the loop of a process, the controllers' if none is named; it ends with the test."""
    started: list[Loop] = []

    def start(process: str = "worker") -> Loop:
        name, work = loops.LOOPS[process]
        started.append(Loop(name, work()))
        started[-1].start()
        return started[-1]

    yield start
    for loop in started:
        loop.stop()
        loop.join(SECONDS)


def replace(monkeypatch: pytest.MonkeyPatch, name: str, **change: object) -> None:
    kept = manager.CONTROLLERS[name]
    monkeypatch.setitem(manager.CONTROLLERS, name, msgspec.structs.replace(kept, **change))


def test_every_controller_can_be_at_work_at_the_same_time(monkeypatch):
    """The barrier opens when all of them have come to it: then none waits for another's end."""
    together = threading.Barrier(len(manager.CONTROLLERS) + 1)
    for name in manager.CONTROLLERS:
        replace(
            monkeypatch,
            name,
            look=lambda now: together.wait(SECONDS),
            has_work=lambda seen, now: True,
        )
    controllers = duties.Controllers()
    assert controllers.begin() == list(manager.CONTROLLERS)
    assert controllers.begin() == []  # each is in a pass
    together.wait(SECONDS)
    assert controllers.wait(SECONDS)
    controllers.end()


@pytest.mark.parametrize("slow", few(SLOW, 6))
def test_what_takes_long_holds_up_nothing_else(slow, monkeypatch, running, released):
    """Namespaces end, roles are aggregated, nodes are judged and the loop reports meanwhile."""
    held, judged = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        held.set()
        released.wait(3 * SECONDS)

    def judge(now: object) -> None:
        if held.is_set():
            judged.set()

    if slow == "trim":
        monkeypatch.setattr(duties, "trim", hold)
    elif slow == "landings":
        monkeypatch.setattr(duties, "_foresee_all", hold)
        monkeypatch.setattr(duties, "unforeseen", lambda before, *, limit: [1])
    else:
        replace(monkeypatch, slow, look=hold, has_work=lambda seen, now: True)
    monkeypatch.setattr(lifecycle, "run", judge)
    running()
    assert held.wait(SECONDS)
    now = steady_clock.now()
    objects.create("Namespace", "", {"metadata": {"name": "old"}}, now=now)
    objects.create("Namespace", "", {"metadata": {"name": "new"}}, now=now)
    objects.delete("Namespace", "", "old", now=now)
    assert judged.wait(SECONDS)
    if slow != "namespaces":
        until(lambda: find_object("Namespace", "", "old") is None, seconds=SECONDS)
    if slow != "namespace-defaults":
        until(lambda: find_object("ServiceAccount", "new", "default") is not None, seconds=SECONDS)
    standing = progress.standing(patience=SECONDS)
    assert standing.silent_seconds[manager.NAME] < progress.SILENT_SECONDS
    assert not released.is_set()


def deployment(image: str) -> dict[str, Any]:
    labels = {"app": "web"}
    containers = [{"name": "main", "image": image}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def test_a_change_of_a_workload_has_its_revision_before_the_next_look(
    monkeypatch, running, redis_client
):
    """Who undoes a change by the next command finds what was before it."""
    monkeypatch.setattr(duties, "_LOOK_SECONDS", 3600.0)
    monkeypatch.setattr(duties.settings, "NODE_MONITOR_PERIOD_SECONDS", 3600.0)
    bootstrap.add_missing(now=steady_clock.now())
    running()

    def revisions() -> list[str]:
        found = [decode_object(one) for one in list_page("ReplicaSet", "default").items]
        return sorted(
            one["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for one in found
        )

    objects.create("Deployment", "default", deployment("web:1"), now=steady_clock.now())
    until(lambda: revisions() == ["1"], seconds=SECONDS)

    def change(stored: dict[str, Any]) -> dict[str, Any]:
        return {**stored, "spec": deployment("web:2")["spec"]}

    objects.update("Deployment", "default", "web", change, now=steady_clock.now())
    until(lambda: revisions() == ["1", "2"], seconds=SECONDS)


def test_news_begins_no_pass_while_controllers_rest_after_a_long_one(monkeypatch):
    passes = []
    replace(monkeypatch, "workloads", look=passes.append, has_work=lambda seen, now: True)
    replace(monkeypatch, manager.CLAIMS, has_work=lambda seen, now: False)
    controllers = duties.Controllers()
    assert controllers.rest_left() <= 0
    assert controllers.begin_promptly() == ["workloads"]
    assert controllers.wait(SECONDS)
    monkeypatch.setattr(duties, "_PROMPT_SHARE", 1e9)
    assert controllers.begin_promptly() == ["workloads"]
    assert controllers.wait(SECONDS)
    assert controllers.rest_left() > 60
    assert "workloads" in controllers.begin()  # what is due each second does not rest
    controllers.end()


@pytest.mark.parametrize(
    ("error", "level", "event"),
    [
        (OperationalError("the connection is lost"), "warning", "lost_the_database"),
        (DataError("a row that nobody can read"), "error", "pass_failed"),
    ],
)
def test_a_pass_that_fails_is_told_and_tried_again(error, level, event, monkeypatch):
    passes = []

    def look(now: object) -> None:
        passes.append(now)
        if len(passes) == 1:
            raise error

    for name in manager.CONTROLLERS:
        replace(monkeypatch, name, has_work=lambda seen, now: False)
    replace(monkeypatch, "garbage", look=look, has_work=lambda seen, now: True)
    controllers = duties.Controllers()
    with capture_logs() as lines:
        for _ in range(2):
            assert controllers.begin() == ["garbage"]
            assert controllers.wait(SECONDS)
    controllers.end()
    assert len(passes) == 2
    told = [
        (one["log_level"], one["event"]) for one in lines if one.get("work") == "controller-garbage"
    ]
    assert told == [(level, event)]


def test_a_thread_goes_on_after_a_failure_in_a_session_of_its_own():
    sessions: list[int] = []

    def note() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            sessions.append(cursor.fetchone()[0])

    def fail() -> None:
        note()
        raise ValueError("whatever")

    thread = OwnThread("one")
    with capture_logs() as lines:
        for do in (note, fail, note):
            assert thread.begin(do)
            assert thread.wait(SECONDS)
    thread.end()
    assert [one["work"] for one in lines] == ["one"]
    assert sessions[0] == sessions[1] != sessions[2]  # the session of a failure is closed
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone()[0] not in sessions


@pytest.mark.parametrize("process", ["worker", "timers", "scheduler"])
def test_a_database_that_only_reads_is_told_in_lines_and_work_goes_on_when_it_writes(
    process, running
):
    """As after a fail-over, until the standby is promoted: nothing is tried that cannot be done."""
    if process == "scheduler":
        deciding.warm()  # one without its loops is not ready, and notes nothing that could fail
    only_reads = threading.Event()
    only_reads.set()
    tries: list[str] = []

    def restrict(sender: object, connection: Any, **_: object) -> None:
        if only_reads.is_set() and threading.current_thread() is not threading.main_thread():
            tries.append(threading.current_thread().name)
            with connection.cursor() as cursor:
                cursor.execute("SET default_transaction_read_only = on")

    def told_of_the_loop(line: MutableMapping[str, Any]) -> bool:
        return line["event"] == "lost_the_database" and line["work"] == loops.LOOPS[process][0]

    def works(loop: str) -> bool:
        """Return whether the loop has reported since it may write."""
        return sql.fetch_one("SELECT 1 FROM loop_progress WHERE name = %s", (loop,)) is not None

    ours = f"loop-{loops.LOOPS[process][0]}"
    now = steady_clock.now()
    objects.create("Namespace", "", {"metadata": {"name": "old"}}, now=now)
    objects.delete("Namespace", "", "old", now=now)
    connection_created.connect(restrict)
    try:
        with capture_logs() as lines:
            running(process)
            until(lambda: tries.count(ours) > 4, seconds=SECONDS)
            told = list(lines)
            only_reads.clear()
            until(lambda: works(loops.LOOPS[process][0]), seconds=SECONDS)
            if process == "worker":
                until(lambda: find_object("Namespace", "", "old") is None, seconds=SECONDS)
    finally:
        connection_created.disconnect(restrict)
    assert not [one for one in told if one["log_level"] == "error"]
    again = [one for one in told if told_of_the_loop(one)]
    assert again[-1]["error"].startswith("the database is read-only")
    assert len(again) == len({one["error"] for one in again})  # not for each try
    others = [one for one in told if one not in again]
    assert len(others) <= len(manager.CONTROLLERS) + 2  # each was tried once, not each time
    (over,) = [one for one in lines if one["event"] == "goes_on" and one["work"] == ours[5:]]
    assert over["failures"] >= tries.count(ours) - 1


@pytest.mark.parametrize("process", ["worker", "timers", "scheduler"])
def test_a_process_of_a_newer_version_waits_until_the_database_is_prepared(
    process, running, monkeypatch
):
    """One line says what to do, and nothing is tried that would fail for want of a column."""
    monkeypatch.setattr(health, "_prepared", set())
    name = loops.LOOPS[process][0]
    ((last,),) = sql.fetch(
        "DELETE FROM django_migrations WHERE app = 'clusterstate' AND name ="
        " (SELECT max(name) FROM django_migrations WHERE app = 'clusterstate') RETURNING name"
    )
    lacks = f"lacks {last}: run manage.py prepare"
    try:
        with capture_logs() as lines:
            running(process)
            until(lambda: any(one.get("work") == name for one in lines), seconds=SECONDS)
            assert sql.fetch("SELECT 1 FROM loop_progress WHERE name = %s", (name,)) == []
            (part,) = [one for one in parts_now() if one.name == "database"]
            assert part.problem == lacks
    finally:
        sql.run(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('clusterstate', %s::text, now())",
            (last,),
        )
    told = [(one["event"], one.get("error")) for one in lines]
    assert told == [("lost_the_database", f"the database {lacks}")]
    until(
        lambda: sql.fetch("SELECT 1 FROM loop_progress WHERE name = %s", (name,)), seconds=SECONDS
    )
    assert [one.problem for one in parts_now() if one.name == "database"] == [""]


@pytest.mark.parametrize(
    ("statement", "away"),
    [
        ("SELECT pg_terminate_backend(pg_backend_pid())", True),
        ("SET default_transaction_read_only = on; DELETE FROM set_aside", True),
        ("SELECT 1 / 0", False),
        ("SELECT nothing", False),
    ],
)
def test_what_counts_as_a_database_that_is_away(statement, away):
    def ask() -> None:
        for one in statement.split("; "):
            sql.run(one)

    with pytest.raises(DatabaseError) as raised:
        ask()
    assert sql.is_away(raised.value) is away
    connection.close()


@pytest.mark.parametrize("read", [bulk.bound_pods, bulk.tried_pods])
def test_a_lock_that_the_whole_state_waits_for_counts_as_a_database_that_is_away(read):
    """What is read by COPY fails as statements do: another session holds the tables."""
    holder = connection.copy()
    try:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute("LOCK TABLE pod, pending_pod, node IN ACCESS EXCLUSIVE MODE")
        sql.run("SET lock_timeout = '50ms'")
        with pytest.raises(OperationalError) as raised:
            read()
    finally:
        holder.close()
        connection.close()
    assert sql.is_away(raised.value)
