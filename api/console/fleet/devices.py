"""Devices: pools and their devices, the claims that hold each, and why free ones stay free."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from django.http import HttpRequest, HttpResponse

from api.console.page import layout, time_travel
from clusterstate.access.rules import Attributes
from clusterstate.objects.dra.holders import by_pool, holders, incomplete_pools
from clusterstate.objects.dra.slicetracker import patched_slice
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules.volume_matching import ephemeral_claim_name
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.past import find_at

GROUP: Final = "resource.k8s.io"
WANTS: Final = Attributes("list", GROUP, "resourceslices")
_MOST: Final = 500
_CLAIMS: Final = Attributes("list", GROUP, "resourceclaims")


class Device(msgspec.Struct, frozen=True):
    """A device: its attributes, the claims that hold it, and why a free one is not allocated.

    ``held``: namespace, claim and pod, if the person may see claims there; ``hidden``: the number
    of other claims.
    """

    name: str
    about: str
    held: list[tuple[str, str, str]]
    hidden: int
    why: str


class Pool(msgspec.Struct, frozen=True):
    """A pool with the devices that are shown; ``missing``: how many of how many slices exist.

    ``node``: the only node with access to all its devices, empty if there are several.
    """

    driver: str
    name: str
    node: str
    missing: str
    count: int
    taken: int
    devices: list[Device]


@layout.shown_then
def page(request: HttpRequest) -> HttpResponse:
    """Return the page of devices by pool; ``q``: only devices whose names contain it."""
    layout.require(request, WANTS.verb, WANTS.resource, group=WANTS.group)
    layout.filters(request, "q")
    query = request.GET.get("q", "").strip()
    pools, left_out = _pools(request, query)
    context = {"pools": pools, "query": query, "left_out": left_out}
    if layout.is_part(request):
        return layout.part(request, "devices_rows.html", context)
    return layout.page(request, "devices.html", "Devices", context)


def listed(request: HttpRequest, kind: str) -> list[Manifest]:
    """Return the objects of a kind at the moment that the address asks for. Queries once."""
    past = time_travel.of(request)
    at = None if past is None else past.revision
    return [decode_object(item) for item in list_page(kind, at=at).items]


def _pools(request: HttpRequest, query: str) -> tuple[list[Pool], int]:
    sees_rules = layout.may(request, "list", "devicetaintrules", group=GROUP)
    rules = listed(request, "DeviceTaintRule") if sees_rules else []
    pools = by_pool(patched_slice(one, rules) for one in listed(request, "ResourceSlice"))
    claims = listed(request, "ResourceClaim")
    mine = set(layout.namespaces(request, _CLAIMS))
    everywhere = layout.may(request, "list", "resourceclaims", group=GROUP)
    held, missing = holders(claims), incomplete_pools(pools)
    found, shown, left_out = [], 0, 0
    for (driver, name), parts in sorted(pools.items()):
        lacks = missing.get((driver, name), "")
        devices, count, allocated = [], 0, 0
        for device in (one for part in parts for one in part["spec"].get("devices") or ()):
            users = held.get((driver, name, device["name"]), [])
            count += 1
            allocated += bool(users)
            visible = [one for one in users if everywhere or one[0] in mine]
            words = (driver, name, device["name"], *(word for one in visible for word in one))
            if query and not any(query in word for word in words):
                continue
            if shown >= _MOST:
                left_out += 1
                continue
            shown += 1
            why = "" if users else _why_not(device, lacks)
            hidden = len(users) - len(visible)
            devices.append(Device(device["name"], _about(device), visible, hidden, why))
        nodes = {part["spec"].get("nodeName", "") for part in parts}
        node = nodes.pop() if len(nodes) == 1 else ""
        if devices or not query:
            found.append(Pool(driver, name, node, lacks, count, allocated, devices))
    return found, left_out


def _why_not(device: Manifest, missing: str) -> str:
    """Return what keeps all claims from a free device; a claim may have further conditions."""
    if missing:
        return f"the pool is incomplete: {missing}"
    taints = [
        f"{one['key']}{'=' + one['value'] if one.get('value') else ''}:{one['effect']}"
        for one in device.get("taints") or ()
        if one.get("effect") in ("NoSchedule", "NoExecute")
    ]
    return f"tainted: {', '.join(taints)}" if taints else ""


def _about(device: Manifest) -> str:
    """Return attributes and capacity in a line."""
    return ", ".join((*_attributes(device), *_capacity(device)))


def _attributes(device: Manifest) -> Iterable[str]:
    for name, value in sorted((device.get("attributes") or {}).items()):
        yield f"{name}={next(iter(value.values()), '')}"


def _capacity(device: Manifest) -> Iterable[str]:
    for name, value in sorted((device.get("capacity") or {}).items()):
        yield f"{name} {value.get('value', '')}"


def of_pod(request: HttpRequest, pod: Manifest) -> list[dict[str, Any]]:
    """Return the pod's claims that the person may get, with their devices or volume.

    Queries once for each claim.
    """
    spec, namespace = pod["spec"], pod["metadata"]["namespace"]
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    by_name = {one["name"]: one.get("resourceClaimName", "") for one in statuses}
    special = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    claims = [
        ("ResourceClaim", one["name"], one.get("resourceClaimName") or by_name.get(one["name"], ""))
        for one in spec.get("resourceClaims") or ()
    ]
    if special:
        claims.append(("ResourceClaim", "extended resources", special["resourceClaimName"]))
    for volume in spec.get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            claims.append(("PersistentVolumeClaim", volume["name"], source["claimName"]))
        elif volume.get("ephemeral"):
            of = ephemeral_claim_name(pod["metadata"]["name"], volume["name"])
            claims.append(("PersistentVolumeClaim", volume["name"], of))
    found = []
    for kind, entry, name in claims:
        group, resource = _RESOURCES[kind]
        about = {"group": group, "namespace": namespace, "name": name}
        if layout.may(request, "get", resource, **about):
            claim = _claim(request, kind, namespace, name) if name else None
            found.append({"kind": kind, "entry": entry, "name": name, "has": _has(claim)})
    return found


_RESOURCES: Final = {
    "ResourceClaim": (GROUP, "resourceclaims"),
    "PersistentVolumeClaim": ("", "persistentvolumeclaims"),
}


def _claim(request: HttpRequest, kind: str, namespace: str, name: str) -> Manifest | None:
    past = time_travel.of(request)
    text = (
        find_object(kind, namespace, name)
        if past is None
        else find_at(KINDS[kind], namespace, name, past.revision)
    )
    return None if text is None else decode_object(text)


def _has(claim: Manifest | None) -> str:
    if claim is None:
        return "not made yet"
    if claim.get("kind") == "PersistentVolumeClaim" or "accessModes" in claim["spec"]:
        phase = (claim.get("status") or {}).get("phase", "Pending")
        return " ".join(filter(None, (phase, claim["spec"].get("volumeName", ""))))
    devices = holders([claim])
    return ", ".join("/".join(one) for one in devices) or "no devices yet"
