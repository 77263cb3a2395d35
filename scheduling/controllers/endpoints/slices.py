"""The EndpointSlices of a Service: which to create, change and delete.

Pure. As few slices change as possible, because every proxy reads every change. Rules:
endpointslice/reconciler.go (``reconcileByAddressType``, ``reconcileByPortMapping``), utils.go
(``setEndpointSliceLabels``) and trafficdist/trafficdist.go, v1.36.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.endpoints.targets import (
    Ports,
    Target,
    chosen,
    hostname_of,
    is_headless,
    ports_of,
    reference,
)

MOST: Final = 100
"""Endpoints in a slice (kube-controller-manager: --max-endpoints-per-slice)."""
SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
CONTROLLER: Final = "endpointslice-controller.k8s.io"
HEADLESS: Final = "service.kubernetes.io/headless"
_RESERVED: Final = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS})


Wanted = dict[Ports, dict[str, Manifest]]
"""Endpoints by the ports that they serve and by their keys (``key_of``)."""


class SliceWrites(msgspec.Struct):
    """The writes: content of new slices, changed slices, slices to delete.

    A content is what ``content`` returns.
    """

    create: list[Manifest] = []
    update: list[tuple[Manifest, Manifest]] = []
    delete: list[Manifest] = []


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata that all slices of an object share: name, owner, labels and annotations.

    ``annotations`` is ``None`` where each slice keeps its own.
    """

    name: str
    owner: Manifest
    labels: Mapping[str, str]
    annotations: Mapping[str, str] | None = None


