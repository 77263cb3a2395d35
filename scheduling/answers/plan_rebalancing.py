"""Turns a plan's ``rebalance`` into a drain of nodes whose pods all fit elsewhere, or evictions.

With ``roomFor`` and ``roomForGroup`` it becomes the eviction of the cheapest pods that make room
for a waiting pod or group (``simulation.making_room``). To balance zones and to mend soft rules it
becomes evictions with the nodes of the replacements (``simulation.improving``). A plan checks each
proposal.

The packer proposes nodes to empty (``simulation.packing``). Its placement is not the scheduler's,
so the drain of these nodes is predicted. A node is left out if one of its pods would not fit
elsewhere, or would not be evicted; then the rest is predicted again, until no such node is left.
After that the other nodes are tried one by one, the emptiest first, up to a limit of predictions.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

import msgspec

from clusterstate.objects.values.errors import NOT_FOUND, FieldError, Invalid
from clusterstate.objects.values.labels import parse_selector
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods.waiting import waiting
from scheduling.answers.live import LiveBase, LiveWorld
from scheduling.answers.present import Present
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.runtime import Framework
from scheduling.framework.types import group_key
from scheduling.packing.facts import Seeker
from scheduling.plugins.catalogue import build_framework
from scheduling.simulation import improving, making_room, packing, plan_document
from scheduling.simulation.document import GROUP
from scheduling.simulation.foresight import NEVER
from scheduling.simulation.improving import TERMS
from scheduling.simulation.moves import TO_EMPTY
from scheduling.simulation.plan_document import PlanChange, PlanDocument

_TRIES: Final = 12
"""The most plans that are predicted for one answer."""
_WORTH: Final = 1000.0
"""How many moves of pods one emptied node is worth."""
Foretold = Callable[[PlanDocument], tuple[Manifest, Mapping[str, str]]]
"""Predicts a plan; returns its status, and the pods for whose replacement no place can be held."""


def settled(world: LiveWorld, plan: PlanDocument, foretold: Foretold) -> PlanDocument:
    """Return the plan with a drain or evictions in place of ``rebalance``, or without changes.

    Args:
        world: the live cluster.
        plan: ``rebalance`` is its only change.
        foretold: predicts a plan.

    Raises:
        Invalid: the pod or the group for which room is to be made does not wait.
        ServiceUnavailable: the solver is not installed.
    """
    (change,) = plan.changes
    if change.makes_room:
        return _making_room(world, plan, change, foretold)
    if change.objective in TERMS:
        return _improving(world, plan, change, foretold)
    snapshot = world.snapshot()
    names = set(_eligible(snapshot, change))
    without, _ = foretold(_draining(plan, change, []))
    tries = 0

    def refused(nodes: list[str]) -> dict[str, int]:
        nonlocal tries
        tries += 1
        return _refused(*foretold(_draining(plan, change, nodes)), without, nodes)

    nodes = _proposed(world, change, names)
    while nodes and (against := refused(nodes)):
        most = max(against.values())
        nodes = [name for name in nodes if against.get(name, 0) < most and tries < _TRIES]
    for name in _emptiest(snapshot, names - set(nodes)):
        if tries >= _TRIES or len(nodes) >= change.most:
            break
        if not refused([*nodes, name]):
            nodes.append(name)
    return _draining(plan, change, nodes)


def _improving(
    world: LiveWorld, plan: PlanDocument, change: PlanChange, foretold: Foretold
) -> PlanDocument:
    """Return the plan that moves pods to the nodes that the objective wants for them.

    Pods that cannot move as told stay, and the search begins anew without them.
    """
    stay: frozenset[Hashable] = frozenset()
    for _ in range(_TRIES):
        base = LiveBase(world, snapshot := world.snapshot())

        def may_move(
            pod: Seeker, stay: frozenset[Hashable] = stay, snapshot: Snapshot = snapshot
        ) -> bool:
            return pod.key not in stay and _is_chosen(snapshot, change, pod.node_name)

        found = improving.improve(
            snapshot,
            _frameworks(base),
            change.objective,
            prices=change.prices,
            topology_key=change.topology_key,
            most=change.most,
            may_move=may_move,
            go_on=world.go_on,
        )
        names = base.pod_names([move.key for move in found.moves])
        moves = {names[move.key]: move for move in found.moves if move.key in names}
        moving = _moving(plan, change, {title: move.target for title, move in moves.items()})
        if not moves:
            break
        status, without_place = foretold(moving)
        gone = {one["pod"] for one in status["leaving"] if "blockedBy" not in one}
        refused = [title for title in moves if title in without_place or title not in gone]
        if not refused:
            return moving
        stay |= {moves[title].key for title in refused}
    return _moving(plan, change, {})


def _is_chosen(snapshot: Snapshot, change: PlanChange, node: str) -> bool:
    row = snapshot.row_of(node)
    if row is None or change.selector is None:
        return row is not None
    return change.selector.matches(snapshot.node(row).metadata.labels)


def _moving(plan: PlanDocument, change: PlanChange, targets: Mapping[str, str]) -> PlanDocument:
    """Return the plan that evicts pods, whose replacements go to the given nodes if any."""
    pods = tuple((title.partition("/")[0], title.partition("/")[2]) for title in targets)
    moving = PlanChange(
        what=plan_document.EVICT, path=change.path, pods=pods,
        targets={title: node for title, node in targets.items() if node},
    )  # fmt: skip
    return msgspec.structs.replace(plan, changes=(moving,) if pods else ())


def _making_room(
    world: LiveWorld, plan: PlanDocument, change: PlanChange, foretold: Foretold
) -> PlanDocument:
    """Return the plan that evicts the pods that must move so that the pod or group fits."""
    ((namespace, name),) = change.pods
    title = f"{namespace}/{name}"
    present = Present(world)
    frameworks = present.frameworks()
    waits = [one for one in waiting(namespace) if one.scheduler_name in frameworks]
    pods = [(f"{one.namespace}/{one.name}", present.to_place(one)) for one in waits
            if change.makes_room != "Pod" or one.name == name]  # fmt: skip
    group = None
    needed = 1
    if change.makes_room == "PodGroup":
        pods = [one for one in pods if group_key(one[1].info.pod) == (namespace, name)]
        group = present.snapshot.groups.find((namespace, name))
        if group is not None:
            needed = max(group.min_count - len(present.snapshot.members_of(group.key)), 1)
    if not pods or (group is None) != (change.makes_room == "Pod"):
        field, what = ("roomFor", "pod") if change.makes_room == "Pod" else (
            "roomForGroup", "PodGroup with waiting pods",
        )  # fmt: skip
        kind = "pending pod" if what == "pod" else what
        error = FieldError(
            NOT_FOUND, f"{change.path}.{field}", title, f"there is no {kind} of this name"
        )
        raise Invalid(plan_document.KIND, "", [error], GROUP)
    base = LiveBase(world, present.snapshot)
    snapshot, prices = present.snapshot, change.prices
    if group is None:
        ways = making_room.ways(snapshot, frameworks, pods[0][1], world.go_on, prices=prices)
    else:
        ways = making_room.ways_for_group(
            snapshot, frameworks, group, [pod for _, pod in pods], world.go_on, prices=prices
        )
    without, _ = foretold(_draining(plan, change, []))
    titles = {one for one, _ in pods}
    for keys in ways[:_TRIES]:
        names = base.pod_names(keys)
        moving = _moving(plan, change, {names[key]: "" for key in keys if key in names})
        status, without_place = foretold(moving)
        placed = sum(one["pod"] in titles for one in status["placed"])
        if placed >= needed and not _refused(status, without_place, without, [""]):
            return moving
    return _draining(plan, change, [])


def _frameworks(base: LiveBase) -> dict[str, Framework]:
    return {one.scheduler_name: build_framework(one) for one in base.configuration().profiles}


def _proposed(world: LiveWorld, change: PlanChange, names: set[str]) -> list[str]:
    """Return the names of nodes that the packer would empty, those with the fewest pods first."""
    snapshot = world.snapshot()
    selector = change.selector if change.selector is not None else parse_selector("")
    prices = msgspec.structs.replace(change.prices, nodes=((selector, _WORTH),))
    pods: dict[Hashable, int] = {
        snapshot.node_name(row): int(snapshot.pod_count[row]) for row in snapshot.rows().tolist()
    }
    found = packing.pack(
        snapshot,
        [],
        frameworks=_frameworks(LiveBase(world, snapshot)),
        move=TO_EMPTY,
        prices=prices,
        go_on=world.go_on,
    )
    emptied = [name for name in found.emptied if name in names]
    return sorted(emptied, key=lambda name: (pods[name], name))[: change.most]


def _eligible(snapshot: Snapshot, change: PlanChange) -> Iterable[str]:
    """Yield the nodes that may be emptied: not cordoned, matching the selector, with a pod."""
    for row in snapshot.rows().tolist():
        labels = snapshot.node(row).metadata.labels
        if snapshot.unschedulable[row] or not snapshot.pod_count[row]:
            continue
        if change.selector is None or change.selector.matches(labels):
            yield snapshot.node_name(row)


def _emptiest(snapshot: Snapshot, names: set[str]) -> list[str]:
    rows = {name: snapshot.row_of(name) for name in names}
    return sorted(names, key=lambda name: (int(snapshot.pod_count[rows[name]]), name))


def _draining(plan: PlanDocument, change: PlanChange, nodes: list[str]) -> PlanDocument:
    drain = PlanChange(what=plan_document.DRAIN, path=change.path, nodes=tuple(nodes))
    return msgspec.structs.replace(plan, changes=(drain,) if nodes else ())


def _refused(
    status: Manifest, without_place: Mapping[str, str], without: Manifest, nodes: list[str]
) -> dict[str, int]:
    """Return, by node, how many pods speak against its drain.

    A pod on another node that would be preempted, would leave with its group, or would not get the
    node that it gets without the drain, counts against all of them.

    Args:
        status: the prediction with the drain.
        without_place: the pods for whose replacement no place can be held.
        without: the prediction without it.
        nodes: the drained nodes.
    """
    places = {one["pod"] for one in without["placed"]} - {one["pod"] for one in status["placed"]}
    anyway = {one["pod"] for one in without["leaving"]}
    leaving = [one for one in status["leaving"] if one["pod"] not in anyway]
    if places or any("preemptedBy" in one for one in leaving):
        return dict.fromkeys(nodes, 1)
    stuck = {one["pod"] for one in status["stuck"]}
    against = Counter(
        one["nodeName"]
        for one in leaving
        if one["pod"] in stuck
        or "blockedBy" in one
        or one["replaced"] == NEVER
        or one["pod"] in without_place
    )
    against.update(
        one["nodeName"]
        for one in status["staying"]
        if "DaemonSet" not in one["message"] and "static pod" not in one["message"]
    )
    if against and not any(name in against for name in nodes):
        return dict.fromkeys(nodes, 1)
    return against
