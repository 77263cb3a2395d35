"""What a run of the tests has started ends with it, also when the run is killed.

Each process of a run (xdist has several) marks its environment, which everything that it starts
inherits: supervisors, PostgreSQL, Redis, and what these start. A watcher beside it waits on a pipe
that only that process holds open. The pipe ends with the process, by whatever signal; then the
watcher ends all that carry the mark. After an ordinary end there are none.

    python tests/leftovers.py MARK    what `watch` starts; reads its standard input to the end
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

MARK = "STARTED_BY_TESTS"
_QUIETLY_SECONDS = 5.0
_LONGEST_SECONDS = 60.0
_kept: "list[subprocess.Popen[bytes]]" = []


def watch() -> None:
    """Mark this process's environment, and have a watcher wait for its end."""
    os.environ[MARK] = mark = uuid.uuid4().hex
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    _kept.append(
        subprocess.Popen(
            [sys.executable, "-I", __file__, mark], stdin=subprocess.PIPE, env=environment,
            start_new_session=True,  # Ctrl-C is for the tests
        )
    )  # fmt: skip


def marked(mark: str) -> list[int]:
    """Return the processes that were started with a mark; a zombie's environment is empty."""
    wanted = f"{MARK}={mark}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def _end(pid: int, *, quietly: bool) -> None:
    with contextlib.suppress(OSError):
        # PostgreSQL gives its shared memory back when it is asked; the others have nothing to do.
        is_postgres = (Path("/proc") / str(pid) / "comm").read_text().startswith("postgres")
        os.kill(pid, signal.SIGQUIT if quietly and is_postgres else signal.SIGKILL)
        os.kill(pid, signal.SIGCONT)


def main() -> None:
    """Wait for the end of standard input, then end what carries the mark."""
    (mark,) = sys.argv[1:]
    while os.read(0, 1):
        pass
    began = time.monotonic()
    while (left := marked(mark)) and time.monotonic() - began < _LONGEST_SECONDS:
        for pid in left:
            _end(pid, quietly=time.monotonic() - began < _QUIETLY_SECONDS)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
