"""Runs the plugins of a profile, point by point, with Kubernetes' order and abort rules.

``Framework`` holds the plugins of one profile. Judgements are returned as values; a plugin that
raises, or answers with arrays of the wrong shape or type, ends the attempt with ``PluginFailed``,
which names it: the cycle makes an Error decision of that and continues with the next pod. Source:
pkg/scheduler/framework/runtime/framework.go, v1.36 (R150-R169).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from scheduling.framework.answers import (
    check_scores,
    failed,
    go_list,
    pair_of,
    status_of,
    wrong,
)
from scheduling.framework.arrays import Int64
from scheduling.framework.binding_points import Meter, metered
from scheduling.framework.configuration import BUILT_IN, Profile
from scheduling.framework.configuration.plugin_args import GangSchedulingArgs
from scheduling.framework.device_claims import DYNAMIC_RESOURCES
from scheduling.framework.events import EventsToRegister, Registration
from scheduling.framework.filter_point import FilterPoint
from scheduling.framework.group_points import GroupPoints
from scheduling.framework.handles import (
    DeviceStore,
    StoredPods,
    VolumeStore,
    WaitingPods,
    WantsDeviceStore,
    WantsStoredPods,
    WantsVolumeStore,
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
    PlacementFeasible,
    PlacementGenerate,
    PlacementScore,
    Plugin,
    PodGroupPostFilter,
    PostBind,
    PostFilter,
    PreBind,
    PreEnqueue,
    PreFilter,
    PreFilterExtensions,
    PreFilterResult,
    Preparatory,
    Preparing,
    PreScore,
    QueueSort,
    Reserve,
    Score,
    Scores,
    Selective,
    looks_at_nodes,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.outcomes import PluginFailed, PreFiltered, ScoreTable
from scheduling.framework.per_node import with_adapters
from scheduling.framework.pod_groups import GANG_SCHEDULING
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.terms import CountedFilter, Relying, RequestFilter
from scheduling.framework.types import Diagnosis, Nomination, PodInfo, PodRecord

P = TypeVar("P", bound=Plugin)
R = TypeVar("R")


_ONLY_GATES = (("SchedulingGates",), ("SchedulingGates", GANG_SCHEDULING))


class ConfigurationError(ValueError):
    """A profile names a plugin that does not exist or cannot act at the extension point."""


def _prepared(name: str, method: str, call: Callable[..., R], *arguments: object) -> R:
    """Call a plugin while the profile is made, and return the result.

    Raises:
        ConfigurationError: the call failed.
    """
    try:
        return call(*arguments)
    except Exception as cause:
        text = f"plugin {name!r}: {method} failed: {type(cause).__name__}: {cause}"
        raise ConfigurationError(text) from cause


def _events_of(name: str, plugin: EventsToRegister) -> Sequence[Registration]:
    """Return the events that a plugin registers.

    Raises:
        ConfigurationError: the call failed, or returned something else.
    """
    events = _prepared(name, "events_to_register", lambda: tuple(plugin.events_to_register()))
    if not all(isinstance(one, Registration) for one in events):
        text = f"plugin {name!r}: events_to_register did not return a list of Registration"
        raise ConfigurationError(text)
    return events


class Framework(FilterPoint, GroupPoints):
    """The plugins of one profile, ready to run.

    Args:
        profile: which plugins act where, in which order, with which weights.
        plugins: instances by name; all that the profile names.
        waiting_pods: the pods that wait on Permit, for plugins that use them.
        stored_pods: the stored pods, for plugins that read more than their classes.
        volume_store: where VolumeBinding writes its decisions.
        device_store: where DynamicResources writes claims whose devices must become ready first.
        meter: measures each call of a plugin; ``None`` for none.

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
        volume_store: VolumeStore | None = None,
        device_store: DeviceStore | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.profile = profile
        self.scheduler_name = profile.scheduler_name
        self.meter = meter
        self.third_party = frozenset(plugins) - BUILT_IN.keys()
        self.events: dict[str, Sequence[Registration]] = {}
        """Which events may help the pods that a plugin rejects, of the plugins that say so."""
        for name, plugin in plugins.items():
            if waiting_pods is not None and isinstance(plugin, WantsWaitingPods):
                _prepared(name, "use_waiting_pods", plugin.use_waiting_pods, waiting_pods)
            if stored_pods is not None and isinstance(plugin, WantsStoredPods):
                _prepared(name, "use_stored_pods", plugin.use_stored_pods, stored_pods)
            if volume_store is not None and isinstance(plugin, WantsVolumeStore):
                plugin.use_volume_store(volume_store)
            if device_store is not None and isinstance(plugin, WantsDeviceStore):
                plugin.use_device_store(device_store)
            if isinstance(plugin, EventsToRegister):
                self.events[name] = _events_of(name, plugin)
        forms = {name: with_adapters(plugin) for name, plugin in plugins.items()}

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

        # ``at`` checks with isinstance; mypy calls protocols abstract.
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
        self.placement_generate_plugins: list[PlacementGenerate] = at(
            "placementGenerate",
            PlacementGenerate,  # type: ignore[type-abstract]
        )
        self.placement_feasible_plugins: list[PlacementFeasible] = at(
            "placementFeasible",
            PlacementFeasible,  # type: ignore[type-abstract]
        )
        self.placement_score_plugins: list[PlacementScore] = at(
            "placementScore",
            PlacementScore,  # type: ignore[type-abstract]
        )
        self.pod_group_post_filter_plugins: list[PodGroupPostFilter] = at(
            "podGroupPostFilter",
            PodGroupPostFilter,  # type: ignore[type-abstract]
        )
        self.placement_weights = {use.name: use.weight for use in profile.plugins("placementScore")}
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

    @cached_property
    def request_filter(self) -> RequestFilter | None:
        """The filter that compares requested amounts with free ones, ``None`` if there is none."""
        return next((one for one in self.filter_plugins if isinstance(one, RequestFilter)), None)

    @cached_property
    def decides_alone(self) -> bool:
        """Whether each pod must pass Reserve and Permit before the next one is decided."""
        plugins = (*self.reserve_plugins, *self.permit_plugins, *self.post_bind_plugins)
        return self.works_before_binding or not all(isinstance(one, Selective) for one in plugins)

    @cached_property
    def only_notes(self) -> bool:
        """Whether only Reserve of this package's plugins runs before pods are bound.

        That Reserve only notes what the snapshot allocated to a pod when it was assumed.
        """
        return (
            not self.decides_alone
            and not self.permit_plugins
            and all(plugin.name not in self.third_party for plugin in self._selective)
        )

    @cached_property
    def _selective(self) -> tuple[Selective, ...]:
        plugins = (*self.reserve_plugins, *self.pre_bind_plugins, *self.post_bind_plugins)
        return tuple({id(one): one for one in plugins if isinstance(one, Selective)}.values())

    def concerns(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether this pod must be reserved before the next one, where others need not."""
        return any(plugin.concerns(pod, snapshot) for plugin in self._selective)

    def works_for(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether binding a pod requires more than writing its node."""
        return self.works_before_binding or any(asks(pod, snapshot) for asks in self._have_work)

    @cached_property
    def _have_work(self) -> list[Callable[[PodInfo, NodeTable], bool]]:
        return [
            plugin.has_work if isinstance(plugin, Preparatory) else plugin.concerns
            for plugin in self.pre_bind_plugins
            if isinstance(plugin, Selective)
        ]

    @cached_property
    def gives_devices(self) -> bool:
        """Whether the profile allocates devices for claims."""
        return any(plugin.name == "DynamicResources" for plugin in self.reserve_plugins)

    @cached_property
    def finds_one(self) -> bool:
        """Whether the first feasible node is chosen: no plugin scores, and no extender filters.

        Rule: ``findNodesThatPassFilters``, schedule_one.go, v1.36.
        """
        return not self.score_plugins and not any(one.filters_nodes for one in self.extenders)

    @property
    def looks_at_all(self) -> bool:
        """Whether every node is judged for every pod."""
        return self.profile.percentage_of_nodes_to_score >= 100 and not self.finds_one

    @cached_property
    def sorts_by_itself(self) -> bool:
        """Whether a plugin of another package orders the queue."""
        return any(plugin.name in self.third_party for plugin in self.queue_sort)

    @cached_property
    def age_points_per_minute(self) -> int:
        """Points by which a waiting pod's priority grows in each minute, in the queue's order."""
        if self.sorts_by_itself:
            return 0
        return sum(getattr(plugin, "age_points_per_minute", 0) for plugin in self.queue_sort)

    @cached_property
    def only_gates(self) -> bool:
        """Whether only scheduling gates keep a pod out of the active queue."""
        return self.profile.names("preEnqueue") in _ONLY_GATES

    @cached_property
    def schedules_groups(self) -> bool:
        """Whether pods with a ``schedulingGroup`` are decided as a group."""
        return GANG_SCHEDULING in self.profile.names("preEnqueue")

    @cached_property
    def gang_args(self) -> GangSchedulingArgs:
        """The arguments of GangScheduling."""
        found = self.profile.args.get(GANG_SCHEDULING)
        return found if isinstance(found, GangSchedulingArgs) else GangSchedulingArgs()

    @cached_property
    def claims_devices(self) -> bool:
        """Whether claims of devices keep a pod waiting."""
        return DYNAMIC_RESOURCES in self.profile.names("preFilter")

    @property
    def chooses_by_itself(self) -> bool:
        """Whether out-of-tree plugins filter or score nodes.

        Reserve and later points may then need their notes in the cycle state.
        """
        points = ("preFilter", "filter", "preScore", "score")
        return any(not self.third_party.isdisjoint(self.profile.names(one)) for one in points)

    @cached_property
    def filters_by_itself(self) -> bool:
        """Whether out-of-tree plugins filter nodes, in PreFilter or Filter."""
        points = ("preFilter", "filter")
        return any(not self.third_party.isdisjoint(self.profile.names(one)) for one in points)

    @cached_property
    def works_before_binding(self) -> bool:
        """Whether every pod has work before its node is written: PreBind, or a third party's Bind.

        If not, single pods may still have such work (``works_for``).
        """
        own = any(plugin.name in self.third_party for plugin in self.bind_plugins)
        return own or not all(isinstance(one, Selective) for one in self.pre_bind_plugins)

    # --- scheduling cycle ------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return the first answer that keeps the pod out of the active queue, or Success."""
        for plugin in self.pre_enqueue_plugins:
            status = self._ask(plugin, "PreEnqueue", plugin.pre_enqueue, pod)
            if not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        """Return the pod's sort key among the active ones by QueueSort; lower goes first (R152).

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
            if status.code is Code.UNSCHEDULABLE:
                # A later plugin may answer unresolvable, which outweighs this. Among others, the
                # last answer counts.
                rejection = status.by(plugin.name)
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
                    return PreFiltered(status, nothing, status, tuple(listed))
        if rejection is not None:
            return PreFiltered(rejection, nothing, rejection, tuple(sorted(narrowing)))
        if names is None:
            return PreFiltered(SUCCESS, snapshot.rows(), SUCCESS)
        found = (snapshot.row_of(name) for name in names)
        rows = np.array(sorted(row for row in found if row is not None), np.intp)
        absent = Status(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
            (f"node(s) didn't satisfy plugin(s) {go_list(sorted(narrowing))}",),
        )
        return PreFiltered(SUCCESS, rows, absent, tuple(sorted(narrowing)))

    def prepare(self, pods: Sequence[PodInfo], snapshot: NodeTable) -> None:
        """Pass the next pods to plugins that prepare for them; ignore failures (``Preparing``)."""
        for plugin in self.preparing:
            try:
                self._call(plugin, "Prepare", plugin.prepare, pods, snapshot)
            except PluginFailed:
                continue

    def pod_attached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Notify the PreFilter extensions that ``other`` was added to ``row``."""
        for plugin in self.extensions:
            if plugin.name not in state.skip_filter:
                plugin.pod_attached(state, pod, snapshot, other, row)

    def pod_detached(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, other: PodRecord, row: int
    ) -> None:
        """Notify the PreFilter extensions that ``other`` was removed from ``row``."""
        for plugin in self.extensions:
            if plugin.name not in state.skip_filter:
                plugin.pod_detached(state, pod, snapshot, other, row)

    @metered("PostFilter")
    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, diagnosis: Diagnosis
    ) -> tuple[Nomination | None, Status]:
        """Run PostFilter until one succeeds or answers unresolvable (R155).

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
            nominated, verdict = pair_of(plugin, "PostFilter", answer)
            result = nominated if isinstance(nominated, Nomination) else None
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
        """Run Score and NormalizeScore; weight and sum the scores (R157, R158).

        Raises:
            PluginFailed: a plugin failed, or a normalised score is not in 0..100.
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
            PluginFailed: the plugin failed, or a normalised score is not in 0..100.
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
