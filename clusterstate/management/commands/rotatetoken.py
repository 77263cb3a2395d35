"""`manage.py rotatetoken`: replace the state directory's token, which the first start made."""

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from clusterstate.local import first_token
from clusterstate.processes import private_files


class Command(BaseCommand):
    """Makes a new token, writes it and the kubeconfig, and revokes the old one."""

    help = "Replace the administrator's token and its kubeconfig in the state directory."

    def handle(self, *args: Any, **options: Any) -> None:
        """Replace the token."""
        if private_files.read(settings.STATE_DIR / "token") is None:
            raise CommandError(f"There is no token in {settings.STATE_DIR}: `make up` makes one.")
        first_token.rotate(settings.STATE_DIR, now=datetime.now(UTC))  # noqa: TID251  # an edge
        self.stdout.write(f"new token in {settings.STATE_DIR}: token and kubeconfig")
