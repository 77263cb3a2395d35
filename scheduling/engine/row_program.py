"""What the filters of a profile say of rows, in numbers: for diagnoses and for preemption.

A pod that fits nowhere needs two answers about many rows: why each rejects the pod, and which pods
of lower priority would have to leave it. ``RowPrograms`` writes the filters of a class as arrays
once (a *program*) and has ``compiled.rows`` apply them, so that neither answer makes an object per
node or per pod. The program holds until labels, taints, the set of nodes or the kinds of pods
change; counts and amounts are read anew each time. While pods are nominated, the reference path has
its Filter answered here too: to ask every plugin about each node with and without its nominated
pods takes 0.1 ms a node.

A filter takes part by what it states (``framework.terms``, ``Locality.NODE``); where one states
nothing, there is no program and the callers take the reference path, which asks every plugin about
every row.
"""

from collections.abc import Hashable, Mapping, Sequence

import msgspec
import numpy as np

from clusterstate.objects.pod import Pod
from scheduling.engine.budgets import BudgetArrays
from scheduling.engine.compiled import rows as loop
from scheduling.engine.requirements import from_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int16, Int32, Int64, Mask
from scheduling.framework.configuration import Profile
from scheduling.framework.interface import CycleState, Filter, Rows, looks_at_nodes
from scheduling.framework.runtime import Filtered, Framework
from scheduling.framework.status import SUCCESS, Status
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
from scheduling.framework.types import Candidate, PodInfo, Victims

_NO_MINIMUM = 2**31 - 1
_MOST_CHECKS = 15
"""Two bits for each amount and one for places must fit into ``loop.STEP_BITS``."""
_AFFINITY_KINDS = {Kind.NEAR: loop.NEAR, Kind.ANTI: loop.ANTI, Kind.EXISTING: loop.EXISTING}

_examine = loop.examine


def warm() -> bool:
    """Have the loop compiled, or loaded from disk; return whether it is.

    Raises:
        ImportError: Numba does not load here.
    """
    global _examine  # noqa: PLW0603
    if _examine is loop.examine:
        from scheduling.engine.compiled import arithmetic, caching  # noqa: F401  # formulas

        _examine = caching.outer(loop.examine)
        with caching.one_at_a_time(_examine):
            _compile()
    return True


def cool() -> None:
    """Take the plain Python again."""
    global _examine  # noqa: PLW0603
    _examine = loop.examine


def enabled() -> bool:
    """Return whether the loop is compiled; as plain Python it takes about 50 times as long."""
    return _examine is not loop.examine


class _Term(msgspec.Struct, frozen=True):
    """A count that the program looks at; ``table`` is ``None`` where it is by row."""

    counter: Counter
    stated: Term | None = None


class Diagnosed(msgspec.Struct):
    """The last diagnosis of a class, for the next one to follow the rows that were touched.

    ``verdict`` int32 (rows,): index into ``statuses``; shared with what was returned, so never
    written to. ``counts``: how many rows have each status. ``cursor``: position in the log.
    ``moves``: how often the rejection of some row became another one since.
    """

    rows: Rows
    verdict: Int32
    statuses: list[Status]
    counts: list[int]
    cursor: int
    number_of: dict[Status, int]
    moves: int = 0

    def filtered(self) -> Filtered:
        """Return the diagnosis, with the statuses that some row has."""
        verdict, counts = self.verdict, self.counts
        used = [number == 0 or counts[number] > 0 for number in range(len(counts))]
        if not all(used):
            verdict = (np.cumsum(used, dtype=np.int32) - 1)[verdict]
        statuses = [status for status, is_used in zip(self.statuses, used, strict=True) if is_used]
        left = [count for count, is_used in zip(counts, used, strict=True) if is_used]
        return Filtered(self.rows, verdict, tuple(statuses), tuple(left))


class _Step(msgspec.Struct, frozen=True):
    """A filter, or several that depend on nodes alone: how their rejections read."""

    plugin: Filter
    statuses: tuple[Status, ...] = ()
    told: tuple[Rejection, ...] = ()


