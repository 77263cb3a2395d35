"""Runs of pods, decided in one compiled loop each.

A run is decided and accounted for by ``compiled.grouped`` with nothing but numbers; the records are
written afterwards, together. ``pool`` says which classes are covered and keeps a line of numbers
for each of them, ``slots`` the counts of pods that they look at. What the loop cannot do it does
not do: it stops before the pod, ``class_cache`` decides that one, and the next run goes on.
Decisions are the same.

    pods, classes ---> runs ---> compiled ----> runs ---> decisions
                        | |                     |
          class_cache --+ +-- pool, slots <-- snapshot

Off until ``warm`` is called, which the scheduling worker does when it starts: other processes
never import Numba. Without Numba it stays off; with NUMBA_DISABLE_JIT=1 the loops run as plain
Python, which is for tests.
"""

from collections.abc import Hashable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from scheduling.engine.cycle import Options, PodToPlace, draws
from scheduling.engine.decision import BEST_KEPT
from scheduling.engine.line_run import Line, LineRun
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.runtime import Framework
from scheduling.framework.terms import BalancedScore, LeastAllocatedScore, PlainFilter

if TYPE_CHECKING:
    from scheduling.engine.class_cache import ClassState
    from scheduling.engine.pool import Pool

__all__ = ["BalancedScore", "LeastAllocatedScore", "PlainFilter", "Runs", "cool", "enabled", "warm"]

_LONGEST = 1024
_SHORTEST = 16
_PATIENCE = 4096
"""So many rows are touched before a class that was not covered is looked at again."""

_pool: ModuleType | None = None


def warm() -> bool:
    """Load the compiled loops, compiling them where they are not yet; return whether they are on.

    Takes 0.5 s where they are on disk, 20 s where they are not.
    """
    global _pool  # noqa: PLW0603
    if _pool is None:
        from scheduling.engine import pool

        _pool = pool
        pool.compile_loops()
    return True


def cool() -> None:
    """Turn the compiled loops off again."""
    global _pool  # noqa: PLW0603
    _pool = None


def enabled() -> bool:
    """Whether the compiled loops are on."""
    return _pool is not None


class Runs:
    """What ``class_cache.Cache`` keeps to decide runs."""

    def __init__(self, snapshot: Snapshot, framework: Framework) -> None:
        self._snapshot = snapshot
        self._framework = framework
        self._kept: Pool | None = None
        self._length = _LONGEST

    def dropped(self, state: "ClassState") -> None:
        """Free the line of a class that is forgotten."""
        if self._kept is not None:
            self._kept.free(state)

    def _pool(self) -> "Pool":
        """Return the pool; made anew when the snapshot's columns grew."""
        assert _pool is not None
        kept, snapshot = self._kept, self._snapshot
        if (
            kept is None
            or kept.capacity != snapshot.capacity
            or kept.width != snapshot.requested.shape[1]
        ):
            if kept is not None:
                for state in kept.states:
                    if state is not None:
                        state.line, state.synced = -1, False
            kept = self._kept = _pool.Pool(snapshot, self._framework)
        return kept

    def _ready(self, state: "ClassState", pool: "Pool") -> bool:
        """Make a class's line where there is none that can follow; False: not covered."""
        assert _pool is not None
        snapshot = self._snapshot
        if state.synced:
            line = pool.lines[state.line]
            assert line is not None
            if pool.arrays.cursor[state.line] >= snapshot.log_start and (
                not state.dynamic or _pool.skipped_now(state) == line.skipped
            ):
                return True
            state.synced = False
        if state.look_again > snapshot.log_end:
            return False
        state.refresh()
        state.synced = pool.build(state)
        if not state.synced:
            state.look_again = snapshot.log_end + _PATIENCE
        return state.synced

    def decide(
        self,
        ahead: "Iterable[tuple[PodToPlace, ClassState]]",
        options: Options,
        draw: int,
        start: int,
    ) -> LineRun | None:
        """Decide for the first pods and assume them, for as many as it can.

        Args:
            ahead: pods in order, with their class's states, as new as the snapshot's versions.
            options: seed; ties are drawn, nothing is written out in full.
            draw: number of the first decision.
            start: where the first pod's search begins.

        Raises:
            PluginFailed: a plugin failed; nothing was decided.
        """
        assert _pool is not None
        loops = _pool.grouped
        snapshot, pool = self._snapshot, self._pool()
        log, filled = snapshot.log_room(_LONGEST)  # first: lines may fall behind by it
        keys: list[Hashable] = []
        run: list[ClassState] = []
        ready: dict[int, ClassState] = {}
        for pod, state in ahead:
            if len(run) >= self._length:
                break
            if id(state) not in ready:
                if not self._ready(state, pool):
                    break
                ready[id(state)] = state
            keys.append(pod.key)
            run.append(state)
        # To make a state or a line may change what others are made of.
        if not run or not all(state.current for state in ready.values()):
            return None
        count = len(run)
        lines = np.array([state.line for state in run], np.int32)
        running = list(ready.values())
        used = {slot for state in running for slot in _line(pool, state).slots}
        pool.slots.prepare(used, running, len(pool.arrays.cursor), pool.generation)
        told = loops.Told(
            numbers=np.empty((count, 7), np.int32),
            chosen=np.empty((count, BEST_KEPT), np.int32),
            scores=np.empty((count, pool.plugins, BEST_KEPT), np.int32),
            refused=np.empty((count, loops.REFUSALS + loops.KINDS), np.int32),
        )
        high, low = draws(options.seed, draw, count)
        done = loops.decide(
            lines, high, low, pool.arrays, pool.shapes.arrays, pool.slots.arrays,
            _pool.columns(snapshot), log,
            snapshot.log_start, filled, told,
        )  # fmt: skip
        self._length = (
            min(2 * self._length, _LONGEST) if done == count else max(2 * done, _SHORTEST)
        )
        if done < count and pool.arrays.form[lines[done], loops.STUCK]:
            run[done].synced = False
        if not done:
            return None
        rows = told.numbers[:done, 0].copy()
        del keys[done:]
        snapshot.assume_run(keys, [state.info for state in run[:done]], rows, _pool.shared.link)
        pool.slots.ran(used)
        return LineRun(
            snapshot,
            self._framework.scheduler_name,
            seed=options.seed,
            draw=draw,
            start=start,
            keys=keys,
            lines=[_line(pool, state) for state in run[:done]],
            kinds={
                state.line: [bits for bits in pool.arrays.kind[state.line].tolist() if bits]
                for state in running
            },
            told=told.numbers[:done],
            chosen=told.chosen,
            scores=told.scores,
            refused=told.refused,
        )


def _line(pool: "Pool", state: "ClassState") -> Line:
    line = pool.lines[state.line]
    assert line is not None
    return line
