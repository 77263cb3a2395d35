"""The drills' command line: one JSON line with what the change log says.

Ends with an error when a promise was broken.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from django.conf import settings

from tests.drills import drills, everyday, questions, tour, weather
from tests.perf.service import ServiceError

_SIZES = (
    "nodes",
    "pods",
    "lost",
    "rate",
    "grace",
    "relabelled",
    "replicas",
    "completions",
    "minutes",
    "waiting",
    "into",
    "only",
    "pages",
)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m tests.drills",
        description="Start a service with hollow nodes, do harm to it, and tell who left, when"
        " and whereto.",
    )
    chosen = parser.add_subparsers(dest="drill", required=True)
    one = chosen.add_parser("outage", help="many agents fall silent at once")
    one.add_argument("--nodes", type=int, default=1000)
    one.add_argument("--pods", type=int, default=20_000)
    one.add_argument("--lost", type=int, default=200, help="agents that fall silent")
    one.add_argument("--rate", type=float, default=2, help="taints a second in each zone")
    one.add_argument("--grace", type=float, default=40, help="seconds until they are missed")
    one = chosen.add_parser("relabel", help="labels change under pods that require them")
    one.add_argument("--nodes", type=int, default=300)
    one.add_argument("--relabelled", type=int, default=100)
    one.add_argument("--pods", type=int, default=2000, help="that require the label")
    one.add_argument("--rate", type=float, default=50, help="evictions a second")
    one = chosen.add_parser("faults", help="Redis flushed, workers killed, beat stopped")
    one.add_argument("--nodes", type=int, default=100)
    one.add_argument("--pods", type=int, default=2000)
    one = chosen.add_parser("everyday", help="every kind of workload, nodes lost and regained")
    one.add_argument("--nodes", type=int, default=1000)
    one.add_argument("--replicas", type=int, default=300, help="of the Deployment")
    one.add_argument("--completions", type=int, default=200, help="of the Job")
    one.add_argument("--lost", type=int, default=5, help="agents that fall silent for a while")
    one.add_argument("--grace", type=float, default=20, help="seconds until they are missed")
    one = chosen.add_parser(
        "tour", help="through the console in a browser, beside kubectl; counted"
    )
    one.add_argument("--nodes", type=int, default=1000)
    one.add_argument("--pods", type=int, default=20_000)
    one.add_argument("--minutes", type=float, default=10, help="how far it travels back; 0: little")
    one = chosen.add_parser(
        "questions", help="twelve questions of operators, in the console and with kubectl; counted"
    )
    one.add_argument("--nodes", type=int, default=1000)
    one.add_argument("--pods", type=int, default=4000)
    one = chosen.add_parser(
        "weather", help="every page of the console in good weather and in bad, looked at by axe"
    )
    one.add_argument("--nodes", type=int, default=1000)
    one.add_argument("--pods", type=int, default=300)
    one.add_argument("--waiting", type=int, default=12_000, help="pods that wait for five reasons")
    one.add_argument("--into", default="", help="a folder for a picture of each page in each look")
    one.add_argument("--pages", nargs="*", default=(), help="names of pages, to see no others")
    one.add_argument("--only", nargs="*", default=(), help="good waiting busy stopped lost away")
    one = chosen.add_parser("soak", help="faults of every kind until the minutes are over")
    one.add_argument("--minutes", type=float, default=90)
    one.add_argument("--seed", default="")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Run one drill.

    Raises:
        SystemExit: with a message, if it could not run or a promise was broken.
    """
    options = _parser().parse_args(arguments)
    if options.drill == "soak":
        _soak(options)
        return
    own = {
        "everyday": everyday.everyday,
        "questions": questions.questions,
        "tour": tour.tour,
        "weather": weather.weather,
    }
    drill = own.get(options.drill) or getattr(drills, options.drill)
    sizes = {name: value for name, value in vars(options).items() if name in _SIZES}
    try:
        result = drill(**sizes, say=_say)
    except (OSError, ServiceError) as error:
        raise SystemExit(str(error)) from error
    print(json.dumps(result))


def _soak(options: Namespace) -> None:
    """Run the fault machine as a process of its own: it shares no code with the drills."""
    command = [sys.executable, "-m", "tests.faults", "--minutes", str(options.minutes)]
    command += ["--seed", options.seed] if options.seed else []
    if subprocess.run(command, cwd=settings.BASE_DIR, check=False).returncode:
        raise SystemExit("A promise was broken: see the table.")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
