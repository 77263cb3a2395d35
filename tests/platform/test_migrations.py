"""While a version is replaced, processes of the old one run against the tables of the new one."""

from collections.abc import Iterable, Iterator

import pytest
from django.db import models
from django.db.migrations import operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

BEFORE_RELEASE = {"0001_initial"}
"""No process of an older version can know these tables."""
KEEPS_DATA = (
    operations.CreateModel,
    operations.AddIndex,
    operations.RemoveIndex,
    operations.AddConstraint,
    operations.AlterModelOptions,
    operations.RunSQL,
    operations.RunPython,
)
ALLOWED = {
    # Wider than before: what the old version writes and reads is as it was.
    ("0018_token_identities", "AlterField", "user"),
    ("0021_composed_by_the_database", "AlterField", "value"),
    ("0044_informed_reservations", "RemoveConstraint", "reservation_step_known"),
    ("0054_schedulers_side_by_side", "RemoveConstraint", "binder_one_row"),
    # The old version binds no pods with rules about others while both work: its row is gone.
    ("0057_several_schedulers", "RemoveConstraint", "binder_three_rows"),
}


def on_the_database(found: Iterable[Operation]) -> Iterator[Operation]:
    for one in found:
        if isinstance(one, operations.SeparateDatabaseAndState):
            yield from on_the_database(one.database_operations)
        else:
            yield one


def changes() -> list[tuple[str, Operation]]:
    loader = MigrationLoader(None)
    return [
        (name, one)
        for (app, name), migration in sorted(loader.disk_migrations.items())
        if app == "clusterstate" and name not in BEFORE_RELEASE
        for one in on_the_database(migration.operations)
    ]


def test_a_column_that_is_added_may_be_left_out_by_who_does_not_know_it() -> None:
    added = [(name, one) for name, one in changes() if isinstance(one, operations.AddField)]
    assert added
    for name, one in added:
        has_default = one.field.db_default is not models.NOT_PROVIDED
        told = f"{name}: {one.model_name}.{one.name} is neither null nor has a db_default"
        assert one.field.null or has_default, told


@pytest.mark.parametrize("kind", ["RemoveField", "RenameField", "RenameModel", "DeleteModel"])
def test_nothing_that_an_old_version_uses_is_renamed_or_removed(kind: str) -> None:
    assert [name for name, one in changes() if type(one).__name__ == kind] == []


def test_whatever_else_a_migration_does_has_been_looked_at() -> None:
    for name, one in changes():
        known = isinstance(one, (*KEEPS_DATA, operations.AddField))
        what = (name, type(one).__name__, getattr(one, "name", ""))
        assert known or what in ALLOWED, f"may the old version run against it? {what}"
