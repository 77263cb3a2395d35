"""`manage.py rebalance`: which pods to move, of the live cluster or of one in files.

Of the live cluster it makes a plan, prints its moves, and with ``--apply`` carries it out: at once,
or with ``--schedule`` again and again. Files hold plain objects, such as the output of `kubectl get
nodes,pods -A -o yaml` of any cluster; then nothing is carried out, and no server is needed.
"""

import getpass
import math
from argparse import ArgumentParser
from typing import Any

import msgspec
import yaml
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError

from clusterstate.actions import plans
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.text_table import columns
from clusterstate.processes import steady_clock
from scheduling.answers import advisor
from scheduling.simulation import plan_document
from scheduling.simulation.improving import TERMS, ZONE
from scheduling.simulation.moves import TO_EMPTY

_OF_REBALANCE = {
    "objective": "objective", "selector": "selector", "room_for": "roomFor",
    "room_for_group": "roomForGroup", "topology_key": "topologyKey", "move_price": "movePrice",
    "lost_work_price": "lostWorkPrice",
}  # fmt: skip
_OF_SPEC = {"pods_per_hour": "podsPerHour", "schedule": "schedule", "time_zone": "timeZone"}


class Command(BaseCommand):
    """Prints or carries out moves of pods."""

    help = "Say which pods to move towards an objective, and carry it out with --apply."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("files", nargs="*", metavar="FILE", help="of a cluster; else the live")
        parser.add_argument("--objective", choices=(TO_EMPTY, *TERMS), help="what moves are for")
        parser.add_argument("--selector", help="only pods of nodes with these labels move")
        parser.add_argument("--most", type=int, help="the most nodes to empty, or pods to move")
        parser.add_argument("--room-for", metavar="NAMESPACE/POD", help="so that this pod fits")
        parser.add_argument(
            "--room-for-group", metavar="NAMESPACE/NAME", help="so that this PodGroup fits"
        )
        parser.add_argument("--topology-key", help=f"the label of zones to balance ({ZONE})")
        parser.add_argument("--move-price", type=float, help="the price of each move")
        parser.add_argument("--lost-work-price", type=float, help="of an hour of lost work")
        parser.add_argument("--pods-per-hour", type=int, help="the most pods that leave in an hour")
        parser.add_argument("--schedule", help="cron, or @every 10m: carry it out again and again")
        parser.add_argument("--time-zone", help="of the schedule")
        parser.add_argument("--apply", action="store_true", help="carry it out")
        parser.add_argument(
            "-o", "--output", choices=("table", "json", "yaml"), default="table",
            help="how to answer",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the moves, and carry them out if that is asked for."""
        # Not by equality: a price may be 0, which equals False.
        given = {name for name, value in options.items() if not (value is None or value is False)}
        if options["files"]:
            extra = given & {*_OF_REBALANCE, *_OF_SPEC, "most", "apply"}
            if extra - {"objective", "topology_key"}:
                names = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(extra))
                raise CommandError(f"Only for the live cluster: {names}.")
            more = {"topology_key": options["topology_key"]} if options["topology_key"] else {}
            call_command(
                "pack", *options["files"], move=options["objective"] or TO_EMPTY,
                output=options["output"], stdout=self.stdout, stderr=self.stderr, **more,
            )  # fmt: skip
            return
        rebalance = {_OF_REBALANCE[one]: options[one] for one in _OF_REBALANCE if one in given}
        if "most" in given:
            field = "mostPods" if options["objective"] in TERMS else "mostNodes"
            rebalance[field] = options["most"]
        document = plan_document.of([{plan_document.REBALANCE: rebalance}])
        document["spec"] |= {_OF_SPEC[one]: options[one] for one in _OF_SPEC if one in given}
        for name in ("move_price", "lost_work_price"):
            if name in given and not math.isfinite(options[name]):
                raise CommandError(f"--{name.replace('_', '-')} must be a number.")
        try:
            status = advisor.ask("plan", document)["status"]
            self._tell(status, options["output"])
            if options["apply"]:
                self._apply(document, status)
        except StatusError as error:
            raise CommandError(error.message) from error
        except OperationalError as error:
            raise CommandError(f"The database does not answer: {error}") from error

    def _apply(self, document: Manifest, status: Manifest) -> None:
        if not status["steps"] and not document["spec"].get("schedule"):
            self.stderr.write("Nothing to carry out.")
            return
        now, by = steady_clock.now(), getpass.getuser()
        plan = plans.store(document, status, by=by, now=now)
        plans.begin(plan.name, by=by, impersonator="", now=now)
        self.stderr.write(f"{plan.name} begins: kubectl get plans {plan.name}")

    def _tell(self, status: Manifest, output: str) -> None:
        if output == "json":
            text = msgspec.json.format(msgspec.json.encode(status), indent=2).decode()
        elif output == "yaml":
            text = yaml.safe_dump(status, sort_keys=False)
        else:
            text = table(status)
        self.stdout.write(text)


def table(status: Manifest) -> str:
    """Return the moves of a plan as text, then what keeps pods where they are."""
    moved = [one for one in status["leaving"] if one.get("landing", {}).get("nodeName")]
    lines = [f"{len(moved)} pods move."]
    drains = [one["drain"] for one in status.get("changes", ()) if "drain" in one]
    emptied = [name for drain in drains for name in drain["nodes"]]
    if emptied:
        lines.append(f"{len(emptied)} nodes are emptied: {', '.join(emptied)}.")
    rows = [["POD", "FROM", "TO"]]
    rows += [[one["pod"], one["nodeName"], one["landing"]["nodeName"]] for one in moved]
    if moved:
        lines += columns(rows)
    lines += [f"{one['pod']} stays: {one['message']}" for one in status["staying"]]
    return "\n".join([*lines, *(f"Warning: {text}" for text in status.get("warnings", ()))])
