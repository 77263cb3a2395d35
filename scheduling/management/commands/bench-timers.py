"""`manage.py bench-timers`: the speed of evictions on a throw-away PostgreSQL."""
# ruff: noqa: N999  # the command's name

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from clusterstate import embedded
from scheduling.bench import timers


class Command(BaseCommand):
    """One JSON line for each result on standard output."""

    help = "Measure eviction timers on a database of their own: set, fired at once, one by one."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--waiting", type=int, default=1_000_000, help="timers that only wait")
        parser.add_argument(
            "--due", type=int, nargs="+", default=[10_000, 50_000], help="pods due at one instant"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the servers, measure, and leave nothing behind."""
        base = Path(tempfile.mkdtemp(prefix="stowage-bench-"))
        embedded.make_state(base)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            with (base / "servers.log").open("wb") as log:
                servers: list[embedded.Server] = [embedded.Postgres(base), embedded.Redis(base)]
                processes = [server.spawn(log.fileno()) for server in servers]
            for server, process in zip(servers, processes, strict=True):
                embedded.wait_ready(server, process)
            place = conninfo_to_dict(embedded.postgres_url(base))
            connection.settings_dict.update(
                HOST=place.get("host", ""),
                PORT=place.get("port", ""),
                USER=place.get("user", ""),
                PASSWORD=place.get("password", ""),
                NAME=place.get("dbname", ""),
            )
            settings.REDIS_URL = embedded.redis_url(base)
            call_command("migrate", verbosity=0)
            call_command("prepare", verbosity=0)
            for result in timers.run(waiting=options["waiting"], due=options["due"], say=self._say):
                self.stdout.write(json.dumps(result))
                self.stdout.flush()
        finally:
            connection.close()
            for process in reversed(processes):
                process.send_signal(signal.SIGINT)
            for process in processes:
                process.wait(30)
            shutil.rmtree(base, ignore_errors=True)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
