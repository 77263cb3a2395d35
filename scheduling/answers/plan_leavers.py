"""Finds the pods that leave because of a plan, or anyway: when, by which rule, for how long.

It has no rules of its own: taints and labels are judged by the functions of the eviction
controller, drains by kubectl's rules.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from django.conf import settings

from clusterstate.objects.rules.disruption import is_assumed
from clusterstate.objects.values.ending import DEFAULT_GRACE_SECONDS
from clusterstate.objects.values.errors import NOT_FOUND, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod_group import GroupKey
from clusterstate.queries.nodes import evicting_nodes, no_execute_taints
from clusterstate.queries.objects.workloads import ready_among
from clusterstate.queries.pods import leaving_together
from clusterstate.queries.pods.stays import ClassOnNode, executing_places, stays_on
from clusterstate.queries.pods.terminating import nodes_with_agents
from clusterstate.queries.scheduler.planning import (
    StayingPod,
    pods_named,
    pods_staying,
    pods_staying_on,
    pods_terminating,
)
from scheduling.answers import plan_brakes, plan_scaling, plan_steps
from scheduling.answers.plan_nodes import Nodes, evicting, labels_of
from scheduling.answers.plan_scaling import ScaleEffect
from scheduling.controllers.evictions import judgement
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.types import PodRecord, group_key
from scheduling.simulation import plan_document
from scheduling.simulation.document import GROUP
from scheduling.simulation.foresight import AT_ONCE, NEVER, TAINTED, WHEN_GONE, Leaver
from scheduling.simulation.plan_document import KIND, PlanChange

RELABELLED, DRAINED, DELETED = "NodeLabels", "Drain", "NodeDeleted"
EVICTED: Final = "Eviction"
SCALED: Final = "ScaledDown"
GROUPED: Final = "PodGroup"
"""The cause of a pod that leaves because its group is disrupted as a whole."""
_BY_STEPS: Final = (DRAINED, EVICTED, plan_steps.REMOVED)
"""Causes of pods that leave by a step of the plan, and not by a controller."""
COUNTED: Final = (TAINTED, RELABELLED, DRAINED, EVICTED)
"""Causes to which brakes and the zones' rate apply."""
_AGAIN_AT_ONCE: Final = frozenset({"ReplicaSet", "ReplicationController", "Job"})
_ENDED: Final = ("Succeeded", "Failed")
_MOST_BACKGROUND: Final = 20_000
"""The most pods on nodes with NoExecute taints that are considered as leaving anyway."""


