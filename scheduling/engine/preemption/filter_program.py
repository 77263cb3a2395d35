"""The filters of a profile for one class, written as arrays for ``compiled.rows``.

A filter is included by what it declares (``framework.terms``, ``Locality.NODE``). ``row_program``
keeps one ``FilterProgram`` for each class. ``engine.fast.programs`` is something else.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from scheduling.engine.compiled import row_arguments
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int16, Int32, Int64, Mask
from scheduling.framework.interface import CycleState, Extender, Filter
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import Filtered
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Status
from scheduling.framework.tables import Counter
from scheduling.framework.terms import (
    AffinityTerms,
    CountedFilter,
    Kind,
    Rejection,
    RequestFilter,
    SpreadTerms,
    Term,
)
from scheduling.framework.types import PodInfo

UNLIMITED: Final = 2**62
"""Stands for any number of pods."""
_NO_MINIMUM = 2**31 - 1
_VERDICT = 4
"""This many bytes a diagnosis takes for each row."""
_OBJECTS = 8192
"""This many bytes a program takes beside its columns, roughly."""
_MOST_CHECKS = 15
"""Two bits for each amount and one for places must fit into ``row_arguments.STEP_BITS``."""


_AFFINITY_KINDS = {
    Kind.NEAR: row_arguments.NEAR,
    Kind.ANTI: row_arguments.ANTI,
    Kind.EXISTING: row_arguments.EXISTING,
}


class _CounterUse(msgspec.Struct, frozen=True):
    """A count that the program reads; ``table`` is ``None`` if the count is by row."""

    counter: Counter
    stated: Term | None = None


class LastDiagnosis(msgspec.Struct):
    """The last diagnosis of a class, so that the next one judges only touched rows.

    ``verdict`` int32 (rows,): index into ``statuses``; shared with earlier results, so never
    written to. ``counts``: how many rows have each status. ``cursor``: position in the log.
    ``moves``: how often the rejection of a row has changed since.
    """

    rows: Rows
    verdict: Int32
    statuses: list[Status]
    counts: list[int]
    cursor: int
    number_of: dict[Status, int]
    moves: int = 0

    def filtered(self) -> Filtered:
        """Return the diagnosis as ``Filtered``, without the statuses that no row has."""
        verdict, counts = self.verdict, self.counts
        used = [number == 0 or counts[number] > 0 for number in range(len(counts))]
        if not all(used):
            verdict = (np.cumsum(used, dtype=np.int32) - 1)[verdict]
        statuses = [status for status, is_used in zip(self.statuses, used, strict=True) if is_used]
        counts_left = [count for count, is_used in zip(counts, used, strict=True) if is_used]
        return Filtered(self.rows, verdict, tuple(statuses), tuple(counts_left))


class _Step(msgspec.Struct, frozen=True):
    """A filter, or several that depend on nodes alone, with its possible rejections."""

    plugin: Filter
    statuses: tuple[Status, ...] = ()
    rejections: tuple[Rejection, ...] = ()


class FilterProgram:
    """The filters of one profile for one class over one state of the nodes.

    Args:
        snapshot: the nodes.
        framework: the profile.
        info: the class.
        state: the cycle state after PreFilter.
        kinds: the kinds of the profile's filters, from ``RowPrograms``.

    ``usable`` is False if a filter cannot be written as arrays.

    Raises:
        PluginFailed: a plugin failed.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        framework: Framework,
        info: PodInfo,
        state: CycleState,
        kinds: Mapping[int, int],
    ) -> None:
        self._snapshot = snapshot
        self._framework = framework
        self.info = info
        self.usable = True
        self.asks_outside = False
        self._compares = False
        self._steps: list[_Step] = []
        self._rows: list[tuple[int, int, int]] = []
        self._static: list[Int16] = []
        self._terms: list[_CounterUse] = []
        self._checks: list[tuple[int, int]] = []
        self._statuses_by_code: dict[int, Status] = {}
        self.last: LastDiagnosis | None = None
        self._sort_filters(kinds, state)
        # Versions are read last: making tables may raise them.
        self.skips = tuple(sorted(state.skip_filter))
        self.stamp = stamp(snapshot, self.skips, info)
        self.size = _OBJECTS
        """Bytes, with a diagnosis of all rows, which it may keep."""
        if self.usable:
            self._write()

    def _sort_filters(self, kinds: Mapping[int, int], state: CycleState) -> None:
        """Group the filters, in order, by the kind of step that each becomes."""
        snapshot, info = self._snapshot, self.info
        of_nodes: list[Filter] = []
        for plugin in self._framework.filter_plugins:
            if plugin.name in state.skip_filter:
                continue
            kind = kinds.get(id(plugin), -1)
            if kind == row_arguments.STATIC:
                of_nodes.append(plugin)
                continue
            self._judge_nodes(of_nodes, state)
            of_nodes = []
            if (
                kind == row_arguments.FIT
                and not self._compares
                and isinstance(plugin, RequestFilter)
            ):
                self._compares = True
                self._checks = plugin.request_checks(info, snapshot)
                self._rows.append((row_arguments.FIT, 0, 0))
                self._steps.append(_Step(plugin))
                self.usable = self.usable and len(self._checks) <= _MOST_CHECKS
            elif kind == row_arguments.COUNT and isinstance(plugin, CountedFilter):
                counter, rejections = plugin.rejecting_counter(info, snapshot)
                self._add(plugin, row_arguments.COUNT, [_CounterUse(counter)], (rejections,))
            elif kind == row_arguments.AFFINITY and isinstance(plugin, AffinityTerms):
                terms = [
                    _CounterUse(term.table.counter, term)
                    for term in plugin.affinity_terms(info, snapshot)
                    if term.kind in _AFFINITY_KINDS
                ]
                self._add(plugin, row_arguments.AFFINITY, terms, plugin.affinity_rejections)
            elif kind == row_arguments.SPREAD and isinstance(plugin, SpreadTerms):
                terms = [
                    _CounterUse(term.table.counter, term)
                    for term in plugin.spread_terms(info, snapshot)
                    if term.kind is Kind.HARD
                ]
                self._add(plugin, row_arguments.SPREAD, terms, plugin.spread_rejections)
            elif isinstance(plugin, Extender):
                self.asks_outside = self.asks_outside or plugin.filters_nodes
            else:
                self.usable = False
                return
        self._judge_nodes(of_nodes, state)

    def _judge_nodes(self, plugins: Sequence[Filter], state: CycleState) -> None:
        """Run the filters that depend on nodes alone on every row, once."""
        if not plugins:
            return
        snapshot = self._snapshot
        every = snapshot.rows()
        judged = self._framework.filter_some(plugins, state, self.info, snapshot, every)
        if len(judged.statuses) == 1:
            return
        line = np.zeros(snapshot.capacity, np.int16)
        line[every] = judged.verdict
        self._rows.append((row_arguments.STATIC, len(self._static), 0))
        self._static.append(line)
        self._steps.append(_Step(plugins[0], statuses=judged.statuses))

    def _add(
        self,
        plugin: Filter,
        kind: int,
        terms: Sequence[_CounterUse],
        rejections: tuple[Rejection, ...],
    ) -> None:
        first = len(self._terms)
        self._terms += terms
        self._rows.append((kind, first, len(self._terms)))
        self._steps.append(_Step(plugin, rejections=rejections))

    @property
    def stays_in_rows(self) -> bool:
        """Whether all rules concern single rows: pods of one row do not matter to another row."""
        return all(
            kind in (row_arguments.STATIC, row_arguments.FIT, row_arguments.COUNT)
            for kind, _, _ in self._rows
        )

    def own_limits(self) -> Int64 | None:
        """Return how many pods of the class its count rules allow on each row, int64 (capacity,).

        ``UNLIMITED`` if the class's pods do not exclude each other, 1 if they do. ``None`` if a pod
        of the class affects other rows than its own.
        """
        away = self.kept_away_by(self.info)
        return None if away is None else np.where(away, 1, UNLIMITED)

    def counted_peers(self) -> Mask:
        """Return a mask (peers,): the peers to which at least one count gives weight."""
        weights: Int64 = np.abs(self.terms().seat).sum(axis=1)
        return weights > 0

    def kept_away_by(self, other: PodInfo) -> Mask | None:
        """Return a mask (capacity,): the rows where a pod of class ``other`` excludes this class.

        By counts alone, without resources. ``None`` if such a pod affects other rows than its own.
        """
        away: Mask = np.zeros(self._snapshot.capacity, np.bool_)
        for number in np.flatnonzero(self.terms().seat[other.peer]).tolist():
            stated = self._terms[number].stated
            if stated is None:
                away[:] = True
            elif stated.kind not in (Kind.ANTI, Kind.EXISTING):
                return None
            elif stated.single:
                away[self._domain[number] >= 0] = True
            elif len(stated.table.present):  # a label that no node has excludes nothing
                return None
        return away

    # --- arrays ----------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the arrays, which stay valid while ``stamp`` returns the same."""
        snapshot, terms = self._snapshot, self._terms
        capacity = snapshot.capacity
        checks = self._checks
        self.rules = row_arguments.Rules(
            np.array(self._rows, np.int64).reshape(len(self._rows), 3),
            np.array(self._static, np.int16).reshape(len(self._static), capacity),
            np.array([amount for amount, _ in checks], np.int64),
            np.array([column for _, column in checks], np.int64),
        )
        self._columns = np.zeros((len(terms), row_arguments.TERM_COLUMNS), np.int64)
        domain = np.zeros((len(terms), capacity), np.int32)
        counted: Mask = np.ones((len(terms), capacity), np.bool_)
        offset = 0
        for number, term in enumerate(terms):
            line, stated = self._columns[number], term.stated
            line[row_arguments.OFFSET] = offset
            if stated is None:
                domain[number] = np.arange(capacity)
                line[row_arguments.LIVE_ONLY] = term.counter.live_only
                offset += capacity
                continue
            table = stated.table
            line[row_arguments.KIND] = _AFFINITY_KINDS.get(stated.kind, 0)
            line[row_arguments.MAX_SKEW] = stated.max_skew
            line[row_arguments.MATCHES_SELF] = stated.matches_self
            line[row_arguments.FROM_ZERO] = stated.from_zero
            # kube-scheduler's dry run subtracts terminating pods from a spread that did not count
            # them.
            line[row_arguments.LIVE_ONLY] = term.counter.live_only and stated.kind is not Kind.HARD
            domain[number] = table.column.ids
            if table.eligible is not None:
                counted[number] = table.eligible
            offset += len(table.counts)
        self._counts: Int64 = np.zeros(offset, np.int64)
        self._domain, self._counted = domain, counted
        columns = self.rules.static, domain, counted, self._counts
        self.size += _VERDICT * capacity + sum(column.nbytes for column in columns)
        self._weigh()

    def _weigh(self) -> None:
        """Set, by peer, how much one pod of it adds to each term's count."""
        snapshot = self._snapshot
        self._seat = snapshot.peer_weights([term.counter for term in self._terms])
        self._take = self._seat
        taken = [
            (number, term.stated.taken)
            for number, term in enumerate(self._terms)
            if term.stated is not None and term.stated.taken is not None
        ]
        if taken:
            self._take = self._seat.copy()
            for number, weigh in taken:
                self._take[:, number] = [weigh(peer) for peer in snapshot.peers()]

    def terms(self) -> row_arguments.Terms:
        """Return the terms with the present counts."""
        snapshot = self._snapshot
        if len(self._seat) != snapshot.peer_total:
            self._weigh()
        for line, term in zip(self._columns, self._terms, strict=True):
            first, stated = int(line[row_arguments.OFFSET]), term.stated
            if stated is None:
                self._counts[first : first + snapshot.capacity] = term.counter.rows
                continue
            counts = stated.table.counts
            self._counts[first : first + len(counts)] = counts
            line[row_arguments.TOTAL] = counts.sum()
            if stated.kind is Kind.HARD:
                there = counts[stated.table.present]
                lowest = there.min(initial=_NO_MINIMUM)
                above = there[there > lowest]
                line[row_arguments.LOWEST] = lowest
                line[row_arguments.AT_LOWEST] = len(there) - len(above)
                line[row_arguments.SECOND] = above.min(initial=_NO_MINIMUM)
        return row_arguments.Terms(
            self._columns, self._counts, self._domain, self._counted, self._seat, self._take
        )

    def status(self, code: int) -> Status:
        """Return the rejection for a code of the compiled loop."""
        found = self._statuses_by_code.get(code)
        if found is not None:
            return found
        number, local = code >> row_arguments.STEP_BITS, code & ((1 << row_arguments.STEP_BITS) - 1)
        step = self._steps[number]
        plugin = step.plugin
        if step.statuses:
            found = step.statuses[local]
        else:
            if step.rejections:
                rejection = step.rejections[local - 1]
            else:
                assert isinstance(plugin, RequestFilter)
                rejection = plugin.request_rejection(self.info, self._snapshot, local)
            found = Status(*rejection, plugin.name)
        self._statuses_by_code[code] = found
        return found


def stamp(snapshot: Snapshot, skips: tuple[str, ...], info: PodInfo) -> Hashable:
    """Return a key that changes when programs of the class must be rewritten.

    ``skips``: the filters that PreFilter leaves out.
    """
    return (
        snapshot.node_version,
        snapshot.peer_version,
        snapshot.peer_stamp(info),
        snapshot.capacity,
        snapshot.allocatable.shape[1],
        *skips,
    )