class Program:
    """The filters of one profile for one class over one state of the nodes.

    Args:
        snapshot: the nodes.
        framework: the profile.
        info: the class.
        state: as PreFilter left it.
        kinds: of the profile's filters, from ``RowPrograms``.

    ``usable`` is false where a filter cannot be stated in numbers.

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
        self._compares = False
        self._steps: list[_Step] = []
        self._rows: list[tuple[int, int, int]] = []
        self._static: list[Int16] = []
        self._terms: list[_Term] = []
        self._checks: list[tuple[int, int]] = []
        self._told: dict[int, Status] = {}
        self.kept: Diagnosed | None = None
        self._plan(kinds, state)
        # Versions are read last: asking for tables may have made new kinds known.
        self.skips = tuple(sorted(state.skip_filter))
        self.stamp = stamp(snapshot, self.skips, info)
        if self.usable:
            self._write()

    def _plan(self, kinds: Mapping[int, int], state: CycleState) -> None:
        """Sort out the filters, in their order."""
        snapshot, info = self._snapshot, self.info
        of_nodes: list[Filter] = []
        for plugin in self._framework.filter_plugins:
            if plugin.name in state.skip_filter:
                continue
            kind = kinds.get(id(plugin), -1)
            if kind == loop.STATIC:
                of_nodes.append(plugin)
                continue
            self._judge_nodes(of_nodes, state)
            of_nodes = []
            if isinstance(plugin, RequestFilter) and kind == loop.FIT and not self._compares:
                self._compares = True
                self._checks = plugin.request_checks(info, snapshot)
                self._rows.append((loop.FIT, 0, 0))
                self._steps.append(_Step(plugin))
                self.usable = self.usable and len(self._checks) <= _MOST_CHECKS
            elif isinstance(plugin, CountedFilter) and kind == loop.COUNT:
                counter, told = plugin.rejecting_counter(info, snapshot)
                self._add(plugin, loop.COUNT, [_Term(counter)], (told,))
            elif isinstance(plugin, AffinityTerms) and kind == loop.AFFINITY:
                terms = [
                    _Term(term.table.counter, term)
                    for term in plugin.affinity_terms(info, snapshot)
                    if term.kind in _AFFINITY_KINDS
                ]
                self._add(plugin, loop.AFFINITY, terms, plugin.affinity_rejections)
            elif isinstance(plugin, SpreadTerms) and kind == loop.SPREAD:
                terms = [
                    _Term(term.table.counter, term)
                    for term in plugin.spread_terms(info, snapshot)
                    if term.kind is Kind.HARD
                ]
                self._add(plugin, loop.SPREAD, terms, plugin.spread_rejections)
            else:
                self.usable = False
                return
        self._judge_nodes(of_nodes, state)

    def _judge_nodes(self, plugins: Sequence[Filter], state: CycleState) -> None:
        """Ask filters that depend on nodes alone about every row, once."""
        if not plugins:
            return
        snapshot = self._snapshot
        every = snapshot.rows()
        judged = self._framework.filter_some(plugins, state, self.info, snapshot, every)
        if len(judged.statuses) == 1:
            return
        line = np.zeros(snapshot.capacity, np.int16)
        line[every] = judged.verdict
        self._rows.append((loop.STATIC, len(self._static), 0))
        self._static.append(line)
        self._steps.append(_Step(plugins[0], statuses=judged.statuses))

    def _add(
        self, plugin: Filter, kind: int, terms: Sequence[_Term], told: tuple[Rejection, ...]
    ) -> None:
        first = len(self._terms)
        self._terms += terms
        self._rows.append((kind, first, len(self._terms)))
        self._steps.append(_Step(plugin, told=told))

    @property
    def stays_in_rows(self) -> bool:
        """Whether the pods of one row do not matter to another row."""
        return all(kind in (loop.STATIC, loop.FIT, loop.COUNT) for kind, _, _ in self._rows)

    # --- arrays ----------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write what holds as long as the stamp does."""
        snapshot, terms = self._snapshot, self._terms
        capacity = snapshot.capacity
        checks = self._checks
        self.rules = loop.Rules(
            np.array(self._rows, np.int64).reshape(len(self._rows), 3),
            np.array(self._static, np.int16).reshape(len(self._static), capacity),
            np.array([amount for amount, _ in checks], np.int64),
            np.array([column for _, column in checks], np.int64),
        )
        self._columns = np.zeros((len(terms), loop.TERM_COLUMNS), np.int64)
        domain = np.zeros((len(terms), capacity), np.int32)
        counted: Mask = np.ones((len(terms), capacity), np.bool_)
        offset = 0
        for number, term in enumerate(terms):
            line, stated = self._columns[number], term.stated
            line[loop.OFFSET] = offset
            if stated is None:
                domain[number] = np.arange(capacity)
                line[loop.LIVE_ONLY] = term.counter.live_only
                offset += capacity
                continue
            table = stated.table
            line[loop.KIND] = _AFFINITY_KINDS.get(stated.kind, 0)
            line[loop.MAX_SKEW] = stated.max_skew
            line[loop.MATCHES_SELF] = stated.matches_self
            line[loop.FROM_ZERO] = stated.from_zero
            # Upstream's dry run takes terminating pods off a spread that it had not counted.
            line[loop.LIVE_ONLY] = term.counter.live_only and stated.kind is not Kind.HARD
            domain[number] = table.column.ids
            if table.eligible is not None:
                counted[number] = table.eligible
            offset += len(table.counts)
        self._counts: Int64 = np.zeros(offset, np.int64)
        self._domain, self._counted = domain, counted
        self._weigh()

    def _weigh(self) -> None:
        """Note what pods weigh in the counts, by the way in which they look to others."""
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

    def terms(self) -> loop.Terms:
        """Return the counts as they are now."""
        snapshot = self._snapshot
        if len(self._seat) != snapshot.peer_total:
            self._weigh()
        for line, term in zip(self._columns, self._terms, strict=True):
            first, stated = int(line[loop.OFFSET]), term.stated
            if stated is None:
                self._counts[first : first + snapshot.capacity] = term.counter.rows
                continue
            counts = stated.table.counts
            self._counts[first : first + len(counts)] = counts
            line[loop.TOTAL] = counts.sum()
            if stated.kind is Kind.HARD:
                there = counts[stated.table.present]
                lowest = there.min(initial=_NO_MINIMUM)
                above = there[there > lowest]
                line[loop.LOWEST] = lowest
                line[loop.AT_LOWEST] = len(there) - len(above)
                line[loop.SECOND] = above.min(initial=_NO_MINIMUM)
        return loop.Terms(
            self._columns, self._counts, self._domain, self._counted, self._seat, self._take
        )

    def status(self, code: int) -> Status:
        """Return the rejection with a code of the loop's."""
        found = self._told.get(code)
        if found is not None:
            return found
        number, local = code >> loop.STEP_BITS, code & ((1 << loop.STEP_BITS) - 1)
        step = self._steps[number]
        plugin = step.plugin
        if step.statuses:
            found = step.statuses[local]
        else:
            if step.told:
                rejection = step.told[local - 1]
            else:
                assert isinstance(plugin, RequestFilter)
                rejection = plugin.request_rejection(self.info, self._snapshot, local)
            found = Status(*rejection, plugin.name)
        self._told[code] = found
        return found


