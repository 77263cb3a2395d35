"""Runs of pods of plain classes, decided in one compiled loop each.

A class is plain when only NodeResourcesFit (least allocated, of cpu and memory) and
NodeResourcesBalancedAllocation follow pods, and all else depends on nodes alone: most pods. Then
the next decision needs nothing but numbers, and a run of such pods, of any mix of such classes, is
decided and accounted for by ``kernels.decide``; the records are written afterwards, together. What
the loop cannot do it does not do: it stops before the pod, ``class_cache`` decides that one, and
the next run goes on. Decisions are the same.

Off until ``warm`` is called, which the scheduling worker does when it starts: other processes
never import Numba. Without Numba, or with NUMBA_DISABLE_JIT set, it stays off.
"""

import os
from collections.abc import Hashable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from scheduling.engine.cycle import Options, PodToPlace
from scheduling.engine.decision import BEST_KEPT, SCHEDULED, BestScores, Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import NodeTable
from scheduling.framework.types import PodInfo

if TYPE_CHECKING:
    from scheduling.engine.class_cache import ClassState

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]

_LOW = -(2**30)
_CHECKS = 8
_TERMS = 12
_LEAST, _BALANCED, _LINES, _FEASIBLE = 4, 8, 10, 11
_BYTES = 256 * 2**20
"""What a pool may take; classes that find no place in it are decided without."""
_LONGEST = 1024
_SHORTEST = 16

_kernels: ModuleType | None = None


def warm() -> bool:
    """Load the compiled loops, compiling them where they are not yet; return whether they are on.

    Takes 0.5 s where they are on disk, 10 s where they are not.
    """
    global _kernels  # noqa: PLW0603
    if _kernels is None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"):
        try:
            from scheduling.engine import kernels
        except ImportError:
            return False
        _kernels = kernels
        Runs(Snapshot(capacity=4), 1).compile()
    return _kernels is not None


def cool() -> None:
    """Turn the compiled loops off again."""
    global _kernels  # noqa: PLW0603
    _kernels = None


@runtime_checkable
class PlainFilter(Protocol):
    """A filter that only compares requests with what is free."""

    def plain_filter(self, pod: PodInfo, snapshot: NodeTable) -> list[tuple[int, int]] | None:
        """Return (amount, resource column) of all that is compared, ``None`` if there is more."""
        ...


@runtime_checkable
class LeastAllocatedScore(Protocol):
    """A score of how much cpu and memory stay free."""

    def least_allocated_terms(self, pod: PodInfo) -> tuple[int, int, int, int] | None:
        """Return weight and amount of cpu, then of memory; ``None`` if there is more to it."""
        ...


@runtime_checkable
class BalancedScore(Protocol):
    """A score of how evenly cpu and memory are used."""

    def balanced_terms(self, pod: PodInfo) -> tuple[int, int] | None:
        """Return amounts of cpu and memory; ``None`` if there is more to it."""
        ...


