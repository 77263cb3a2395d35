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
    """Migrates and creates the objects of every cluster. Safe to repeat, and by several at once."""

    help = "Migrate the database and create system namespaces, priority classes and roles."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--new-history",
            action="store_true",
            help="begin a new history of revisions; use this after you put back a copy of the disk",
        )

        parser.add_argument(
            "--certificate",
            action="store_true",
            help="also make or renew the certificate for https, in the state directory",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate and create, and print which objects were created.

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
        """Apply missing migrations; return whether there were any.

        If there were, the caller counts quotas again, whose rules may differ between versions.

        If there are none, Django's ``migrate`` would build the models of all tables twice, a third
        of a second of every start, before its work after migrations. Only that work is done here:
        it sends ``post_migrate``, since a process may have been killed before, and records squashed
        migrations.
        """
        executor = MigrationExecutor(connection)
        preparation.require_known_migrations(executor.loader)
        if preparation.missing_migrations(executor.loader):
            call_command(migrate.Command(), interactive=False, verbosity=verbosity)
            return True
        executor.check_replacements()
        emit_post_migrate_signal(verbosity=verbosity, interactive=False, db="default")
        return False
