"""Decides runs of pods that share lines, in one compiled loop.

Results of plugins that read nodes alone are cached in sheets (``sheets``). What remains are
requests, compared and scored by ``compiled.loop.decide``: a *line* of totals for each distinct
request under a sheet (``lines``). A line is updated from pod to pod for the rows that changed, or
scored anew in a few microseconds, so a pod unlike all others costs no more than the arithmetic. A
class's rules about other pods are its program (``programs``). A class that only one node can take
has no line: its row is judged by itself.

A class is decided here if its filters and scores depend on nodes, on requests (NodeResourcesFit,
NodeResourcesBalancedAllocation) and on terms that a program covers. The requests of nominated pods
are taken as used on their nodes, where they count for every pod of the run; a class whose filters
count such pods by terms takes the reference path. ``decide`` stops before the first pod of another
class, or that fits nowhere. Decisions and records are those of the reference path,
``engine.reference.cycle``.

Off until ``warm`` is called. With NUMBA_DISABLE_JIT=1 the loop runs as plain Python, for tests.
"""

import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from scheduling.engine.compiled import arguments
from scheduling.engine.compiled.layout import (
    BLOCK,
    FIELDS,
    FINISHED,
    MORE_GROUPS,
    NOWHERE,
    ONCE,
    OTHER_GROUPS,
    STALE,
    TOGETHER,
)
from scheduling.engine.fast.compiling import CompiledClass, Compiler
from scheduling.engine.fast.lane_profile import Profile
from scheduling.engine.fast.lines import PARTS, SHORTEST, Lines, OfPlan
from scheduling.engine.fast.looking_ahead import Ahead, LookAhead
from scheduling.engine.fast.programs import Program, Programs
from scheduling.engine.fast.run import Run
from scheduling.engine.fast.sheets import Sheet, Sheets
from scheduling.engine.reference.cycle import Options, PodToPlace, draws
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int32, Mask
from scheduling.framework.formulas import LEAST
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.terms import Strategy

_LONGEST = ONCE
_MOST_CHANGED = 8
"""If more than one in this many rows changed, making all of them anew costs no more."""
_TRIES = 3
_NO_RANK: Int32 = np.zeros(0, np.int32)
_instances = itertools.count()

_loops: ModuleType | None = None
_scoring: Any = None
_link: Any = None
_on = False


def is_kept() -> bool:
    """Return whether the compiled loop is on disk.

    Raises:
        ImportError: Numba cannot be imported.
    """
    from scheduling.engine.compiled import caching, loop

    return caching.is_kept(loop.decide)


def warm() -> bool:
    """Load the compiled loop, compiling it if it is not on disk; return whether it is loaded.

    Another thread may decide meanwhile; it uses the loop once all of it is loaded.
    """
    global _loops, _scoring, _link, _on  # noqa: PLW0603
    if not _on:
        from scheduling.engine.compiled import caching, loop, scoring, shared

        _loops, _scoring, _link = loop, scoring, shared.link
        with caching.one_at_a_time(loop.decide):
            _compile()
        _on = True
    return _on


def enabled() -> bool:
    """Return whether the compiled loop is loaded."""
    return _on


