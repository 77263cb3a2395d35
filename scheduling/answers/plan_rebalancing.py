"""Turns a plan's ``rebalance`` into a drain of nodes whose pods all fit elsewhere.

With ``roomFor`` it becomes the eviction of the fewest pods that make room for a waiting pod.
``simulation.making_room`` proposes these pods, and a plan checks the proposal.

The packer proposes nodes to empty (``simulation.packing``). Its placement is not the scheduler's,
so the drain of these nodes is predicted. A node is left out if one of its pods would not fit
elsewhere, or would not be evicted; then the rest is predicted again, until no such node is left.
After that the other nodes are tried one by one, the emptiest first, up to a limit of predictions.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Final

import msgspec

from clusterstate.objects.values.errors import NOT_FOUND, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods.waiting import waiting
from scheduling.answers.live import LiveBase, LiveWorld
from scheduling.answers.plan_leavers import GROUPED
from scheduling.answers.present import Present
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.runtime import Framework
from scheduling.plugins.catalogue import build_framework
from scheduling.simulation import making_room, packing, plan_document
from scheduling.simulation.document import GROUP
from scheduling.simulation.foresight import NEVER
from scheduling.simulation.packing import Prices
from scheduling.simulation.plan_document import PlanChange, PlanDocument

_TRIES: Final = 12
"""The most plans that are predicted for one answer."""
_WORTH: Final = 1000.0
"""How many moves of pods one emptied node is worth."""


def settled(
    world: LiveWorld, plan: PlanDocument, foretold: Callable[[PlanDocument], Manifest]
) -> PlanDocument:
    """Return the plan with a drain or evictions in place of ``rebalance``, or without changes.

    Args:
        world: the live cluster.
        plan: ``rebalance`` is its only change.
        foretold: predicts a plan and returns its status.

    Raises:
        Invalid: the pod in ``roomFor`` does not wait.
        ServiceUnavailable: the solver is not installed.
    """
    (change,) = plan.changes
    if change.pods:
        return _making_room(world, plan, change, foretold)
    snapshot = world.snapshot()
    names = set(_eligible(snapshot, change))
    without = foretold(_draining(plan, change, []))
    tries = 0

    def refused(nodes: list[str]) -> dict[str, int]:
        nonlocal tries
        tries += 1
        return _refused(foretold(_draining(plan, change, nodes)), without, nodes)

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


def _making_room(
    world: LiveWorld,
    moving_plan: PlanDocument,
    change: PlanChange,
    foretold: Callable[[PlanDocument], Manifest],
) -> PlanDocument:
    """Return the plan that evicts the pods that must move so that the waiting pod fits."""
    ((namespace, name),) = change.pods
    title = f"{namespace}/{name}"
    present = Present(world)
    row = next((one for one in waiting(namespace) if one.name == name), None)
    if row is None or present.framework(row.scheduler_name) is None:
        error = FieldError(
            NOT_FOUND, f"{change.path}.roomFor", title, "there is no pending pod of this name"
        )
        raise Invalid(plan_document.KIND, "", [error], GROUP)
    base = LiveBase(world, present.snapshot)
    ways = making_room.ways(
        present.snapshot, present.frameworks(), present.to_place(row), world.go_on
    )
    without = foretold(_draining(moving_plan, change, []))
    for keys in ways[:_TRIES]:
        names = base.pod_names(keys)
        parts = (names[key].partition("/") for key in keys if key in names)
        pods = tuple((namespace, name) for namespace, _, name in parts)
        moving = PlanChange(what=plan_document.EVICT, path=change.path, pods=pods)
        moving_plan = msgspec.structs.replace(moving_plan, changes=(moving,))
        status = foretold(moving_plan)
        is_placed = any(one["pod"] == title for one in status["placed"])
        if is_placed and not _refused(status, without, [""]):
            return moving_plan
    return _draining(moving_plan, change, [])


def _frameworks(base: LiveBase) -> dict[str, Framework]:
    return {one.scheduler_name: build_framework(one) for one in base.configuration().profiles}


def _proposed(world: LiveWorld, change: PlanChange, names: set[str]) -> list[str]:
    """Return the names of nodes that the packer would empty, those with the fewest pods first."""
    snapshot = world.snapshot()
    prices = None
    if change.selector is not None:
        prices = Prices(nodes=((change.selector, _WORTH),), move=1.0)
    pods: dict[Hashable, int] = {
        snapshot.node_name(row): int(snapshot.pod_count[row]) for row in snapshot.rows().tolist()
    }
    found = packing.pack(
        snapshot,
        [],
        frameworks=_frameworks(LiveBase(world, snapshot)),
        move=packing.TO_EMPTY,
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


def _refused(status: Manifest, without: Manifest, nodes: list[str]) -> dict[str, int]:
    """Return, by node, how many pods speak against its drain.

    A pod on another node that would be preempted, would leave with its group, or would not get the
    node that it gets without the drain, counts against all of them.

    Args:
        status: the prediction with the drain.
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
        or one["cause"] == GROUPED  # not by a step, so no room is reserved
    )
    against.update(
        one["nodeName"]
        for one in status["staying"]
        if "DaemonSet" not in one["message"] and "static pod" not in one["message"]
    )
    if against and not any(name in against for name in nodes):
        return dict.fromkeys(nodes, 1)
    return against
