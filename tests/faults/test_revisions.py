"""A revision that was told is never passed below, whatever happens to the database."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from clusterstate.change_log import lineage
from clusterstate.local import embedded, places
from tests import faults
from tests.clusterstate.part import Part
from tests.forms import few
from tests.live import Service, pod, started, state_folder
from tests.prepared import begin_with
from tests.waiting import running, until

pytestmark = faults.MARKS

# Late: what a transaction that rolls back has logged stays in memory until the server is killed.
SETTINGS = {"wal_writer_delay": "10s", "shared_buffers": "16MB", "checkpoint_timeout": "1h"}


def kill_all(postmaster: int) -> None:
    """SIGKILL a PostgreSQL with all that it started, none of which sees another go."""
    parent = psutil.Process(postmaster)
    parent.suspend()
    everyone = [*parent.children(), parent]
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for one in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                act(one)
    until(lambda: not any(running(one.pid) for one in everyone), what="the server to be gone")


class Cluster:
    """A PostgreSQL with fsync on, that can be killed with all its processes at one moment."""

    def __init__(self, state: Path, **settings: str) -> None:
        self.settings = settings
        self.server = embedded.Postgres(state, settings={**SETTINGS, **settings})
        self.log = state.with_name(f"{state.name}.log")
        self.process: subprocess.Popen[bytes] | None = None
        self.parts: list[Part] = []

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = self.server.spawn(log.fileno())
        embedded.wait_ready(self.server, self.process)

    def part(self) -> Part:
        self.parts.append(Part(self.server.url()))
        return self.parts[-1]

    def kill(self) -> None:
        assert self.process is not None
        kill_all(self.process.pid)
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)

    def close(self) -> None:
        for part in self.parts:
            part.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    """The files of a server with all tables, stopped; making them takes long, copying does not."""
    with state_folder() as state:
        begin_with(state)
        cluster = Cluster(state)
        try:
            cluster.start()
            assert cluster.part()("prepare") is None
            cluster.stop()
        finally:
            cluster.close()
        yield state


@pytest.fixture
def cluster(prepared: Path) -> Iterator[Cluster]:
    """A server of a test's own, with all tables."""
    with state_folder() as state:
        subprocess.run(["cp", "--archive", prepared, state], check=True)
        cluster = Cluster(state)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


def test_numbers_of_transactions_that_rolled_back_are_not_given_out_again(
    cluster: Cluster,
) -> None:
    part = cluster.part()
    for round_ in range(2):
        part("create", f"before-{round_}")
        part("sql", "CHECKPOINT")
        part("undo", 70)
        told = part("mark")
        cluster.kill()
        cluster.start()
        # The process lived on: its connection is dead, and it knows nothing of the crash.
        until(lambda: isinstance(part("mark"), int), what="the database to be found again")
        assert part("mark") >= told
        # What a client was told as "up to here" is not passed below by what comes now.
        revision = part("create", f"after-{round_}")
        assert revision > told
        assert part("since", told) == [f"after-{round_}"]


def test_after_a_crash_a_writer_waits_until_a_follower_has_secured_the_numbers(
    cluster: Cluster,
) -> None:
    writer, follower = cluster.part(), cluster.part()
    writer("sql", "CHECKPOINT")
    writer("undo", 70)
    told = follower("mark")
    cluster.kill()
    cluster.start()
    until(lambda: writer("sql", "SELECT 1") == [[1]], what="the writer to connect again")
    refused = writer("create", "early")
    assert refused["error"] == "OperationalError"
    assert "its revisions are being secured" in refused["message"]
    until(lambda: isinstance(follower("mark"), int), what="the follower to connect again")
    assert writer("create", "late") > told
    assert follower("since", told) == ["late"]


@pytest.mark.long
def test_an_admission_epoch_that_was_rolled_back_is_not_given_out_again(cluster: Cluster) -> None:
    """What a process remembers under an epoch would otherwise hold for other rules."""
    part = cluster.part()
    part("sql", "CHECKPOINT")
    part("undo_classes", 3)
    ((remembered,),) = part("sql", "SELECT pg_sequence_last_value('admission_epoch')")
    cluster.kill()
    cluster.start()
    until(lambda: isinstance(part("mark"), int), what="the database to be found again")
    assert part("sql", "SELECT nextval('admission_epoch')")[0][0] > remembered


@pytest.mark.long
def test_a_planned_restart_jumps_nowhere(cluster: Cluster) -> None:
    part = cluster.part()
    first = part("create", "a")
    uid = part("sql", "SELECT uid::text FROM history")
    cluster.stop()
    cluster.start()
    until(lambda: isinstance(part("mark"), int), what="the database to be found again")
    assert first < part("create", "b") < first + 40
    assert part("sql", "SELECT uid::text FROM history") == uid


