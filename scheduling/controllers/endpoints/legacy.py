"""The Endpoints of a Service: one object with all addresses, which older programs read.

Pure. Rules: pkg/controller/endpoint/endpoints_controller.go (``syncService``,
``addressesFromPods``) and endpoints/util.go (``RepackSubsets``), v1.36.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.endpoints.targets import (
    Ports,
    Target,
    chosen,
    families,
    hostname_of,
    is_headless,
    ports_of,
    reference,
)

MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
CONTROLLER: Final = "endpoint-controller"
OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
HEADLESS: Final = "service.kubernetes.io/headless"
MOST: Final = 1000
"""Addresses in one object; what is beyond is left out, those that are not ready first."""


def labels_of(service: Manifest) -> dict[str, str]:
    """Return the labels of a Service's Endpoints."""
    labels = {**(service["metadata"].get("labels") or {}), MANAGED_BY: CONTROLLER}
    labels.pop(HEADLESS, None)
    return labels | ({HEADLESS: ""} if is_headless(service) else {})


def is_mine(one: Manifest) -> bool:
    """Return whether this controller made the Endpoints, and so removes them with the Service."""
    return (one["metadata"].get("labels") or {}).get(MANAGED_BY) == CONTROLLER


def subsets(
    service: Manifest, targets: Iterable[Target], zones: Mapping[str, str]
) -> tuple[list[Manifest], bool]:
    """Return addresses grouped by the ports that they serve, and whether there were too many."""
    publishes = bool(service["spec"].get("publishNotReadyAddresses"))
    family = families(service)[0]
    found: dict[Ports, tuple[list[Manifest], list[Manifest]]] = {}
    for target in chosen(service, targets, zones, family):
        if target.is_leaving and not publishes:
            continue
        ports = ports_of(service, target)
        if not ports and (not is_headless(service) or service["spec"].get("ports")):
            continue
        ready = publishes or target.is_ready
        both = found.setdefault(ports, ([], []))
        both[0 if ready else 1].append(_address(service, target, family))
    number = sum(len(one) for both in found.values() for one in both)
    if number > MOST:
        found = _cut(found)
    return [_subset(ports, *found[ports]) for ports in sorted(found)], number > MOST


def _cut(
    found: Mapping[Ports, tuple[list[Manifest], list[Manifest]]],
) -> dict[Ports, tuple[list[Manifest], list[Manifest]]]:
    room = MOST
    cut: dict[Ports, tuple[list[Manifest], list[Manifest]]] = {ports: ([], []) for ports in found}
    for which in (0, 1):
        for ports, both in sorted(found.items()):
            some = both[which][:room]
            cut[ports][which].extend(some)
            room -= len(some)
    return {ports: both for ports, both in cut.items() if both[0] or both[1]}


def _address(service: Manifest, target: Target, family: str) -> Manifest:
    address: Manifest = {
        "ip": target.addresses_of(family)[0],
        "targetRef": reference(service["metadata"]["namespace"], target),
    }
    if target.node_name:
        address["nodeName"] = target.node_name
    if hostname := hostname_of(service, target):
        address["hostname"] = hostname
    return address


def _subset(ports: Ports, ready: Sequence[Manifest], others: Sequence[Manifest]) -> Manifest:
    subset: Manifest = {}
    for name, addresses in (("addresses", ready), ("notReadyAddresses", others)):
        if addresses:
            subset[name] = sorted(addresses, key=lambda one: (one["ip"], one["targetRef"]["uid"]))
    if ports:
        subset["ports"] = [
            {
                **({"name": name} if name else {}),
                "port": number,
                "protocol": protocol,
                **({"appProtocol": application} if application else {}),
            }
            for name, number, protocol, application in ports
        ]
    return subset
