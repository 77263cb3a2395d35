"""Which way the pods of a profile are decided: the fast lane, or what a class left behind.

``decide_run`` hands runs of pods to the fast lane (``engine.fast_lane``). A pod that it cannot
decide for is refused as its sisters were (``refusals``), diagnosed in numbers where it fits nowhere
(``row_program``), or decided from the ``ClassState`` of its class. What none of these can do (a pod
that is nominated itself, sampling, plugins that do not say what they depend on) is left to the
reference path: ``decide`` then answers ``None``.
"""

from collections import OrderedDict
from collections.abc import Sequence

from scheduling.engine import fast_lane, row_program
from scheduling.engine.class_state import LOW, ClassState
from scheduling.engine.cycle import Options, PodToPlace, explain_unplaced, new_state
from scheduling.engine.decision import (
    UNSCHEDULABLE,
    Decision,
)
from scheduling.engine.refusals import Refusals
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    Cacheable,
    Locality,
    NormalizeScore,
    Plugin,
)
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo

_BYTES = 512 * 2**20
_BYTES_PER_ROW = 64
"""About what a class takes: its columns and the counts that it looks at."""
_LOOK_AHEAD = 1024


class LoopsUnavailable(RuntimeError):
    """The compiled loops cannot be loaded; without them decisions take a hundred times as long."""


def warm() -> bool:
    """Load the compiled loops, compiling them where they are not yet; return whether all are on.

    Takes 1 s where they are on disk, a minute where they are not; one process compiles, and others
    that start meanwhile wait for its code.

    Raises:
        LoopsUnavailable: Numba does not load here.
    """
    try:
        return all([fast_lane.warm(), row_program.warm()])
    except ImportError as error:
        raise LoopsUnavailable(
            f"the compiled scheduling loops cannot be loaded: {error}. Install the locked packages"
            " again (make clean, then make up)"
        ) from error


