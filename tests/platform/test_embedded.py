"""The embedded servers: crashes, stale files, long paths, accounts."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from clusterstate.local import account, embedded, places, reach
from tests.waiting import running, until


@pytest.fixture
def state() -> Iterator[Path]:
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="stowage-embedded-", dir=parent))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def start(server: embedded.Server, state: Path) -> subprocess.Popen[bytes]:
    with (state / "log").open("ab") as log:
        process = server.spawn(log.fileno())
    try:
        embedded.wait_ready(server, process)
    except account.ServerStartError as error:
        raise AssertionError((state / "log").read_text()) from error
    return process


def stop(server: embedded.Server, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(server.stop_signal)
    assert process.wait(20) == 0


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def test_data_outlives_a_stop_and_a_crash(state: Path) -> None:
    server = embedded.Postgres(state)
    process = start(server, state)
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("CREATE TABLE kept (word text)")
        db.execute("INSERT INTO kept VALUES ('stop')")
    stop(server, process)

    process = start(server, state)
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("INSERT INTO kept VALUES ('crash')")
    backends = children(process.pid)
    process.kill()
    process.wait()
    assert (server.data / "postmaster.pid").exists()
    until(lambda: not any(running(pid) for pid in backends), what="backends gone")

    process = start(server, state)
    with psycopg.connect(server.url(), autocommit=True) as db:
        assert db.execute("SELECT word FROM kept ORDER BY 1").fetchall() == [
            ("crash",),
            ("stop",),
        ]
        assert db.execute("SHOW fsync").fetchone() == ("on",)
        assert db.execute("SHOW shared_buffers").fetchone() == ("256MB",)
    stop(server, process)


def test_a_pid_file_that_names_another_process_is_stale(state: Path) -> None:
    server = embedded.Postgres(state, durable=False)
    server.prepare()
    (server.data / "postmaster.pid").write_text(f"{os.getpid()}\n{server.data}\n")
    stop(server, start(server, state))


def test_data_of_another_major_version_is_left_alone(state: Path) -> None:
    server = embedded.Postgres(state, durable=False)
    server.prepare()
    (server.data / "PG_VERSION").write_text("17\n")
    with pytest.raises(account.ServerStartError) as caught:
        embedded.Postgres(state, durable=False).prepare()
    assert f"The data in {server.data} is of PostgreSQL 17, and the server is 18." in str(
        caught.value
    )
    assert "manage.py restore FILE" in str(caught.value)


def test_two_servers_never_share_a_data_directory(state: Path) -> None:
    server = embedded.Postgres(state, durable=False)
    process = start(server, state)
    with pytest.raises(embedded.AlreadyRunningError, match=f"pid {process.pid}"):
        embedded.Postgres(state, durable=False).prepare()
    stop(server, process)


def test_an_interrupted_initdb_is_done_again(state: Path) -> None:
    half = state / "postgres.new-1"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    server = embedded.Postgres(state, durable=False)
    stop(server, start(server, state))
    assert not half.exists()


def test_a_long_path_gets_short_sockets(state: Path) -> None:
    deep = state / ("x" * 70) / ("y" * 60)
    deep.mkdir(parents=True)
    for folder in (deep, deep.parent):
        folder.chmod(0o711)
    for server in (embedded.Postgres(deep, durable=False), embedded.Redis(deep, durable=False)):
        process = start(server, state)
        stop(server, process)
    for sockets in (places.postgres_url(deep), places.redis_url(deep)):
        assert "/tmp/stowage-" in sockets
    for made in (Path(places.redis_url(deep)[7:]).parent,):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        shutil.rmtree(made)
    shutil.rmtree(places.postgres_url(deep).split("host=")[1])


def test_redis_replays_its_file_after_a_crash(state: Path) -> None:
    server = embedded.Redis(state)
    process = start(server, state)
    with redis.Redis.from_url(server.url()) as client:
        client.set("kept", "yes")
    process.kill()
    process.wait()
    process = start(server, state)
    with redis.Redis.from_url(server.url()) as client:
        assert client.get("kept") == b"yes"
    stop(server, process)


def test_children_die_with_their_parent(state: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from clusterstate.local import embedded\n"
        "state = Path(sys.argv[1])\n"
        "kinds = [embedded.Postgres, embedded.Redis]\n"
        "servers = [kind(state, durable=False) for kind in kinds]\n"
        "processes = [server.spawn(2) for server in servers]\n"
        "[embedded.wait_ready(*pair) for pair in zip(servers, processes)]\n"
        "print(*(process.pid for process in processes), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(state)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    until(lambda: not any(running(pid) for pid in pids), what="both servers gone")


def test_the_state_directory_is_private(state: Path) -> None:
    server = embedded.Postgres(state, durable=False)
    server.prepare()
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    assert stat.S_IMODE(state.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives PostgreSQL to another account")
def test_as_root_postgres_runs_as_somebody_else(state: Path) -> None:
    server = embedded.Postgres(state, durable=False)
    process = start(server, state)
    assert Path(f"/proc/{process.pid}").stat().st_uid != 0
    stop(server, process)


def said_to(name: str, url: str) -> str:
    """Return what PostgreSQL says to a process of that user; empty if it lets the process in."""
    user = pwd.getpwnam(name)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        try:
            psycopg.connect(url)
        except psycopg.Error as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_only_who_started_the_server_may_connect(state: Path) -> None:
    """Also where the socket can be reached: what may enter its directory is not asked."""
    server = embedded.Postgres(state, durable=False)
    process = start(server, state)
    (sockets,) = {path for path in places.socket_directories(state) if path.name.endswith("-pg")}
    sockets.chmod(0o777)
    next(sockets.glob(".s.PGSQL.*[0-9]")).chmod(0o777)
    refused = said_to("nobody", server.url("postgres"))
    with psycopg.connect(server.url("postgres")) as mine:
        assert mine.execute("SELECT current_user").fetchone() == ("postgres",)
    stop(server, process)
    assert "Peer authentication failed" in refused


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives PostgreSQL to another account")
def test_data_of_nobody_gets_an_owner_and_is_closed(state: Path) -> None:
    """0.1.0 ran PostgreSQL as nobody where there was no user postgres, and trusted everybody."""
    nobody = pwd.getpwnam("nobody")
    server = embedded.Postgres(state, durable=False)
    stop(server, start(server, state))
    (server.data / "pg_hba.conf").write_text("local all all trust\n")
    for path in (server.data, *server.data.rglob("*"), *places.socket_directories(state)):
        if path.exists():
            os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
    again = embedded.Postgres(state, durable=False)
    process = start(again, state)
    assert Path(f"/proc/{process.pid}").stat().st_uid not in {0, nobody.pw_uid}
    with psycopg.connect(again.url("postgres")) as mine:
        rules = mine.execute("SELECT auth_method FROM pg_hba_file_rules").fetchall()
    stop(again, process)
    assert set(rules) == {("peer",)}
    assert not [path for path in again.data.rglob("*") if path.lstat().st_uid == nobody.pw_uid]


def test_where_no_user_can_be_made_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    unmade = account.Account(uid=account._NOT_MADE, gid=account._NOT_MADE)
    with pytest.raises(account.ServerStartError, match="STOWAGE_POSTGRES_USER"):
        unmade.ensure()


# Below a folder that PostgreSQL's user cannot enter --------------------------------------------

only_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root meets directories PostgreSQL cannot enter"
)


@pytest.fixture
def private(state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that only root can enter, and another place than the usual one for copies."""
    monkeypatch.setattr(reach, "COPIES", state / "copies")
    folder = state / "private"
    folder.mkdir(mode=0o700)
    return folder


