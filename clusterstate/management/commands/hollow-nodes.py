"""`manage.py hollow-nodes`: simulate the agents of many nodes, for a cluster that works."""
# ruff: noqa: N999  # the command's name

import argparse
import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from clusterstate.local.hollow import devices
from clusterstate.local.hollow.connection import Connection
from clusterstate.local.hollow.devices import DevicesError, Driver
from clusterstate.local.hollow.fleet import Fleet, parse_script


class Command(BaseCommand):
    """Registers nodes and simulates their agents until Ctrl-C."""

    help = "Simulate the agents of many nodes over the API; Ctrl-C stops them, the nodes stay."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the number, size and zones of the nodes, and when some are lost."""
        parser.add_argument("--count", type=int, default=100, help="number of nodes (100)")
        parser.add_argument("--prefix", default="hollow-", help="prefix of their names")
        parser.add_argument("--cpu", default="32", help="allocatable CPUs of each node (32)")
        parser.add_argument("--memory", default="128Gi", help="allocatable memory (128Gi)")
        parser.add_argument(
            "--ephemeral-storage", default="100Gi", help="allocatable ephemeral storage (100Gi)"
        )
        parser.add_argument("--pods", default="110", help="allocatable pods (110)")
        parser.add_argument("--zones", type=int, default=3, help="number of zones (3)")
        parser.add_argument("--period", type=float, default=10, help="seconds between heartbeats")
        parser.add_argument("--stop-seconds", type=float, default=0.5, help="a pod's stop time")
        parser.add_argument(
            "--job-seconds", type=float,
            help="pods of Jobs succeed after so many seconds, if nothing else ends them",
        )  # fmt: skip
        parser.add_argument("--connections", type=int, default=8, help="connections kept open (8)")
        parser.add_argument("--duration", type=float, help="stop after so many seconds")
        parser.add_argument("--every", type=float, default=5, help="seconds between reports (5)")
        parser.add_argument(
            "--events", action="store_true", help="write an Event for each pod that starts"
        )
        parser.add_argument(
            "--devices", metavar="FILE",
            help="devices of the nodes, published as ResourceSlices (format: docs/devices.md)",
        )  # fmt: skip
        parser.add_argument("--seed", type=int, default=1, help="seed for choosing lost nodes")
        parser.add_argument(
            "--lose", action="append", default=[], metavar="COUNT@SECOND",
            help="such as 20@60: 20 agents fall silent 60 s after the start; may be repeated",
        )  # fmt: skip
        parser.add_argument(
            "--regain", action="append", default=[], metavar="COUNT@SECOND",
            help="such as 20@90: 20 of the lost agents come back after 90 s",
        )  # fmt: skip
        parser.add_argument(
            "--server", default=f"http://127.0.0.1:{settings.HTTP_PORT}", help="the API's URL"
        )
        parser.add_argument("--token-file", default=str(settings.STATE_DIR / "token"))
        parser.add_argument("--ca-file", default=str(settings.STATE_DIR / "ca.crt"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the fleet."""
        try:
            token = Path(options["token_file"]).read_text().strip()
        except OSError as error:
            raise CommandError(
                f"The token {options['token_file']} cannot be read ({error.strerror}): start the"
                " service once with `make up`, or name a file with --token-file."
            ) from error
        try:
            script = [parse_script(text, lose=True) for text in options["lose"]]
            script += [parse_script(text, lose=False) for text in options["regain"]]
        except ValueError as error:
            raise CommandError(str(error)) from error
        drivers = self._drivers(options["devices"])
        server = options["server"]
        tls = None
        if server.startswith("https"):
            tls = ssl.create_default_context(cafile=options["ca_file"])
        fleet = Fleet(
            lambda: Connection(server, token, tls),
            count=options["count"],
            prefix=options["prefix"],
            allocatable={
                "cpu": options["cpu"],
                "memory": options["memory"],
                "ephemeral-storage": options["ephemeral_storage"],
                "pods": options["pods"],
            },
            zones=max(1, options["zones"]),
            period=options["period"],
            connections=options["connections"],
            stop_seconds=options["stop_seconds"],
            seed=options["seed"],
            say=self._say,
            events=options["events"],
            job_seconds=options["job_seconds"],
            drivers=drivers,
        )
        running = fleet.run(script, seconds=options["duration"], every=options["every"])
        with contextlib.suppress(KeyboardInterrupt):
            try:
                asyncio.run(running)
            except (OSError, RuntimeError) as error:
                raise CommandError(str(error)) from error

    def _drivers(self, file: str | None) -> list[Driver]:
        if file is None:
            return []
        try:
            return devices.read(Path(file).read_text())
        except OSError as error:
            raise CommandError(f"--devices: {file} cannot be read ({error.strerror})") from error
        except DevicesError as error:
            raise CommandError(f"--devices: {file}: {error}") from error

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
