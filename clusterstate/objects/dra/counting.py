"""Claims with countable devices: the number of free devices decides whether a node fits.

All requests of such a claim are for a number of devices of one kind, without constraints between
them. The first solution of the allocator's search is then the first free devices in the order of
the pools, and a node fits while enough of them are free. Counted are devices that only one node
sees and that are allocated as a whole.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from clusterstate.objects.dra.allocator import (
    MOST_RESULTS,
    Allocator,
    Features,
    is_repelled,
    only_node,
)
from clusterstate.objects.dra.resourceclaim import asked_devices, requests_of
from clusterstate.objects.dra.slices import (
    CompileError,
    DeviceId,
    EvaluationError,
    NodeView,
    SliceView,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.remembered import remembered

_PLAIN: Final = frozenset(
    {"deviceClassName", "selectors", "allocationMode", "count", "tolerations"}
)
_MOST_KEPT: Final = 1 << 18
"""Answers that are remembered, such as of a node and a kind. Of kinds there may be any number."""
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Kind(msgspec.Struct, frozen=True):
    """The devices that a request selects: ``asked`` is such a request, ``key`` identifies it."""

    key: bytes
    asked: Manifest


def kind_and_count(claims: Iterable[Manifest]) -> tuple[Kind, int] | None:
    """Return the kind and number of requested devices; ``None`` if a free count cannot decide.

    Cached by content: all claims of a template request the same.
    """
    return _kind_and_count(_encode([asked_devices(claim) for claim in claims]))


@remembered(1024, longest=8192)
def _kind_and_count(specs: bytes) -> tuple[Kind, int] | None:
    kind: Kind | None = None
    total = 0
    for spec in msgspec.json.decode(specs):
        of_claim = 0
        if spec.get("constraints") or not spec.get("requests"):
            return None
        for request in spec.get("requests") or ():
            exactly = request.get("exactly")
            if not exactly or not _PLAIN.issuperset(exactly):
                return None
            if exactly.get("allocationMode") != "ExactCount" or (exactly.get("count") or 0) < 1:
                return None
            key = _encode(
                (
                    exactly.get("deviceClassName"),
                    exactly.get("selectors"),
                    exactly.get("tolerations"),
                )
            )
            if kind is None:
                kind = Kind(key, exactly)
            elif kind.key != key:
                return None
            of_claim += exactly["count"]
        if of_claim > MOST_RESULTS:
            return None
        total += of_claim
    return None if kind is None else (kind, total)


def countable(allocator: Allocator, node: NodeView, kind: Kind) -> tuple[DeviceId, ...] | None:
    """Return the devices of a kind on a node, free or not; ``None`` if they cannot be counted.

    Remembered with the allocator, as slices do not change while it lives.
    """
    if allocator.by_labels:
        return _devices(allocator, node, kind)
    key = (allocator.pools_key(node), kind.key)
    if key not in allocator.counted:
        if len(allocator.counted) >= _MOST_KEPT:
            allocator.counted.clear()
        allocator.counted[key] = _devices(allocator, node, kind)
    return allocator.counted[key]


def _devices(allocator: Allocator, node: NodeView, kind: Kind) -> tuple[DeviceId, ...] | None:
    pools = allocator.pools_of(node)
    if any(pool.invalid or pool.others for pool in pools):
        return None
    if allocator.expressions_of(kind.asked) is None:
        return None
    found: list[DeviceId] = []
    for pool in [pool for pool in pools if not pool.incomplete]:
        for one in pool.slices:
            places = _places_of(allocator, one, kind)
            is_of_node = one.place.node_name is not None and pool.id not in allocator.on_several
            if places is None or (places and (not is_of_node or one.by_device)):
                return None
            found += [one.devices[at].id for at in places]
    return tuple(found)


def are_apart(allocator: Allocator, kind: Kind, other: Kind) -> bool:
    """Return whether no device of any slice is of two kinds, whichever nodes there are."""
    for one in {one.shape: one for one in allocator.slices}.values():
        places, others = _places_of(allocator, one, kind), _places_of(allocator, one, other)
        if places is None or others is None or not set(places).isdisjoint(others):
            return False
    return True


def _places_of(allocator: Allocator, one: SliceView, kind: Kind) -> list[int] | None:
    """Return the cached result of ``_places``; ``None`` also if the device class is missing."""
    key = (one.shape, kind.key)
    if key not in allocator.places:
        expressions = allocator.expressions_of(kind.asked)
        if expressions is None:
            return None
        if len(allocator.places) >= _MOST_KEPT:
            allocator.places.clear()
        allocator.places[key] = _places(one, kind, expressions, allocator.features)
    return allocator.places[key]


def _places(
    one: SliceView, kind: Kind, expressions: Sequence[str], features: Features
) -> list[int] | None:
    """Return which devices of a slice are of a kind, ``None`` if some cannot be counted."""
    found = []
    for at, device in enumerate(one.devices):
        try:
            if not all(
                device.matches(each, lists=features.list_attributes) for each in expressions
            ):
                continue
        except (CompileError, EvaluationError):
            return None  # the allocator tells the pod's attempt the error
        if not device.is_plain:
            return None
        if not is_repelled(device, kind.asked):
            found.append(at)
    return found


def pick(
    allocator: Allocator, node: NodeView, kind: Kind, claims: Sequence[Manifest]
) -> tuple[list[Manifest], list[DeviceId]] | None:
    """Return the AllocationResult of each claim of a kind, equal to that of ``Allocator.allocate``.

    Also the allocated devices, which were free. ``None``: use the allocator, since too few devices
    are free, or the result needs more fields.
    """
    of_class = (allocator.classes[kind.asked["deviceClassName"]].get("spec") or {}).get("config")
    if of_class or any(asked_devices(claim).get("config") for claim in claims):
        return None
    there = countable(allocator, node, kind) or ()
    holds = allocator.state.holds
    free = (one for one in there if not holds(one))
    allocations: list[Manifest] = []
    picked: list[DeviceId] = []
    total = 0
    for claim in claims:
        results: list[Manifest] = []
        for request in requests_of(claim):
            exactly, name = request["exactly"], request["name"]
            more: Manifest = {}
            if tolerations := exactly.get("tolerations"):
                more["tolerations"] = tolerations
            total += exactly["count"]
            for one in islice(free, exactly["count"]):
                driver, pool, device = one
                picked.append(one)
                of_device = {"request": name, "driver": driver, "pool": pool, "device": device}
                results.append({**of_device, **more})
        allocations.append({"devices": {"results": results}, "nodeSelector": only_node(node.name)})
    return (allocations, picked) if len(picked) == total else None
