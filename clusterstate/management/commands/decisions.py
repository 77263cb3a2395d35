"""`manage.py decisions`: write the scheduler's decisions as JSON lines or as an Arrow stream."""

import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusterstate.database import arrow
from clusterstate.local import preparation
from clusterstate.objects.values.document import parse_time
from clusterstate.queries.scheduler import decision_search
from clusterstate.queries.scheduler.decision_search import DecisionSummary, Search

_TEXTS = {
    "namespace": "only decisions about pods in this namespace",
    "name": "only decisions about pods of this name",
    "node": "only decisions that chose this node",
    "reason": "only decisions whose message has this text",
    "outcome": "only decisions that ended so: scheduled, unschedulable, error or stale",
    "profile": "by this profile",
    "owner": "only decisions about pods of this controller: KIND/NAME, with --namespace",
    "actor": "only decisions about pods that this user created",
}


class Command(BaseCommand):
    """Searches decisions, the newest first; writes nothing to the database."""

    help = "Export the scheduler's decisions; read only."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the filters, the format and the file."""
        for name, text in _TEXTS.items():
            parser.add_argument(f"--{name}", default="", help=text)
        parser.add_argument("--since", help="only from this time on: 2026-01-31T12:00:00Z")
        parser.add_argument("--until", help="only decisions before this time")
        parser.add_argument("--format", choices=("jsonl", "arrow"), default="jsonl")
        parser.add_argument("--output", metavar="FILE", help="file (default: standard output)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the decisions.

        Raises:
            CommandError: an argument is invalid, the Arrow library is not installed, the file
                cannot be written, or the database does not answer.
        """
        filters = Search(
            **{name: options[name] for name in _TEXTS},
            since=_moment(options["since"], "--since"),
            until=_moment(options["until"], "--until"),
        )
        if filters.owner and not (filters.namespace and all(filters.owner.partition("/"))):
            raise CommandError("--owner must be KIND/NAME, and needs --namespace")
        try:
            form = (
                arrow.Writer(arrow.columns_of(DecisionSummary))
                if options["format"] == "arrow"
                else None
            )
        except arrow.NotInstalled as error:
            raise CommandError(error.message) from None
        preparation.require_server()
        with ExitStack() as stack:
            file: IO[bytes] = sys.stdout.buffer
            if options["output"]:
                try:
                    file = stack.enter_context(Path(options["output"]).open("wb"))
                except OSError as error:
                    raise CommandError(f"{options['output']}: {error.strerror}") from None
            preparation.require_prepared()
            count = _write(filters, form, file)
        if options["output"]:
            self.stdout.write(f"{count:,} decisions")


def _write(filters: Search, form: "arrow.Writer | None", file: IO[bytes]) -> int:
    count = 0
    encode = msgspec.json.Encoder().encode
    for page in decision_search.pages(filters):
        count += len(page)
        if form is not None:
            file.write(form.batch([msgspec.structs.astuple(one) for one in page]))
        else:
            file.write(b"".join(encode(one.manifest()) + b"\n" for one in page))
    if form is not None:
        file.write(form.end())
    file.flush()
    return count


def _moment(text: str | None, name: str) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        raise CommandError(f"{name} must be a time such as 2026-01-31T12:00:00Z") from None
