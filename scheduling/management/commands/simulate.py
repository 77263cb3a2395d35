"""`manage.py simulate`: where would these pods go? Nothing is stored and no server is called.

Files and folders contain `Simulation` or `Scenario` documents, or plain objects, such as the output
of `kubectl get -o yaml`, a chart's manifests, or an export of kube-scheduler-simulator. Of plain
objects, pods without `spec.nodeName` and missing pods of workloads are placed, in order, under the
files' `KubeSchedulerConfiguration`, if there is one. With `--jsonl` every line of standard input is
a `Simulation` and every line of standard output its answer.
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.objects.values.errors import BadRequest, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.text_table import columns
from clusterstate.processes import collector
from scheduling import simulation
from scheduling.management import files, runs, workloads
from scheduling.scenarios import document as scenarios
from scheduling.scenarios.manifests import is_on_a_node

_CONFIGURATIONS = frozenset({"KubeSchedulerConfiguration", "Policy"})


class Command(BaseCommand):
    """Simulates documents from files, or from standard input line by line."""

    help = "Say on which nodes pods would be placed, and why, without storing anything."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "files", nargs="*", metavar="FILE", help="YAML or JSON, or folders of it; - is stdin"
        )
        parser.add_argument(
            "-o",
            "--output",
            choices=("table", "json", "jsonl"),
            default="table",
            help="output format",
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
            help="choose a random one of equally good nodes, or the first (default: %(default)s)",
        )
        parser.add_argument("--seed", type=int, default=0, help="seed of random choices")
        parser.add_argument(
            "--explain",
            choices=("none", "summary", "full"),
            help="how much -o json explains each decision (default: summary)",
        )
        parser.add_argument(
            "--preemption",
            choices=("describe", "perform"),
            default="perform",
            help="whether preempted pods leave, or are only named (default: %(default)s)",
        )
        runs.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Simulate the documents, and print the results."""
        if options["jsonl"]:
            if options["files"]:
                raise CommandError("--jsonl reads standard input; name no files.")
            stream(sys.stdin.buffer, sys.stdout.buffer)
            return
        if not options["files"]:
            raise CommandError("Name at least one file, or - for standard input.")
        left_out: Counter[str] = Counter()
        try:
            read = list(
                files.of_known_kinds(
                    files.single(one for name in options["files"] for one in files.documents(name)),
                    left_out,
                )
            )
        except files.FileError as error:
            raise CommandError(str(error)) from error
        collector.calm()
        if text := files.left_out_text(left_out):
            self.stderr.write(text)
        script_documents = [one for one in read if _kind(one) == scenarios.KIND]
        others = self._placed([one for one in read if _kind(one) != scenarios.KIND])
        if script_documents:
            self._run_scenarios(script_documents, others, options)
            return
        if options["policy"] or options["report"]:
            raise CommandError("--policy and --report are for Scenario documents.")
        explain = options["explain"] or ("none" if options["output"] == "table" else "summary")
        found = list(
            simulations(
                others,
                tieBreak=options["tie_break"],
                seed=options["seed"],
                explain=explain,
                preemption=options["preemption"],
            )
        )
        if not found:
            raise CommandError("The files hold neither pods nor anything else to simulate.")
        for document in found:
            self._answer(document, options["output"])

    def _placed(self, documents: list[Any]) -> list[Any]:
        """Return documents with the pods of their workloads; print what is left out to stderr."""
        found = workloads.ExpandedDocuments(list(map(files.of_placement, documents)))
        for note in found.notes:
            self.stderr.write(note)
        return found.documents

    def _answer(self, document: Manifest, output: str) -> None:
        try:
            answer = answer_to(document)
        except StatusError as error:
            raise CommandError(_listed(error)) from error
        except OperationalError as error:
            text = " ".join(str(error).split())
            raise CommandError(
                f"To read the live cluster, the database is needed: {text}"
            ) from error
        if output == "json":
            self.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        elif output == "jsonl":
            for result in answer["status"]["results"]:
                self.stdout.write(msgspec.json.encode(result).decode())
        else:
            self.stdout.write(table(answer))

    def _run_scenarios(
        self, documents: list[Manifest], others: list[Manifest], options: dict[str, Any]
    ) -> None:
        """Run a scenario; plain objects beside it are added to its world at the beginning."""
        if len(documents) > 1:
            raise CommandError("Name one Scenario at a time.")
        (document,) = documents
        if simulated := [one for one in others if _kind(one) == "Simulation"]:
            raise CommandError(f"{len(simulated)} Simulation documents stand beside a Scenario.")
        configurations = [one for one in others if _kind(one) in _CONFIGURATIONS]
        objects = [one for one in others if _kind(one) not in _CONFIGURATIONS]
        spec = document.get("spec")
        if isinstance(spec, dict):
            objects_ = spec.get("objects")
            own = list(files.single(objects_)) if isinstance(objects_, list) else []
            whole = {**spec, "objects": [*objects, *self._placed(own)]}
            if objects_ is not None and not isinstance(objects_, list):
                whole["objects"] = objects_
            if configurations and "configuration" not in spec:
                whole["configuration"] = configurations[-1]
            document = {**document, "spec": whole}
        try:
            script = scenarios.read(document)
        except StatusError as error:
            raise CommandError(_listed(error, "scenario")) from error
        runs.run(script, options, self.stdout, self.stderr)


