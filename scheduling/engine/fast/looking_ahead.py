"""Chooses the pods of the next run, compiles their classes and gives them lines.

A run ends before the first pod that the loop cannot decide: one of a class that takes the reference
path, one for which other nominated pods count than for the pods before it, or one for which no line
is free.
"""

from collections.abc import Callable, Hashable, Sequence

from scheduling.engine.compiled.layout import ONCE
from scheduling.engine.fast.compiling import CompiledClass, Compiler
from scheduling.engine.fast.lines import Lines
from scheduling.engine.fast.programs import Program, Programs
from scheduling.engine.fast.sheets import Sheets
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.nominations import NO_PRIORITY
from scheduling.framework.terms import ColumnFilter
from scheduling.framework.types import PodInfo


class Ahead:
    """The pods of a run, and their classes.

    By pod: ``keys``, and ``who``, the position of its class in the lists by class. By class:
    ``infos``, ``lines`` (-1: pinned), ``programs``, and ``counting``, the filters that look at
    columns, one for each amount. ``pins``: the keys of pinned classes, in order. ``columns``: the
    columns of devices and volumes that classes request; ``taken``: what they request that only one
    pod can have (``ColumnRequest.once``). ``made``: lines that must be written before the run.
    ``once``: how many of these are for one pod. ``compiled``: whether the new classes that are like
    known ones were compiled together. ``stamp``: the versions when looking ahead began.
    """

    __slots__ = (
        "columns", "compiled", "counting", "infos", "keys", "lines", "made", "once", "pins",
        "programs", "stamp", "taken", "who",
    )  # fmt: skip

    def __init__(self) -> None:
        self.keys: list[Hashable] = []
        self.who: list[int] = []
        self.infos: list[PodInfo] = []
        self.lines: list[int] = []
        self.programs: list[Program | None] = []
        self.pins: list[bytes] = []
        self.made: list[tuple[int, CompiledClass]] = []
        self.columns: set[int] = set()
        self.counting: list[tuple[ColumnFilter, ...]] = []
        self.taken: set[Hashable] = set()
        self.once = 0
        self.compiled = False
        self.stamp: tuple[int, ...] = ()


