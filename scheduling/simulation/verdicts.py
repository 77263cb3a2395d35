"""Runs every filter on every node, also after the first rejection.

The scheduling cycle stops at the first rejection of a node. To find what would help, all filters
must run: a node with a taint may lack memory as well. ``judge`` runs the profile's filters one by
one on all nodes; ``Verdicts.first`` is the result that the cycle would have found.
"""

import copy
from collections.abc import Hashable, Iterator, MutableMapping

import msgspec
import numpy as np

from scheduling.engine.reference.cycle import Options, PodToPlace, new_state
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int32, Int64, Mask
from scheduling.framework.interface import Aspected, CycleState, Filter, looks_at_nodes
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import Filtered, PreFiltered, ScoreTable
from scheduling.framework.runtime import Framework
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.types import PodInfo

PRE_FILTER = "PreFilter"
"""The plugin's name if several together exclude all nodes in PreFilter."""

Shared = MutableMapping[Hashable, Filtered]
"""Cached results of filters that depend on nodes alone, by plugin and aspect; see ``judge``."""


class FilterFunnel(msgspec.Struct, frozen=True):
    """How many nodes a filter rejects; one entry per filter, in order.

    ``rejected``: nodes that it is the first to reject; ``left``: nodes that passed all filters so
    far. ``rejects``: all nodes that it rejects; ``alone``: nodes that no other filter rejects.
    """

    plugin: str
    rejected: int
    left: int
    rejects: int
    alone: int


class Verdicts(msgspec.Struct, frozen=True):
    """The results of all filters for all nodes.

    ``plugins``: in the order of their calls. ``rows``: the nodes, ascending. ``statuses``: the
    distinct ones; the first is Success. ``verdict`` int32 (plugins, nodes): index into
    ``statuses``. ``left_out`` int32 (nodes,): 1 + the index of the plugin whose PreFilter excluded
    the node, 0 for nodes that Filter saw. ``state``: the cycle state after PreFilter.
    """

    plugins: tuple[str, ...]
    rows: Rows
    statuses: tuple[Status, ...]
    verdict: Int32
    left_out: Int32
    state: CycleState

    @property
    def feasible(self) -> Rows:
        """The rows that pass every filter, ascending."""
        found: Rows = self.rows[self.rejections == 0]
        return found

    @property
    def rejections(self) -> Int64:
        """How many filters reject each node, int64 (nodes,)."""
        found: Int64 = (self.verdict != 0).sum(axis=0, dtype=np.int64)
        return found

    @property
    def _first_line(self) -> Int64:
        """The index of the first plugin that rejects each node, int64 (nodes,); any if feasible."""
        found: Int64 = (self.verdict != 0).argmax(axis=0)
        return np.where(self.left_out, self.left_out - 1, found)

    @property
    def first(self) -> Int32:
        """The first rejection of each node as an index into ``statuses``, int32 (nodes,)."""
        if not len(self.plugins):
            return np.zeros(len(self.rows), np.int32)
        found: Int32 = self.verdict[self._first_line, np.arange(len(self.rows))]
        return found

    def by(self, plugin: str) -> Mask:
        """Return which nodes this filter rejects, bool (nodes,)."""
        if plugin not in self.plugins:
            return np.zeros(len(self.rows), np.bool_)
        found: Mask = self.verdict[self.plugins.index(plugin)] != 0
        return found

    def funnel(self) -> list[FilterFunnel]:
        """Return for each filter, in order, how many nodes it rejects and how many remain."""
        if not len(self.plugins):
            return []
        rejects = self.verdict != 0
        total = rejects.sum(axis=0)
        stopped = np.bincount(self._first_line[total > 0], minlength=len(self.plugins)).tolist()
        remaining = len(self.rows)
        steps = []
        for plugin, mine, rejected in zip(self.plugins, rejects, stopped, strict=True):
            remaining -= rejected
            steps.append(
                FilterFunnel(
                    plugin,
                    rejected=rejected,
                    left=remaining,
                    rejects=int(mine.sum()),
                    alone=int((mine & (total == 1)).sum()),
                )
            )
        return steps

    def counts(self) -> Iterator[tuple[Status, int, int]]:
        """Yield each rejecting status, how many nodes it rejects, and how many it alone rejects."""
        single = self.rejections == 1
        every = np.bincount(self.verdict.ravel(), minlength=len(self.statuses)).tolist()
        alone = np.bincount(self.verdict[:, single].ravel(), minlength=len(self.statuses)).tolist()
        for number, status in enumerate(self.statuses):
            if number and every[number]:
                yield status, every[number], alone[number]


