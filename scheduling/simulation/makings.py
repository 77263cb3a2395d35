"""Objects to create so that a waiting pod fits: volumes for its claims, ResourceSlices.

They are guesses; ``remedies`` tries them on a copy of the cluster. A new device is a copy of an
existing one, so that the selectors of class and request match it. Nothing queries.
"""

from collections.abc import Callable, Mapping
from itertools import chain, count, filterfalse
from typing import Final

import msgspec

from clusterstate.objects.dra.holders import by_pool, holders, incomplete_pools
from clusterstate.objects.dra.slices import DeviceView, NodeView
from clusterstate.objects.rules.csi_migration import HOLLOW_DRIVER, HOLLOW_PROVISIONER
from clusterstate.objects.rules.volume_matching import wanted_size
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME, Node
from clusterstate.objects.values.storage import NO_PROVISIONER, STORAGE, PersistentVolumeClaim
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.types import PodInfo
from scheduling.simulation.shortages import cramped, is_tainted, suits, wanted_devices

_LONGEST_NAME: Final = 240
_LONGEST_OF_POD: Final = 160
"""The most characters of namespace and name, before which a driver's name is added."""


class ObjectsToMake(msgspec.Struct, frozen=True):
    """Objects to create: ``text`` as the rest of a sentence, and the manifests."""

    text: str
    objects: tuple[Manifest, ...]


Maker = Callable[[Snapshot, PodInfo, Node | None], ObjectsToMake | None]
"""Returns the objects that a pod lacks on a node, or on every node (``None``). It returns ``None``
if the pod lacks nothing of the kind, or if no remedy is known."""


# --- volumes -------------------------------------------------------------------------------------


def volumes(snapshot: Snapshot, info: PodInfo, node: Node | None) -> ObjectsToMake | None:
    """Return PersistentVolumes for the claims that no provisioner serves or has capacity for."""
    table = snapshot.volumes
    new_volumes: list[Manifest] = []
    where: dict[str, None] = {}

    def is_taken(name: str) -> bool:
        return table.volume(name) is not None

    for name in info.claims:
        claim = table.claim(info.namespace, name)
        if claim is None or claim.spec.volume_name:
            continue
        of = table.storage_class(claim.class_name)
        if of is None:
            continue
        by_hand = of.provisioner in ("", NO_PROVISIONER)
        if not by_hand and not cramped(table, claim):
            continue
        keys = {HOSTNAME} if by_hand else _topology_keys(snapshot, claim.class_name)
        labels = {} if node is None else node.metadata.labels
        if node is not None and not keys <= {key for key in labels if labels[key]}:
            return None
        place = {} if node is None else {key: labels[key] for key in sorted(keys)}
        driver = HOLLOW_DRIVER if of.provisioner == HOLLOW_PROVISIONER else of.provisioner
        new_volumes.append(_volume(claim, place, "" if by_hand else driver, is_taken))
        if by_hand and node is not None:
            where[f"on the node {labels[HOSTNAME]}"] = None
        elif place:
            where["in " + ", ".join(f"{key}={value}" for key, value in place.items())] = None
    if not new_volumes:
        return None
    sizes = " and ".join(
        f"{one['spec']['capacity'][STORAGE]} of class {one['spec']['storageClassName']}"
        for one in new_volumes
    )
    noun = "a volume" if len(new_volumes) == 1 else "volumes"
    return ObjectsToMake(
        " ".join([f"make {noun} of {sizes}", " and ".join(where)]).strip(), tuple(new_volumes)
    )


def _topology_keys(snapshot: Snapshot, class_name: str) -> set[str]:
    found: set[str] = set()
    for one in snapshot.volumes.capacities(class_name):
        found.update(one.node_topology.match_labels if one.node_topology else ())
    return found


