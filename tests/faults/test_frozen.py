"""Stopping parts of the running service: nobody waits for them for ever, and they are replaced.

A stopped process (SIGSTOP) is the hardest: its sockets are open, its sessions and locks are there,
and it wakes at any moment as if nothing had happened.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest
import redis

from clusterstate.database import locks
from clusterstate.local import places
from tests import faults
from tests.faults import asked
from tests.forms import few
from tests.live import ROOT, Service, node, pod, started
from tests.waiting import running, until

pytestmark = faults.MARKS
PODS = "/api/v1/namespaces/default/pods"
SOON = 2.0
"""Within so many seconds a pod is bound, whatever Redis does."""
SLACK = 3.0
"""What a machine with as many busy workers as cores adds to a promise in seconds."""
_numbers = iter(range(1_000_000))


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with started(STOWAGE_ADVISORS="1", STOWAGE_CONSOLE="") as service:
        assert service.request("POST", "/api/v1/nodes", node("n", cpu="64"))[0] == 201
        place(service)
        yield service


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process; continue it afterwards, if it is still there."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if running(pid):
            os.kill(pid, signal.SIGCONT)


def post(service: Service, *, cpu: str = "1m", **spec: Any) -> str:
    name = f"p{next(_numbers)}"
    status, body = service.request("POST", PODS, pod(name, cpu=cpu, **spec))
    assert status == 201, body
    return name


def bound(service: Service, name: str) -> bool:
    return bool(service.request("GET", f"{PODS}/{name}")[1]["spec"].get("nodeName"))


def place(service: Service, seconds: float = 30.0) -> float:
    """Post a pod and wait until it is bound; return how long that took."""
    began = time.monotonic()
    name = post(service)
    until(lambda: bound(service, name), seconds=seconds, what=f"{name} to be bound")
    return time.monotonic() - began


def readiness(service: Service) -> tuple[int, str]:
    status, text = service.request("GET", "/readyz", seconds=5)
    return status, str(text)


def unready(service: Service) -> str:
    """Return what /readyz says, empty while it says ready."""
    status, text = readiness(service)
    return text if status == 503 else ""


def until_ready(service: Service) -> None:
    until(lambda: readiness(service)[0] == 200, seconds=90, what="ready again")


def holds(service: Service, lock: str) -> list[int]:
    """Return the sessions that hold a single-key advisory lock of ours, by its low number."""
    with service.database() as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
            " AND (classid::bigint >> 16) = 0x5358 AND objid = %s",
            [{"cycle": 3, "timers": 4}[lock]],
        ).fetchall()
    return [pid for (pid,) in rows]


def test_a_pod_is_bound_while_redis_is_frozen_refuses_and_is_empty(service: Service) -> None:
    with stopped(service.pid("redis")):
        times = [place(service) for _ in range(3)]
    assert max(times) < SOON + SLACK, times
    assert min(times) < SOON, times
    with redis.Redis.from_url(places.redis_url(service.state), socket_timeout=5) as connection:
        connection.flushall()
    assert place(service) < SOON + SLACK
    service.kill("redis")
    assert place(service) < SOON + SLACK
    until_ready(service)


@pytest.mark.long
def test_a_pod_is_bound_while_redis_has_no_memory_left(service: Service) -> None:
    """Redis refuses to store anything, as one that others filled: questions get no answer."""
    until(lambda: advised(service) == 201, seconds=90, what="the advisor")
    url = places.redis_url(service.state)
    with redis.Redis.from_url(url, socket_timeout=5) as connection:
        connection.config_set("maxmemory", 1)
        try:
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                connection.set("anything", 1)
            assert max(place(service) for _ in range(3)) < SOON + SLACK
            assert advised(service) == 503
            assert readiness(service)[0] == 200
        finally:
            connection.config_set("maxmemory", 0)
    until(lambda: advised(service) == 201, seconds=30, what="answers again")


def redis_answers(service: Service) -> bool:
    """Return whether Redis is there: one that was killed is started anew."""
    with redis.Redis.from_url(places.redis_url(service.state), socket_timeout=2) as connection:
        try:
            return bool(connection.ping())
        except redis.exceptions.ConnectionError:
            return False


def noticed(service: Service) -> int:
    """Return how often a worker told of an answer of Redis that it cannot use."""
    text = (service.state / "stowage.log").read_text()
    return sum(map(text.count, ("broker_does_not_work", "Unrecoverable error")))


@pytest.mark.parametrize("restart", few([False, True]), ids=["goes-on", "starts"])
def test_no_answer_of_redis_ends_a_worker_or_keeps_one_from_starting(
    service: Service, restart: bool
) -> None:
    """A replica, one that holds something else under our names, and what is no message."""
    until(lambda: redis_answers(service), seconds=30, what="Redis")
    until_ready(service)
    queues = ("scheduling", "timers", "celery")
    scheduler = service.pid("scheduler")
    with redis.Redis.from_url(places.redis_url(service.state), socket_timeout=5) as connection:

        def take_messages_that_are_none() -> None:
            for queue in queues:
                connection.rpush(queue, b"no message", b"[]", b"{}", b'{"properties": {}}')

        def hold_others() -> None:
            for name in (*(f"_kombu.binding.{queue}" for queue in queues), *queues):
                connection.delete(name)
                connection.set(name, "neither a list nor a set")

        for spoil in (
            lambda: connection.execute_command("REPLICAOF", "127.0.0.1", "1"),
            take_messages_that_are_none,
            hold_others,
        ):
            before = noticed(service)
            spoil()
            try:
                until(lambda before=before: noticed(service) > before, what="workers to notice")
                if restart:
                    scheduler = service.kill("scheduler")
                assert min(place(service) for _ in range(3)) < (30 if restart else SOON + SLACK)
            finally:
                connection.execute_command("REPLICAOF", "NO", "ONE")
                connection.flushall()
    if not restart:
        assert service.pid("scheduler") == scheduler
    assert "Unrecoverable error" not in (service.state / "stowage.log").read_text()
    until_ready(service)


@pytest.mark.long
def test_timers_fire_while_redis_is_frozen(service: Service) -> None:
    assert service.request("POST", "/api/v1/nodes", node("t"))[0] == 201
    name = f"p{next(_numbers)}"
    manifest = pod(name, cpu="1m", nodeName="t", terminationGracePeriodSeconds=0)
    assert service.request("POST", PODS, manifest)[0] == 201
    with stopped(service.pid("redis")):
        taint = {"spec": {"taints": [{"key": "gone", "effect": "NoExecute"}]}}
        status, body = service.request(
            "PATCH", "/api/v1/nodes/t", taint, content_type="application/strategic-merge-patch+json"
        )
        assert status == 200, body
        until(
            lambda: (
                service.request("GET", f"{PODS}/{name}")[1]
                .get("metadata", {})
                .get("deletionTimestamp", service.request("GET", f"{PODS}/{name}")[0] == 404)
            ),
            seconds=SOON + SLACK,
            what="the pod to be evicted",
        )


@pytest.mark.parametrize(
    ("part", "loop"),
    few([("scheduler", "scheduler"), ("timers", "timers"), ("worker", "controllers")]),
)
def test_a_stopped_worker_is_told_of_and_replaced(service: Service, part: str, loop: str) -> None:
    until_ready(service)
    old = service.pid(part)
    os.kill(old, signal.SIGSTOP)
    # Of a machine that is busy with other work something else may be told first.
    told = f"[-] {loop}: "
    until(lambda: told in unready(service), seconds=15, what=f"{told}to be told")
    until(lambda: not running(old), seconds=15, what=f"the stopped {part} to be killed")
    until_ready(service)
    assert place(service) < 10


@pytest.mark.parametrize("part", few(["http", "https"]))
def test_a_stopped_web_process_is_replaced(service: Service, part: str) -> None:
    old = service.pid(part)
    os.kill(old, signal.SIGSTOP)
    until(lambda: not running(old), seconds=15, what=f"the stopped {part} to be killed")
    until(service.ready, seconds=60, what="both servers again")


def advised(service: Service) -> int:
    """Ask how many more pods of a shape fit; return the status."""
    path = "/apis/stowage.dev/v1/headroom"
    return service.request("POST", path, pod("asked", cpu="1m"), seconds=90)[0]


def shown(service: Service) -> int:
    """Ask the console for a page that everybody may see; return the status."""
    return service.request("GET", "/console/sign-in", seconds=90)[0]


@pytest.mark.parametrize(
    ("part", "ask", "fine"), few([("advisor", advised, 201), ("console", shown, 200)])
)
def test_a_stopped_helper_holds_up_no_pod_and_is_replaced(
    service: Service, part: str, ask: Callable[[Service], int], fine: int
) -> None:
    """Who asked meanwhile has an answer or is told to come again."""
    until(lambda: ask(service) == fine, seconds=90, what=f"the {part}")
    until_ready(service)
    old = service.pid(part)
    os.kill(old, signal.SIGSTOP)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, service) for _ in range(4)]
        assert place(service) < SOON + SLACK
        assert readiness(service)[0] == 200
        until(lambda: not running(old), seconds=40, what=f"the stopped {part} to be killed")
        assert {one.result(90) for one in asked} <= {fine, 503}
    until(lambda: ask(service) == fine, seconds=90, what=f"another {part}")


@pytest.fixture
def unsupervised(service: Service) -> Iterator[Service]:
    """The same service while its supervisor is stopped, as on another host: nobody is replaced."""
    until_ready(service)
    with stopped(service.process.pid):
        yield service
    until_ready(service)


def test_a_preview_that_takes_long_is_told_and_shown_once_it_is_there(
    unsupervised: Service,
) -> None:
    service = unsupervised
    password = (service.state / "admin-password").read_text().strip()
    visitor = asked.Visitor(service.http_port, lambda: password)
    drain = "/console/change?do=drain&node=n"
    until(lambda: "What will happen" in visitor.read(drain)[1], seconds=90, what="a preview")
    with ThreadPoolExecutor(1) as threads:
        with stopped(service.pid("advisor")):
            began = time.monotonic()
            status, page, _ = visitor.read(drain)
            assert time.monotonic() - began < 5 + SLACK
            assert status == 200
            assert "The preview is not there yet" in page
            assert "Cordon now, evict later" in page
            part = threads.submit(visitor.read, drain, is_part=True)
            assert visitor.read(f"{drain}&progress=1", is_part=True)[0] == 200
        status, _, leads_to = part.result(60)
        assert status == 200
    if not leads_to:  # the advisor was away for so long that the page said so: ask again
        leads_to = until(
            lambda: visitor.read(drain, is_part=True)[2], seconds=60, what="the preview"
        )
    assert leads_to.startswith("?do=")
    name = leads_to.rpartition("plan=")[2]
    again = visitor.read(f"/console/change{leads_to}")[1]
    assert name in again
    assert "What will happen" in again
    assert name not in visitor.read(f"/console/change{leads_to.replace('=n&', '=m&')}")[1]


@pytest.mark.parametrize(("part", "lock"), few([("scheduler", "cycle"), ("timers", "timers")]))
def test_a_stopped_holder_loses_its_lock_within_five_seconds_and_goes_on_when_it_wakes(
    unsupervised: Service, part: str, lock: str
) -> None:
    service = unsupervised
    (before,) = until(lambda: holds(service, lock), what=f"a {part}")
    with stopped(service.pid(part)):
        until(lambda: before not in holds(service, lock), seconds=5 + SLACK, what="the lock free")
        if part == "scheduler":
            waiting = post(service)
            until(lambda: unready(service), seconds=10, what="not ready")
    until(lambda: holds(service, lock), seconds=20, what=f"the {part} to work again")
    if part == "scheduler":
        until(lambda: bound(service, waiting), seconds=20, what="the pod to be bound")


def test_a_scheduler_that_wakes_after_another_took_over_binds_nothing_on_what_it_knew(
    unsupervised: Service,
) -> None:
    service = unsupervised
    first = service.pid("scheduler")
    with second_scheduler(service) as standby:
        # A cluster in which only one of the two can know where there is room.
        assert service.request("POST", "/api/v1/nodes", node("small", cpu="1"))[0] == 201
        with stopped(first):
            until(
                lambda: first_words(service, "scheduler") == standby, seconds=120, what="takeover"
            )
            name = post(service, cpu="1", nodeSelector={"kubernetes.io/hostname": "small"})
            until(lambda: bound(service, name), seconds=10, what="the standby to bind")
            waiting = post(service, cpu="1", nodeSelector={"kubernetes.io/hostname": "small"})
        until(lambda: refused(service, waiting), seconds=20, what="no room for the second")
        place(service)
        assert not bound(service, waiting)
    until(lambda: holds(service, "cycle"), seconds=20, what="the first scheduler to work again")
    assert place(service) < 20
    assert service.request("DELETE", f"{PODS}/{waiting}?gracePeriodSeconds=0")[0] == 200
    with service.database() as connection:
        twice = connection.execute(
            "SELECT name FROM change WHERE kind = 1 AND node_name <> '' AND previous_node_name = ''"
            " GROUP BY object_id, name HAVING count(*) > 1"
        ).fetchall()
    assert twice == []


def refused(service: Service, name: str) -> bool:
    status = service.request("GET", f"{PODS}/{name}")[1].get("status", {})
    return any(one["status"] == "False" for one in status.get("conditions", ()))


def first_words(service: Service, loop: str) -> str:
    """Return who did a loop's work last: host and pid."""
    with service.database() as connection:
        row = connection.execute(
            "SELECT holder FROM loop_progress WHERE name = %s", [loop]
        ).fetchone()
    return row[0] if row else ""


