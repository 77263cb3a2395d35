"""Running the plugins of a profile, point by point, with Kubernetes' order and abort rules.

``Framework`` holds the plugins of one profile. Judgements come back as values; a plugin that
raises, or answers with arrays of the wrong shape or type, ends the attempt with ``PluginFailed``,
which names it: the cycle turns that into an Error decision and goes on with the next pod. Source:
pkg/scheduler/framework/runtime/framework.go, v1.36 (R150-R169).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from scheduling.framework.answers import (
    check_filter_result,
    check_scores,
    failed,
    go_list,
    pair_of,
    rejection_of,
    status_of,
    wrong,
)
from scheduling.framework.arrays import Int64, numbered
from scheduling.framework.binding_points import BindingPoints, Meter, metered
from scheduling.framework.configuration import BUILT_IN, Profile
from scheduling.framework.handles import (
    StoredPods,
    WaitingPods,
    WantsStoredPods,
    WantsWaitingPods,
)
from scheduling.framework.interface import (
    MAX_NODE_SCORE,
    Bind,
    CycleState,
    Extender,
    Filter,
    NormalizeScore,
    Permit,
    Plugin,
    PostBind,
    PostFilter,
    PreBind,
    PreEnqueue,
    PreFilter,
    PreFilterExtensions,
    PreFilterResult,
    Preparing,
    PreScore,
    QueueSort,
    Reserve,
    Score,
    Scores,
    looks_at_nodes,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.outcomes import Filtered, PluginFailed, PreFiltered, ScoreTable
from scheduling.framework.per_node import adapted
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.terms import CountedFilter, Relying, RequestFilter
from scheduling.framework.types import Diagnosis, Nomination, PodInfo, PodRecord

P = TypeVar("P", bound=Plugin)
R = TypeVar("R")

_FEW = 64
"""Up to this many rejections a dictionary is faster than sorting an array."""


class ConfigurationError(ValueError):
    """A profile names a plugin that does not exist or cannot act at the extension point."""


class Framework(BindingPoints):
    """The plugins of one profile, ready to run.

    Args:
        profile: which plugins act where, in which order, with which weights.
        plugins: instances by name; all that the profile names.
        waiting_pods: what plugins that want it see of pods that wait on Permit.
        stored_pods: what plugins that want it see of pods beyond their scheduling classes.
        meter: told how long each call of a plugin takes; ``None`` for none.

    Raises:
        ConfigurationError: a plugin is missing or cannot act where the profile puts it.
    """

    def __init__(
        self,
        profile: Profile,
        plugins: Mapping[str, Plugin],
        *,
        waiting_pods: WaitingPods | None = None,
        stored_pods: StoredPods | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.profile = profile
        self.scheduler_name = profile.scheduler_name
        self.meter = meter
        self.third_party = frozenset(plugins) - BUILT_IN.keys()
        if waiting_pods is not None:
            for plugin in plugins.values():
                if isinstance(plugin, WantsWaitingPods):
                    plugin.use_waiting_pods(waiting_pods)
        if stored_pods is not None:
            for plugin in plugins.values():
                if isinstance(plugin, WantsStoredPods):
                    plugin.use_stored_pods(stored_pods)
        forms = {name: adapted(plugin) for name, plugin in plugins.items()}

        def at(point: str, kind: type[P], *, optional: bool = False) -> list[P]:
            chosen: list[P] = []
            for name in profile.names(point):
                if name not in forms:
                    raise ConfigurationError(
                        f"profile {profile.scheduler_name!r}: plugin {name!r} does not exist"
                    )
                form = next((form for form in forms[name] if isinstance(form, kind)), None)
                if form is not None:
                    chosen.append(form)
                elif not optional:
                    raise ConfigurationError(
                        f"profile {profile.scheduler_name!r}: plugin {name!r} does not extend "
                        f"{point}"
                    )
            return chosen

        # isinstance against a Protocol is what ``at`` is for; mypy calls protocols abstract.
        self.queue_sort: list[QueueSort] = at("queueSort", QueueSort)  # type: ignore[type-abstract]
        self.pre_enqueue_plugins: list[PreEnqueue] = at("preEnqueue", PreEnqueue)  # type: ignore[type-abstract]
        self.pre_filter_plugins: list[PreFilter] = at("preFilter", PreFilter)  # type: ignore[type-abstract]
        self.filter_plugins: list[Filter] = at("filter", Filter)  # type: ignore[type-abstract]
        self.post_filter_plugins: list[PostFilter] = at("postFilter", PostFilter)  # type: ignore[type-abstract]
        self.pre_score_plugins: list[PreScore] = at("preScore", PreScore)  # type: ignore[type-abstract]
        self.score_plugins: list[Score] = at("score", Score)  # type: ignore[type-abstract]
        self.reserve_plugins: list[Reserve] = at("reserve", Reserve)  # type: ignore[type-abstract]
        self.permit_plugins: list[Permit] = at("permit", Permit)  # type: ignore[type-abstract]
        self.pre_bind_plugins: list[PreBind] = at("preBind", PreBind)  # type: ignore[type-abstract]
        self.bind_plugins: list[Bind] = at("bind", Bind)  # type: ignore[type-abstract]
        self.post_bind_plugins: list[PostBind] = at("postBind", PostBind)  # type: ignore[type-abstract]
        self.relying_filters: list[Relying] = [
            plugin for plugin in self.filter_plugins if isinstance(plugin, Relying)
        ]
        self.extenders: list[Extender] = [
            plugin for plugin in self.filter_plugins if isinstance(plugin, Extender)
        ]
        outside = {plugin.name for plugin in self.extenders}
        self._inside = [one for one in self.filter_plugins if one.name not in outside]
        self._outside = [one for one in self.filter_plugins if one.name in outside]
        self.preparing: list[Preparing] = [
            plugin for plugin in plugins.values() if isinstance(plugin, Preparing)
        ]
        self.weights = profile.weights()
        self._beyond_rows = [
            plugin.name
            for plugin in self._inside
            if not looks_at_nodes(plugin) and not isinstance(plugin, RequestFilter | CountedFilter)
        ]
        self._normalize = {
            plugin.name: plugin.normalize
            for plugin in self.score_plugins
            if isinstance(plugin, NormalizeScore)
        }
        self.extensions: list[PreFilterExtensions] = [
            form
            for plugin in self.filter_plugins
            for form in forms[plugin.name]
            if isinstance(form, PreFilterExtensions)
        ]

    @property
    def decides_alone(self) -> bool:
        """Whether each pod must be reserved and permitted before the next one is decided."""
        plugins = (self.reserve_plugins, self.permit_plugins, self.post_bind_plugins)
        return any(plugins) or self.works_before_binding

    @cached_property
    def sorts_by_itself(self) -> bool:
        """Whether a plugin of another package orders the queue."""
        return any(plugin.name in self.third_party for plugin in self.queue_sort)

    @cached_property
    def age_points_per_minute(self) -> int:
        """By how much the priority of a waiting pod grows in the order of the queue."""
        if self.sorts_by_itself:
            return 0
        return sum(getattr(plugin, "age_points_per_minute", 0) for plugin in self.queue_sort)

    @cached_property
    def only_gates(self) -> bool:
        """Whether nothing but scheduling gates keeps a pod out of the active queue."""
        return self.profile.names("preEnqueue") == ("SchedulingGates",)

    @property
    def chooses_by_itself(self) -> bool:
        """Whether plugins of other packages take part in the choice of a node.

        What they note in the cycle's state may then matter to Reserve and later points.
        """
        points = ("preFilter", "filter", "preScore", "score")
        return any(not self.third_party.isdisjoint(self.profile.names(one)) for one in points)

    @cached_property
    def filters_by_itself(self) -> bool:
        """Whether plugins of other packages take part in Filter."""
        points = ("preFilter", "filter")
        return any(not self.third_party.isdisjoint(self.profile.names(one)) for one in points)

    @property
    def works_before_binding(self) -> bool:
        """Whether binding takes more than writing the node down: PreBind, or a Bind of its own."""
        own = any(plugin.name in self.third_party for plugin in self.bind_plugins)
        return own or bool(self.pre_bind_plugins)

    # --- scheduling cycle ------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return the first answer that keeps the pod out of the active queue, or Success."""
        for plugin in self.pre_enqueue_plugins:
            status = self._ask(plugin, "PreEnqueue", plugin.pre_enqueue, pod)
            if not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        """Return the pod's place among the active ones by QueueSort; lower goes first (R152).

        Raises:
            PluginFailed: the plugin failed, or its key is not a tuple of numbers.
        """
        (plugin,) = self.queue_sort
        key: object = self._call(plugin, "QueueSort", plugin.sort_key, pod, queued_at)
        if not isinstance(key, tuple) or not all(isinstance(part, int | float) for part in key):
            raise wrong(plugin, "QueueSort", f"returned {key!r}, wanted a tuple of numbers")
        return key

    @metered("PreFilter")
    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: NodeTable) -> PreFiltered:
        """Run PreFilter (R153). Notes in ``state`` which plugins skip their Filter.

        Raises:
            PluginFailed: a plugin failed.
        """
        nothing = snapshot.rows()[:0]
        rejection: Status | None = None
        names: frozenset[str] | None = None
        narrowing: set[str] = set()
        for plugin in self.pre_filter_plugins:
            answer = self._call(plugin, "PreFilter", plugin.pre_filter, state, pod, snapshot)
            result, answered = pair_of(plugin, "PreFilter", answer)
            status = status_of(plugin, "PreFilter", answered)
            if status.code is Code.SKIP:
                state.skip_filter.add(plugin.name)
                continue
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFiltered(status.by(plugin.name), nothing, status.by(plugin.name))
            if status.code.rejects:
                # A later plugin may say that the pod is unresolvable, which weighs more.
                rejection = rejection or status.by(plugin.name)
                continue
            if not status.ok:
                raise failed(plugin, f'running PreFilter plugin "{plugin.name}": {status.message}')
            if result is not None and not isinstance(result, PreFilterResult):
                kind = type(result).__name__
                raise wrong(plugin, "PreFilter", f"returned {kind}, wanted PreFilterResult")
            if result is not None and result.node_names is not None:
                narrowing.add(plugin.name)
                names = result.node_names if names is None else names & result.node_names
                if not names:
                    listed = sorted(narrowing)
                    text = (
                        f"node(s) didn't satisfy plugin {listed[0]}"
                        if len(listed) == 1
                        else f"node(s) didn't satisfy plugin(s) {go_list(listed)} simultaneously"
                    )
                    status = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,))
                    return PreFiltered(status, nothing, status)
        if rejection is not None:
            return PreFiltered(rejection, nothing, rejection)
        if names is None:
            return PreFiltered(SUCCESS, snapshot.rows(), SUCCESS)
        found = (snapshot.row_of(name) for name in names)
        rows = np.array(sorted(row for row in found if row is not None), np.intp)
        absent = Status(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            (f"node(s) didn't satisfy plugin(s) {go_list(sorted(narrowing))}",),
        )
        return PreFiltered(SUCCESS, rows, absent)

    def prepare(self, pods: Sequence[PodInfo], snapshot: NodeTable) -> None:
        """Tell plugins of the pods that are decided next; one that fails is asked for each pod."""
        for plugin in self.preparing:
            try:
                self._call(plugin, "Prepare", plugin.prepare, pods, snapshot)
            except PluginFailed:
                continue

    def filter(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Filtered:
        """Run Filter in order, then ask extenders about what is left (R154).

        Raises:
            PluginFailed: a plugin failed.
        """
        judged = self.filter_inside(state, pod, snapshot, rows)
        return self.ask_extenders(state, pod, snapshot, judged)

    def ask_extenders(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, judged: Filtered
    ) -> Filtered:
        """Return ``judged`` without the rows that extenders reject.

        Rule: schedule_one.go ``findNodesThatPassExtenders``: in order, while a node is left.

        Raises:
            PluginFailed: an extender failed.
        """
        if not self._outside:
            return judged
        places = np.flatnonzero(judged.verdict == 0)
        asked = self.filter_some(self._outside, state, pod, snapshot, judged.rows[places])
        return judged if len(asked.statuses) == 1 else judged.narrowed(places, asked)

    @metered("Filter")
    def filter_inside(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> Filtered:
        """Run Filter in order; each plugin sees only rows that all before it passed.

        Extenders are not asked.

        Pods nominated to a node count as if they ran there, when their priority is not lower: such
        a node must also pass with them (runtime ``RunFilterPluginsWithNominatedPods``).

        Raises:
            PluginFailed: a plugin failed.
        """
        filtered = self.filter_alone(state, pod, snapshot, rows)
        nominated = snapshot.nominated_pods(pod.priority, state.pod_key)
        if not nominated:
            return filtered
        verdict = filtered.verdict.copy()
        statuses = list(filtered.statuses)
        concerned = np.flatnonzero(np.isin(rows, np.fromiter(nominated, np.intp)))
        if not len(concerned):
            return filtered
        # A node must pass with its nominated pods and without; the former rejection is reported.
        judged = self.judge_with_nominated(state, pod, snapshot, rows[concerned], nominated)
        numbers = {status: number for number, status in enumerate(statuses)}
        for position, status in zip(concerned.tolist(), judged, strict=True):
            if not status.ok:
                number = numbers.setdefault(status, len(statuses))
                if number == len(statuses):
                    statuses.append(status)
                verdict[position] = number
        # What no row is rejected by any more does not count among the reasons.
        used = np.bincount(verdict, minlength=len(statuses)) > 0
        used[0] = True
        renumbered = (np.cumsum(used, dtype=np.int32) - 1)[verdict]
        kept = tuple(status for status, is_used in zip(statuses, used, strict=True) if is_used)
        return Filtered(rows, renumbered, kept)

    def judge_with_nominated(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> list[Status]:
        """Return what Filter says of rows while the pods nominated to them are counted there.

        Args:
            state: as PreFilter left it.
            pod: the pod that looks for a node.
            snapshot: the nodes.
            rows: some of the keys of ``nominated``.
            nominated: from ``snapshot.nominated_pods``, by row.

        Raises:
            PluginFailed: a plugin failed.
        """
        there = rows.tolist()
        # Where no filter looks beyond a row, pods nominated to one do not matter to others.
        if state.skip_filter.issuperset(self._beyond_rows):
            together = {row: nominated[row] for row in there}
            found = self._filter_with_nominated(state, pod, snapshot, together)
            return [found.statuses[number] for number in found.verdict.tolist()]
        return [
            self._filter_with_nominated(state, pod, snapshot, {row: nominated[row]}).status(0)
            for row in there
        ]

    def filter_alone(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> Filtered:
        """Run Filter without looking at nominated pods, or asking extenders."""
        return self.filter_some(self._inside, state, pod, snapshot, rows)

    def filter_some(
        self,
        plugins: Sequence[Filter],
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
    ) -> Filtered:
        """Run the Filter of some plugins, in order.

        Raises:
            PluginFailed: a plugin failed.
        """
        count = len(rows)
        verdict = np.zeros(count, np.int32)
        statuses = [SUCCESS]
        remaining: npt.NDArray[np.intp] | None = None  # positions that still pass; None: all
        for plugin in plugins:
            if plugin.name in state.skip_filter:
                continue
            here = rows if remaining is None else rows[remaining]
            if not len(here):
                break
            result = self._call(plugin, "Filter", plugin.filter, state, pod, snapshot, here)
            if result is None:
                continue
            check_filter_result(plugin, result, len(here))
            codes = result.codes
            failing = np.flatnonzero(codes)
            if not len(failing):
                continue
            # Number the distinct (code, reasons) pairs of this plugin after those before it.
            kinds: dict[tuple[int, int], int] = {}
            base = len(statuses)
            if len(failing) <= _FEW:
                pairs = zip(codes[failing].tolist(), result.reason[failing].tolist(), strict=True)
                numbers = np.array([kinds.setdefault(one, base + len(kinds)) for one in pairs])
            else:
                width = len(result.reasons) + 1
                combined = codes[failing].astype(np.int64) * width + result.reason[failing]
                found, inverse = numbered(combined)
                numbers = base + inverse
                kinds = {divmod(kind, width): 0 for kind in found.tolist()}
            for code, reason in kinds:
                status = rejection_of(plugin, result, code, reason)
                statuses.append(status)
                if status.code is Code.ERROR:
                    text = f'running "{plugin.name}" filter plugin: {status.message}'
                    raise failed(plugin, text)
            where = failing if remaining is None else remaining[failing]
            verdict[where] = numbers
            remaining = np.flatnonzero(verdict == 0)
        return Filtered(rows, verdict, tuple(statuses))

    def _filter_with_nominated(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        nominated: Mapping[int, Sequence[PodInfo]],
    ) -> Filtered:
        """Judge rows while the pods that are nominated to them are counted there."""
        # Plugins that skip go on skipping, whatever the nominated pods bring, as upstream.
        own = state.clone()
        with snapshot.counting_nominated(nominated):
            return self.filter_alone(own, pod, snapshot, np.array(list(nominated), np.intp))

    def run_filters(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, row: int) -> Status:
        """Return the first rejection of one row, or Success; as ``filter_inside`` does.

        Raises:
            PluginFailed: a plugin failed.
        """
        rows = np.array([row], np.intp)
        return self.filter_inside(state, pod, snapshot, rows).status(0)

    def pod_attached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Tell the PreFilter extensions that ``other`` was put on ``row``."""
        for plugin in self.extensions:
            if plugin.name not in state.skip_filter:
                plugin.pod_attached(state, pod, snapshot, other, row)

    def pod_detached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Tell the PreFilter extensions that ``other`` was taken off ``row``."""
        for plugin in self.extensions:
            if plugin.name not in state.skip_filter:
                plugin.pod_detached(state, pod, snapshot, other, row)

    @metered("PostFilter")
    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, diagnosis: Diagnosis
    ) -> tuple[Nomination | None, Status]:
        """Run PostFilter until one succeeds or fails for good (R155).

        Raises:
            PluginFailed: a plugin failed.
        """
        nomination: Nomination | None = None
        reasons: list[str] = []
        rejected_by = ""
        code = Code.UNSCHEDULABLE
        for plugin in self.post_filter_plugins:
            answer = self._call(
                plugin, "PostFilter", plugin.post_filter, state, pod, snapshot, diagnosis, self
            )
            told, verdict = pair_of(plugin, "PostFilter", answer)
            result = told if isinstance(told, Nomination) else None
            status = status_of(plugin, "PostFilter", verdict)
            if status.ok or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return result, status.by(plugin.name)
            if not status.code.rejects:
                raise failed(plugin, status.message)
            if result is not None:
                nomination = result
            reasons += status.reasons
            rejected_by = rejected_by or plugin.name
            code = status.code
        return nomination, Status(code, tuple(reasons), rejected_by)

    @metered("PreScore")
    def pre_score(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        multiplicity: Int64 | None = None,
    ) -> None:
        """Run PreScore (R156); notes in ``state`` which plugins skip their Score.

        Raises:
            PluginFailed: a plugin failed or rejected.
        """
        counts = np.ones(len(rows), np.int64) if multiplicity is None else multiplicity
        for plugin in self.pre_score_plugins:
            status = status_of(
                plugin,
                "PreScore",
                self._call(
                    plugin, "PreScore", plugin.pre_score, state, pod, snapshot, rows, counts
                ),
            )
            if status.code is Code.SKIP:
                state.skip_score.add(plugin.name)
            elif not status.ok:
                raise failed(plugin, f'running PreScore plugin "{plugin.name}": {status.message}')

    @metered("Score")
    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> ScoreTable:
        """Run Score and NormalizeScore, weigh and add up (R157, R158).

        Raises:
            PluginFailed: a plugin failed or left the range 0..100 after normalising.
        """
        chosen = [plugin for plugin in self.score_plugins if plugin.name not in state.skip_score]
        shape = (len(chosen), len(rows))
        raw = np.zeros(shape, np.int64)
        normalized = np.zeros(shape, np.int64)
        weighted = np.zeros(shape, np.int64)
        for line, plugin in enumerate(chosen):
            raw[line], normalized[line] = self.score_one(plugin, state, pod, snapshot, rows)
            weighted[line] = normalized[line] * self.weights[plugin.name]
        return ScoreTable(
            rows,
            tuple(plugin.name for plugin in chosen),
            raw,
            normalized,
            weighted,
            weighted.sum(axis=0),
            tuple(p.name for p in self.score_plugins if p.name in state.skip_score),
        )

    def score_one(
        self, plugin: Score, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> tuple[Scores, Scores]:
        """Return raw and normalised scores of one plugin, not weighted.

        Raises:
            PluginFailed: the plugin failed or left the range 0..100 after normalising.
        """
        raw = self._call(plugin, "Score", plugin.score, state, pod, snapshot, rows)
        check_scores(plugin, "Score", raw, len(rows))
        final = raw
        normalize = self._normalize.get(plugin.name)
        if normalize is not None:
            final = self._call(
                plugin, "NormalizeScore", normalize, state, pod, snapshot, rows, raw.copy()
            )
            check_scores(plugin, "NormalizeScore", final, len(rows))
        if len(rows):
            lowest, highest = int(final.min()), int(final.max())
            if lowest < 0 or highest > MAX_NODE_SCORE:
                outside = lowest if lowest < 0 else highest
                raise failed(
                    plugin,
                    f'plugin "{plugin.name}" returns an invalid score {outside}, it should in the '
                    f"range of [0, {MAX_NODE_SCORE}] after normalizing",
                )
        return raw, final