class FastLane:
    """The fast path of one profile over one snapshot, as ``deciding.Decider`` uses it."""

    def __init__(self, snapshot: Snapshot, framework: Framework) -> None:
        self._snapshot = snapshot
        self._profile = Profile(framework)
        self.usable = self._profile.usable
        self._memo_key = ("compiled", next(_instances))
        self._length = _LONGEST
        self._running: list[Program] = []
        self.nowhere = False
        self._learned = False
        self._stamp: tuple[int, ...] = ()
        self._clear()

    def _clear(self) -> None:
        """Empty all caches."""
        snapshot = self._snapshot
        self._generation = next(_instances)
        self._sheets = Sheets(snapshot, self._profile, self._rows_moved)
        self._lines = Lines(snapshot, self._sheets.rows, self._profile.more_scored)
        self._programs = Programs(snapshot, self._profile.framework)
        self._compiler = Compiler(
            snapshot, self._profile, self._sheets, self._programs, self._lines, self._versions
        )
        self._ahead = LookAhead(
            snapshot, self._sheets, self._programs, self._lines, self._compiler, self._memo_key,
            self._versions,
        )  # fmt: skip
        rows = self._sheets.rows
        self._fields: Float64 = np.ones((rows // BLOCK, FIELDS * BLOCK), np.float64)
        self._odd: Mask = np.zeros(rows, np.bool_)
        self._odd_in: Int32 = np.zeros(rows // BLOCK, np.int32)
        self._cursor = -1
        self._rank: Int32 = _NO_RANK
        self._stamp = self._now()

    def _now(self) -> tuple[int, ...]:
        snapshot = self._snapshot
        width = snapshot.requested.shape[1]
        return (snapshot.node_version, snapshot.capacity, width, snapshot.column_generation)

    def _follows_nodes(self) -> bool:
        """Apply changes of nodes, row by row; return False if all caches must be rebuilt.

        They must be with plugins of other packages: what these look at in a pod may depend on all
        nodes.
        """
        now, snapshot = self._now(), self._snapshot
        if now == self._stamp:
            return True
        if now[1:] != self._stamp[1:] or snapshot.reads_whole_nodes:
            return False
        rows = snapshot.changed_since(self._stamp[0])
        if rows is None or len(rows) > snapshot.capacity // _MOST_CHANGED:
            return False
        if not self._programs.nodes_changed(rows, self._sheets.sheets):
            return False
        self._sheets.nodes_changed()
        self._compiler.nodes_changed()
        self._stamp = now
        return True

    def _rows_moved(self, sheet: Sheet, rows: Rows) -> None:
        self._lines.move_rows(sheet, rows)

    def _write_lines(self, made: Sequence[tuple[int, CompiledClass]]) -> None:
        """Write the data of lines just assigned to classes into the arrays that the loop reads."""
        if not made:
            return
        numbers, keys = [number for number, _ in made], [compiled.key for _, compiled in made]
        self._lines.write(numbers, keys, self._of_sheet)
        for number, compiled in made:
            if compiled.program is not None:
                sheet = self._sheets.sheets[self._lines.sheet_of[number]]
                self._group_rows(number, compiled.program, sheet)

    def _of_sheet(self, number: int) -> OfPlan:
        """Return a sheet's data for lines, with every group that has rows counted as feasible."""
        sheet, profile = self._sheets.sheets[number], self._profile
        return OfPlan(
            mask=sheet.mask,
            base=self._sheets.base(sheet, sheet.mask),
            least=profile.least[2] if profile.least is not None and 0 in sheet.lines else 0,
            balanced=profile.balanced[2]
            if profile.balanced is not None and 1 in sheet.lines
            else 0,
        )

    def _group_rows(self, number: int, program: Program, sheet: Sheet) -> None:
        """Write the group of each row into a line: the program's own groups, or the sheet's."""
        lines, place = self._lines, number - ONCE + TOGETHER
        lines.reserve_groups(self._programs.groups)
        if program.private:
            assert program.groups is not None
            lines.group[place] = program.groups
            lines.cursor[number] = self._snapshot.log_end
            lines.anew[number] = True
            program.groups, program.grouped = None, True
        else:
            lines.group[place] = sheet.group

    # --- deciding --------------------------------------------------------------------------------

    def decide(
        self, pods: Sequence[PodToPlace], first: int, options: Options, draw: int, start: int
    ) -> Run | None:
        """Decide pods from the ``first`` on and assume them, as many as possible; ``None``: none.

        Sets ``nowhere`` if the first pod fits on no node.

        Raises:
            PluginFailed: a plugin failed; nothing was decided.
        """
        for _ in range(_TRIES):
            self._learned = False
            found = self._decide(pods, first, options, draw, start)
            if found is not None or not self._learned:
                return found
        return None

    def _decide(
        self, pods: Sequence[PodToPlace], first: int, options: Options, draw: int, start: int
    ) -> Run | None:
        """Decide as ``decide`` does; ``_learned`` is set if a second try may succeed."""
        assert _loops is not None
        self.nowhere = False
        snapshot = self._snapshot
        coming = pods[first : first + self._length]
        snapshot.follow_columns(of_volumes=any(pod.info.volumes for pod in coming))
        if self._sheets.full or self._programs.full or not self._follows_nodes():
            self._clear()
        log, filled = snapshot.log_room(_LONGEST)
        ahead = Ahead()
        try:
            self._ahead.look(pods, first, self._length, ahead)
            self._write_lines(ahead.made)
        except BaseException:  # hooks of other packages raise whatever they like
            self._clear()  # lines were given to classes, but not written
            raise
        if self._stamp != self._now() or ahead.stamp != self._versions():
            self._learned = True  # a new resource or label became known
            return None
        count = len(ahead.keys)
        if not count:
            return None
        profile = self._profile
        found = Run(
            snapshot,
            profile.framework.scheduler_name,
            profile.fit,
            profile.fit_name,
            seed=options.seed,
            draw=draw,
            start=start,
            count=count,
        )
        self._rank = snapshot.name_rank() if options.tie_break == "first" else _NO_RANK
        done = self._loop(found, ahead, log, filled)
        if done == count:
            self._length = min(2 * self._length, _LONGEST)
        elif not self._learned:
            self._length = max(2 * done, SHORTEST)
        if not done:
            return None
        keys, who = ahead.keys[:done], ahead.who[:done]
        infos = [ahead.infos[at] for at in who]
        programs = [ahead.programs[at] for at in who]
        sheets, sheet_of = self._sheets.sheets, self._lines.sheet_of
        chosen = [
            self._compiler.pin_sheet if c < 0 else sheets[sheet_of.item(c)] for c in ahead.lines
        ]
        found.finish(keys, infos, [chosen[at] for at in who], programs)
        if any(ahead.counting):
            found.counting = [ahead.counting[at] for at in who]
        snapshot.assume_run(keys, infos, found.figures[:, 0].copy(), _link)
        self._programs.ran(self._running)
        return found

    def _versions(self) -> tuple[int, ...]:
        """Return the versions for which a compiled class is valid, ``node_version`` first.

        A class can follow changes of nodes; any other change makes it invalid.
        """
        snapshot = self._snapshot
        return (snapshot.node_version, snapshot.peer_version, self._generation)

    def _loop(self, found: Run, ahead: Ahead, log: Int32, filled: int) -> int:
        """Run the compiled loop; return for how many pods it decided."""
        assert _loops is not None
        snapshot, lines, sheets = self._snapshot, self._lines, self._sheets
        self._sync()
        who = np.array(ahead.who, np.int32)
        run = np.array(ahead.lines or [0], np.int32)[who]
        high, low = draws(found.seed, found.draw, len(run))
        results = arguments.Results(
            found.figures, found.chosen, found.chosen_scores, found.kinds, found.masks,
            found.refused, found.term_scores,
        )  # fmt: skip
        programs = (*self._prepared(ahead, who), self._pins(ahead, who))
        if self._running:
            lines.reserve_groups(self._programs.groups)
        work = self._programs.room_to_work(lines.highest.shape[1])
        done, why = 0, FINISHED
        if snapshot.log_start:
            # Cursors are positions in the log's array while the loop runs.
            lines.cursor -= snapshot.log_start
        try:
            while True:
                done, why, mask = _loops.decide(
                    done, run, high, low, _columns(lines, arguments.Lines),
                    _columns(sheets, arguments.Sheets), *self._nodes(), log, filled, results,
                    *programs, work,
                )  # fmt: skip
                if why == MORE_GROUPS:
                    continue
                if why != OTHER_GROUPS:
                    break
                line = int(run[done])
                sheet = sheets.sheets[int(lines.sheet_of[line])]
                try:
                    lines.base_of[line] = sheets.base(sheet, int(mask))
                except PluginFailed:
                    if not done:
                        raise
                    break  # pods before it are accounted for
                lines.mask_of[line] = mask
        finally:
            if snapshot.log_start:
                lines.cursor += snapshot.log_start
        self._cursor = snapshot.log_end + done
        self.nowhere = not done and why == NOWHERE
        if why == STALE:
            ahead.infos[ahead.who[done]].memo.pop(self._memo_key, None)
            self._learned = True
        return int(done)

    def _prepared(self, ahead: Ahead, who: Int32) -> tuple[Any, Any, Any]:
        """Return the loop's arguments ``programs``, ``count_terms`` and ``counted``, up to date."""
        self._running = [program for program in ahead.programs if program is not None]
        numbers = [-1 if program is None else program.number for program in ahead.programs]
        of_pod = np.array(numbers or [-1], np.int32)[who]
        infos = ahead.infos
        if not self._running:
            infos, who = [], np.zeros_like(who)  # no counter weighs these pods
        return self._programs.prepare(infos, self._running, of_pod, who)

    def _pins(self, ahead: Ahead, who: Int32) -> Any:
        """Return the loop's argument ``pins``: the pods that only one node can take."""
        assert _loops is not None
        of_class = np.full(max(len(ahead.lines), 1), -1, np.int32)
        pinned = [at for at, line in enumerate(ahead.lines) if line < 0]
        of_class[pinned] = np.arange(len(pinned), dtype=np.int32)
        width = self._lines.key_length
        written = np.frombuffer(b"".join(ahead.pins), np.int64).reshape(len(pinned), width)
        row, nonzero, amounts, columns, rest = np.split(written, PARTS, axis=1)
        parts = (row[:, 0], amounts, columns, rest[:, : self._lines.width], nonzero)
        of_pod = of_class[who]
        return arguments.Pins(of_pod, *[np.array(part, np.int64, order="C") for part in parts])

    def _sync(self) -> None:
        """Update the score columns of the rows that changed."""
        assert _loops is not None
        snapshot = self._snapshot
        touched = None if self._cursor < 0 else snapshot.touched_since(self._cursor)
        if touched is None or len(touched) > snapshot.capacity:
            touched = np.arange(snapshot.capacity, dtype=np.int32)
        self._cursor = snapshot.log_end
        if len(touched):
            _scoring.refresh_rows(touched, *self._nodes())

    def _nodes(self) -> tuple[Any, Any, Any]:
        """Return the loop's arguments ``score_columns``, ``nodes`` and ``nominated``."""
        assert _loops is not None
        nominations = self._snapshot.nominations
        return (
            arguments.ScoreColumns(
                self._fields,
                self._odd,
                self._odd_in,
                self._profile.more_scored > 0,
                self._profile.strategy.kind,
                self._profile.strategy.table,
                self._rank,
            ),
            _columns(self._snapshot, arguments.Nodes),
            arguments.NominatedAmounts(nominations.requested, nominations.pods),
        )


def _columns(of: object, kind: Any) -> Any:
    """Return a tuple of class ``kind``: each field is the attribute of ``of`` with that name."""
    return kind(*[getattr(of, name) for name in kind._fields])


def _compile() -> None:
    """Compile or load the loops for their argument types, by calls with no pods."""
    snapshot = Snapshot(capacity=4)
    runs = FastLane.__new__(FastLane)
    runs._snapshot = snapshot
    runs._memo_key = ("", 0)
    runs._profile = Profile.__new__(Profile)
    runs._profile.framework = None
    runs._profile.more_scored = 0
    runs._profile.strategy = Strategy(LEAST, np.zeros(101, np.int64))
    runs._clear()
    runs._lines.reserve(1)
    log, filled = snapshot.log_room(0)
    run = Run(snapshot, "", None, "", seed=0, draw=0, start=0, count=0)
    runs._loop(run, Ahead(), log, filled)
    assert _loops is not None
    _link(*[np.zeros(0, np.int32)] * 5)
