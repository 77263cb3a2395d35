"""`manage.py createtoken USER`: make an API token and print it, once."""

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusterstate.actions import tokens


class Command(BaseCommand):
    """Prints a new token. It cannot be shown again: the database keeps only its digest."""

    help = "Make an API token for a user and print it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("user", help="the name of an existing user")
        parser.add_argument("--name", default="", help="what the token is for")
        parser.add_argument(
            "--group",
            action="append",
            default=[],
            help="a group the token's requests belong to, such as system:masters; repeatable",
        )
        parser.add_argument("--days", type=float, help="expires after so many days")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the token."""
        now = datetime.now(UTC)  # noqa: TID251  # a command is an edge
        days = options["days"]
        secret = tokens.new_secret()
        try:
            tokens.create_token(
                user=options["user"],
                secret=secret,
                now=now,
                name=options["name"],
                groups=options["group"],
                expires_at=None if days is None else now + timedelta(days=days),
            )
        except tokens.UnknownUser as error:
            raise CommandError(str(error)) from error
        self.stdout.write(secret)