@contextmanager
def second_scheduler(service: Service) -> Iterator[str]:
    """Run one more scheduler, as on another host; yields how it names itself.

    It never finds a Redis, which must not matter to it.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "scheduling", "worker", "--queue", "scheduling",
         "--name", "standby"],
        cwd=ROOT, env={**environment(service), "STOWAGE_PROCESS": "scheduler",
             "REDIS_URL": "unix:///nowhere/redis.sock?db=0"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"{socket.gethostname()}:{process.pid}"
    finally:
        process.kill()
        process.wait()


# As a writer does, so that every follower of the log stays where it is.
WATERMARK = (
    "SELECT pg_advisory_xact_lock_shared((0x5357::bigint << 48)"
    " + pg_sequence_last_value('change_revision'))"
)


@pytest.mark.parametrize(
    "lock",
    few(
        [
            WATERMARK,
            f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})",
            "LOCK TABLE pod",
        ]
    ),
    ids=["watermark", "placement", "table"],
)
def test_a_writer_that_falls_silent_in_a_transaction_holds_up_nobody_and_is_refused(
    service: Service, lock: str
) -> None:
    """A shell's session, without any time-out of its own."""
    until_ready(service)
    with psycopg.connect(places.postgres_url(service.state)) as writer:
        writer.execute(lock)
        began = time.monotonic()
        place(service, seconds=5 + SOON + SLACK)
        assert time.monotonic() - began < 5 + SOON + SLACK
        with pytest.raises(psycopg.OperationalError):
            writer.execute("SELECT 1")


