"""The rules of classes that look at other pods, as numbers for the compiled loop.

A *program* is what ``engine.plain`` needs beside a line to decide for such a class: its count terms
(``framework.terms.Term``) and which plugins score by them. Lines stay shared by all classes that
request the same; a program adds, per *group* of rows (``plain_run.Plan``: rows that are alike in
topology and in what plugins say of nodes), what the terms say there, and it lists its *exceptions*:
rows that hold pods which a term counts by row, as terms about hostnames do. So nothing of a program
is as long as the node table, and a thousand Deployments behind Services cost little more than one.

Not covered, and left to ``engine.runs``: affinity and hard constraints by row, counts by row that
only some nodes take part in, more than ``EXCEPTIONS`` rows.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from scheduling.engine.plain_run import DYNAMIC, REFUSALS, Plan, Program
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int32, Int64, Mask
from scheduling.framework.interface import CycleState, Plugin, PreFilter, PreScore, Score
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Code, Status
from scheduling.framework.tables import Counter
from scheduling.framework.terms import (
    AffinityTerms,
    Kind,
    Rejection,
    ScaledScore,
    SpreadTerms,
    Term,
)
from scheduling.framework.types import PodInfo

if TYPE_CHECKING:
    from scheduling.engine.slots import Slots

GROUPS: Final = 64
EXCEPTIONS: Final = 192
WATCHES: Final = 3
RULES: Final = 8
FORM: Final = 10
_FULL: Final = 160
"""With so many exceptions a class is not covered: a run must have room for more."""
_MOST: Final = 8192
_NOWHERE: Final = np.zeros(0, np.intp)
FILTERING: Final = (Kind.NEAR, Kind.ANTI, Kind.EXISTING, Kind.HARD)
_NOT_BY_ROW: Final = (Kind.NEAR, Kind.HARD)


class Stated(msgspec.Struct, kw_only=True):
    """What plugins with terms say of a class.

    ``keys``: label keys whose values tell groups apart; with ``True`` only whether there is one.
    ``scoring``: plugins that score by terms. ``refusals``: what they say, by number of the loop's.
    """

    terms: list[Term]
    watches: list[Counter]
    watch_of: list[int]
    keys: tuple[tuple[str, bool], ...]
    scoring: dict[str, Plugin]
    refusals: list[Status]
    affinity_first: bool


class _Local(msgspec.Struct):
    """A class of a run: its place among those of the run."""

    line: int
    info: PodInfo


class Programs:
    """The programs of one profile over one snapshot, until its nodes change."""

    def __init__(self, snapshot: Snapshot, framework: Framework | None) -> None:
        self._snapshot = snapshot
        self._filters: set[str] = set()
        self._scores: set[str] = set()
        self._begins: dict[str, PreFilter] = {}
        self._prepares: dict[str, PreScore] = {}
        self._affinities: dict[str, AffinityTerms] = {}
        self._spreads: dict[str, SpreadTerms] = {}
        self._refusals: dict[str, list[Status]] = {}
        self._scaled = {
            plugin.name: plugin.scaled_in_reverse
            for plugin in (() if framework is None else framework.score_plugins)
            if isinstance(plugin, ScaledScore)
        }
        for plugin in () if framework is None else framework.filter_plugins:
            told: tuple[Rejection, ...] = ()
            if isinstance(plugin, AffinityTerms):
                self._affinities[plugin.name] = plugin
                told = plugin.affinity_rejections
            elif isinstance(plugin, SpreadTerms):
                self._spreads[plugin.name] = plugin
                told = plugin.spread_rejections
            self._refusals[plugin.name] = [Status(*one, plugin.name) for one in told]
        if framework is not None:
            self._framework = framework
            self._filters = {plugin.name for plugin in framework.filter_plugins}
            self._scores = {plugin.name for plugin in framework.score_plugins}
            self._begins = {plugin.name: plugin for plugin in framework.pre_filter_plugins}
            self._prepares = {plugin.name: plugin for plugin in framework.pre_score_plugins}
        self._programs: list[Program] = []
        self._number_of: dict[int, int] = {}
        self._allocate(0)

    @cached_property
    def slots(self) -> "Slots":
        """Counts by label value; made when first used, for to make them loads the loops."""
        from scheduling.engine.slots import Slots

        return Slots(self._snapshot)

    def _allocate(self, size: int) -> None:
        """Make room for ``size`` programs, keeping those there are."""
        units = GROUPS + EXCEPTIONS
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "exceptions": ((), np.int32),
            "row": ((EXCEPTIONS,), np.int32),
            "plan": ((DYNAMIC, 3), np.int64),
            "raw": ((DYNAMIC, GROUPS), np.int64),
            "full": ((), np.bool_),
            "form": ((FORM,), np.int64),
            "rules": ((RULES, 8), np.int64),
            "place": ((RULES, GROUPS), np.int32),
            "values": ((units, WATCHES), np.int64),
            "base": ((units,), np.int32),
            "size": ((units,), np.int32),
        }
        before = getattr(self, "_arrays", {})
        made = {}
        for name, (shape, kind) in shapes.items():
            made[name] = np.zeros((size, *shape), kind)
            if name in before:
                made[name][: len(before[name])] = before[name]
        self._arrays: dict[str, Any] = made

    # --- compiling -------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether it is time to begin anew."""
        return len(self._programs) >= _MOST

    def state(self, info: PodInfo, wanting: Sequence[Plugin]) -> Stated | None:
        """Return what plugins with terms say of a class, ``None`` where that is not covered.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot = self._snapshot
        rows = snapshot.rows()[:0]
        terms: list[Term] = []
        scoring: dict[str, Plugin] = {}
        refusals = [Status()] * REFUSALS
        order: list[str] = []
        for plugin in wanting:
            begins = self._begins.get(plugin.name)
            if begins is not None:
                status = begins.pre_filter(CycleState(), info, snapshot)[1]
                if not status.ok and status.code is not Code.SKIP:
                    return None
            filtering = plugin.name in self._filters
            scores = plugin.name in self._scores
            untouched = False
            prepares = self._prepares.get(plugin.name)
            spread: list[Term] = []
            if plugin.name in self._spreads:
                spread = self._spreads[plugin.name].spread_terms(info, snapshot)
            if scores and prepares is not None and not any(t.kind is Kind.SOFT for t in spread):
                none = np.zeros(0, np.int64)
                status = prepares.pre_score(CycleState(), info, snapshot, rows, none)
                untouched = status.code is Code.SKIP
                if not status.ok and not untouched:
                    return None
                scores = not untouched
            affinity = self._affinities.get(plugin.name)
            if affinity is not None:
                stated = affinity.affinity_terms(info, snapshot)
                if untouched:
                    terms += affinity.untouched_terms(info, snapshot)
                refusals[2:] = self._refusals[plugin.name]
                order.append("affinity")
            elif plugin.name in self._spreads:
                stated = spread
                refusals[:2] = self._refusals[plugin.name]
                order.append("spread")
            else:
                return None
            terms += [t for t in stated if (filtering if t.kind in FILTERING else scores)]
            if scores:
                scoring[plugin.name] = plugin
        return self._sorted_out(terms, scoring, refusals, affinity_first=order[:1] == ["affinity"])

    def _sorted_out(
        self,
        terms: list[Term],
        scoring: dict[str, Plugin],
        refusals: list[Status],
        *,
        affinity_first: bool,
    ) -> Stated | None:
        """Find out which terms are by row, and which labels tell groups apart."""
        if len(terms) > RULES:
            return None
        watches: list[Counter] = []
        watch_of: list[int] = []
        keys: dict[tuple[str, bool], None] = {}
        alive = self._snapshot.rows()
        for term in terms:
            table = term.table
            watch = -1
            if term.kind is Kind.UNTOUCHED:
                pass
            elif not term.single:
                keys[table.column.key, False] = None
            else:
                if term.kind in _NOT_BY_ROW or not (term.whole or table.eligible is None):
                    return None
                if table.counter not in watches:
                    watches.append(table.counter)
                watch = watches.index(table.counter)
                if not table.column.everywhere(alive, self._snapshot.node_version):
                    keys[table.column.key, True] = None
            watch_of.append(watch)
        if len(watches) > WATCHES:
            return None
        return Stated(
            terms=terms,
            watches=watches,
            watch_of=watch_of,
            keys=tuple(sorted(keys)),
            scoring=scoring,
            refusals=refusals,
            affinity_first=affinity_first,
        )

    def make(self, info: PodInfo, stated: Stated, plan: Plan) -> Program | None:
        """Write a class's program; ``None`` where there is no room.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, framework = self._snapshot, self._framework
        versions = (snapshot.node_version, snapshot.peer_version)
        if self.slots.versions != versions:
            self.slots.clear()
        slots = [
            0 if watch >= 0 else self.slots.of_term(term)
            for term, watch in zip(stated.terms, stated.watch_of, strict=True)
        ]
        if -1 in slots:
            return None
        names: list[str] = []
        sources: list[int] = []
        dynamic: list[tuple[Score, int]] = []
        lines = dict(zip(plan.names, plan.lines, strict=True))
        for plugin in framework.score_plugins:
            line = lines.get(plugin.name)
            if line is None and plugin.name not in stated.scoring:
                continue
            names.append(plugin.name)
            if line is None or line < 0:
                dynamic.append((plugin, framework.weights[plugin.name]))
                line = -len(dynamic)
            sources.append(line)
        if len(dynamic) > DYNAMIC:
            return None
        number = self._place(info)
        arrays = self._arrays
        groups = plan.keyed
        form = arrays["form"][number]
        form[:] = 0
        form[2], form[3], form[4], form[5] = groups, len(slots), len(stated.watches), len(dynamic)
        form[7] = stated.affinity_first
        at_rows = plan.group_rows
        for at, (term, slot, watch) in enumerate(
            zip(stated.terms, slots, stated.watch_of, strict=True)
        ):
            arrays["rules"][number, at] = (
                term.kind, slot, watch, term.matches_self, term.max_skew, term.from_zero,
                term.by_size, term.all_keys,
            )  # fmt: skip
            ids = term.table.column.ids[at_rows]
            arrays["place"][number, at, :groups] = np.minimum(ids, 0) if watch >= 0 else ids
        for at, (plugin, weight) in enumerate(dynamic):
            if plugin.name in self._scaled:
                arrays["plan"][number, at] = (3 if self._scaled[plugin.name] else 2, 0, weight)
                raw = plan.raw.get(plugin.name)
                if raw is None:
                    raw = framework.score_one(plugin, CycleState(), info, snapshot, at_rows)[0]
                    plan.raw[plugin.name] = raw
                arrays["raw"][number, at, :groups] = raw
            else:
                source = 4 if plugin.name in self._affinities else 5
                arrays["plan"][number, at] = (source, 0, weight)
        arrays["values"][number, :groups] = 0
        arrays["base"][number, :groups] = np.arange(groups)
        arrays["exceptions"][number] = 0
        arrays["full"][number] = False
        asked_again = [
            term.table.counter
            for term in stated.terms
            if term.kind in (Kind.SCORED, Kind.UNTOUCHED)
        ]
        program = self._programs[number] = Program(
            number=number,
            info=info,
            names=tuple(names),
            sources=sources,
            refusals=stated.refusals,
            slots=tuple(
                slot for slot, watch in zip(slots, stated.watch_of, strict=True) if watch < 0
            ),
            watches=stated.watches,
            seen=-1,
            asked_again=asked_again,
            asked_at=_changes(asked_again),
            scoring=stated.scoring,
        )
        return program if self.sync(program) else None

    def _place(self, info: PodInfo) -> int:
        number = self._number_of.get(info.index)
        if number is None:
            number = self._number_of[info.index] = len(self._programs)
            if number >= len(self._arrays["full"]):
                self._allocate(max(64, 2 * number))
            self._programs.append(None)  # type: ignore[arg-type]
        return number

    # --- following -------------------------------------------------------------------------------

    def holds(self, program: Program) -> bool:
        """Return whether a program still says which plugins score; it does while none is made."""
        if not program.asked_again:
            return True
        now = _changes(program.asked_again)
        if now == program.asked_at:
            return True
        rows, none = self._snapshot.rows()[:0], np.zeros(0, np.int64)
        for name in self._affinities:
            plugin = self._prepares.get(name)
            if plugin is not None and name in self._scores:
                state = CycleState()
                status = plugin.pre_score(state, program.info, self._snapshot, rows, none)
                if (status.code is not Code.SKIP) != (name in program.scoring):
                    return False
        program.asked_at = now
        return True

    def sync(self, program: Program) -> bool:
        """Make a program's exceptions again if counters changed; False: there are too many."""
        now = _changes(program.watches)
        if program.seen == now:
            return True
        program.seen = -1
        arrays, number = self._arrays, program.number
        busy = [np.flatnonzero(c.rows) for c in program.watches if c.changes]
        if not busy:
            rows = _NOWHERE
        else:
            rows = busy[0] if len(busy) == 1 else np.unique(np.concatenate(busy))
        if len(rows) > _FULL:
            return False
        groups = int(arrays["form"][number, 2])
        arrays["row"][number, : len(rows)] = rows
        for watch, counter in enumerate(program.watches):
            arrays["values"][number, groups : groups + len(rows), watch] = counter.rows[rows]
        arrays["exceptions"][number] = len(rows)
        arrays["full"][number] = False
        program.seen = now
        return True

    # --- running ---------------------------------------------------------------------------------

    def prepare(
        self, infos: Sequence[PodInfo], programs: Sequence[Program], of_pod: Int32, who: Int32,
        loops: Any,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """Return programs, terms and counts as the loop takes them.

        Args:
            infos: the classes of the run.
            programs: those of them that have one.
            of_pod: the program of each pod, -1 for none.
            who: the place of each pod's class in ``infos``.
            loops: the module ``compiled.plain``.
        """
        used = {slot for program in programs for slot in program.slots}
        local = [_Local(number, info) for number, info in enumerate(infos)]
        self.slots._bumps = None
        self.slots.prepare(used, local, max(len(local), 1), 0)
        marks = self._marks(infos, programs)
        arrays = self._arrays
        programs_ = loops.Programs(
            of_pod, who, *[arrays[n] for n in ("exceptions", "row", "plan", "raw", "full")], *marks
        )
        counted = self.slots.arrays
        terms = loops.Terms(
            *[arrays[n] for n in ("form", "rules", "place", "values", "base", "size")],
            counted.slots, counted.counts,
        )  # fmt: skip
        return programs_, terms, counted

    def _marks(
        self, infos: Sequence[PodInfo], programs: Sequence[Program]
    ) -> tuple[Int64, Int64, Int32, Int32, Int64]:
        """Return who marks which watch of which program."""
        watchers: dict[int, list[tuple[int, int]]] = {}
        for program in programs:
            for watch, counter in enumerate(program.watches):
                watchers.setdefault(id(counter), []).append((program.number, watch))
        first = np.zeros(max(len(infos), 1), np.int64)
        last = np.zeros(max(len(infos), 1), np.int64)
        found: list[tuple[int, int, int]] = []
        if watchers:
            for number, info in enumerate(infos):
                first[number] = len(found)
                for counter, weight in self._snapshot.counted_by(info):
                    for program_number, watch in watchers.get(id(counter), ()):
                        found.append((program_number, watch, weight))
                last[number] = len(found)
        table = np.array(found, np.int64).reshape(-1, 3)
        return (
            first, last, table[:, 0].astype(np.int32), table[:, 1].astype(np.int32),
            np.ascontiguousarray(table[:, 2]),
        )  # fmt: skip

    def ran(self, programs: Sequence[Program]) -> None:
        """Note that the loop followed what it placed, and the snapshot's counters as well."""
        self.slots.ran({slot for program in programs for slot in program.slots})
        full: Mask = self._arrays["full"]
        for program in programs:
            program.seen = -1 if full[program.number] else _changes(program.watches)


def _changes(counters: Sequence[Counter]) -> int:
    return sum([counter.changes for counter in counters])
