"""Counts the scheduler's attempts for its metrics, a batch at a time (``metrics.scheduler``).

A batch costs some tens of microseconds: pods with the same profile, priority and number of attempts
are counted together.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from clusterstate.telemetry.metrics import scheduler
from clusterstate.telemetry.metrics.families import Family, Histogram
from scheduling.engine.groups import GroupDecision
from scheduling.engine.reference.decision import ERROR, Decision
from scheduling.framework.status import Code

Waited = tuple[str, int, int, float]
"""Scheduler name, priority, attempts and creation time of a pod (``PriorityQueue.waited``)."""

_MANY: Final = 15
"""Attempts from this number on have one label (``getAttemptsLabel`` of kube-scheduler)."""
_SAMPLED: Final = 10
"""One in this many calls of a plugin at a point is measured (``pluginMetricsSamplePercent``)."""


class PluginMeter:
    """Measures calls of plugins and extension points (``framework.binding_points.Meter``).

    It counts the calls for pods that are decided on the reference path, and those that are made
    once for a class. The fast path decides many pods in one loop and calls no plugin for each.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._calls: dict[tuple[str, str], int] = {}

    def note(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        """Count a call of a plugin; only the first one and every tenth is observed."""
        calls = self._calls.get((plugin, point), 0)
        self._calls[plugin, point] = calls + 1
        if calls % _SAMPLED == 0:
            scheduler.plugins_took.of(plugin, point, code.wire).observe(seconds)

    def note_point(self, profile: str, point: str, code: Code, seconds: float) -> None:
        """Observe the time of one extension point, all its plugins together."""
        scheduler.extension_points.of(point, code.wire, profile).observe(seconds)


def decided(count: int, seconds: float) -> None:
    """Count ``count`` pods that were decided together in ``seconds``."""
    if count:
        scheduler.algorithm.of().observe(seconds / count, count)


def wrote(count: int, seconds: float) -> None:
    """Count ``count`` pods that one statement bound in ``seconds``. May be called on any thread."""
    bind = scheduler.extension_points.of("Bind", "Success", "")
    bind.observe(seconds / count, count)


def bound(pods: Sequence[Waited], popped_at: float, seconds: float) -> None:
    """Count pods that were bound, ``seconds`` after they left the queue at ``popped_at``."""
    groups: dict[tuple[str, int, int], list[float]] = {}
    for profile, priority, attempts, since in pods:
        groups.setdefault((profile, priority, attempts), []).append(since)
    for (profile, priority, attempts), came_at in groups.items():
        count = len(came_at)
        scheduler.attempts.of(scheduler.SCHEDULED, profile).add(count)
        scheduler.attempts_took.of(scheduler.SCHEDULED, profile).observe(seconds, count)
        scheduler.attempts_needed.of().observe(attempts, count)
        waits = np.maximum(popped_at + seconds - np.array(came_at), 0.0)
        label = f"{_MANY}+" if attempts >= _MANY else str(attempts)
        _observe_all(scheduler.until_scheduled, (label,), waits)
        _observe_all(scheduler.waited, (profile, str(priority)), waits)


def bound_in_the_end(
    pods: Sequence[tuple[frozenset[str], str, int, float]], bound_at: float
) -> None:
    """Count pods that were bound after refusals, by the plugins that had refused them.

    ``pods``: see ``PriorityQueue.refused_before``. ``bound_at``: seconds since the epoch.
    """
    for plugins, namespace, priority, since in pods:
        for plugin in plugins:
            scheduler.waited_refused.of(plugin, namespace, str(priority)).observe(
                max(bound_at - since, 0.0)
            )


def came_back(pods: Sequence[Waited], seconds: float) -> None:
    """Count pods whose bind was refused: their node changed, or the pods are gone."""
    for profile, count in Counter(profile for profile, *_ in pods).items():
        scheduler.attempts.of(scheduler.ERROR, profile).add(count)
        scheduler.attempts_took.of(scheduler.ERROR, profile).observe(seconds, count)


def refused(decisions: Sequence[Decision], seconds: float) -> None:
    """Count attempts that placed no pod, and the preemptions that they tried."""
    found = Counter((decision.profile, decision.outcome == ERROR) for decision in decisions)
    for (profile, failed), count in found.items():
        result = scheduler.ERROR if failed else scheduler.UNSCHEDULABLE
        scheduler.attempts.of(result, profile).add(count)
        scheduler.attempts_took.of(result, profile).observe(seconds, count)
        if not failed:
            scheduler.preemptions.of().add(count)
    for decision in decisions:
        if decision.victims:
            scheduler.victims.of().observe(len(decision.victims))


def decided_group(decision: GroupDecision) -> None:
    """Count a decision about a PodGroup by its result."""
    result = scheduler.SCHEDULED if decision.placed else scheduler.UNSCHEDULABLE
    if decision.status.code is Code.ERROR:
        result = scheduler.ERROR
    elif any(one.victims for one in decision.decisions):
        result = scheduler.PREEMPTING
    scheduler.groups.of(result).add(1)


def searched(outcome: str) -> None:
    """Count a search for the placement of a group by its outcome (``packing.gangs``)."""
    scheduler.searches.of(outcome).add(1)


def came(incoming: dict[tuple[str, str], int]) -> None:
    """Count pods that entered a queue, by (queue, event); empty the mapping."""
    for (queue, event), count in incoming.items():
        scheduler.incoming.of(queue, event).add(count)
    incoming.clear()


def divided(shard: int, common: int, others: int) -> None:
    """Count the common and the other pods that one of several schedulers decided (``division``)."""
    for kind, count in (("common", common), ("others", others)):
        if count:
            scheduler.divided.of(str(shard), kind).add(count)


def connected(share: float) -> None:
    """Set the gauge of the share of placed pods in the largest component (``division``)."""
    scheduler.largest_component.of().set(share)


def overtaken(shard: int, count: int) -> None:
    """Count pods whose bind was refused because another scheduler had bound something meanwhile."""
    scheduler.overtaken.of(str(shard)).add(count)


def holds(nodes: int, pods: int, assumed: int) -> None:
    """Set the gauges of how many nodes, pods and assumed pods are in the scheduler's memory."""
    for kind, count in (("nodes", nodes), ("pods", pods), ("assumed_pods", assumed)):
        scheduler.cached.of(kind).set(count)


def _observe_all(
    family: Family[Histogram], labels: tuple[str, ...], values: npt.NDArray[np.float64]
) -> None:
    places = np.searchsorted(family.bounds, values, side="left")
    counts = np.bincount(places, minlength=len(family.bounds) + 1)
    family.of(*labels).add_all([*counts.tolist(), float(values.sum())])