class Pool:
    """The columns of plain classes, one line per class, for one width of the snapshot.

    ``total`` int32 (classes, rows): local scores and the ``offset`` of the row's group, ``_LOW``
    where not feasible. ``bits``: see ``kernels.fit_bits``. ``fixed``: rejected before
    NodeResourcesFit is asked. ``position``: of the row's group in ``BestScores``.
    """

    def __init__(self, snapshot: Snapshot, lines: int) -> None:
        self.capacity = snapshot.capacity
        self.width = snapshot.requested.shape[1]
        self.lines = lines
        self.most = max(_BYTES // (self.capacity * (4 * lines + 21)), 1)
        self.states: list[ClassState | None] = []
        self.size = 0
        rows = self.capacity
        self.total: Int32 = np.zeros((0, rows), np.int32)
        self.offset: Int32 = np.zeros((0, rows), np.int32)
        self.local: Int32 = np.zeros((0, rows), np.int32)
        self.bits: Int32 = np.zeros((0, rows), np.int32)
        self.position: Int32 = np.zeros((0, rows), np.int32)
        self.fixed: npt.NDArray[np.bool_] = np.zeros((0, rows), np.bool_)
        self.scores: Int32 = np.zeros((0, lines, rows), np.int32)
        self.amounts: Int64 = np.zeros((0, _CHECKS), np.int64)
        self.columns: Int64 = np.zeros((0, _CHECKS), np.int64)
        self.terms: Int64 = np.zeros((0, _TERMS), np.int64)
        self.vectors: Int64 = np.zeros((0, self.width), np.int64)
        self.nonzero: Int64 = np.zeros((0, 2), np.int64)
        self.cursor: Int64 = np.zeros(0, np.int64)

    def place(self, state: "ClassState") -> int:
        """Return a line for a class, -1 when all are taken."""
        if None in self.states:
            line = self.states.index(None)
            self.states[line] = state
            return line
        if len(self.states) >= self.most:
            return -1
        self.states.append(state)
        if len(self.states) > self.size:
            self.reserve(min(max(4, 2 * self.size), self.most))
        return len(self.states) - 1

    def reserve(self, size: int) -> None:
        """Make room for ``size`` classes."""
        for name in (
            "total", "offset", "local", "bits", "position", "fixed", "scores", "amounts",
            "columns", "terms", "vectors", "nonzero", "cursor",
        ):  # fmt: skip
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: self.size] = old
            setattr(self, name, new)
        self.size = size
        for line, state in enumerate(self.states):
            if state is not None and state.line >= 0:
                state.scores = self.scores[line, : len(state.scores)]
                state.local = self.local[line]


