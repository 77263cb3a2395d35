"""Simulated probes of a container: when it is ready, and when it is killed.

Pure. An ``exec`` probe has the outcome of its command, run with the files that the container has at
that moment. If the container's own command cannot be simulated, these files are unknown, and such a
probe does not kill it. Probes of other kinds succeed, except those of agnhost's ``liveness``, which
answers 500 ten seconds after its start. A probe runs for the first time after its initial delay,
then once in each period; readiness and liveness probes run after the startup probe has succeeded.
Rule: pkg/kubelet/prober/worker.go, v1.36.
"""

from collections.abc import Iterator
from math import ceil
from typing import Any, Final

import msgspec

from clusterstate.local.hollow import commands, shell

Pod = dict[str, Any]
Container = dict[str, Any]
Probe = dict[str, Any]

_PERIOD: Final = 10.0
_FAILURES: Final = 3
_MOST_PROBES: Final = 200
"""Results of a probe after so many runs are ignored."""
_LONGEST_COMMAND: Final = 500
"""A longer command is not simulated, and succeeds: each run of the probe would simulate it, and the
agents of all nodes would wait."""
_HEALTHY_SECONDS: Final = 10.0
_PROBES: Final = ("startupProbe", "livenessProbe", "readinessProbe")


class Health(msgspec.Struct, frozen=True):
    """Results of a container's probes, in seconds since its start.

    ``killed``: when it is killed, ``None`` for never. ``turns``: the times at which it becomes
    ready or not ready, in order; before the first it is not ready.
    """

    killed: float | None = None
    turns: tuple[tuple[float, bool], ...] = ((0.0, True),)


_UNASKED: Final = Health()


def killed_after(pod: Pod, earlier: int) -> float | None:
    """Return after how many seconds a probe kills the first container, ``None`` for never.

    ``earlier``: how often the containers were started before.
    """
    found = [health(pod, one, earlier).killed for one in pod["spec"].get("containers", ())]
    return min((one for one in found if one is not None), default=None)


def are_ready(pod: Pod, elapsed: float, earlier: int) -> bool:
    """Return whether all containers are ready ``elapsed`` seconds after their start."""
    return all(
        _at(health(pod, one, earlier).turns, elapsed) for one in pod["spec"].get("containers", ())
    )


def next_turn(pod: Pod, elapsed: float, earlier: int) -> float | None:
    """Return in how many seconds a container becomes ready or not ready, ``None`` for never."""
    turns = (
        moment - elapsed
        for one in pod["spec"].get("containers", ())
        for moment, _ in health(pod, one, earlier).turns
        if moment > elapsed
    )
    return min(turns, default=None)


def health(pod: Pod, container: Container, earlier: int) -> Health:
    """Return the results of a container's probes in the run after ``earlier`` others."""
    if not any(container.get(name) for name in _PROBES):
        return _UNASKED
    found = commands.outcome(pod, container, earlier)
    begun, killed = 0.0, None
    if startup := container.get("startupProbe"):
        started, killed = _started(startup, container, found)
        if started is None:
            return Health(killed, ())
        begun = started
    if (liveness := container.get("livenessProbe")) and _can_kill(liveness, found):
        killed = _failed(liveness, container, found, begun)
    readiness = container.get("readinessProbe")
    turns = _turns(readiness, container, found, begun) if readiness else ((begun, True),)
    return Health(killed, turns)


def _at(turns: tuple[tuple[float, bool], ...], elapsed: float) -> bool:
    return next((ready for moment, ready in reversed(turns) if moment <= elapsed), False)


def _can_kill(probe: Probe, found: shell.Outcome | None) -> bool:
    return not probe.get("exec") or found is not None


def _results(
    probe: Probe, container: Container, found: shell.Outcome | None, begun: float
) -> Iterator[tuple[float, bool]]:
    """Yield (seconds, whether it succeeds) for each run of a probe, until its result is final."""
    delay = float(probe.get("initialDelaySeconds") or 0)
    period = float(probe.get("periodSeconds") or _PERIOD)
    first = ceil((begun - delay) / period) if begun > delay else 0
    settled = max(_HEALTHY_SECONDS, found.history[-1][0] if found else 0.0)
    most = sum(
        int(probe.get(name) or _FAILURES) for name in ("failureThreshold", "successThreshold")
    )
    last = ceil(max(0.0, settled - delay) / period) + most
    for step in range(first, min(max(first, last) + most, first + _MOST_PROBES)):
        moment = delay + step * period
        yield moment, _succeeds(probe, container, found, moment)


def _succeeds(
    probe: Probe, container: Container, found: shell.Outcome | None, moment: float
) -> bool:
    command = (probe.get("exec") or {}).get("command") or ()
    if sum(map(len, command)) > _LONGEST_COMMAND:
        return True
    if command:
        history = found.history if found else ()
        files = next((files for since, files in reversed(history) if since <= moment), None)
        return not commands.run_of_command(list(command), files).exit_code
    is_agnhost = "agnhost" in container.get("image", "")
    if is_agnhost and "liveness" in (container.get("args") or ()) and probe.get("httpGet"):
        return moment < _HEALTHY_SECONDS
    return True


def _started(
    probe: Probe, container: Container, found: shell.Outcome | None
) -> tuple[float | None, float | None]:
    """Return when a startup probe first succeeds, and when its failures kill the container."""
    most = int(probe.get("failureThreshold") or _FAILURES)
    if not _can_kill(probe, found):
        return 0.0, None
    for number, (moment, is_good) in enumerate(_results(probe, container, found, 0.0), start=1):
        if is_good:
            return moment, None
        if number >= most:
            return None, moment
    return None, None


def _failed(
    probe: Probe, container: Container, found: shell.Outcome | None, begun: float
) -> float | None:
    """Return when a liveness probe has failed often enough, ``None`` for never."""
    failures, most = 0, int(probe.get("failureThreshold") or _FAILURES)
    for moment, is_good in _results(probe, container, found, begun):
        failures = 0 if is_good else failures + 1
        if failures >= most:
            return moment
    return None


def _turns(
    probe: Probe, container: Container, found: shell.Outcome | None, begun: float
) -> tuple[tuple[float, bool], ...]:
    """Return the times at which a readiness probe's result changes, with the new result."""
    changes: list[tuple[float, bool]] = []
    run, before, ready = 0, False, False
    most = {
        True: int(probe.get("successThreshold") or 1),
        False: int(probe.get("failureThreshold") or _FAILURES),
    }
    for moment, is_good in _results(probe, container, found, begun):
        run = run + 1 if is_good == before else 1
        before = is_good
        if is_good != ready and run >= most[is_good]:
            ready = is_good
            changes.append((moment, ready))
    return tuple(changes)
