"""`manage.py createtoken USER`: make an API token and print it, once."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusterstate.actions.people import tokens

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_LONGEST = timedelta(days=36500)


def lifetime(text: str) -> timedelta | None:
    """Return the lifetime of a token: `90d`, `12h`, `30m` or `45s`; `None` for `never`.

    Raises:
        ArgumentTypeError: the text has another form.
    """
    if text == "never":
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([dhms])", text, re.ASCII)
    if not found:
        raise ArgumentTypeError(
            f"{text!r} is not a time like 90d, 12h, 30m or 45s, and not `never`"
        )
    time = timedelta(**{_UNITS[found[2]]: float(found[1])})
    if not timedelta(0) < time <= _LONGEST:
        raise ArgumentTypeError(f"{text!r} must be more than 0 and at most 36500d")
    return time


class Command(BaseCommand):
    """Prints a new token. It cannot be shown again: the database stores only its digest."""

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
        lives.add_argument("--days", type=float, help="days until the token expires")

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
