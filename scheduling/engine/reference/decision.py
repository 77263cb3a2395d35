"""The record of one decision: chosen node, alternatives, rejections, and the seed.

``Decision`` is compact and made for every pod; ``full_table`` has the results of every plugin for
every node, for unplaced pods and on demand.
"""

import itertools
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.objects.dra.attempt import Release
from scheduling.framework.node_table import NodeTable
from scheduling.framework.outcomes import Filtered, ScoreTable
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.types import Nomination, PodInfo, PodRecord

SCHEDULED = "scheduled"
UNSCHEDULABLE = "unschedulable"
ERROR = "error"

BEST_KEPT = 10


class Rejection(msgspec.Struct, frozen=True):
    """A status, and the number of nodes on which it was the first rejection."""

    status: Status
    nodes: int


class Best(msgspec.Struct, frozen=True):
    """One of the best nodes: total, and weighted scores in the order of ``Decision.plugins``."""

    node_name: str
    total: int
    weighted: tuple[int, ...]


class BestScores:
    """The best nodes as arrays; ``Decision.best`` makes ``Best`` objects of them.

    Args:
        names: the nodes' names.
        local: weighted scores of plugins that score rows, shape (lines, nodes).
        lines: for each plugin of ``Decision.plugins`` its line in ``local``, or -1.
        grouped: for each -1, in order, weighted scores by group, shape (groups,); ``None`` where
            the plugin skipped and is not among ``Decision.plugins``.
        group: index of each node's group in ``grouped``, ``None`` where there is only one.
    """

    __slots__ = ("_group", "_grouped", "_lines", "_local", "names")

    def __init__(
        self,
        names: tuple[str, ...],
        local: npt.NDArray[np.integer],
        lines: Sequence[int],
        grouped: Sequence[npt.NDArray[np.int64] | None] = (),
        group: npt.NDArray[np.integer] | None = None,
    ) -> None:
        self.names = names
        self._local = local
        self._lines = lines
        self._grouped = grouped
        self._group = group

    def weighted(self) -> npt.NDArray[np.int64]:
        """Return the weighted scores, int64 (nodes, plugins)."""
        grouped = iter(self._grouped)
        columns = []
        for line in self._lines:
            if line >= 0:
                columns.append(self._local[line].astype(np.int64))
                continue
            scores = next(grouped)
            if scores is None:
                continue
            of_node = scores[self._group] if self._group is not None else scores[:1]
            columns.append(np.broadcast_to(of_node, len(self.names)))
        return np.array(columns, np.int64).reshape(len(columns), len(self.names)).T

    def columns(self) -> list[int | list[int]]:
        """Return the weighted scores by plugin: one number if all nodes have the same score."""
        local = self._local.tolist()
        group = None if self._group is None else self._group.tolist()
        grouped = iter(self._grouped)
        found: list[int | list[int]] = []
        for line in self._lines:
            if line >= 0:
                found.append(local[line])
                continue
            scores = next(grouped)
            if scores is None:
                continue
            if group is None:
                found.append(int(scores[0]))
            else:
                values = scores.tolist()
                found.append([values[number] for number in group])
        return found

    def written_out(self, winner: str) -> tuple[Best, ...]:
        """Return the nodes as objects, the winner first, then by total and name."""
        rows = self.weighted().tolist()
        found = [
            Best(name, sum(row), tuple(row)) for name, row in zip(self.names, rows, strict=True)
        ]
        found.sort(key=lambda b: (b.node_name != winner, -b.total, b.node_name))
        return tuple(found)


class NodeVerdict(msgspec.Struct, frozen=True):
    """The verdicts of all plugins on a node; scores only for feasible nodes that were scored.

    ``rejected``: the first rejection, ``None`` when the node is feasible.
    """

    rejected: Status | None = None
    raw: Mapping[str, int] = {}
    normalized: Mapping[str, int] = {}
    weighted: Mapping[str, int] = {}
    total: int = 0


