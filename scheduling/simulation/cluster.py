"""A cluster in virtual time, scheduled as the live one is: the same queue, core, seeds and events.

It is ``worker.scheduler`` without database, binder and clock: pods are bound as soon as they are
decided, and the caller sets the time. Reserve, Permit and later extension points do not run.
Scenarios and the predictions of plans use it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, cast

import msgspec

from clusterstate.objects.dra.attempt import Release, with_status
from clusterstate.objects.dra.world import KINDS as DEVICE_KINDS
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod_group import GroupKey
from clusterstate.objects.values.storage import KINDS as VOLUME_KINDS
from scheduling.engine.deciding import Decider
from scheduling.engine.groups import lets_in, runs, schedule_group, with_members
from scheduling.engine.queue.pending import Backoff, PendingPod, QueuePlace, Stage, by_profile
from scheduling.engine.queue.plugins import QueuePlugins
from scheduling.engine.queue.scheduling_queue import PriorityQueue
from scheduling.engine.queue.waking import PodState, Waking
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch
from scheduling.engine.reference.decision import ERROR, Decision, Decisions
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.binding_points import Meter
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.events import Action, Registration, Resource
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.plugins.catalogue import build_framework
from scheduling.plugins.queueing_hints import registrations
from scheduling.simulation import claims

BATCH = 1000
"""The number of pods decided in one cycle, as in the live scheduler."""


class Observer(Protocol):
    """Receives the scheduler's decisions."""

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Called with the decisions of a cycle, before they are carried out."""
        ...

    def placed(self, pod_ids: Sequence[int], node_names: Sequence[str]) -> None:
        """Called when pods were bound."""
        ...

    def refused(self, pod_id: int, decision: Decision) -> None:
        """Called when a pod fits nowhere, or its attempt failed."""
        ...

    def preempts(self, pod_id: int, node_name: str, victims: Sequence[PodRecord]) -> None:
        """Called with a preemption: must let the victims leave (``VirtualCluster.leave``)."""
        ...


class VirtualCluster(Waking):
    """Snapshot, queue and profiles, with the time in ``now`` (seconds since the epoch).

    Args:
        snapshot: the world; each step changes it.
        configuration: the profiles.
        seeds: gives the seed of each batch.
        observer: receives decisions, bindings, refusals and preemptions.
        now: the start, seconds since the epoch.
        meter: receives the time of each call of a plugin.

    Raises:
        ConfigurationError: a profile's plugin does not exist or lacks the extension point.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        configuration: KubeSchedulerConfiguration,
        *,
        seeds: Callable[[], int],
        observer: Observer,
        now: float,
        meter: Meter | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.now = now
        self.cycles = 0
        self._seeds = seeds
        self._observer = observer
        self.frameworks: dict[str, Framework] = {}
        """The profiles by scheduler name."""
        self.registrations: dict[str, Mapping[str, Sequence[Registration]]] = {}
        """The events that may help a pod, by scheduler name and the plugin that rejected it."""
        for profile in configuration.profiles:
            framework = build_framework(profile, meter=meter)
            self.frameworks[profile.scheduler_name] = framework
            self.registrations[profile.scheduler_name] = registrations(profile, framework.events)
        self._deciders: dict[str, Decider] = {}
        self._starts: dict[str, int] = {}
        self.backoff = Backoff.of(configuration)
        queue_plugins = QueuePlugins(self.frameworks, lambda index: snapshot.classes[index])
        self.queue = PriorityQueue(
            registrations=self.registrations,
            backoff=self.backoff,
            sort_key=queue_plugins.sort_key,
            pre_enqueue=queue_plugins.held_by,
            is_nominated=lambda pod_id: bool(snapshot.nominated_node_of(pod_id)),
        )
        queue_plugins.lets_group_in = lambda pod: lets_in(snapshot, self.queue, pod)
        self._of_groups = {
            name: one for name, one in self.frameworks.items() if one.schedules_groups
        }

    # --- events ----------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Add or replace a node."""
        row = self.snapshot.row_of(node.metadata.name)
        old = None if row is None else self.snapshot.node(row)
        self.snapshot.set_node(node)
        self.node_changed(old, node, self.now)

    def node_came(self, name: str) -> None:
        """Wake the pods that a node added to the snapshot may help."""
        row = self.snapshot.row_of(name)
        if row is not None:
            self.node_changed(None, self.snapshot.node(row), self.now)

    def remove_node(self, name: str) -> list[PodRecord]:
        """Remove a node; return its pods, which stay known until ``leave``."""
        row = self.snapshot.row_of(name)
        if row is None:
            return []
        old, lost = self.snapshot.node(row), self.snapshot.pods_on(row)
        self.snapshot.remove_node(name)
        self.node_changed(old, None, self.now)
        return lost

    def pod_came(self, key: Hashable, before: PodState | None = None) -> None:
        """Wake the pods that a pod may help which was put on a node, or replaced there."""
        self.pod_changed(before, self.standing(key), self.now)

    def add(self, pod_id: int, info: PodInfo, *, nominated: str = "") -> bool:
        """Add a pod to the queue; return False if no profile has its scheduler name."""
        if info.scheduler_name not in self.frameworks:
            return False
        if nominated:
            self.snapshot.nominate(pod_id, info, nominated)
        self.queue.add(PendingPod(pod_id, info.index, info.pod, info.priority), self.now)
        return True

    def take_in(self, info: PodInfo, place: QueuePlace) -> bool:
        """Add a pod at its place in another queue; return False if no profile has its name."""
        if info.scheduler_name not in self.frameworks:
            return False
        pod = PendingPod(place.pod_id, info.index, info.pod, info.priority)
        if place.attempts or place.stage in (Stage.UNSCHEDULABLE, Stage.GATED):
            self.queue.restore(pod, place, self.now)
        else:
            self.queue.add(pod, place.queued_at)
        return True

    def leave(self, key: Hashable, name: str = "") -> None:
        """Remove a pod from node and queue; do nothing if it is unknown.

        ``name``: the name by which claims refer to a pod that this cluster did not create.
        """
        before, record = self.standing(key), self.snapshot.pod(key)
        self.snapshot.remove_pod(key)
        if isinstance(key, int):
            self.queue.delete(key)
        self.snapshot.unnominate(key)
        self.pod_changed(before, None, self.now)
        if record is not None:
            for change in claims.give_back(self.snapshot, record.info, key, name):
                self.object_changed(*change, self.now)

    def terminate(self, record: PodRecord, *, preempted: bool) -> None:
        """Mark a pod on a node as terminating."""
        before = self.standing(record.key)
        self.snapshot.add_pod(
            record.key, record.info, self.snapshot.node_of(record.key) or "",
            start_time=record.start_time, terminating=True, preempted=preempted, name=record.name,
        )  # fmt: skip
        self.pod_changed(before, self.standing(record.key), self.now)

    def wake_all(self) -> None:
        """Wake every waiting pod, because an object that any plugin may look up changed."""
        self.something_changed(Resource.ANY, Action.ADD, self.now)

    def object_came(self, kind: str, manifest: Manifest) -> None:
        """Wake the pods that a new object may help; the snapshot has the object already."""
        if kind in VOLUME_KINDS:
            volume = msgspec.convert(manifest, VOLUME_KINDS[kind])
            self.object_changed(kind, None, volume, self.now)
        elif kind in DEVICE_KINDS:
            self.object_changed(kind, None, manifest, self.now)
        else:
            self.wake_all()

    # --- deciding --------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return when ``cycle`` next has a pod to decide, epoch seconds; ``None`` if never."""
        return self.queue.next_due(self.now)

    def cycle(self) -> int:
        """Decide one batch of the pods that are ready now; return their number."""
        batch = self.queue.pop_batch(self.now, BATCH)
        if not batch:
            return 0
        self.cycles += 1
        before: dict[int, PodState | None] = {}
        if self.snapshot.has_any_nomination:
            before = {pod.pod_id: self.standing(pod.pod_id) for pod in batch}
        decisions = Decisions()
        together = self._of_groups if self.snapshot.groups else {}
        if together:
            batch = with_members(batch, self.queue, together)
        for key, run in runs(batch, together) if together else [(None, batch)]:
            if key is not None:
                decisions.extend(self._decide_group(key, run))
                continue
            for name, pods in by_profile(run):
                batch_decisions = self._decide(name, pods)
                for part in batch_decisions.parts:
                    decisions.extend(part)
                self._starts[name] = batch_decisions.next_start
        self._observer.decided(decisions)
        self._settle(decisions, before)
        return len(batch)

    def _decide(self, name: str, pods: Sequence[PendingPod]) -> Decisions:
        return schedule_batch(
            self.snapshot,
            self.frameworks[name],
            self._to_place(pods),
            Options(seed=self._seeds()),
            start=self._starts.get(name, 0),
            decider=self._decider(name),
        )

    def _decide_group(self, key: GroupKey, pods: Sequence[PendingPod]) -> list[Decision]:
        name = pods[0].spec.spec.scheduler_name
        return schedule_group(
            self.snapshot,
            self.frameworks[name],
            key,
            self._to_place(pods),
            Options(seed=self._seeds()),
            start=self._starts.get(name, 0),
            decider=self._decider(name),
            now=self.now,
        ).decisions

    def _to_place(self, pods: Sequence[PendingPod]) -> list[PodToPlace]:
        snapshot = self.snapshot
        return [
            PodToPlace(
                pod.pod_id, snapshot.classes[pod.class_id], snapshot.nominated_node_of(pod.pod_id)
            )
            for pod in pods
        ]

    def _decider(self, name: str) -> Decider:
        decider = self._deciders.get(name)
        if decider is None:
            decider = self._deciders[name] = Decider(self.snapshot, self.frameworks[name])
        return decider

    def _settle(self, decisions: Decisions, before: Mapping[int, PodState | None]) -> None:
        """Bind placed pods, put refused ones back, and let victims leave.

        ``before``: the pods' states when they were decided; a pod that lost its nomination since
        frees room, which wakes others.
        """
        snapshot, queue = self.snapshot, self.queue
        ids, names = [], []
        for key, node_name in decisions.placed():
            ids.append(cast("int", key))
            names.append(node_name)
        refused = decisions.unplaced()
        for decision in refused:
            pod_id = cast("int", decision.key)
            if decision.outcome == ERROR:
                queue.requeue_failed(pod_id, self.now)
            else:
                queue.requeue_unschedulable(
                    pod_id, decision.rejected_by, self.now, pending_by=decision.pending_by
                )
            self._observer.refused(pod_id, decision)
        classes: dict[int, PodInfo] = {}
        for pod_id, node_name in zip(ids, names, strict=True):
            info = snapshot.classes[queue.pod(pod_id).class_id]
            claims.bind(snapshot, pod_id)
            snapshot.confirm(pod_id, info, node_name, start_time=self.now)
            queue.done(pod_id)
            classes[info.index] = info
            if (stood := before.get(pod_id)) is not None and stood.nominated != node_name:
                self.pod_changed(stood, None, self.now)
        self._observer.placed(ids, names)
        for decision in refused:
            pod_id = cast("int", decision.key)
            if (stood := before.get(pod_id)) is not None:
                stands = self.standing(pod_id) or PodState(pod=stood.pod)
                self.pod_changed(stood, stands, self.now)
        if queue.has_waiting:
            for info in classes.values():
                now_on = PodState(pod=info.pod, on_node=True)
                self.pod_changed(None, now_on, self.now, is_own=True)
        for decision in refused:
            nomination = decision.nomination
            if nomination is not None and nomination.victims:
                pod_id = cast("int", decision.key)
                self._displaced(nomination.node_name, decision.displaced, before)
                self._observer.preempts(pod_id, nomination.node_name, nomination.victims)
            if decision.released is not None:
                self._release(decision.released)

    def _release(self, what: Release) -> None:
        """Release a claim, and wake the pods that it may help."""
        freed = what.becomes or with_status(what.claim, {})
        self._wake(self.set_device("ResourceClaim", freed), self.now)
        if what.becomes is None:
            meta = freed["metadata"]
            self.snapshot.devices.remove("ResourceClaim", meta["namespace"], meta["name"])

    def _displaced(
        self, node_name: str, keys: Sequence[Hashable], before: Mapping[int, PodState | None]
    ) -> None:
        """Wake the pods that lost their nomination for a node, and the pods that they kept off it.

        Pods of this batch (the keys of ``before``) are left out: ``_settle`` compares their states
        and wakes others.
        """
        for key in keys:
            if isinstance(key, int) and key in self.queue and key not in before:
                pod = self.snapshot.classes[self.queue.pod(key).class_id].pod
                claimed = PodState(pod=pod, nominated=node_name)
                self.pod_changed(claimed, PodState(pod=pod), self.now)