@pytest.mark.long
def test_many_find_the_database_after_a_crash_at_once(cluster: Cluster) -> None:
    parts = [cluster.part() for _ in range(4)]
    parts[0]("undo", 70)
    told = parts[0]("mark")
    for part in parts:
        part("mark")
    cluster.kill()
    cluster.start()
    seen: list[int] = []
    for number in range(5):
        for part in parts:
            part.send("mark")
        marks = [part.answer() for part in parts]
        for part in parts:
            part.send("create", f"pod-{number}-{parts.index(part)}")
        seen += [answer for part in parts if isinstance(answer := part.answer(), int)]
        assert all(mark >= told for mark in marks if isinstance(mark, int))
    assert len(seen) > 4
    assert len(set(seen)) == len(seen)
    assert min(seen) > told
    assert len(parts[1]("since", told)) == len(seen)


@contextlib.contextmanager
def replica_of(cluster: Cluster) -> Iterator[Cluster]:
    """A streaming replica, running."""
    with state_folder() as state:
        replica = Cluster(state, **cluster.settings)
        replica.server.prepare()
        data = replica.server.data
        bin_ = places.postgres_binaries()
        shutil.rmtree(data)
        url = cluster.server.url("postgres")
        subprocess.run(
            [bin_ / "pg_basebackup", "-d", url, "-D", data, "-X", "stream", "-c", "fast", "-R"],
            check=True, capture_output=True,
        )  # fmt: skip
        owner = cluster.server.data.stat()
        for path in [data, *data.rglob("*")]:
            os.lchown(path, owner.st_uid, owner.st_gid)
        try:
            replica.start()
            yield replica
        finally:
            replica.close()


def test_a_replica_that_takes_over_begins_another_history(cluster: Cluster) -> None:
    """Asynchronous: what the old primary still told, the new one has never heard of."""
    part = cluster.part()
    part("create", "everywhere")
    with replica_of(cluster) as replica:
        told = [part("create", f"lost-{number}") for number in range(40)][-1]
        token = part("listed", "", 1)[2]
        uid = part("sql", "SELECT uid::text FROM history")
        cluster.kill()
        reader = replica.part()
        reader("sql", "SELECT pg_promote()")
        until(lambda: reader("mark") >= told + lineage.GAP, what="the new primary to take over")
        assert reader("since", told)["error"] == "Expired"
        assert reader("listed", token, 1)["error"] == "Expired"
        assert reader("sql", "SELECT uid::text FROM history") != uid
        mark = reader("mark")
        assert reader("create", "new") > mark
        assert reader("since", mark) == ["new"]


@pytest.mark.parametrize("age", ["1 second", "1 hour"])
def test_a_replica_that_has_all_that_was_acknowledged_goes_on_with_the_history(
    prepared: Path, age: str
) -> None:
    """Unless the last report of a loop is old: then it was put back to an earlier moment."""
    with contextlib.ExitStack() as until_end:
        state = until_end.enter_context(state_folder())
        subprocess.run(["cp", "--archive", prepared, state], check=True)
        cluster = Cluster(state, **{"stowage.synchronous_failover": "on"})
        until_end.callback(cluster.close)
        cluster.start()
        part = cluster.part()
        until(lambda: isinstance(part("mark"), int), what="the database to be found")
        with replica_of(cluster) as replica:
            part("sql", "ALTER SYSTEM SET synchronous_standby_names = '*'")
            part("sql", "SELECT pg_reload_conf()")
            part("sql", "ALTER SYSTEM SET synchronous_standby_names = '*'")
            report = f"('timers', clock_timestamp() - interval '{age}', 0, '')"
            columns = "(name, at, revision, holder)"
            part("sql", f"INSERT INTO loop_progress {columns} VALUES {report} RETURNING 1")
            part("undo", 70)
            told = [part("create", f"kept-{number}") for number in range(5)][-1]
            token = part("listed", "", 1)[2]
            uid = part("sql", "SELECT uid::text FROM history")
            epoch = part("sql", "SELECT last_value FROM admission_epoch")
            cluster.kill()
            reader = replica.part()
            reader("sql", "SELECT pg_promote()")
            until(
                lambda: isinstance(mark := reader("mark"), int) and mark >= told,
                what="the new primary to take over",
            )
            keeps = age == "1 second"
            assert (reader("sql", "SELECT uid::text FROM history") == uid) == keeps
            if not keeps:
                assert reader("since", told)["error"] == "Expired"
                return
            assert reader("since", told) == []
            assert reader("listed", token, 1)[0] == 1
            assert reader("create", "new") > told
            assert reader("since", told) == ["new"]
            assert reader("sql", "SELECT last_value FROM admission_epoch")[0] > epoch[0]


