"""The rules of classes about other pods, as numbers for the compiled loop.

A *program* is what ``engine.fast.fast_lane`` needs beside a line to decide for such a class: its
count terms (``framework.terms.Term``) and the plugins that score by them. Lines stay shared by all
classes with the same request; a program adds what the terms say per *group* of rows
(``sheets.Sheet``: rows that are alike in topology and in what plugins say of nodes), and lists its
*exceptions*: rows with pods that a term counts by row, as terms about hostnames do. So no array of
a program is as long as the node table, and a thousand Deployments behind Services cost little more
than one.

Some programs are *private*: they have a line of their own, on which rows move from group to group
as the counts on them change. Private are classes with many exceptions, and classes whose rules also
apply to rows without such pods: required affinity and hard constraints by row, counts by row that
include only some nodes, host ports.

The reference path decides classes with more rules, counts by row, scores or groups of rows than fit
into the arrays.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from scheduling.engine.compiled import arguments, layout
from scheduling.engine.compiled.layout import DYNAMIC, EXCEPTIONS, LOW
from scheduling.engine.fast.counter_columns import CounterColumns
from scheduling.engine.fast.program_forms import Form, Forms
from scheduling.engine.fast.sheets import Sheet
from scheduling.engine.fast.statements import (
    FEW_WATCHES,
    FILTERING,
    Alike,
    ClassStatements,
    Statements,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Int16, Int32, Int64, Mask, first_places, numbered_together
from scheduling.framework.interface import Plugin
from scheduling.framework.runtime import Framework
from scheduling.framework.status import Status
from scheduling.framework.tables import Counter
from scheduling.framework.terms import Kind
from scheduling.framework.types import PodInfo

_FEW: Final = 48
_FEW_PRIVATE: Final = 64
"""Up to this many classes with lines of their own, other classes have only ``_FEW`` exceptions."""
_MOST_WATCHES: Final = 8
_MOST_GROUPS: Final = 1024
_SPARE: Final = 32
"""A run must have room for this many more groups than there are now."""
_MOST: Final = 32_768
_FIRST: Final = 1024
"""The number of programs allocated at first: memory that is not touched costs nothing."""
_BYTES: Final = 256 * 2**20
_NOWHERE: Final = np.zeros(0, np.intp)
_CLIPPED: Final = (Kind.NEAR, Kind.ANTI, Kind.EXISTING)
"""Kinds of terms that only ask whether a count is above 0."""
_SHAPES: Final[Mapping[str, tuple[type[np.generic], tuple[str | int, ...]]]] = {
    "exceptions": (np.int32, ()),
    "row": (np.int32, (EXCEPTIONS,)),
    "sheet": (np.int64, (DYNAMIC, 3)),
    "raw": (np.int64, (DYNAMIC, "bases")),
    "shut": (np.int32, ("bases",)),
    "full": (np.bool_, ()),
    "room": (np.int32, ()),
    "private": (np.bool_, ()),
    "watch": (np.int64, ("watches", 2)),
    "taken": (np.int32, ()),
    "members": (np.int32, ("groups",)),
    "form": (np.int64, (layout.FORM,)),
    "rules": (np.int64, ("rules", layout.RULE)),
    "place": (np.int32, ("rules", "bases")),
    "values": (np.int64, ("groups", "watches")),
    "base": (np.int32, ("groups",)),
    "size": (np.int32, ("groups",)),
}
"""The arrays of programs, without the first dimension, which is the program."""


class Program(msgspec.Struct, kw_only=True, eq=False):
    """A class's number in the arrays, and what the loop does not read as numbers.

    ``sources``: for each plugin that scores as in ``Sheet.lines``, but -1, -2 ... for the first,
    second ... plugin that scores by group. ``seen``: the number of changes of the watched counters
    that the exceptions include, -1 if they must be rebuilt. ``private``: it has a line of its own,
    whose rows move between groups as counts by row change. ``grouped``: whether the line has this
    program's groups already; else ``groups`` int16 (rows,) must be written to it. ``taken``: the
    rejection of rows that a counter rules out before NodeResourcesFit runs.
    """

    number: int
    info: PodInfo
    form: Form
    names: tuple[str, ...]
    sources: list[int]
    refusals: list[Status]
    counters: tuple[int, ...]
    watches: list[Counter]
    seen: int
    asked_again: list[Counter]
    """Counters that decide whether a plugin skips its score."""
    asked_at: int
    filtered_by: list[Counter]
    """Counters that filters look at; those of scores are not among them."""
    scoring: dict[str, Plugin]
    private: bool
    taken: Status
    grouped: bool = False
    groups: Int16 | None = None


class _Written(msgspec.Struct, kw_only=True, eq=False):
    """The array entries of a class: ``form``, and the numbers of its counters.

    For a private program, ``watches`` are its counters by row and ``watched`` their number.
    ``watch_of``: the counter that each term looks at, -1 for none.
    """

    form: Form
    counters: list[int]
    watch_of: list[int]
    watches: list[tuple[int, bool]]
    watched: int
    taken: int
    private: bool


class Programs:
    """The programs of one profile over one snapshot."""

    def __init__(self, snapshot: Snapshot, framework: Framework | None) -> None:
        self._snapshot = snapshot
        self._statements = Statements(snapshot, framework)
        self.state, self.alike = self._statements.state, self._statements.alike
        self._forms = Forms(snapshot, framework, self._statements)
        self.counters = CounterColumns(snapshot)
        self._programs: list[Program] = []
        self._number_of: dict[int, int] = {}
        self._private_count = 0
        # Counts the changes of nodes with pods, which may change what is counted by label.
        self._moves = 0
        self._sizes = {"bases": 8, "watches": FEW_WATCHES, "rules": 8, "groups": 8 + EXCEPTIONS}
        self._arrays: dict[str, Any] = {}
        self._allocate(0)

    @property
    def groups(self) -> int:
        """How many groups each program can have, excepted rows included."""
        return self._sizes["groups"]

    def room_to_work(self, blocks: int) -> arguments.Work:
        """Return the working arrays of the loop for these programs and ``blocks`` of rows."""
        return arguments.room_to_work(
            units=self._sizes["groups"], rules=self._sizes["rules"],
            values=self.counters.most_values, blocks=blocks,
        )  # fmt: skip

    def _allocate(self, count: int) -> None:
        """Allocate arrays for ``count`` programs of the present sizes, and copy the old content."""
        made = {}
        for name, (kind, shape) in _SHAPES.items():
            lengths = [self._sizes[of] if isinstance(of, str) else of for of in shape]
            made[name] = np.zeros((count, *lengths), kind)
            before = self._arrays.get(name)
            if before is not None:
                before = before[: len(self._programs)]  # the rest was never written
                made[name][tuple(slice(0, length) for length in before.shape)] = before
        self._arrays = made

    def _reserve(self, **sizes: int) -> None:
        """Grow the named dimensions of the arrays to at least these sizes."""
        wider = {name: size for name, size in sizes.items() if size > self._sizes[name]}
        if wider:
            self._sizes.update({n: max(s, 2 * self._sizes[n]) for n, s in wider.items()})
            self._allocate(len(self._arrays["full"]))

    # --- compiling -------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the arrays reached their limit, so that all programs must be dropped."""
        return (
            len(self._programs) >= _MOST
            or sum([array.nbytes for array in self._arrays.values()]) >= _BYTES
        )

    def make(
        self, info: PodInfo, stated: ClassStatements, sheet: Sheet, *, shut_first: bool
    ) -> Program | None:
        """Write a class's program; return ``None`` if the arrays have no space.

        ``shut_first``: whether the filters that shut groups of the sheet precede the terms.

        Raises:
            PluginFailed: a plugin failed.
        """
        self._follow_versions()
        if not stated.private:
            program = self._make(info, stated, sheet, private=False, shut_first=shut_first)
            if program is None or self.sync(program):
                return program
        return self._make(info, stated, sheet, private=True, shut_first=shut_first)

    def make_alike(
        self, classes: Sequence[tuple[PodInfo, ClassStatements, Sheet, bool]]
    ) -> list[Program | None]:
        """Write the programs of several classes together; none of them may need a private line.

        Each class is given as the arguments of ``make``. Where the result is ``None`` the caller
        tries ``make`` for that class.

        Raises:
            PluginFailed: a plugin failed.
        """
        self._follow_versions()
        made: list[Program | None] = [None] * len(classes)
        of_form: dict[int, list[tuple[int, _Written]]] = {}
        for at, (info, stated, sheet, shut_first) in enumerate(classes):
            written = self._to_write(info, stated, sheet, private=False, shut_first=shut_first)
            if written is not None:
                of_form.setdefault(id(written.form), []).append((at, written))
        for alike in of_form.values():
            numbers = [self._place(classes[at][0]) for at, _ in alike]
            place, first = alike[0]
            counters = np.array([written.counters for _, written in alike], np.int64)
            self._write(np.array(numbers), first, counters, classes[place][2])
            for number, (at, written) in zip(numbers, alike, strict=True):
                info, stated, _, _ = classes[at]
                program = self._program(number, info, stated, written)
                made[at] = program if self.sync(program) else None
        return made

    def make_of_one_form(
        self, alike: Alike, sheet: Sheet, *, shut_first: bool
    ) -> list[Program | None]:
        """Write the programs of classes whose statements differ only in their counters.

        ``sheet`` and ``shut_first``: as for ``make``, the same for all. Where the result is
        ``None`` the caller tries ``make`` for that class.

        Raises:
            PluginFailed: a plugin failed.
        """
        self._follow_versions()
        stated, infos = alike.stated, alike.infos
        made: list[Program | None] = [None] * len(infos)
        if stated.private or any(term.kind is not Kind.SOFT for term in stated.terms):
            return made
        copies = np.zeros((len(infos), len(stated.terms)), np.int64)
        by_value = [at for at, watch in enumerate(stated.watch_of) if watch < 0]
        for at in by_value:
            numbers_of_copies = self.counters.of_terms_alike(stated.terms[at], alike.counters)
            if numbers_of_copies is None:
                return made
            copies[:, at] = numbers_of_copies
        form = self._forms.of(infos[0], stated, sheet, stated.watch_of, shut_first=shut_first)
        if form is None:
            return made
        numbers = [self._place(info) for info in infos]
        written = _Written(
            form=form, counters=[], watch_of=stated.watch_of, watches=[],
            watched=len(stated.watches), taken=-1, private=False,
        )  # fmt: skip
        self._write(np.array(numbers), written, copies, sheet)
        self._arrays["room"][numbers] = self._exceptions_kept()
        used = copies[:, by_value].tolist()
        for at, (info, counter) in enumerate(zip(infos, alike.counters, strict=True)):
            program = self._programs[numbers[at]] = Program(
                number=numbers[at],
                info=info,
                form=form,
                names=form.names,
                sources=form.sources,
                refusals=form.refusals,
                counters=tuple(dict.fromkeys(used[at])),
                watches=[counter] if stated.watches else [],
                seen=-1 if counter.changes else 0,  # no changes: the counter is empty
                asked_again=[],
                asked_at=0,
                filtered_by=[],
                scoring=stated.scoring,
                private=False,
                taken=stated.taken,
            )
            if program.seen == 0 or self.sync(program):
                made[at] = program
        return made

    def _exceptions_kept(self) -> int:
        """Return how many exceptions a program may have; one with more gets a private line."""
        return _FEW if self._private_count < _FEW_PRIVATE else EXCEPTIONS

    def _follow_versions(self) -> None:
        if self.counters.version != self._snapshot.peer_version:
            self.counters.clear()

    def _make(
        self,
        info: PodInfo,
        stated: ClassStatements,
        sheet: Sheet,
        *,
        private: bool,
        shut_first: bool,
    ) -> Program | None:
        written = self._to_write(info, stated, sheet, private=private, shut_first=shut_first)
        if written is None:
            return None
        number = self._place(info)
        self._write(number, written, np.array(written.counters, np.int64), sheet)
        return self._program(number, info, stated, written)

    def _to_write(
        self,
        info: PodInfo,
        stated: ClassStatements,
        sheet: Sheet,
        *,
        private: bool,
        shut_first: bool,
    ) -> "_Written | None":
        """Return the array entries for a class, ``None`` if there is no space."""
        counters = [
            self.counters.of_term(term) if watch < 0 or private else 0
            for term, watch in zip(stated.terms, stated.watch_of, strict=True)
        ]
        taken = -1
        if stated.counter is not None:
            taken = self.counters.of_counter(stated.counter)
            if taken < 0:
                return None
        if -1 in counters:
            return None
        watches: dict[tuple[int, bool], int] = {}
        watch_of = stated.watch_of
        if private:
            watch_of = watch_of.copy()
            for at, (term, counter) in enumerate(zip(stated.terms, counters, strict=True)):
                if watch_of[at] >= 0:
                    watch = (counter, term.kind in _CLIPPED)
                    watch_of[at] = watches.setdefault(watch, len(watches))
            if len(watches) > _MOST_WATCHES:
                return None
        form = self._forms.of(info, stated, sheet, watch_of, shut_first=shut_first)
        if form is None:
            return None
        return _Written(
            form=form, counters=counters, watch_of=watch_of, taken=taken, private=private,
            watches=list(watches), watched=len(watches) if private else len(stated.watches),
        )  # fmt: skip

    def _write(
        self, number: int | Int64, written: "_Written", counters: Int64, sheet: Sheet
    ) -> None:
        """Write the numbers of one program, or of many with the same form and sheet.

        Args:
            number: of the program, or of each.
            written: what they have in common: all but the counters.
            counters: int64 (rules,), or (programs, rules).
            sheet: the sheet of all of them.
        """
        form, bases, rules = written.form, sheet.keyed, counters.shape[-1]
        self._reserve(
            bases=bases, groups=bases + EXCEPTIONS, rules=rules, watches=len(written.watches)
        )
        arrays = self._arrays
        arrays["form"][number] = form.form
        arrays["form"][number, layout.WATCHES] = written.watched
        if rules:
            arrays["rules"][number, :rules] = form.rules
            arrays["rules"][number, :rules, layout.COUNTER] = counters
            arrays["place"][number, :rules, :bases] = form.place
        if form.scored:
            arrays["sheet"][number, : form.scored] = form.sheet
            arrays["raw"][number, : form.scored, :bases] = form.raw
        arrays["shut"][number, :bases] = sheet.shut_groups
        arrays["values"][number, :bases] = 0  # those of excepted rows are set later
        arrays["base"][number, :bases] = form.base
        arrays["exceptions"][number] = 0
        arrays["full"][number] = False
        arrays["taken"][number] = written.taken
        were_private = int(np.count_nonzero(arrays["private"][number]))
        self._private_count += written.private * np.size(number) - were_private
        arrays["private"][number] = written.private
        if written.watches:
            arrays["watch"][number, : len(written.watches)] = written.watches

    def _program(
        self, number: int, info: PodInfo, stated: ClassStatements, written: "_Written"
    ) -> Program:
        """Create and register the ``Program`` of a class whose numbers are in the arrays."""
        form, private = written.form, written.private
        asked_again = [
            term.table.counter
            for term in stated.terms
            if term.kind in (Kind.SCORED, Kind.UNTOUCHED)
        ]
        filtered_by = [t.table.counter for t in stated.terms if t.kind in FILTERING]
        if stated.counter is not None:
            filtered_by.append(stated.counter)
        used = [
            counter
            for counter, watch in zip(written.counters, written.watch_of, strict=True)
            if private or watch < 0
        ]
        if written.taken >= 0:
            used.append(written.taken)
        program = self._programs[number] = Program(
            number=number,
            info=info,
            form=form,
            names=form.names,
            sources=form.sources,
            refusals=form.refusals,
            counters=tuple(dict.fromkeys(used)),
            watches=[] if private else stated.watches,
            seen=-1,
            asked_again=asked_again,
            asked_at=self._moves + _changes(asked_again),
            filtered_by=filtered_by,
            scoring=stated.scoring,
            private=private,
            taken=stated.taken,
        )
        return program

    def group_rows(self, program: Program, sheet: Sheet) -> Int16 | None:
        """Return the group of each row for a private program, int16 (rows,).

        ``None`` if there are more groups than fit into the arrays.
        """
        self.counters.follow(program.counters)
        counted, number = self.counters.arrays, program.number
        rows = np.flatnonzero(sheet.base != LOW)
        watches = int(self._arrays["form"][number, layout.WATCHES])
        values = np.zeros((watches, len(rows)), np.int64)
        for at, (counter, clipped) in enumerate(self._arrays["watch"][number, :watches].tolist()):
            offset, place = counted.counters[counter, [layout.OFFSET, layout.PLACES]]
            found = np.where(counted.where[place, rows] >= 0, counted.counts[offset + rows], 0)
            values[at] = found > 0 if clipped else found
        base = sheet.group[rows].astype(np.int64)
        group_of, groups = numbered_together((base, *values), len(rows))
        if groups + _SPARE > _MOST_GROUPS:
            return None
        member = first_places(group_of, groups)
        self._reserve(groups=groups + _SPARE)
        arrays = self._arrays
        arrays["form"][number, layout.GROUPS] = groups
        arrays["base"][number, :groups] = sheet.group[rows[member]]
        arrays["values"][number] = 0
        arrays["values"][number, :groups, :watches] = values[:, member].T
        arrays["members"][number] = 0
        arrays["members"][number, :groups] = np.bincount(group_of, minlength=groups)
        arrays["full"][number] = False
        group: Int16 = np.zeros(len(sheet.group), np.int16)
        group[rows] = group_of
        return group

    def _place(self, info: PodInfo) -> int:
        number = self._number_of.get(info.index)
        if number is None:
            number = self._number_of[info.index] = len(self._programs)
            if number >= len(self._arrays["full"]):
                self._allocate(max(_FIRST, 2 * number))
            self._programs.append(None)  # type: ignore[arg-type]
        return number

    # --- following -------------------------------------------------------------------------------

    def nodes_changed(self, rows: Sequence[int], sheets: Sequence[Sheet]) -> bool:
        """Apply changes of nodes; return False if all programs must be rebuilt.

        A program whose ``form`` no longer holds must be rebuilt in any case.

        Args:
            rows: the rows of the nodes that changed.
            sheets: the sheets by number.
        """
        if not self.counters.nodes_changed(rows):
            return False
        self._forms.nodes_changed(sheets)
        self._moves += bool(self._snapshot.pod_count[rows].any())
        return True

    def holds(self, program: Program) -> bool:
        """Return whether a program still has the right set of scoring plugins."""
        if not program.asked_again:
            return True
        now = self._moves + _changes(program.asked_again)
        if now == program.asked_at:
            return True
        scoring = {name for name in program.scoring if self._statements.is_affinity(name)}
        if self._statements.affinities_scoring(program.info) != scoring:
            return False
        program.asked_at = now
        return True

    def sync(self, program: Program) -> bool:
        """Update a program's exceptions if counters changed; return False if there are too many."""
        now = _changes(program.watches)
        if program.seen == now or program.private:
            return True
        program.seen = -1
        arrays, number = self._arrays, program.number
        busy = [counter.busy() for counter in program.watches] if now else []
        if not busy:
            rows = _NOWHERE
        elif len(busy) == 1:
            rows = busy[0][0]
        else:
            rows = np.unique(np.concatenate([_NOWHERE, *[there for there, _ in busy]]))
        room = arrays["room"][number] = self._exceptions_kept()
        if 6 * len(rows) > 5 * room:
            return False  # runs need space for more exceptions
        if len(rows):
            groups = int(arrays["form"][number, layout.GROUPS])
            arrays["row"][number, : len(rows)] = rows
            values = arrays["values"][number, groups : groups + len(rows)]
            for watch, (there, weights) in enumerate(busy):
                values[:, watch] = 0
                values[np.searchsorted(rows, there), watch] = weights
        arrays["exceptions"][number] = len(rows)
        arrays["full"][number] = False
        program.seen = now
        return True

    # --- running ---------------------------------------------------------------------------------

    def prepare(
        self, infos: Sequence[PodInfo], programs: Sequence[Program], of_pod: Int32, who: Int32,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """Return programs, terms and counts as arguments of the loop.

        Args:
            infos: the classes of the run.
            programs: the programs of these classes.
            of_pod: the program of each pod, -1 for none.
            who: the position of each pod's class in ``infos``.
        """
        self.counters.prepare({number for one in programs for number in one.counters}, infos)
        arrays = self._arrays
        first, last, of_program, of_watch, weights = self._marks(infos, programs)
        programs_ = arguments.Programs(
            of_pod=of_pod,
            who=who,
            first_mark=first,
            last_mark=last,
            mark_program=of_program,
            mark_watch=of_watch,
            mark_weight=weights,
            **{name: arrays[name] for name in arguments.Programs._fields if name in arrays},
        )
        counted = self.counters.arrays
        terms = arguments.Terms(
            counters=counted.counters,
            counts=counted.counts,
            **{name: arrays[name] for name in arguments.Terms._fields if name in arrays},
        )
        return programs_, terms, counted

    def _marks(
        self, infos: Sequence[PodInfo], programs: Sequence[Program]
    ) -> tuple[Int64, Int64, Int32, Int32, Int64]:
        """Return, by class of a run, which watches of programs its pods change, and by how much.

        First and last mark of each class, int64 (classes,); program and watch of each mark, int32
        (marks,), and the pod's weight, int64 (marks,).
        """
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
        """Mark the programs' copies as current: the loop counted the pods that it placed."""
        self.counters.ran({counter for program in programs for counter in program.counters})
        full: Mask = self._arrays["full"]
        for program in programs:
            program.seen = -1 if full[program.number] else _changes(program.watches)


def _changes(counters: Sequence[Counter]) -> int:
    return sum([counter.changes for counter in counters])
