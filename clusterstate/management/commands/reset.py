"""`manage.py reset`: remove the state directory and everything in it; `make reset` calls it."""

import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from clusterstate.local import embedded, places, reach


class Command(BaseCommand):
    """Removes the embedded servers' data, the keys and the tokens. Not an external database."""

    help = "Remove all data, keys and tokens of the service on this machine."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Remove the data, unless the service runs."""
        state: Path = settings.STATE_DIR
        if not state.exists():
            return
        try:
            lock = embedded.StateLock(state, patience=0)
        except embedded.AlreadyRunningError as error:
            raise CommandError(f"{error} Stop it first.") from error
        copies = reach.copies_of(places.postgres_binaries())
        folders = [*places.socket_directories(state), reach.former_home(state), state]
        if not reach.is_executed(copies):  # by the service of another state directory
            folders.append(copies)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()
        self.stdout.write(f"removed {state}")