EMPTIED_BY_A_CRASH = """
SELECT relname, relkind::text, relhasindex FROM pg_class WHERE relpersistence <> 'p'
"""
SEQUENCES = """
SELECT 'SELECT last_value FROM ' || relname FROM pg_class
WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace
"""


@pytest.mark.long
def test_a_replica_that_takes_over_right_after_the_first_preparation_serves() -> None:
    """It has replayed all of it and written none of it: no restartpoint came before it took over.

    An unlogged sequence cannot be read there, so all that a promotion resets is looked at.
    """
    with state_folder() as state:
        cluster = Cluster(state)
        try:
            cluster.start()
            with replica_of(cluster) as replica:
                part = cluster.part()
                assert part("prepare") is None
                told = part("create", "everywhere")
                epoch = part("sql", "SELECT last_value FROM admission_epoch")
                ((end,),) = part("sql", "SELECT pg_current_wal_flush_lsn()::text")
                reader, writer = replica.part(), replica.part()
                replayed = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
                until(lambda: reader("sql", replayed) == [[True]], what="all to be replayed")
                assert reader("mark") <= told  # a replica names no unlogged table
                cluster.kill()
                reader("sql", "SELECT pg_promote()")
                # Writers only ask; the first follower opens the numbers.
                refused = writer("create", "early")
                assert "its revisions are being secured" in refused["message"]
                mark = reader("mark")
                assert mark >= told + lineage.GAP
                assert writer("create", "late") > mark
                assert reader("since", mark) == ["late"]
                assert reader("sql", "SELECT next_revision() > 0") == [[True]]
                assert reader("sql", "SELECT last_value FROM admission_epoch") > epoch
                found = [tuple(row) for row in reader("sql", EMPTIED_BY_A_CRASH)]
                # Of the version before; a new name of an unlogged thing needs a look at this test.
                assert sorted(found) == [
                    ("revisions_marker", "r", False), ("revisions_open", "S", False),
                ]  # fmt: skip
                questions = reader("sql", SEQUENCES)
                assert len(questions) > 10
                for (question,) in questions:
                    assert isinstance(reader("sql", question), list), question
        finally:
            cluster.close()


OLD_QUESTION = "SELECT pg_sequence_last_value('revisions_open') IS NOT NULL"


