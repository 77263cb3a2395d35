"""`manage.py prepare`: by several at once, and on databases that it must leave alone."""

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import get_commands
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from clusterstate.local import places, preparation
from clusterstate.management.commands import prepare
from tests.forms import few

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def copy_of(template: str) -> Iterator[tuple[str, str]]:
    """Name and URL of a database with what another one has, to which nobody is connected."""
    name = f"prepare_{uuid.uuid4().hex[:12]}"
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield name, url.replace(f"/{places.DATABASE}?", f"/{name}?")
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty(servers: dict[str, str]) -> Iterator[str]:
    """The URL of a database without tables."""
    with copy_of("template1") as (_, url):
        yield url


Done = list[tuple[int, str]]
"""Of each process the exit code and what it said."""


@pytest.fixture(scope="module")
def by_three() -> Iterator[tuple[str, Done]]:
    """A database that three processes prepared at once, by name, and how they ended."""
    with copy_of("template1") as (name, url):
        yield name, [finish(process) for process in [launch(url) for _ in range(3)]]


@pytest.fixture
def prepared(servers: dict[str, str], by_three: tuple[str, Done]) -> Iterator[str]:
    """The URL of a database that is prepared."""
    with copy_of(by_three[0]) as (_, url):
        yield url


def launch(url: str, *arguments: str, state: Path | None = None) -> "subprocess.Popen[str]":
    environment = {**os.environ, "DATABASE_URL": url, "STOWAGE_PROCESS": "manage"}
    if state is not None:
        environment["STOWAGE_STATE"] = str(state)
    return subprocess.Popen(
        [sys.executable, "manage.py", *(arguments or ("prepare",))], cwd=ROOT, text=True,
        env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def test_several_at_once_prepare_an_empty_database(
    prepared: str, by_three: tuple[str, Done]
) -> None:
    _, done = by_three
    assert [code for code, _ in done] == [0, 0, 0], done
    with psycopg.connect(prepared) as db:
        names = db.execute("SELECT name FROM namespace ORDER BY name").fetchall()
    assert names == [("default",), ("kube-node-lease",), ("kube-public",), ("kube-system",)]
    assert sum("created default" in output for _, output in done) <= 1


def test_what_follows_the_migrations_is_done_though_none_is_left(prepared: str) -> None:
    """A process may be killed between the last migration and the rows that come after it."""
    questions = (
        "SELECT app_label, model FROM django_content_type ORDER BY 1, 2",
        "SELECT codename FROM auth_permission ORDER BY 1",
        "SELECT name FROM namespace ORDER BY name",
    )
    with psycopg.connect(prepared, autocommit=True) as db:
        before = [db.execute(question).fetchall() for question in questions]
        db.execute("DELETE FROM auth_permission; DELETE FROM django_content_type")
        db.execute("DELETE FROM namespace WHERE name = 'kube-public'")
        assert finish(launch(prepared))[0] == 0
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


def test_who_stores_a_class_while_a_database_is_upgraded_is_not_waited_for_in_a_circle(
    prepared: str,
) -> None:
    """It may wait for a bind, which waits for the migration if that has changed ``binder``."""
    code, output = finish(launch(prepared, "migrate", "clusterstate", "0056"))
    assert code == 0, output
    with psycopg.connect(prepared) as db, psycopg.connect(prepared, autocommit=True) as other:
        db.execute("SET lock_timeout = '5s'")
        db.execute("LOCK TABLE scheduling_class IN ROW EXCLUSIVE MODE")
        process = launch(prepared)
        waits = (
            "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'scheduling_class'::regclass"
        )
        while process.poll() is None and other.execute(waits).fetchone() is None:
            time.sleep(0.05)
        assert len(db.execute("SELECT id FROM binder FOR UPDATE").fetchall()) == 3
        db.commit()
        code, output = finish(process)
        assert code == 0, output
        assert other.execute("SELECT id FROM binder ORDER BY 1").fetchall() == [(1,), (3,)]


def test_a_database_without_tables_is_told_to_be_prepared(empty: str) -> None:
    code, output = finish(launch(empty, "audit"))
    assert code == 1
    said = r"CommandError: The database lacks \d+ migrations: run manage\.py prepare first\.\n"
    assert re.fullmatch(said, output)


def test_a_database_of_a_newer_version_is_left_alone(empty: str) -> None:
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    with psycopg.connect(empty, autocommit=True) as db:
        db.execute(
            "CREATE TABLE django_migrations (id bigint GENERATED BY DEFAULT AS IDENTITY,"
            " app varchar(255), name varchar(255), applied timestamptz)"
        )
        db.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            " VALUES ('clusterstate', '9999_of_tomorrow', now())"
        )
        code, output = finish(launch(empty))
        assert db.execute(tables).fetchall() == [("django_migrations",)]
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


