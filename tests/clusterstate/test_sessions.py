"""Which sessions must end: those of stopped or lost processes, and those that hold up everybody."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction

from clusterstate.actions.loops import progress
from clusterstate.database import sessions, sql
from clusterstate.database.postgres.base import closed_backends, open_backends
from clusterstate.database.sessions import Judge, Session, find_sessions
from clusterstate.local import preparation
from clusterstate.telemetry import slowness
from tests.clusterstate.support import Worker
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
OURS = "stowage-timers-0a"
THEIRS = "stowage-scheduler-0b"


def session(pid: int, **changed: object) -> Session:
    usual = {
        "application": "stowage-http", "state": "idle", "waits_for": "Client",
        "quiet_seconds": 60.0, "at": "a", "locks": False, "blocks": False,
    }  # fmt: skip
    return Session(pid=pid, **{**usual, **changed})


def judged(*looks: list[Session]) -> set[int]:
    """Return who is condemned after looks that are a second apart."""
    judge = Judge(OURS)
    found: dict[int, str] = {}
    for second, seen in enumerate(looks):
        found = judge.condemn(seen, float(second))
    return set(found)


class Process:
    """Another process as its sessions and ``/proc`` show it: real, so that it can be stopped."""

    def __init__(self) -> None:
        code = "import time\nwhile True:\n    sum(range(1000)); time.sleep(0.001)"
        self._process = subprocess.Popen([sys.executable, "-c", code])
        ours = slowness.sign().split(".")
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        began = int(fields[19]) & 0xFFFFFF
        self.sign = f"stowage-scheduler-{ours[0]}.{self._process.pid}.{began:x}"

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            until(
                lambda: slowness.process_state(self.sign.rpartition("-")[2])[0] == "T",
                what="its stop",
            )

    def work(self) -> None:
        """Wait until it has used a processor for a while."""
        token = self.sign.rpartition("-")[2]
        before = slowness.process_state(token)[1]
        until(lambda: slowness.process_state(token)[1] > before, seconds=60, what="work")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def process() -> Iterator[Process]:
    one = Process()
    yield one
    one.end()


def test_idle_sessions_of_web_processes_and_of_people_stay() -> None:
    people = session(2, application="psql"), session(3, application="")
    assert judged(*[[session(1), *people]] * 9) == set()


def test_all_sessions_of_a_process_without_a_keeper_end_and_no_others() -> None:
    lost = [session(1, application=THEIRS, locks=True), session(2, application=THEIRS)]
    others = [
        session(3, application=OURS, locks=True),
        session(4, application="stowage-worker-0c", locks=True),
        session(5, application="stowage-worker-0c+"),
    ]
    assert judged([*lost, *others]) == set()
    assert judged(*[[*lost, *others]] * 2) == {1, 2}


def test_a_process_whose_keeper_connects_again_or_that_works_keeps_its_sessions() -> None:
    holder = session(1, application=THEIRS, locks=True)
    keeper = session(2, application=f"{THEIRS}+")
    assert judged([holder], [holder, keeper], [holder]) == set()
    busy = session(1, application=THEIRS, locks=True, quiet_seconds=0.2)
    assert judged(*[[busy]] * 9) == set()


@pytest.mark.parametrize(
    ("changed", "looks", "ends"),
    [
        ({"locks": True}, 4, True),
        ({"locks": True}, 3, False),
        ({"locks": False}, 9, False),
        ({"locks": True, "waits_for": "Lock"}, 9, False),
    ],
)
def test_who_does_not_read_an_answer_ends_if_that_holds_up_others(changed, looks, ends) -> None:
    deaf = session(1, state="active", **changed)
    assert judged(*[[deaf]] * looks) == ({1} if ends else set())


def test_who_sends_one_statement_after_the_other_is_not_deaf() -> None:
    looks = [[session(1, state="active", locks=True, at=str(n))] for n in range(9)]
    assert judged(*looks) == set()


@pytest.mark.parametrize("state", ["idle in transaction", "idle in transaction (aborted)"])
def test_a_silent_transaction_ends_if_it_holds_a_lock_of_ours(state: str) -> None:
    assert judged([session(1, state=state, locks=True, quiet_seconds=3.5)]) == {1}
    assert judged([session(1, state=state, locks=True, quiet_seconds=2.0)]) == set()
    assert judged([session(1, state=state, locks=False)]) == set()


def test_a_silent_transaction_ends_if_a_session_of_ours_waits_for_what_it_holds() -> None:
    blocking = session(1, state="idle in transaction", blocks=True, quiet_seconds=3.5)
    assert judged([blocking], [blocking]) == {1}
    assert judged([blocking]) == set()  # a moment is what who drops a table may wait
    assert judged([blocking], [session(1)], [blocking]) == set()
    speaks = session(1, state="idle in transaction", blocks=True, quiet_seconds=2.0)
    works = session(1, state="active", blocks=True)
    assert judged([speaks], [speaks]) == judged([works], [works]) == set()


def test_a_statement_of_others_that_waits_is_cancelled_when_ours_wait_behind_it() -> None:
    def hindered(*looks: Session) -> set[int]:
        judge = Judge(OURS)
        found: set[int] = set()
        for second, one in enumerate(looks):
            found = judge.hinder([one], float(second))
        return found

    waits = session(1, application="psql", state="active", waits_for="Lock", blocks=True)
    assert hindered(waits, waits) == set()
    assert hindered(waits, waits, waits) == {1}
    works = session(1, application="psql", state="active", waits_for="", blocks=True)
    alone = session(1, application="psql", state="active", waits_for="Lock")
    ours = session(1, state="active", waits_for="Lock", blocks=True)
    for one in (works, alone, ours):
        assert hindered(one, one, one, one) == set()
    news = [session(1, application="", state="active", waits_for="Lock", blocks=True, at=str(at))
            for at in range(5)]  # fmt: skip
    assert hindered(*news) == set()  # each of them waits for a moment only


def test_a_session_that_its_own_process_gave_up_ends_and_those_in_use_stay() -> None:
    judge = Judge(OURS)
    used, left = session(1, application=OURS), session(2, application=OURS, locks=True)
    web = session(3)
    found = [judge.condemn([used, left, web], float(second), {1}) for second in range(4)]
    assert [set(one) for one in found] == [set(), set(), set(), {2}]


@pytest.mark.parametrize("factor", [1, 4])
def test_a_process_is_waited_for_as_many_times_as_long_as_its_keeper_says(factor: int) -> None:
    keeper = session(1, application=f"{THEIRS}+{factor}")
    silent = session(2, application=THEIRS, state="idle in transaction", locks=True)

    def quiet(seconds: float) -> list[Session]:
        return [keeper, msgspec.structs.replace(silent, quiet_seconds=seconds)]

    assert judged(quiet(2.9 * factor)) == set()
    assert judged(quiet(3.1 * factor)) == {2}
    deaf = [keeper, session(2, application=THEIRS, state="active", locks=True)]
    assert judged(*[deaf] * (3 * factor)) == set()
    assert judged(*[deaf] * (3 * factor + 1)) == {2}


def test_a_process_that_said_it_is_slow_is_not_lost_as_soon_as_its_keeper_is_gone() -> None:
    keeper = session(1, application=f"{THEIRS}+8")

    def other(seconds: float) -> Session:
        return session(2, application=THEIRS, quiet_seconds=seconds)

    assert judged([keeper, other(9)], [other(10)], [other(11)], [other(12)]) == set()
    assert judged([keeper, other(9)], [other(17)], [other(18)]) == {2}


def test_who_is_slow_itself_waits_as_much_longer_for_the_others() -> None:
    silent = session(1, application="psql", state="idle in transaction", locks=True)
    left = session(2, application=OURS)
    judge = Judge(OURS)
    for second in range(12):
        seen = [msgspec.structs.replace(silent, quiet_seconds=float(second)), left]
        assert judge.condemn(seen, float(second), (), factor=4) == {}
    seen = [msgspec.structs.replace(silent, quiet_seconds=12.5), left]
    assert set(judge.condemn(seen, 12.5, (), factor=4)) == {1, 2}


def test_who_looks_seldom_believes_nothing_at_the_second_look() -> None:
    judge = Judge(OURS)
    left = session(1, application=OURS)
    found = [judge.condemn([left], second, ()) for second in (0.0, 20.0, 40.0, 60.0)]
    assert [set(one) for one in found] == [set(), set(), set(), {1}]


def test_who_loads_the_cluster_computes_in_its_transaction_while_its_process_works() -> None:
    keeper = session(1, application=f"{THEIRS}+1")
    computes = session(2, application=f"{THEIRS} loads", state="idle in transaction", locks=True)
    reads = session(3, application=f"{THEIRS} loads", state="active", locks=True)
    assert judged(*[[keeper, computes, reads]] * 9) == set()
    assert judged([keeper, computes, reads], *[[computes, reads]] * 2) == {2, 3}
    ours = session(2, application=f"{OURS} loads", state="idle in transaction", locks=True)
    assert judged(*[[ours]] * 9) == set()


def test_a_process_of_this_machine_that_works_is_not_lost_without_its_keeper(process) -> None:
    holder = session(1, application=process.sign, locks=True)
    judge = Judge(OURS)
    for second in range(60):
        assert judge.condemn([holder], float(second)) == {}
        if second < 8:
            process.work()
        elif second == 8:
            break
    gone = Judge(OURS)
    process.end()
    found = [set(gone.condemn([holder], float(second))) for second in range(2)]
    assert found == [set(), {1}]


def test_a_process_of_this_machine_that_is_stopped_is_seen_to_be(process) -> None:
    """However long its keeper asked the others to wait."""
    seen = [
        session(1, application=process.sign, locks=True),
        session(2, application=f"{process.sign}+32"),
    ]
    judge = Judge(OURS)
    process.signal(signal.SIGSTOP)
    found = [set(judge.condemn(seen, float(second))) for second in range(3)]
    assert found == [set(), set(), {1, 2}]


def test_a_process_that_is_stopped_and_continued_all_the_time_works(process) -> None:
    seen = [
        session(1, application=process.sign, locks=True, quiet_seconds=1.0),
        session(2, application=f"{process.sign}+4"),
    ]
    judge = Judge(OURS)
    for second in range(6):
        process.signal(signal.SIGSTOP)
        assert judge.condemn(seen, float(second)) == {}
        process.signal(signal.SIGCONT)
        process.work()


def test_two_processes_of_a_kind_have_signs_of_their_own_and_leave_each_other_alone() -> None:
    code = "import django; django.setup(); from django.conf import settings as s"
    found = {
        subprocess.run(
            [sys.executable, "-c", f"{code}; print(s.SESSION_NAME)"],
            env={**os.environ, "STOWAGE_PROCESS": process}, cwd=ROOT, check=True,
            capture_output=True, text=True,
        ).stdout.strip()
        for process in ("advisor", "advisor", "scheduler", "timers", "worker")
    }  # fmt: skip
    assert len(found) == 5
    (one, other, *_) = sorted(found)
    assert one.startswith("stowage-advisor-")
    judge = Judge(one)
    theirs = [session(1, application=other), session(2, application=f"{other}+1")]
    assert [judge.condemn(theirs, float(second), ()) for second in range(9)] == [{}] * 9


def test_a_process_that_was_ended_while_it_worked_asks_for_more_time(transactional_db) -> None:
    """And the next one with its loop, until a while has passed."""
    other = connection.copy()
    asked = slowness.own.requested_factor()
    memory = progress.Memory("scheduler")
    try:
        ((pid,),) = sql.fetch("SELECT pg_backend_pid()")
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
        assert sum(range(3_000_000))  # this process works
        with pytest.raises(OperationalError) as raised:
            sql.fetch("SELECT 1")
        connection.close()
        assert memory.recall() == 0
        before = slowness.own.factor()
        assert sessions.note_end(raised.value)
        assert slowness.own.factor() == 2 * before
        memory.keep()
        assert progress.Memory("scheduler").recall() == pytest.approx(2 * before, rel=0.1)
        sql.run("UPDATE loop_patience SET at = at - interval '2 minutes'")
        assert progress.Memory("scheduler").recall() == pytest.approx(before / 2, rel=0.1)
        assert progress.Memory("timers").recall() == 0
        assert not sessions.note_end(OperationalError("the network is away"))
    finally:
        other.close()
        slowness.own._slowness.requested = asked


def test_slowness_rises_at_once_falls_slowly_and_does_not_come_of_a_stop() -> None:
    slow = slowness.Slowness(1.0)
    assert slow.factor(0.0) == 1
    slow.measure(1.05, 0.01)
    assert slow.factor(0.0) == 1
    slow.measure(7.0, 0.5)
    assert slow.factor(0.0) == 8
    slow.measure(1.0, 0.01)
    assert slow.factor(0.0) == 8
    for _ in range(30):
        slow.measure(1.0, 0.01)
    assert slow.factor(0.0) == 1
    slow.measure(9.0, 0.005)  # stopped: it used no processor
    assert slow.factor(0.0) == 1
    slow.measure(1000.0, 50.0)
    assert slow.factor(0.0) == slowness.MOST


def test_who_holds_what_a_session_of_ours_waits_for_is_seen(transactional_db) -> None:
    """Only while a session of the service waits: what others do to one another is theirs."""
    holder = connection.copy()
    try:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute("LOCK TABLE namespace IN ACCESS EXCLUSIVE MODE")
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        assert not blocks(pid)
        waiter = Worker(lambda: sql.fetch("SELECT count(*) FROM namespace"))
        until(lambda: blocks(pid), seconds=20, what="the holder to be seen")
        assert seen(pid).state == "idle in transaction"
    finally:
        holder.close()
    waiter.result(20)
    assert not any(one.blocks for one in find_sessions())


def test_nobody_is_ended_because_a_migration_waits(transactional_db) -> None:
    """`pg_dump -j` is silent in the transaction that keeps its tables."""
    holder = connection.copy()
    try:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM namespace")
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()

        def migrate() -> None:
            with preparation.unhurried(), transaction.atomic():
                sql.run("LOCK TABLE namespace IN ACCESS EXCLUSIVE MODE")

        migration = Worker(migrate)
        until(lambda: sql.fetch(_WAITED_LONG, (pid,)), seconds=20, what="the migration to wait")
        assert not blocks(pid)
    finally:
        holder.close()
    migration.result(20)


def test_a_migration_that_computes_between_two_statements_is_not_seen(transactional_db) -> None:
    reached, go_on = threading.Event(), threading.Event()
    pids: list[int] = []

    def migrate() -> None:
        with preparation.unhurried(), transaction.atomic():
            pids.extend(sql.fetch("SELECT pg_backend_pid()")[0])
            sql.run("LOCK TABLE namespace IN ACCESS EXCLUSIVE MODE")
            reached.set()
            assert go_on.wait(60)
        assert sql.fetch("SELECT current_setting('application_name')") == [(settings.SESSION_NAME,)]

    migration = Worker(migrate)
    try:
        assert reached.wait(20)
        assert pids[0] not in {one.pid for one in find_sessions()}
    finally:
        go_on.set()
    migration.result(20)


_WAITED_LONG = """
SELECT 1 FROM pg_stat_activity w
WHERE %s::int = ANY(pg_blocking_pids(w.pid)) AND w.wait_event_type = 'Lock'
  AND w.query_start < clock_timestamp() - interval '1 second'