class FullTable(msgspec.Struct, frozen=True):
    """The results of every plugin, by node name; ``skipped`` plugins score 0 on all nodes."""

    nodes: Mapping[str, NodeVerdict]
    skipped: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a cycle about one pod.

    ``outcome``: scheduled, unschedulable or error. ``evaluated`` nodes were judged, ``feasible`` of
    them passed. ``margin``: the winner's total minus the runner-up's, 0 where nodes tie, ``None``
    where nothing was scored. ``ties``: nodes with the top total. ``message``: the FitError text, or
    the error. ``rejected_by``: the plugins whose events the pod waits for, sorted; ``pending_by``:
    those of them whose events skip the backoff. ``next_start``: the node index at which the next
    pod's search begins. For a pod that fits nowhere, ``judged`` has the outcome of Filter by row of
    the snapshot at that time, and ``absent`` the status of nodes that PreFilter left out.
    ``displaced``: keys of the nominated pods of lower priority that lose their nomination to the
    node (``Snapshot.nominated_below``); none if all victims are terminating already
    (``prepareCandidateAsync``, preemption/executor.go, v1.36). ``released``: the claim of devices
    that PostFilter gives back.
    """

    key: Hashable
    class_digest: bytes
    outcome: str
    node_name: str = ""
    row: int = -1
    total: int = 0
    margin: int | None = None
    ties: int = 0
    node_count: int = 0
    evaluated: int = 0
    feasible: int = 0
    plugins: tuple[str, ...] = ()
    best_scores: BestScores | None = None
    rejections: tuple[Rejection, ...] = ()
    message: str = ""
    rejected_by: tuple[str, ...] = ()
    pending_by: tuple[str, ...] = ()
    judged: Filtered | None = None
    absent: Status = SUCCESS
    status: Status = SUCCESS
    nomination: Nomination | None = None
    displaced: tuple[Hashable, ...] = ()
    released: Release | None = None
    seed: int = 0
    draw: int = 0
    next_start: int = 0
    snapshot_revision: int = 0
    profile: str = ""
    full: FullTable | None = None

    @property
    def best(self) -> tuple[Best, ...]:
        """The ten best nodes with their scores, the winner first."""
        return () if self.best_scores is None else self.best_scores.written_out(self.node_name)

    @property
    def scheduled(self) -> bool:
        """Whether a node was chosen."""
        return self.outcome == SCHEDULED

    @property
    def victims(self) -> tuple[PodRecord, ...]:
        """The pods to preempt so that this one fits; empty if there are none."""
        return () if self.nomination is None else self.nomination.victims


class Run(Sequence[Decision]):
    """A sequence of decisions of placed pods that also has columns (``engine.fast.run``).

    A base class, not a protocol: ``isinstance`` runs once for each placed pod, and with a protocol
    it would look up every member, properties included.

    ``keys`` and ``infos``: the pods and their classes. ``figures`` int32 (pods, more than 5): row,
    total, ties, margin (-1: nothing was compared), chosen rows, feasible rows. The others, one for
    each pod, are as in ``Decision``.
    """

    seed: int
    draw: int
    scheduler_name: str
    revision: int
    node_count: int
    keys: list[Hashable]
    infos: list[PodInfo]
    figures: npt.NDArray[np.int32]

    @property
    @abstractmethod
    def evaluated(self) -> npt.NDArray[np.int64]:
        """How many nodes were filtered, int64 (pods,)."""

    @property
    @abstractmethod
    def next_starts(self) -> npt.NDArray[np.int64]:
        """The node index at which the search for the pod after each begins, int64 (pods,)."""

    @property
    @abstractmethod
    def next_start(self) -> int:
        """The node index at which the search for the first pod after the run begins."""

    @abstractmethod
    def node_names(self) -> list[str]:
        """Return the node that was chosen for each pod."""

    @abstractmethod
    def bodies(self) -> list[bytes]:
        """Return each decision as ``record.pack`` would pack it."""

    @abstractmethod
    def named(self) -> Self:
        """Copy the nodes' present names; otherwise names are looked up when they are read."""


class Decisions(Sequence[Decision]):
    """Decisions in order, in parts: runs unchanged, other decisions in lists."""

    def __init__(self) -> None:
        self.parts: list[Sequence[Decision]] = []
        self._count = 0

    def append(self, decision: Decision) -> None:
        """Append one decision."""
        if not self.parts or not isinstance(self.parts[-1], list):
            self.parts.append([])
        last = self.parts[-1]
        assert isinstance(last, list)
        last.append(decision)
        self._count += 1

    def extend(self, decisions: Sequence[Decision]) -> None:
        """Append several decisions."""
        self.parts.append(decisions)
        self._count += len(decisions)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Decision]:
        return itertools.chain.from_iterable(self.parts)

    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return list(self)[number]
        at = number % self._count if -self._count <= number < self._count else self._count
        for part in self.parts:
            if at < len(part):
                return part[at]
            at -= len(part)
        raise IndexError(number)

    @property
    def next_start(self) -> int:
        """The node index at which the search for the next pod begins."""
        last = self.parts[-1]
        return last.next_start if isinstance(last, Run) else last[-1].next_start

    def placed(self) -> Iterator[tuple[Hashable, str]]:
        """Yield the keys of the placed pods, each with its node's name."""
        for part in self.parts:
            if isinstance(part, Run):
                yield from zip(part.keys, part.node_names(), strict=True)
            else:
                yield from ((d.key, d.node_name) for d in part if d.scheduled)

    def unplaced(self) -> list[Decision]:
        """Return the decisions that placed no pod."""
        others = (part for part in self.parts if not isinstance(part, Run))
        return [d for part in others for d in part if not d.scheduled]


