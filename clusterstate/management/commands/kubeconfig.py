"""`manage.py kubeconfig`: print or write a kubeconfig for a token."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from clusterstate.local import credentials
from clusterstate.processes import private_files


class Command(BaseCommand):
    """Prints a kubeconfig; kubectl uses it with `--kubeconfig FILE`."""

    help = "Print a kubeconfig for the administrator's token, or for another one."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        host = credentials.reachable_host(settings.HOST)
        parser.add_argument("--user", default="admin", help="the user's name in the file")
        parser.add_argument("--token", help="the token; default: the state directory's")
        parser.add_argument(
            "--server",
            default=f"https://{host}:{settings.HTTPS_PORT}",
            help="where the API is (default: %(default)s)",
        )
        parser.add_argument("--output", help="write to this file, mode 0600, instead of printing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print or write the document."""
        state = settings.STATE_DIR
        token = options["token"]
        if not token:
            token = private_files.read(state / "token")
            if token is None:
                raise CommandError(
                    f"There is no token in {state}: start the service once with `make up`,"
                    " or give --token."
                )
        authority = state / "ca.crt"
        document = credentials.kubeconfig(
            server=options["server"],
            authority=authority.read_bytes() if authority.exists() else b"",
            token=token,
            user=options["user"],
        )
        if options["output"]:
            private_files.write(Path(options["output"]), document.encode())
        else:
            self.stdout.write(document, ending="")
