"""One process of the service that a test drives by lines: `python -m tests.clusterstate.part`.

It reads a JSON list (a command and its arguments) per line and answers with one JSON value; an
exception comes back as ``{"error": its class, "message": its text}``.
"""

import json
import os
import random
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import django

ROOT = Path(__file__).resolve().parents[2]


class Part:
    """The process, from the test's side."""

    def __init__(self, database_url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.clusterstate.part"], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "DATABASE_URL": database_url, "STOWAGE_PROCESS": "worker",
                 "DJANGO_SETTINGS_MODULE": "clusterstate.settings"},
        )  # fmt: skip

    def __call__(self, *command: Any) -> Any:
        """Return what the process answers."""
        self.send(*command)
        return self.answer()

    def send(self, *command: Any) -> None:
        """Let the process begin."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to what was sent."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


def main() -> None:
    django.setup()
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection, transaction

    from clusterstate.actions import objects
    from clusterstate.change_log import changes
    from clusterstate.database import sql
    from clusterstate.queries.objects.lists import list_page
    from tests.clusterstate.support import NOW, pod
    from tests.creating import create_pod

    def prepare() -> None:
        call_command("prepare", verbosity=0)

    def migrate(*name: str) -> None:
        call_command("migrate", "clusterstate", *name, verbosity=0)

    def create(name: str) -> int:
        return create_pod(pod(name), now=NOW).revision

    def undo(count: int) -> None:
        """Take numbers in transactions that are rolled back."""
        for number in range(count):
            with transaction.atomic():
                create(f"undone-{number}")
                transaction.set_rollback(True)

    def create_slowly(count: int) -> list[str]:
        """Create pods in transactions that stay open for a moment; return their names."""
        names, chance = [], random.Random(os.getpid())
        for _ in range(count):
            with transaction.atomic():
                names.append(f"p-{uuid.uuid4()}")
                create(names[-1])
                time.sleep(chance.random() * 0.005)
        return names

    def undo_classes(count: int) -> None:
        """Write the catalogue in transactions that are rolled back."""
        for number in range(count):
            with transaction.atomic():
                manifest = {"metadata": {"name": f"undone-{number}"}, "handler": "x"}
                objects.create("RuntimeClass", "", manifest, now=NOW)
                transaction.set_rollback(True)

    def since(cursor: int) -> list[str]:
        found: list[str] = []
        while True:
            read = changes.read_since(cursor, kinds=["Pod"])
            found += [change.name for change in read.items]
            cursor = read.cursor
            if not read.more:
                return found

    def read(cursor: int) -> tuple[list[str], int]:
        """Return the names of what was created after the cursor, and the next cursor."""
        found = changes.read_since(cursor, kinds=["Pod"], limit=100_000)
        return [change.name for change in found.items], found.cursor

    def listed(token: str, limit: int) -> list[Any]:
        page = list_page("Pod", limit=limit, continue_token=token)
        return [len(page.items), page.revision, page.continue_token]

    def run(statement: str) -> Any:
        return sql.fetch(statement)

    def controllers() -> None:
        """Make a pass of the controllers that look at nodes, as another worker does."""
        from scheduling.controllers.endpoints import follower as endpoints
        from scheduling.controllers.workloads import follower as workloads

        workloads.follow(NOW)
        endpoints.follow(NOW)

    commands = {
        "controllers": controllers, "create": create, "create_slowly": create_slowly,
        "keep_mark": changes.keep_mark, "listed": listed, "mark": changes.watermark,
        "migrate": migrate,
        "prepare": prepare, "read": read, "since": since, "sql": run, "undo": undo,
        "undo_classes": undo_classes,
    }  # fmt: skip
    assert settings.configured
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = commands[name](*arguments)
        except Exception as error:  # noqa: BLE001 - the test judges it
            answer = {"error": type(error).__name__, "message": str(error)}
            sql.drop_dead_connection()
            if connection.connection is not None and connection.connection.broken:
                connection.close()
        sys.stdout.write(json.dumps(answer, default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
