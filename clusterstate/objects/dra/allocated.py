"""Devices allocated to claims: whole, shared, or a part of their capacity.

Rules: k8s.io/dynamic-resource-allocation ``structured/internal/types.go``, kube-scheduler
``dynamicresources/allocateddevices.go``, v1.36. Admin access holds nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from clusterstate.objects.dra.capacity import Consumed, add, subtract, unqualified
from clusterstate.objects.dra.slices import DeviceId
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

ShareId = tuple[str, str, str, str]


class AllocatedState(msgspec.Struct):
    """The devices that claims hold as a whole, and the used shares and capacity of the others."""

    devices: set[DeviceId] = msgspec.field(default_factory=set)
    shares: set[ShareId] = msgspec.field(default_factory=set)
    consumed: dict[DeviceId, Consumed] = msgspec.field(default_factory=dict)
    again: dict[DeviceId, int] = msgspec.field(default_factory=dict)
    """How many more claims hold a device that one already holds; there should be none."""
    sharers: dict[DeviceId, int] = msgspec.field(default_factory=dict)
    """How many shares are taken of a device."""

    def holds(self, device: DeviceId) -> bool:
        """Return whether any claim holds the device or a share of it."""
        if device in self.devices or device in self.consumed:
            return True
        if self.sharers or not self.shares:
            return False
        return any(share[:3] == device for share in self.shares)  # they were not taken here

    def held_among(self, devices: Iterable[DeviceId]) -> set[DeviceId]:
        """Return those of ``devices`` of which any claim holds the whole or a share."""
        if not self.consumed and not self.shares:
            return self.devices.intersection(devices)
        return {device for device in devices if self.holds(device)}

    def take(self, claim: Manifest, *, consumable: bool = True) -> None:
        """Add the devices that a claim's allocation holds."""
        for result in results(claim):
            device = device_id(result)
            if (share := result.get("shareID")) is None or not consumable:
                if device in self.devices:
                    self.again[device] = self.again.get(device, 0) + 1
                self.devices.add(device)
            else:
                self.shares.add((*device, share))
                self.sharers[device] = self.sharers.get(device, 0) + 1
                add(self.consumed.setdefault(device, {}), _amounts(result))

    def give_back(self, claim: Manifest) -> None:
        """Take back what ``take`` counted of a claim, shares included."""
        for result in results(claim):
            device = device_id(result)
            if (share := result.get("shareID")) is None:
                if (more := self.again.pop(device, 0)) == 0:
                    self.devices.discard(device)
                elif more > 1:
                    self.again[device] = more - 1
                continue
            self.shares.discard((*device, share))
            self.sharers[device] -= 1
            if not self.sharers[device]:
                del self.sharers[device], self.consumed[device]
                continue
            subtract(self.consumed[device], _amounts(result))


def _amounts(result: Manifest) -> Consumed:
    amounts = unqualified(result.get("consumedCapacity") or {}, result["driver"])
    return {name: Quantity.parse(value) for name, value in amounts.items()}


def device_id(result: Any) -> DeviceId:
    """Return driver, pool and name of a result's device."""
    return (result["driver"], result["pool"], result["device"])


def results(claim: Manifest) -> Iterator[Manifest]:
    """Yield the allocation results of a claim, except those for admin access: they hold nothing."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        if not result.get("adminAccess"):
            yield result


def allocated_state(claims: Iterable[Manifest], *, consumable: bool = True) -> AllocatedState:
    """Return the devices, shares and capacity that the claims hold in total."""
    state = AllocatedState()
    for claim in claims:
        state.take(claim, consumable=consumable)
    return state
