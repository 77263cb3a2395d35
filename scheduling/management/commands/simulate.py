"""`manage.py simulate`: where would these pods go? Nothing is stored and no server is asked.

Files hold `Simulation` documents, or plain objects: then pods without `spec.nodeName` are placed
among the rest, in order, and a `KubeSchedulerConfiguration` says how. With `--jsonl` every line of
standard input is a `Simulation` and every line of standard output its answer.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.objects import reading
from clusterstate.objects.errors import BadRequest, StatusError
from clusterstate.objects.meta import Manifest
from scheduling import simulation

_CONFIGURATIONS = frozenset({"KubeSchedulerConfiguration", "Policy"})


# A person's own files: a cluster's dump may be large.
_MAX_BYTES, _MAX_VALUES = 1 << 30, 100_000_000


class Command(BaseCommand):
    """Simulates documents from files, or from standard input line by line."""

    help = "Say where pods would go, and why, without storing anything."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("files", nargs="*", metavar="FILE", help="YAML or JSON; - is stdin")
        parser.add_argument(
            "-o", "--output", choices=("table", "json"), default="table", help="how to answer"
        )
        parser.add_argument(
            "--jsonl",
            action="store_true",
            help="read one Simulation a line from standard input, write one answer a line",
        )
        parser.add_argument(
            "--tie-break",
            choices=("random", "first"),
            default="random",
            help="which of equally good nodes plain pods get (default: %(default)s)",
        )
        parser.add_argument("--seed", type=int, default=0, help="for random ties")
        parser.add_argument(
            "--explain",
            choices=("none", "summary", "full"),
            default="summary",
            help="how much -o json prints about plain pods (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Simulate."""
        if options["jsonl"]:
            if options["files"]:
                raise CommandError("--jsonl reads standard input; name no files.")
            stream(sys.stdin.buffer, sys.stdout.buffer)
            return
        if not options["files"]:
            raise CommandError("Name at least one file, or - for standard input.")
        documents = list(
            simulations(
                (document for name in options["files"] for document in _documents(name)),
                tieBreak=options["tie_break"],
                seed=options["seed"],
                explain=options["explain"],
            )
        )
        if not documents:
            raise CommandError("The files hold neither pods nor anything else to simulate.")
        for document in documents:
            try:
                answer = answer_to(document)
            except StatusError as error:
                raise CommandError(_listed(error)) from error
            except OperationalError as error:
                text = " ".join(str(error).split())
                raise CommandError(f"The live world needs the database: {text}") from error
            if options["output"] == "json":
                text = msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
                self.stdout.write(text)
            else:
                self.stdout.write(table(answer))


def answer_to(document: object) -> Manifest:
    """Return the answer to a document; one that asks for the live world queries it.

    Raises:
        Invalid: with every wrong field.
    """
    found = simulation.read(document, default_base="empty")
    if found.live:
        from scheduling.answers import advisor

        answer: Manifest = advisor.ask("simulation", document)
        return answer
    return simulation.run(found, simulation.Base())


def stream(lines: BinaryIO, answers: BinaryIO) -> None:
    """Answer every line at once; what is wrong with one is its answer and ends nothing."""
    encode = msgspec.json.encode
    for line in lines:
        if not line.strip():
            continue
        answers.write(encode(_answer_line(line)) + b"\n")
        answers.flush()


def _answer_line(line: bytes) -> Manifest:
    try:
        found = simulation.read(_decoded(line), default_base="empty")
        if found.live:
            raise BadRequest('spec.base: "live" needs the server; here worlds are "empty"')
        return simulation.run(found, simulation.Base())
    except StatusError as error:
        return simulation.refused(error)
    except Exception as error:  # noqa: BLE001  # one line must not end the stream
        text = f"{type(error).__name__}: {error}"
        return simulation.refused(StatusError(f"the simulation failed: {text}"))


def _decoded(line: bytes) -> object:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the line is not valid JSON: {error}") from error
    except RecursionError:
        raise BadRequest("the line is nested too deeply") from None


def _documents(name: str) -> Iterator[Any]:
    """Return the documents of a file; JSON is YAML too, but YAML reads it slowly."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    try:
        if raw.lstrip()[:1] in (b"{", b"["):
            try:
                yield msgspec.json.decode(raw)
                return
            except msgspec.DecodeError:
                pass  # several documents, or YAML in flow style
        for document in reading.read_yaml_documents(
            raw, max_bytes=_MAX_BYTES, max_values=_MAX_VALUES
        ):
            if document is not None:
                yield document
    except (StatusError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{name}: {' '.join(str(error).split())}") from error


def simulations(documents: Iterable[Any], **spec: object) -> Iterator[Manifest]:
    """Return the ``Simulation`` documents, and one made of all plain objects, if there are any."""
    objects: list[Any] = []
    pods: list[Any] = []
    configuration: Any = None
    for document in _single(documents):
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind == "Simulation":
            yield document
        elif kind in _CONFIGURATIONS:
            configuration = document
        elif kind == "Pod" and not _is_placed(document):
            pods.append(document)
        else:
            objects.append(document)
    if objects or pods:
        whole = {**spec, "base": "empty", "objects": objects, "pods": pods}
        if configuration is not None:
            whole["configuration"] = configuration
        yield {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": whole}


def _is_placed(pod: Manifest) -> bool:
    spec = pod.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))


def _single(documents: Iterable[Any]) -> Iterator[Any]:
    """Return the documents, those of lists one by one; a PodList need not repeat the kind."""
    for document in documents:
        if isinstance(document, list):
            yield from _single(document)
            continue
        kind = str(document.get("kind") or "") if isinstance(document, dict) else ""
        if not kind.endswith("List") or not isinstance(document.get("items"), list):
            yield document
            continue
        item_kind = {"kind": kind.removesuffix("List")} if kind != "List" else {}
        items = document["items"]
        yield from _single([{**item_kind, **i} if isinstance(i, dict) else i for i in items])


def _listed(error: StatusError) -> str:
    causes = simulation.refused(error)["status"]["errors"]
    lines = [f"  {cause['message']}" for cause in causes]
    return "\n".join(["The simulation is invalid:", *lines]) if lines else error.message


def table(answer: Manifest) -> str:
    """Return the results as a table for people: pod, status, node, total, why."""
    rows = [("POD", "STATUS", "NODE", "TOTAL", "WHY")]
    for result in answer["status"]["results"]:
        why = result["message"]
        best = result.get("best") or []
        if result["status"] == "scheduled":
            count = len(result.get("feasible") or [])
            why = f"{count} of {count + len(result.get('infeasible') or {})} nodes fit"
            if len(best) > 1:
                why += f", {len(best)} equally well"
        elif (preemption := result.get("preemption") or {}).get("nominatedNode"):
            why += f" Would make room on {preemption['nominatedNode']}: "
            why += ", ".join(preemption["victims"])
        total = str(result["total"]) if len(result.get("feasible") or []) > 1 else "-"
        rows.append((result["pod"], result["status"], result["nodeName"] or "-", total, why))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("   ".join([*cells, row[4]]).rstrip())
    warnings = answer["status"].get("warnings") or []
    return "\n".join([*lines, *(f"Warning: {text}" for text in warnings)])
