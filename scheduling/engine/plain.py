"""Runs of pods that share lines, decided in one compiled loop.

What plugins say of nodes alone is kept per plan (``plans``). What is left are requests, compared
and scored by ``compiled.plain.decide``: a *line* of totals for each distinct request under a plan
(``lines``), followed from pod to pod by the rows that changed, or scored anew in a few
microseconds. So a pod that is like no other costs no more than the arithmetic. What a class's rules
about other pods come to is its program (``programs``); a class that only one node can hold has no
line, its row is judged by itself.

A class is decided here if its filters and scores depend on nodes, on requests (NodeResourcesFit by
least allocated, NodeResourcesBalancedAllocation, cpu and memory) and on terms that a program
covers. Pods that are nominated to nodes are counted there, where they count for every pod of the
run. ``decide`` stops before the first pod of another class, or that fits nowhere. Decisions and
records are those of the reference path, ``engine.cycle``.

Off until ``warm`` is called. With NUMBA_DISABLE_JIT=1 the loop runs as plain Python, for tests.
"""

import itertools
from collections.abc import Hashable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from scheduling.engine.cycle import Options, PodToPlace, draws
from scheduling.engine.lines import CHECKS, SHORTEST, Lines
from scheduling.engine.nominations import NO_PRIORITY
from scheduling.engine.plain_run import PlainRun, Plan, Program
from scheduling.engine.plans import BLOCK, Plans, Profile
from scheduling.engine.programs import FILTERING, Programs
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.arrays import Float64, Int32, Mask
from scheduling.framework.interface import (
    CycleState,
    Locality,
    Plugin,
)
from scheduling.framework.runtime import Framework, PluginFailed
from scheduling.framework.types import PodInfo

_FIELDS = 9
_LARGEST_AMOUNT = 2**50
_PADDING = (-1,) * CHECKS
_PARTS = (1, 7, 9, 9 + CHECKS, 9 + 2 * CHECKS)
"""Where the parts of a line's key begin: plan, scores, amounts with defaults, checks, vector."""
_NO_LEAST = (0, 0, 0, 0)
_NO_BALANCE = (0, 0)
_LONGEST = 1024
_instances = itertools.count()

_loops: ModuleType | None = None
_link: Any = None


def warm() -> bool:
    """Load the compiled loop, compiling it where it is not yet; return whether it is on."""
    global _loops, _link
    if _loops is None:
        from scheduling.engine.compiled import plain, shared

        _loops, _link = plain, shared.link
        _compile()
    return _loops is not None


def cool() -> None:
    """Turn the compiled loop off again."""
    global _loops, _link  # noqa: PLW0603
    _loops = _link = None


def enabled() -> bool:
    """Whether the compiled loop is on."""
    return _loops is not None


class _Kind:
    """How a class is decided. ``plan`` ``None``: it is not plain.

    ``pinned``: one node alone can hold its pods, whose row then stands for the plan's number.

    ``key``: what its line says, as the bytes of int64 numbers: the plan's number, weight and amount
    of cpu and of memory for least allocated, amounts for balance, cpu and memory with defaults,
    amounts that must be free, their resource columns, and what is accounted for by column.
    """

    __slots__ = ("key", "peer_stamp", "pinned", "plan", "program", "stamp")

    def __init__(self, stamp: tuple[int, ...], peer_stamp: int) -> None:
        self.stamp = stamp
        self.peer_stamp = peer_stamp
        self.plan: Plan | None = None
        self.program: Program | None = None
        self.pinned = False
        self.key = b""