class LookAhead:
    """Chooses the pods of runs for one profile over one snapshot.

    Args:
        snapshot: the cluster.
        sheets: the profile's.
        programs: the profile's.
        lines: the profile's.
        compiler: of classes.
        memo_key: the key under which the memo of a class has its compiled form.
        versions: returns the versions for which a compiled class is valid, that of nodes first.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        sheets: Sheets,
        programs: Programs,
        lines: Lines,
        compiler: Compiler,
        memo_key: Hashable,
        versions: Callable[[], tuple[int, ...]],
    ) -> None:
        self._snapshot = snapshot
        self._sheets = sheets
        self._programs = programs
        self._lines = lines
        self._compiler = compiler
        self._memo_key = memo_key
        self._versions = versions
        # The versions at which ``_compile_alike`` last ran, and the peer stamps of the classes it
        # saw.
        self._asked: tuple[tuple[int, ...], dict[int, int]] = (), {}
        self._nominated_at = -1
        self._nominated: list[PodInfo] = []

    def look(self, pods: Sequence[PodToPlace], first: int, most: int, ahead: Ahead) -> None:
        """Fill ``ahead`` with up to ``most`` pods from the ``first`` on that one run can decide.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, keys, who = self._snapshot, ahead.keys, ahead.who
        lowest = snapshot.nominations.lowest_priority
        stamp = ahead.stamp = self._versions()
        place_of: dict[int, int] = {}
        held: set[int] = set()
        last = min(first + most, len(pods))
        for number in range(first, last):
            pod = pods[number]
            info = pod.info
            # Nominated pods count for pods of no higher priority: in a run all of them count, or
            # none.
            if pod.nominated_node or (
                lowest < NO_PRIORITY
                and (info.priority > lowest or snapshot.nominated_node_of(pod.key))
            ):
                return
            place = place_of.get(id(info), -1)
            if place >= 0 and ahead.taken and self._takes(info):
                return  # a pod before it has the same claims
            if place < 0:
                compiled = self._compiled(info, stamp)
                if not self._take_in(info, compiled, stamp, held, ahead):
                    return
                place = place_of[id(info)] = len(ahead.infos) - 1
                if compiled is None and not ahead.compiled:
                    ahead.compiled = True
                    self._compile_alike([pods[at].info for at in range(number, last)], stamp)
            elif 0 <= ahead.lines[place] < ONCE:
                kept = info.memo[self._memo_key]
                assert isinstance(kept, CompiledClass)
                line = self._line(kept, held, ahead.made)
                if line < 0:
                    return
                ahead.lines[place] = line  # the pod before it uses the line too
            keys.append(pod.key)
            who.append(place)

    def _takes(self, info: PodInfo) -> bool:
        """Return whether pods of a class get devices or use volumes that columns count."""
        kept = info.memo[self._memo_key]
        assert isinstance(kept, CompiledClass)
        return bool(kept.asked)

    def _gives(self, compiled: CompiledClass, ahead: Ahead) -> bool:
        """Note which devices and volumes a new class of a run gets.

        Return False if another class may get the same. Nominated pods count with their volumes on
        their own nodes only.
        """
        snapshot = self._snapshot
        for plugin, asked in compiled.asked:
            if not ahead.taken.isdisjoint(asked.once) or snapshot.is_taken(asked.once):
                return False
            if plugin.counts_nominated and any(info.volumes for info in self._nominated_pods()):
                return False
            for column, _ in asked.amounts:
                if column not in ahead.columns:
                    if not all(snapshot.are_apart(column, other) for other in ahead.columns):
                        return False
                    ahead.columns.add(column)
            ahead.taken.update(asked.once)
        return True

    def _compiled(self, info: PodInfo, stamp: tuple[int, ...]) -> CompiledClass | None:
        """Return the valid compiled form of a class, ``None`` if there is none.

        Raises:
            PluginFailed: a plugin failed.
        """
        compiled = info.memo.get(self._memo_key)
        if (
            not isinstance(compiled, CompiledClass)
            or compiled.peer_stamp != self._snapshot.peer_stamp(info)
            or (compiled.stamp != stamp and not self._follows(compiled, stamp))
        ):
            return None
        return compiled

    def _follows(self, compiled: CompiledClass, stamp: tuple[int, ...]) -> bool:
        """Update a compiled class after changes of nodes; False if more than nodes changed."""
        if compiled.sheet is None or compiled.pinned or compiled.stamp[1:] != stamp[1:]:
            return False
        program = compiled.program
        sheet = self._sheets.current(compiled.sheet)
        if sheet is None or (program is not None and not program.form.holds):
            return False
        compiled.sheet, compiled.stamp = sheet, stamp
        return True

    def _compile_alike(self, infos: Sequence[PodInfo], stamp: tuple[int, ...]) -> None:
        """Compile together the uncompiled classes of a run that are like known ones.

        Raises:
            PluginFailed: a plugin failed.
        """
        if self._asked[0] != stamp:
            self._asked = stamp, {}
        asked = self._asked[1]  # once: runs that end early would repeat it
        of_peer = self._snapshot.peer_stamp
        new = [info for info in dict.fromkeys(infos) if asked.get(info.index) != of_peer(info)]
        new = [info for info in new if self._compiled(info, stamp) is None]
        if len(new) > 1:
            asked.update((info.index, of_peer(info)) for info in new)
            for info, compiled in self._compiler.compile_alike(new, stamp):
                info.memo[self._memo_key] = compiled

    def _take_in(
        self,
        info: PodInfo,
        compiled: CompiledClass | None,
        stamp: tuple[int, ...],
        held: set[int],
        ahead: Ahead,
    ) -> bool:
        """Add a class that is new to a run; return False if the run must end before its pods.

        ``compiled``: the result of ``_compiled``.

        Raises:
            PluginFailed: a plugin failed.
        """
        memo_key = self._memo_key
        if compiled is None:
            compiled = info.memo[memo_key] = self._compiler.compile(info, stamp)
            if compiled.stamp != stamp:
                return False  # compiling made a new resource or label known: the next run sees it
        if compiled.sheet is None:
            return False
        if compiled.asked and not self._gives(compiled, ahead):
            return False
        line = -1
        if compiled.pinned:
            ahead.pins.append(compiled.key)
        else:
            if compiled.program is not None:
                programs = self._programs
                if not programs.holds(compiled.program) or not programs.sync(compiled.program):
                    compiled = info.memo[memo_key] = self._compiler.compile(info, stamp)
                    if compiled.stamp != stamp or compiled.sheet is None:
                        return False
            program = compiled.program
            if program is not None and self._counts_nominated(program):
                return False
            if program is not None and program.private and not self._has_groups(compiled):
                compiled.sheet = None
                return False
            if program is not None or self._lines.keeps(compiled.key):
                line = self._line(compiled, held, ahead.made)
            if line < 0:
                if program is not None:
                    return False
                line = ahead.once
                ahead.once += 1
                ahead.made.append((line, compiled))
        of = [plugin for plugin, asked in compiled.asked for _ in asked.amounts]
        ahead.counting.append(tuple(of))
        ahead.infos.append(info)
        ahead.lines.append(line)
        ahead.programs.append(compiled.program)
        return True

    def _counts_nominated(self, program: Program) -> bool:
        """Return whether a filter of the class counts a pod that is nominated to some node.

        Such a pod counts on its own node alone, and only while that node is judged
        (RunFilterPluginsWithNominatedPods), which a group of rows cannot express. Scores do not
        count it.
        """
        snapshot = self._snapshot
        if not program.filtered_by:
            return False
        filtered_by = {id(counter) for counter in program.filtered_by}
        return any(
            id(counter) in filtered_by
            for info in self._nominated_pods()
            for counter, _ in snapshot.counted_by(info)
        )

    def _nominated_pods(self) -> Sequence[PodInfo]:
        """Return one class for each peer (``ClassColumns.peers``) that has nominated pods."""
        snapshot = self._snapshot
        if snapshot.nominations.lowest_priority == NO_PRIORITY:
            return ()
        if self._nominated_at != snapshot.nomination_version:
            self._nominated_at = snapshot.nomination_version
            nominated = snapshot.nominations.of_node.values()
            by_peer = {info.peer: info for there in nominated for info in there.values()}
            self._nominated = list(by_peer.values())
        return self._nominated

    def _line(
        self,
        compiled: CompiledClass,
        held: set[int],
        made: list[tuple[int, CompiledClass]],
    ) -> int:
        """Return the line of a class, -1 if the run uses all lines already.

        ``held``: the numbers of the permanent lines that the run uses. A new line is added to
        ``made``.
        """
        number, is_new = self._lines.give(compiled.line_key, held)
        if number < 0:
            return -1
        if is_new or (compiled.program is not None and compiled.program.groups is not None):
            made.append((number, compiled))
        held.add(number)
        return number

    def _has_groups(self, compiled: CompiledClass) -> bool:
        """Group the rows of a private line if out of date; False if there are too many groups."""
        program = compiled.program
        assert program is not None
        assert compiled.sheet is not None
        number = self._lines.of_key.get(compiled.line_key, -1)
        if (
            number < 0
            or not program.grouped
            or self._lines.cursor[number] < self._snapshot.log_start
        ):
            program.grouped = False
            program.groups = self._programs.group_rows(program, compiled.sheet)
        return program.grouped or program.groups is not None
