"""Finds what a group of waiting pods lacks, and how many more gangs of one size fit."""

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
from scheduling.engine.groups import fitting_by_domain, schedule_group, waits_for_nodes
from scheduling.engine.reference.cycle import Options, PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.framework import pod_groups as rules
from scheduling.framework.arrays import Int64
from scheduling.framework.node_table import Rows
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo

_MOST_DOMAINS: Final = 20


class Shortfall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a group lacks; ``message``: the same as a sentence.

    ``placed`` pods are on nodes, ``waiting`` ones are not, ``missing`` ones do not exist yet.
    ``domains``: how many of the waiting pods fit in each topology domain, the most first; without a
    constraint there is one domain without a name. ``nodes``: how many empty nodes, like the one
    with room for most of these pods, would suffice for the rest; 0: unknown.
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
    snapshot: Snapshot,
    framework: Framework,
    key: GroupKey,
    pods: Sequence[PodToPlace],
    now: float | None = None,
) -> Shortfall | None:
    """Return what the group of waiting ``pods`` lacks; ``None`` if it can be placed.

    The pods are decided in order; a search might place more of them if they differ. ``snapshot`` is
    restored. ``now``: seconds since the epoch, to know which nodes are starting.
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
    if now is not None and (waits := waits_for_nodes(snapshot, framework, key, pods, now)):
        message += f"; preemption: {waits.message}"
    return Shortfall(
        name=key[1], min_count=needed, placed=placed, waiting=len(pods), domains=dict(domains),
        nodes=nodes, message=message,
    )  # fmt: skip


def _nodes_for(snapshot: Snapshot, pods: Sequence[PodToPlace], lacking: int) -> int:
    """Return how many empty nodes would take ``lacking`` more pods; 0 if no node takes one.

    Counted for the cluster's node that takes the most pods, by amounts alone.
    """
    each = int(room_on_empty(snapshot, snapshot.rows(), pods, most=lacking).max(initial=0))
    return -(-lacking // each) if each > 0 else 0


def room_on_empty(
    snapshot: Snapshot, rows: Rows, pods: Sequence[PodToPlace], *, most: int
) -> Int64:
    """Return how many of the pods each node would take if it were empty, int64 (rows,).

    Each pod counts with the largest request among them; at most ``most``.
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


def domains_of(snapshot: Snapshot, group: PodGroup, rows: Rows) -> list[Rows]:
    """Return the rows of each domain that the group may be in, most rows first."""
    found: dict[tuple[int, ...], list[int]] = {}
    columns = [snapshot.label_column(key).ids for key in group.topology_keys]
    for row in rows.tolist():
        domain = tuple(int(ids[row]) for ids in columns)
        if -1 not in domain:
            found.setdefault(domain, []).append(row)
    ordered = sorted(found.values(), key=lambda one: (-len(one), one))
    return [np.array(one, np.intp) for one in ordered]


def gang_of(key: GroupKey, size: int, topology_key: str) -> PodGroup:
    """Return a PodGroup with ``minCount`` ``size``, in one domain of ``topology_key`` if given."""
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
    """Return how many gangs of equal pods fit, placed one by one; they stay in the snapshot.

    The answer has ``fits``, ``limited`` (whether the limit was reached), ``nodes`` (pods by node),
    and why the next gang does not fit.
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