def top_positions(
    total: npt.NDArray[np.integer],
    feasible: int,
    tied: npt.NDArray[np.intp],
    winner: int,
) -> npt.NDArray[np.intp]:
    """Return the positions of the ten highest totals, the winner among them.

    Of equal totals at the cut-off the first positions are taken.

    Args:
        total: totals; infeasible positions are lower than all feasible ones.
        feasible: number of feasible positions.
        tied: positions of the highest total, ascending.
        winner: one of ``tied``.
    """
    if len(tied) >= BEST_KEPT:
        chosen = tied[:BEST_KEPT].copy()
    else:
        count = min(BEST_KEPT, feasible)
        border = np.partition(total, len(total) - count)[len(total) - count]
        above = np.flatnonzero(total > border)
        level = np.flatnonzero(total == border)[: count - len(above)]
        chosen = np.sort(np.concatenate((above, level)))
    if winner not in chosen:
        chosen[-1] = winner
    return chosen


def best_scores(
    snapshot: NodeTable, scores: ScoreTable, tied: npt.NDArray[np.intp], winner: int
) -> BestScores:
    """Return the ten best nodes; ``tied`` and ``winner`` are positions in ``scores.rows``."""
    chosen = top_positions(scores.total, len(scores.total), tied, winner)
    names = tuple(snapshot.node_name(row) for row in scores.rows[chosen].tolist())
    return BestScores(names, scores.weighted[:, chosen], range(len(scores.plugins)))


def count_rejections(filtered: Filtered) -> tuple[Rejection, ...]:
    """Return each rejection with its number of nodes, most frequent first."""
    if len(filtered.statuses) == 1:
        return ()
    return in_order(
        [
            Rejection(status, count)
            for status, count in zip(filtered.statuses[1:], filtered.counts[1:], strict=True)
            if count
        ]
    )


def in_order(rejections: Sequence[Rejection]) -> tuple[Rejection, ...]:
    """Return rejections, equal ones summed, the most frequent first."""
    if len(rejections) < 2:
        return tuple(rejections)
    counts: dict[Status, int] = {}
    for one in rejections:
        counts[one.status] = counts.get(one.status, 0) + one.nodes
    if len(counts) < len(rejections):
        rejections = [Rejection(status, nodes) for status, nodes in counts.items()]
    return tuple(
        sorted(
            rejections, key=lambda r: (-r.nodes, r.status.plugin, r.status.reasons, r.status.code)
        )
    )


def full_table(
    snapshot: NodeTable,
    filtered: Filtered | None,
    absent: Status,
    scores: ScoreTable | None,
) -> FullTable:
    """Return the verdicts of every plugin on every node.

    ``filtered`` ``None``: PreFilter rejected the pod everywhere, with ``absent``. Nodes that were
    not looked at (sampling) are left out.
    """
    nodes: dict[str, NodeVerdict] = {}
    if not absent.ok:
        for row in snapshot.rows().tolist():
            nodes[snapshot.node_name(row)] = NodeVerdict(rejected=absent)
    if filtered is not None:
        for row, verdict in zip(filtered.rows.tolist(), filtered.verdict.tolist(), strict=True):
            rejected = filtered.statuses[verdict] if verdict else None
            nodes[snapshot.node_name(row)] = NodeVerdict(rejected=rejected)
    if scores is None:
        return FullTable(nodes)
    for position, row in enumerate(scores.rows.tolist()):
        nodes[snapshot.node_name(row)] = NodeVerdict(
            raw=_line(scores.plugins, scores.raw[:, position]),
            normalized=_line(scores.plugins, scores.normalized[:, position]),
            weighted=_line(scores.plugins, scores.weighted[:, position]),
            total=int(scores.total[position]),
        )
    return FullTable(nodes, scores.skipped)


def _line(plugins: tuple[str, ...], column: npt.NDArray[np.int64]) -> dict[str, int]:
    return dict(zip(plugins, column.tolist(), strict=True))
