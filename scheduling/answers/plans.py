"""What will happen if these changes are made: the question behind a ``Plan``.

::

    read          the document                                   (simulation.plan_document)
    _Nodes        what the nodes become                          (objects.node_edits)
    _leavers      who leaves, when, by which rule                (controllers.evictions.judgement)
    Foresight     what then happens, who lands where             (simulation.foresight)
    _told         the answer, with the revision that it rests on

Nothing here states a rule of its own: taints and labels are judged by what the eviction controller
asks, placements are decided by the live cycle's core.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import numpy as np
from django.conf import settings

from clusterstate import steady_clock
from clusterstate.actions.nodes import settle_taints
from clusterstate.actions.pods.delete import DEFAULT_GRACE_SECONDS
from clusterstate.admission.validation.nodes import validate_node_update
from clusterstate.objects import eviction
from clusterstate.objects.document import format_time
from clusterstate.objects.errors import DUPLICATE, INVALID, NOT_FOUND, FieldError, Invalid
from clusterstate.objects.matching import NO_EXECUTE
from clusterstate.objects.meta import Manifest
from clusterstate.objects.node import Node, Taint
from clusterstate.queries.lists import list_page
from clusterstate.queries.nodes import evicting_nodes, no_execute_taints
from clusterstate.queries.objects import decode_object
from clusterstate.queries.planning import (
    StayingPod,
    nodes_by_name,
    pods_named,
    pods_staying,
    pods_staying_on,
    pods_terminating,
)
from clusterstate.queries.pods import pods_by_id
from clusterstate.queries.queue import load_waiting
from clusterstate.queries.stays import Place, executing_places, stays_on
from clusterstate.queries.terminating import nodes_with_agents
from scheduling import simulation
from scheduling.answers import plan_steps
from scheduling.answers.live import LiveBase, World
from scheduling.controllers.evictions import judgement
from scheduling.engine.copying import copy_snapshot
from scheduling.engine.queue.pending import Backoff
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.types import PodInfo, PodRecord
from scheduling.simulation import plan_document
from scheduling.simulation.document import API_VERSION, GROUP, Given
from scheduling.simulation.foresight import (
    AT_ONCE,
    NEVER,
    TAINTED,
    WHEN_GONE,
    Foresight,
    Landed,
    Leaver,
    Left,
    Waiter,
)
from scheduling.simulation.plan_document import KIND, Change, Plan
from scheduling.simulation.preparing import Preparer, Ready, Refused
from scheduling.simulation.running import frameworks_of

RELABELLED, DRAINED, DELETED = "NodeLabels", "Drain", "NodeDeleted"
EVICTED: Final = "Eviction"
_BY_STEPS: Final = (DRAINED, EVICTED, plan_steps.REMOVED)
"""Causes of those who leave by a step of the operation, not by a loop that looks at nodes."""
_AGAIN_AT_ONCE: Final = frozenset({"ReplicaSet", "ReplicationController", "Job"})
_MOST_BACKGROUND: Final = 20_000
"""Pods on nodes that evict already, and leaving ones, which are taken into account."""


def plan(world: World, document: object) -> Manifest:
    """Return a ``Plan`` document with ``status``: what will happen if it is carried out now.

    Raises:
        Invalid: with every wrong field.
        TooLarge: it takes too long.
    """
    asked = plan_document.read(document)
    return _Planning(world, asked).answer()


class _Nodes:
    """The nodes that the plan names: what they are, and what they become."""

    def __init__(self, changes: Sequence[Change], now: datetime) -> None:
        self._now = now
        self.errors: list[FieldError] = []
        self.chosen: dict[str, tuple[str, ...]] = {}
        """By the path of a change: the names of its nodes."""
        for change in changes:
            if change.what in plan_document.OF_NODES:
                self.chosen[change.path] = self._names(change)
        names = list(dict.fromkeys(name for found in self.chosen.values() for name in found))
        self.before = nodes_by_name(names)
        self.after: dict[str, Manifest | None] = dict(self.before)
        for change in changes:
            if change.path in self.chosen:
                self._edit(change, changes)

    def _names(self, change: Change) -> tuple[str, ...]:
        found = list(change.nodes)
        if change.selector is not None:
            page = list_page("Node", label_selector=change.selector)
            found += [decode_object(item)["metadata"]["name"] for item in page.items]
        return tuple(dict.fromkeys(found))

    def _edit(self, change: Change, changes: Sequence[Change]) -> None:
        for name in self.chosen[change.path]:
            node = self.after.get(name)
            if node is None:
                error = FieldError(NOT_FOUND, f"{change.path}.nodes", name)
                self.errors.append(error)
                continue
            if change.what == plan_document.DELETE:
                self.after[name] = None
                continue
            if change.what == plan_document.DRAIN and self._deleted(name, changes):
                detail = "drain a node in a plan of its own before it is deleted"
                self.errors.append(FieldError(INVALID, f"{change.path}.nodes", name, detail))
            edited = plan_document.edited(change, node)
            wrong = validate_node_update(edited, node)
            if wrong:  # of one node: the others are changed alike
                self.errors += [
                    FieldError(one.type, change.path, one.bad_value, f"{one.field}: {one.detail}")
                    for one in wrong
                ]
                return
            self.after[name] = settle_taints(edited, node, self._now)

    def _deleted(self, name: str, changes: Sequence[Change]) -> bool:
        return any(
            one.what == plan_document.DELETE and name in self.chosen[one.path] for one in changes
        )

    def changed(self) -> Iterable[tuple[str, Manifest, Manifest | None]]:
        """Yield name, old and new manifest of the nodes that change or go."""
        for name, old in self.before.items():
            new = self.after[name]
            if new != old:
                yield name, old, new


class _Planning:
    """One plan: gathers what the future begins with, plays it, and tells it."""

    def __init__(self, world: World, asked: Plan) -> None:
        self._world, self._asked = world, asked
        self._now = steady_clock.now()
        self._pods: dict[int, StayingPod] = {}
        self._caused: set[int] = set()
        self._agents = nodes_with_agents()
        self._stay: list[Manifest] = []
        self._warnings: list[str] = list(asked.warnings)

    def answer(self) -> Manifest:
        """Return the document with its status."""
        snapshot, waiting = self._world.look(
            lambda mirror: (
                copy_snapshot(mirror.snapshot),
                [
                    (mirror.queue.pod(place.pod_id), place.since)
                    for place in mirror.queue.places()
                    if not mirror.snapshot.knows(place.pod_id)
                ],
            )
        )
        base = LiveBase(self._world, snapshot)
        nodes = _Nodes(self._asked.changes, self._now)
        self._raise(nodes.errors)
        leavers = self._leavers(nodes)
        frameworks = frameworks_of_plan(self._asked, base)
        future = Foresight(
            snapshot,
            frameworks,
            details=self._details,
            deadline=_Deadlines(snapshot).of,
            seed=self._asked.seed,
            backoff=_backoff(self._asked, base),
            go_on=self._world.go_on,
        )
        before = room(snapshot)
        future.gone(self._going())
        without_room = [one for one in leavers if snapshot.pod(one.key) is None]
        future.left += [self._gone_at_once(one) for one in without_room]
        away = {one.key for one in without_room}
        future.wait(one for one in self._waiters(waiting, snapshot) if one.key not in away)
        for name, _, new in nodes.changed():
            future.at(0.0, _node_change(name, new))
        self._add_objects(base, frameworks, future)
        future.leave(leavers)
        future.run(horizon=self._asked.horizon)
        evicted = [
            (self._pods[leaver.key], leaver)
            for leaver in leavers
            if leaver.cause in _BY_STEPS and isinstance(leaver.key, int)
        ]
        return self._told(future, nodes, evicted, before, room(snapshot))

    @staticmethod
    def _raise(errors: Sequence[FieldError]) -> None:
        if errors:
            raise Invalid(KIND, "", list(errors), GROUP)

    # --- who leaves ------------------------------------------------------------------------------

    def _leavers(self, nodes: _Nodes) -> list[Leaver]:
        """Return who leaves because of the plan, or anyway, in the order of leaving."""
        found: dict[int, Leaver] = {}
        for leaver in (
            *self._named(),
            *self._drained(nodes),
            *self._of_deleted(nodes),
            *self._tainted(nodes),
            *self._relabelled(nodes),
        ):
            key = leaver.key
            assert isinstance(key, int)
            if key not in found or leaver.due < found[key].due:
                found[key] = leaver
        return sorted(found.values(), key=lambda one: (one.due, one.key))

    def _named(self) -> Iterable[Leaver]:
        """Yield the pods that the plan evicts or deletes by name."""
        for change in self._asked.changes:
            found = pods_named(change.pods)
            for key in change.pods:
                pod = found.get(key)
                if pod is None:
                    title = "/".join(key)
                    self._raise([FieldError(NOT_FOUND, f"{change.path}.pods", title)])
                    continue
                if pod.deletion_at is not None:
                    told = {"pod": pod.title, "nodeName": pod.node_name}
                    self._stay.append({**told, "message": "it is leaving already"})
                    continue
                self._pods[pod.id] = pod
                self._caused.add(pod.id)
                grace = change.grace_seconds
                yield self._leaver(
                    pod,
                    due=0.0,
                    cause=plan_steps.REMOVED if change.ignores_budgets else EVICTED,
                    rule="deleted by name" if change.ignores_budgets else "evicted by name",
                    grace=None if grace is None else float(grace),
                    held=pod.phase == "Running" and not change.ignores_budgets,
                )

    def _gone_at_once(self, leaver: Leaver) -> Left:
        """Return what becomes of a pod that waits or has ended, which holds no room anywhere."""
        assert isinstance(leaver.key, int)
        node_name = self._pods[leaver.key].node_name
        return Left(leaver=leaver, node_name=node_name, at=leaver.due, gone_at=leaver.due)

    def _drained(self, nodes: _Nodes) -> Iterable[Leaver]:
        for change in self._asked.changes:
            if change.what != plan_document.DRAIN:
                continue
            names = [n for n in nodes.chosen[change.path] if nodes.after.get(n) is not None]
            for pod in self._on(names):
                reason = stays_when_drained(pod, change)
                if reason:
                    self._stay.append(
                        {"pod": pod.title, "nodeName": pod.node_name, "message": reason}
                    )
                elif pod.deletion_at is None:
                    self._caused.add(pod.id)
                    grace = change.grace_seconds
                    yield self._leaver(
                        pod,
                        due=0.0,
                        cause=DRAINED,
                        rule=f"drain of node {pod.node_name}",
                        grace=None if grace is None else float(grace),
                        held=pod.phase == "Running",
                    )

    def _of_deleted(self, nodes: _Nodes) -> Iterable[Leaver]:
        names = [name for name, _, new in nodes.changed() if new is None]
        quarantine = settings.POD_GC_QUARANTINE_SECONDS
        for pod in self._on(names):
            self._caused.add(pod.id)
            rule = f"pods of node {pod.node_name}, which is gone, are collected"
            yield self._leaver(pod, due=quarantine, cause=DELETED, rule=rule, grace=0.0)

    def _tainted(self, nodes: _Nodes) -> Iterable[Leaver]:
        """Yield who leaves for NoExecute taints, also for those that are there already."""
        changed = {
            name: _evicting(new)
            for name, old, new in nodes.changed()
            if new is not None and _evicting(new) != _evicting(old)
        }
        present = [name for name in evicting_nodes() if nodes.after.get(name, {}) is not None]
        names = sorted({*changed, *present})
        stays = stays_on(names)
        if len(stays) > _MOST_BACKGROUND:
            self._warnings.append(
                f"{len(stays)} pods are on nodes that evict: only those of the plan's are foreseen"
            )
            names = sorted(changed)
            stays = [stay for stay in stays if stay.node_name in changed]
        known = judgement.rules_by_class(stay.class_id for stay in stays)
        old = no_execute_taints(names)
        before = {one.pod_id: one for one in judgement.plans_under(stays, old, known)}
        plans = judgement.plans_under(stays, {**old, **changed}, known)
        self._learn([one.pod_id for one in plans])
        for one in plans:
            pod = self._pods.get(one.pod_id)
            if pod is None or pod.deletion_at is not None:
                continue
            earlier = before.get(one.pod_id)
            if one.place.node_name in changed and (earlier is None or earlier.due_at != one.due_at):
                self._caused.add(one.pod_id)
            bears = f", tolerated for {one.seconds} s" if one.seconds else ""
            rule = f"taint {one.taint_key}:{one.taint_effect} of node {pod.node_name}{bears}"
            due = (one.due_at - self._now).total_seconds()
            yield self._leaver(pod, due=max(due, 0.0), cause=TAINTED, rule=rule)

    def _relabelled(self, nodes: _Nodes) -> Iterable[Leaver]:
        old: dict[str, Mapping[str, str]] = {}
        new: dict[str, Mapping[str, str]] = {}
        for name, before, after in nodes.changed():
            if after is not None and _labels(before) != _labels(after):
                old[name], new[name] = _labels(before), _labels(after)
        if not new:
            return
        places = executing_places(node_names=sorted(new))
        known = judgement.rules_by_class(place.class_id for place in places)
        hit = judgement.broken_under(places, new, known)
        hit -= judgement.broken_under(places, old, known)
        grace, rate = (
            settings.REQUIRED_DURING_EXECUTION_GRACE_SECONDS,
            settings.REQUIRED_DURING_EXECUTION_RATE,
        )
        turn = 0
        for pod in self._on(sorted({place.node_name for place in hit})):
            if Place(pod.node_name, pod.class_id) not in hit or pod.deletion_at is not None:
                continue
            wait = max(0.0, (turn + 1 - max(1.0, rate)) / rate) if rate > 0 else 0.0
            turn += 1
            self._caused.add(pod.id)
            rule = f"labels of node {pod.node_name} that its affinity requires during execution"
            yield self._leaver(
                pod, due=grace + wait, cause=RELABELLED, rule=rule, held=pod.phase == "Running"
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
    ) -> Leaver:
        return Leaver(
            key=pod.id,
            title=pod.title,
            due=due,
            grace=self._grace(pod) if grace is None else grace,
            cause=cause,
            rule=rule,
            comes_again=comes_again(pod),
            held_by_budgets=held,
            grace_given=grace is not None,
        )

    def _on(self, names: Sequence[str]) -> list[StayingPod]:
        found = pods_staying_on(names) if names else []
        self._pods.update((pod.id, pod) for pod in found)
        return found

    def _learn(self, ids: Sequence[int]) -> None:
        self._pods.update(pods_staying([id_ for id_ in ids if id_ not in self._pods]))

    def _going(self) -> Iterable[Leaver]:
        """Return the pods that are leaving already."""
        found = pods_terminating(limit=_MOST_BACKGROUND)
        self._pods.update((pod.id, pod) for pod in found)
        for pod in found:
            if pod.deletion_at is not None:
                due = (pod.deletion_at - self._now).total_seconds()
                if pod.node_name not in self._agents:
                    due = 0.0
                again = WHEN_GONE if comes_again(pod) == WHEN_GONE else NEVER
                yield Leaver(
                    key=pod.id, title=pod.title, due=due, grace=0.0, cause="", comes_again=again
                )

    def _details(self, record: PodRecord) -> tuple[str, float, str]:
        """Return what is to be known of a pod that another one's coming sends away."""
        key = record.key
        if not isinstance(key, int):
            return str(key).partition("#")[0], float(DEFAULT_GRACE_SECONDS), NEVER
        self._learn([key])
        pod = self._pods.get(key)
        if pod is None:
            return str(key), float(DEFAULT_GRACE_SECONDS), NEVER
        self._caused.add(key)
        return pod.title, self._grace(pod), comes_again(pod)

    def _grace(self, pod: StayingPod, *, anywhere: bool = False) -> float:
        """Return how long a pod holds its room at most: where no agent stops it, not at all."""
        if not self._agents or (pod.node_name not in self._agents and not anywhere):
            return 0.0
        seconds = pod.grace_seconds
        if seconds is None:
            return float(DEFAULT_GRACE_SECONDS)
        return float(seconds) if seconds >= 0 else 1.0

    # --- who comes -------------------------------------------------------------------------------

    def _waiters(
        self, waiting: Sequence[tuple[Any, float]], snapshot: Snapshot
    ) -> Iterable[Waiter]:
        ids = [pod.pod_id for pod, _ in waiting]
        names = pods_by_id(ids)
        places = {row.id: row for row in load_waiting(ids)}
        self._learn(ids)
        now = self._now.timestamp()
        for pod, since in waiting:
            row = names.get(pod.pod_id)
            info = snapshot.known_class(pod.class_id.to_bytes(8, "big"))
            if row is None or info is None or pod.pod_id not in self._pods:
                continue
            place = places.get(pod.pod_id)
            attempts = 0 if place is None else place.attempts
            until = None if place is None else place.not_before
            yield Waiter(
                key=pod.pod_id,
                title=f"{row.namespace}/{row.name}",
                info=info,
                queued_at=min(since - now, 0.0),
                attempts=attempts,
                not_before=0.0 if until is None else until.timestamp() - now,
                comes_again=comes_again(self._pods[pod.pod_id]),
                grace_seconds=self._grace(self._pods[pod.pod_id], anywhere=True),
            )

    def _add_objects(
        self, base: LiveBase, frameworks: Mapping[str, Any], future: Foresight
    ) -> None:
        """Let the nodes and the pods of the plan come, as admission lets them."""
        world = simulation.World(base, admission=True)
        added = [
            Given(manifest, f"{change.path}.objects[{number}]")
            for change in self._asked.changes
            if change.what == plan_document.ADD
            for number, manifest in enumerate(change.objects)
        ]
        for given in added:
            name = given.manifest["metadata"]["name"]
            if base.find("Node", "", name) is not None:
                self._raise([FieldError(DUPLICATE, f"{given.path}.metadata.name", name)])
        world.apply(added, ())
        self._raise(world.errors)
        preparer = Preparer(world, frameworks)
        number = 0
        for change in self._asked.changes:
            objects = change.objects if change.what == plan_document.PODS else ()
            for place, manifest in enumerate(objects):
                ready = preparer.prepare(manifest, number)
                number += 1
                if isinstance(ready, Refused) and ready.status == "invalid":
                    self._raise(_refusals(ready, f"{change.path}.objects[{place}]"))
                if isinstance(ready, Ready):
                    title = ready.title
                    future.wait(
                        [Waiter(key=f"{title}", title=title, info=ready.info, queued_at=0.0)]
                    )
                elif isinstance(ready, Refused):
                    self._warnings.append(f"{ready.title}: {ready.message}")
                else:
                    text = f"is bound to node {ready.node_name}: what follows is not foretold"
                    self._warnings.append(f"{ready.title}: {text}")
        self._world.go_on()

    # --- what is told ----------------------------------------------------------------------------

    def _told(
        self,
        future: Foresight,
        nodes: _Nodes,
        leavers: Sequence[tuple[StayingPod, Leaver]],
        before: Manifest,
        after: Manifest,
    ) -> Manifest:
        landings = {
            landed.waiter.replaces: landed
            for landed in future.landed.values()
            if landed.waiter.replaces
        }
        leaving: list[Manifest] = []
        anyway: list[Manifest] = []
        for left in future.left:
            told = self._left(left, landings.get(left.leaver.title))
            (leaving if left.by or left.leaver.key in self._caused else anyway).append(told)
        placed: list[Manifest] = []
        waiting: list[Manifest] = []
        for landed in future.landed.values():
            if not landed.waiter.replaces:
                told = {"pod": landed.waiter.title, **self._landing(landed)}
                (placed if landed.node_name else waiting).append(told)
        budgets: dict[str, list[str]] = {}
        for left in future.left:
            if left.blocked_by:
                budgets.setdefault(left.blocked_by, []).append(left.leaver.title)
        stuck = [
            {"pod": one["pod"], "message": one["landing"]["message"]}
            for one in leaving
            if "landing" in one and not one["landing"]["nodeName"]
        ]
        status: Manifest = {
            "revision": str(self._world.revision),
            "at": format_time(self._now),
            "summary": {
                "leaving": sum(one.get("afterSeconds") is not None for one in leaving),
                "held": sum("blockedBy" in one for one in leaving),
                "preempted": sum("preemptedBy" in one for one in leaving),
                "stuck": len(stuck),
                "placed": len(placed),
                "waiting": len(waiting),
                "nodes": len(list(nodes.changed())),
            },
            "leaving": leaving,
            "leavingAnyway": anyway,
            "placed": placed,
            "waiting": waiting,
            "stuck": stuck,
            "staying": self._stay,
            "budgets": [{"name": name, "holds": pods} for name, pods in sorted(budgets.items())],
            "room": {"before": before, "after": after},
            "steps": list(plan_steps.steps(self._asked.changes, nodes.chosen, leavers)),
            "undo": plan_steps.undo(self._asked.changes, nodes.chosen, nodes.before),
        }
        if self._warnings:
            status["warnings"] = self._warnings
        answer: Manifest = {"apiVersion": API_VERSION, "kind": KIND}
        if self._asked.metadata:
            answer["metadata"] = self._asked.metadata
        return {**answer, "status": status}

    def _left(self, left: Left, landed: Landed | None) -> Manifest:
        leaver = left.leaver
        found: Manifest = {
            "pod": leaver.title,
            "nodeName": left.node_name,
            "cause": leaver.cause,
            "rule": leaver.rule,
        }
        pod = self._pods.get(leaver.key) if isinstance(leaver.key, int) else None
        if pod is not None:
            found["uid"] = pod.uid
            if pod.owner_kind:
                found["owner"] = f"{pod.owner_kind}/{pod.owner_name}"
        if left.by:
            found["preemptedBy"] = left.by
        if left.blocked_by:
            found["blockedBy"] = left.blocked_by
        elif left.at is not None and left.gone_at is not None:
            found["afterSeconds"] = round(left.at, 3)
            found["at"] = format_time(self._now + timedelta(seconds=left.at))
            found["goneAfterSeconds"] = round(left.gone_at, 3)
        found["replaced"] = leaver.comes_again
        if landed is not None:
            found["landing"] = self._landing(landed)
        return found

    @staticmethod
    def _landing(landed: Landed) -> Manifest:
        found: Manifest = {"nodeName": landed.node_name}
        if landed.node_name:
            found |= {
                "afterSeconds": round(landed.at, 3),
                "total": landed.total,
                "margin": landed.margin,
                "ties": landed.ties,
                "feasible": landed.feasible,
                "evaluated": landed.evaluated,
            }
        else:
            found |= {"message": landed.message, "rejectedBy": list(landed.rejected_by)}
            if landed.nominated:
                found["nominatedNode"] = landed.nominated
        return found