class Runs:
    """What ``class_cache.Cache`` keeps to decide runs."""

    def __init__(self, snapshot: Snapshot, lines: int) -> None:
        self._snapshot = snapshot
        self._pool = Pool(snapshot, lines)
        self._length = _LONGEST

    def dropped(self, state: "ClassState") -> None:
        """Free the line of a class that is forgotten."""
        line = state.line
        if line >= 0 and line < len(self._pool.states) and self._pool.states[line] is state:
            self._pool.states[line] = None
        state.line = -1

    def _ready(self, state: "ClassState") -> bool:
        """Bring a class's line up to date; False where the class is not plain."""
        pool, snapshot = self._pool, self._snapshot
        if pool.capacity != snapshot.capacity or pool.width != snapshot.requested.shape[1]:
            for other in pool.states:
                if other is not None:
                    other.scores, other.local = other.scores.copy(), other.local.copy()
                    other.line, other.synced = -1, False
            pool = self._pool = Pool(snapshot, pool.lines)
        if state.synced:
            return state.feasible > 1
        state.refresh()  # what is set below shows the snapshot as it is now
        terms = plain_terms(state)
        if terms is None:
            return False
        if state.line < 0:
            state.line = pool.place(state)
            if state.line < 0:
                return False
        checks, score_terms = terms
        line, info = state.line, state.info
        if state.scores.base is not pool.scores:
            count = len(state.scores)
            pool.scores[line, :count] = state.scores
            pool.local[line] = state.local
            state.scores, state.local = pool.scores[line, :count], pool.local[line]
        groups, spread = state.spread_groups()
        feasible = state.verdict == 0
        feasible &= state.group >= 0
        number = state.group[feasible]
        pool.offset[line] = 0
        pool.offset[line, feasible] = spread[number]
        pool.position[line] = 0
        pool.position[line, feasible] = np.searchsorted(groups, number)
        pool.total[line] = np.where(feasible, state.local + pool.offset[line], _LOW)
        pool.fixed[line] = state.fixed_rows()
        pool.columns[line] = -1
        for at, (amount, column) in enumerate(checks):
            pool.amounts[line, at], pool.columns[line, at] = amount, column
        pool.terms[line] = score_terms
        state.feasible = int(np.count_nonzero(feasible))
        pool.terms[line, _FEASIBLE] = state.feasible
        pool.vectors[line] = snapshot.request_vector(info)
        pool.nonzero[line] = info.nonzero_cpu, info.nonzero_memory
        assert _kernels is not None
        _kernels.all_bits(
            pool.bits[line], pool.amounts[line], pool.columns[line], snapshot.allocatable,
            snapshot.requested, snapshot.allowed_pods, snapshot.pod_count,
        )  # fmt: skip
        state.synced = True
        return state.feasible > 1

    def decide(
        self,
        ahead: "Iterable[tuple[PodToPlace, ClassState]]",
        options: Options,
        draw: int,
        start: int,
    ) -> list[Decision]:
        """Decide for the first pods and assume them; return for as many as it can.

        Args:
            ahead: pods in order, with their class's states, up to date but for the log.
            options: seed; ties are drawn, nothing is written out in full.
            draw: number of the first decision.
            start: where the first pod's search begins.
        """
        assert _kernels is not None
        snapshot = self._snapshot
        log, filled = snapshot.log_room(_LONGEST)  # first: states may fall behind by it
        keys: list[Hashable] = []
        run: list[ClassState] = []
        ready: dict[int, ClassState] = {}
        for pod, state in ahead:
            if len(run) >= self._length:
                break
            if id(state) not in ready:
                if not self._ready(state):
                    break
                ready[id(state)] = state
            keys.append(pod.key)
            run.append(state)
        # To make a state may change what others are made of.
        if not run or not all(state.keeps_up for state in ready.values()):
            return []
        count = len(run)
        pool = self._pool
        for state in ready.values():
            pool.cursor[state.line] = state.cursor - snapshot.log_start
        high, low = _random(options.seed, draw, count)
        lines = np.array([state.line for state in run], np.int32)
        done, told, chosen, chosen_scores, chosen_position = self.loop(
            lines, high, low, log, filled
        )
        for state in ready.values():
            state.cursor = int(pool.cursor[state.line]) + snapshot.log_start
        self._length = (
            min(2 * self._length, _LONGEST) if done == count else max(2 * done, _SHORTEST)
        )
        if not done:
            return []
        rows = told[:done, 0]
        del keys[done:]
        snapshot.assume_run(keys, [state.info for state in run[:done]], rows.copy(), _kernels.link)
        return _decisions(
            snapshot, run, keys, options, draw, start, told[:done], chosen, chosen_scores,
            chosen_position,
        )  # fmt: skip

    def loop(
        self, lines: Int32, high: Int64, low: Int64, log: Int32, filled: int
    ) -> tuple[int, Int32, Int32, Int32, Int32]:
        """Run the compiled loop; return for how many pods it decided, and what."""
        assert _kernels is not None
        pool, snapshot, count = self._pool, self._snapshot, len(lines)
        told = np.zeros((count, 5), np.int32)
        chosen = np.zeros((count, BEST_KEPT), np.int32)
        chosen_scores = np.zeros((count, pool.lines, BEST_KEPT), np.int32)
        chosen_position = np.zeros((count, BEST_KEPT), np.int32)
        done: int = _kernels.decide(
            lines, high, low,
            pool.total, pool.offset, pool.local, pool.scores, pool.bits, pool.fixed, pool.position,
            pool.amounts, pool.columns, pool.terms, pool.vectors, pool.nonzero, pool.cursor,
            snapshot.allocatable, snapshot.requested, snapshot.nonzero_requested,
            snapshot.allowed_pods, snapshot.pod_count, log, filled,
            told, chosen, chosen_scores, chosen_position,
        )  # fmt: skip
        return done, told, chosen, chosen_scores, chosen_position

    def compile(self) -> None:
        """Compile or load every loop for the arrays that it will get, by calls that do nothing."""
        assert _kernels is not None
        pool, snapshot = self._pool, self._snapshot
        pool.reserve(1)
        none = np.zeros(0, np.int64)
        nothing = np.zeros(0, np.int32)
        log, filled = snapshot.log_room(0)
        self.loop(nothing, none, none, log, filled)
        _kernels.all_bits(
            pool.bits[0], pool.amounts[0], pool.columns[0], snapshot.allocatable,
            snapshot.requested, snapshot.allowed_pods, snapshot.pod_count,
        )  # fmt: skip
        snapshot.assume_run([], [], nothing, _kernels.link)


