"""`manage.py restore FILE`: replace the whole database by a backup."""

from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from clusterstate.actions.past import archives
from clusterstate.database import archive
from clusterstate.local import preparation
from clusterstate.local.progress import Progress
from clusterstate.management.commands import prepare
from clusterstate.processes import memory


class Command(BaseCommand):
    """Checks the whole file first, then restores it in one transaction."""

    help = "Replace everything the database holds by a backup; the service may run meanwhile."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the file's name."""
        parser.add_argument("file", type=Path, help="a file that manage.py backup has written")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, restore, and report progress.

        Raises:
            CommandError: the file or the database does not fit; nothing was changed.
        """
        path: Path = options["file"]
        say = self.stderr.write if options["verbosity"] else None
        preparation.require_server()
        try:
            with path.open("rb") as file:
                head = archives.check(file, progress=Progress(say, "checked"))
                if "django_migrations" not in connection.introspection.table_names():
                    call_command(prepare.Command(), verbosity=0)
                progress = Progress(say, "restored")
                file.seek(0)
                with preparation.alone(self.stderr.write), preparation.unhurried():
                    preparation.require_prepared()
                    archives.require_fit(head)
                    first = archives.restore(file, progress=progress)
        except (archive.Damaged, archives.CannotRestore) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror or error}.") from error
        memory.forget()
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        if not options["verbosity"]:
            return
        self.stdout.write(
            f"restored {progress.rows:,} rows of {progress.tables} tables, as saved at"
            f" {head.taken_at}; a new history begins at revision {first}"
        )
