"""`manage.py headroom`: how many more pods fit into the live cluster, and what blocks the next one.

The pods are those in the given files, or the shapes in STOWAGE_HEADROOM_SHAPES.
"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.text_table import columns
from clusterstate.objects.wire import reading
from scheduling.answers import advisor
from scheduling.management import files


class Command(BaseCommand):
    """Prints how many more pods fit."""

    help = "Say how many more pods fit into the live cluster, and what blocks the next one."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("files", nargs="*", metavar="FILE", help="YAML or JSON with Pods")
        parser.add_argument(
            "-o", "--output", choices=("table", "json"), default="table", help="output format"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how many more pods like those in the files, or in the settings, fit now."""
        pods = [pod for name in options["files"] for pod in _pods(Path(name))]
        if options["files"] and not pods:
            raise CommandError("The files hold no Pod.")
        try:
            items = [_of_pod(pod) for pod in pods] if pods else advisor.ask("room", {})["items"]
        except StatusError as error:
            raise CommandError(error.message) from error
        except OperationalError as error:
            raise CommandError(f"The database does not answer: {error}") from error
        if options["output"] == "json":
            text = msgspec.json.format(msgspec.json.encode(items), indent=2).decode()
            self.stdout.write(text)
            return
        self.stdout.write(table(items))


def _pods(path: Path) -> list[Manifest]:
    try:
        raw = files.contents(str(path), most=reading.MAX_YAML_BYTES)
        documents = list(reading.read_yaml_documents(raw))
    except files.FileError as error:
        raise CommandError(str(error)) from error
    except (StatusError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {' '.join(str(error).split())}") from error
    return [one for one in documents if isinstance(one, dict) and one.get("kind") == "Pod"]


def _of_pod(pod: Manifest) -> Manifest:
    answer: Manifest = advisor.ask("headroom", pod)
    meta = pod.get("metadata") or {}
    nodes = len(answer["status"].get("nodes") or {})
    status = {**answer["status"], "nodeCount": nodes}
    return {**answer, "metadata": {"name": meta.get("name") or ""}, "status": status}


def table(items: list[Manifest]) -> str:
    """Return headrooms as a text table."""
    rows = [["SHAPE", "FITS", "NODES", "NEXT BLOCKED BY"]]
    for item in items:
        status = item["status"]
        blockers = [f"{one['reason']} ({one['nodes']})" for one in status["blockers"]]
        fits = f"{status['fits']}+" if status["limited"] else str(status["fits"])
        rows.append(
            [item["metadata"]["name"], fits, str(status["nodeCount"]), "; ".join(blockers) or "-"]
        )
    return "\n".join(columns(rows))
