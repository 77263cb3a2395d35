"""What claims hold: devices, shares of devices, and how much of their capacity.

Rules: k8s.io/dynamic-resource-allocation ``structured/internal/types.go``, kube-scheduler
``dynamicresources/allocateddevices.go``, v1.36. Admin access holds nothing.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from clusterstate.objects.dra.capacity import Consumed, add
from clusterstate.objects.dra.slices import DeviceId
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

ShareId = tuple[str, str, str, str]


class AllocatedState(msgspec.Struct):
    """Devices that one claim each holds, shares of others, and what is taken of those."""

    devices: set[DeviceId] = msgspec.field(default_factory=set)
    shares: set[ShareId] = msgspec.field(default_factory=set)
    consumed: dict[DeviceId, Consumed] = msgspec.field(default_factory=dict)

    def holds(self, device: DeviceId) -> bool:
        """Return whether anybody has the device or a share of it."""
        return device in self.devices or device in self.consumed or any(
            share[:3] == device for share in self.shares
        )  # fmt: skip

    def take(self, claim: Manifest, *, consumable: bool = True) -> None:
        """Count what a claim's allocation holds."""
        for result in results(claim):
            device = device_id(result)
            if (share := result.get("shareID")) is None:
                self.devices.add(device)
            elif consumable:
                self.shares.add((*device, share))
                amounts = result.get("consumedCapacity") or {}
                add(
                    self.consumed.setdefault(device, {}),
                    {name: Quantity.parse(value) for name, value in amounts.items()},
                )
            else:
                self.devices.add(device)


def device_id(result: Any) -> DeviceId:
    """Return driver, pool and name of a result's device."""
    return (result["driver"], result["pool"], result["device"])


def results(claim: Manifest) -> Iterator[Manifest]:
    """Yield the results of a claim's allocation that hold something."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        if not result.get("adminAccess"):
            yield result


def allocated_state(claims: Iterable[Manifest], *, consumable: bool = True) -> AllocatedState:
    """Return what all claims hold together."""
    state = AllocatedState()
    for claim in claims:
        state.take(claim, consumable=consumable)
    return state