def _kind(document: object) -> object:
    return document.get("kind") if isinstance(document, dict) else None


def answer_to(document: object) -> Manifest:
    """Return the answer to a document; for the live world an advisor computes it.

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
    """Write an answer for every line at once; an invalid line gets an error as its answer."""
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
            raise BadRequest('spec.base: "live" needs the server; with --jsonl use "empty"')
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


def simulations(documents: Iterable[Any], **spec: object) -> Iterator[Manifest]:
    """Yield the ``Simulation`` documents, and one made of all plain objects, if there are any."""
    objects: list[Any] = []
    pods: list[Any] = []
    configuration: Any = None
    for document in documents:
        kind = _kind(document)
        if kind == "Simulation":
            yield document
        elif kind in _CONFIGURATIONS:
            configuration = document
        elif kind == "Pod" and not is_on_a_node(document):
            pods.append(document)
        else:
            objects.append(document)
    if objects or pods:
        whole = {**spec, "base": "empty", "objects": objects, "pods": pods}
        if configuration is not None:
            whole["configuration"] = configuration
        yield {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": whole}


def _listed(error: StatusError, what: str = "simulation") -> str:
    causes = simulation.refused(error)["status"]["errors"]
    lines = [f"  {cause['message']}" for cause in causes]
    return "\n".join([f"The {what} is invalid:", *lines]) if lines else error.message


def table(answer: Manifest) -> str:
    """Return the results as a text table: pod, status, node, total, reason."""
    rows = [("POD", "STATUS", "NODE", "TOTAL", "WHY")]
    for result in answer["status"]["results"]:
        why = result["message"]
        feasible, evaluated, best = _counts(result)
        preemption = result.get("preemption") or {}
        if result["status"] == "scheduled":
            why = f"{feasible} of {evaluated} nodes fit"
            if best > 1:
                why += f", {best} equally well"
            if preemption.get("victims"):
                why += f"; took the place of {', '.join(preemption['victims'])}"
            if "preemptedBy" in result:
                why += f"; left for {result['preemptedBy']}"
        elif preemption.get("nominatedNode"):
            why += f" Would make room on {preemption['nominatedNode']}: "
            why += ", ".join(preemption["victims"])
        total = str(result["total"]) if feasible > 1 and "total" in result else "-"
        rows.append((result["pod"], result["status"], result["nodeName"] or "-", total, why))
    lines = columns(rows)
    if (evictions := answer["status"].get("evictions")) and len(evictions) > 1:
        lines.append(f"{len(evictions)} pods left their nodes for others.")
    warnings = answer["status"].get("warnings") or []
    return "\n".join([*lines, *(f"Warning: {text}" for text in warnings)])


def _counts(result: Manifest) -> tuple[int, int, int]:
    """Return how many nodes fit, how many there are, and how many fit best."""
    if (nodes := result.get("nodes")) is not None:
        return nodes["feasible"], nodes["known"], nodes["best"]
    feasible = len(result.get("feasible") or [])
    return feasible, feasible + len(result.get("infeasible") or {}), len(result.get("best") or [])