class Leavers:
    """The pods that leave, with their facts and those of other pods.

    ``pods``: known pods by id. ``caused``: those that leave because of the plan. ``staying``:
    entries of the answer for pods that the plan does not evict. ``kept``: the reasons, by title.
    """

    def __init__(
        self, changes: Sequence[PlanChange], now: datetime, kept: Mapping[str, str]
    ) -> None:
        self._changes = changes
        self._now = now
        self._kept = kept
        self._agents = nodes_with_agents()
        self.pods: dict[int, StayingPod] = {}
        self.caused: set[int] = set()
        self.staying: list[Manifest] = []
        self.warnings: list[str] = []
        self.scalings: dict[str, ScaleEffect] = {}
        """The effects of changes of replicas, by the path of the change."""

    def leaving(self, nodes: Nodes) -> list[Leaver]:
        """Return the pods that leave because of the plan, or anyway, in the order of leaving."""
        found: dict[int, Leaver] = {}
        for leaver in (
            *self._named(),
            *self._scaled_down(),
            *self._drained(nodes),
            *self._of_deleted(nodes),
            *self._tainted(nodes),
            *self._relabelled(nodes),
        ):
            key = leaver.key
            assert isinstance(key, int)
            if key not in found or leaver.due < found[key].due:
                found[key] = leaver
        for leaver in self._of_groups(found):
            assert isinstance(leaver.key, int)
            found[leaver.key] = leaver
        leavers = sorted(found.values(), key=lambda one: (one.due, one.key))
        return plan_brakes.in_turn(leavers, COUNTED)

    def _of_groups(self, found: dict[int, Leaver]) -> list[Leaver]:
        """Return pods that leave because one of their group does, at that pod's time.

        Rule: ``actions.pods.together``, if a disruption makes the first one leave. If a pod of the
        group is to stay, no step of the plan makes one of them leave: ``found`` loses them.
        """
        first = [key for key, one in found.items() if one.cause in (*COUNTED, DELETED)]
        groups = leaving_together(first) if first else []
        self.learn([one for group in groups for one in group.pods])
        result = []
        for group in groups:
            mine = [found[key] for key in group.pods if key in found and key in first]
            pods = [self.pods[key] for key in group.pods if key in self.pods]
            kept = [self._kept[pod.title] for pod in pods if pod.title in self._kept]
            if kept and any(one.by_step for one in mine):
                for member in pods:
                    if member.id in found and found[member.id].by_step:
                        self._stays(member, f"of group {group.name}: {kept[0]}")
                        del found[member.id]
                        self.caused.discard(member.id)
                mine = [one for one in mine if not one.by_step]
            leader = min(mine, key=lambda one: (one.due, one.key), default=None)
            for key in group.pods:
                own, pod = found.get(key), self.pods.get(key)
                if leader is None or pod is None or (own and own.due <= leader.due):
                    continue
                if leader.key in self.caused:
                    self.caused.add(key)
                rule = f"of group {group.name}, with pod {leader.title}: {leader.rule}"
                result.append(
                    self._leaver(pod, due=leader.due, cause=GROUPED, rule=rule,
                                 held=leader.held_by_budgets and self._is_guarded(pod),
                                 by_step=leader.by_step)
                )  # fmt: skip
        return result

    def unready(self, snapshot: Snapshot, leavers: Iterable[Leaver]) -> set[int]:
        """Return the ids of pods that are not ready, as far as budgets need to know.

        They need it for the pods that leave, and budgets that count groups for all pods of the
        groups. Queries twice at most.
        """
        budgets = snapshot.disruption_budgets()
        covering: dict[int, list[bool]] = {}  # by class; whether each of its budgets counts groups
        concerned: set[Hashable] = set()
        groups: set[GroupKey] = set()
        for one in leavers if budgets else ():
            record = snapshot.pod(one.key)
            if record is None:
                continue
            info = record.info
            if info.index not in covering:
                covering[info.index] = [
                    budget.counts_groups
                    for budget in budgets
                    if budget.namespace == info.namespace and budget.selector.matches(info.labels)
                ]
            if covering[info.index]:
                concerned.add(one.key)
            if any(covering[info.index]) and (key := group_key(info.pod)) is not None:
                groups.add(key)
        concerned |= {other.key for key in groups for other in snapshot.members_of(key)}
        ids = {key for key in concerned if isinstance(key, int)}
        return ids - ready_among(sorted(ids)) if ids else set()

    def _named(self) -> Iterable[Leaver]:
        """Yield the pods that the plan evicts or deletes by name."""
        for change in self._changes:
            found = pods_named(change.pods)
            for key in change.pods:
                pod = found.get(key)
                if pod is None:
                    title = "/".join(key)
                    error = FieldError(NOT_FOUND, f"{change.path}.pods", title)
                    raise Invalid(KIND, "", [error], GROUP)
                leaves = "" if pod.deletion_at is None else "it is being deleted already"
                if self._stays(pod, leaves):
                    continue
                self.pods[pod.id] = pod
                self.caused.add(pod.id)
                grace = change.grace_seconds
                yield self._leaver(
                    pod,
                    due=0.0,
                    cause=plan_steps.REMOVED if change.ignores_budgets else EVICTED,
                    rule="deleted by name" if change.ignores_budgets else "evicted by name",
                    grace=None if grace is None else float(grace),
                    held=self._is_guarded(pod) and not change.ignores_budgets,
                    target=change.targets.get(pod.title, ""),
                )

    def _scaled_down(self) -> Iterable[Leaver]:
        """Yield the pods that a workload deletes when it gets fewer replicas."""
        for change in self._changes:
            if change.what != plan_document.SCALE:
                continue
            found = self.scalings[change.path] = plan_scaling.scaling(change, self._now)
            if found.warning:
                self.warnings.append(found.warning)
            self.learn(found.gone)
            for pod_id in found.gone:
                pod = self.pods.get(pod_id)
                if pod is not None:
                    self.caused.add(pod_id)
                    rule = f"{found.title} wants {found.replicas} pods"
                    yield self._leaver(pod, due=0.0, cause=SCALED, rule=rule, again=NEVER)

    def _drained(self, nodes: Nodes) -> Iterable[Leaver]:
        for change in self._changes:
            if change.what != plan_document.DRAIN:
                continue
            names = [n for n in nodes.chosen[change.path] if nodes.after.get(n) is not None]
            for pod in self._on(names):
                if self._stays(pod, stays_when_drained(pod, change)):
                    continue
                if pod.deletion_at is None:
                    self.caused.add(pod.id)
                    grace = change.grace_seconds
                    yield self._leaver(
                        pod,
                        due=0.0,
                        cause=DRAINED,
                        rule=f"drain of node {pod.node_name}",
                        grace=None if grace is None else float(grace),
                        held=self._is_guarded(pod),
                    )

    def _stays(self, pod: StayingPod, reason: str) -> bool:
        """Return whether a pod stays, for ``reason`` or one in ``kept``; list it if it does."""
        message = reason or self._kept.get(pod.title)
        if message:
            entry = {"pod": pod.title, "nodeName": pod.node_name, "message": message}
            self.staying.append(entry)
        return bool(message)

    def _is_guarded(self, pod: StayingPod) -> bool:
        """Return whether budgets protect a pod: it runs, or its node has no kubelet to say so."""
        return pod.phase == "Running" or is_assumed(
            pod.phase,
            pod.node_name,
            is_reported=False,
            has_agent=pod.node_name in self._agents,
        )

    def _of_deleted(self, nodes: Nodes) -> Iterable[Leaver]:
        names = [name for name, _, new in nodes.changed() if new is None]
        quarantine = settings.POD_GC_QUARANTINE_SECONDS
        for pod in self._on(names):
            self.caused.add(pod.id)
            rule = f"pods of node {pod.node_name}, which no longer exists, are garbage-collected"
            yield self._leaver(pod, due=quarantine, cause=DELETED, rule=rule, grace=0.0)

    def _tainted(self, nodes: Nodes) -> Iterable[Leaver]:
        """Yield the pods that leave because of NoExecute taints, new ones and present ones."""
        changed = {
            name: evicting(new)
            for name, old, new in nodes.changed()
            if new is not None and evicting(new) != evicting(old)
        }
        present = [name for name in evicting_nodes() if nodes.after.get(name, {}) is not None]
        names = sorted({*changed, *present})
        stays = stays_on(names)
        if len(stays) > _MOST_BACKGROUND:
            self.warnings.append(
                f"{len(stays)} pods are on nodes with NoExecute taints, too many to predict: the"
                " plan covers only those on nodes that it changes"
            )
            names = sorted(changed)
            stays = [stay for stay in stays if stay.node_name in changed]
        rules = judgement.rules_by_class(stay.class_id for stay in stays)
        old = no_execute_taints(names)
        before = {one.pod_id: one for one in judgement.departures_under(stays, old, rules)}
        departures = judgement.departures_under(stays, {**old, **changed}, rules)
        self.learn([one.pod_id for one in departures])
        for one in departures:
            pod = self.pods.get(one.pod_id)
            if pod is None or pod.deletion_at is not None:
                continue
            earlier = before.get(one.pod_id)
            if one.place.node_name in changed and (earlier is None or earlier.due_at != one.due_at):
                self.caused.add(one.pod_id)
            bears = f", tolerated for {one.seconds} s" if one.seconds else ""
            rule = f"taint {one.taint_key}:{one.taint_effect} of node {pod.node_name}{bears}"
            due = (one.due_at - self._now).total_seconds()
            yield self._leaver(pod, due=max(due, 0.0), cause=TAINTED, rule=rule)

    def _relabelled(self, nodes: Nodes) -> Iterable[Leaver]:
        old: dict[str, Mapping[str, str]] = {}
        new: dict[str, Mapping[str, str]] = {}
        for name, before, after in nodes.changed():
            if after is not None and labels_of(before) != labels_of(after):
                old[name], new[name] = labels_of(before), labels_of(after)
        if not new:
            return
        places = executing_places(node_names=sorted(new))
        rules = judgement.rules_by_class(place.class_id for place in places)
        hit = judgement.broken_under(places, new, rules)
        hit -= judgement.broken_under(places, old, rules)
        grace, rate = (
            settings.REQUIRED_DURING_EXECUTION_GRACE_SECONDS,
            settings.REQUIRED_DURING_EXECUTION_RATE,
        )
        turn = 0
        for pod in self._on(sorted({place.node_name for place in hit})):
            if ClassOnNode(pod.node_name, pod.class_id) not in hit or pod.deletion_at is not None:
                continue
            wait = max(0.0, (turn + 1 - max(1.0, rate)) / rate) if rate > 0 else 0.0
            turn += 1
            self.caused.add(pod.id)
            rule = f"node {pod.node_name} no longer matches its affinity for execution"
            yield self._leaver(
                pod, due=grace + wait, cause=RELABELLED, rule=rule, held=self._is_guarded(pod)
            )

    def _leaver(
        self,
        pod: StayingPod,
        *,
        due: float,
        cause: str,
        rule: str,
        grace: float | None = None,
        held: bool = False,
        again: str | None = None,
        target: str = "",
        by_step: bool = False,
    ) -> Leaver:
        return Leaver(
            key=pod.id,
            title=pod.title,
            due=due,
            grace=self.grace(pod) if grace is None else grace,
            cause=cause,
            rule=rule,
            comes_again=comes_again(pod) if again is None else again,
            held_by_budgets=held,
            grace_given=grace is not None,
            target=target,
            by_step=by_step or cause in _BY_STEPS,
        )

    def _on(self, names: Sequence[str]) -> list[StayingPod]:
        found = pods_staying_on(names) if names else []
        self.pods.update((pod.id, pod) for pod in found)
        return found

    def learn(self, ids: Sequence[int]) -> None:
        """Read the pods that are not known yet. Queries once."""
        self.pods.update(pods_staying([id_ for id_ in ids if id_ not in self.pods]))

    def going(self) -> Iterable[Leaver]:
        """Return the pods that are terminating already. Queries once."""
        found = pods_terminating(limit=_MOST_BACKGROUND)
        self.pods.update((pod.id, pod) for pod in found)
        for pod in found:
            if pod.deletion_at is not None:
                due = (pod.deletion_at - self._now).total_seconds()
                if pod.node_name not in self._agents:
                    due = 0.0
                again = WHEN_GONE if comes_again(pod) == WHEN_GONE else NEVER
                yield Leaver(
                    key=pod.id, title=pod.title, due=due, grace=0.0, cause="", comes_again=again
                )

    def details(self, record: PodRecord) -> tuple[str, float, str]:
        """Return title, grace seconds and time of replacement of a preempted pod (``Details``)."""
        key = record.key
        if not isinstance(key, int):
            return str(key).partition("#")[0], float(DEFAULT_GRACE_SECONDS), NEVER
        self.learn([key])
        pod = self.pods.get(key)
        if pod is None:
            return str(key), float(DEFAULT_GRACE_SECONDS), NEVER
        self.caused.add(key)
        return pod.title, self.grace(pod), comes_again(pod)

    def grace(self, pod: StayingPod, *, anywhere: bool = False) -> float:
        """Return for how many seconds a leaving pod takes room; 0 if its node has no kubelet."""
        if not self._agents or (pod.node_name not in self._agents and not anywhere):
            return 0.0
        return _grace(pod.grace_seconds)

    def grace_of_new(self, seconds: int | None) -> float:
        """Return ``grace`` for a pod that the plan adds.

        ``seconds``: ``terminationGracePeriodSeconds`` of its manifest.
        """
        return _grace(seconds) if self._agents else 0.0