@pytest.mark.parametrize("state_of_it", few(["open", "closed", "unreadable"]))
def test_the_marker_begins_as_the_sequence_of_the_version_before_stands(
    cluster: Cluster, state_of_it: str
) -> None:
    part = cluster.part()
    before = part("create", "before")
    part("migrate", "0044_informed_reservations")
    if state_of_it == "closed":
        part("sql", "ALTER SEQUENCE revisions_open RESTART")
    if state_of_it == "unreadable":
        ((file,),) = part("sql", "SELECT pg_relation_filepath('revisions_open')")
        cluster.stop()
        (cluster.server.data / file).write_bytes(bytes(8192))
        cluster.start()
        until(
            lambda: "magic" in part("sql", OLD_QUESTION)["message"],
            what="the sequence to be unreadable",
        )
    part("migrate", "0045_revisions_marker")
    # What follows each migration opened the numbers: above the ceiling where they were closed.
    assert part("sql", "SELECT revisions_are_open()") == [[True]]
    assert part("sql", OLD_QUESTION) == [[True]]
    part("migrate")  # a pod is created as in the newest version
    assert (part("create", "after") - before > lineage.BLOCK // 2) == (state_of_it != "open")


@pytest.mark.long
def test_a_follower_of_a_replica_misses_nothing_while_others_write(cluster: Cluster) -> None:
    """The replica sees no locks of the primary, and its copy of the sequence runs ahead."""
    keeper = cluster.part()
    start = keeper("mark")
    assert keeper("keep_mark") is True
    with replica_of(cluster) as replica:
        reader = replica.part()
        until(lambda: reader("mark") == start, what="the replica to have the mark")
        writers = [cluster.part() for _ in range(3)]
        created: list[str] = []
        seen: list[str] = []
        cursor = start
        for round_ in range(60):
            for number, writer in enumerate(writers):
                writer.send("undo" if round_ % 5 == number else "create_slowly", 2)
            keeper.send("keep_mark")
            read, cursor = reader("read", cursor)
            seen += read
            assert keeper.answer() in (True, False)
            for writer in writers:
                created += writer.answer() or []
        last = keeper("mark")
        keeper("keep_mark")
        until(lambda: reader("mark") == last, what="the replica to have the last mark")
        seen += reader("read", cursor)[0]
        assert len(created) > 200
        assert sorted(seen) == sorted(created)


def test_a_revision_beyond_the_present_is_expired(cluster: Cluster) -> None:
    part = cluster.part()
    part("create", "a")
    last = part("create", "b")
    assert part("since", last) == []
    beyond = part("since", last + 1)
    assert beyond == {
        "error": "Expired",
        "message": f"too large resource version: {last + 1}, current: {last}",
    }
    assert part("create", "c") == last + 1
    assert part("since", last) == ["c"]


def test_nobody_is_told_more_than_the_ceiling(cluster: Cluster) -> None:
    part, other = cluster.part(), cluster.part()
    (ceiling,) = part("sql", "SELECT ceiling FROM history")[0]
    part("sql", f"SELECT setval('change_revision', {ceiling + 10})")
    part("sql", "BEGIN")
    part("sql", "SELECT 1 FROM history FOR UPDATE")
    # Another cannot reserve while the row is held, so it tells no more than was reserved.
    other.send("mark")
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    until(lambda: part("sql", waiting) == [[1]], what="the other to wait")
    part("sql", "COMMIT")
    assert other.answer() == ceiling + 10
    (reserved,) = part("sql", "SELECT ceiling FROM history")[0]
    assert reserved == ceiling + 10 + lineage.BLOCK


PODS = "/api/v1/namespaces/default/pods"


class Poster(threading.Thread):
    """Creates pods, most of them dry, and lists; keeps what it was told, in order."""

    def __init__(self, service: Service, number: int) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.number = number
        self.stopping = threading.Event()
        self.told = 0
        self.passed_below: list[tuple[int, int]] = []
        self.created: dict[str, int] = {}
        self.start()

    def run(self) -> None:
        serial = 0
        while not self.stopping.is_set():
            serial += 1
            dry = "?dryRun=All" if serial % 8 else ""
            name = f"p{self.number}-{serial}"
            body = pod(name, schedulerName="nobody")
            with contextlib.suppress(OSError):
                status, answer = self.service.request("POST", f"{PODS}{dry}", body, seconds=60)
                if status == 201 and not dry:
                    revision = int(answer["metadata"]["resourceVersion"])
                    if revision <= self.told:
                        self.passed_below.append((self.told, revision))
                    self.created[name] = revision
                status, answer = self.service.request("GET", f"{PODS}?limit=1", seconds=60)
                if status == 200:
                    self.told = max(self.told, int(answer["metadata"]["resourceVersion"]))


class Watcher(threading.Thread):
    """Follows the pods as an informer does, and starts again from the last that it saw."""

    def __init__(self, service: Service, cursor: int) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.cursor = cursor
        self.seen: dict[str, int] = {}
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            query = f"watch=true&timeoutSeconds=1&resourceVersion={self.cursor}"
            with contextlib.suppress(OSError):
                status, text = self.service.request("GET", f"{PODS}?{query}", seconds=60)
                if status != 200:
                    continue
                for line in [text] if isinstance(text, dict) else text.splitlines():
                    event = line if isinstance(line, dict) else json.loads(line)
                    if event["type"] == "ERROR":
                        if event["object"]["code"] == 410:
                            self.errors.append(event["object"]["message"])
                        continue
                    revision = int(event["object"]["metadata"]["resourceVersion"])
                    assert revision > self.cursor
                    self.cursor = revision
                    self.seen[event["object"]["metadata"]["name"]] = revision


@pytest.mark.long
def test_no_client_is_passed_below_when_all_of_postgresql_is_killed() -> None:
    with started() as service:
        start = int(service.request("GET", PODS)[1]["metadata"]["resourceVersion"])
        posters = [Poster(service, number) for number in range(3)]
        watcher = Watcher(service, start)
        for _ in range(4):
            enough = sum(len(poster.created) for poster in posters) + 20
            until(
                lambda enough=enough: sum(len(p.created) for p in posters) >= enough,
                seconds=120, what="pods to be created",
            )  # fmt: skip
            old = service.pid("postgres")
            kill_all(old)
            until(lambda old=old: service.pid("postgres") != old, seconds=60, what="a new one")
            until(service.ready, seconds=120, what="ready again")
        for poster in posters:
            poster.stopping.set()
        for poster in posters:
            poster.join(90)
        created = {n: r for poster in posters for n, r in poster.created.items()}
        until(lambda: created.keys() <= watcher.seen.keys(), seconds=30, what="all to be seen")
        watcher.stopping.set()
        watcher.join(90)
    assert [poster.passed_below for poster in posters] == [[], [], []]
    assert watcher.errors == []
    assert {name: watcher.seen[name] for name in created} == created
