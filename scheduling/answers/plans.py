"""Answers a ``Plan``: predicts the effects of its changes.

::

    read          the document                                   (simulation.plan_document)
    Nodes         the nodes after the changes                    (plan_nodes, objects.node_edits)
    rebalancing   which nodes can be emptied                     (plan_rebalancing)
    Leavers       pods that leave, when, by which rule           (plan_leavers)
    brakes        evictions that a brake will hold back          (plan_brakes)
    places        the queue places of waiting pods               (plan_queue)
    Foresight     what happens then, and the pods' new nodes     (simulation.foresight)
    steps         the steps to carry out the plan                (plan_steps)
    with_status   the answer, with its revision                  (plan_answer)

It has no rules of its own: the live scheduler's core decides placements. An applied plan becomes an
operation (``clusterstate.actions.plans``), whose steps ``controllers.operations`` carries out.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec
from django.conf import settings

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import eviction
from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values.errors import DUPLICATE, INVALID, FieldError, Invalid, TooLarge
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import steady_clock
from clusterstate.queries.pods.queue import load_waiting
from scheduling import simulation
from scheduling.answers import plan_answer, plan_brakes, plan_queue, plan_rebalancing
from scheduling.answers.live import LiveBase, LiveWorld
from scheduling.answers.plan_holding import DEPENDS, HeldPlaces
from scheduling.answers.plan_leavers import COUNTED, Leavers, comes_again, replacement_timing
from scheduling.answers.plan_nodes import Nodes, node_change, room
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.framework.runtime import ConfigurationError
from scheduling.framework.types import PodInfo, digest_of
from scheduling.simulation import plan_document
from scheduling.simulation.cluster import VirtualCluster
from scheduling.simulation.document import GROUP, Given
from scheduling.simulation.foresight import Foresight, Leaver, Waiter
from scheduling.simulation.plan_document import KIND, PlanChange, PlanDocument
from scheduling.simulation.preparing import Preparer, Ready, Set, UnplacedStatus
from scheduling.worker import profiles

_EXACT_ROUNDS: Final = 4
"""Predictions after which other pods than those without a place may stay; most plans need two."""


def plan(world: LiveWorld, document: object) -> Manifest:
    """Return a ``Plan`` document with ``status``: what will happen if it is carried out now.

    For a plan with ``rebalance`` the status has ``changes``: the resulting drain or evictions. They
    are stored as the plan's changes, so that a second prediction has the same ones.

    The same period is also simulated without the changes, so that the plan does not list as its
    effect what would happen anyway, such as placements or preemptions of waiting pods.

    If room is reserved for replacements, a pod stays if its replacement fits no node now, or if a
    budget protects it. The plan is predicted again without these pods. After ``_EXACT_ROUNDS``
    predictions, at least twice as many pods stay each time, so that few more are needed.

    Raises:
        Invalid: with every wrong field.
        ServiceUnavailable: the plan rebalances, and the solver is not installed.
        TooLarge: the prediction takes too long.
    """
    parsed = plan_document.read(document)
    comes_to: list[Manifest] | None = None
    if any(one.what == plan_document.REBALANCE for one in parsed.changes):
        parsed = plan_rebalancing.settled(world, parsed, partial(_foretold, world))
        comes_to = [_entry(one) for one in parsed.changes]
    kept: dict[str, str] = {}
    planning = _Planning(world, parsed)
    answer = planning.answer()
    rounds = 1
    while planning.without_place:
        kept |= planning.without_place
        rounds += 1
        if rounds > _EXACT_ROUNDS:
            kept |= dict.fromkeys(planning.next_to_stay(len(kept), kept), DEPENDS)
        planning = _Planning(world, parsed, kept)
        answer = planning.answer()
    status = answer["status"]
    if comes_to is not None:
        status["changes"] = comes_to
        if not comes_to:
            text = "no pod can be moved: there is no room elsewhere, or a budget forbids it"
            status["warnings"] = [*status.get("warnings", ()), text]
    if status["placed"] or status["waiting"]:
        nothing = msgspec.structs.replace(parsed, changes=(), configuration=None)
        try:
            without = _Planning(world, nothing).answer()["status"]
        except TooLarge:
            text = "there was no time to predict what would happen without these changes"
            status["warnings"] = [*status.get("warnings", ()), text]
        else:
            plan_answer.set_apart(status, without)
    return answer


def _foretold(world: LiveWorld, document: PlanDocument) -> tuple[Manifest, Mapping[str, str]]:
    """Return the status of a plan, and the pods for which no place can be held, with the reason."""
    planning = _Planning(world, document)
    return planning.answer()["status"], planning.without_place


def _entry(change: PlanChange) -> Manifest:
    """Return a drain or evictions as an entry of ``spec.changes``."""
    if change.nodes:
        return {change.what: {"nodes": list(change.nodes)}}
    places = {"places": change.targets} if change.targets else {}
    return {change.what: {"pods": ["/".join(pod) for pod in change.pods], **places}}


class _Planning:
    """Predicts one plan: prepares the simulation, runs it, and builds the answer.

    ``kept``: pods that the plan would evict and that stay, with the reason, by title.
    ``without_place``: the same for pods whose replacement has no room to reserve.
    """

    def __init__(
        self, world: LiveWorld, plan: PlanDocument, kept: Mapping[str, str] | None = None
    ) -> None:
        self._world, self._plan = world, plan
        self._now = steady_clock.now()
        self._leavers = Leavers(plan.changes, self._now, kept or {})
        self._warnings: list[str] = list(plan.warnings)
        self._to_move: list[str] = []
        self.without_place: dict[str, str] = {}

    def next_to_stay(self, count: int, kept: Mapping[str, str]) -> list[str]:
        """Return ``count`` pods that are not ``kept``, first those whose room others take."""
        return [title for title in self._to_move if title not in kept][:count]

    def answer(self) -> Manifest:
        """Return the plan's document with the predicted ``status``."""
        snapshot, waiting = self._world.look(
            lambda mirror: (
                copy_snapshot(mirror.snapshot),
                [
                    place.pod_id
                    for place in mirror.queue.places()
                    if not mirror.snapshot.knows(place.pod_id)
                ],
            )
        )
        base = LiveBase(self._world, snapshot)
        nodes = Nodes(self._plan.changes, self._now)
        self._raise(nodes.errors)
        leavers = self._leavers.leaving(nodes)
        future = self._future(snapshot, base, self._leavers.unready(snapshot, leavers))
        before = room(snapshot)
        future.gone(self._leavers.going())
        away = self._without_room(leavers, future)
        future.wait(self._waiters([one for one in waiting if one not in away], future.cluster))
        for name, _, new in nodes.changed():
            future.at(0.0, node_change(name, new))
        self._add_objects(base, future)
        future.leave(leavers)
        places = None
        if self._plan.holds_places:
            places = HeldPlaces(future, leavers, self._plan.pods_per_hour)
        future.run(horizon=self._plan.horizon)
        if places is not None:
            self.without_place = places.without_place()
            self._to_move = places.movers()
        counted = [one for one in leavers if one.cause in COUNTED]
        brakes = plan_brakes.ahead(counted, self._leavers.pods, self._now)
        return plan_answer.with_status(
            self._plan,
            future,
            nodes,
            self._leavers,
            evicted=leavers,
            rooms=(before, room(snapshot)),
            brakes=brakes,
            warnings=[*nodes.warnings, *self._leavers.warnings, *self._warnings],
            revision=self._world.revision,
            now=self._now,
        )

    def _future(self, snapshot: Snapshot, base: LiveBase, unready: set[int]) -> Foresight:
        try:
            return Foresight(
                snapshot,
                self._plan.configuration or base.configuration(),
                now=self._now.timestamp(),
                details=self._leavers.details,
                deadline=_Deadlines(snapshot).of,
                unready=unready,
                seed=settings.SCHEDULER_SEED if self._plan.seed is None else self._plan.seed,
                go_on=self._world.go_on,
            )
        except ConfigurationError as error:
            text = str(error)
            raise Invalid(KIND, "", [FieldError(INVALID, "spec", None, text)], GROUP) from error

    @staticmethod
    def _raise(errors: Sequence[FieldError]) -> None:
        if errors:
            raise Invalid(KIND, "", list(errors), GROUP)

    def _without_room(self, leavers: Sequence[Leaver], future: Foresight) -> set[object]:
        """Note in ``future`` the leavers that take no room (waiting or ended); return their ids."""
        away: set[object] = set()
        snapshot = future.cluster.snapshot
        for one in leavers:
            if snapshot.pod(one.key) is None:
                assert isinstance(one.key, int)
                pod = self._leavers.pods[one.key]
                info = snapshot.known_class(digest_of(pod.class_id))
                future.without_room(one.key, info, pod.node_name)
                away.add(one.key)
        return away

    # --- new pods --------------------------------------------------------------------------------

    def _waiters(self, ids: Sequence[int], cluster: VirtualCluster) -> Iterable[Waiter]:
        """Yield the waiting pods, with their places in the queue of the live scheduler."""
        rows = load_waiting(ids)
        self._leavers.learn(ids)
        places = plan_queue.places(
            rows,
            cluster.snapshot,
            revision=self._world.revision,
            configuration=-1 if self._plan.configuration else profiles.in_force()[0],
            registrations=cluster.registrations,
            backoff=cluster.backoff,
            now=self._now.timestamp(),
        )
        for row in rows:
            pod, place = self._leavers.pods.get(row.id), places.get(row.id)
            info = cluster.snapshot.known_class(digest_of(row.class_id))
            if pod is None or place is None or info is None:
                continue
            yield Waiter(
                title=pod.title,
                info=info,
                place=place,
                comes_again=comes_again(pod),
                grace_seconds=self._leavers.grace(pod, anywhere=True),
            )

    def _add_objects(self, base: LiveBase, future: Foresight) -> None:
        """Admit the objects that the plan adds, and add them; its pods wait for a node."""
        world = simulation.World(base, admission=True)
        added = [
            Given(manifest, place)
            for change in self._plan.changes
            if change.what in (plan_document.ADD, plan_document.IMPORT)
            for manifest, place in zip(change.objects, change.places, strict=True)
        ]
        for entry in added:
            kind, metadata = entry.manifest["kind"], entry.manifest["metadata"]
            namespace = _namespace_of(entry.manifest)
            if base.find(kind, namespace, metadata["name"]) is not None:
                path = f"{entry.path}.metadata.name"
                self._raise([FieldError(DUPLICATE, path, metadata["name"])])
        world.apply(added, ())
        self._raise(world.errors)
        for entry in added:
            kind, name = entry.manifest["kind"], entry.manifest["metadata"]["name"]
            if kind == "Node":
                future.at(0.0, lambda cluster, name=name: cluster.node_came(name))  # type: ignore[misc]
                continue
            manifest = world.find(kind, _namespace_of(entry.manifest), name) or entry.manifest
            future.at(0.0, partial(VirtualCluster.object_came, kind=kind, manifest=manifest))
        preparer = Preparer(world, future.cluster.frameworks)
        number = 0
        for change in self._plan.changes:
            if change.what == plan_document.PODS:
                for manifest, place in zip(change.objects, change.places, strict=True):
                    ready = preparer.prepare(manifest, number)
                    number += 1
                    self._come(future, ready, place, manifest)
            elif change.what == plan_document.SCALE:
                found = self._leavers.scalings[change.path]
                for count, manifest in enumerate(found.new):
                    named = {**manifest["metadata"]}
                    # The controller will choose a random name; this one names the owner.
                    name = named.pop("generateName", None)
                    if name is not None:
                        named["name"] = f"{name}new-{count + 1}"
                    ready = preparer.prepare({**manifest, "metadata": named}, number)
                    number += 1
                    self._come(future, ready, change.path, manifest)
        self._world.go_on()

    def _come(
        self, future: Foresight, ready: Ready | Set | UnplacedStatus, path: str, manifest: Manifest
    ) -> None:
        """Add a pod of the plan to the waiting ones, or a warning why it does not wait.

        Raises:
            Invalid: admission refuses the pod.
        """
        if isinstance(ready, Ready):
            manager = controller_of(manifest) or {}
            seconds = manifest["spec"].get("terminationGracePeriodSeconds")
            waiter = Waiter(
                title=ready.title,
                info=ready.info,
                comes_again=replacement_timing(manager.get("kind") or ""),
                grace_seconds=self._leavers.grace_of_new(seconds),
            )
            future.wait([waiter])
        elif isinstance(ready, Set):
            text = f"is bound to node {ready.node_name}; what follows from that is not predicted"
            self._warnings.append(f"{ready.title}: {text}")
        elif ready.status == "invalid":
            self._raise(_refusals(ready, path))
        else:
            self._warnings.append(f"{ready.title}: {ready.message}")


def _refusals(ready: UnplacedStatus, path: str) -> list[FieldError]:
    """Return the errors of a pod that admission refused, as errors of the field at ``path``."""
    found = [
        FieldError(one.type, f"{path}.{one.field}", one.bad_value, one.detail)
        for one in ready.errors
        if one.field
    ]
    return found or [FieldError(INVALID, path, ready.title, ready.message)]


def _namespace_of(manifest: Manifest) -> str:
    """Return the namespace of an object of a plan, empty if its kind has none."""
    namespaced = KINDS[manifest["kind"]].namespaced
    return (manifest["metadata"].get("namespace") or "default") if namespaced else ""


class _Deadlines:
    """How long new pods may stay on nodes that already have NoExecute taints."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of(self, info: PodInfo, node_name: str) -> tuple[float, str] | None:
        """Return the seconds and the taint's rule, ``None`` if no taint evicts the pod."""
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
