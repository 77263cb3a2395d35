"""A prepared database that services of the tests begin with: made once in a run, by who needs it.

A first start makes PostgreSQL's cluster and forty migrations, as much CPU as all of a later start.
What that first start does is for `tests/platform/test_up.py`; the others get a copy of its data,
as `manage.py prepare` leaves it, and make everything else themselves: keys, users, tokens.
"""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

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
    with (Path(place) / "lock").open("w") as lock:  # of the workers of a run one makes it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(Path(place) / "new")
            (Path(place) / "new").rename(made)
    # Under another name first: a copy that is not complete is never taken for a cluster.
    unfinished = data.with_name(f"postgres.new-{os.getpid()}")
    subprocess.run(["cp", "-a", str(made / "postgres"), str(unfinished)], check=True)
    unfinished.rename(data)
    return True


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
