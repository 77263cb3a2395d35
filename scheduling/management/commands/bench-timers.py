"""`manage.py bench-timers`: the speed of evictions on a throw-away PostgreSQL."""
# ruff: noqa: N999  # the command's name

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from scheduling.bench import timers
from scheduling.bench.database import throw_away


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
        with throw_away():
            for result in timers.run(waiting=options["waiting"], due=options["due"], say=self._say):
                self.stdout.write(json.dumps(result))
                self.stdout.flush()

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
