"""Which claims hold devices, and which pools lack slices: for questions about a cluster.

Everything is read from manifests; no selector is evaluated. Rule of pools: structured allocator
``GatherPools``, v1.36.
"""

from collections.abc import Iterable, Mapping, Sequence

from clusterstate.objects.dra.allocated import device_id, results
from clusterstate.objects.dra.resourceclaim import reserved_for
from clusterstate.objects.dra.slices import DeviceId
from clusterstate.objects.values.meta import Manifest

PoolId = tuple[str, str]
Holder = tuple[str, str, str]
"""Namespace, claim, and the pod that uses it; empty for none."""


def holders(claims: Iterable[Manifest]) -> dict[DeviceId, list[Holder]]:
    """Return the claims that hold each device, or a share of it."""
    found: dict[DeviceId, list[Holder]] = {}
    for claim in claims:
        meta = claim["metadata"]
        pods = [one["name"] for one in reserved_for(claim)] or [""]
        for result in results(claim):
            mine = [(meta.get("namespace", ""), meta["name"], pod) for pod in pods]
            found.setdefault(device_id(result), []).extend(mine)
    return found


def by_pool(slices: Iterable[Manifest]) -> dict[PoolId, list[Manifest]]:
    """Return the slices of each pool's newest generation; older ones are not allocated."""
    found: dict[PoolId, list[Manifest]] = {}
    for one in slices:
        parts = found.setdefault((one["spec"]["driver"], one["spec"]["pool"]["name"]), [])
        if parts and _generation(one) > _generation(parts[0]):
            parts.clear()
        if not parts or _generation(one) == _generation(parts[0]):
            parts.append(one)
    return found


def incomplete_pools(pools: Mapping[PoolId, Sequence[Manifest]]) -> dict[PoolId, str]:
    """Return the pools (``by_pool``) whose slices are not all there: ``1 of 2 slices``."""
    return {
        pool: f"{len(parts)} of {count} slices"
        for pool, parts in pools.items()
        if len(parts) < (count := parts[0]["spec"]["pool"].get("resourceSliceCount") or 0)
    }


def _generation(one: Manifest) -> int:
    generation: int = one["spec"]["pool"].get("generation") or 0
    return generation
