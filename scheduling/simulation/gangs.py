"""What a group of waiting pods lacks, and how many more gangs of a shape fit."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from clusterstate.objects.values.meta import Manifest, ObjectMeta
from clusterstate.objects.values.pod_group import (
    GangSchedulingPolicy,
    GroupKey,
    PodGroup,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    TopologyConstraint,
)
from scheduling.engine.deciding import Decider
from scheduling.engine.groups import fitting_by_domain, schedule_group
from scheduling.engine.reference.cycle import Options, PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.framework import pod_groups as rules
from scheduling.framework.arrays import Int64
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo

_MOST_DOMAINS: Final = 20


class Shortfall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a group lacks; ``message`` says it in a sentence.

    ``placed`` pods are on nodes, ``waiting`` are not, ``missing`` are not there yet and have to
    come. ``domains``: how many of the waiting pods have a place in each domain of the topology, the
    fullest answer first; without a constraint one without a name. ``nodes``: how many free nodes,
    of the kind that takes the most of these pods, would make up for the rest; 0: not known.
    """

    name: str
    min_count: int
    placed: int
    waiting: int
    missing: int = 0
    domains: dict[str, int] = {}
    nodes: int = 0
    message: str


def shortfall(
    snapshot: Snapshot, framework: Framework, key: GroupKey, pods: Sequence[PodToPlace]
) -> Shortfall | None:
    """Return what a group lacks whose ``pods`` wait; ``None``: it could be placed as it is.

    The pods are decided in order, as at first: a search may place more of unlike ones. ``snapshot``
    has the same state afterwards.
    """
    group = snapshot.groups.find(key)
    if group is None:
        message = rules.pre_enqueue(key, None, 0).message
        return Shortfall(name=key[1], min_count=0, placed=0, waiting=len(pods), message=message)
    placed, needed = len(snapshot.members_of(key)), group.min_count
    missing = max(needed - placed - len(pods), 0)
    if missing:
        message = f"{missing} more pods must be created: {placed + len(pods)} of {needed} exist"
        return Shortfall(
            name=key[1], min_count=needed, placed=placed, waiting=len(pods), missing=missing,
            message=message,
        )  # fmt: skip
    found = fitting_by_domain(snapshot, framework, key, pods)
    domains = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:_MOST_DOMAINS]
    domain, best = domains[0] if domains else ("", 0)
    lacking = needed - placed - best
    if lacking <= 0:
        return None
    nodes = _nodes_for(snapshot, pods, lacking)
    where = f" in one {group.topology_keys[0]}" if group.topology_keys else ""
    message = f"{placed + best} of {needed} needed pods have a place{where}"
    if domain:
        message += f", in {domain}"
    message += f": room for {lacking} more is lacking"
    if nodes:
        message += f", as on {nodes} free {'node' if nodes == 1 else 'nodes'}"
    return Shortfall(
        name=key[1], min_count=needed, placed=placed, waiting=len(pods), domains=dict(domains),
        nodes=nodes, message=message,
    )  # fmt: skip


def _nodes_for(snapshot: Snapshot, pods: Sequence[PodToPlace], lacking: int) -> int:
    """Return how many empty nodes would take this many more pods, by amounts; 0: no node takes one.

    On the nodes of the cluster that take the most.
    """
    each = int(room_on_empty(snapshot, snapshot.rows(), pods, most=lacking).max(initial=0))
    return -(-lacking // each) if each > 0 else 0


def room_on_empty(
    snapshot: Snapshot, rows: Rows, pods: Sequence[PodToPlace], *, most: int
) -> Int64:
    """Return how many of the pods nodes would take if they were empty, int64 (rows,).

    By the largest amounts that a pod asks for; ``most`` at most.
    """
    largest: dict[int, int] = {}
    for pod in pods:
        for at, amount in pod.info.amounts:
            largest[at] = max(largest.get(at, 0), amount)
    room = np.full(len(rows), most, np.int64)
    for at, amount in largest.items():
        if amount > 0:
            room = np.minimum(room, snapshot.allocatable[rows][:, at] // amount)
    return room


def gang_of(key: GroupKey, size: int, topology_key: str) -> PodGroup:
    """Return a PodGroup that needs this many pods, in one domain of the label if one is named."""
    constraint = (TopologyConstraint(key=topology_key),) if topology_key else ()
    spec = PodGroupSpec(
        scheduling_policy=PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=size)),
        scheduling_constraints=PodGroupSchedulingConstraints(topology=constraint),
    )
    return PodGroup(metadata=ObjectMeta(namespace=key[0], name=key[1]), spec=spec)


def gangs_that_fit(
    snapshot: Snapshot,
    framework: Framework,
    info: PodInfo,
    *,
    size: int,
    topology_key: str,
    limit: int,
    seed: int,
    go_on: Callable[[], None],
) -> Manifest:
    """Return how many gangs of like pods fit, one after the other; they stay in the snapshot.

    ``fits``, whether counting was ``limited``, the pods on each of the ``nodes``, and why the next
    gang does not fit.
    """
    decider = Decider(snapshot, framework)
    options = Options(seed=seed, tie_break="first", preempt=False)
    counts: dict[str, int] = {}
    why: dict[str, Any] = {"message": "", "blockers": []}
    fits = 0
    while fits < limit:
        go_on()
        key = ("", f"gang-{fits}")
        snapshot.groups.set(gang_of(key, size, topology_key))
        pods = [PodToPlace((*key, n), info) for n in range(size)]
        found = schedule_group(snapshot, framework, key, pods, options, decider=decider)
        if not found.placed:
            why["message"] = found.status.message
            break
        for one in found.decisions:
            counts[one.node_name] = counts.get(one.node_name, 0) + 1
        fits += 1
    return {"fits": fits, "limited": fits >= limit, "nodes": dict(sorted(counts.items())), **why}