def judge(
    snapshot: Snapshot,
    framework: Framework,
    pod: PodToPlace,
    *,
    shared: Shared | None = None,
) -> Verdicts:
    """Return the results of every filter of the profile for every node. Changes nothing.

    A filter whose PreFilter rejects the pod rejects every node; the others run all the same.
    Nominated pods count on their nodes, as in the scheduling cycle.

    Args:
        snapshot: the cluster.
        framework: the pod's profile.
        pod: the pod; ``info`` comes from ``snapshot.intern``.
        shared: a cache for calls with one state of the nodes, so that classes with equal aspects
            share a filter's answer.

    Raises:
        PluginFailed: a plugin failed.
    """
    state, begun, refused = _begin(snapshot, framework, pod)
    rows = snapshot.rows()
    table = _Table(rows)
    for status in refused:
        table.add(status.plugin or PRE_FILTER, np.ones(len(rows), np.int32), (SUCCESS, status))
    left_out = ~np.isin(rows, begun.rows) & begun.status.ok
    narrowing = _narrowing(snapshot, framework, pod) if left_out.any() else ""
    if narrowing and narrowing not in {plugin.name for plugin in framework.filter_plugins}:
        table.add(narrowing, left_out.astype(np.int32), (SUCCESS, begun.absent))
    cache: Shared = {} if shared is None else shared
    answers: dict[str, Filtered] = {}
    for plugin in framework.filter_plugins if begun.status.ok else ():
        if plugin.name in state.skip_filter:
            continue
        key = _shared_key(plugin, pod.info, snapshot)
        found = None if key is None else cache.get(key)
        if found is None:
            found = framework.filter_some([plugin], state, pod.info, snapshot, rows)
            if key is not None:
                cache[key] = found
        answers[plugin.name] = found
    nominated = snapshot.nominated_pods(pod.info.priority, state.pod_key)
    if nominated and answers:
        answers = _with_nominated(snapshot, framework, pod.info, state, rows, answers)
    for name, found in answers.items():
        if name == narrowing:
            table.add(name, left_out.astype(np.int32), (SUCCESS, begun.absent))
        table.add(name, found.verdict, found.statuses)
    return table.verdicts(state, narrowing, left_out)


def scores_of(
    snapshot: Snapshot,
    framework: Framework,
    info: PodInfo,
    verdicts: Verdicts,
    *,
    among: Rows | None = None,
) -> ScoreTable | None:
    """Return the scores of all feasible nodes, ``None`` if there are fewer than two.

    ``among``: only nodes among these rows are scored.

    Raises:
        PluginFailed: a plugin failed.
    """
    feasible = verdicts.feasible
    if among is not None:
        feasible = feasible[np.isin(feasible, among)]
    if len(feasible) < 2:
        return None
    framework.pre_score(verdicts.state, info, snapshot, feasible)
    return framework.score(verdicts.state, info, snapshot, feasible)


class _Table:
    """Collects one row of results for each plugin, and numbers the distinct statuses."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._lines: dict[str, Int32] = {}
        self._numbers: dict[Status, int] = {SUCCESS: 0}

    def add(self, plugin: str, verdict: Int32, statuses: tuple[Status, ...]) -> None:
        """Add a plugin's results; if it has a row already, a node keeps its earlier rejection."""
        numbers = [self._numbers.setdefault(one, len(self._numbers)) for one in statuses]
        line = np.array(numbers, np.int32)[verdict]
        before = self._lines.get(plugin)
        self._lines[plugin] = line if before is None else np.where(before, before, line)

    def verdicts(self, state: CycleState, narrowing: str, left_out: Mask) -> Verdicts:
        """Return the verdicts; ``narrowing``: the plugin whose PreFilter excluded nodes, or ''."""
        lines = list(self._lines.values())
        shape = (len(lines), len(self._rows))
        place = 1 + list(self._lines).index(narrowing) if narrowing else 0
        return Verdicts(
            tuple(self._lines),
            self._rows,
            tuple(self._numbers),
            np.array(lines, np.int32).reshape(shape),
            np.where(left_out, np.int32(place), np.int32(0)),
            state,
        )


