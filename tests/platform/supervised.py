"""A supervisor over three trivial children: `python -m tests.platform.supervised FOLDER`.

Each child writes NAME.pid when it starts and a line into `stops` when it is asked to stop. While it
finds a file NAME.silent it gives no sign of life, and none from the beginning with NAME.cold; the
third child is one that resumes. SIGUSR1 has the first two replaced, and a file `restart` the first
one restarted.
"""

import signal
import subprocess
import sys
from pathlib import Path

from clusterstate.health import heartbeats
from clusterstate.local import embedded, renewal
from clusterstate.local.supervisor import Child, Stopped, Supervisor

CHILD = """
import os, pathlib, signal, sys, time
from clusterstate.health import heartbeats
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
def stop(*_):
    with (folder / "stops").open("a") as file:
        file.write(name + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("hello from", name, flush=True)
(folder / f"{name}.new").write_text(str(os.getpid()))
(folder / f"{name}.new").rename(folder / f"{name}.pid")
if not (folder / f"{name}.cold").exists():
    heartbeats.begin(folder, name)
    heartbeats.beat("loop", 30)
while True:
    if (folder / f"{name}.silent").exists():
        (folder / f"{name}.silent").unlink()
        heartbeats.beat("loop", 0.1)
        time.sleep(600)
    time.sleep(0.1)
"""


def main() -> None:
    folder = Path(sys.argv[1])
    try:
        lock = embedded.StateLock(folder)
    except embedded.AlreadyRunningError as error:
        sys.exit(str(error))
    supervisor = Supervisor(folder / "log", state=folder)

    def child(name: str, stage: int) -> Child:
        def spawn(output: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-c", CHILD, name, str(folder)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock.fileno()],
                preexec_fn=embedded.die_with_parent(signal.SIGKILL),
            )

        return Child(name=name, stage=stage, spawn=spawn, beats=True, resumes=name == "third")

    def is_warm(successor: Child) -> bool:
        assert successor.process is not None
        return successor.process.pid in heartbeats.beating(folder, "loop")

    def renew() -> None:
        chosen = [one for one in supervisor.children if one.name != "third"]
        done = renewal.renew(supervisor, chosen, is_warm, seconds=5)
        supervisor.say("all replaced" if done else "not all replaced")

    def look() -> None:
        if (folder / "restart").exists():
            (folder / "restart").unlink()
            supervisor.restart("first")

    supervisor.on_renew = renew
    supervisor.on_look = look
    try:
        for stage, name in enumerate(["first", "second", "third"]):
            supervisor.start(child(name, stage))
        supervisor.run()
    except Stopped:
        pass
    finally:
        supervisor.stop()
        lock.release()


if __name__ == "__main__":
    main()
