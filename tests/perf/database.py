"""A throw-away PostgreSQL and Redis for measurements, with fsync on."""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from clusterstate.change_log import wake
from clusterstate.local import embedded, places


@contextlib.contextmanager
def throw_away() -> Iterator[None]:
    """Start the servers and connect to them, migrated and prepared; leave nothing behind."""
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
        yield
    finally:
        connection.close()
        for process in reversed(processes):
            process.send_signal(signal.SIGINT)
        for process in processes:
            process.wait(30)
        shutil.rmtree(base, ignore_errors=True)
