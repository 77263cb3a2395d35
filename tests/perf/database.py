"""A throw-away PostgreSQL and Redis for measurements, with fsync on."""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from clusterstate.change_log import wake
from clusterstate.database import sql
from clusterstate.local import embedded, places
from tests.perf.scratch import cpu_seconds_of


@contextlib.contextmanager
def throw_away() -> Iterator[Path]:
    """Start the servers and connect to them, migrated and prepared; leave nothing behind.

    Gives their state directory.
    """
    base = Path(tempfile.mkdtemp(prefix="stowage-bench-"))
    places.make_state(base)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (base / "servers.log").open("wb") as log:
            servers: list[embedded.Server] = [embedded.Postgres(base), embedded.Redis(base)]
            processes = [server.spawn(log.fileno()) for server in servers]
        for server, process in zip(servers, processes, strict=True):
            embedded.wait_ready(server, process)
        place = conninfo_to_dict(places.postgres_url(base))
        connection.settings_dict.update(
            HOST=place.get("host", ""),
            PORT=place.get("port", ""),
            USER=place.get("user", ""),
            PASSWORD=place.get("password", ""),
            NAME=place.get("dbname", ""),
        )
        settings.REDIS_URL = places.redis_url(base)
        wake.client.cache_clear()  # it belongs to the servers of the measurement before
        call_command("migrate", verbosity=0)
        call_command("prepare", verbosity=0)
        yield base
    finally:
        connection.close()
        for process in reversed(processes):
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait(30)
        shutil.rmtree(base, ignore_errors=True)


class Spent(NamedTuple):
    """What the database server has taken so far, or between two moments."""

    cpu_seconds: float
    """Of all its processes, those that ended included."""
    wal_bytes: int

    def since(self, before: "Spent") -> "Spent":
        """Return what the server has used since the moment of ``before``."""
        return Spent(self.cpu_seconds - before.cpu_seconds, self.wal_bytes - before.wal_bytes)

    def per(self, count: int) -> dict[str, float]:
        """Return microseconds of CPU and bytes of write-ahead log for each of so many."""
        return {
            "cpu_us": round(self.cpu_seconds / count * 1e6, 1),
            "wal_bytes": round(self.wal_bytes / count),
        }


def spent() -> Spent:
    """Return what the database server has taken so far. Queries once."""
    row = sql.fetch_one(
        "SELECT current_setting('data_directory'), pg_current_wal_insert_lsn() - '0/0'"
    )
    assert row is not None
    postmaster = Path(row[0], "postmaster.pid").read_text().split()[0]
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    cpu = cpu_seconds_of(int(postmaster), with_ended=True)
    cpu += sum(cpu_seconds_of(int(pid)) for pid in children)
    return Spent(cpu, int(row[1]))
