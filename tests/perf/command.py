"""The benchmark's command line: one JSON line for each result on standard output.

What it is doing goes to standard error.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings

from scheduling.scenarios import trace_files
from tests.perf import (
    advisor,
    backlog,
    cold_start,
    console,
    consoles,
    cost,
    drain,
    endurance,
    engine,
    fairness,
    features,
    forms,
    groups,
    past,
    service,
    several,
    simulation,
    storm,
    timers,
    trace,
    why,
)
from tests.perf.catalogue import WORKLOADS, by_name
from tests.perf.database import throw_away
from tests.perf.workloads import Workload

_NOT_ON_THE_SERVICE = ("PreemptionBasic", "Unschedulable")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m tests.perf",
        description="Measure workloads: the decision core alone, or with --service a running one.",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--engine", action="store_true", help="the decision core (default)")
    mode.add_argument("--service", action="store_true", help="the running service, over HTTP")
    mode.add_argument(
        "--cold-start",
        action="store_true",
        help="loading the snapshot from a throw-away database, and keeping up with it",
    )
    mode.add_argument(
        "--console",
        action="store_true",
        help="every page of the console, on a throw-away database, and its past",
    )
    mode.add_argument(
        "--consoles",
        type=int,
        metavar="OPEN",
        help="a load on the API beside so many open consoles, on a whole service of its own",
    )
    mode.add_argument(
        "--backlog",
        action="store_true",
        help="pending pods to bound rows: the scheduler's cycles on a throw-away database",
    )
    mode.add_argument(
        "--storm",
        action="store_true",
        help="easy pods beside very many that fit nowhere, on a whole service of its own",
    )
    mode.add_argument(
        "--isolation",
        type=int,
        metavar="SCHEDULERS",
        help="easy pods beside a slow profile and beside a storm, with so many schedulers at work",
    )
    mode.add_argument(
        "--timers",
        action="store_true",
        help="eviction timers on a throw-away database: set, fired at once, one by one",
    )
    mode.add_argument(
        "--aftermath",
        action="store_true",
        help="easy pods while the events and decisions of a burst are written",
    )
    mode.add_argument(
        "--simulation",
        action="store_true",
        help="a simulation of 10,000 pods, nodes included, without a database",
    )
    mode.add_argument(
        "--why",
        action="store_true",
        help="why pods wait, remedies, groups, headroom and nodes to add, without a database",
    )
    mode.add_argument(
        "--groups",
        action="store_true",
        help="gangs: one of 1,000 pods, Kueue's shapes (--waiting 15,000), 39,000 victims",
    )
    mode.add_argument(
        "--fairness",
        action="store_true",
        help="a user beside another user's flood, on a whole service of its own",
    )
    mode.add_argument(
        "--forms",
        action="store_true",
        help="the same requests in JSON and in protobuf, on a whole service of its own",
    )
    mode.add_argument(
        "--endurance",
        action="store_true",
        help="pods that come and go for a long while: how each process's memory grows",
    )
    mode.add_argument(
        "--features",
        action="store_true",
        help="CPU time per bound pod with and without the past, advisors, brakes",
    )
    mode.add_argument(
        "--cost",
        action="store_true",
        help="CPU per pod, node, request, watch and idle minute, and memory, of a whole service",
    )
    mode.add_argument(
        "--several",
        type=int,
        metavar="SCHEDULERS",
        help="so many schedulers at work: what of their decisions comes back (--full, --seconds)",
    )
    parser.add_argument("--full", type=int, default=80, help="with --several: percent of the CPU")
    parser.add_argument("--before", type=Path, help="with --cost: the folder of another build")
    parser.add_argument(
        "--connections",
        type=int,
        default=16,
        help="with --fairness: of the one who floods; with --endurance, --forms, --cost: of all",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        help="with --fairness: of each phase; with --endurance: of each round",
    )
    parser.add_argument("--rate", type=float, default=50.0, help="with --consoles: pods a second")
    parser.add_argument(
        "--rounds", type=int, default=8, help="with --endurance, --features: after those to warm"
    )
    parser.add_argument(
        "--waiting",
        type=int,
        default=0,
        help="how many pods: with --backlog 10,000, --storm 5,000, --aftermath 50,000,"
        " --timers 1,000,000, --forms 2,000, --features 5,000",
    )
    parser.add_argument("--classes", type=int, default=50, help="of a storm: of how many classes")
    parser.add_argument(
        "--due",
        type=int,
        nargs="+",
        default=[10_000, 50_000],
        help="with --timers: pods due at one instant",
    )
    parser.add_argument(
        "--bound",
        type=int,
        default=0,
        help="with --cold-start, --console: pods, by default 20 a node",
    )
    parser.add_argument(
        "--nodes", default="500,5000", help="numbers of nodes, such as 500,5000,15000,50000"
    )
    parser.add_argument(
        "--workloads",
        default="",
        help="some of: " + ", ".join(workload.name for workload in WORKLOADS),
    )
    parser.add_argument(
        "--trace",
        nargs=2,
        metavar=("NODES", "PODS"),
        type=Path,
        help="instead of workloads: the two files of a trace (tests/perf/trace.py)",
    )
    parser.add_argument(
        "--shared-gpus",
        action="store_true",
        help="with --trace: count GPUs in thousandths, so that pods share one",
    )
    parser.add_argument(
        "--past", type=int, metavar="CHANGES", help="pack a day of so many, and read it again"
    )
    parser.add_argument(
        "--advisor",
        type=int,
        metavar="CHANGES",
        help="the first question after so many changes, and a user's requests beside ten askers",
    )
    parser.add_argument(
        "--drain",
        type=int,
        metavar="NODES",
        help="the drain of so many nodes: planned, carried out, cut off; a taint under a brake",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="with --drain: what the plan costs, and where, on a throw-away database",
    )
    parser.add_argument("--server", default=f"http://127.0.0.1:{settings.HTTP_PORT}")
    parser.add_argument("--token", default="", help="default: the one of the state directory")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Measure what the command line asks for.

    Raises:
        SystemExit: with a message, if that is not possible.
    """
    options = _parser().parse_args(arguments)
    try:
        chosen = [by_name(name) for name in options.workloads.split(",") if name]
        if options.trace:
            chosen = [trace.read(*options.trace, shared=options.shared_gpus)]
            options.nodes = str(chosen[0].node_count)
        sizes = [int(text) for text in options.nodes.split(",")]
    except trace_files.TraceError as error:
        raise SystemExit(str(error)) from error
    except KeyError as error:
        raise SystemExit(f"--workloads: there is no {error}") from error
    except ValueError as error:
        raise SystemExit(f"--nodes: {error}") from error
    if options.timers:
        with throw_away():
            _print(timers.run(waiting=options.waiting or 1_000_000, due=options.due, say=_say))
        return
    if options.groups:
        _print(groups.run(workloads=options.waiting or 15_000, victims=39_000, say=_say))
        return
    for nodes in sizes:
        if options.past:
            _print(past.run(nodes=nodes, changes=options.past, say=_say))
        elif options.cold_start:
            with throw_away():
                _print(cold_start.run(nodes=nodes, bound=options.bound or 20 * nodes, say=_say))
        elif options.console:
            with throw_away():
                _print(console.run(nodes=nodes, bound=options.bound or 20 * nodes, say=_say))
        elif options.consoles:
            _print(
                consoles.run(
                    nodes=nodes,
                    consoles=options.consoles,
                    rate=options.rate,
                    seconds=options.seconds,
                    say=_say,
                )
            )
        elif options.backlog:
            waiting = options.waiting or 10_000
            for name in [workload.name for workload in chosen] or ["HundredKinds"]:
                with throw_away():
                    _print(backlog.run(name, nodes=nodes, waiting=waiting, say=_say))
        elif options.advisor:
            found = advisor.run(
                nodes=nodes, changes=options.advisor, seconds=options.seconds, say=_say
            )
            _print(found)
        elif options.drain and options.in_process:
            with throw_away():
                _print(drain.foretold(nodes=nodes, drained=options.drain, say=_say))
        elif options.drain:
            _print(drain.run(nodes=nodes, drained=options.drain, say=_say))
        elif options.why:
            _print(why.run(nodes=nodes, say=_say))
        elif options.features:
            pods, rounds = options.waiting or 5000, options.rounds
            _print(features.run(nodes=nodes, pods=pods, rounds=rounds, say=_say))
        elif options.simulation:
            _print(simulation.run(nodes=nodes, pods=options.waiting or 10_000, say=_say))
        elif options.fairness:
            many, seconds = options.connections, options.seconds
            _print(fairness.run(nodes=nodes, connections=many, seconds=seconds, say=_say))
        elif options.several:
            count, full, seconds = options.several, options.full, options.seconds
            found = several.run(nodes=nodes, schedulers=count, full=full, seconds=seconds, say=_say)
            _print([found])
        elif options.forms:
            _print(
                forms.run(
                    nodes=nodes,
                    pods=options.waiting or 2000,
                    connections=options.connections,
                    rounds=5,
                    say=_say,
                )
            )
        elif options.endurance:
            _print(
                endurance.run(
                    nodes=nodes,
                    connections=options.connections,
                    seconds=options.seconds,
                    rounds=options.rounds,
                    say=_say,
                )
            )
        elif options.cost:
            _print(
                cost.run(
                    nodes=nodes,
                    pods=options.waiting or 2000,
                    connections=options.connections,
                    before=options.before,
                    say=_say,
                )
            )
        elif options.aftermath:
            _print(storm.aftermath(nodes=nodes, burst=options.waiting or 50_000, say=_say))
        elif options.isolation:
            _print(
                storm.isolation(
                    nodes=nodes,
                    schedulers=options.isolation,
                    waiting=options.waiting or 5000,
                    classes=options.classes,
                    say=_say,
                )
            )
        elif options.storm:
            waiting, classes = options.waiting or 5000, options.classes
            _print(storm.run(nodes=nodes, waiting=waiting, classes=classes, say=_say))
        else:
            for workload in chosen or WORKLOADS:
                if not options.service:
                    _print([engine.run(workload, nodes, say=_say)])
                elif workload.name in _NOT_ON_THE_SERVICE:
                    _say(f"{workload.name}: measured on the engine only")
                else:
                    _print([_service(workload, nodes, options)])


def _service(workload: Workload, nodes: int, options: Namespace) -> dict[str, Any]:
    token = options.token
    if not token:
        try:
            token = (settings.STATE_DIR / "token").read_text().strip()
        except OSError as error:
            raise SystemExit(
                f"no token in {settings.STATE_DIR} ({error.strerror}): start the service with"
                " make up, or give --token"
            ) from error
    try:
        return service.run(workload, nodes, server=options.server, token=token, say=_say)
    except (OSError, service.ServiceError) as error:
        raise SystemExit(f"{options.server}: {error}") from error


def _print(results: Iterable[dict[str, Any]]) -> None:
    for result in results:
        print(json.dumps(result), flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
