"""`manage.py prepare`: by several at once, and on databases that it must leave alone."""

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from clusterstate.local import places, preparation
from clusterstate.management.commands import prepare

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def empty(servers: dict[str, str]) -> Iterator[str]:
    """The URL of a database without tables."""
    name = f"prepare_{uuid.uuid4().hex[:12]}"
    url = servers["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        try:
            yield url.replace(f"/{places.DATABASE}?", f"/{name}?")
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


def launch(url: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "manage.py", *(arguments or ("prepare",))], cwd=ROOT, text=True,
        env={**os.environ, "DATABASE_URL": url, "STOWAGE_PROCESS": "manage"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def test_several_at_once_prepare_an_empty_database(empty: str) -> None:
    done = [finish(process) for process in [launch(empty) for _ in range(4)]]
    assert [code for code, _ in done] == [0, 0, 0, 0], done
    with psycopg.connect(empty) as db:
        names = db.execute("SELECT name FROM namespace ORDER BY name").fetchall()
    assert names == [("default",), ("kube-node-lease",), ("kube-public",), ("kube-system",)]
    assert sum("created default" in output for _, output in done) <= 1


def test_what_follows_the_migrations_is_done_though_none_is_left(empty: str) -> None:
    """A process may be killed between the last migration and the rows that come after it."""
    assert finish(launch(empty))[0] == 0
    questions = (
        "SELECT app_label, model FROM django_content_type ORDER BY 1, 2",
        "SELECT codename FROM auth_permission ORDER BY 1",
        "SELECT name FROM namespace ORDER BY name",
    )
    with psycopg.connect(empty, autocommit=True) as db:
        before = [db.execute(question).fetchall() for question in questions]
        db.execute("DELETE FROM auth_permission; DELETE FROM django_content_type")
        db.execute("DELETE FROM namespace WHERE name = 'kube-public'")
        assert finish(launch(empty))[0] == 0
        assert [db.execute(question).fetchall() for question in questions] == before
    assert all(before)


SQUASHED = """
from django.db.migrations import Migration as Base

class Migration(Base):
    replaces = {replaces!r}
"""


@pytest.mark.django_db(transaction=True)
def test_that_a_squashed_migration_took_the_place_of_applied_ones_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Else it would be applied as soon as a later version has those that it replaces no more."""
    names = sorted(file.stem for file in (ROOT / "migrations").glob("0*.py"))
    (tmp_path / "squashes").mkdir()
    (tmp_path / "squashes" / "__init__.py").touch()
    replaces = [("clusterstate", name) for name in names]
    text = SQUASHED.format(replaces=replaces)
    (tmp_path / "squashes" / "0001_squashed.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {"clusterstate": "squashes"}
    recorder, squashed = MigrationRecorder(connection), ("clusterstate", "0001_squashed")
    assert squashed not in recorder.applied_migrations()
    try:
        prepare.Command()._migrate(verbosity=0)
        assert {*replaces, squashed} <= recorder.applied_migrations().keys()
    finally:
        recorder.record_unapplied(*squashed)


def test_a_database_without_tables_is_told_to_be_prepared(empty: str) -> None:
    code, output = finish(launch(empty, "audit"))
    assert code == 1
    said = r"CommandError: The database lacks \d+ migrations: run manage\.py prepare first\.\n"
    assert re.fullmatch(said, output)


@pytest.mark.long
def test_a_database_of_a_newer_version_is_left_alone(empty: str) -> None:
    assert finish(launch(empty))[0] == 0
    with psycopg.connect(empty, autocommit=True) as db:
        db.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('clusterstate', '9999_of_tomorrow', now())"
        )
    code, output = finish(launch(empty))
    assert code == 1
    assert output.strip() == (
        "CommandError: This database was prepared by a newer version of Stowage, which made"
        " clusterstate.9999_of_tomorrow: start that version, or restore a backup made by this one."
    )


def test_a_server_that_is_not_there_is_named(servers: dict[str, str]) -> None:
    code, output = finish(launch("postgresql://nobody@/none?host=/nowhere"))
    assert code == 1
    assert output.startswith("CommandError: DATABASE_URL: cannot connect: ")


def test_an_older_server_is_refused() -> None:
    preparation.require_version(180000, "18.0")
    preparation.require_version(190001, "19.1")
    with pytest.raises(CommandError, match=r"^DATABASE_URL leads to PostgreSQL 17\.6; Stowage"):
        preparation.require_version(170006, "17.6")


def test_a_copy_of_a_disk_that_was_put_back_gets_a_new_history(empty: str) -> None:
    assert finish(launch(empty))[0] == 0
    question = "SELECT uid, first_revision, trimmed_revision FROM history"
    with psycopg.connect(empty, autocommit=True) as db:
        before = db.execute(question).fetchone()
        assert finish(launch(empty))[0] == 0
        assert db.execute(question).fetchone() == before
        code, output = finish(launch(empty, "prepare", "--new-history"))
        assert code == 0
        uid, first, trimmed = db.execute(question).fetchone()
        (last,) = db.execute("SELECT last_value FROM change_revision").fetchone()
    assert uid != before[0]
    assert f"a new history begins at revision {first}" in output
    assert first == trimmed <= last
    assert first > 1 << 32
