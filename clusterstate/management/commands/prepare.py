"""`manage.py prepare`: bring the database up to date, ready for the other processes."""

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.core.management.commands import migrate
from django.core.management.sql import emit_post_migrate_signal
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.writing import quotas
from clusterstate.change_log import lineage
from clusterstate.local import credentials, preparation


class Command(BaseCommand):
    """Migrates and creates what every cluster has. Safe to repeat, and by several at once."""

    help = "Migrate the database and create system namespaces, priority classes and roles."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--new-history",
            action="store_true",
            help="begin a new history of revisions, as after a copy of the disk was put back",
        )

        parser.add_argument(
            "--certificate",
            action="store_true",
            help="also make or renew the certificate for https, in the state directory",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Do both, saying what was created.

        Raises:
            CommandError: the server or the database is of a version that does not fit.
        """
        say = self.stdout.write if options["verbosity"] else None
        if options["certificate"]:
            credentials.ensure_certificate(
                settings.STATE_DIR,
                host=settings.HOST,
                advertised=settings.ADVERTISE_ADDRESS or "",
                now=datetime.now(UTC),  # noqa: TID251  # a command is an edge
            )
        preparation.require_server()
        with preparation.alone(say), preparation.unhurried():
            is_other_version = self._migrate(options["verbosity"])
            now = datetime.now(UTC)  # noqa: TID251  # a command is an edge
            created = bootstrap.ensure(now=now) + bootstrap.ensure_access(now=now)
            for name in created + bootstrap.ensure_network(now=now):
                if say is not None:
                    say(f"created {name}")
            if is_other_version:
                quotas.count_all_again()
            if options["new_history"]:
                lineage.establish(renew=True)
                if say is not None:
                    say(f"a new history begins at revision {lineage.identity()['first_revision']}")

    def _migrate(self, verbosity: int) -> bool:
        """Bring the tables up to date; return whether they were those of another version.

        What quotas count may be another matter to the version before.

        Without a migration to apply, ``migrate`` makes the models of all tables twice before it
        does what follows each migration: a third of a second of every start, for nothing. What
        follows is done all the same, since a process may have been killed before it came to that;
        and that a squashed migration took the place of others that were applied is noted.
        """
        executor = MigrationExecutor(connection)
        preparation.require_known_migrations(executor.loader)
        if preparation.missing_migrations(executor.loader):
            call_command(migrate.Command(), interactive=False, verbosity=verbosity)
            return True
        executor.check_replacements()
        emit_post_migrate_signal(verbosity=verbosity, interactive=False, db="default")
        return False