def _begin(
    snapshot: Snapshot, framework: Framework, pod: PodToPlace
) -> tuple[CycleState, PreFiltered, list[Status]]:
    """Run PreFilter, again without each plugin that rejects the pod everywhere.

    Returns the cycle state, in which those plugins skip Filter, the last PreFilter result, and the
    rejections.
    """
    refused: list[Status] = []
    while True:
        state = new_state(pod, Options(), 0)
        begun = framework.pre_filter(state, pod.info, snapshot)
        name = begun.status.plugin
        if begun.status.ok or not name:
            if not begun.status.ok:
                refused.append(begun.status)
            state.skip_filter.update(status.plugin for status in refused)
            return state, begun, refused
        refused.append(begun.status)
        others = [plugin for plugin in framework.pre_filter_plugins if plugin.name != name]
        framework = copy.copy(framework)
        framework.pre_filter_plugins = others


def _narrowing(snapshot: Snapshot, framework: Framework, pod: PodToPlace) -> str:
    """Return the plugin whose PreFilter excludes nodes; ``PRE_FILTER`` if there are several."""
    found = []
    for plugin in framework.pre_filter_plugins:
        alone = copy.copy(framework)
        alone.pre_filter_plugins = [plugin]
        begun = alone.pre_filter(new_state(pod, Options(), 0), pod.info, snapshot)
        if begun.status.ok and len(begun.rows) < snapshot.node_count:
            found.append(plugin.name)
    return found[0] if len(found) == 1 else PRE_FILTER


def _shared_key(plugin: Filter, info: PodInfo, snapshot: Snapshot) -> Hashable | None:
    """Return the key under which classes share a filter's answer; ``None`` if unknown."""
    if not looks_at_nodes(plugin) or not isinstance(plugin, Aspected):
        return None
    aspect = plugin.aspect(info, snapshot)
    return None if aspect is None else (plugin.name, aspect)


def _with_nominated(
    snapshot: Snapshot,
    framework: Framework,
    info: PodInfo,
    state: CycleState,
    rows: Rows,
    answers: dict[str, Filtered],
) -> dict[str, Filtered]:
    """Return the results, with nominated pods counted on their nodes if that rejects a node.

    A node must pass with and without them; the rejection with them is reported, as in the cycle.
    """
    nominated = snapshot.nominated_pods(info.priority, state.pod_key)
    concerned = np.flatnonzero(np.isin(rows, np.fromiter(nominated, np.intp)))
    first = framework.judge_with_nominated(state, info, snapshot, rows[concerned], nominated)
    rejected = [at for at, status in zip(concerned.tolist(), first, strict=True) if not status.ok]
    if not rejected:
        return answers
    plugins = {plugin.name: plugin for plugin in framework.filter_plugins}
    lines = {name: found.verdict.copy() for name, found in answers.items()}
    numbers = {
        name: {status: number for number, status in enumerate(found.statuses)}
        for name, found in answers.items()
    }
    for at in rejected:
        row = int(rows[at])
        # One node at a time: pods nominated to another node might affect it otherwise.
        with snapshot.counting_nominated({row: nominated[row]}):
            for name, line in lines.items():
                status_ = framework.filter_some(
                    [plugins[name]], state.clone(), info, snapshot, rows[at : at + 1]
                ).status(0)
                line[at] = numbers[name].setdefault(status_, len(numbers[name]))
    return {
        name: Filtered(found.rows, lines[name], tuple(numbers[name]))
        for name, found in answers.items()
    }
