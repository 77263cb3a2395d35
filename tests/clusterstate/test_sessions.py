"""Which sessions must end: those of stopped or lost processes, and those that hold up everybody."""

import threading

import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction

from clusterstate import sql
from clusterstate.local import preparation
from clusterstate.sessions import Judge, Session, look
from tests.clusterstate.support import Worker
from tests.waiting import until

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


def test_who_holds_what_a_session_of_ours_waits_for_is_seen(transactional_db) -> None:
    """Only while a session of the service waits: what others do to one another is theirs."""
    holder = connection.copy()
    try:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute("LOCK TABLE namespace IN ACCESS EXCLUSIVE MODE")
            cursor.execute("SELECT pg_backend_pid()")
            (pid,) = cursor.fetchone()
        assert not seen(pid).blocks
        waiter = Worker(lambda: sql.fetch("SELECT count(*) FROM namespace"))
        until(lambda: seen(pid).blocks, seconds=20, what="the holder to be seen")
        assert seen(pid).state == "idle in transaction"
    finally:
        holder.close()
    waiter.result(20)
    assert not any(one.blocks for one in look())


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
        assert not seen(pid).blocks
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
        assert pids[0] not in {one.pid for one in look()}
    finally:
        go_on.set()
    migration.result(20)


_WAITED_LONG = """
SELECT 1 FROM pg_stat_activity w
WHERE %s::int = ANY(pg_blocking_pids(w.pid)) AND w.wait_event_type = 'Lock'
  AND w.query_start < clock_timestamp() - interval '1 second'
"""


def seen(pid: int) -> Session:
    (found,) = [one for one in look() if one.pid == pid]
    return found


def test_the_process_knows_its_open_sessions(transactional_db) -> None:
    ((pid,),) = sql.fetch("SELECT pg_backend_pid()")
    assert pid in sql.open_backends()
    connection.close()
    assert pid not in sql.open_backends()


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
