"""`manage.py auditlog`: verify that no line of the audit log, and no decision, was changed."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from clusterstate.actions.past.audit_log import next_digest
from clusterstate.actions.scheduler import seals
from clusterstate.database import sql
from clusterstate.local import preparation
from clusterstate.objects.values.document import format_time
from clusterstate.queries.people import audit_log


class Command(BaseCommand):
    """Verifies both chains of digests from their oldest entries to the newest; writes nothing."""

    help = "Verify the chains of digests of the audit log and of decisions; read only."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the option."""
        parser.add_argument(
            "--contains",
            metavar="DIGEST",
            default="",
            help="a digest that this command printed earlier; fail if the log no longer has it",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify the chains and print their newest digests.

        Raises:
            CommandError: a line or a seal does not follow from the one before it, one is missing,
                decisions differ from their seal, the given digest is not in a chain, or the
                database does not answer.
        """
        preparation.require_server()
        digest_ = options["contains"].strip().lower()
        with preparation.unhurried():
            preparation.require_prepared()
            with transaction.atomic():
                # Lines are appended and dropped meanwhile: one moment is looked at.
                sql.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                ends, is_there = _follow(digest_)
            number, digest = ends.last_id, ends.digest
            try:
                sealed = seals.verify(expected=digest_)
            except seals.Broken as error:
                raise CommandError(str(error)) from None
            is_there = is_there or bool(sealed.digests)
        if not is_there:
            raise CommandError(
                f"the chains have no digest {digest_}: the digests were computed again, or the"
                " lines were trimmed"
            )
        if sealed.kept_from is not None:
            self.stdout.write(f"decisions made before {format_time(sealed.kept_from)} were dropped")
        trimmed = f" ({sealed.trimmed:,} more are partly trimmed)" if sealed.trimmed else ""
        self.stdout.write(f"{sealed.decisions:,} decisions match their seals{trimmed}")
        if sealed.last:
            self.stdout.write(f"seal {sealed.last}: {sealed.digest.hex()}")
        self.stdout.write(f"{number - ends.trimmed_id:,} lines match their digests")
        self.stdout.write(f"line {number}: {digest.hex()}")


def _follow(expected: str) -> tuple[audit_log.Ends, bool]:
    """Return the ends of the audit log's chain, and whether it contains ``expected``.

    Raises:
        CommandError: a line does not follow from the one before it, or one is missing.
    """
    ends = audit_log.ends()
    number, digest = ends.trimmed_id, ends.trimmed_digest
    if ends.has_older:
        raise CommandError(
            f"lines up to {number} are recorded as deleted, but some of them still exist"
        )
    is_there = not expected or digest.hex() == expected
    for id_, line, stored in audit_log.chain(number, until=ends.last_id):
        if id_ != number + 1:
            raise CommandError(f"line {number + 1} is missing: the next is {id_}")
        number, digest = id_, next_digest(digest, line)
        if stored != digest:
            raise CommandError(f"line {id_} was changed after it was written")
        is_there = is_there or digest.hex() == expected
    if number != ends.last_id or digest != ends.digest:
        raise CommandError(f"the newest lines are missing: {number} of {ends.last_id}")
    return ends, is_there