@pytest.mark.parametrize(
    "statement", few(["VACUUM FULL pod", "ALTER TABLE node ADD COLUMN reported integer"])
)
def test_a_change_of_a_table_that_waits_for_a_long_report_holds_up_nobody(
    service: Service, statement: str
) -> None:
    """The report reads, and stands in nobody's way; the statement behind it lets nobody pass."""
    until_ready(service)
    url = places.postgres_url(service.state)
    with (
        closing(psycopg.connect(url)) as report,
        psycopg.connect(url, autocommit=True) as admin,
        ThreadPoolExecutor(1) as thread,
    ):
        report.execute("LOCK TABLE pod, change, node IN ACCESS SHARE MODE")
        report.pgconn.send_query(b"SELECT pg_sleep(60)")
        report.pgconn.flush()
        changed = thread.submit(admin.execute, statement)
        began = time.monotonic()
        place(service, seconds=5 + SOON + SLACK)
        assert time.monotonic() - began < 5 + SOON + SLACK
        with pytest.raises(psycopg.errors.QueryCanceled):
            changed.result(30)
        assert admin.execute("SELECT 1").fetchone() == (1,)
        assert report.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE


@pytest.mark.long
def test_a_process_that_is_stopped_while_it_writes_holds_up_nobody_and_is_refused_when_it_wakes(
    service: Service,
) -> None:
    until_ready(service)
    name = f"p{next(_numbers)}"
    code = (
        "import django, sys; django.setup()\n"
        "from django.db import transaction\n"
        "from django.utils import timezone\n"
        "from clusterstate.actions.pods.create import create_pods\n"
        f"manifest = {pod(name, cpu='1m')!r}\n"
        "manifest['metadata']['namespace'] = 'default'\n"
        "with transaction.atomic():\n"
        "    create_pods([manifest], now=timezone.now())\n"
        "    print('written', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment(service), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n", writer.communicate()[1]
        with stopped(writer.pid):
            place(service, seconds=5 + SOON + SLACK)
        _, errors = writer.communicate("\n", timeout=30)
        assert writer.returncode == 1
        assert "OperationalError" in errors or "InterfaceError" in errors
    finally:
        writer.kill()
    assert service.request("GET", f"{PODS}/{name}")[0] == 404


def environment(service: Service) -> dict[str, str]:
    """Return the environment of a web process of the service."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "clusterstate.settings",
        "STOWAGE_PROCESS": "http",
        "STOWAGE_STATE": str(service.state),
        "DATABASE_URL": places.postgres_url(service.state),
        "REDIS_URL": places.redis_url(service.state),
    }


@pytest.mark.long
def test_a_writer_that_does_not_read_its_answer_holds_up_nobody(service: Service) -> None:
    until_ready(service)
    with closing(psycopg.connect(places.postgres_url(service.state))) as writer:
        writer.execute(f"SELECT pg_advisory_xact_lock({locks.PLACEMENT})")
        # An answer that no socket's buffer holds, and nobody who reads it.
        writer.pgconn.send_query(b"SELECT repeat('x', 1000000) FROM generate_series(1, 200)")
        writer.pgconn.flush()
        place(service, seconds=5 + SOON + SLACK)


def test_every_session_of_the_service_has_time_outs(service: Service) -> None:
    """Asked of the server: what a session started with stands in its own settings alone."""
    names = (
        "idle_in_transaction_session_timeout",
        "lock_timeout",
        "statement_timeout",
        "transaction_timeout",
        "client_connection_check_interval",
    )
    code = (
        "import django; django.setup(); from django.db import connection\n"
        "cursor = connection.cursor()\n"
        f"for name in {names!r}:\n"
        "    cursor.execute('SHOW ' + name)\n"
        "    print(name, cursor.fetchone()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment(service), capture_output=True, text=True, check=True,
    )  # fmt: skip
    shown = dict(line.split() for line in done.stdout.splitlines())
    assert set(shown) == set(names)
    assert "0" not in shown.values()
    assert shown["idle_in_transaction_session_timeout"] in ("1s", "2s", "3s", "4s")


@pytest.mark.long
def test_what_a_stopped_supervisor_does_not_read_holds_up_nobody(unsupervised: Service) -> None:
    """PostgreSQL logs each refused statement: its pipe fills, and a backend would wait for it."""
    service = unsupervised
    statement = b"SELECT 1/0 -- " + b"x" * 200_000
    with ExitStack() as stack:
        for _ in range(10):
            connection = psycopg.connect(places.postgres_url(service.state))
            stack.enter_context(closing(connection))
            connection.pgconn.send_query(statement)
            connection.pgconn.flush()
        status, _ = service.request("POST", "/api/v1/nodes", node("n"), seconds=10)
        assert status == 409
        assert place(service) < 10


@pytest.mark.long
def test_a_backend_and_the_server_itself_continue_when_they_were_stopped(service: Service) -> None:
    until_ready(service)
    for pid in (holds(service, "cycle")[0], service.pid("postgres")):
        os.kill(pid, signal.SIGSTOP)
        until(
            lambda pid=pid: state_of(pid) != "T", seconds=15, what="the supervisor to continue it"
        )
        until_ready(service)
    assert place(service) < 10


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


PAGES = ("/console/", "/console/nodes/", "/console/sign-in", "/admin/", "/admin/login/")


def seconds_of(ask: Callable[[], object]) -> float:
    began = time.monotonic()
    ask()
    return time.monotonic() - began


def require_pages_that_say_so(service: Service) -> None:
    """Each page and form is answered at once; a style sheet needs no database."""
    # The console's process finds out by itself.
    until(lambda: service.request("GET", PAGES[0])[0] == 503, seconds=4 + SLACK, what="503")
    for method, path in [*(("GET", path) for path in PAGES), ("POST", "/console/sign-in")]:
        began = time.monotonic()
        status, text = service.request(method, path, b"" if method == "POST" else None)
        assert time.monotonic() - began < 1, path
        assert (status, "The database does not answer" in text) == (503, True), path
        assert 'data-part="database"' in text, path
        assert ("Nothing was changed" in text) == (method == "POST"), path
    assert service.request("GET", "/static/console/console.css", seconds=1)[0] == 200


def shows(service: Service) -> bool:
    return service.request("GET", "/console/sign-in")[0] == 200


def test_readiness_and_pages_tell_at_once_of_a_database_that_is_frozen_or_gone(
    unsupervised: Service,
) -> None:
    service = unsupervised
    assert shows(service)
    with stopped(service.pid("postgres")), service_backends_stopped(service):
        with ThreadPoolExecutor(6) as threads:  # more than there are threads for pages
            first = [threads.submit(service.request, "GET", PAGES[2]) for _ in range(6)]
            assert seconds_of(lambda: [one.result(30) for one in first]) < 4 + SLACK
        text = until(lambda: unready(service), seconds=10, what="not ready")
        assert "[-] database: does not answer" in text
        assert seconds_of(lambda: readiness(service)) < 2 + SLACK
        require_pages_that_say_so(service)
    assert seconds_of(lambda: until(lambda: shows(service), what="a page")) < 2 + SLACK
    until_ready(service)
    os.kill(service.pid("postgres"), signal.SIGQUIT)
    assert seconds_of(lambda: service.request("GET", PAGES[2])) < 1 + SLACK
    require_pages_that_say_so(service)
    # All requests together wait for as long as a restart takes, and not each of them.
    until(lambda: seconds_of(lambda: service.request("GET", PODS)) < 1, what="a refusal at once")
    assert service.request("GET", PODS)[0] == 503
    os.kill(service.process.pid, signal.SIGCONT)
    until(lambda: service.request("GET", PODS)[0] == 200, seconds=60, what="the database again")
    assert seconds_of(lambda: until(lambda: shows(service), what="a page")) < 2 + SLACK
    until_ready(service)
    assert place(service) < 10


def test_a_request_waits_for_a_stuck_process_of_the_server_no_longer_than_for_a_frozen_host(
    unsupervised: Service,
) -> None:
    """The server answers others and says that the process works: only the client can give up."""
    service = unsupervised
    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'stowage-http'"
    with service.database() as connection, ThreadPoolExecutor(6) as threads, ExitStack() as stack:
        stuck = [pid for (pid,) in connection.execute(sessions).fetchall()]
        assert stuck
        for pid in stuck:
            stack.enter_context(stopped(pid))
        began = time.monotonic()
        asked = [threads.submit(service.request, "GET", f"{PODS}?limit=1") for _ in range(6)]
        found = [one.result(60) for one in asked]
        assert time.monotonic() - began < 20 + SLACK
        assert {status for status, _ in found} <= {200, 503}, found
        assert 503 in {status for status, _ in found}, found
        # Each thread gives up its own session, and then has a new one.
        until(
            lambda: service.request("GET", f"{PODS}?limit=1")[0] == 200,
            seconds=90,
            what="an answer",
        )


@contextmanager
def service_backends_stopped(service: Service) -> Iterator[None]:
    """Stop every process of PostgreSQL's: the children of its first one."""
    first = service.pid("postgres")
    with open(f"/proc/{first}/task/{first}/children") as file:
        pids = [int(pid) for pid in file.read().split()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if running(pid):
                os.kill(pid, signal.SIGCONT)