def _volume(
    claim: PersistentVolumeClaim,
    place: Mapping[str, str],
    driver: str,
    is_taken: Callable[[str], bool],
) -> Manifest:
    """Return a volume that suits a claim, with an unused name; local without a driver.

    Nodes with the labels ``place`` can reach it.
    """
    spec: Manifest = {
        "accessModes": list(claim.spec.access_modes),
        "capacity": {STORAGE: str(wanted_size(claim))},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": claim.class_name,
        "volumeMode": claim.spec.volume_mode or "Filesystem",
    }
    name = _free_name(f"{claim.metadata.namespace}-{claim.metadata.name}", is_taken)
    if place:
        expressions = [
            {"key": key, "operator": "In", "values": [value]} for key, value in place.items()
        ]
        terms = [{"matchExpressions": expressions}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if driver:
        spec["csi"] = {"driver": driver, "volumeHandle": name}
    elif place:
        spec["local"] = {"path": f"/mnt/{name}"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
    }


def _free_name(whose: str, is_taken: Callable[[str], bool]) -> str:
    base = f"for-{whose}"[:_LONGEST_NAME].rstrip("-.")
    others = (f"{base}-{number}" for number in count(2))
    return next(filterfalse(is_taken, chain((base,), others)))


# --- devices -------------------------------------------------------------------------------------


def slices(snapshot: Snapshot, info: PodInfo, node: Node | None) -> ObjectsToMake | None:
    """Return ResourceSlices with the devices that a pod's claims lack, one for each driver.

    A single request gets as many as it lacks beyond the free ones on the node. Shareable devices
    and those with binding conditions or shared counters are not created.
    """
    devices = snapshot.devices
    requests = wanted_devices(devices, info)
    views = [one for each in devices.slices.values() for one in each.devices]
    by_driver: dict[str, list[Manifest]] = {}
    texts = []
    chosen: set[tuple[str, str]] = set()
    for whose, name, request in requests:
        if (one_of := (whose, name.partition("/")[0])) in chosen:
            continue  # only the first alternative is created
        chosen.add(one_of)
        fits = [one for one in views if one.is_plain and suits(devices, one, request)]
        many = request.get("count") or 1
        if not fits or request.get("allocationMode") == "All":
            return None
        if node is not None and len(requests) == 1:
            many = max(many - _free(snapshot, fits, request, node), 1)
        copied = ("attributes", "capacity")
        like = {key: fits[0].manifest[key] for key in copied if key in fits[0].manifest}
        of_driver = by_driver.setdefault(fits[0].id[0], [])
        of_driver += [{"name": f"device-{len(of_driver) + at}", **like} for at in range(many)]
        noun = "a device" if many == 1 else f"{many} devices"
        texts.append(f"{noun} of class {request.get('deviceClassName', '')}")
    if not texts:
        return None
    place: Manifest = {"allNodes": True}
    if node is not None:
        place = {"nodeName": node.metadata.name}
    whose = "-".join(filter(None, (info.namespace, info.pod.metadata.name)))
    whose = whose[:_LONGEST_OF_POD].rstrip("-.")
    objects = [
        _slice(_free_name(f"{whose}-{driver}", devices.slices.__contains__), driver, place, found)
        for driver, found in by_driver.items()
    ]
    where = "" if node is None else f" to the node {node.metadata.name}"
    return ObjectsToMake(f"add {' and '.join(texts)}{where}", tuple(objects))


def _slice(name: str, driver: str, place: Manifest, devices: list[Manifest]) -> Manifest:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": pool, **place, "devices": devices},
    }


def _free(snapshot: Snapshot, fits: list[DeviceView], request: Manifest, node: Node) -> int:
    """Return how many of the devices that suit a request are free on a node."""
    devices = snapshot.devices
    every = {one["metadata"].get("uid", id(one)): one for one in devices.claims.values()}
    held = holders((every | devices.in_flight).values())
    incomplete = incomplete_pools(by_pool(one.manifest for one in devices.slices.values()))
    view = NodeView(node.metadata.name, node.metadata.labels)
    here = {
        one.id for each in devices.slices.values() if each.place.matches(view)
        for one in each.devices
    }  # fmt: skip
    return sum(
        one.id in here
        and one.id not in held
        and one.id[:2] not in incomplete
        and not is_tainted(one, request)
        for one in fits
    )
