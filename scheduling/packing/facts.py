"""A snapshot, its profiles and pods as a ``Problem``: what the filters say, in numbers.

Once for each class of pods: which nodes its filters leave, which amounts they compare
(``framework.terms.RequestFilter``) and which pods exclude each other from a node. A class whose
pods matter to other nodes than their own (affinity or anti-affinity over zones, spreading, volumes,
devices, extenders, filters that state nothing) is left out: its pods stay where the scheduler puts
them, and the others are packed around them.
"""

from collections.abc import Hashable, Sequence

import msgspec
import numpy as np

from scheduling.engine.preemption.filter_program import FilterProgram
from scheduling.engine.preemption.row_program import RowPrograms
from scheduling.engine.reference.cycle import Options, PodToPlace, new_state
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int64
from scheduling.framework.runtime import Framework
from scheduling.framework.terms import RequestFilter
from scheduling.framework.types import PodInfo
from scheduling.packing.problem import Problem, weights_of


class Seeker(msgspec.Struct, frozen=True):
    """A pod to place; ``node_name``: where it is, or where the scheduler would put it.

    ``runs``: it is there now, and should not move without need.
    """

    key: Hashable
    info: PodInfo
    framework: Framework
    node_name: str = ""
    runs: bool = False


class Facts(msgspec.Struct, frozen=True):
    """A problem with the names of its parts: nodes by column, pods by class."""

    problem: Problem
    nodes: list[str]
    classes: list[list[Seeker]]


class _Class(msgspec.Struct, frozen=True):
    """The facts of a class: how many pods each row takes, and the compared amounts."""

    pods: list[Seeker]
    limits: Int64
    checks: dict[int, int]


def packable(
    snapshot: Snapshot, pods: Sequence[Seeker], frameworks: Sequence[Framework]
) -> list[bool]:
    """Return for each pod whether numbers express all its filters' decisions.

    Args:
        snapshot: with or without the pods in it.
        pods: any.
        frameworks: the profiles of the pods.

    Raises:
        PluginFailed: a plugin failed.
    """
    programs = {one.scheduler_name: RowPrograms(snapshot, one) for one in frameworks}
    infos = {(pod.info.index, pod.framework.scheduler_name): pod for pod in pods}
    known: dict[tuple[int, str], bool] = {}
    for key, pod in infos.items():
        known[key] = _stays_in_rows(
            snapshot, programs[key[1]], pod, [other.info for other in infos.values()]
        )
    return [known[pod.info.index, pod.framework.scheduler_name] for pod in pods]


def _stays_in_rows(
    snapshot: Snapshot, programs: RowPrograms, pod: Seeker, others: Sequence[PodInfo]
) -> bool:
    if pod.info.claims or pod.framework.extenders:
        return False
    state = new_state(PodToPlace(pod.key, pod.info), Options(), 0)
    if not pod.framework.pre_filter(state, pod.info, snapshot).status.ok:
        return False
    program = programs.program(state, pod.info)
    return (
        program is not None
        and not program.asks_outside
        and all(
            program.kept_away_by(other) is not None
            for other in _heeded(program, [pod.info, *others]).values()
        )
    )


def _heeded(program: FilterProgram, others: Sequence[PodInfo]) -> dict[int, PodInfo]:
    """Return, by index, the pods of ``others`` that the program's rules about other pods count."""
    peers = np.array([other.peer for other in others], np.int64)
    heeded = np.flatnonzero(program.counted_peers()[peers])
    return {at: others[at] for at in heeded.tolist()}


