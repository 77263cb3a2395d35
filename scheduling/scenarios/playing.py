"""Runs a script under a configuration, in virtual time: the one loop of this package."""

import heapq
import itertools
import time
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
import numpy as np

from clusterstate.objects.rules import eviction
from clusterstate.objects.rules.matching import NO_EXECUTE
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node, Taint
from scheduling.engine.reference.cycle import mix
from scheduling.engine.reference.decision import Decision
from scheduling.framework.binding_points import Meter
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.scenarios import manifests
from scheduling.scenarios.measuring import Measure
from scheduling.scenarios.outcome import Outcome, PodEnd, PodTimeline, Sample
from scheduling.scenarios.script import Arrival, NodeChange, Script, Step
from scheduling.simulation.cluster import VirtualCluster
from scheduling.simulation.document import Given
from scheduling.simulation.leaving import BudgetCharges
from scheduling.simulation.preparing import Preparer, Ready, Set, UnplacedStatus
from scheduling.simulation.running import build_frameworks
from scheduling.simulation.world import Base, World, name_of

Progress = Callable[[float, int, int], None]
"""Called with the second, the number of arrived pods, and that of all pods."""

_FIRST_ID = 2**50
"""The first id of scripts' pods, above the ids of a live world."""
_SAMPLES = 300
"""The number of samples of an outcome, evenly over its time."""
_MOST_WARNINGS = 100
_LONGEST_PAUSE = 300.0
"""The longest pause, in seconds, before a pod that is evicted at once is replaced again."""
_QUIET_SECONDS = 60.0
"""Seconds after the last change for which refused pods are still tried, or two backoffs."""
_LONGEST_QUIET = 7 * 86400.0
"""Seconds after the last step when a script without an end is over at the latest."""


class _Running(msgspec.Struct, gc=False):
    """A pod of the script; ``generation`` counts its replacements."""

    fate: PodTimeline
    arrival: Arrival
    info: PodInfo | None
    key: Hashable
    name: str
    namespace: str
    generation: int = 0