def by_service(present: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Return slices by the name of the Service in their label; slices without one are omitted.

    Also omitted: slices whose deletion a finalizer holds up; new ones replace them
    (``dropEndpointSlicesPendingDeletion``).
    """
    found: dict[str, list[Manifest]] = {}
    for one in present:
        name = (one["metadata"].get("labels") or {}).get(SERVICE_NAME)
        if name and not one["metadata"].get("deletionTimestamp"):
            found.setdefault(name, []).append(one)
    return found


def is_mine(one: Manifest, keeper: str = CONTROLLER) -> bool:
    """Return whether the controller ``keeper`` manages a slice."""
    return (one["metadata"].get("labels") or {}).get(MANAGED_BY) == keeper


def marks_of(service: Manifest) -> Marks:
    """Return the metadata of a Service's slices, with the labels by which they are found."""
    metadata = service["metadata"]
    own: Mapping[str, str] = metadata.get("labels") or {}
    labels = {key: value for key, value in own.items() if key not in _RESERVED}
    if is_headless(service):
        labels[HEADLESS] = ""
    return Marks(
        name=metadata["name"],
        owner=owned_by("Service", metadata),
        labels=labels | {SERVICE_NAME: metadata["name"], MANAGED_BY: CONTROLLER},
    )


def owned_by(kind: str, metadata: Manifest) -> Manifest:
    """Return the owner reference of a slice."""
    return {
        "apiVersion": "v1",
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def new_slice(namespace: str, marks: Marks, family: str, content: Manifest) -> Manifest:
    """Return the manifest of a new slice with a content."""
    metadata: Manifest = {
        "generateName": f"{marks.name}-",
        "namespace": namespace,
        "labels": dict(marks.labels),
        "ownerReferences": [marks.owner],
    }
    if marks.annotations:
        metadata["annotations"] = dict(marks.annotations)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": family,
        **content,
    }


def changed(old: Manifest, content: Manifest, marks: Marks) -> Manifest:
    """Return a slice with another content."""
    metadata = {**old["metadata"], "labels": dict(marks.labels)}
    if marks.annotations is not None:
        metadata.pop("annotations", None)
        metadata |= {"annotations": dict(marks.annotations)} if marks.annotations else {}
    return {**old, **content, "metadata": metadata}


def reconcile(
    service: Manifest,
    present: Iterable[Manifest],
    targets: Iterable[Target],
    zones: Mapping[str, str],
    family: str,
) -> SliceWrites:
    """Return the writes that make the slices of a family contain the selected pods.

    ``present``: the Service's slices. ``zones`` has an entry for each node, empty where it has no
    zone.
    """
    desired: Wanted = {}
    for target in chosen(service, targets, zones, family):
        endpoint = _endpoint(service, target, zones, family)
        desired.setdefault(ports_of(service, target), {})[target.uid] = endpoint
    return arrange(desired, present, marks_of(service), family, keeps_empty=True)


def arrange(
    desired: Wanted,
    present: Iterable[Manifest],
    marks: Marks,
    family: str,
    *,
    keeps_empty: bool,
) -> SliceWrites:
    """Return the writes that turn the present slices of a family into those for ``desired``.

    ``keeps_empty``: without endpoints, one empty slice stays.
    """
    by_ports: dict[Ports, list[Manifest]] = {}
    for one in present:
        if one.get("addressType") == family:
            by_ports.setdefault(ports_in(one), []).append(one)
    writes = SliceWrites()
    number = 0
    for ports in sorted({*desired, *by_ports}):
        slices = by_ports.get(ports, [])
        number += len(slices)
        _fill(writes, ports, slices, desired.get(ports, {}))
    if keeps_empty and not writes.create and len(writes.delete) == number:
        _keep_an_empty_one(writes)
    while writes.create and writes.delete:
        writes.update.append((writes.delete.pop(), writes.create.pop()))
    written = {one["metadata"]["uid"] for one, _ in writes.update}
    written |= {one["metadata"]["uid"] for one in writes.delete}
    for slices in by_ports.values():
        for one in slices:
            same = one["metadata"]["uid"] in written
            if not same and changed(one, {}, marks)["metadata"] != one["metadata"]:
                writes.update.append((one, content(ports_in(one), one.get("endpoints") or [])))
    return writes


def content(ports: Ports, endpoints: Sequence[Manifest]) -> Manifest:
    """Return ``endpoints`` and ``ports`` of an EndpointSlice as JSON."""
    return {
        "endpoints": list(endpoints),
        "ports": [
            {
                "name": name,
                "port": number,
                "protocol": protocol,
                **({"appProtocol": application} if application else {}),
            }
            for name, number, protocol, application in ports
        ],
    }


def ports_in(one: Manifest) -> Ports:
    """Return the ports of a slice, or of a subset of Endpoints, sorted."""
    return tuple(
        sorted(
            (
                port.get("name") or "",
                port.get("port") or 0,
                port.get("protocol") or "TCP",
                port.get("appProtocol") or "",
            )
            for port in one.get("ports") or ()
        )
    )


def _fill(
    writes: SliceWrites, ports: Ports, slices: Sequence[Manifest], desired: Mapping[str, Manifest]
) -> None:
    """Plan the writes of the slices with these ports, so that they contain ``desired``."""
    remaining = dict(desired)
    held: list[tuple[Manifest, list[Manifest]]] = []
    changed: list[tuple[Manifest, list[Manifest]]] = []
    for one in slices:
        before = one.get("endpoints") or []
        endpoints = [remaining.pop(key) for entry in before if (key := key_of(entry)) in remaining]
        (held if endpoints == before else changed).append((one, endpoints))
    rest = list(remaining.values())
    for _, endpoints in changed:
        rest = _take(endpoints, rest)
    if rest:
        # The fullest slice that takes all of them, so that only one more slice changes.
        fitting = [entry for entry in held if len(entry[1]) + len(rest) <= MOST]
        if fitting:
            chosen_one = max(fitting, key=lambda entry: len(entry[1]))
            held.remove(chosen_one)
            changed.append(chosen_one)
            rest = _take(chosen_one[1], rest)
    while rest:
        writes.create.append(content(ports, rest[:MOST]))
        rest = rest[MOST:]
    for one, endpoints in changed:
        if endpoints:
            writes.update.append((one, content(ports, endpoints)))
        else:
            writes.delete.append(one)
    writes.delete += [one for one, endpoints in held if not endpoints]


def _take(endpoints: list[Manifest], rest: list[Manifest]) -> list[Manifest]:
    """Move endpoints from ``rest`` to ``endpoints`` up to a slice's limit; return those left."""
    room = max(0, MOST - len(endpoints))
    endpoints += rest[:room]
    return rest[room:]


def _keep_an_empty_one(writes: SliceWrites) -> None:
    """Keep or create one empty slice for a Service without endpoints."""
    for one in writes.delete:
        if not one.get("endpoints") and not one.get("ports"):
            writes.delete.remove(one)
            return
    writes.create.append(content((), ()))


def key_of(endpoint: Manifest) -> str:
    """Return the identity of an endpoint: its pod, or else its address."""
    uid = (endpoint.get("targetRef") or {}).get("uid")
    return str(uid or next(iter(endpoint.get("addresses") or ()), ""))


def _endpoint(service: Manifest, target: Target, zones: Mapping[str, str], family: str) -> Manifest:
    spec, metadata = service["spec"], service["metadata"]
    ready = bool(spec.get("publishNotReadyAddresses")) or (
        target.is_ready and not target.is_leaving
    )
    endpoint: dict[str, Any] = {
        "addresses": target.addresses_of(family)[:1],
        "conditions": {
            "ready": ready,
            "serving": target.is_ready,
            "terminating": target.is_leaving,
        },
        "targetRef": reference(metadata["namespace"], target),
    }
    if hostname := hostname_of(service, target):
        endpoint["hostname"] = hostname
    if target.node_name:
        endpoint["nodeName"] = target.node_name
    zone = zones.get(target.node_name) or ""
    if zone:
        endpoint["zone"] = zone
    hints = _hints(spec.get("trafficDistribution") or "", target.node_name, zone)
    if ready and hints:
        endpoint["hints"] = hints
    return endpoint


def _hints(distribution: str, node_name: str, zone: str) -> Manifest:
    """Return the topology hints of an endpoint, empty for none."""
    hints: Manifest = {}
    if zone and distribution in ("PreferClose", "PreferSameZone", "PreferSameNode"):
        hints["forZones"] = [{"name": zone}]
    if node_name and distribution == "PreferSameNode":
        hints["forNodes"] = [{"name": node_name}]
    return hints