def stamp(snapshot: Snapshot, skips: tuple[str, ...], info: PodInfo) -> Hashable:
    """Return what a program holds for; ``skips``: the filters that PreFilter leaves out."""
    return (
        snapshot.node_version,
        snapshot.peer_version,
        snapshot.peer_stamp(info),
        snapshot.workload_version,
        snapshot.capacity,
        snapshot.allocatable.shape[1],
        *skips,
    )


class RowPrograms:
    """The programs of one profile over one snapshot, by class."""

    _MOST = 256

    def __init__(self, snapshot: Snapshot, framework: Framework) -> None:
        self._snapshot = snapshot
        self._framework = framework
        self._programs: dict[int, Program] = {}
        self._budgets = BudgetArrays(snapshot)
        self._codes = np.zeros(loop.MOST_CODES, np.int64)
        self._numbers = np.zeros(loop.MOST_CODES, np.int64)
        # What follows each pod that comes or goes in a dry run must be asked.
        self._extended = not all(isinstance(plugin, SpreadTerms) for plugin in framework.extensions)
        self._kinds: dict[int, int] = {}
        for plugin in framework.filter_plugins:
            kind = _kind(plugin)
            if kind is not None:
                self._kinds[id(plugin)] = kind
        # Then a row that a filter of single rows rejects is not asked about the pods of others.
        order = [_looks_beyond_rows(plugin) for plugin in framework.filter_plugins]
        self._rows_first = order == sorted(order)

    def program(self, state: CycleState, info: PodInfo) -> Program | None:
        """Return the program of a class, ``None`` if a filter cannot be stated in numbers.

        ``state``: as PreFilter left it.

        Raises:
            PluginFailed: a plugin failed.
        """
        found = self._programs.get(info.index)
        if (
            found is None
            or found.info is not info
            or found.stamp != stamp(self._snapshot, tuple(sorted(state.skip_filter)), info)
        ):
            if len(self._programs) >= self._MOST:
                self._programs.clear()
            found = Program(self._snapshot, self._framework, info, state, self._kinds)
            self._programs[info.index] = found
        return found if found.usable else None

    def diagnose(self, state: CycleState, info: PodInfo, rows: Rows) -> Filtered | None:
        """Return why each of the rows rejects a pod, ``None`` if one may not or none can be asked.

        Args:
            state: as PreFilter left it.
            info: the pod's class.
            rows: those that PreFilter left.

        Raises:
            PluginFailed: a plugin failed.
        """
        program = self.program(state, info)
        if program is None or not len(rows):
            return None
        follows = program.stays_in_rows and self._snapshot.nominations.number_of(state.pod_key) < 0
        kept = program.kept
        if not follows or kept is None or kept.rows is not rows or not self._follow(program, kept):
            kept = self._kept(program, state, rows)
            program.kept = kept if follows else None
        return None if kept is None else kept.filtered()

    def _kept(self, program: Program, state: CycleState, rows: Rows) -> Diagnosed | None:
        """Judge all rows; return ``None`` if one passes or there are too many reasons."""
        verdict = np.zeros(len(rows), np.int32)
        found = self._examine(program, state.pod_key, rows, 0, 0, verdict)
        if found.why:
            return None
        kept = Diagnosed(rows, verdict, [SUCCESS], [0], self._snapshot.log_end, {SUCCESS: 0})
        numbers = self._numbers_of(program, kept, found.kinds)
        for number, count in zip(numbers[1:], self._numbers[: found.kinds].tolist(), strict=True):
            kept.counts[number] += count
        if numbers != list(range(len(numbers))):
            # Different codes may read alike: a status stands in the table once.
            kept.verdict = np.array(numbers, np.int32)[verdict]
        return kept

    def _numbers_of(self, program: Program, kept: Diagnosed, kinds: int) -> list[int]:
        """Return the place among the kept statuses of each code that was found, after a 0."""
        numbers = [0]
        for code in self._codes[:kinds].tolist():
            status = program.status(code)
            number = kept.number_of.setdefault(status, len(kept.statuses))
            if number == len(kept.statuses):
                kept.statuses.append(status)
                kept.counts.append(0)
            numbers.append(number)
        return numbers

    def _follow(self, program: Program, kept: Diagnosed) -> bool:
        """Judge rows again that were touched; return whether that was worth it and none passes."""
        snapshot, rows = self._snapshot, kept.rows
        touched = snapshot.touched_since(kept.cursor)
        if touched is None or len(touched) > len(rows) // 16:
            return False
        kept.cursor = snapshot.log_end
        if not len(touched):
            return True
        some = np.unique(touched).astype(np.intp)
        verdict = np.zeros(len(some), np.int32)
        found = self._examine(program, None, some, 0, 0, verdict)
        if found.why:
            return False
        numbers = self._numbers_of(program, kept, found.kinds)
        positions = np.searchsorted(rows, some)
        before, after = kept.verdict[positions].tolist(), [numbers[at] for at in verdict.tolist()]
        if before != after:
            for old, new in zip(before, after, strict=True):
                kept.counts[old] -= 1
                kept.counts[new] += 1
            kept.verdict = kept.verdict.copy()
            kept.verdict[positions] = after
            kept.moves += 1
        return True

    def following(self, info: PodInfo) -> Diagnosed | None:
        """Return the last diagnosis of a class, brought up to date; ``None`` if that is not known.

        As long as it is the same object with the same ``moves``, the first rejection of every row
        is what it was. Known only where filters that look at single rows reject all of them, and
        no pod is nominated.
        """
        snapshot, program = self._snapshot, self._programs.get(info.index)
        if (
            program is None
            or program.info is not info
            or program.kept is None
            or not self._rows_first
            or snapshot.has_any_nomination
            or program.stamp != stamp(snapshot, program.skips, info)
        ):
            return None
        if not self._follow(program, program.kept):
            program.kept = None
        return program.kept

    def judge(self, state: CycleState, info: PodInfo, rows: Rows) -> Filtered | None:
        """Return what Filter says of rows, with the pods nominated to them counted there as well.

        ``None`` where a filter cannot be stated in numbers.

        Args:
            state: as PreFilter left it.
            info: the pod's class.
            rows: those that PreFilter left.

        Raises:
            PluginFailed: a plugin failed.
        """
        program = self.program(state, info)
        if program is None:
            return None
        verdict = np.zeros(len(rows), np.int32)
        found = self._examine(program, state.pod_key, rows, 0, loop.ALL_ROWS, verdict)
        if found.why:
            return None
        statuses = [SUCCESS, *map(program.status, self._codes[: found.kinds].tolist())]
        number_of: dict[Status, int] = {}
        numbers = [number_of.setdefault(status, len(number_of)) for status in statuses]
        return Filtered(rows, np.array(numbers, np.int32)[verdict], tuple(number_of))

    def find_victims(
        self, state: CycleState, info: PodInfo, rows: Rows, *, begin: int, wanted: int
    ) -> Victims | None:
        """Return who would have to leave which of the rows; ``None`` without a program.

        See ``framework.interface.VictimSearch``.

        Raises:
            PluginFailed: a plugin failed.
        """
        program = None if self._extended else self.program(state, info)
        if program is None:
            return None
        verdict = np.zeros(len(rows), np.int32)
        found = self._examine(program, state.pod_key, rows, begin, wanted, verdict)
        if found.why:
            return None
        told = state.tells_candidates
        chosen = range(found.candidates) if told else [found.best] * (found.best >= 0)
        candidates = [self._candidate(rows, found, number) for number in chosen]
        best = None
        if candidates:
            best = candidates[found.best] if told else candidates[0]
        codes = self._codes[: found.kinds].tolist()
        nobody, no_need = 0, []
        counts: list[tuple[Status, int]] = []
        for number, (code, count) in enumerate(
            zip(codes, self._numbers[: found.kinds].tolist(), strict=True)
        ):
            if code == loop.NO_NEED:
                no_need = rows[verdict == number + 1].tolist()
            elif code == loop.NO_VICTIMS:
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

    def _candidate(self, rows: Rows, found: loop.Found, number: int) -> Candidate:
        first = int(found.end[number - 1]) if number else 0
        slots = found.victims[first : int(found.end[number])].tolist()
        return Candidate(
            node_name=self._snapshot.names[int(rows[found.position[number]])],
            victims=tuple(self._snapshot.records(slots)),
            pdb_violations=int(found.violations[number]),
        )

    def _examine(
        self, program: Program, key: Hashable, rows: Rows, begin: int, wanted: int, verdict: Int32
    ) -> loop.Found:
        snapshot = self._snapshot
        nominations = snapshot.nominations
        return _examine(
            rows,
            begin,
            wanted,
            program.info.priority,
            nominations.number_of(key),
            loop.Nodes(
                snapshot.allocatable, snapshot.requested, snapshot.allowed_pods, snapshot.pod_count
            ),
            loop.Slots(*snapshot.slot_columns()),
            loop.Classes(*snapshot.class_columns()),
            loop.Nominated(nominations.first, nominations.following, nominations.kind),
            program.rules,
            program.terms(),
            self._budgets.arrays(),
            snapshot.name_rank() if wanted > 0 else _NO_RANK,
            loop.Told(verdict, self._codes, self._numbers),
        )


_NO_RANK = np.zeros(0, np.int32)


def _kind(plugin: Filter) -> int | None:
    """Return which kind of step a filter is by what it states, ``None`` if it states nothing."""
    if looks_at_nodes(plugin):
        return loop.STATIC
    if isinstance(plugin, RequestFilter):
        return loop.FIT
    if isinstance(plugin, CountedFilter):
        return loop.COUNT
    if isinstance(plugin, AffinityTerms):
        return loop.AFFINITY
    return loop.SPREAD if isinstance(plugin, SpreadTerms) else None


def _looks_beyond_rows(plugin: Filter) -> bool:
    return _kind(plugin) not in (loop.STATIC, loop.FIT, loop.COUNT)


def _compile() -> None:
    """Compile or load the loop for the arrays that it will get, by a call that does nothing."""
    snapshot = Snapshot(capacity=4)
    programs = RowPrograms(snapshot, Framework(Profile(), {}))
    info = snapshot.intern(from_pod(Pod()))
    program = Program(snapshot, programs._framework, info, CycleState(), {})
    rows = snapshot.rows()
    programs._examine(program, None, rows, 0, 0, np.zeros(0, np.int32))
