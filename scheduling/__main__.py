"""`python -m scheduling worker ...` and `python -m scheduling beat`: the processes of Celery.

They run the application of ``scheduling.celery`` with the same classes as ``celery -A scheduling``.
That command first loads every command that Celery has, with a shell and its line editor: a quarter
of a second in each of six processes, at every start.
"""

import argparse
import os
import socket
import sys

from clusterstate.environment import BadSetting
from clusterstate.processes import collector


def main() -> None:
    """Run a worker or beat until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m scheduling", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    worker = kinds.add_parser("worker", help="run a queue's tasks, and the loop of its process")
    worker.add_argument("--queue", required=True, help="the queue whose tasks it runs")
    worker.add_argument("--name", required=True, help="its name: NAME@HOST")
    worker.add_argument("--threads", type=int, help="the most tasks at a time (default: one)")
    kinds.add_parser("beat", help="send the periodic tasks to their queues")
    chosen = parser.parse_args()
    collector.seldom()
    os.environ["CELERY_SKIP_CHECKS"] = "true"  # Django's system checks: of `manage.py check`
    try:
        if chosen.kind == "beat":
            _beat()
        else:
            _worker(chosen.queue, chosen.name, chosen.threads)
    except BadSetting as error:
        sys.exit(f"error: {error}")


def _worker(queue: str, name: str, threads: int | None) -> None:
    from scheduling.celery import app

    process = app.Worker(
        hostname=f"{name}@{socket.gethostname()}",
        queues=[queue],
        pool_cls="threads" if threads else "solo",
        concurrency=threads or 1,
        quiet=True,
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
    )
    process.start()
    sys.exit(process.exitcode)


def _beat() -> None:
    from scheduling.celery import app

    app.Beat(quiet=True).run()


if __name__ == "__main__":
    main()
