"""`manage.py revoketoken ID ...`: revoke API tokens."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusterstate.actions.people import tokens


class Command(BaseCommand):
    """Deletes tokens; their requests are refused within five seconds."""

    help = "Revoke API tokens, by the ids that manage.py listtokens shows."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("ids", nargs="*", type=int, metavar="ID", help="a token's id")
        parser.add_argument("--user", help="revoke all tokens of this user or node")

    def handle(self, *args: Any, **options: Any) -> None:
        """Revoke the tokens, all or none."""
        ids, user = set(options["ids"]), options["user"]
        if not ids and not user:
            raise CommandError(
                "Name the tokens to revoke: ids from `manage.py listtokens`, or --user NAME."
            )
        names = {token.pk: token.stands_for for token in tokens.everything()}
        if missing := sorted(ids - names.keys()):
            raise CommandError(f"There is no token {', '.join(map(str, missing))}.")
        if user:
            ids |= {pk for pk, name in names.items() if name == user}
        done = tokens.revoke(ids)
        self.stdout.write(f"{len(done)} token{'s' * (len(done) != 1)} taken back")
