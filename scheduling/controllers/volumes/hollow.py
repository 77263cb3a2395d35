"""The provisioner ``stowage.dev/hollow``: volumes on paper, for clusters without machines.

``parameters`` of a StorageClass with this provisioner:

``topologyKey``           label of nodes whose value is a segment: a volume is reached from the
                          segment that it was created in; absent: from everywhere
``capacity``              capacity of each segment (or of all together); absent: any amount.
                          ``capacity.SEGMENT`` is for one segment
``maximumVolumeSize``     the largest volume
``delay``                 how long creating a volume takes, such as ``5s``
``failures``              how many times creating a volume fails for each claim, or ``always``

Its state between passes is in the claim: since when it creates the volume, and the number of
failures.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from clusterstate.objects.rules.csi_migration import HOLLOW_DRIVER
from clusterstate.objects.rules.own_annotations import FAILED, SINCE
from clusterstate.objects.rules.volume_matching import quantity_of
from clusterstate.objects.values import document, durations
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.quantity import Quantity, QuantityError
from clusterstate.objects.values.storage import PROVISIONED_BY, STORAGE

RETRY_SECONDS: Final = 5.0
_ZERO: Final = Quantity.of(0)
_ANY: Final = "7Ei"
"""What is said to be free where any amount is."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed parameters of a class; a value that does not parse counts as absent."""

    topology_key: str = ""
    capacity: Quantity | None = None
    by_segment: dict[str, Quantity] = {}
    largest: Quantity | None = None
    delay: timedelta = timedelta()
    failures: int = 0


def read(parameters: Mapping[str, str]) -> Parameters:
    """Parse the ``parameters`` of a StorageClass."""
    failures = parameters.get("failures", "0")
    by_segment = {
        name.removeprefix("capacity."): amount
        for name, text in parameters.items()
        if name.startswith("capacity.") and (amount := _amount(text)) is not None
    }
    return Parameters(
        topology_key=parameters.get("topologyKey", ""),
        capacity=_amount(parameters.get("capacity")),
        by_segment=by_segment,
        largest=_amount(parameters.get("maximumVolumeSize")),
        delay=timedelta(seconds=max(durations.parse(parameters.get("delay")) or 0.0, 0.0)),
        failures=2**31 if failures == "always" else natural(failures) or 0,
    )


def _amount(text: str | None) -> Quantity | None:
    try:
        return None if text is None else quantity_of(text)
    except QuantityError:
        return None


def room(parameters: Parameters, segment: str, volumes: Iterable[Manifest]) -> Quantity | None:
    """Return the free capacity of a segment, ``None`` for any amount.

    ``volumes``: those of the class.
    """
    total = parameters.by_segment.get(segment, parameters.capacity)
    if total is None:
        return None
    used = _ZERO
    for volume in volumes:
        spec = volume["spec"]
        if segment_of(volume, parameters.topology_key) == segment:
            used = used.add(quantity_of((spec.get("capacity") or {}).get(STORAGE, 0)))
    return total.sub(used)


def segment_of(volume: Manifest, key: str) -> str:
    """Return the segment in which a volume was created, empty without one."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for one in term.get("matchExpressions") or ():
            if one.get("key") == key and one.get("values"):
                return str(one["values"][0])
    return ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an attempt to provision: the volume, a failure, or when to try again."""

    volume: Manifest | None = None
    failure: str = ""
    due_at: datetime | None = None


def failures(claim: Manifest) -> int:
    """Return how often creating a claim's volume has failed."""
    return natural((claim["metadata"].get("annotations") or {}).get(FAILED, "")) or 0


def attempt(
    claim: Manifest,
    of: Manifest,
    segments: Iterable[str],
    volumes: Iterable[Manifest],
    now: datetime,
) -> Attempt:
    """Create a volume for a claim, in the first of the segments that has room.

    Args:
        claim: the claim; its annotation ``SINCE`` has when this began.
        of: its class.
        segments: where the volume may be; one empty segment where the class has none.
        volumes: those of the class that exist.
        now: the time.
    """
    parameters = read(of.get("parameters") or {})
    annotations = claim["metadata"].get("annotations") or {}
    if since := annotations.get(SINCE):
        due_at = document.parse_time(since) + parameters.delay
        if due_at > now:
            return Attempt(due_at=due_at)
    elif parameters.delay:
        return Attempt(due_at=now + parameters.delay)
    failed = failures(claim)
    if failed < parameters.failures:
        return Attempt(failure=f"the hollow driver fails {failed + 1} times, as the class says")
    size = quantity_of(_request(claim))
    if parameters.largest is not None and size > parameters.largest:
        return Attempt(failure=f"the largest volume of the class has {parameters.largest}")
    all_volumes = list(volumes)
    for segment in segments:
        free = room(parameters, segment, all_volumes)
        if free is None or free >= size:
            volume = _volume(claim, of, parameters.topology_key, segment)
            return Attempt(volume=volume)
    return Attempt(failure="no segment has room for the volume")


def _request(claim: Manifest) -> Any:
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get(STORAGE, 0)


def _volume(claim: Manifest, of: Manifest, key: str, segment: str) -> Manifest:
    meta, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{meta['uid']}"
    volume_spec: Manifest = {
        "capacity": {STORAGE: _request(claim)},
        "accessModes": spec.get("accessModes") or [],
        "persistentVolumeReclaimPolicy": of.get("reclaimPolicy") or "Delete",
        "storageClassName": of["metadata"]["name"],
        "volumeMode": spec.get("volumeMode") or "Filesystem",
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
        "csi": {"driver": HOLLOW_DRIVER, "volumeHandle": name},
    }
    if options := of.get("mountOptions"):
        volume_spec["mountOptions"] = options
    if attributes := spec.get("volumeAttributesClassName"):
        volume_spec["volumeAttributesClassName"] = attributes
    if key and segment:
        expression = {"key": key, "operator": "In", "values": [segment]}
        terms = [{"matchExpressions": [expression]}]
        volume_spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: HOLLOW_DRIVER}},
        "spec": volume_spec,
    }


def capacity_of(
    of: Manifest, segment: str, volumes: Iterable[Manifest], namespace: str
) -> Manifest:
    """Return the CSIStorageCapacity of a segment."""
    parameters = read(of.get("parameters") or {})
    free = room(parameters, segment, volumes)
    name = of["metadata"]["name"]
    selector = {"matchLabels": {parameters.topology_key: segment}} if segment else {}
    capacity: Manifest = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {
            "name": _dns(f"hollow-{name}-{segment}" if segment else f"hollow-{name}"),
            "namespace": namespace,
            "labels": {"stowage.dev/driver": "hollow"},
        },
        "storageClassName": name,
        "nodeTopology": selector,
    }
    capacity["capacity"] = _ANY if free is None else str(free if free.sign > 0 else _ZERO)
    if parameters.largest is not None:
        capacity["maximumVolumeSize"] = str(
            parameters.largest if free is None or parameters.largest < free else free
        )
    return capacity


def _dns(text: str) -> str:
    return re.sub(r"[^a-z0-9.-]", "-", text.lower())[:253].strip("-.")