class PlainRuns:
    """What ``class_cache.Cache`` keeps to decide runs of plain pods."""

    def __init__(self, snapshot: Snapshot, framework: Framework) -> None:
        self._snapshot = snapshot
        self._profile = Profile(framework)
        self.usable = self._profile.usable
        self._memo_key = ("plain", next(_instances))
        self._length = _LONGEST
        self._running: list[Program] = []
        self._looked_at: tuple[int, ...] = ()
        self.nowhere = False
        self._stamp: tuple[int, ...] = ()
        self._clear()

    def _clear(self) -> None:
        """Forget everything: the nodes changed."""
        snapshot = self._snapshot
        self._generation = next(_instances)
        self._plans = Plans(snapshot, self._profile)
        self._lines = Lines(snapshot, self._plans.rows)
        framework = self._profile.framework
        self._programs = Programs(snapshot, framework)
        self._static = [
            plugin
            for plugin in (() if framework is None else framework.filter_plugins)
            if framework.facts(plugin).locality is Locality.NODE
        ]
        self._pin_plan = Plan(-1, None)
        self._pin_plan.absent = snapshot.node_count - 1
        rows = self._plans.rows
        self._mirror: Float64 = np.ones((rows // BLOCK, _FIELDS * BLOCK), np.float64)
        self._odd: Mask = np.zeros(rows, np.bool_)
        self._odd_in: Int32 = np.zeros(rows // BLOCK, np.int32)
        self._cursor = -1
        self._stamp = self._now()

    def _now(self) -> tuple[int, ...]:
        snapshot = self._snapshot
        return (snapshot.node_version, snapshot.capacity, snapshot.requested.shape[1])

    # --- classes ---------------------------------------------------------------------------------

    def _kind(self, info: PodInfo) -> _Kind:
        """Return how a class is decided.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, profile = self._snapshot, self._profile
        kind = _Kind(self._versions(), snapshot.peer_stamp(info))
        aspects = []
        wanting: list[Plugin] = []
        for plugin in profile.aspected:
            aspect = plugin.aspect(info, snapshot)
            if aspect is None:
                if plugin.name not in profile.termed:
                    return kind
                wanting.append(plugin)
            aspects.append(aspect)
        assert profile.fit is not None
        checks = profile.fit.plain_filter(info, snapshot)
        if len(checks) > CHECKS:
            return kind
        least: tuple[int, ...] | None = _NO_LEAST
        balanced: tuple[int, ...] | None = _NO_BALANCE
        if profile.least is not None:
            least = profile.least[0].least_allocated_terms(info)
        if profile.balanced is not None:
            balanced = profile.balanced[0].balanced_terms(info)
        if least is None or balanced is None:
            return kind
        vector = snapshot.request_vector(info).tolist()
        asked = (*least, *balanced, info.nonzero_cpu, info.nonzero_memory, *vector)
        if min(asked) < 0 or max(asked) >= _LARGEST_AMOUNT:
            return kind
        names_nodes = info.node_affinity_key and snapshot.node_count > 1
        if names_nodes and len(vector) == self._lines.width:
            row = self._only_row(info, profile.in_order(wanting))
            if row is not None:
                kind.pinned, kind.plan = True, self._pin_plan
                kind.stamp = self._versions()
                kind.key = self._key(row, asked, checks, vector)
                return kind
        if wanting:
            stated = self._programs.state(info, profile.in_order(wanting))
            if stated is None:
                return kind
            plan = self._plans.of(info, tuple(aspects), stated.keys)
            if plan is None or plan.keyed == 0:
                return kind
            kind.program = self._programs.make(info, stated, plan)
            if kind.program is None:
                return kind
            kind.plan = plan
        else:
            kind.plan = self._plans.of(info, tuple(aspects))
        # Of making the plan some versions may have changed: what was found holds for them too.
        kind.stamp = self._versions()
        if kind.plan is not None and len(vector) == self._lines.width:
            kind.key = self._key(kind.plan.number, asked, checks, vector)
        return kind

    def has_program(self, info: PodInfo) -> bool:
        """Return whether the class was last found to have a program."""
        kind = info.memo.get(self._memo_key)
        return isinstance(kind, _Kind) and kind.program is not None

    def _key(
        self,
        number: int,
        asked: Sequence[int],
        checks: Sequence[tuple[int, int]],
        vector: Sequence[int],
    ) -> bytes:
        padding = _PADDING[len(checks) :]
        return self._lines.numbers.pack(
            number,
            *asked[:8],
            *[amount for amount, _ in checks], *padding,
            *[column for _, column in checks], *padding,
            *vector,
        )  # fmt: skip

    def _only_row(self, info: PodInfo, wanting: Sequence[Plugin]) -> int | None:
        """Return the row that alone can hold the class's pods, as far as rules of nodes say.

        ``None`` where there are several or none, or where rules about other pods may reject it.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, framework = self._snapshot, self._profile.framework
        state = CycleState()
        begun = framework.pre_filter(state, info, snapshot)
        if not begun.status.ok or len(begun.rows) != 1:
            return None
        if wanting:
            stated = self._programs.state(info, wanting)
            if stated is None or any(term.kind in FILTERING for term in stated.terms):
                return None
        judged = framework.filter_some(self._static, state, info, snapshot, begun.rows)
        return int(begun.rows[0]) if len(judged.feasible) else None

    def _line(
        self,
        kind: _Kind,
        held: set[int],
        made: list[tuple[int, _Kind]],
    ) -> int:
        """Return the line of a class, -1 when the run holds all; note in ``made`` if it is new."""
        lines = self._lines
        number = lines.of_key.get(kind.key)
        if number is not None:
            lines.of_key.move_to_end(kind.key)
            return number
        if len(lines.of_key) < lines.most:
            number = len(lines.of_key)
            if number >= len(lines.cursor):
                lines.reserve(min(max(SHORTEST, 2 * number), lines.most))
        else:
            oldest = next(iter(lines.of_key.items()))
            number = oldest[1]
            if number in held:
                return -1
            del lines.of_key[oldest[0]]
        lines.of_key[kind.key] = number
        made.append((number, kind))
        return number

    def _write_lines(self, made: Sequence[tuple[int, _Kind]]) -> None:
        """Write what the loop reads of classes that got a line."""
        if not made:
            return
        lines, profile = self._lines, self._profile
        numbers = np.array([number for number, _ in made])
        told = np.frombuffer(b"".join([kind.key for _, kind in made]), np.int64)
        told = told.reshape(len(made), -1)
        plan_of, least_balanced, nonzero, amounts, columns, vectors = np.split(told, _PARTS, axis=1)
        least, balanced = least_balanced[:, :4], least_balanced[:, 4:]
        masks, bases, weights = [], [], []
        for plan_number in plan_of[:, 0].tolist():
            plan = self._plans.plans[plan_number]
            lines.reserve_groups(plan.keyed)
            mask = (1 << len(plan.group_rows)) - 1
            masks.append(mask)
            bases.append(self._plans.base(plan, mask))
            weights.append(
                (
                    profile.least[2] if profile.least is not None and 0 in plan.lines else 0,
                    profile.balanced[2] if profile.balanced is not None and 1 in plan.lines else 0,
                )
            )
        lines.plan_of[numbers] = plan_of[:, 0]
        lines.amounts[numbers] = amounts
        lines.columns[numbers] = columns
        lines.more[numbers] = (columns > 1).any(axis=1)
        lines.vectors[numbers] = vectors
        lines.nonzero[numbers] = nonzero
        lines.mask_of[numbers] = np.array(masks, np.uint64)
        lines.base_of[numbers] = bases
        lines.weights[numbers] = weights
        # Scores that a plan lacks count nothing.
        scored = np.array(weights) > 0
        lines.asked[numbers, :2] = least[:, 1::2] * scored[:, :1]
        lines.asked[numbers, 2:] = balanced * scored[:, 1:]
        shares = least[:, ::2] * scored[:, :1]
        summed = shares.sum(axis=1)
        terms = np.empty((len(made), 9))
        for column in range(2):
            terms[:, column] = np.where(columns == column, amounts, -np.inf).max(axis=1)
        terms[:, 2:6] = lines.asked[numbers]
        terms[:, 6:8] = shares
        terms[:, 8] = np.divide(1.0, summed, out=np.zeros(len(made)), where=summed > 0)
        lines.terms[numbers] = terms
        lines.witness[numbers] = -1
        lines.cursor[numbers] = -1

    # --- deciding --------------------------------------------------------------------------------

    def decide(
        self, pods: Sequence[PodToPlace], first: int, options: Options, draw: int, start: int
    ) -> PlainRun | None:
        """Decide for pods from the ``first`` on and assume them, as many as are plain.

        ``nowhere`` tells afterwards whether there are none because the first fits on no node.

        Raises:
            PluginFailed: a plugin failed; nothing was decided.
        """
        assert _loops is not None
        self.nowhere = False
        snapshot = self._snapshot
        if self._stamp != self._now() or self._plans.full or self._programs.full:
            self._clear()
        log, filled = snapshot.log_room(_LONGEST)
        keys: list[Hashable] = []
        infos: list[PodInfo] = []
        run: list[int] = []
        of_pod: list[Program | None] = []
        pins: list[bytes] = []
        made: list[tuple[int, _Kind]] = []
        try:
            self._look_ahead(pods, first, keys, infos, run, of_pod, pins, made)
            self._write_lines(made)
        except PluginFailed:
            self._clear()  # lines were given out that nobody wrote
            raise
        if not run or self._stamp != self._now() or self._looked_at != self._versions():
            return None  # to look at classes made something known
        count = len(run)
        profile = self._profile
        found = PlainRun(
            snapshot,
            profile.framework.scheduler_name,
            profile.fit,
            profile.fit_name,
            seed=options.seed,
            draw=draw,
            start=start,
            count=count,
        )
        done = self._loop(found, np.array(run, np.int32), infos, of_pod, pins, log, filled)
        self._length = min(2 * self._length, _LONGEST) if done == count else max(2 * done, SHORTEST)
        if not done:
            return None
        del keys[done:], infos[done:], of_pod[done:]
        lines, plans = self._lines, self._plans.plans
        of_line = lines.plan_of
        chosen = [self._pin_plan if c < 0 else plans[of_line.item(c)] for c in run[:done]]
        found.finish(keys, infos, chosen, of_pod)
        snapshot.assume_run(keys, infos, found.told[:, 0].copy(), _link)
        self._programs.ran(self._running)
        return found

    def _look_ahead(
        self,
        pods: Sequence[PodToPlace],
        first: int,
        keys: list[Hashable],
        infos: list[PodInfo],
        run: list[int],
        of_pod: list[Program | None],
        pins: list[bytes],
        made: list[tuple[int, _Kind]],
    ) -> None:
        """Note pods from the ``first`` on that are plain, their classes and lines.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, memo_key = self._snapshot, self._memo_key
        lowest = snapshot.nominations.lowest_priority
        stamp = self._looked_at = self._versions()
        line_of: dict[int, int] = {}
        program_of: dict[int, Program | None] = {}
        held: set[int] = set()
        for number in range(first, min(first + self._length, len(pods))):
            pod = pods[number]
            info = pod.info
            # Guests count for pods of no higher priority than theirs: here all of them or none.
            if pod.nominated_node or (
                lowest < NO_PRIORITY
                and (info.priority > lowest or snapshot.nominated_node_of(pod.key))
            ):
                return
            line = line_of.get(id(info), -1)
            if line < 0:
                kind = info.memo.get(memo_key)
                if (
                    not isinstance(kind, _Kind)
                    or kind.stamp != stamp
                    or kind.peer_stamp != snapshot.peer_stamp(info)
                ):
                    kind = info.memo[memo_key] = self._kind(info)
                    if kind.stamp != stamp:
                        return  # to look at it made something known: the next run sees it
                if kind.plan is None:
                    return
                if kind.pinned:
                    keys.append(pod.key)
                    infos.append(info)
                    run.append(-1)
                    of_pod.append(None)
                    pins.append(kind.key)
                    continue
                program = kind.program
                if program is not None:
                    if lowest < NO_PRIORITY:
                        return  # terms count pods that are nominated as well
                    if not self._programs.holds(program) or not self._programs.sync(program):
                        kind = info.memo[memo_key] = self._kind(info)
                        program = kind.program
                        if kind.stamp != stamp or kind.plan is None:
                            return
                program_of[id(info)] = program
                line = self._line(kind, held, made)
                if line < 0:
                    return
                held.add(line)
                line_of[id(info)] = line
            keys.append(pod.key)
            infos.append(info)
            run.append(line)
            of_pod.append(program_of[id(info)])

    def _versions(self) -> tuple[int, ...]:
        """Return what the kind of a class holds for."""
        snapshot = self._snapshot
        versions = (snapshot.node_version, snapshot.peer_version, snapshot.workload_version)
        return (*versions, self._generation)

    def _loop(
        self,
        found: PlainRun,
        run: Int32,
        infos: Sequence[PodInfo],
        of_pod: Sequence[Program | None],
        pins: Sequence[bytes],
        log: Int32,
        filled: int,
    ) -> int:
        """Run the compiled loop; return for how many pods it decided."""
        assert _loops is not None
        snapshot, lines, plans = self._snapshot, self._lines, self._plans
        self._sync()
        if snapshot.log_start:
            # Cursors are positions in the log's array while the loop runs.
            lines.cursor -= snapshot.log_start
        high, low = draws(found.seed, found.draw, len(run))
        told = _loops.Told(
            found.told, found.chosen, found.chosen_scores, found.kinds, found.masks,
            found.refused, found.term_scores,
        )  # fmt: skip
        programs = (*self._prepared(infos, of_pod), self._pins(run, pins))
        done, why = 0, _loops.FINISHED
        try:
            while True:
                done, why, mask = _loops.decide(
                    done, run, high, low, _columns(lines, _loops.Lines),
                    _columns(plans, _loops.Plans), *self._nodes(), log, filled, told, *programs,
                )  # fmt: skip
                if why != _loops.OTHER_GROUPS:
                    break
                line = int(run[done])
                plan = plans.plans[int(lines.plan_of[line])]
                lines.base_of[line] = plans.base(plan, int(mask))
                lines.mask_of[line] = mask
        finally:
            if snapshot.log_start:
                lines.cursor += snapshot.log_start
        self._cursor = snapshot.log_end + done
        self.nowhere = not done and why == _loops.NOWHERE
        if why == _loops.STALE:
            infos[done].memo.pop(self._memo_key, None)
        return int(done)

    def _prepared(
        self, infos: Sequence[PodInfo], of_pod: Sequence[Program | None]
    ) -> tuple[Any, Any, Any]:
        """Return programs, terms and counts, up to date, as the loop takes them."""
        running = dict.fromkeys(program for program in of_pod if program is not None)
        self._running = list(running)
        numbers = np.full(len(of_pod), -1, np.int32)
        who = np.zeros(len(of_pod), np.int32)
        classes: list[PodInfo] = []
        if running:
            numbers[:] = [-1 if program is None else program.number for program in of_pod]
            place = {id(info): info for info in infos}
            classes = list(place.values())
            at = {identity: number for number, identity in enumerate(place)}
            who[:] = [at[id(info)] for info in infos]
        return self._programs.prepare(classes, self._running, numbers, who, _loops)

    def _pins(self, run: Int32, pins: Sequence[bytes]) -> Any:
        """Return what the loop reads of pods that one node alone can hold."""
        assert _loops is not None
        of_pod = np.full(len(run), -1, np.int32)
        of_pod[run < 0] = np.arange(len(pins), dtype=np.int32)
        width = self._lines.numbers.size // 8
        told = np.frombuffer(b"".join(pins), np.int64).reshape(len(pins), width)
        row, _, nonzero, amounts, columns, vectors = np.split(told, _PARTS, axis=1)
        parts = (row[:, 0], amounts, columns, vectors, nonzero)
        return _loops.Pins(of_pod, *[np.array(part, np.int64, order="C") for part in parts])

    def _sync(self) -> None:
        """Bring the mirror up to date with the snapshot."""
        assert _loops is not None
        snapshot = self._snapshot
        touched = None if self._cursor < 0 else snapshot.touched_since(self._cursor)
        if touched is None or len(touched) > snapshot.capacity:
            touched = np.arange(snapshot.capacity, dtype=np.int32)
        self._cursor = snapshot.log_end
        if len(touched):
            _loops.mirror_rows(touched, *self._nodes())

    def _nodes(self) -> tuple[Any, Any, Any]:
        """Return the mirror, the snapshot's columns and the guests, as the loops take them."""
        assert _loops is not None
        nominations = self._snapshot.nominations
        return (
            _loops.Mirror(self._mirror, self._odd, self._odd_in),
            _columns(self._snapshot, _loops.Nodes),
            _loops.Guests(nominations.requested, nominations.pods),
        )


def _columns(of: object, kind: Any) -> Any:
    """Return the arrays that are called as the fields of a tuple of the loops'."""
    return kind(*[getattr(of, name) for name in kind._fields])


def _compile() -> None:
    """Compile or load the loops for the arrays that they will get, by calls that do nothing."""
    snapshot = Snapshot(capacity=4)
    runs = PlainRuns.__new__(PlainRuns)
    runs._snapshot = snapshot
    runs._profile = Profile.__new__(Profile)
    runs._profile.framework = None
    runs._clear()
    runs._lines.reserve(1)
    log, filled = snapshot.log_room(0)
    run = PlainRun(snapshot, "", None, "", seed=0, draw=0, start=0, count=0)
    runs._loop(run, np.zeros(0, np.int32), [], [], [], log, filled)
    assert _loops is not None
    _link(*[np.zeros(0, np.int32)] * 5)