def words(server: embedded.Postgres) -> list[str]:
    with psycopg.connect(server.url(), autocommit=True) as db:
        return [row[0] for row in db.execute("SELECT word FROM kept ORDER BY 1")]


@only_root
def test_data_below_a_private_directory_of_root_lie_there_and_nothing_is_opened_up(
    private: Path,
) -> None:
    below = private / "project" / ".stowage"
    server = embedded.Postgres(below)
    process = start(server, private)
    assert Path(f"/proc/{process.pid}").stat().st_uid != 0
    assert Path(os.readlink(f"/proc/{process.pid}/cwd")) == below / "postgres"
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("CREATE TABLE kept AS SELECT 'word ' || n AS word FROM generate_series(1, 9) n")
        db.execute("SELECT pg_reload_conf()")
    backends = children(process.pid)
    process.kill()
    process.wait()
    until(lambda: not any(running(pid) for pid in backends), what="backends gone")

    process = start(server, private)
    with pytest.raises(embedded.AlreadyRunningError, match=f"pid {process.pid}"):
        embedded.Postgres(below).prepare()
    assert len(words(server)) == 9
    stop(server, process)
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not reach.COPIES.exists()


@only_root
@pytest.mark.parametrize("on_another_disk", [False, True])
def test_data_that_lay_elsewhere_are_taken_back(
    private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_another_disk: bool
) -> None:
    """Earlier versions kept them below /var/lib/stowage."""
    if on_another_disk:  # tmp_path lies in /tmp, private in /dev/shm
        monkeypatch.setattr(reach, "COPIES", tmp_path / "copies")
    below = private / ".stowage"
    server = embedded.Postgres(below, durable=False)
    process = start(server, private)
    with psycopg.connect(server.url(), autocommit=True) as db:
        db.execute("CREATE TABLE kept AS SELECT 'from elsewhere' AS word")
    stop(server, process)
    former = reach.former_home(below)
    former.mkdir(parents=True)
    subprocess.run(["cp", "-a", str(server.data), str(former / "postgres")], check=True)
    shutil.rmtree(below)

    again = embedded.Postgres(below, durable=False)
    process = start(again, private)
    assert words(again) == ["from elsewhere"]
    stop(again, process)
    assert not former.exists()


