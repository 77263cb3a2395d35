"""Says in sentences what a pod's claims lack: suitable devices, the pods that use them, volumes.

They summarize over all nodes what the filters check, in addition to the scheduler's own reason. The
user may only have rights in the pod's namespace, so pods of others are counted and not named.
Nothing queries.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from clusterstate.objects.dra.holders import Holder, PoolId, by_pool, holders, incomplete_pools
from clusterstate.objects.dra.resourceclaim import (
    ClaimError,
    device_requests,
    full_name,
    tolerates,
)
from clusterstate.objects.dra.slices import CompileError, DeviceId, DeviceView, EvaluationError
from clusterstate.objects.rules.volume_matching import quantity_of, size_of, wanted_size
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.storage import (
    NO_PROVISIONER,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.device_claims import DeviceTable, concerns, manifest_of
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_table import VolumeTable

_MOST_NAMED: Final = 5


def shortages(snapshot: Snapshot, info: PodInfo) -> list[str]:
    """Return a sentence for each unmet request of devices and each unbound volume claim."""
    found: list[str] = []
    if concerns(info, snapshot.devices):
        found += _of_devices(snapshot.devices, info)
    for name in info.claims:
        claim = snapshot.volumes.claim(info.namespace, name)
        if claim is not None and not claim.spec.volume_name:
            found.append(_of_volumes(snapshot.volumes, claim))
    return found


# --- devices -------------------------------------------------------------------------------------


def _of_devices(devices: DeviceTable, info: PodInfo) -> Iterator[str]:
    every = {one["metadata"].get("uid", id(one)): one for one in devices.claims.values()}
    held = holders((every | devices.in_flight).values())
    pools = by_pool(one.manifest for one in devices.slices.values())
    incomplete = incomplete_pools(pools)
    names = [one["metadata"]["name"] for parts in pools.values() for one in parts]
    views = [one for name in names for one in devices.slices[name].devices]
    for whose, name, request in wanted_devices(devices, info):
        title = f"{whose}, request {name}" if name else whose
        yield f"{title}: {_of_request(devices, request, info.namespace, views, held, incomplete)}"


def wanted_devices(devices: DeviceTable, info: PodInfo) -> list[tuple[str, str, Manifest]]:
    """Return the device requests of a pod's unallocated claims and extended resources.

    Each is (claim or resource, name, request); the name is ``request/subrequest``, or empty for an
    extended resource.
    """
    if not concerns(info, devices):
        return []
    try:
        claims = devices.claims_of(manifest_of(info))
    except ClaimError:
        claims = []  # the scheduler's reason is enough
    requests = [
        (f"claim {full_name(claim)}", name, request)
        for claim in claims
        if not (claim.get("status") or {}).get("allocation")
        for name, request in device_requests(claim)
    ]
    for resource, count in info.requests.items():
        if count and (of_class := devices.class_of(resource)) is not None:
            name = of_class["metadata"]["name"]
            requests.append((resource, "", {"deviceClassName": name, "count": count}))
    return requests


def _of_request(
    devices: DeviceTable,
    request: Manifest,
    namespace: str,
    every: Sequence[DeviceView],
    held: dict[DeviceId, list[Holder]],
    incomplete: dict[PoolId, str],
) -> str:
    name = request.get("deviceClassName", "")
    of_class = devices.classes.get(name)
    if of_class is None:
        return f"device class {name} does not exist"
    suit = [one for one in every if suits(devices, one, request)]
    usable = [one for one in suit if one.id[:2] not in incomplete]
    open_ = [one for one in usable if not is_tainted(one, request)]
    in_use = [one for one in open_ if one.id in held and not one.shared]
    text = f"{len(suit)} of {len(every)} devices suit class {name}"
    text += " and the selectors" if _selectors(request) else ""
    parts = []
    if lacking := len(suit) - len(usable):
        named = sorted(f"{'/'.join(pool)} ({lacks})" for pool, lacks in incomplete.items())
        parts.append(f"{lacking} are in incomplete pools: {', '.join(named[:_MOST_NAMED])}")
    if tainted := len(usable) - len(open_):
        parts.append(f"{tainted} are tainted and not tolerated")
    if in_use:
        parts.append(f"{len(in_use)} are held{_by_whom(in_use, held, namespace)}")
    if free := len(open_) - len(in_use):
        count = request.get("count") or 1
        parts.append(f"{free} free or shared, {count} wanted on one node")
    return "; ".join([text, *parts])


def _selectors(of: Manifest) -> list[str]:
    return [one["cel"]["expression"] for one in of.get("selectors") or () if one.get("cel")]


def suits(devices: DeviceTable, device: DeviceView, request: Manifest) -> bool:
    """Return whether the selectors of a request and of its class match a device."""
    of_class = devices.classes.get(request.get("deviceClassName", ""))
    if of_class is None:
        return False
    try:
        selectors = (*_selectors(of_class["spec"]), *_selectors(request))
        return all(device.matches(one, lists=True) for one in selectors)
    except (CompileError, EvaluationError):
        return False


def is_tainted(device: DeviceView, request: Manifest) -> bool:
    """Return whether a device has a taint that a request does not tolerate."""
    return any(
        taint.get("effect") in ("NoSchedule", "NoExecute")
        and not any(tolerates(one, taint) for one in request.get("tolerations") or ())
        for taint in device.taints
    )


def _by_whom(
    in_use: Sequence[DeviceView], held: dict[DeviceId, list[Holder]], namespace: str
) -> str:
    counts = Counter(
        (pod or f"claim {claim}") if space == namespace else "other namespaces"
        for one in in_use
        for space, claim, pod in held[one.id]
    )
    named = [f"{name} ({count})" for name, count in counts.most_common(_MOST_NAMED)]
    return f" by {', '.join(named)}{' and others' if len(counts) > _MOST_NAMED else ''}"


# --- volumes -------------------------------------------------------------------------------------


def _of_volumes(table: VolumeTable, claim: PersistentVolumeClaim) -> str:
    size, of = wanted_size(claim), table.storage_class(claim.class_name)
    every = [
        table.volume(one.metadata.name) or one
        for one in table.everything("PersistentVolume")
        if isinstance(one, PersistentVolume) and one.class_name == claim.class_name
    ]
    free = [one for one in every if one.spec.claim_ref is None]
    large = [one for one in free if size_of(one) >= size]
    text = f"claim {claim.full_name} wants {size} of class {claim.class_name or '(none)'}: "
    text += f"{len(every)} volumes, {len(free)} of them free, {len(large)} large enough"
    if where := sorted({place for one in large for place in _places(one)}):
        text += f" ({', '.join(where[:_MOST_NAMED])})"
    if of is None or of.provisioner in ("", NO_PROVISIONER):
        return f"{text}; none can be made"
    room = [f"{one.limit or 0} in {_topology(one.node_topology)}" for one in cramped(table, claim)]
    return f"{text}; too little room to make one: {', '.join(sorted(room))}" if room else text


def cramped(table: VolumeTable, claim: PersistentVolumeClaim) -> list[CSIStorageCapacity]:
    """Return the storage capacities, as the driver reports them, too small for a claim's volume."""
    size = wanted_size(claim)
    capacities = table.capacities(claim.class_name)
    return [one for one in capacities if quantity_of(one.limit or 0) < size]


def _places(volume: PersistentVolume) -> Iterator[str]:
    affinity = volume.spec.node_affinity
    for term in affinity.required.node_selector_terms if affinity and affinity.required else ():
        for one in term.match_expressions:
            yield f"{one.key} {one.operator} {'|'.join(one.values)}"


def _topology(selector: object) -> str:
    labels = getattr(selector, "match_labels", None) or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "the cluster"