def _decisions(
    snapshot: Snapshot,
    run: "Sequence[ClassState]",
    keys: Sequence[Hashable],
    options: Options,
    draw: int,
    start: int,
    told: Int32,
    chosen: Int32,
    chosen_scores: Int32,
    chosen_position: Int32,
) -> list[Decision]:
    """Write the records of a run."""
    names = snapshot.names
    node_count, revision, seed = snapshot.node_count, snapshot.revision, options.seed
    made: dict[int, Any] = {}
    found = []
    columns = told.tolist()
    picked = chosen.tolist()
    for number, key in enumerate(keys):
        state = run[number]
        common = made.get(state.line)
        if common is None:
            common = made[state.line] = state.told_of_all()
        evaluated, rejections, plugins, lines, grouped, several, profile = common
        row, total, ties, margin, count = columns[number]
        start = (start + evaluated) % node_count
        best = BestScores(
            tuple([names[r] for r in picked[number][:count]]),
            chosen_scores[number, :, :count],
            lines,
            grouped,
            chosen_position[number, :count] if several else None,
        )
        found.append(
            Decision(
                key=key,
                class_digest=state.info.digest,
                outcome=SCHEDULED,
                node_name=names[row],
                row=row,
                total=total,
                margin=margin,
                ties=ties,
                node_count=node_count,
                evaluated=evaluated,
                feasible=state.feasible,
                plugins=plugins,
                best_scores=best,
                rejections=rejections,
                seed=seed,
                draw=draw + number,
                next_start=start,
                snapshot_revision=revision,
                profile=profile,
            )
        )
    return found


def plain_terms(state: "ClassState") -> tuple[list[tuple[int, int]], Int64] | None:
    """Return what a plain class compares and scores by, ``None`` where it is not plain."""
    if not state.usable or not state.follows_resources_only:
        return None
    (row_filter,) = state.row_filter_plugins
    if not isinstance(row_filter, PlainFilter):
        return None
    checks = row_filter.plain_filter(state.info, state.snapshot)
    if checks is None or len(checks) > _CHECKS:
        return None
    terms = np.zeros(_TERMS, np.int64)
    terms[_LEAST] = terms[_BALANCED] = -1
    terms[_LINES] = len(state.scores)
    for plugin, line, weight in state.following_scores:
        if isinstance(plugin, LeastAllocatedScore):
            least = plugin.least_allocated_terms(state.info)
            if least is None or terms[_LEAST] >= 0:
                return None
            terms[:_LEAST] = least
            terms[_LEAST : _LEAST + 2] = line, weight
        elif isinstance(plugin, BalancedScore):
            balanced = plugin.balanced_terms(state.info)
            if balanced is None or terms[_BALANCED] >= 0:
                return None
            terms[_BALANCED - 2 : _BALANCED] = balanced
            terms[_BALANCED : _BALANCED + 2] = line, weight
        else:
            return None
    return checks, terms


def _random(seed: int, draw: int, count: int) -> tuple[Int64, Int64]:
    """Return ``cycle.mix`` of consecutive draws as upper and lower 32 bits, int64 (count,)."""
    numbers = np.arange(count, dtype=np.uint64) + np.uint64((draw + 1) & (2**64 - 1))
    z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed & (2**64 - 1))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(32)).astype(np.int64), (z & np.uint64(2**32 - 1)).astype(np.int64)


def enabled() -> bool:
    """Whether the compiled loops are on."""
    return _kernels is not None
