"""Answers a ``Comparison``: replays the recent past under several configurations.

The past is the change log's (``recorded``), played in virtual time (``scheduling.scenarios``). The
first run repeats the recorded decisions; the others decide anew. Nothing is stored.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from clusterstate.objects.values.document import format_time, parse_time
from clusterstate.objects.values.errors import INVALID, REQUIRED, FieldError, Invalid, StatusError
from clusterstate.objects.values.meta import Manifest
from scheduling.answers import recorded
from scheduling.answers.live import LiveWorld
from scheduling.framework.binding_points import Meter
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.runtime import ConfigurationError
from scheduling.framework.status import Code
from scheduling.plugins.catalogue import load_configuration
from scheduling.scenarios import policies
from scheduling.scenarios.comparing import Comparison, compare
from scheduling.scenarios.outcome import Outcome
from scheduling.scenarios.page import page, pictures
from scheduling.scenarios.pictures import legend
from scheduling.scenarios.playing import Progress, play
from scheduling.scenarios.script import Script
from scheduling.simulation.document import API_VERSION, GROUP

KIND: Final = "Comparison"
MOST_HOURS: Final = 24.0 * 7
MOST_POLICIES: Final = 4
_MOST_TOLD: Final = 20
"""The most plugins that are listed for each run, the slowest first."""


class Policy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A configuration for a run: one of ``policies.NAMES``, or a document."""

    name: str = ""
    configuration: dict[str, Any] | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The question. Its period: ``hours`` before ``until`` (default: now), or from ``since``.

    ``report``: add an HTML report. ``pictures``: add its curves, one SVG each.
    """

    policies: list[Policy] = []
    hours: float = 1.0
    since: str = ""
    until: str = ""
    seed: int = 0
    report: bool = False
    pictures: bool = False


class Stopwatch:
    """A ``Meter`` of plugins: calls and failures of each, and its longest call in seconds."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self.longest: dict[str, float] = {}

    def clock(self) -> float:
        """Return a monotonic time in seconds."""
        return time.perf_counter()

    def note(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        """Count a call, its failure and its seconds, by plugin."""
        self.calls[plugin] = self.calls.get(plugin, 0) + 1
        self.longest[plugin] = max(self.longest.get(plugin, 0.0), seconds)
        if code is Code.ERROR:
            self.failures[plugin] = self.failures.get(plugin, 0) + 1

    def note_point(self, profile: str, point: str, code: Code, seconds: float) -> None:
        """Do nothing: only single plugins are measured."""

    def figures(self) -> list[Manifest]:
        """Return the figures of each plugin, those that failed first, then the slowest."""
        order = sorted(
            self.calls, key=lambda name: (-self.failures.get(name, 0), -self.longest[name])
        )
        return [
            {
                "name": name,
                "calls": self.calls[name],
                "failures": self.failures.get(name, 0),
                "longestSeconds": round(self.longest[name], 6),
            }
            for name in order[:_MOST_TOLD]
        ]


def comparison(world: LiveWorld, document: object) -> Manifest:
    """Return how the last hours would have passed under other configurations.

    ``status``: ``since``, ``until``, ``runs`` (figures and plugins of each), ``figures`` side by
    side, ``pods`` (how many got another node or waited longer or less, and the largest
    differences), and the same by node. ``report``: the same as one HTML page with pictures;
    ``pictures``: only those, ``title`` and ``svg`` each, and ``legend``, the run of each line.

    Raises:
        Invalid: with every wrong field.
        Expired: the change log does not reach back to that time.
        TooLarge: it takes too long; ask for fewer hours.
    """
    spec = _read(document)
    now = datetime.now(UTC)  # noqa: TID251  # an advisor's edge
    until = min(parse_time(spec.until), now) if spec.until else now
    since = parse_time(spec.since) if spec.since else until - timedelta(hours=spec.hours)
    if not timedelta() < until - since <= timedelta(hours=MOST_HOURS):
        text = f"must be before until, by {MOST_HOURS:g} hours at most"
        wrong = [FieldError(INVALID, "spec.since", spec.since, text)]
        raise Invalid(KIND, "", wrong, GROUP)
    world.tell("reading what happened", 0.0)
    script = recorded.script(since=since, until=until, seed=spec.seed, go_on=world.go_on)
    chosen = _configurations(spec, script)
    status = compared(world, script, chosen, report=spec.report, with_pictures=spec.pictures)
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}