class Cache:
    """The class states of one profile over one snapshot, the least recently used forgotten.

    Args:
        snapshot: what the states follow.
        framework: the profile.
        limit: how many classes to keep at most; fewer where nodes are so many that their columns
            would take more than ``_BYTES``.
    """

    def __init__(self, snapshot: Snapshot, framework: Framework, *, limit: int = 4096) -> None:
        self.snapshot = snapshot
        self.framework = framework
        self.limit = limit
        self._states: OrderedDict[int, ClassState] = OrderedDict()
        self.usable = _usable(framework)
        # A plugin from outside may read a node's labels without ``label_column``.
        if any(plugin.name in framework.third_party for plugin in _judges(framework)):
            snapshot.reads_whole_nodes = True
        self._lane = fast_lane.FastLane(snapshot, framework)
        self.refusals = Refusals(snapshot, framework)
        self._programs = row_program.RowPrograms(snapshot, framework)
        self._looks_at_all = framework.profile.percentage_of_nodes_to_score >= 100
        # Classes whose last pod fitted nowhere: the next one is diagnosed before anything else.
        self._unplaced: set[int] = set()

    def state(self, info: PodInfo) -> "ClassState":
        """Return the class's state, up to date; made when it is not there.

        Raises:
            PluginFailed: a plugin failed.
        """
        state = self._states.get(info.index)
        if state is None or state.info is not info:
            state = self._states[info.index] = ClassState(self.snapshot, self.framework, info)
            while len(self._states) > self._most():
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(info.index)
            state.refresh()
        return state

    def _most(self) -> int:
        """Return how many classes there is room for."""
        return min(self.limit, max(_BYTES // (_BYTES_PER_ROW * self.snapshot.capacity), 1))

    def decide(
        self, pod: PodToPlace, options: Options, *, draw: int = 0, start: int = 0
    ) -> Decision | None:
        """Return where the pod goes, ``None`` where the reference path must decide.

        Raises:
            PluginFailed: a plugin failed.
        """
        if options.full or not self.snapshot.node_count:
            return None
        if self._lane.nowhere and pod.info.index not in self._unplaced:
            refusal = self._diagnose(pod, options, draw, start)
            if refusal is not None:
                return refusal
        if not self.usable or pod.nominated_node:
            return None
        guests = self.snapshot.nominated_pods(pod.info.priority, pod.key)
        state = self.state(pod.info)
        if not state.usable:
            return None
        if guests:
            return state.decide_beside(guests, pod, options, draw, start)
        return state.decide(pod, options, draw, start)

    def _diagnose(
        self, pod: PodToPlace, options: Options, draw: int, start: int
    ) -> Decision | None:
        """Return the decision about a pod that fits nowhere, ``None`` if it may fit somewhere.

        A pod whose class was not placed last is diagnosed before anything else is tried.

        Raises:
            PluginFailed: a plugin failed.
        """
        snapshot, framework = self.snapshot, self.framework
        if not self._looks_at_all or options.full or not row_program.enabled():
            return None  # as plain Python the loop is slower than what follows
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
        """Return the refusal that an earlier one of the class leads to, ``None`` if none does.

        Raises:
            PluginFailed: a plugin failed.
        """
        known = self.refusals.find(pod, options, draw=draw, start=start, state=self.state)
        if known is None and pod.info.index in self._unplaced and self.snapshot.node_count:
            known = self._diagnose(pod, options, draw, start)
            if known is not None:
                self.keep(pod, options, known, start=start)
        return known

    def keep(self, pod: PodToPlace, options: Options, decision: Decision, *, start: int) -> None:
        """Note a decision, before the snapshot follows it: sisters may be refused by it."""
        if decision.outcome == UNSCHEDULABLE:
            self._unplaced.add(pod.info.index)
        else:
            self._unplaced.discard(pod.info.index)
        state = self._states.get(pod.info.index) if self.usable else None
        if state is not None and (state.info is not pod.info or not state.follows):
            state = None
        most = self._most()
        self.refusals.keep(pod, options, decision, start=start, state=state, most=most)

    def decide_run(
        self,
        pods: Sequence[PodToPlace],
        first: int,
        options: Options,
        *,
        draw: int = 0,
        start: int = 0,
    ) -> Sequence[Decision]:
        """Decide for pods from the ``first`` on and assume them, as many as compiled loops can.

        Raises:
            PluginFailed: a plugin failed; nothing was decided.
        """
        if (
            not self._lane.usable
            or not fast_lane.enabled()
            or options.full
            or options.tie_break != "random"
            or not self.snapshot.node_count
        ):
            return []
        if len(self.refusals):
            pods = self._before_refused(pods, first)
        return self._lane.decide(pods, first, options, draw, start) or []

    def _before_refused(self, pods: Sequence[PodToPlace], first: int) -> Sequence[PodToPlace]:
        """Return the pods without those from the next one on whose class was refused.

        A loop would stop there, and look less far ahead from then on.
        """
        refusals = self.refusals
        for number in range(first, min(first + _LOOK_AHEAD, len(pods))):
            if pods[number].info in refusals:
                return pods[:number]
        return pods


def _judges(framework: Framework) -> list[Plugin]:
    return [*framework.filter_plugins, *framework.score_plugins]


def _usable(framework: Framework) -> bool:
    """Whether every plugin says what it depends on, in an order that the cache can follow."""
    if framework.profile.percentage_of_nodes_to_score < 100:
        return False
    grouped = False
    for plugin in framework.filter_plugins:
        if not isinstance(plugin, Cacheable) or plugin.filter_locality is Locality.UNKNOWN:
            return False
        if plugin.filter_locality is Locality.GROUP:
            grouped = True
        elif grouped:
            return False  # the first rejection would have to be sought across both kinds
    for scorer in framework.score_plugins:
        if not isinstance(scorer, Cacheable) or scorer.score_locality is Locality.UNKNOWN:
            return False
        if scorer.score_locality is Locality.ROW and isinstance(scorer, NormalizeScore):
            return False
    return sum(framework.weights.values()) * MAX_NODE_SCORE < -LOW // 2
