"""`manage.py canary`: try another scheduler configuration beside the one in force.

``create FILE`` starts a trial, ``report NAME`` shows what it would have decided since then,
``switch NAME`` puts it in force and guards it, ``return NAME`` puts the earlier one back in force,
``cancel NAME`` ends the trial, ``list`` shows all.
"""

import time
from argparse import ArgumentParser
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.actions.scheduler import canaries, scheduler_configuration
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import StatusError
from clusterstate.queries.scheduler.canaries import StoredCanary, find_canary, latest_canaries
from scheduling.management import files, runs
from scheduling.plugins.catalogue import load_configuration

_BY = "manage.py canary"


class Command(BaseCommand):
    """Manages canaries: configurations on trial."""

    help = "Try another scheduler configuration on incoming pods without placing them; then switch."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        commands = parser.add_subparsers(dest="what", required=True)
        create = commands.add_parser("create", help="put a configuration on trial")
        create.add_argument("file", help="a KubeSchedulerConfiguration")
        create.add_argument("--name", default="", help="name of the canary")
        create.add_argument(
            "--guard", type=int, default=600, help="seconds to watch it once switched; %(default)s"
        )
        create.add_argument(
            "--most-failures",
            type=int,
            default=3,
            help="roll back after more failures; %(default)s",
        )
        create.add_argument(
            "--slow", type=float, default=1.0, help="most seconds of a plugin's call; %(default)s"
        )
        for what, text in (
            ("switch", "put a canary in force; it is rolled back if plugins fail or get slow"),
            ("return", "roll back to the former configuration"),
            ("cancel", "end the trial"),
        ):
            commands.add_parser(what, help=text).add_argument("name")
        report = commands.add_parser("report", help="compare its decisions with what happened")
        report.add_argument("name")
        report.add_argument("--report", metavar="FILE.html", help="write an HTML page, too")
        report.add_argument("--quiet", action="store_true", help="print no progress")
        commands.add_parser("list", help="list all canaries")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the given subcommand."""
        try:
            self._do(options)
        except OperationalError as error:
            text = " ".join(str(error).split())
            raise CommandError(f"Canaries need the database: {text}") from error
        except (StatusError, files.FileError) as error:
            raise CommandError(str(error)) from error

    def _do(self, options: dict[str, Any]) -> None:
        now = datetime.fromtimestamp(time.time(), UTC)
        what, name = options["what"], options.get("name", "")
        if what == "list":
            for one in latest_canaries():
                self._print(one)
        elif what == "create":
            self._print(_created(options, now))
        elif what == "switch":
            self._print(canaries.switch(name, by=_BY, now=now))
        elif what == "return":
            self._print(canaries.give_back(name, why="asked for", now=now, by=_BY))
        elif what == "cancel":
            self._print(canaries.cancel(name, now=now))
        else:
            self._report(find_canary(name), options, now)

    def _print(self, canary: StoredCanary) -> None:
        until = "" if canary.guard_until is None else f" until {format_time(canary.guard_until)}"
        guarded = f", guarded{until}" if canary.state == "Switched" else ""
        why = f": {canary.message}" if canary.message else ""
        self.stdout.write(f"{canary.name}   {canary.state}{guarded}{why}")

    def _report(self, canary: StoredCanary, options: dict[str, Any], now: datetime) -> None:
        from scheduling.answers import recorded

        until = canary.switched_at or canary.ended_at or now
        script = recorded.script(since=canary.created_at, until=until)
        configuration = load_configuration(canary.document)
        about = (
            f"Canary {canary.name}, {format_time(canary.created_at)} to {recorded.ended(script)}.",
        )
        runs.run(
            script,
            {**options, "output": "table", "policy": []},
            self.stdout,
            self.stderr,
            about=about,
            extra=lambda: recorded.outcome(script),
            configurations={canary.name: configuration},
        )


def _created(options: dict[str, Any], now: datetime) -> StoredCanary:
    if not Path(options["file"]).exists():
        raise CommandError(f"{options['file']}: no such file")
    found = list(files.single(files.documents(options["file"])))
    if len(found) != 1 or not isinstance(found[0], dict):
        raise CommandError("the file must hold one KubeSchedulerConfiguration")
    if not 10 <= options["guard"] <= 86400:
        raise CommandError("--guard must be from 10 to 86400 seconds")
    if not 0 <= options["most_failures"] <= 1_000_000:
        raise CommandError("--most-failures must be from 0 to 1000000")
    if not 0 < options["slow"] <= 60:
        raise CommandError("--slow must be above 0 and at most 60 seconds")
    text, _ = scheduler_configuration.check(found[0])
    return canaries.create(
        name=options["name"],
        document=text,
        guard_seconds=options["guard"],
        most_failures=options["most_failures"],
        slow_seconds=options["slow"],
        by=_BY,
        now=now,
    )
