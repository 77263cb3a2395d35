"""`manage.py createtoken USER`: make an API token and print it, once."""

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusterstate.actions.people import tokens
from clusterstate.local.lifetimes import lifetime


class Command(BaseCommand):
    """Prints a new token. It cannot be shown again: the database keeps only its digest."""

    help = "Make an API token for a user and print it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "user", help="the name of an existing user, or system:node:NAME for a node's agent"
        )
        parser.add_argument("--name", default="", help="what the token is for")
        parser.add_argument(
            "--group",
            action="append",
            default=[],
            help="a group the token's requests belong to, such as system:masters; repeatable",
        )
        lives = parser.add_mutually_exclusive_group()
        lives.add_argument(
            "--ttl",
            type=lifetime,
            default=tokens.LIFETIME,
            help="expires after this time, such as 90d, 12h or 30m; `never`: does not expire"
            f" (default: {tokens.LIFETIME.days}d)",
        )
        lives.add_argument("--days", type=float, help="expires after so many days")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the token."""
        now = datetime.now(UTC)  # noqa: TID251  # a command is an edge
        lives = options["ttl"]
        if options["days"] is not None:
            if not 0 < options["days"] <= 36500:
                raise CommandError("--days must be more than 0 and at most 36500")
            lives = timedelta(days=options["days"])
        secret = tokens.new_secret()
        try:
            tokens.create_token(
                user=options["user"],
                secret=secret,
                now=now,
                name=options["name"],
                groups=options["group"],
                expires_at=None if lives is None else now + lives,
            )
        except tokens.UnknownUser as error:
            raise CommandError(str(error)) from error
        self.stdout.write(secret)
