"""Chooses the path, fast or reference, on which the pods of a profile are decided.

``decide_run`` hands runs of pods to the fast path (``engine.fast.fast_lane``). For other pods an
earlier refusal of their class may still be valid (``refusals``); a pod that fits nowhere is
diagnosed by a compiled loop (``row_program``); all others take the reference path
(``engine.reference.cycle``).
"""

import contextlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from scheduling.engine.fast import fast_lane
from scheduling.engine.preemption import row_program
from scheduling.engine.reference.cycle import (
    Options,
    PodToPlace,
    explain_unplaced,
    new_state,
    schedule_pod,
)
from scheduling.engine.reference.decision import UNSCHEDULABLE, Decision
from scheduling.engine.reference.refusals import Refusals
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import Plugin
from scheduling.framework.runtime import Framework

_MOST_REFUSALS = 4096
_WORTH_LOADING = 5_000_000
_LOOK_AHEAD = 1024
_FEWEST_NOMINATED = 32
"""How many nominated pods are judged at once at first."""


class LoopsUnavailable(RuntimeError):
    """The compiled loops cannot be loaded; without them decisions take a hundred times as long."""


def is_kept() -> bool:
    """Return whether the compiled loops are cached on disk, so that ``warm`` takes a second.

    Raises:
        LoopsUnavailable: Numba cannot be imported.
    """
    with _loading():
        return fast_lane.is_kept() and row_program.is_kept()


def is_quick() -> bool:
    """Return whether the compiled loops are loaded; until then the reference path is used."""
    return fast_lane.enabled()


def warm() -> bool:
    """Load the compiled loops, compiling those that are not on disk; return whether all are loaded.

    Takes 1 s from disk, half a minute to compile; one process compiles, and others that start
    meanwhile wait for its code.

    Raises:
        LoopsUnavailable: Numba cannot be imported.
    """
    with _loading():
        return all([fast_lane.warm(), row_program.warm()])


@contextlib.contextmanager
def one_compiles() -> Iterator[None]:
    """Let one process of this machine compile the loops; the others wait here.

    Raises:
        LoopsUnavailable: Numba cannot be imported.
    """
    with _loading():
        from scheduling.engine.compiled import caching, loop
    with caching.alone(loop.decide, "warming.lock"):
        yield


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise LoopsUnavailable(
            f"the compiled scheduling loops cannot be loaded: {error}. Install the locked packages"
            " again (make clean, then make up)"
        ) from error


def warm_for(pods: int, nodes: int) -> None:
    """Load the compiled loops in a process that answers questions, if pods * nodes is large enough.

    Loading takes a second, as long as the reference path takes for a thousand pods on 5,000 nodes.
    """
    if pods * nodes >= _WORTH_LOADING and not fast_lane.enabled():
        with contextlib.suppress(LoopsUnavailable):  # the scheduler reports this and does not start
            warm()


