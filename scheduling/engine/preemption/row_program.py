"""The filters of a profile as numbers for compiled loops: for diagnoses and preemption.

A pod that fits nowhere needs two answers about many rows: why each rejects the pod, and which pods
of lower priority are victims there. ``RowPrograms`` writes the filters of a class as arrays once (a
*program*), and ``compiled.rows`` applies them, so neither answer makes an object per node or pod.
The program is valid until labels, taints, the set of nodes or the peers change; counts and amounts
are read anew each time. While pods are nominated, the reference path gets its Filter results here
too: running every plugin on each node with and without nominated pods takes 0.1 ms a node.

A filter is included by what it declares (``framework.terms``, ``Locality.NODE``); if one declares
nothing, there is no program and the callers take the reference path, which runs every plugin on
every row.
"""

from collections.abc import Hashable
from functools import cache
from operator import gt
from typing import Any

import numpy as np

from clusterstate.objects.values.pod import Pod
from scheduling.engine.compiled import row_arguments
from scheduling.engine.compiled.rows import examine
from scheduling.engine.preemption.budgets import BudgetArrays
from scheduling.engine.preemption.filter_program import FilterProgram, LastDiagnosis, stamp
from scheduling.engine.preemption.victims import VictimsByRow
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.arrays import Int32
from scheduling.framework.configuration import Profile
from scheduling.framework.interface import CycleState, Filter, looks_at_nodes
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import Filtered
from scheduling.framework.runtime import Framework
from scheduling.framework.status import SUCCESS, Status
from scheduling.framework.terms import (
    AffinityTerms,
    CountedFilter,
    RequestFilter,
    SpreadTerms,
)
from scheduling.framework.types import Candidate, PodInfo, Victims

_examine = examine
_on = False


@cache
def _outer() -> Any:
    from scheduling.engine.compiled import arithmetic, caching  # noqa: F401  # formulas

    return caching.outer(examine)


def is_kept() -> bool:
    """Return whether the compiled loop is on disk.

    Raises:
        ImportError: Numba cannot be imported.
    """
    from scheduling.engine.compiled import caching

    return caching.is_kept(_outer())


def warm() -> bool:
    """Compile the loop, or load it from disk; return whether it is loaded.

    Other threads may decide meanwhile; they use the loop once all of it is loaded.

    Raises:
        ImportError: Numba cannot be imported.
    """
    global _examine, _on  # noqa: PLW0603
    if not _on:
        from scheduling.engine.compiled import caching

        _examine = _outer()
        with caching.one_at_a_time(_examine):
            _compile()
        _on = True
    return _on


def enabled() -> bool:
    """Return whether the loop is compiled; as plain Python it takes about 50 times as long."""
    return _on


