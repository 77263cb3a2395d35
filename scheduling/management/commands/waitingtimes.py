"""`manage.py waitingtimes`: waiting times of pods against a goal, and pods that starve."""

import time
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.text_table import columns
from clusterstate.queries.pods import waiting_times


class Command(BaseCommand):
    """Prints the report of waiting times."""

    help = "Say how long pods wait and have waited for a node, and which of them starve."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--by", choices=waiting_times.DIMENSIONS, default="reason", help="group pods by this"
        )
        parser.add_argument("--namespace", default="", help="only pods of this namespace")
        parser.add_argument("--goal", type=int, default=waiting_times.GOAL_SECONDS, help="seconds")
        parser.add_argument("--past", type=int, default=3600, help="seconds to look back")
        parser.add_argument(
            "-o", "--output", choices=("table", "json"), default="table", help="output format"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the report."""
        try:
            found = waiting_times.report(
                options["by"],
                now=datetime.fromtimestamp(time.time(), UTC),
                past=timedelta(seconds=options["past"]),
                goal=timedelta(seconds=options["goal"]),
                namespace=options["namespace"],
            )
        except OperationalError as error:
            raise CommandError(f"The database does not answer: {error}") from error
        if options["output"] == "json":
            text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
            self.stdout.write(text)
            return
        self.stdout.write(table(found))


def table(found: Manifest) -> str:
    """Return a report as text tables: waiting pods, placed pods, starving pods."""
    by = found["spec"]["by"].upper()
    head = [by, "PODS", "MEDIAN", "P95", "LONGEST", "OVER GOAL"]
    parts = []
    for title, member in (("Waiting now", "waiting"), ("Placed", "placed")):
        rows = found["status"].get(member)
        if rows is None:
            continue
        lines = [
            [
                row["value"] or "-",
                str(row["pods"]),
                *(f"{row[key]:.1f}s" for key in ("medianSeconds", "p95Seconds", "longestSeconds")),
                str(row["overGoal"]),
            ]
            for row in rows
        ]
        parts.append("\n".join([title, *columns([head, *lines])]) if lines else f"{title}: nobody")
    starved = [
        [
            f"{one['namespace']}/{one['name']}",
            str(one["priority"]),
            f"{one['seconds']:.0f}s",
            str(one["overtakenBy"]),
            ", ".join(one["rejectedBy"]) or "-",
        ]
        for one in found["status"]["starved"]
    ]
    of_starved = ["POD", "PRIORITY", "WAITS", "OVERTAKEN BY", "REJECTED BY"]
    if starved:
        parts.append("\n".join(["Starved", *columns([of_starved, *starved])]))
    else:
        parts.append("Starved: nobody")
    return "\n\n".join(parts)
