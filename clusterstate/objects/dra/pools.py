"""Pools of devices that a node has access to, put together from their slices.

Rules: k8s.io/dynamic-resource-allocation ``structured/internal/incubating/pools_incubating.go``,
v1.36. A pool is *incomplete* while slices of its generation are missing, and *invalid* when two of
its devices have one name or counters do not exist. Pools and slices come in the order of their
names, pools with binding conditions last.
"""

from collections.abc import Iterable, Sequence

import msgspec

from clusterstate.objects.dra.slices import NodeView, SliceView
from clusterstate.objects.values.quantity import Quantity

PoolId = tuple[str, str]
"""Driver and name of a pool."""


class Pool(msgspec.Struct):
    """A pool as one node sees it; ``others``: slices for other nodes, which use its counters."""

    id: PoolId
    incomplete: bool = False
    invalid: str = ""
    slices: Sequence[SliceView] = ()
    others: Sequence[SliceView] = ()
    counter_sets: dict[str, dict[str, Quantity]] = {}

    def __str__(self) -> str:
        return "/".join(self.id)


def gather_pools(
    slices: Sequence[SliceView],
    everything: Sequence[SliceView],
    node: NodeView,
    *,
    partitionable: bool,
) -> list[Pool]:
    """Return the pools that the node has access to.

    ``slices`` are those that name the node or none, ``everything`` is all there are.
    """
    usable = [
        one for one in slices
        if partitionable or (one.by_device is None and not one.counter_sets)
    ]  # fmt: skip
    found: dict[PoolId, list[SliceView]] = {}
    for one in sorted(usable, key=lambda s: s.name):
        if _is_for(one, node):
            _add(found, one)
    pools = []
    for pool_id in sorted(found):
        pool = _pool(pool_id, found[pool_id], everything, partitionable=partitionable)
        if pool is not None:
            pools.append(pool)
    return sorted(pools, key=lambda p: any(s.has_conditions for s in p.slices))


def _is_for(one: SliceView, node: NodeView) -> bool:
    """Return whether a slice matters on a node; counters matter wherever their pool does."""
    if one.counter_sets:
        return True
    if one.place.is_set:
        return one.place.matches(node)
    return bool(one.by_device) and any(d.place.matches(node) for d in one.devices)


def _add(found: dict[PoolId, list[SliceView]], one: SliceView) -> None:
    """Add a slice to its pool; only slices of the pool's newest generation are kept."""
    newest = found.setdefault((one.driver, one.pool), [])
    if newest and one.generation > newest[0].generation:
        newest.clear()
    if not newest or one.generation == newest[0].generation:
        newest.append(one)


def _pool(
    pool_id: PoolId,
    slices: list[SliceView],
    everything: Sequence[SliceView],
    *,
    partitionable: bool,
) -> Pool | None:
    """Return one pool, ``None`` if a newer generation is on its way."""
    generation, count = slices[0].generation, slices[0].count
    of_pool: list[SliceView] = slices
    if len(slices) != count:
        same = [s for s in everything if (s.driver, s.pool) == pool_id]
        if any(s.generation > generation for s in same):
            return None
        of_pool = [s for s in same if s.generation == generation]
        if len(of_pool) != count:
            return Pool(pool_id, incomplete=True)
    with_devices = [s for s in slices if not s.counter_sets]
    if name := _twice(d.manifest["name"] for s in with_devices for d in s.devices):
        return Pool(pool_id, invalid=f"duplicate device name {name}")
    if not partitionable:
        return Pool(pool_id, slices=with_devices)
    sets: dict[str, dict[str, Quantity]] = {}
    for one in slices:
        for name, counters in one.counter_sets:
            if name in sets:
                return Pool(pool_id, invalid=f"duplicate counter set name {name}")
            sets[name] = counters
    others = [s for s in of_pool if s not in slices]
    if wrong := _missing_counter(sets, [*slices, *others]):
        return Pool(pool_id, invalid=wrong)
    return Pool(pool_id, slices=with_devices, others=others, counter_sets=sets)


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _missing_counter(sets: dict[str, dict[str, Quantity]], slices: Sequence[SliceView]) -> str:
    for device in (device for one in slices for device in one.devices):
        for name, counters in device.consumes:
            if name not in sets:
                return f"counter set {name} not found"
            for counter in counters:
                if counter not in sets[name]:
                    return f"counter {counter} not found in counter set {name}"
    return ""
