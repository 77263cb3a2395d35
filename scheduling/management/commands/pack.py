"""`manage.py pack`: places all pods of a cluster together.

Files and folders contain plain objects, such as the output of `kubectl get nodes,pods -A -o yaml`,
or one `Packing` document. Pods without `spec.nodeName` are placed; with `--move` running ones may
move as well, and nodes are emptied. Nothing is stored. No server is called, unless a document is
about the live world.
"""

from argparse import ArgumentParser
from collections import Counter
from typing import Any

import msgspec
import yaml
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.text_table import columns
from clusterstate.processes import collector
from scheduling import simulation
from scheduling.management import files, workloads
from scheduling.scenarios.manifests import is_on_a_node
from scheduling.simulation import improving, packing
from scheduling.simulation.node_advice_document import KIND as NODE_ADVICE
from scheduling.simulation.node_advice_document import run_node_advice

_CONFIGURATIONS = frozenset({"KubeSchedulerConfiguration", "Policy"})


class Command(BaseCommand):
    """Packs the pods in files."""

    help = "Place all pods together as well as possible; print each place and a bound."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help="YAML or JSON, or folders of it; - is stdin"
        )
        parser.add_argument(
            "-o", "--output", choices=("table", "json", "yaml"), default="table",
            help="output format",
        )  # fmt: skip
        parser.add_argument(
            "--move",
            choices=packing.MOVES,
            default=packing.NEVER,
            help="whether running pods may move, and why: so that more pods fit, also to empty"
            " nodes, so that zones are equally full, or so that fewer soft rules are unmet",
        )
        parser.add_argument(
            "--seconds", type=float, default=packing.DEFAULT_SECONDS,
            help="how long the solver may search (default: %(default)s)",
        )  # fmt: skip
        parser.add_argument(
            "--catalogue", metavar="FILE",
            help="a NodeAdvice document: say which nodes to buy and, with prices, to remove",
        )  # fmt: skip
        parser.add_argument(
            "--topology-key", default=improving.ZONE,
            help="the label of zones, where these are to be equally full (default: %(default)s)",
        )  # fmt: skip
        parser.add_argument("--seed", type=int, default=0, help="seed of the search")

    def handle(self, *args: Any, **options: Any) -> None:
        """Pack the pods of the files and print the result."""
        left_out: Counter[str] = Counter()
        found = (one for name in options["files"] for one in files.documents(name))
        try:
            world = list(files.of_known_kinds(files.single(found), left_out))
            catalogue = options["catalogue"]
            advice_documents = list(files.single(files.documents(catalogue))) if catalogue else []
        except files.FileError as error:
            raise CommandError(str(error)) from error
        collector.calm()
        if text := files.left_out_text(left_out):
            self.stderr.write(text)
        document = self._document(world, options)
        try:
            answer = advice(advice_documents, document) if catalogue else answer_to(document)
        except StatusError as error:
            raise CommandError(error.message) from error
        except OperationalError as error:
            text = " ".join(str(error).split())
            raise CommandError(
                f"To read the live cluster, the database is needed: {text}"
            ) from error
        if options["output"] == "json":
            self.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        elif options["output"] == "yaml":
            self.stdout.write(yaml.safe_dump(answer, sort_keys=False))
        else:
            self.stdout.write(table(answer))

    def _document(self, world: list[Any], options: dict[str, Any]) -> Manifest:
        """Return the only document in the files, or one made of plain objects."""
        own = [one for one in world if isinstance(one, dict) and one.get("kind") == packing.KIND]
        if own:
            if len(world) > 1:
                raise CommandError(
                    "Name either one file with a Packing document, or files with objects and"
                    " no Packing document."
                )
            document: Manifest = own[0]
            return document
        placed = workloads.ExpandedDocuments(list(map(files.of_placement, world)))
        for note in placed.notes:
            self.stderr.write(note)
        objects: list[Any] = []
        pods: list[Any] = []
        spec: Manifest = {"base": "empty", "objects": objects, "pods": pods}
        for one in placed.documents:
            kind = one.get("kind") if isinstance(one, dict) else None
            if kind in _CONFIGURATIONS:
                spec["configuration"] = one
            else:
                (pods if kind == "Pod" and not is_on_a_node(one) else objects).append(one)
        if not objects and not pods:
            raise CommandError("The files hold neither nodes nor pods.")
        spec["move"] = options["move"]
        spec["seconds"], spec["seed"] = options["seconds"], options["seed"]
        if options["topology_key"] != improving.ZONE:
            spec["topologyKey"] = options["topology_key"]
        return {"apiVersion": "stowage.dev/v1", "kind": packing.KIND, "spec": spec}


