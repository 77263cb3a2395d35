"""`manage.py kubeconfig`: print or write a kubeconfig, for a token or for a team."""

from argparse import ArgumentParser
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from clusterstate.actions import objects, people
from clusterstate.actions.people import tokens
from clusterstate.local import credentials
from clusterstate.management.commands.createtoken import lifetime
from clusterstate.objects.values.errors import AlreadyExists, StatusError
from clusterstate.processes import private_files
from clusterstate.queries.objects import get_manifest


class Command(BaseCommand):
    """Prints a kubeconfig; kubectl uses it with `--kubeconfig FILE`."""

    help = (
        "Print a kubeconfig for the administrator's token, or for another one. With --team: give a"
        " team a role in a namespace of its own, and print a kubeconfig with a new token for it."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--user", default="admin", help="the user's name in the file")
        parser.add_argument("--token", help="the token; default: the state directory's")
        parser.add_argument(
            "--server",
            help="URL of the API (default: the one in the state directory's kubeconfig)",
        )
        parser.add_argument(
            "--team",
            help="name of the team: of its namespace (created if missing), of the group that gets"
            " the role there, and of the token's user",
        )
        parser.add_argument(
            "--role",
            default="edit",
            help="the ClusterRole that the team gets (default: %(default)s)",
        )
        parser.add_argument(
            "--ttl",
            type=lifetime,
            default=tokens.LIFETIME,
            help=f"how long the team's token lives, such as 12h (default: {tokens.LIFETIME.days}d)",
        )
        parser.add_argument("--output", help="write to this file, mode 0600, instead of printing")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print or write the document."""
        state = settings.STATE_DIR
        token, user, team = options["token"], options["user"], options["team"]
        if team:
            if token:
                raise CommandError("--team makes a new token: leave out --token")
            user, token = team, _prepared(team, options["role"], options["ttl"])
        if not token:
            token = private_files.read(state / "token")
            if token is None:
                raise CommandError(
                    f"There is no token in {state}: start the service once with `make up`,"
                    " or give --token."
                )
        authority = state / "ca.crt"
        document = credentials.kubeconfig(
            server=options["server"] or _server(state),
            authority=authority.read_bytes() if authority.exists() else b"",
            token=token,
            user=user,
            namespace=team or "",
        )
        if options["output"]:
            private_files.write(Path(options["output"]), document.encode())
            if team:
                role = options["role"]
                self.stdout.write(f"The group {team} has the role {role} in the namespace {team}.")
        else:
            self.stdout.write(document, ending="")


def _server(state: Path) -> str:
    """Return the service's URL in the written kubeconfig, else the one in the settings."""
    written = private_files.read(state / "kubeconfig")
    if written is not None:
        with suppress(yaml.YAMLError, LookupError, TypeError):
            return str(yaml.safe_load(written)["clusters"][0]["cluster"]["server"])
    return f"https://{credentials.reachable_host(settings.HOST)}:{settings.HTTPS_PORT}"


def _prepared(team: str, role: str, lives: timedelta | None) -> str:
    """Give a team a role in its namespace; return the secret of a new token.

    An existing namespace and binding stay.

    Raises:
        CommandError: the name is not valid for a namespace, or the role does not exist.
    """
    now = datetime.now(UTC)  # noqa: TID251  # a command is an edge
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": team},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": team}],
    }
    try:
        get_manifest("ClusterRole", "", role)
        for kind, namespace, manifest in (
            ("Namespace", "", {"metadata": {"name": team}}),
            ("RoleBinding", team, binding),
        ):
            with suppress(AlreadyExists):
                objects.create(kind, namespace, manifest, now=now)
    except StatusError as error:
        raise CommandError(error.message) from error
    people.for_tokens(team)
    secret = tokens.new_secret()
    expires_at = None if lives is None else now + lives
    tokens.create_token(
        user=team, secret=secret, now=now, name="kubeconfig", groups=[team], expires_at=expires_at
    )
    return secret