def read(snapshot: Snapshot, pods: Sequence[Seeker]) -> Facts:
    """Return the packing problem of pods that are ``packable``.

    Args:
        snapshot: the cluster without these pods.
        pods: the pods to pack.

    Raises:
        PluginFailed: a plugin failed.
    """
    by_class: dict[tuple[int, str], list[Seeker]] = {}
    for pod in pods:
        by_class.setdefault((pod.info.index, pod.framework.scheduler_name), []).append(pod)
    rows = snapshot.rows()
    programs: dict[str, RowPrograms] = {}
    classes: list[_Class] = []
    apart: list[tuple[int, int]] = []
    firsts = [group[0].info for group in by_class.values()]
    for number, group in enumerate(by_class.values()):
        framework = group[0].framework
        if framework.scheduler_name not in programs:
            programs[framework.scheduler_name] = RowPrograms(snapshot, framework)
        found, away = _judge(snapshot, programs[framework.scheduler_name], group, firsts)
        classes.append(found)
        apart += [(min(number, at), max(number, at)) for at in away if at != number]
    columns = sorted({column for one in classes for column in one.checks})
    requests = np.ones((len(classes), 1 + len(columns)), np.int64)
    free = np.zeros((len(rows), 1 + len(columns)), np.int64)
    free[:, 0] = snapshot.allowed_pods[rows] - snapshot.pod_count[rows]
    for at, column in enumerate(columns, 1):
        requests[:, at] = [one.checks.get(column, 0) for one in classes]
        free[:, at] = snapshot.allocatable[rows, column] - snapshot.requested[rows, column]
    names = [snapshot.node_name(row) for row in rows.tolist()]
    number_of = {name: number for number, name in enumerate(names)}
    counts = [len(one.pods) for one in classes]
    start = np.zeros((len(classes), len(rows)), np.int64)
    stays = np.zeros_like(start)
    for number, one in enumerate(classes):
        for pod in one.pods:
            if (node := number_of.get(pod.node_name)) is not None:
                start[number, node] += 1
                stays[number, node] += pod.runs
    limits = np.array([one.limits for one in classes], np.int64).reshape(start.shape)
    problem = Problem(
        requests=requests,
        counts=np.array(counts, np.int64),
        weights=weights_of([one.pods[0].info.priority for one in classes], counts),
        free=free,
        limits=np.minimum(limits, np.array(counts, np.int64)[:, None]),
        apart=sorted(set(apart)),
        stays=stays,
        prices=np.zeros(len(rows), np.int64),
        move_costs=np.minimum(stays.sum(1), 1),
        start=start,
    )
    return Facts(reduced(problem), names, [one.pods for one in classes])


def _judge(
    snapshot: Snapshot, programs: RowPrograms, pods: list[Seeker], others: Sequence[PodInfo]
) -> tuple[_Class, list[int]]:
    """Return the constraints of a class, and the indexes of ``others`` that exclude its pods."""
    first = pods[0]
    rows = snapshot.rows()
    state = new_state(PodToPlace(first.key, first.info), Options(), 0)
    begun = first.framework.pre_filter(state, first.info, snapshot)
    limits = np.zeros(snapshot.capacity, np.int64)
    away: list[int] = []
    program = programs.program(state, first.info) if begun.status.ok else None
    if program is not None:
        feasible = first.framework.filter(state, first.info, snapshot, begun.rows).feasible
        own = program.own_limits()
        assert own is not None
        limits[feasible] = own[feasible]
        for at, other in _heeded(program, others).items():
            closed = program.kept_away_by(other)
            if closed is not None and closed[rows].any():
                away.append(at)
    checks = {
        column: amount
        for plugin in first.framework.filter_plugins
        if isinstance(plugin, RequestFilter)
        for amount, column in plugin.request_checks(first.info, snapshot)
    }
    return _Class(pods, limits[rows], checks), away


def reduced(problem: Problem) -> Problem:
    """Return the problem with each resource's amounts divided by their greatest common divisor.

    These pods cannot use the remainder of a node's amount.
    """
    unit = np.gcd.reduce(problem.requests, axis=0, initial=0)
    unit = np.maximum(unit, 1)
    return msgspec.structs.replace(
        problem, requests=problem.requests // unit, free=problem.free // unit
    )
