"""`manage.py signingkeys [rotate | withdraw ID]`: the keys that sign service accounts' tokens."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusterstate.actions.people import signing_keys
from clusterstate.queries.people.tokens import signing_keys as everything


class Command(BaseCommand):
    """Lists the keys, makes a new one that signs from now on, or withdraws one."""

    help = (
        "List the keys that sign tokens of service accounts. `rotate` makes a new one; tokens of"
        " the others stay valid. `withdraw ID` refuses all tokens of a key within ten seconds."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "action", nargs="?", choices=("list", "rotate", "withdraw"), default="list"
        )
        parser.add_argument("id", nargs="?", metavar="ID", help="the key to withdraw")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make or withdraw a key, and print the remaining keys."""
        action, identity = options["action"], options["id"]
        if (action == "withdraw") is (identity is None):
            raise CommandError("`withdraw` needs the id of a key; the other actions take no id.")
        try:
            if action == "rotate":
                signing_keys.rotate(datetime.now(UTC))  # noqa: TID251  # a command is an edge
            elif action == "withdraw":
                signing_keys.withdraw(identity)
        except (signing_keys.TooManyKeys, signing_keys.UnknownKey) as error:
            raise CommandError(str(error)) from error
        keys = everything()
        for key in reversed(keys):
            use = "signs" if key is keys[-1] else "checks"
            self.stdout.write(f"{key.id}   {key.created_at:%Y-%m-%d %H:%M}   {use}")
        if not keys:
            self.stdout.write("no key yet: it is made with the first token")
