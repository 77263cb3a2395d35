"""`manage.py drill`: lose agents, change labels or break parts of a whole service, and audit it."""

import json
import subprocess
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from scheduling.bench import drills
from scheduling.bench.service import ServiceError


class Command(BaseCommand):
    """One JSON line with what the change log says; fails when a promise was broken."""

    help = "Start a service with hollow nodes, do harm to it, and tell who left, when and whereto."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the drills and their sizes."""
        chosen = parser.add_subparsers(dest="drill", required=True)
        one = chosen.add_parser("outage", help="many agents fall silent at once")
        one.add_argument("--nodes", type=int, default=1000)
        one.add_argument("--pods", type=int, default=20_000)
        one.add_argument("--lost", type=int, default=200, help="agents that fall silent")
        one.add_argument("--rate", type=float, default=2, help="taints a second in each zone")
        one.add_argument("--grace", type=float, default=40, help="seconds until they are missed")
        one = chosen.add_parser("relabel", help="labels change under pods that require them")
        one.add_argument("--nodes", type=int, default=300)
        one.add_argument("--relabelled", type=int, default=100)
        one.add_argument("--pods", type=int, default=2000, help="that require the label")
        one.add_argument("--rate", type=float, default=50, help="evictions a second")
        one = chosen.add_parser("faults", help="Redis flushed, workers killed, beat stopped")
        one.add_argument("--nodes", type=int, default=100)
        one.add_argument("--pods", type=int, default=2000)
        one = chosen.add_parser("soak", help="faults of every kind until the minutes are over")
        one.add_argument("--minutes", type=float, default=90)
        one.add_argument("--seed", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run one drill."""
        if options["drill"] == "soak":
            self._soak(options)
            return
        names = ("nodes", "pods", "lost", "rate", "grace", "relabelled")
        sizes = {name: options[name] for name in names if name in options}
        drill = getattr(drills, options["drill"])
        try:
            result = drill(**sizes, say=self._say)
        except (OSError, ServiceError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(result))

    def _soak(self, options: dict[str, Any]) -> None:
        """Run the fault machine, which lies with the tests since it shares no code with these."""
        if not (settings.BASE_DIR / "tests" / "faults" / "__main__.py").exists():
            raise CommandError("The fault machine is in the folder tests: use a checkout.")
        command = [sys.executable, "-m", "tests.faults", "--minutes", str(options["minutes"])]
        command += ["--seed", options["seed"]] if options["seed"] else []
        if subprocess.run(command, cwd=settings.BASE_DIR, check=False).returncode:  # noqa: S603
            raise CommandError("A promise was broken: see the table.")

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
