"""`manage.py audit`: compare redundant data in the database, while the service runs."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusterstate.local import preparation
from clusterstate.local.progress import Progress
from clusterstate.management import copies


class Command(BaseCommand):
    """Prints one line for each difference and exits with 1 if there are any; writes nothing."""

    help = "Check that data which the database stores twice agrees; read only."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the option."""
        parser.add_argument(
            "--list", action="store_true", help="list what is stored twice, and compare nothing"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Compare every fact that the database stores twice; print differences and progress.

        Raises:
            CommandError: something differs, or the database does not answer.
        """
        if options["list"]:
            for copy in copies.COPIES:
                self.stdout.write(f"{copy.name}: {copy.copied_to} (home: {copy.home})")
            return
        preparation.require_server()
        progress = Progress(self.stderr.write if options["verbosity"] else None, "compared")
        count = 0
        with preparation.unhurried():
            preparation.require_prepared()
            for difference in copies.differences(progress):
                count += 1
                self.stdout.write(str(difference))
        if count:
            raise CommandError(f"{count} differences", returncode=1)
        if options["verbosity"]:
            self.stdout.write(f"compared {progress.rows:,} rows: no differences")