class Player:
    """Runs one script under one configuration, once.

    Args:
        script: the events.
        configuration: the scheduler's configuration.
        title: the outcome's title.
        base: the world to which the script's objects are added; it is changed.
        progress: called from time to time with the time and the numbers of pods.
        follows: pods go to the nodes recorded in the script, and nothing is decided.
        meter: receives the time of each call of a plugin.

    Raises:
        ConfigurationError: a profile's plugin does not exist or lacks the extension point.
    """

    def __init__(
        self,
        script: Script,
        configuration: KubeSchedulerConfiguration,
        *,
        title: str,
        base: Base | None = None,
        progress: Progress | None = None,
        follows: bool = False,
        meter: Meter | None = None,
    ) -> None:
        self._script = script
        self._follows = follows
        self._title = title
        self._progress = progress
        self._world = World(base or Base(), admission=script.admission)
        self._budgets = BudgetCharges(self._world.snapshot)
        self._draws = itertools.count()
        self._cluster = VirtualCluster(
            self._world.snapshot, configuration, seeds=self._seed, observer=self,
            now=script.began_at, meter=meter,
        )  # fmt: skip
        self._frameworks = build_frameworks(configuration)
        self._preparer = Preparer(self._world, self._frameworks)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._pods: dict[Hashable, _Running] = {}
        self._fates: list[PodTimeline] = []
        self._came = 0
        self._pending: set[Hashable] = set()
        self._running: set[Hashable] = set()
        self._timers: dict[Hashable, int] = {}
        self._titles: dict[str, dict[Hashable, None]] = {}
        """The pods by namespace and name, the newest last: a name may occur twice."""
        self._numbers = itertools.count(_FIRST_ID)
        self._will_come = script.pod_count
        self._warnings: dict[str, None] = {}
        self._changed_at = 0.0
        """The second of the last event, binding or end of a pod."""
        self._samples: list[Sample] = []
        self._next_sample = 0.0
        self._measure = Measure(script.scored)

    def _seed(self) -> int:
        return mix(self._script.seed, next(self._draws)) >> 1

    # --- the loop --------------------------------------------------------------------------------

    def play(self) -> Outcome:
        """Run the script; return its outcome.

        Raises:
            Invalid: an object of the world at the beginning is invalid.
        """
        began = time.perf_counter()
        self._begin()
        script, cluster = self._script, self._cluster
        last = max((step.at for step in script.steps), default=0.0)
        end = script.until if script.until is not None else last + _LONGEST_QUIET
        every = max(end if script.until is not None else last, 1.0) / _SAMPLES
        for step in script.steps:
            self._at(step.at, lambda step=step: self._do(step))  # type: ignore[misc]
        finished = 0.0
        unseen = True
        while True:
            moments = [self._due[0][0]] if self._due else []
            due = cluster.next_due()
            if due is not None and (moments or self._may_help(due, last)):
                moments.append(due - script.began_at)
            if not moments or min(moments) > end:
                break
            moment = max(min(moments), finished)
            if unseen and moment > finished and moment >= self._next_sample:
                self._sample(finished)  # the time since the last sample
            finished = moment
            cluster.now = script.began_at + finished
            while self._due and self._due[0][0] <= finished:
                heapq.heappop(self._due)[2]()
            while cluster.cycle():
                pass
            unseen = finished < self._next_sample
            if not unseen:
                self._sample(finished)
                self._next_sample = finished + every
        if unseen:
            self._sample(finished)
        if script.until is not None:
            finished = script.until
        self._sample(finished)
        return Outcome(
            title=self._title,
            fates=self._fates,
            samples=self._samples,
            seconds=finished,
            pods_on=self._pods_on(),
            measure=self._measure.name,
            cycles=cluster.cycles,
            wall_seconds=time.perf_counter() - began,
            warnings=tuple(self._warnings),
        )

    def _may_help(self, due: float, last: float) -> bool:
        """Return whether to retry pods although the script has no further event.

        Otherwise pods that fail after the last event would be tried for ever: every five minutes,
        or after each backoff if no plugin refused them.
        """
        wait = max(_QUIET_SECONDS, 2 * self._cluster.backoff.longest)
        return due - self._script.began_at <= max(last, self._changed_at) + wait

    @property
    def _now(self) -> float:
        """The present time of the simulation, in seconds from the beginning of the script."""
        return self._cluster.now - self._script.began_at

    def _at(self, at: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at, next(self._order), action))

    def _begin(self) -> None:
        """Build the world at the beginning, and add timelines of its pods on nodes."""
        waiting: list[Manifest] = []
        entries: list[Given] = []
        for number, manifest in enumerate(self._script.objects):
            if manifest.get("kind") == "Pod" and not manifests.is_on_a_node(manifest):
                waiting.append(manifest)
            else:
                entries.append(Given(manifest, f"objects[{number}]"))
        self._world.apply_checked(entries)
        self._measure.expect(self._classes())
        for one in entries:
            if one.manifest.get("kind") == "Pod":
                self._adopt(one.manifest)
        for manifest in waiting:
            self._arrive(self._arrival(manifest))

    def _arrival(self, manifest: Manifest) -> Arrival:
        """Return the arrival for a pod among the script's objects; its owner may replace it."""
        return Arrival(manifest, comes_back=self._script.is_typed and manifests.is_owned(manifest))

    def _classes(self) -> dict[int, tuple[PodInfo, Framework, int]]:
        """Return the classes of the pods to come, by index, with their numbers of pods."""
        counts: dict[int, tuple[PodInfo, Framework, int]] = {}
        for step in self._script.steps:
            for arrival in step.arrivals:
                pod = self._preparer.prepare(arrival.manifest, 0)
                if isinstance(pod, Ready):
                    _, _, count = counts.get(pod.info.index, (None, None, 0))
                    counts[pod.info.index] = pod.info, pod.framework, count + 1
        return counts

    def _adopt(self, manifest: Manifest) -> None:
        """Add the timeline of a pod that is on a node at the beginning."""
        namespace, name = name_of(manifest)
        key = self._world.key(namespace, name)
        record = None if key is None else self._world.snapshot.pod(key)
        if key is None or record is None:
            return
        now = self._now
        fate = PodTimeline(
            f"{namespace}/{name}", now, bound_at=now, node=manifest["spec"]["nodeName"]
        )
        fate.status, fate.has_fixed_node = "scheduled", True
        running = _Running(fate, self._arrival(manifest), record.info, key, name, namespace)
        self._note(running)
        self._running.add(key)
        self._fates.append(fate)
        if self._world.snapshot.row_of(fate.node) is None:
            self._warn(f"pod {fate.pod} is on node {fate.node}, which does not exist")
        self._watch_taints(key, record)

    # --- events of the script --------------------------------------------------------------------

    def _do(self, step: Step) -> None:
        self._changed_at = self._now
        for gone in step.gone:
            self._delete(gone.kind, gone.namespace, gone.name)
        for manifest in step.objects:
            self._put(manifest)
        for change in step.node_changes:
            self._change_nodes(change)
        for arrival in step.arrivals:
            self._arrive(arrival)
        if self._progress is not None:
            self._progress(self._now, self._came, self._will_come)

    def _put(self, manifest: Manifest) -> None:
        """Add or replace an object."""
        if manifest.get("kind") == "Pod":
            if manifests.is_on_a_node(manifest):
                key = self._world.key(*name_of(manifest))
                before = None if key is None else self._cluster.standing(key)
                self._world.apply_checked([Given(manifest, "objects")])
                key = self._world.key(*name_of(manifest))
                self._cluster.pod_came(key, before)
                self._adopt(manifest)
            else:
                self._arrive(self._arrival(manifest))
            return
        if manifest.get("kind") == "Node":
            node = msgspec.convert(self._world.prepared(manifest), Node)
            self._set_node(node)
            return
        self._world.apply_checked([Given(manifest, "objects")])
        self._preparer = Preparer(self._world, self._frameworks)  # limits may have changed
        self._cluster.wake_all()

    def _set_node(self, node: Node) -> None:
        self._cluster.set_node(node)
        if any(taint.effect == NO_EXECUTE for taint in node.spec.taints):
            row = self._world.snapshot.row_of(node.metadata.name)
            for record in self._world.snapshot.pods_on(row) if row is not None else ():
                self._watch_taints(record.key, record)

    def _warn(self, text: str) -> None:
        """Note once that a part of the script had no effect; up to a number of warnings."""
        if self._script.is_typed and len(self._warnings) < _MOST_WARNINGS:
            self._warnings[f"second {self._now:g}: {text}"] = None

    def _change_nodes(self, change: NodeChange) -> None:
        snapshot = self._world.snapshot
        for name in change.names:
            if snapshot.row_of(name) is None:
                self._warn(f"there is no node {name} to change")
        for name in list(snapshot.node_names()):
            row = snapshot.row_of(name)
            assert row is not None
            node = snapshot.node(row)
            labels = node.metadata.labels
            named = name in change.names
            if not named and not (
                change.labels and all(labels.get(k) == v for k, v in change.labels.items())
            ):
                continue
            taints = [taint for taint in node.spec.taints if not _is_meant(taint, change.remove)]
            for manifest in change.add:
                taint = msgspec.convert(manifest, Taint)
                taints = [t for t in taints if (t.key, t.effect) != (taint.key, taint.effect)]
                if taint.effect == NO_EXECUTE and not taint.time_added:
                    at = datetime.fromtimestamp(self._cluster.now, UTC)
                    taint = msgspec.structs.replace(taint, time_added=format_time(at))
                taints.append(taint)
            spec = msgspec.structs.replace(node.spec, taints=tuple(taints))
            if change.unschedulable is not None:
                spec = msgspec.structs.replace(spec, unschedulable=change.unschedulable)
            self._set_node(msgspec.structs.replace(node, spec=spec))

    def _delete(self, kind: str, namespace: str, name: str) -> None:
        if kind == "Node":
            if self._world.snapshot.row_of(name) is None:
                self._warn(f"there is no node {name} to delete")
                return
            for record in self._cluster.remove_node(name):
                self._cluster.leave(record.key)
                self._pod_left(record.key, PodEnd.LOST, f"node {name} was deleted")
        elif kind == "Pod":
            key = self._world.key(namespace, name)
            title = f"{namespace}/{name}"
            found = key if key in self._pods else self._find(title)
            if found is not None:
                self._cluster.leave(found)
                self._pod_left(found, PodEnd.DELETED, "")
            else:
                self._warn(f"there is no pod {title} to delete")
        else:
            if kind == "Namespace":
                for key in [key for key, pod in self._pods.items() if pod.namespace == name]:
                    self._cluster.leave(key)
                    self._pod_left(key, PodEnd.DELETED, f"namespace {name} was deleted")
            self._world.remove(kind, namespace, name)
            self._preparer = Preparer(self._world, self._frameworks)
            self._cluster.wake_all()

    def _find(self, title: str) -> Hashable | None:
        """Return the key of the newest pod of this name, ``None`` if there is none."""
        return next(reversed(self._titles.get(title, {})), None)

    def _note(self, pod: _Running) -> None:
        self._pods[pod.key] = pod
        self._titles.setdefault(f"{pod.namespace}/{pod.name}", {})[pod.key] = None

    def _arrive(self, arrival: Arrival, generation: int = 0, name: str = "") -> None:
        manifest = arrival.manifest
        if name:
            manifest = {**manifest, "metadata": {**manifest["metadata"], "name": name}}
        self._came += generation == 0
        pod = self._preparer.prepare(manifest, self._came)
        fate = PodTimeline(pod.title, self._now)
        self._fates.append(fate)
        follows = self._follows
        if isinstance(pod, UnplacedStatus):
            fate.status, fate.message = pod.status, pod.message
            if not fate.message and pod.errors:
                fate.message = f"{pod.errors[0].field}: {pod.errors[0].message()}"
            if not arrival.recorded_node or pod.place is None:
                return
            if not follows and pod.status != "skipped":
                return
            # No profile has its scheduler name; it takes room on its recorded node all the same.
            follows = True
            namespace, own_name = pod.place
            info = self._world.intern(manifest)
        else:
            namespace, own_name, info = pod.namespace, pod.name, pod.info
        if isinstance(pod, Set) and self._world.snapshot.row_of(pod.node_name) is None:
            fate.status = "skipped"
            fate.message = f"spec.nodeName names {pod.node_name}, which does not exist"
            return
        key = next(self._numbers)
        running = _Running(fate, arrival, info, key, own_name, namespace, generation=generation)
        self._note(running)
        self._pending.add(key)
        if isinstance(pod, Set):
            fate.has_fixed_node = True
            snapshot = self._world.snapshot
            snapshot.add_pod(key, info, pod.node_name, start_time=self._cluster.now)
            self._cluster.pod_came(key)
            self.placed([key], [pod.node_name])
        elif follows:
            self._follow(running)
        else:
            assert isinstance(pod, Ready)
            self._cluster.add(key, info)  # a profile has its scheduler name

    def _follow(self, pod: _Running) -> None:
        """Schedule the binding of a pod to the node recorded in the script."""
        arrival = pod.arrival
        if arrival.recorded_wait is None or not arrival.recorded_node or pod.info is None:
            return
        key, node_name = cast("int", pod.key), arrival.recorded_node

        def place() -> None:
            if key in self._pending and pod.info is not None:
                snapshot = self._world.snapshot
                snapshot.add_pod(key, pod.info, node_name, start_time=self._cluster.now)
                self.placed([key], [node_name])

        self._at(self._now + arrival.recorded_wait, place)

    # --- what the scheduler does (``cluster.Observer``) ------------------------------------------

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Do nothing: only bindings and refusals are recorded."""

    def placed(self, pod_ids: Sequence[int], node_names: Sequence[str]) -> None:
        """Note that pods were bound."""
        now, pods = self._now, self._pods
        if pod_ids:
            self._changed_at = now
        for pod_id, node_name in zip(pod_ids, node_names, strict=True):
            pod = pods[pod_id]
            fate = pod.fate
            fate.bound_at, fate.node, fate.status, fate.message = now, node_name, "scheduled", ""
            fate.attempts += 1
            self._pending.discard(pod_id)
            self._running.add(pod_id)
            if pod.arrival.runs is not None:
                self._at(now + pod.arrival.runs, lambda key=pod_id: self._finish(key))  # type: ignore[misc]
        for node_name in {*node_names} if pod_ids else ():
            row = self._world.snapshot.row_of(node_name)
            if row is None:
                continue
            node = self._world.snapshot.node(row)
            if any(taint.effect == NO_EXECUTE for taint in node.spec.taints):
                for record in self._world.snapshot.pods_on(row):
                    self._watch_taints(record.key, record)

    def refused(self, pod_id: int, decision: Decision) -> None:
        """Note that a pod fits nowhere."""
        fate = self._pods[pod_id].fate
        fate.attempts += 1
        fate.status, fate.message = decision.outcome, decision.message

    def preempts(self, pod_id: int, node_name: str, victims: Sequence[PodRecord]) -> None:
        """Let the victims leave after the script's grace period."""
        by = self._pods[pod_id].fate.pod
        for victim in victims:
            self._evict(victim, PodEnd.PREEMPTED, by)

    def _evict(self, record: PodRecord, how: PodEnd, by: str) -> None:
        if record.terminating:
            return
        if how is PodEnd.PREEMPTED:
            self._budgets.charge(record)
        if not self._script.grace:
            self._cluster.leave(record.key)
            self._pod_left(record.key, how, by)
            return
        self._cluster.terminate(record, preempted=how is PodEnd.PREEMPTED)

        def gone() -> None:
            if self._world.snapshot.knows(record.key):
                self._cluster.leave(record.key)
                self._pod_left(record.key, how, by)

        self._at(self._now + self._script.grace, gone)

    def _finish(self, key: Hashable) -> None:
        if key in self._running and self._world.snapshot.knows(key):
            self._cluster.leave(key)
            self._pod_left(key, PodEnd.FINISHED, "")

    def _pod_left(self, key: Hashable, how: PodEnd, by: str) -> None:
        """Note the end of a pod; its owner may replace it."""
        self._changed_at = self._now
        pod = self._pods.pop(key, None)
        self._pending.discard(key)
        self._running.discard(key)
        self._timers.pop(key, None)
        if pod is None:
            return
        title = f"{pod.namespace}/{pod.name}"
        self._titles[title].pop(key, None)
        if not self._titles[title]:
            del self._titles[title]
        pod.fate.left_at, pod.fate.end, pod.fate.by = self._now, how, by
        if pod.fate.bound_at is None:
            pod.fate.status = "deleted"
        if pod.arrival.comes_back and how in (PodEnd.PREEMPTED, PodEnd.EVICTED, PodEnd.LOST):
            generation = pod.generation + 1
            first = name_of(pod.arrival.manifest)[1]
            arrival = msgspec.structs.replace(
                pod.arrival, manifest=manifests.anew(pod.arrival.manifest)
            )
            again = f"{first}-again-{generation}"
            if pod.fate.bound_at is not None and self._now - pod.fate.bound_at < 1.0:
                # A pod that is evicted at once would be replaced for ever at the same moment.
                wait = min(2.0 ** min(pod.generation, 9), _LONGEST_PAUSE)
                self._at(self._now + wait, lambda: self._arrive(arrival, generation, again))
            else:
                self._arrive(arrival, generation, again)

    # --- taints ----------------------------------------------------------------------------------

    def _watch_taints(self, key: Hashable, record: PodRecord) -> None:
        """Schedule the eviction of a pod by its node's NoExecute taints (C22)."""
        due = self._taint_due(record)
        if due is None:
            return
        number = self._timers[key] = self._timers.get(key, 0) + 1

        def look() -> None:
            now_there = self._world.snapshot.pod(key)
            if self._timers.get(key) != number or now_there is None:
                return
            again = self._taint_due(now_there)
            if again is None:
                return
            if again[0] <= self._now:
                self._evict(now_there, PodEnd.EVICTED, f"taint {again[1]}")
            else:
                self._watch_taints(key, now_there)

        self._at(max(due[0], self._now), look)

    def _taint_due(self, record: PodRecord) -> tuple[float, str] | None:
        """Return the second at which the pod must leave, and the taint; ``None`` for never."""
        snapshot = self._world.snapshot
        row = snapshot.row_of(snapshot.node_of(record.key) or "")
        if row is None:  # its node does not exist
            return None
        node = snapshot.node(row)
        now = datetime.fromtimestamp(self._cluster.now, UTC)
        counted = eviction.countdowns(
            record.info.pod.spec.tolerations, node.spec.taints, added_at=now
        )
        start = record.start_time
        bound = datetime.fromtimestamp(self._cluster.now if start is None else start, UTC)
        found = eviction.deadline(counted, bound) if counted else None
        if found is None:
            return None
        return found.due_at.timestamp() - self._script.began_at, found.taint.key

    # --- figures ---------------------------------------------------------------------------------

    def _sample(self, at: float) -> None:
        snapshot = self._world.snapshot
        used, fragmented = self._measure.take(snapshot)
        rows = snapshot.rows()
        self._samples.append(
            Sample(
                at=at,
                pending=len(self._pending),
                running=len(self._running),
                nodes=snapshot.node_count,
                nodes_used=int(np.count_nonzero(snapshot.pod_count[rows])),
                used=used,
                fragmented=fragmented,
            )
        )

    def _pods_on(self) -> dict[str, int]:
        snapshot = self._world.snapshot
        rows = snapshot.rows().tolist()
        return {snapshot.node_name(row): int(snapshot.pod_count[row]) for row in rows}


def play(
    script: Script,
    configuration: KubeSchedulerConfiguration,
    *,
    title: str = "",
    base: Base | None = None,
    progress: Progress | None = None,
    follows: bool = False,
    meter: Meter | None = None,
) -> Outcome:
    """Play a script under a configuration and return the outcome (``Player``)."""
    return Player(
        script, configuration, title=title, base=base, progress=progress, follows=follows,
        meter=meter,
    ).play()  # fmt: skip


def _is_meant(taint: Taint, patterns: Sequence[Manifest]) -> bool:
    return any(
        one.get("key") == taint.key
        and one.get("effect", taint.effect) == taint.effect
        and one.get("value", taint.value) == taint.value
        for one in patterns
    )
