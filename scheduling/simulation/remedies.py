"""Remedies for a waiting pod, each proved on a copy of the cluster, the best first.

``needs`` returns edits that might open nodes. Here each is tried: a changed pod is filtered on
every node; changed nodes are put into the snapshot, filtered, and restored. An edit that opens no
node is dropped. How many waiting pods a remedy frees is counted by placing them with the
scheduler's core, after a check that they do not fit without it.

The order: remedies that free more pods, then that need fewer edits, then that change the pod
rather than nodes, then that open more nodes, then by their text.
"""

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import QuantityError
from clusterstate.objects.values.storage import AVAILABLE, PersistentVolume
from scheduling.engine import deciding
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import (
    Options,
    PodToPlace,
    new_state,
    schedule_batch,
    schedule_pod,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.arrays import Mask
from scheduling.framework.configuration import BUILT_IN
from scheduling.framework.configuration.plugin_args import PodTopologySpreadArgs
from scheduling.framework.formulas import short
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.terms import RequestFilter
from scheduling.framework.types import PodInfo
from scheduling.simulation import edits, makings, plan_document
from scheduling.simulation.edits import Edit, NodeEdit, PodEdit
from scheduling.simulation.makings import Maker, ObjectsToMake
from scheduling.simulation.needs import Group, groups
from scheduling.simulation.verdicts import Verdicts

MOST_GROUPS: Final = 12
"""The most groups of nodes that remedies are tried for, the largest with the fewest needs."""
MOST_TRIED: Final = 64
"""The most nodes that are changed at once to try a remedy."""
MOST_WAITING: Final = 1_000
"""The most waiting pods that are placed to count how many a remedy frees."""
MOST_CLASSES: Final = 16
"""The most classes of these pods: the first of the queue and the pod's own."""
_WITHOUT_VICTIMS: Final = Options(preempt=False, tie_break="first")
"""The first of equal nodes is chosen: the same question gets the same answer."""
_MOST_NAMED: Final = 10
_MOST_PRIORITIES: Final = 4
_ON_POD, _ON_NODE = "Pod", "Node"
_CREATE: Final = {"PersistentVolume": "CreateVolume", "ResourceSlice": "CreateSlice"}

E = TypeVar("E", bound=Edit)


class Remedy(msgspec.Struct, frozen=True):
    """Edits that opened nodes in a trial.

    ``target``: Pod, Node, Plan, or the kind of an object to make: PersistentVolume or
    ResourceSlice; ``patch`` is then the first object, and ``plan`` a Plan that creates all.
    ``opens``: how many of ``tried`` nodes took the pod then; ``nodes``: how many need the same
    edits; ``names``: some of them. ``frees``: how many waiting pods fit with only the first of
    ``names`` changed; ``of``: how many were tried. ``patch``: the change of the pod, or of the
    first of ``names``, as a merge patch. ``preempts``: pods to preempt. ``moves``: pods to move,
    with a Plan that moves them in ``plan``; then the target is Plan, without a patch.
    """

    target: str
    text: str
    edits: tuple[Manifest, ...]
    opens: int
    tried: int
    nodes: int
    names: tuple[str, ...]
    frees: int
    of: int
    patch: Manifest
    preempts: int = 0
    moves: int = 0
    plan: Manifest | None = None

    def order(self) -> tuple[object, ...]:
        """Return the sort key of remedies; the module's docstring states the order."""
        return -self.frees, len(self.edits), self.target != _ON_POD, -self.opens, self.text


class Question(msgspec.Struct, frozen=True):
    """A pod that fits nowhere, among those that wait with it.

    ``waiting``: pods of the same profile in queue order, including ``pod``. ``priorities``: values
    and names of priority classes that the pod might get, ascending. ``stored``: the pod's full
    manifest, for patches. ``go_on`` raises if the search takes too long.
    """

    pod: PodToPlace
    waiting: Sequence[PodToPlace] = ()
    priorities: Sequence[tuple[int, str]] = ()
    go_on: Callable[[], None] = lambda: None
    stored: Manifest | None = None


def remedies(
    snapshot: Snapshot, framework: Framework, question: Question, verdicts: Verdicts
) -> list[Remedy]:
    """Return the remedies that let the pod fit, the best first; empty if none is found.

    Two needs are met at once only if no node has a single need.

    Args:
        snapshot: a private copy; it is changed and restored.
        framework: the pod's profile.
        question: the pod and the other waiting pods.
        verdicts: those of the pod, from ``verdicts.judge``.

    Raises:
        PluginFailed: a plugin failed.
    """
    found = groups(snapshot, framework, question.pod.info, verdicts)
    fewest = min((len(group.needs) for group in found), default=0)
    trial = Trial(snapshot, framework, question)
    tried: dict[tuple[str, str], Remedy] = {}
    chosen = [one for one in found if len(one.needs) == fewest][:MOST_GROUPS]
    # All edits of the pod first: their cached results are valid until a node changes.
    ways = itertools.chain(map(trial.on_pod, chosen), map(trial.on_nodes, chosen))
    for remedy in itertools.chain.from_iterable(ways):
        before = tried.get((remedy.target, remedy.text))
        if before is None or remedy.opens > before.opens:
            tried[remedy.target, remedy.text] = remedy
    helpful = [*tried.values(), *trial.by_objects(), *trial.by_preemption()]
    return sorted(helpful, key=Remedy.order)


class Trial:
    """Applies edits to a snapshot, checks whether the pod finds a node, and undoes them."""

    def __init__(self, snapshot: Snapshot, framework: Framework, question: Question) -> None:
        self._snapshot = snapshot
        self._framework = framework
        self._question = question
        self._info = question.pod.info
        self._waiting = _some(question) or [question.pod]
        self._mine = [one for one in self._waiting if one.info is self._info] or [question.pod]
        deciding.warm_for(len(self._waiting), snapshot.node_count)
        self._decider = Decider(snapshot, framework)
        self._found_room: dict[int, bool] = {}
        filters = framework.filter_plugins
        self._comparing = [plugin for plugin in filters if isinstance(plugin, RequestFilter)]
        spread = framework.profile.args.get("PodTopologySpread", PodTopologySpreadArgs())
        # More pods never help one that such filters reject, but for what ``_stays_refused`` names.
        self._only_fills = (
            all(plugin.name in BUILT_IN for plugin in filters)
            and isinstance(spread, PodTopologySpreadArgs)
            and not spread.default_constraints
        )

    def on_pod(self, group: Group) -> Iterator[Remedy]:
        """Yield edits of the pod that make it fit nodes of ``group``."""
        for way in _ways([choice.pod for choice in group.needs]):
            self._question.go_on()
            remedy = self._on_pod(way)
            if remedy is not None:
                yield remedy

    def on_nodes(self, group: Group) -> Iterator[Remedy]:
        """Yield edits of the nodes of ``group`` that make the pod fit there."""
        for pod in self._waiting:
            self._finds_room(pod)
        for steps in _ways([choice.node for choice in group.needs]):
            self._question.go_on()
            found = self._on_nodes(steps, group.rows)
            if found is not None:
                yield found

    def by_objects(self) -> Iterator[Remedy]:
        """Yield volumes and ResourceSlices to create; all together only if none helps alone."""
        makers = [
            one
            for one in (makings.volumes, makings.slices)
            if one(self._snapshot, self._info, None) is not None
        ]
        alone = [found for one in makers if (found := self._with_objects([one])) is not None]
        yield from alone
        if len(makers) > 1 and not alone and (found := self._with_objects(makers)) is not None:
            yield found

    def _with_objects(self, makers: Sequence[Maker]) -> Remedy | None:
        self._question.go_on()
        snapshot = self._snapshot
        rows = self._feasible_with(_objects_to_make(makers, snapshot, self._info, None))
        nodes = (snapshot.node(row) for row in rows[:MOST_TRIED].tolist())
        makings = next(
            filter(None, (_objects_to_make(makers, snapshot, self._info, one) for one in nodes)), ()
        )
        opened = self._feasible_with(makings) if makings else rows[:0]
        if not len(opened):
            return None
        objects = [one for making in makings for one in making.objects]
        return Remedy(
            objects[0]["kind"],
            " and ".join(making.text for making in makings),
            tuple({"action": _CREATE[one["kind"]], "manifest": one} for one in objects),
            opens=len(opened),
            tried=snapshot.node_count,
            nodes=len(rows),
            names=self._names(opened),
            frees=1,
            of=1,
            patch=objects[0],
            plan=plan_document.of([{plan_document.IMPORT: {"objects": objects}}]),
        )

    def _feasible_with(self, makings: Sequence[ObjectsToMake]) -> Rows:
        """Return the rows that the pod fits after these objects are created."""
        world = self._snapshot
        objects = [one for making in makings for one in making.objects]
        for one in objects:
            if one["kind"] == "PersistentVolume":
                there = {**one, "status": {"phase": AVAILABLE}}
                world.volumes.set(msgspec.convert(there, PersistentVolume))
            else:
                world.devices.set(one["kind"], one)
        try:
            return self._feasible(self._question.pod)
        finally:
            for one in objects:
                of = world.volumes if one["kind"] == "PersistentVolume" else world.devices
                of.remove(one["kind"], "", one["metadata"]["name"])

    def by_preemption(self) -> Iterator[Remedy]:
        """Yield the lowest priority class with which the pod could preempt other pods."""
        own = self._question.pod
        now = schedule_pod(self._snapshot, self._framework, own, Options()).nomination
        if now is not None and now.node_name:
            return
        tried = 0
        for value, name in self._question.priorities:
            if value <= self._info.priority or tried >= _MOST_PRIORITIES:
                continue
            tried += 1
            edit = edits.raise_priority(value, name)
            pod = edit.change(self._info.pod)
            info = None if pod is None else self._interned(pod)
            if pod is None or info is None:
                continue
            to_place = PodToPlace(own.key, info)
            nomination = schedule_pod(
                self._snapshot, self._framework, to_place, Options()
            ).nomination
            if nomination is not None and nomination.node_name:
                yield Remedy(
                    _ON_POD,
                    f"{edit.text}: {len(nomination.victims)} pods would make room",
                    (in_json(edit),),
                    opens=1,
                    tried=self._snapshot.node_count,
                    nodes=1,
                    names=(nomination.node_name,),
                    frees=1,
                    of=1,
                    patch=self._patch([edit], pod),
                    preempts=len(nomination.victims),
                )
                return

    def _on_pod(self, way: Sequence[PodEdit]) -> Remedy | None:
        pod: Pod | None = self._info.pod
        for edit in way:
            pod = None if pod is None else edit.change(pod)
        info = None if pod is None else self._interned(pod)
        if pod is None or info is None:
            return None
        rows = self._feasible(PodToPlace(self._question.pod.key, info))
        if not len(rows):
            return None
        changed = [PodToPlace(one.key, info, one.nominated_node) for one in self._mine]
        return Remedy(
            _ON_POD,
            " and ".join(edit.text for edit in way),
            tuple(map(in_json, way)),
            opens=len(rows),
            tried=self._snapshot.node_count,
            nodes=len(rows),
            names=self._names(rows),
            frees=max(self.placed(changed) - self._placed_anyway(self._mine), 0),
            of=len(changed),
            patch=self._patch(way, pod),
        )

    def _patch(self, way: Sequence[PodEdit], pod: Pod) -> Manifest:
        """Return the edits as a merge patch, of the full manifest if it is known."""
        stored = self._question.stored
        found = None if stored is None else edits.patch_of(stored, way)
        return edits.patch(self._info.pod, pod) if found is None else found

    def _on_nodes(self, steps: Sequence[NodeEdit], rows: Rows) -> Remedy | None:
        snapshot = self._snapshot
        chosen = rows[:MOST_TRIED]
        before = [snapshot.node(row) for row in chosen.tolist()]
        after = [changed(node, steps) for node in before]
        _set(snapshot, after)
        try:
            opened = self._feasible(self._question.pod, chosen)
            if not len(opened):
                return None
            _set(snapshot, before)
            _set(snapshot, [after[chosen.tolist().index(int(opened[0]))]])
            helped = self._helped(chosen)
            frees = self.placed(helped, chosen)
        finally:
            _set(snapshot, before)
        if frees:
            frees = max(frees - self._placed_anyway(helped), 0)
        count = len(rows) if len(opened) == len(chosen) else len(opened)
        names = self._names(opened)
        first = [one.metadata.name for one in before].index(names[0])
        return Remedy(
            _ON_NODE,
            f"{' and '.join(step.text for step in steps)} {_any_of(count, names)}",
            tuple(map(in_json, steps)),
            opens=len(opened),
            tried=len(chosen),
            nodes=count,
            names=names,
            frees=frees,
            of=len(self._waiting),
            patch=edits.patch(before[first], after[first]),
        )

    def _helped(self, changed: Rows) -> list[PodToPlace]:
        """Return the waiting pods that fit a changed node, or that have pod affinity.

        The others do not fit: the unchanged nodes had no room for them.
        """
        takes: dict[int, bool] = {}
        for pod in self._waiting:
            info = pod.info
            if info.index not in takes:
                takes[info.index] = bool(info.affinity) or bool(len(self._feasible(pod, changed)))
        return [pod for pod in self._waiting if takes[pod.info.index]]

    def _placed_anyway(self, pods: Sequence[PodToPlace]) -> int:
        """Return how many of the pods fit without any change."""
        open_now = [pod for pod in pods if self._finds_room(pod)]
        return self.placed(open_now) if open_now else 0

    def _finds_room(self, pod: PodToPlace) -> bool:
        """Return whether a pod may fit without any change; cached by class.

        The first call for a class must happen while no node is changed.
        """
        finds_room = self._found_room.get(pod.info.index)
        if finds_room is None:
            finds_room = bool(pod.info.affinity) or bool(len(self._feasible(pod)))
            self._found_room[pod.info.index] = finds_room
        return finds_room

    def _interned(self, pod: Pod) -> PodInfo | None:
        try:
            return self._snapshot.intern(from_pod(pod))
        except QuantityError:
            return None

    def _feasible(self, pod: PodToPlace, among: Rows | None = None) -> Rows:
        """Return the rows that pass the filters for a pod."""
        framework, snapshot = self._framework, self._snapshot
        state = new_state(pod, Options(), 0)
        begun = framework.pre_filter(state, pod.info, snapshot)
        if not begun.status.ok:
            return begun.rows[:0]
        rows = begun.rows if among is None else among[np.isin(among, begun.rows)]
        if not len(rows):
            return rows
        return framework.filter(state, pod.info, snapshot, rows).feasible

    def placed(self, pods: Sequence[PodToPlace], changed: Rows | None = None) -> int:
        """Return how many of the pods fit, placed one after the other; restores the snapshot.

        ``changed``: the rows that the trial changed. Pods that do not fit without a change can fit
        only there.
        """
        keys: list[Hashable] = []
        try:
            if all(self._stays_refused(pod) for pod in pods):
                self._place(pods, changed, keys)
            else:
                found = schedule_batch(
                    self._snapshot, self._framework, pods, _WITHOUT_VICTIMS, decider=self._decider
                )
                keys += (key for key, _ in found.placed())
            return len(keys)
        finally:
            for key in keys:
                self._snapshot.forget(key)

    def _stays_refused(self, pod: PodToPlace) -> bool:
        """Return whether a pod that fits nowhere cannot fit after more pods are placed."""
        info = pod.info
        is_plain = not (info.affinity or info.pod.spec.topology_spread_constraints)
        return self._only_fills and is_plain and not pod.nominated_node

    def _place(
        self, pods: Sequence[PodToPlace], changed: Rows | None, keys: list[Hashable]
    ) -> None:
        """Place pods as ``schedule_batch`` does, and add the keys of the placed ones to ``keys``.

        An unplaced pod gets no reason, and later pods of its class are not tried: no pod leaves, so
        they would be refused as well.
        """
        remaining = list(pods)
        while remaining:
            self._question.go_on()
            run = self._decider.decide_run(remaining, 0, _WITHOUT_VICTIMS)
            keys += (pod.key for pod in remaining[: len(run)])
            remaining = self._not_full(remaining[len(run) :], changed)
            if not remaining:
                return
            pod = remaining[0]
            if len(self._feasible(pod, self._open_to(pod, changed))):
                if run:
                    continue  # the compiled loop decides only that many pods in one call
                decision = schedule_pod(self._snapshot, self._framework, pod, _WITHOUT_VICTIMS)
                if decision.row >= 0:
                    self._snapshot.assume(pod.key, pod.info, decision.row)
                    keys.append(pod.key)
                    remaining = remaining[1:]
                    continue
            remaining = [one for one in remaining if one.info is not pod.info]

    def _open_to(self, pod: PodToPlace, changed: Rows | None) -> Rows | None:
        """Return the nodes on which a pod may fit, ``None`` for all; see ``placed``."""
        return None if changed is None or self._finds_room(pod) else changed

    def _not_full(self, pods: Sequence[PodToPlace], changed: Rows | None) -> list[PodToPlace]:
        """Return the pods without those that request more than any node has left.

        This is much faster than the filters, and after some placements it excludes most pods.
        """
        fits: dict[int, bool] = {}
        for pod in pods:
            if pod.info.index not in fits:
                fits[pod.info.index] = self._has_left(pod, self._open_to(pod, changed))
        return [pod for pod in pods if fits[pod.info.index]]

    def _has_left(self, pod: PodToPlace, among: Rows | None) -> bool:
        snapshot = self._snapshot
        rows = snapshot.rows() if among is None else among
        has: Mask = np.ones(len(rows), np.bool_)
        for plugin in self._comparing:
            has &= snapshot.pod_count[rows] < snapshot.allowed_pods[rows]
            for amount, column in plugin.request_checks(pod.info, snapshot):
                free = snapshot.allocatable[rows, column] - snapshot.requested[rows, column]
                has &= ~short(amount, free, 0)
        return bool(has.any())

    def _names(self, rows: Rows) -> tuple[str, ...]:
        names = sorted(self._snapshot.node_name(row) for row in rows.tolist())
        return tuple(names[:_MOST_NAMED])


def _some(question: Question) -> list[PodToPlace]:
    """Return the waiting pods to try, in order, of at most ``MOST_CLASSES`` classes."""
    chosen = {question.pod.info.index}
    for pod in question.waiting:
        if len(chosen) < MOST_CLASSES:
            chosen.add(pod.info.index)
    return [pod for pod in question.waiting if pod.info.index in chosen][:MOST_WAITING]


def _objects_to_make(
    makers: Sequence[Maker], snapshot: Snapshot, info: PodInfo, node: Node | None
) -> tuple[ObjectsToMake, ...]:
    """Return the objects to create; none if one of ``makers`` returns ``None``."""
    found = [one(snapshot, info, node) for one in makers]
    return () if None in found else tuple(filter(None, found))


def _ways(choices: Sequence[tuple[tuple[E, ...], ...]]) -> Iterator[tuple[E, ...]]:
    """Yield edits that meet all needs; of several needs only the first alternative of each."""
    if not all(choices):
        return
    if len(choices) == 1:
        yield from choices[0]
        return
    yield tuple(itertools.chain.from_iterable(ways[0] for ways in choices))


def changed(node: Node, steps: Sequence[NodeEdit]) -> Node:
    """Return a node with the edits applied, in order."""
    for step in steps:
        node = step.change(node)
    return node


def _set(snapshot: Snapshot, nodes: Sequence[Node]) -> None:
    for node in nodes:
        snapshot.set_node(node)


def in_json(edit: Edit) -> Manifest:
    """Return an edit as it appears in answers."""
    return {"action": edit.action, **edit.about}


def _any_of(count: int, names: Sequence[str]) -> str:
    return f"the node {names[0]}" if count == 1 else f"any of {count} nodes"
