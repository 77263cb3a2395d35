"""EndpointSlices that mirror the Endpoints that a client wrote for a Service without a selector.

Proxies read only slices; older programs and users write Endpoints. Pure. Rules:
endpointslicemirroring_controller.go, reconciler.go and utils.go of
pkg/controller/endpointslicemirroring, v1.36.
"""

from collections.abc import Iterable
from typing import Final

from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.endpoints.slices import (
    MANAGED_BY,
    SERVICE_NAME,
    Marks,
    SliceWrites,
    Wanted,
    arrange,
    is_mine,
    key_of,
    owned_by,
    ports_in,
)

CONTROLLER: Final = "endpointslicemirroring-controller.k8s.io"
SKIP: Final = "endpointslice.kubernetes.io/skip-mirror"
MOST: Final = 1000
"""Addresses of a subset that are shown (kube-controller-manager:
--mirroring-max-endpoints-per-subset)."""
_ELECTION: Final = "control-plane.alpha.kubernetes.io/leader"
_NOT_COPIED: Final = frozenset(
    {
        "endpoints.kubernetes.io/last-change-trigger-time",
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)


def is_by_hand(service: Manifest) -> bool:
    """Return whether a Service has no selector, so that a client writes its Endpoints."""
    return not (service.get("spec") or {}).get("selector")


def is_mirrored(endpoints: Manifest) -> bool:
    """Return whether Endpoints are to be shown, and not only used to elect a leader."""
    metadata = endpoints["metadata"]
    return not (
        metadata.get("deletionTimestamp")
        or (metadata.get("labels") or {}).get(SKIP) == "true"
        or _ELECTION in (metadata.get("annotations") or {})
    )


def of_mine(present: Iterable[Manifest]) -> list[Manifest]:
    """Return the slices that this controller manages."""
    return [one for one in present if is_mine(one, CONTROLLER)]


def marks_of(endpoints: Manifest) -> Marks:
    """Return the metadata of the slices: the labels and annotations of the Endpoints."""
    metadata = endpoints["metadata"]
    name = metadata["name"]
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key not in _NOT_COPIED
    }
    labels = {**(metadata.get("labels") or {}), SERVICE_NAME: name, MANAGED_BY: CONTROLLER}
    return Marks(
        name=name, owner=owned_by("Endpoints", metadata), labels=labels, annotations=annotations
    )


def reconcile(endpoints: Manifest, present: Iterable[Manifest], family: str) -> SliceWrites:
    """Return the writes that make the slices of a family mirror the Endpoints."""
    desired: Wanted = {}
    for subset in endpoints.get("subsets") or ():
        shown = desired.setdefault(ports_in(subset), {})
        room = MOST
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in (subset.get(field) or ())[:room]:
                room -= 1
                if (":" in address["ip"]) == (family == "IPv6"):
                    endpoint = _endpoint(address, ready=ready)
                    shown.setdefault(key_of(endpoint), endpoint)
    filled = {ports: shown for ports, shown in desired.items() if shown}
    return arrange(filled, present, marks_of(endpoints), family, keeps_empty=False)


def _endpoint(address: Manifest, *, ready: bool) -> Manifest:
    endpoint: Manifest = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    for field in ("targetRef", "hostname", "nodeName"):
        if address.get(field):
            endpoint[field] = address[field]
    return endpoint
