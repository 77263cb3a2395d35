"""Three PostgreSQL servers under Patroni, with etcd, on loopback: what a drill of failovers needs.

Patroni and etcd are not among the packages of this project. ``missing`` says which of them is not
to be found; ``PATRONI`` and ``ETCD`` name programs outside of the PATH. The settings are those of
docs/operations.md, with a Patroni that looks every two seconds.
"""

import contextlib
import http.client
import json
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from clusterstate.local import embedded, reach
from clusterstate.local.account import Account
from clusterstate.local.places import postgres_binaries
from tests.live import free_ports, state_folder
from tests.waiting import until

MEMBERS: Final = ("m1", "m2", "m3")
TTL_SECONDS: Final = 20
"""How long a leader that is not heard stays the leader; Patroni allows no less."""
_PASSWORDS = {"superuser": "super", "replication": "copies", "rewind": "rewinds"}


def _program(variable: str, name: str) -> str:
    return os.environ.get(variable) or shutil.which(name) or ""


def missing() -> str:
    """Return what keeps the drill from running, empty if nothing does."""
    wanted = {"etcd": _program("ETCD", "etcd"), "Patroni": _program("PATRONI", "patroni")}
    absent = [name for name, found in wanted.items() if not found]
    if not absent:
        return ""
    return (
        f"{' and '.join(absent)} not found: install etcd-server and pip install"
        " 'patroni[etcd3,psycopg3]', or name the programs in ETCD and PATRONI"
    )