def test_a_server_that_does_not_know_our_settings_is_refused_with_the_same_sentence(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL 15 and 16 end a connection that asks for ``transaction_timeout``."""
    other = connection.copy()
    options = other.settings_dict["OPTIONS"]
    asked = f"{options.get('options', '')} -c nonesuch_timeout=1"
    other.settings_dict = {**other.settings_dict, "OPTIONS": {**options, "options": asked}}
    monkeypatch.setattr(preparation, "connection", other)
    with pytest.raises(CommandError, match=r"cannot connect: .*nonesuch_timeout"):
        preparation.require_server()
    monkeypatch.setattr(preparation, "POSTGRES_VERSION", 99)
    with pytest.raises(CommandError, match=r"^DATABASE_URL leads to PostgreSQL 18.*needs 99"):
        preparation.require_server()


def test_a_copy_of_a_disk_that_was_put_back_gets_a_new_history(prepared: str) -> None:
    assert finish(launch(prepared))[0] == 0  # a copy of a database begins a history as well
    question = "SELECT uid, first_revision, trimmed_revision FROM history"
    with psycopg.connect(prepared, autocommit=True) as db:
        before = db.execute(question).fetchone()
        assert finish(launch(prepared))[0] == 0
        assert db.execute(question).fetchone() == before
        code, output = finish(launch(prepared, "prepare", "--new-history"))
        assert code == 0
        uid, first, trimmed = db.execute(question).fetchone()
        (last,) = db.execute("SELECT last_value FROM change_revision").fetchone()
    assert uid != before[0]
    assert f"a new history begins at revision {first}" in output
    assert first == trimmed <= last
    assert first > 1 << 32


NEED_THE_DATABASE = {
    "createtoken": ["admin"],
    "createsuperuser": ["--noinput", "--username", "a", "--email", "a@example.com"],
    "headroom": [],
    "audit": [],
    "auditlog": [],
    "backup": ["{tmp}/backup"],
    "canary": ["list"],
    "changepassword": ["admin"],
    "decisions": [],
    "listtokens": [],
    "rebalance": [],
    "replay": ["--hours", "1"],
    "revoketoken": ["1"],
    "rotatetoken": [],
    "signingkeys": [],
    "waitingtimes": [],
}
OTHERS = {
    "hollow-nodes", "kubeconfig", "pack", "prepare", "reload", "reset", "restore", "simulate", "up",
}  # fmt: skip


def test_every_command_is_known_here() -> None:
    """A new command says in one of the two tables whether it needs a database with its tables."""
    ours = {
        name
        for name, app in get_commands().items()
        if isinstance(app, str) and app in ("clusterstate", "scheduling")
    }
    assert ours == {*NEED_THE_DATABASE, *OTHERS} - {"changepassword", "createsuperuser"}


@pytest.mark.parametrize("command", few(NEED_THE_DATABASE, 2))
@pytest.mark.parametrize("database", ["away", "empty"])
def test_a_command_says_in_a_sentence_why_it_cannot_work(
    command: str, database: str, empty: str, tmp_path: Path
) -> None:
    url = empty if database == "empty" else "postgresql://nobody@127.0.0.1:1/nothing"
    (tmp_path / "token").write_text("t\n")
    arguments = [one.format(tmp=tmp_path) for one in NEED_THE_DATABASE[command]]
    code, output = finish(launch(url, command, *arguments, state=tmp_path))
    assert code not in (0, None), output
    assert "Traceback" not in output
    wanted = {
        "empty": r"run manage\.py prepare first\.$",
        "away": r"(cannot connect|needs? the database|database does not answer): .",
    }
    assert re.search(wanted[database], output.strip()), output


@pytest.mark.django_db(transaction=True)
def test_an_embedded_server_that_refuses_a_session_is_not_said_to_be_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.DATABASE_FOLDER = tmp_path
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "NAME", "nothing-there")
    reason = preparation.what_is_wrong()
    monkeypatch.undo()
    connection.close()
    assert reason is not None
    assert reason.endswith('does not let this command in: database "nothing-there" does not exist.')
