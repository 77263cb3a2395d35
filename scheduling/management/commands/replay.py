"""`manage.py replay`: what would have happened under another configuration? Nothing is stored.

Plays a public trace (`--trace FORMAT FILE...`, docs/traces.md) or the recent history of the live
service (`--hours N`) in virtual time under one or several configurations, and compares the
outcomes.
"""

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.objects.values.errors import StatusError
from clusterstate.processes import collector
from scheduling.management import runs
from scheduling.scenarios import trace_files, traces


class Command(BaseCommand):
    """Replays a trace or the service's history under other configurations."""

    help = "Replay a trace or the recent past under several configurations, and compare them."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument(
            "--trace",
            nargs="+",
            metavar=("FORMAT", "FILE"),
            help=f"a public trace; formats: {', '.join(traces.FORMATS)}",
        )
        source.add_argument(
            "--hours", type=float, help="replay the last hours of the live service's history"
        )
        parser.add_argument(
            "--stretch",
            type=float,
            default=1.0,
            help="trace: multiply how long pods run by this (default: %(default)s)",
        )
        parser.add_argument(
            "--share-of-nodes",
            type=float,
            default=1.0,
            metavar="SHARE",
            help="trace: use this part of its nodes, such as 0.5 (default: all)",
        )
        parser.add_argument(
            "--option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="option of the trace's format, such as nodes=200 of azure (docs/traces.md)",
        )
        parser.add_argument("--seed", type=int, default=0, help="seed of random choices")
        parser.add_argument(
            "-o",
            "--output",
            choices=("table", "jsonl"),
            default="table",
            help="output format",
        )
        runs.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay the trace or the history, and print the comparison."""
        if options["trace"]:
            self._trace(options)
        else:
            self._history(options)

    def _trace(self, options: dict[str, Any]) -> None:
        form, *files = options["trace"]
        of_format = dict(one.partition("=")[::2] for one in options["option"])
        if not 0 < options["share_of_nodes"] <= 1:
            raise CommandError("--share-of-nodes must be above 0 and at most 1")
        if not 0 < options["stretch"] <= 1e6:
            raise CommandError("--stretch must be above 0 and at most 1000000")
        try:
            script = traces.read(
                form,
                [Path(one) for one in files],
                stretch=options["stretch"],
                share_of_nodes=options["share_of_nodes"],
                seed=options["seed"],
                **of_format,
            )
        except trace_files.TraceError as error:
            raise CommandError(str(error)) from error
        collector.calm()
        about = (
            (
                f"Trace {' '.join(Path(one).name for one in files)} ({form}): pods run"
                f" {options['stretch']:g} times as long as recorded, on"
                f" {100 * options['share_of_nodes']:g} % of the nodes."
            ),
        )
        runs.run(script, options, self.stdout, self.stderr, about=about)

    def _history(self, options: dict[str, Any]) -> None:
        from scheduling.answers import recorded

        if not 0 < options["hours"] <= 24 * 366:
            raise CommandError(f"--hours must be above 0 and at most {24 * 366}")
        try:
            until = datetime.now(UTC)  # noqa: TID251  # a command's edge
            script = recorded.script(
                since=until - timedelta(hours=options["hours"]),
                until=until,
                seed=options["seed"],
            )
        except OperationalError as error:
            text = " ".join(str(error).split())
            raise CommandError(f"To read the change log, the database is needed: {text}") from error
        except StatusError as error:
            raise CommandError(str(error)) from error
        collector.calm()
        about = (f"The live service, {options['hours']:g} hours up to {recorded.ended(script)}.",)
        runs.run(
            script,
            options,
            self.stdout,
            self.stderr,
            about=about,
            extra=lambda: recorded.outcome(script),
        )
