"""Runs a script under one or several configurations, and shows the outcome."""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from clusterstate.objects.values.errors import StatusError
from scheduling.engine import deciding
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.runtime import ConfigurationError
from scheduling.management import files
from scheduling.plugins.catalogue import load_configuration
from scheduling.scenarios import durations, policies, tables
from scheduling.scenarios.comparing import compare
from scheduling.scenarios.outcome import Outcome
from scheduling.scenarios.page import page
from scheduling.scenarios.playing import Progress, play
from scheduling.scenarios.script import Script
from scheduling.simulation import refused

_TELL_EVERY = 1.0
"""Seconds between two lines of progress."""

Extra = Callable[[], Outcome]
"""Returns an outcome that no configuration decides, such as the recorded one."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of commands that run scripts."""
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="a configuration to replay under; may be repeated: "
        f"{', '.join(policies.NAMES)}, or a KubeSchedulerConfiguration's file",
    )
    parser.add_argument("--report", metavar="FILE.html", help="write the comparison as HTML")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def run(
    script: Script,
    options: dict[str, Any],
    out: OutputWrapper,
    err: OutputWrapper,
    *,
    about: tuple[str, ...] = (),
    extra: Extra | None = None,
    configurations: Mapping[str, KubeSchedulerConfiguration] | None = None,
) -> None:
    """Run a script under each requested policy, print the outcome, and write the report.

    Args:
        script: the script to run.
        options: those of ``add_arguments``, and ``output``.
        out: for the outcome.
        err: for progress.
        about: sentences for the report.
        extra: returns an outcome to put first.
        configurations: further ones, by title.

    Raises:
        CommandError: a policy or an object is invalid, or the report cannot be written.
    """
    chosen = [(name, _configuration(name, script)) for name in options["policy"]]
    chosen += (configurations or {}).items()
    if not chosen:
        own = script.configuration
        if own is not None:
            chosen = [("as stated", own)]
        else:
            chosen = [("default", _by_name("default", script))]
    try:
        deciding.warm()
    except deciding.LoopsUnavailable as error:
        raise CommandError(str(error)) from error
    if options["report"]:
        try:  # a file that cannot be written is reported before the long run
            Path(options["report"]).open("a").close()
        except OSError as error:
            raise CommandError(f"{options['report']}: {error.strerror}") from error
    outcomes: list[Outcome] = []
    if extra is not None:
        outcomes.append(extra())
    for name, configuration in chosen:
        telling = None if options["quiet"] else _progress(name, err)
        try:
            outcomes.append(play(script, configuration, title=name, progress=telling))
        except StatusError as error:
            causes = refused(error)["status"]["errors"]
            lines = "\n".join(f"  {cause['message']}" for cause in causes)
            text = f"The scenario is invalid:\n{lines}" if lines else str(error)
            raise CommandError(text) from error
        except ConfigurationError as error:
            raise CommandError(f"{name}: {error}") from error
        if not options["quiet"]:
            done = outcomes[-1]
            err.write(f"{name}: {done.cycles} cycles in {done.wall_seconds:.1f} s")
    for text in dict.fromkeys(text for one in outcomes for text in one.warnings):
        err.write(f"Warning: {text}")
    found = compare(outcomes)
    if options["output"] in ("json", "jsonl"):
        for line in tables.json_lines(outcomes, found):
            out.write(line.decode())
    else:
        if len(outcomes) == 1:
            out.write(tables.pods_table(outcomes[0]))
            out.write("")
        out.write(tables.comparison_table(found))
    if options["report"]:
        nodes = outcomes[-1].samples[0].nodes if outcomes[-1].samples else 0
        sentences = (*about, f"{script.pod_count} pods on {nodes} nodes, seed {script.seed}.")
        text = page(f"Stowage: {script.title}", sentences, outcomes, found)
        try:
            Path(options["report"]).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{options['report']}: {error.strerror}") from error
        if not options["quiet"]:
            err.write(f"Wrote {options['report']}")


def _by_name(name: str, script: Script) -> KubeSchedulerConfiguration:
    try:
        return policies.load(name, script)
    except policies.NoTypicalPods as error:
        raise CommandError(f"--policy {name}: {error}") from error


def _configuration(name: str, script: Script) -> KubeSchedulerConfiguration:
    """Return the configuration for a value of ``--policy``: a name in ``policies``, or a file."""
    if name in policies.NAMES:
        return _by_name(name, script)
    if not Path(name).exists():
        names = ", ".join(policies.NAMES)
        raise CommandError(f"--policy {name}: neither a file nor one of {names}")
    try:
        found = list(files.single(files.documents(name)))
        if len(found) != 1 or not isinstance(found[0], dict):
            raise files.FileError("the file must hold one KubeSchedulerConfiguration")
        return load_configuration(found[0])
    except (StatusError, files.FileError) as error:
        raise CommandError(f"--policy {name}: {error}") from error


def _progress(name: str, err: OutputWrapper) -> Progress:
    told_at = time.monotonic()

    def tell(second: float, came: int, count: int) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= _TELL_EVERY:
            told_at = now
            err.write(f"{name}: {came} of {count} pods came, {durations.show(second)} played")
            sys.stderr.flush()

    return tell
