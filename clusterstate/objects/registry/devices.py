"""The identity of devices in a ResourceClaim's status.

Rule: k8s.io/dynamic-resource-allocation/structured, ``MakeSharedDeviceID``, v1.36.
"""

from clusterstate.objects.values.meta import Manifest


def identity(device: Manifest) -> str:
    """Return the name of a device, or of a share of it: ``driver/pool/device[/share]``."""
    name = "/".join(device.get(field) or "" for field in ("driver", "pool", "device"))
    share = device.get("shareID")
    return f"{name}/{share}" if share is not None else name


def allocated(status: Manifest) -> set[str]:
    """Return the names of the devices that are allocated to a claim, by its status."""
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    return {identity(one) for one in results}