@only_root
def test_programs_out_of_reach_are_copied_once_and_replaced_with_the_version(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = places.postgres_binaries().parent
    package = original.parent
    install = private / package.name / original.name
    shutil.copytree(original, install, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, private / libraries.name)
    monkeypatch.setenv("STOWAGE_POSTGRES_BIN", str(install / "bin"))
    server = embedded.Postgres(private / ".stowage", durable=False)
    for stamp in (1_000_000_000, 2_000_000_000):
        os.utime(install / "bin" / "postgres", (stamp, stamp))
        for _ in range(2):
            process = start(server, private)
            copies = reach.copies_of(install / "bin")
            assert reach.is_executed(copies)
            stop(server, process)
            assert not reach.is_executed(copies)
        assert [path.name for path in copies.iterdir()] == [f"{stamp}000000000"]
        assert all(path.lstat().st_uid == 0 for path in copies.rglob("*"))


def test_a_missing_binary_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWAGE_POSTGRES_BIN", "/nowhere")
    with pytest.raises(places.MissingServerError, match="STOWAGE_POSTGRES_BIN is '/nowhere'"):
        places.postgres_binaries()
    monkeypatch.setenv("STOWAGE_REDIS_SERVER", "/nowhere")
    with pytest.raises(places.MissingServerError, match="STOWAGE_REDIS_SERVER is '/nowhere'"):
        places.redis_binary()


def test_reset_removes_everything_but_not_while_it_runs(state: Path) -> None:
    below = state / "state"
    stop(embedded.Redis(below), start(embedded.Redis(below), state))
    environment = os.environ | {"STOWAGE_STATE": str(below)}
    command = [sys.executable, "manage.py", "reset"]
    lock = embedded.StateLock(below)
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "already running" in refused.stderr
    assert below.exists()
    lock.release()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert not below.exists()