def _grace(seconds: int | None) -> float:
    if seconds is None:
        return float(DEFAULT_GRACE_SECONDS)
    return float(seconds) if seconds >= 0 else 1.0


def stays_when_drained(pod: StayingPod, change: PlanChange) -> str:
    """Return why a drain does not evict a pod, empty if it does (kubectl's rules)."""
    if pod.is_mirror:
        return "a static pod: the kubelet of its node would recreate it"
    if pod.owner_kind == "DaemonSet":
        return "managed by a DaemonSet, which ignores that the node is cordoned"
    if not pod.owner_kind and not change.force:
        return "no controller would recreate it: set force to evict it"
    if pod.has_local_data and not change.delete_local_data:
        return "its emptyDir volumes would be lost: set deleteEmptyDirData to evict it"
    return ""


def comes_again(pod: StayingPod) -> str:
    """Return when the pod's controller replaces it: AT_ONCE, WHEN_GONE or NEVER.

    A pod that has ended was replaced already, unless a StatefulSet owns it: that waits for the
    pod's deletion.
    """
    again = replacement_timing(pod.owner_kind)
    return NEVER if again == AT_ONCE and pod.phase in _ENDED else again


def replacement_timing(owner_kind: str) -> str:
    """Return when a controller of this kind replaces its pods: AT_ONCE, WHEN_GONE or NEVER.

    ``owner_kind``: empty for a pod without a controller.
    """
    if owner_kind in _AGAIN_AT_ONCE:
        return AT_ONCE
    return WHEN_GONE if owner_kind == "StatefulSet" else NEVER