class RowPrograms:
    """The programs of one profile over one snapshot, by class."""

    _MOST_BYTES = 128 * 2**20
    """What the programs that are kept take at most, beside that of the last class."""
    _MOST_VICTIMS = 16

    def __init__(self, snapshot: Snapshot, framework: Framework) -> None:
        self._snapshot = snapshot
        self._framework = framework
        # In the order in which they were made; ``_bytes``: their total size.
        self._programs: dict[int, FilterProgram] = {}
        self._bytes = 0
        self._victims: dict[int, VictimsByRow] = {}
        self._budgets = BudgetArrays(snapshot, framework.profile.compatibility)
        self._codes = np.zeros(row_arguments.MOST_CODES, np.int64)
        self._numbers = np.zeros(row_arguments.MOST_CODES, np.int64)
        self._room_sizes = (0, 0, 0, 0)
        self._room = row_arguments.room_to_work(0, *self._room_sizes)
        # A plugin with PreFilter extensions must run on each pod that a dry run adds or removes.
        self._extended = not all(isinstance(plugin, SpreadTerms) for plugin in framework.extensions)
        self._kinds: dict[int, int] = {}
        for plugin in framework.filter_plugins:
            kind = _kind(plugin)
            if kind is not None:
                self._kinds[id(plugin)] = kind
        self._are_rows_first: dict[tuple[str, ...], bool] = {}

    def program(self, state: CycleState, info: PodInfo) -> FilterProgram | None:
        """Return the program of a class, ``None`` if a filter cannot be written as arrays.

        ``state``: the cycle state after PreFilter.

        Raises:
            PluginFailed: a plugin failed.
        """
        found = self._programs.get(info.index)
        if (
            found is None
            or found.info is not info
            or found.stamp != stamp(self._snapshot, tuple(sorted(state.skip_filter)), info)
        ):
            found = FilterProgram(self._snapshot, self._framework, info, state, self._kinds)
            self._keep(found)
        return found if found.usable else None

    def _keep(self, program: FilterProgram) -> None:
        """Cache a class's program; drop the oldest ones if the cache is too large.

        Not all at once: of many classes refused in turn, each would be filtered again on all rows
        each time.
        """
        programs = self._programs
        earlier = programs.pop(program.info.index, None)
        if earlier is not None:
            self._bytes -= earlier.size
        self._bytes += program.size
        while programs and self._bytes > self._MOST_BYTES:
            self._bytes -= programs.pop(next(iter(programs))).size
        programs[program.info.index] = program

    def diagnose(self, state: CycleState, info: PodInfo, rows: Rows) -> Filtered | None:
        """Return why each of the rows rejects a pod.

        ``None`` if a row may accept it, or if the class has no program.

        Args:
            state: the cycle state after PreFilter.
            info: the pod's class.
            rows: the rows that PreFilter left.

        Raises:
            PluginFailed: a plugin failed.
        """
        program = self.program(state, info)
        if program is None or program.asks_outside or not len(rows):
            return None
        follows = program.stays_in_rows and self._snapshot.nominations.number_of(state.pod_key) < 0
        last = program.last
        if not follows or last is None or last.rows is not rows or not self._follow(program, last):
            last = self._diagnose(program, state, rows)
            program.last = last if follows else None
        return None if last is None else last.filtered()

    def _diagnose(
        self, program: FilterProgram, state: CycleState, rows: Rows
    ) -> LastDiagnosis | None:
        """Judge all rows; return ``None`` if a row passes or there are too many reasons."""
        verdict = np.zeros(len(rows), np.int32)
        found = self._examine(program, state.pod_key, rows, 0, 0, verdict)
        if found.why:
            return None
        last = LastDiagnosis(rows, verdict, [SUCCESS], [0], self._snapshot.log_end, {SUCCESS: 0})
        numbers = self._numbers_of(program, last, found.kinds)
        for number, count in zip(numbers[1:], self._numbers[: found.kinds].tolist(), strict=True):
            last.counts[number] += count
        if numbers != list(range(len(numbers))):
            # Different codes may have equal statuses; the table has each status once.
            last.verdict = np.array(numbers, np.int32)[verdict]
        return last

    def _numbers_of(self, program: FilterProgram, last: LastDiagnosis, kinds: int) -> list[int]:
        """Return 0, then for each code that was found the index of its status."""
        numbers = [0]
        for code in self._codes[:kinds].tolist():
            status = program.status(code)
            number = last.number_of.setdefault(status, len(last.statuses))
            if number == len(last.statuses):
                last.statuses.append(status)
                last.counts.append(0)
            numbers.append(number)
        return numbers

    def _follow(self, program: FilterProgram, last: LastDiagnosis) -> bool:
        """Judge the touched rows again; False if these are too many or one of them passes."""
        snapshot, rows = self._snapshot, last.rows
        touched = snapshot.touched_since(last.cursor)
        if touched is None or len(touched) > len(rows) // 16:
            return False
        last.cursor = snapshot.log_end
        if not len(touched):
            return True
        some = np.unique(touched).astype(np.intp)
        verdict = np.zeros(len(some), np.int32)
        found = self._examine(program, None, some, 0, 0, verdict)
        if found.why:
            return False
        numbers = self._numbers_of(program, last, found.kinds)
        positions = np.searchsorted(rows, some)
        before, after = last.verdict[positions].tolist(), [numbers[at] for at in verdict.tolist()]
        if before != after:
            for old, new in zip(before, after, strict=True):
                last.counts[old] -= 1
                last.counts[new] += 1
            last.verdict = last.verdict.copy()
            last.verdict[positions] = after
            last.moves += 1
        return True

    def following(self, info: PodInfo) -> LastDiagnosis | None:
        """Return the last diagnosis of a class, updated; ``None`` if there is none.

        While it is the same object with the same ``moves``, no row's first rejection has changed.
        There is one only if filters that read single rows reject all rows, and no pod is nominated.
        """
        snapshot, program = self._snapshot, self._programs.get(info.index)
        if (
            program is None
            or program.info is not info
            or program.last is None
            or not self._rows_first(program.skips)
            or snapshot.has_any_nomination
            or program.stamp != stamp(snapshot, program.skips, info)
        ):
            return None
        if not self._follow(program, program.last):
            program.last = None
        return program.last

    def _rows_first(self, skips: tuple[str, ...]) -> bool:
        """Return whether filters that read single rows come before all other filters.

        ``skips``: the filters that PreFilter skipped.
        """
        found = self._are_rows_first.get(skips)
        if found is None:
            order = [
                _looks_beyond_rows(plugin)
                for plugin in self._framework.filter_plugins
                if id(plugin) in self._kinds and plugin.name not in skips
            ]
            found = self._are_rows_first[skips] = order == sorted(order)
        return found

    def judge(self, state: CycleState, info: PodInfo, rows: Rows) -> Filtered | None:
        """Return the outcome of Filter for rows; pods nominated to a row count there.

        ``None`` if a filter cannot be written as arrays.

        Args:
            state: the cycle state after PreFilter.
            info: the pod's class.
            rows: the rows that PreFilter left.

        Raises:
            PluginFailed: a plugin failed.
        """
        program = self.program(state, info)
        if program is None:
            return None
        verdict = np.zeros(len(rows), np.int32)
        found = self._examine(program, state.pod_key, rows, 0, row_arguments.ALL_ROWS, verdict)
        if found.why:
            return None
        statuses = [SUCCESS, *map(program.status, self._codes[: found.kinds].tolist())]
        number_of: dict[Status, int] = {}
        numbers = [number_of.setdefault(status, len(number_of)) for status in statuses]
        return Filtered(rows, np.array(numbers, np.int32)[verdict], tuple(number_of))

    def find_victims(
        self, state: CycleState, info: PodInfo, rows: Rows, *, begin: int, enough: int
    ) -> Victims | None:
        """Return the victims on each of the rows; ``None`` without a program.

        See ``framework.interface.VictimSearch``.

        Raises:
            PluginFailed: a plugin failed.
        """
        program = None if self._extended else self.program(state, info)
        if program is None:
            return None
        follows = program.stays_in_rows and self._snapshot.nominations.number_of(state.pod_key) < 0
        if follows and not state.tells_candidates:
            best = self._best_candidate(program, rows, begin, enough)
            if best is not None:
                return Victims(best=best, candidates=(best,))
        verdict = np.zeros(len(rows), np.int32)
        found = self._examine(program, state.pod_key, rows, begin, enough, verdict)
        if found.why:
            return None
        all_of_them = state.tells_candidates
        chosen = range(found.candidates) if all_of_them else [found.best] * (found.best >= 0)
        candidates = [self._candidate(rows, found, number) for number in chosen]
        best = None
        if candidates:
            best = candidates[found.best] if all_of_them else candidates[0]
        codes = self._codes[: found.kinds].tolist()
        nobody, no_need = 0, []
        counts: list[tuple[Status, int]] = []
        for number, (code, count) in enumerate(
            zip(codes, self._numbers[: found.kinds].tolist(), strict=True)
        ):
            if code == row_arguments.NO_NEED:
                no_need = rows[verdict == number + 1].tolist()
            elif code == row_arguments.NO_VICTIMS:
                nobody = count
            else:
                counts.append((program.status(code), count))
        fine = [one for one in candidates if not one.pdb_violations]
        others = [one for one in candidates if one.pdb_violations]
        return Victims(
            best=best,
            candidates=(*fine, *others),
            rejections=tuple(counts),
            without_victims=nobody,
            without_need=tuple(map(self._snapshot.node_name, no_need)),
        )

    def _best_candidate(
        self, program: FilterProgram, rows: Rows, begin: int, enough: int
    ) -> Candidate | None:
        """Return the candidate of lowest cost, from the cached cost by row; ``None``: none."""

        def examine(some: Rows) -> row_arguments.Examination:
            verdict = np.zeros(len(some), np.int32)
            return self._examine(program, None, some, 0, len(some), verdict)

        by_row = self._victims.get(program.info.index)
        if by_row is None or by_row.program is not program:
            if len(self._victims) >= self._MOST_VICTIMS:
                self._victims.clear()
            by_row = self._victims[program.info.index] = VictimsByRow(self._snapshot, program)
        by_row.follow()
        row = by_row.best(rows, examine, begin=begin, least_count=enough)
        if row is None:
            return None
        only = np.array([row], np.intp)
        return self._candidate(only, examine(only), 0)

    def _candidate(self, rows: Rows, found: row_arguments.Examination, number: int) -> Candidate:
        room = found.room
        first = int(room.end[number - 1]) if number else 0
        slots = room.victims[first : int(room.end[number])].tolist()
        return Candidate(
            node_name=self._snapshot.names[int(rows[room.position[number]])],
            victims=tuple(self._snapshot.records(slots)),
            pdb_violations=int(room.violations[number]),
        )

    def _room_for(
        self, candidates: int, pods: int, budgets: row_arguments.Budgets, *, checks: int, terms: int
    ) -> row_arguments.Room:
        """Return arrays for a search; the next search overwrites them."""
        room = self._room
        sizes = (candidates, pods, checks, terms)
        if len(room.left) != len(budgets.allowed) or any(map(gt, sizes, self._room_sizes)):
            most = [max(new, old) for new, old in zip(sizes, self._room_sizes, strict=True)]
            self._room_sizes = (most[0], most[1], most[2], most[3])
            room = self._room = row_arguments.room_to_work(len(budgets.allowed), *self._room_sizes)
        room.left[:] = budgets.allowed
        return room

    def _examine(
        self,
        program: FilterProgram,
        key: Hashable,
        rows: Rows,
        begin: int,
        enough: int,
        verdict: Int32,
    ) -> row_arguments.Examination:
        snapshot = self._snapshot
        nominations = snapshot.nominations
        placed, budgets = row_arguments.PlacedPods(*snapshot.slot_columns()), self._budgets.arrays()
        terms = program.terms()
        searches = enough > 0
        room = self._room_for(
            len(rows) if searches else 0, len(placed.following) if searches else 0,
            budgets, checks=len(program.rules.amounts), terms=len(terms.columns),
        )  # fmt: skip
        found = _examine(
            rows,
            begin,
            enough,
            program.info.priority,
            nominations.number_of(key),
            row_arguments.Nodes(
                snapshot.allocatable, snapshot.requested, snapshot.allowed_pods, snapshot.pod_count
            ),
            placed,
            row_arguments.Classes(*snapshot.class_columns()),
            row_arguments.NominatedPods(nominations.first, nominations.following, nominations.kind),
            program.rules,
            terms,
            budgets,
            snapshot.name_rank() if searches else _NO_RANK,
            row_arguments.Verdicts(verdict, self._codes, self._numbers),
            room,
        )
        return row_arguments.Examination(*found, room)


_NO_RANK = np.zeros(0, np.int32)


def _kind(plugin: Filter) -> int | None:
    """Return the kind of step that a filter becomes, ``None`` if it declares nothing."""
    if looks_at_nodes(plugin):
        return row_arguments.STATIC
    if isinstance(plugin, RequestFilter):
        return row_arguments.FIT
    if isinstance(plugin, CountedFilter):
        return row_arguments.COUNT
    if isinstance(plugin, AffinityTerms):
        return row_arguments.AFFINITY
    return row_arguments.SPREAD if isinstance(plugin, SpreadTerms) else None


def _looks_beyond_rows(plugin: Filter) -> bool:
    return _kind(plugin) not in (row_arguments.STATIC, row_arguments.FIT, row_arguments.COUNT)


def _compile() -> None:
    """Compile or load the loop for its argument types, by a call with no rows."""
    snapshot = Snapshot(capacity=4)
    programs = RowPrograms(snapshot, Framework(Profile(), {}))
    info = snapshot.intern(from_pod(Pod()))
    program = FilterProgram(snapshot, programs._framework, info, CycleState(), {})
    rows = snapshot.rows()
    programs._examine(program, None, rows, 0, 0, np.zeros(0, np.int32))
