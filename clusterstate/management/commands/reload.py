"""`manage.py reload`: use upgraded plugins, without a restart of the service.

Asks the supervisor (`manage.py up`) of this state directory to replace the processes that run
plugins, each by a successor that is warm before the old one ends.
"""

import os
import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from clusterstate.local import embedded


class Command(BaseCommand):
    """Asks the supervisor to replace the processes that run plugins."""

    help = "Replace the processes that run plugins, so that upgraded packages are read."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Send the supervisor SIGUSR1."""
        pid = embedded.supervisor_of(settings.STATE_DIR)
        if pid is None:
            raise CommandError(
                f"No service runs on {settings.STATE_DIR} under a supervisor: restart the"
                " schedulers and workers of your containers one by one."
            )
        os.kill(pid, signal.SIGUSR1)
        self.stdout.write(f"told the supervisor (pid {pid}); its log says when all are replaced")