class Decider:
    """Decides pods of one profile over one snapshot quickly, by results cached for each class.

    Args:
        snapshot: the cluster.
        framework: the profile.
    """

    def __init__(self, snapshot: Snapshot, framework: Framework) -> None:
        self.snapshot = snapshot
        self.framework = framework
        # A plugin from outside may read a node's labels without ``label_column``.
        if any(plugin.name in framework.third_party for plugin in _judges(framework)):
            snapshot.reads_whole_nodes = True
        self._lane = fast_lane.FastLane(snapshot, framework)
        self._programs = row_program.RowPrograms(snapshot, framework)
        self.refusals = Refusals(snapshot, framework, self._programs)
        self._looks_at_all = framework.looks_at_all
        # Classes whose last pod fitted nowhere: the next one is diagnosed before anything else.
        self._unplaced: set[int] = set()
        self._nominated_ahead = _FEWEST_NOMINATED

    def anew(self) -> "Decider":
        """Return a decider of the same snapshot and profile with empty caches, for a dry run."""
        return Decider(self.snapshot, self.framework)

    def decide(
        self, pod: PodToPlace, options: Options, *, draw: int = 0, start: int = 0
    ) -> Decision:
        """Return the decision about a pod: the same one as ``cycle.schedule_pod`` returns."""
        if self._lane.nowhere and pod.info.index not in self._unplaced:
            refusal = self._diagnose(pod, options, draw, start)
            if refusal is not None:
                return refusal
        return schedule_pod(
            self.snapshot, self.framework, pod, options,
            draw=draw, start=start, programs=self._programs if row_program.enabled() else None,
        )  # fmt: skip

    def _diagnose(
        self, pod: PodToPlace, options: Options, draw: int, start: int
    ) -> Decision | None:
        """Return the refusal of a pod that fits nowhere, ``None`` if it may fit somewhere.

        Called first if the last pod of the class was not placed.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, framework = self.snapshot, self.framework
        if not self._looks_at_all or options.full or not row_program.enabled():
            return None  # as plain Python the loop is slower than the reference path
        state = new_state(pod, options, draw)
        state.victim_search = self._programs
        begun = framework.pre_filter(state, pod.info, snapshot)
        if not begun.status.ok:
            return None
        filtered = self._programs.diagnose(state, pod.info, begun.rows)
        if filtered is None:
            return None
        return explain_unplaced(
            snapshot, framework, pod, options, filtered,
            draw=draw, start=start, begun=(state, begun),
        )  # fmt: skip

    def refused(
        self, pod: PodToPlace, options: Options, *, draw: int = 0, start: int = 0
    ) -> Decision | None:
        """Return a refusal that an earlier one of the pod's class implies, ``None`` if none does.

        Raises:
            PluginFailed: a plugin failed.
        """
        refusal = self.refusals.find(pod, options, draw=draw, start=start)
        if refusal is None and pod.info.index in self._unplaced and self.snapshot.node_count:
            refusal = self._diagnose(pod, options, draw, start)
            if refusal is not None:
                self.keep(pod, options, refusal, start=start)
        return refusal

    def keep(self, pod: PodToPlace, options: Options, decision: Decision, *, start: int) -> None:
        """Note a decision before the snapshot includes it: it may imply refusals of other pods."""
        if decision.outcome == UNSCHEDULABLE:
            self._unplaced.add(pod.info.index)
        else:
            self._unplaced.discard(pod.info.index)
        self.refusals.keep(pod, options, decision, start=start, most=_MOST_REFUSALS)

    def decide_run(
        self,
        pods: Sequence[PodToPlace],
        first: int,
        options: Options,
        *,
        draw: int = 0,
        start: int = 0,
    ) -> Sequence[Decision]:
        """Decide and assume pods from the ``first`` on, as many as the compiled loops can.

        Raises:
            PluginFailed: a plugin failed; nothing was decided.
        """
        if pods[first].nominated_node:
            return self._on_nominated(pods, first, options, draw, start)
        if (
            not self._lane.usable
            or not fast_lane.enabled()
            or options.full
            or not self.snapshot.node_count
        ):
            return []
        if len(self.refusals):
            pods = self._before_refused(pods, first)
        run: Sequence[Decision] = self._lane.decide(pods, first, options, draw, start) or []
        if run:
            self._unplaced.discard(pods[first].info.index)
        return run

    def _on_nominated(
        self, pods: Sequence[PodToPlace], first: int, options: Options, draw: int, start: int
    ) -> list[Decision]:
        """Decide and assume pods of one class that fit on the nodes that they are nominated for.

        Each pod has a node of its own, for which no other pod is nominated, and no filter reads
        other nodes. So all nodes are filtered at once, and each decision is the same as for a
        single pod. The run ends before the first pod that does not fit.
        """
        snapshot, framework, info = self.snapshot, self.framework, pods[first].info
        if (
            options.full
            or framework.filters_by_itself
            or framework.extenders
            or info.volumes
            or info.claims
            or info.may_claim
        ):
            return []
        nominations, rows = snapshot.nominations, dict[int, None]()
        end = min(first + self._nominated_ahead, len(pods))
        # Twice as many the next time if all of these fit, since each call judges all that it reads.
        self._nominated_ahead, before = _FEWEST_NOMINATED, self._nominated_ahead
        for place in range(first, end):
            pod = pods[place]
            row = snapshot.row_of(pod.nominated_node) if pod.nominated_node else None
            there = nominations.of_node.get(pod.nominated_node, {})
            if (
                pod.info is not info
                or row is None
                or row in rows
                or any(key != pod.key for key in there)
            ):
                break
            rows[row] = None
        if len(rows) < 2:
            return []
        state = new_state(pods[first], options, draw)
        begun = framework.pre_filter(state, info, snapshot)
        if not begun.status.ok or not framework.filters_rows_alone(state):
            return []
        at = np.fromiter(rows, np.intp, len(rows))
        verdict = framework.filter_alone(state, info, snapshot, at).verdict
        fits = np.append(np.isin(at, begun.rows) & (verdict == 0), False)
        count = int(np.argmin(fits))
        if count < 2:
            return []
        if first + count == end:
            self._nominated_ahead = 2 * before
        model = schedule_pod(snapshot, framework, pods[first], options, draw=draw, start=start)
        found = []
        for number, row in enumerate(at[:count].tolist()):
            pod = pods[first + number]
            snapshot.assume(pod.key, info, row)
            found.append(
                msgspec.structs.replace(
                    model, key=pod.key, node_name=pod.nominated_node, row=row, draw=draw + number
                )
            )
        self._unplaced.discard(info.index)
        return found

    def _before_refused(self, pods: Sequence[PodToPlace], first: int) -> Sequence[PodToPlace]:
        """Return the pods from ``first`` up to the next one whose class was refused before.

        The loop would stop at that pod, and look less far ahead from then on.
        """
        refusals = self.refusals
        for number in range(first, min(first + _LOOK_AHEAD, len(pods))):
            if pods[number].info in refusals:
                return pods[:number]
        return pods


def _judges(framework: Framework) -> list[Plugin]:
    return [*framework.filter_plugins, *framework.score_plugins]
