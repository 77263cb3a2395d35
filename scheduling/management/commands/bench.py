"""`manage.py bench`: the speed of the decision core, or of a running service."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from scheduling.bench import backlog, cold_start, engine, service, storm, trace
from scheduling.bench.catalogue import WORKLOADS, by_name
from scheduling.bench.database import throw_away
from scheduling.bench.workloads import Workload

_NOT_ON_THE_SERVICE = ("PreemptionBasic", "Unschedulable")


class Command(BaseCommand):
    """One JSON line for each result on standard output; what it is doing on standard error."""

    help = "Measure workloads: the decision core alone, or with --service a running service."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--engine", action="store_true", help="the decision core (default)")
        mode.add_argument("--service", action="store_true", help="the running service, over HTTP")
        mode.add_argument(
            "--cold-start",
            action="store_true",
            help="loading the snapshot from a throw-away database, and keeping up with it",
        )
        mode.add_argument(
            "--backlog",
            action="store_true",
            help="pending pods to bound rows: the scheduler's cycles on a throw-away database",
        )
        mode.add_argument(
            "--storm",
            action="store_true",
            help="easy pods beside very many that fit nowhere, on a whole service of its own",
        )
        mode.add_argument(
            "--aftermath",
            action="store_true",
            help="easy pods while the events and decisions of a burst are written",
        )
        parser.add_argument(
            "--waiting",
            type=int,
            default=0,
            help="how many pods: with --backlog 10,000, --storm 5,000, --aftermath 50,000",
        )
        parser.add_argument(
            "--classes", type=int, default=50, help="with --storm: of how many classes"
        )
        parser.add_argument(
            "--bound", type=int, default=0, help="with --cold-start: pods, by default 20 a node"
        )
        parser.add_argument(
            "--nodes", default="500,5000", help="numbers of nodes, such as 500,5000,15000,50000"
        )
        parser.add_argument(
            "--workloads",
            default="",
            help="some of: " + ", ".join(workload.name for workload in WORKLOADS),
        )
        parser.add_argument(
            "--trace",
            nargs=2,
            metavar=("NODES", "PODS"),
            type=Path,
            help="instead of workloads: the two files of a trace (scheduling/bench/trace.py)",
        )
        parser.add_argument(
            "--shared-gpus",
            action="store_true",
            help="with --trace: count GPUs in thousandths, so that pods share one",
        )
        parser.add_argument("--server", default=f"http://127.0.0.1:{settings.HTTP_PORT}")
        parser.add_argument("--token", default="", help="default: the one of the state directory")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run what was asked for."""
        try:
            chosen = [by_name(name) for name in options["workloads"].split(",") if name]
            if options["trace"]:
                chosen = [trace.read(*options["trace"], shared=options["shared_gpus"])]
                options["nodes"] = str(chosen[0].node_count)
        except trace.TraceError as error:
            raise CommandError(str(error)) from error
        try:
            sizes = [int(text) for text in options["nodes"].split(",")]
        except KeyError as error:
            raise CommandError(f"--workloads: there is no {error}") from error
        except ValueError as error:
            raise CommandError(f"--nodes: {error}") from error
        if options["cold_start"]:
            for nodes in sizes:
                with throw_away():
                    bound = options["bound"] or 20 * nodes
                    for result in cold_start.run(nodes=nodes, bound=bound, say=self._say):
                        self.stdout.write(json.dumps(result))
                        self.stdout.flush()
            return
        if options["backlog"]:
            for nodes in sizes:
                for name in [workload.name for workload in chosen] or ["HundredKinds"]:
                    with throw_away():
                        waiting = options["waiting"] or 10_000
                        for result in backlog.run(
                            name, nodes=nodes, waiting=waiting, say=self._say
                        ):
                            self.stdout.write(json.dumps(result))
            return
        if options["aftermath"]:
            burst = options["waiting"] or 50_000
            for nodes in sizes:
                for result in storm.aftermath(nodes=nodes, burst=burst, say=self._say):
                    self.stdout.write(json.dumps(result))
            return
        if options["storm"]:
            waiting, classes = options["waiting"] or 5000, options["classes"]
            for nodes in sizes:
                for result in storm.run(
                    nodes=nodes, waiting=waiting, classes=classes, say=self._say
                ):
                    self.stdout.write(json.dumps(result))
            return
        for nodes in sizes:
            for workload in chosen or WORKLOADS:
                if options["service"]:
                    if workload.name in _NOT_ON_THE_SERVICE:
                        self._say(f"{workload.name}: measured on the engine only")
                        continue
                    result = self._service(workload, nodes, options)
                else:
                    result = engine.run(workload, nodes, say=self._say)
                self.stdout.write(json.dumps(result))
                self.stdout.flush()

    def _service(self, workload: Workload, nodes: int, options: dict[str, Any]) -> dict[str, Any]:
        token = options["token"]
        if not token:
            try:
                token = (settings.STATE_DIR / "token").read_text().strip()
            except OSError as error:
                raise CommandError(
                    f"no token in {settings.STATE_DIR} ({error.strerror}): start the service with"
                    " make up, or give --token"
                ) from error
        try:
            return service.run(
                workload, nodes, server=options["server"], token=token, say=self._say
            )
        except (OSError, service.ServiceError) as error:
            raise CommandError(f"{options['server']}: {error}") from error

    def _say(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