def _refusals(ready: Refused, path: str) -> list[FieldError]:
    """Return why admission does not let a pod in, as what is wrong with the pod at ``path``."""
    found = [
        FieldError(one.type, f"{path}.{one.field}", one.bad_value, one.detail)
        for one in ready.errors
        if one.field
    ]
    return found or [FieldError(INVALID, path, ready.title, ready.message)]


def frameworks_of_plan(asked: Plan, base: LiveBase) -> Mapping[str, Any]:
    """Return the profiles that decide: of the plan's configuration, else those in force."""
    read = simulation.read({"spec": {}})
    return frameworks_of(msgspec.structs.replace(read, configuration=asked.configuration), base)


class _Deadlines:
    """For how long pods may stay on nodes that they come to; taints are older than the stay."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of(self, info: PodInfo, node_name: str) -> tuple[float, str] | None:
        """Return seconds and rule, ``None`` where nothing sends the pod away."""
        row = self._snapshot.row_of(node_name)
        if row is None:
            return None
        taints = self._snapshot.node(row).spec.taints
        counted = eviction.countdowns(info.pod.spec.tolerations, taints, added_at=_LONG_AGO)
        found = eviction.deadline(counted, _LATER)
        if found is None:
            return None
        taint = f"{found.taint.key}:{found.taint.effect}"
        rule = f"taint {taint} of node {node_name}, tolerated for {found.seconds} s"
        return float(found.seconds), rule


_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATER: Final = datetime(9000, 1, 1, tzinfo=UTC)


def _backoff(asked: Plan, base: LiveBase) -> Backoff:
    configuration = asked.configuration or base.configuration()
    return Backoff(
        initial=configuration.pod_initial_backoff_seconds,
        longest=configuration.pod_max_backoff_seconds,
    )


def stays_when_drained(pod: StayingPod, change: Change) -> str:
    """Return why a drain leaves a pod where it is, empty if it does not (kubectl's rules)."""
    if pod.is_mirror:
        return "a static pod: its node's agent would make it again"
    if pod.owner_kind == "DaemonSet":
        return "managed by a DaemonSet, which ignores that the node is closed"
    if not pod.owner_kind and not change.force:
        return "no controller would make it again: force"
    if pod.has_local_data and not change.delete_local_data:
        return "its emptyDir volumes would be lost: deleteEmptyDirData"
    return ""


def comes_again(pod: StayingPod) -> str:
    """Return whether and when the pod's controller makes another one in its place."""
    if pod.owner_kind in _AGAIN_AT_ONCE:
        return AT_ONCE
    return WHEN_GONE if pod.owner_kind == "StatefulSet" else NEVER


def room(snapshot: Snapshot) -> Manifest:
    """Return how many nodes are open, and what they have left in all."""
    rows = snapshot.rows()
    open_ = rows[~snapshot.unschedulable[rows]]
    free = np.maximum(snapshot.allocatable[open_] - snapshot.requested[open_], 0)
    pods = np.maximum(snapshot.allowed_pods[open_] - snapshot.pod_count[open_], 0)
    found: Manifest = {"nodes": len(rows), "open": len(open_), "pods": int(pods.sum())}
    for column, resource in enumerate(snapshot.resources.values):
        if column < free.shape[1]:
            total = int(free[:, column].sum())
            found[resource] = f"{total}m" if resource == "cpu" else str(total)
    return found


def _evicting(node: Manifest) -> list[Taint]:
    taints = (node.get("spec") or {}).get("taints") or []
    return [msgspec.convert(one, Taint) for one in taints if one.get("effect") == NO_EXECUTE]


def _labels(node: Manifest) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _node_change(name: str, new: Manifest | None) -> Any:
    if new is None:
        return lambda snapshot: snapshot.remove_node(name)
    node = msgspec.convert(new, Node)
    return lambda snapshot: snapshot.set_node(node)
