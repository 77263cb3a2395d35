"""`manage.py backup FILE`: save the whole database, while the service runs."""

import os
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusterstate.actions.past import archives
from clusterstate.local import preparation
from clusterstate.local.progress import Progress


class Command(BaseCommand):
    """Writes one file, whole or not at all, that only its owner can read."""

    help = "Save everything the database holds to a file; manage.py restore puts it back."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the file's name."""
        parser.add_argument("file", type=Path, help="the file to write; it must not exist")

    def handle(self, *args: Any, **options: Any) -> None:
        """Save, and report progress.

        Raises:
            CommandError: the file exists or cannot be written, or the database does not answer.
        """
        path: Path = options["file"]
        if path.exists():
            raise CommandError(f"{path} is there already: remove it, or name another file.")
        preparation.require_server()
        progress = Progress(self.stderr.write if options["verbosity"] else None, "saved")
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            unfinished.unlink(missing_ok=True)
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                with preparation.alone(self.stderr.write), preparation.unhurried():
                    preparation.require_prepared()
                    archives.write(
                        file,
                        version=_version(),
                        now=datetime.now(UTC),  # noqa: TID251  # a command is an edge
                        progress=progress,
                    )
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            unfinished.rename(path)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror or error}.") from error
        finally:
            unfinished.unlink(missing_ok=True)
        if not options["verbosity"]:
            return
        self.stdout.write(
            f"saved {progress.rows:,} rows of {progress.tables} tables"
            f" to {path} ({size / 1e6:,.1f} MB)"
        )


def _version() -> str:
    try:
        return metadata.version("stowage")
    except metadata.PackageNotFoundError:
        return "unknown"
