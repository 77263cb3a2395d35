"""`manage.py listtokens`: the user of each token, and when it expires; not the tokens."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand

from clusterstate.actions.people import tokens
from clusterstate.objects.values.text_table import columns


class Command(BaseCommand):
    """Prints one line for each token."""

    help = "List API tokens by id; manage.py revoketoken ID revokes one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--user", help="only tokens of this user or node")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the list."""
        now = datetime.now(UTC)  # noqa: TID251  # a command is an edge
        rows = [("ID", "USER", "NAME", "GROUPS", "CREATED", "EXPIRES")]
        for token in tokens.everything().iterator():
            if options["user"] and token.stands_for != options["user"]:
                continue
            expires = "never"
            if token.expires_at is not None:
                expires = f"{token.expires_at:%Y-%m-%d %H:%M}"
                if token.expires_at <= now:
                    expires += " (expired)"
            groups = ",".join(token.groups) or "-"
            created = f"{token.created_at:%Y-%m-%d %H:%M}"
            rows.append(
                (str(token.pk), token.stands_for, token.name or "-", groups, created, expires)
            )
        for line in columns(rows):
            self.stdout.write(line)