"""


def blocks(pid: int) -> bool:
    return any(one.blocks for one in find_sessions() if one.pid == pid)


def seen(pid: int) -> Session:
    (found,) = [one for one in find_sessions() if one.pid == pid]
    return found


def test_the_process_knows_its_open_sessions(transactional_db) -> None:
    ((pid,),) = sql.fetch("SELECT pg_backend_pid()")
    assert pid in open_backends()
    connection.close()
    assert pid not in open_backends()


def test_a_closed_session_is_remembered_until_the_server_has_it_no_more(transactional_db) -> None:
    ((pid,),) = sql.fetch("SELECT pg_backend_pid()")
    assert pid not in closed_backends()
    connection.close()
    assert pid in closed_backends([pid])
    assert pid not in closed_backends([])
    assert pid not in closed_backends()


def test_two_keepers_look_after_all_sessions_and_a_third_takes_a_place(transactional_db) -> None:
    class Nothing:
        def recall(self) -> float:
            return 0.0

        def keep(self) -> None:
            pass

    keepers = [sessions._Keeper(Nothing()) for _ in range(3)]
    with contextlib.ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in keepers]

        def speak() -> list[bool]:
            for thread, keeper in zip(threads, keepers, strict=True):
                thread.submit(keeper.speak).result(20)
            return [keeper._is_judge for keeper in keepers]

        assert speak() == [True, True, False]
        threads[0].submit(lambda: connection.close()).result(20)
        until(
            lambda: threads[2].submit(keepers[2].speak).result(20) or keepers[2]._is_judge,
            seconds=20,
            what="the third to look",
        )
        for thread in threads:
            thread.submit(lambda: connection.close()).result(20)


def test_an_answer_that_does_not_come_is_given_up_and_its_connection_too(transactional_db) -> None:
    """The server would sleep on: its own time-outs are not asked here."""
    with pytest.raises(OperationalError, match=r"did not answer within 0 s"), sql.patience(0.2):
        sql.fetch("SELECT pg_sleep(30)")
    sql.drop_dead_connection()
    assert sql.fetch_one("SELECT 1") == (1,)


def test_patience_ends_with_its_block(transactional_db) -> None:
    with sql.patience(0.2):
        assert sql.fetch_one("SELECT 1") == (1,)
    assert len(sql.fetch("SELECT pg_sleep(0.4)")) == 1