class Patroni:
    """The servers by name. ``leader`` is the one that takes writes, as Patroni says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._account = Account.choose().ensure()
        ports = iter(free_ports(2 + 2 * len(MEMBERS)))
        self._etcd_port, self._peer_port = next(ports), next(ports)
        self._postgres = {name: next(ports) for name in MEMBERS}
        self._rest = {name: next(ports) for name in MEMBERS}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._frozen: list[psutil.Process] = []

    def url(self) -> str:
        """Return the address by which libpq finds whichever server takes writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._postgres.values())
        return (
            f"postgresql://postgres:{_PASSWORDS['superuser']}@{hosts}/stowage"
            "?target_session_attrs=read-write"
        )

    def start(self) -> None:
        """Start all; return when a leader has a synchronous standby and the database is made."""
        self._folder.mkdir(mode=0o711, exist_ok=True)
        self._account.owns(self._folder)
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._spawn(
            "etcd", _program("ETCD", "etcd"), "--data-dir", str(self._folder / "etcd"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        )  # fmt: skip
        for name in MEMBERS:
            self.start_member(name)
        until(self.is_whole, seconds=180, what=f"three servers; see {self._folder}/*.log")
        bin_ = reach.executable(postgres_binaries(), self._account)
        subprocess.run(
            [
                bin_ / "psql", "-q", "-h", "127.0.0.1", "-p", str(self._postgres[self.leader()]),
                "-U", "postgres", "-c", "CREATE DATABASE stowage",
            ],
            check=True, env={**os.environ, "PGPASSWORD": _PASSWORDS["superuser"]},
        )  # fmt: skip

    def start_member(self, name: str) -> None:
        """Start Patroni of one server, which starts PostgreSQL."""
        file = self._folder / f"{name}.yml"
        file.write_text(yaml.safe_dump(self.settings(name)))
        self._account.owns(file)
        self._spawn(name, _program("PATRONI", "patroni"), str(file))

    def settings(self, name: str) -> dict[str, Any]:
        """Return what Patroni of a server is started with."""
        users = {"superuser": "postgres", "replication": "replicator", "rewind": "rewinder"}
        return {
            "scope": "stowage",
            "name": name,
            "restapi": {
                "listen": f"127.0.0.1:{self._rest[name]}",
                "connect_address": f"127.0.0.1:{self._rest[name]}",
            },
            "etcd3": {"hosts": f"127.0.0.1:{self._etcd_port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_SECONDS,
                    "loop_wait": 2,
                    "retry_timeout": 5,
                    "primary_start_timeout": 0,
                    "synchronous_mode": True,
                    "synchronous_mode_strict": True,
                    "failsafe_mode": True,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "use_slots": True,
                        "parameters": {
                            "max_connections": 300,
                            "wal_keep_size": "256MB",
                            "stowage.synchronous_failover": "on",
                        },
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self._postgres[name]}",
                "connect_address": f"127.0.0.1:{self._postgres[name]}",
                "data_dir": str(self._folder / name),
                "bin_dir": str(reach.executable(postgres_binaries(), self._account)),
                "pgpass": str(self._folder / f"{name}.pgpass"),
                "authentication": {
                    role: {"username": user, "password": _PASSWORDS[role]}
                    for role, user in users.items()
                },
                "pg_hba": [
                    "local all all trust",
                    "host replication replicator 127.0.0.1/32 scram-sha-256",
                    "host all all 127.0.0.1/32 scram-sha-256",
                ],
                "parameters": {"unix_socket_directories": str(self._folder)},
            },
        }

    def _spawn(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=embedded.die_with_parent(signal.SIGTERM),
                user=self._account.uid, group=self._account.gid,
                extra_groups=self._account.extra_groups,
                env={
                    **os.environ, "LC_ALL": "C.UTF-8", "HOME": str(self._folder),
                    **({"USER": pwd.getpwuid(self._account.uid).pw_name}
                       if self._account.uid is not None else {}),
                },
            )  # fmt: skip

    # --- looking ---------------------------------------------------------------------------------

    def members(self) -> dict[str, dict[str, Any]]:
        """Return what the first Patroni that answers says of each server, by name."""
        for name in MEMBERS:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                answer = self._ask(name, "GET", "/cluster")
                return {one["name"]: one for one in json.loads(answer)["members"]}
        return {}

    def leader(self) -> str:
        """Return who leads, empty while nobody does."""
        found = self.members().items()
        return next((name for name, one in found if one["role"] == "leader"), "")

    def is_whole(self) -> bool:
        """Return whether there are a leader, a synchronous standby and another one that streams."""
        found = self.members().values()
        streams = [one for one in found if one["state"] == "streaming"]
        leads = [one for one in found if one["role"] == "leader" and one["state"] == "running"]
        return len(streams) == 2 and len(leads) == 1 and "sync_standby" in [
            one["role"] for one in streams
        ]  # fmt: skip

    def _ask(self, name: str, method: str, path: str, body: Any = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._rest[name], timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if method == "POST" and answer.status >= 300:
            raise OSError(f"{answer.status} {text!r}")
        return text

    def _host(self, name: str) -> list[psutil.Process]:
        """Return Patroni of a server, its postmaster and all its sessions, parents first."""
        patroni = psutil.Process(self._processes[name].pid)
        return [patroni, *patroni.children(recursive=True), *self._database(name)]

    def _database(self, name: str) -> list[psutil.Process]:
        with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
            file = self._folder / name / "postmaster.pid"
            postmaster = psutil.Process(int(file.read_text().split("\n", 1)[0]))
            return [postmaster, *postmaster.children()]
        return []

    # --- doing harm: each returns what heals it ---------------------------------------------------

    def kill_database(self, name: str) -> Callable[[], None]:
        """SIGKILL PostgreSQL with all sessions; Patroni of that server lives."""
        _each(self._database(name), psutil.Process.suspend, psutil.Process.kill)
        return lambda: None

    def kill_host(self, name: str) -> Callable[[], None]:
        """SIGKILL all of a server; it is started again to heal."""
        _each(self._host(name), psutil.Process.suspend, psutil.Process.kill)
        self._processes[name].wait()
        return lambda: self.start_member(name)

    def freeze_host(self, name: str) -> Callable[[], None]:
        """SIGSTOP all of a server; it goes on to heal, and believes that it leads."""
        self._frozen = self._host(name)
        _each(self._frozen, psutil.Process.suspend)
        return self._thaw

    def switch_over(self, name: str) -> Callable[[], None]:
        """Have the leader hand over to its synchronous standby."""
        found = self.members().items()
        standby = next(other for other, one in found if one["role"] == "sync_standby")
        self._ask(name, "POST", "/switchover", {"leader": name, "candidate": standby})
        return lambda: None

    def _thaw(self) -> None:
        frozen, self._frozen = self._frozen, []
        _each(frozen, psutil.Process.resume)

    def close(self) -> None:
        """End everything that was started."""
        self._thaw()
        for name in MEMBERS:
            if name in self._processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    _each(self._host(name), psutil.Process.suspend, psutil.Process.kill)
        for process in self._processes.values():
            process.kill()
            process.wait()


def _each(processes: list[psutil.Process], *acts: Callable[[psutil.Process], None]) -> None:
    for act in acts:
        for one in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                act(one)


@contextlib.contextmanager
def running() -> Iterator[Patroni]:
    """Three servers that are whole, ended and removed afterwards."""
    with state_folder() as folder:
        servers = Patroni(folder)
        try:
            servers.start()
            yield servers
        finally:
            servers.close()