def compared(
    world: LiveWorld,
    script: Script,
    chosen: Sequence[tuple[str, KubeSchedulerConfiguration]],
    *,
    report: bool,
    with_pictures: bool = False,
) -> Manifest:
    """Return the ``status`` of ``comparison`` for a recorded script.

    Raises:
        StatusError: a plugin cannot be built, or an object of the past is invalid.
        TooLarge: it takes too long.
    """
    runs = 1 + len(chosen)
    outcomes = [recorded.outcome(script, progress=_progress_of(world, "what happened", 0, runs))]
    watches: list[Stopwatch | None] = [None]
    for number, (title, configuration) in enumerate(chosen, 1):
        watch = Stopwatch()
        meter: Meter = watch
        try:
            outcomes.append(
                play(
                    script,
                    configuration,
                    title=title,
                    progress=_progress_of(world, title, number, runs),
                    meter=meter,
                )
            )
        except ConfigurationError as error:
            wrong = FieldError(INVALID, "spec.policies", title, str(error))
            raise Invalid(KIND, "", [wrong], GROUP) from error
        watches.append(watch)
    found = compare(outcomes)
    status: Manifest = {
        "since": format_time(datetime.fromtimestamp(script.began_at, UTC)),
        "until": recorded.ended(script),
        "runs": [_run(outcome, watch) for outcome, watch in zip(outcomes, watches, strict=True)],
        **_differences(found),
    }
    if with_pictures:
        status["legend"] = legend(found.titles)
        status["pictures"] = [{"title": title, "svg": svg} for title, svg in pictures(outcomes)]
    if report:
        about = (f"The live service, {status['since']} to {status['until']}.",)
        status["report"] = page(f"Stowage: {script.title}", about, outcomes, found)
    return status


def _progress_of(world: LiveWorld, title: str, number: int, runs: int) -> Progress:
    """Return a callback that reports the progress of run ``number`` and stops it when overdue."""

    def progress(_now: float, came: int, will_come: int) -> None:
        world.go_on()
        world.tell(f"playing {title}", (number + came / max(will_come, 1)) / runs)

    return progress


def _run(outcome: Outcome, watch: Stopwatch | None) -> Manifest:
    run: Manifest = {"title": outcome.title, "summary": outcome.summary()}
    if outcome.warnings:
        run["warnings"] = list(outcome.warnings)
    if watch is not None:
        run["plugins"] = watch.figures()
        run["cycles"] = outcome.cycles
        run["errors"] = sum(fate.status == "error" for fate in outcome.fates)
    return run


def _differences(found: Comparison) -> Manifest:
    return {
        "figures": [
            {"name": one.name, "form": one.form, "better": one.better, "values": list(one.values)}
            for one in found.figures
        ],
        "elsewhere": list(found.elsewhere),
        "waitedLonger": list(found.waited_longer),
        "waitedLess": list(found.waited_less),
        "pods": [
            {
                "pod": one.pod,
                "nodes": list(one.nodes),
                "waited": list(one.waited),
                "ends": list(one.ends),
            }
            for one in found.pods
        ],
        "nodes": [{"node": one.node, "given": list(one.counts)} for one in found.nodes],
    }


def _read(document: object) -> Spec:
    found = document.get("spec") if isinstance(document, dict) else None
    if found is None:
        raise Invalid(KIND, "", [FieldError(REQUIRED, "spec")], GROUP)
    try:
        spec = msgspec.convert(found, Spec)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        wrong = [FieldError(INVALID, f"spec{where.rstrip('`')}", None, text)]
        raise Invalid(KIND, "", wrong, GROUP) from error
    wrong = []
    if not 0 < spec.hours <= MOST_HOURS:
        text = f"must be above 0 and at most {MOST_HOURS:g}"
        wrong.append(FieldError(INVALID, "spec.hours", spec.hours, text))
    for name, moment in (("since", spec.since), ("until", spec.until)):
        if moment and not _is_moment(moment):
            text = "must be a time, such as 2026-01-02T15:04:05Z"
            wrong.append(FieldError(INVALID, f"spec.{name}", moment, text))
    if not 0 <= spec.seed < 2**63:
        wrong.append(FieldError(INVALID, "spec.seed", spec.seed, "must be from 0 to 2**63 - 1"))
    if not 1 <= len(spec.policies) <= MOST_POLICIES:
        text = f"must have one to {MOST_POLICIES} configurations"
        wrong.append(FieldError(INVALID, "spec.policies", len(spec.policies), text))
    for number, policy in enumerate(spec.policies):
        path = f"spec.policies[{number}]"
        if policy.configuration is None and policy.name not in policies.NAMES:
            text = f"must be one of {', '.join(policies.NAMES)}, or have a configuration"
            wrong.append(FieldError(INVALID, f"{path}.name", policy.name, text))
    if wrong:
        raise Invalid(KIND, "", wrong, GROUP)
    return spec


def _is_moment(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def _configurations(spec: Spec, script: Script) -> list[tuple[str, KubeSchedulerConfiguration]]:
    """Return the requested configurations, each with its name.

    Raises:
        Invalid: with every wrong field.
    """
    found: list[tuple[str, KubeSchedulerConfiguration]] = []
    wrong: list[FieldError] = []
    for number, policy in enumerate(spec.policies):
        path = f"spec.policies[{number}]"
        try:
            if policy.configuration is not None:
                title = policy.name or f"policy {number + 1}"
                found.append((title, load_configuration(policy.configuration)))
            else:
                found.append((policy.name, policies.load(policy.name, script)))
        except policies.NoTypicalPods as error:
            wrong.append(FieldError(INVALID, f"{path}.name", policy.name, str(error)))
        except Invalid as error:
            wrong += [
                msgspec.structs.replace(one, field=f"{path}.configuration.{one.field}")
                for one in error.errors
            ]
        except StatusError as error:
            wrong.append(FieldError(INVALID, f"{path}.configuration", None, error.message))
    if wrong:
        raise Invalid(KIND, "", wrong, GROUP)
    return found