def answer_to(document: Manifest) -> Manifest:
    """Return the answer to a document; for the live world an advisor computes it.

    Raises:
        StatusError: the document is invalid, or no advisor answers.
    """
    question = packing.read_packing(document)
    if question.simulation.live:
        from scheduling.answers import advisor

        answer: Manifest = advisor.ask("packing", document)
        return answer
    return packing.run_packing(question, simulation.Base())


def advice(catalogue: list[Any], document: Manifest) -> Manifest:
    """Return the answer to a NodeAdvice document about the world of a Packing document.

    Raises:
        CommandError: there is not exactly one NodeAdvice document, or the Packing has fields that
            do not apply.
        StatusError: a document is invalid, or the solver is not installed.
    """
    if len(catalogue) != 1:
        raise CommandError("The catalogue must be one NodeAdvice document.")
    question = packing.read_packing(document)
    own = question.move, question.seconds, question.prices
    if own != (packing.NEVER, packing.DEFAULT_SECONDS, None) or question.simulation.live:
        raise CommandError(
            "With a catalogue the Packing may not set move, seconds or prices, and its base must"
            " be empty."
        )
    return run_node_advice(catalogue[0], question, simulation.Base())


def table(answer: Manifest) -> str:
    """Return the answer as text: the total, then pods that move, are placed and are left."""
    status = answer["status"]
    if answer["kind"] == NODE_ADVICE:
        return advice_table(status)
    rows = [["POD", "FROM", "TO", "WHY"]]
    rows += [
        [one["pod"], one["from"], one["to"], f"wave {one['wave']}" if one["wave"] else "a swap"]
        for one in status.get("moves", ())
    ]
    if "before" in status:
        lines = [f"{len(rows) - 1} moves: {status['before']:g} before, {status['after']:g} after."]
        return "\n".join([*lines, *columns(rows), *_warnings(status)])
    fit = f"{status['placed']} of {status['of']} pods fit"
    lines = [f"{fit} ({status['schedulerAlone']} one by one): {status['bound']['message']}."]
    if emptied := status.get("emptied"):
        lines.append(
            f"{len(emptied)} nodes can be emptied by {len(status.get('moves', ()))} moves:"
            f" {', '.join(emptied)}."
        )
    rows += [[one["pod"], "-", one["nodeName"], ""] for one in status["pods"]]
    rows += [[one["pod"], "-", "-", one["message"]] for one in status["left"]]
    rows += [[one["pod"], "-", "-", one["message"]] for one in status.get("skipped", ())]
    return "\n".join([*lines, *columns(rows), *_warnings(status)])


def advice_table(status: Manifest) -> str:
    """Return the nodes to buy and remove as text: prices, choices, pods that move or are placed."""
    cost, bound = status["cost"], status["bound"]
    bought = ", ".join(f"{one['count']} {one['name']}" for one in status["nodes"])
    costs = (
        f"Nodes cost {cost['today']:g} today and {cost['after']:g} after; no choice costs less than"
        f" {bound['atLeast']:g}."
    )
    lines = [
        costs,
        f"Buy: {bought or 'none'}. Remove: {', '.join(status['remove']) or 'none'}.",
    ]
    rows = [["PRICE", "MOVES", "REMOVE", "BUY"]]
    rows += [
        [
            f"{one['after']:g}",
            str(one["moves"]),
            str(one["remove"]),
            f"{one['buy']}   chosen" if one["chosen"] else str(one["buy"]),
        ]
        for one in status["frontier"]
    ]
    lines += [*columns(rows), ""]
    rows = [["POD", "FROM", "TO", "WHY"]]
    rows += [[one["pod"], one["from"], one["to"], ""] for one in status["moves"]]
    rows += [[one["pod"], "-", one["nodeName"], ""] for one in status["places"]]
    rows += [
        [one["pod"], "-", "-", one["message"]]
        for one in (*status.get("left", ()), *status.get("skipped", ()))
    ]
    return "\n".join([*lines, *columns(rows)])


def _warnings(status: Manifest) -> list[str]:
    return [f"Warning: {text}" for text in status.get("warnings", ())]
