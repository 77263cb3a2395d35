"""A prepared database that services of the tests begin with: made once in a run, by who needs it.

A first start makes PostgreSQL's cluster and forty migrations, as much CPU as all of a later start.
What that first start does is for `tests/platform/test_up.py`; the others get a copy of its data,
as `manage.py prepare` leaves it, and make everything else themselves: keys, users, tokens.

The workers of a parallel run have a database each, on one server. The first that needs one makes
it, and the others copy it.
"""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db.backends.postgresql.creation import DatabaseCreation

from clusterstate.local import embedded, places

ROOT = Path(__file__).resolve().parent.parent
PLACE = "TEST_PREPARED"
"""Names the folder of this run; without it (the tests use given servers) nothing is prepared."""


def begin_with(state: Path) -> None:
    """Put a copy of the prepared data into a state directory that has none yet."""
    if PLACE in os.environ and not (state / "postgres").exists():
        places.make_state(state)
        copy(state / "postgres")


def copy(data: Path) -> bool:
    """Make a copy of the prepared data, or return false: nothing is prepared here."""
    place = os.environ.get(PLACE)
    if place is None:
        return False
    made = Path(place) / "made"
    with _one_at_a_time("lock"):  # of the workers of a run one makes it
        if not made.exists():
            _make(Path(place) / "new")
            (Path(place) / "new").rename(made)
    # Under another name first: a copy that is not complete is never taken for a cluster.
    unfinished = data.with_name(f"postgres.new-{os.getpid()}")
    subprocess.run(["cp", "-a", str(made / "postgres"), str(unfinished)], check=True)
    unfinished.rename(data)
    return True


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Let the workers of this run through one after the other."""
    with (Path(os.environ[PLACE]) / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(state: Path) -> None:
    server = embedded.Postgres(state, durable=False)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STOWAGE_") and name != "REDIS_URL"
    }
    environment |= {"STOWAGE_STATE": str(state), "DATABASE_URL": server.url()}
    with (state.parent / "log").open("wb") as log:
        process = server.spawn(log.fileno())
        try:
            embedded.wait_ready(server, process)
            subprocess.run(
                [sys.executable, "manage.py", "prepare", "--verbosity", "0"],
                cwd=ROOT, env=environment, stdout=log, stderr=log, check=True,
            )  # fmt: skip
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


_TEMPLATE = "test_template"
_create_test_db = DatabaseCreation.create_test_db


def _create(creation: DatabaseCreation, *given: Any, **named: Any) -> str:
    """Create a worker's test database as Django does, with the migrations of the first one's."""
    if PLACE not in os.environ or "PYTEST_XDIST_WORKER" not in os.environ:
        return _create_test_db(creation, *given, **named)
    made = Path(os.environ[PLACE]) / _TEMPLATE
    with _one_at_a_time(f"{_TEMPLATE}.lock"):
        if not made.exists():
            name = _create_test_db(creation, *given, **named)
            creation.connection.close()
            with creation._nodb_cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {_TEMPLATE} TEMPLATE {name}")
            made.touch()
            return name
    creation.connection.settings_dict["TEST"]["TEMPLATE"] = _TEMPLATE
    return _create_test_db(creation, *given, **named)


def install() -> None:
    """Let the workers of a parallel run copy one database."""
    DatabaseCreation.create_test_db = _create  # type: ignore[method-assign]
