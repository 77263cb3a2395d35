"""Which devices and volumes are held twice, too much of, or by nobody: claims of a cluster at rest.

Read from lists of the API alone, by kind. Shares no code with the service.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests.faults.arithmetic import quantity
from tests.faults.checkers import CLAIMS, Violation

Manifest = Mapping[str, Any]
Lists = Mapping[str, Sequence[Manifest]]
"""All objects by kind."""
KINDS = (
    "Pod", "ResourceClaim", "ResourceSlice", "PersistentVolume", "PersistentVolumeClaim", "CSINode",
)  # fmt: skip


def claim_violations(lists: Lists) -> list[Violation]:
    """Return what must not be of claims, devices and volumes while nothing happens."""
    told = [*_devices(lists), *_users(lists), *_volumes(lists), *_attached(lists)]
    return [Violation(CLAIMS, text) for text in told]


def _name(item: Manifest) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _results(claim: Manifest) -> list[Manifest]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    given = (allocation.get("devices") or {}).get("results") or ()
    return [one for one in given if not one.get("adminAccess")]


def _devices(lists: Lists) -> Iterator[str]:
    """A device has one claim, or as many shares as its capacity bears; partitions fit together."""
    newest: dict[tuple[str, str], int] = defaultdict(int)
    for one in lists["ResourceSlice"]:
        pool = (one["spec"]["driver"], one["spec"]["pool"]["name"])
        newest[pool] = max(newest[pool], one["spec"]["pool"]["generation"])
    known: dict[tuple[str, ...], Manifest] = {}
    counters: dict[tuple[str, ...], Fraction] = {}
    for one in lists["ResourceSlice"]:
        spec = one["spec"]
        pool = (spec["driver"], spec["pool"]["name"])
        if spec["pool"]["generation"] != newest[pool]:
            continue
        known |= {(*pool, device["name"]): device for device in spec.get("devices") or ()}
        for group in spec.get("sharedCounters") or ():
            for name, counter in group["counters"].items():
                counters[*pool, group["name"], name] = quantity(counter["value"])
    held: dict[tuple[str, ...], list[str]] = defaultdict(list)
    shares: Counter[tuple[str, ...]] = Counter()
    consumed: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for claim in lists["ResourceClaim"]:
        for result in _results(claim):
            device = (result["driver"], result["pool"], result["device"])
            if share := result.get("shareID"):
                shares[*device, share] += 1
                for name, amount in (result.get("consumedCapacity") or {}).items():
                    consumed[*device, name] += quantity(amount)
            else:
                held[device].append(_name(claim))
    for device, names in held.items():
        if len(names) > 1:
            yield f"device {'/'.join(device)} is held by {', '.join(names)}"
    for share, count in shares.items():
        if count > 1:
            yield f"share {'/'.join(share)} is held {count} times"
    for (*device, name), amount in consumed.items():
        capacity = (known.get(tuple(device), {}).get("capacity") or {}).get(name)
        if capacity is not None and amount > quantity(capacity["value"]):
            yield f"{amount} of {name} of {'/'.join(device)} are taken, there are {capacity}"
    used: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    for device in {*held, *(share[:3] for share in shares)}:
        for group in known.get(device, {}).get("consumesCounters") or ():
            for name, counter in group["counters"].items():
                used[*device[:2], group["counterSet"], name] += quantity(counter["value"])
    for key, amount in used.items():
        if key in counters and amount > counters[key]:
            yield f"{amount} of counter {'/'.join(key)} are taken, there are {counters[key]}"


def _users(lists: Lists) -> Iterator[str]:
    """Who holds devices is there and has a node; a pod on a node has what it claims."""
    pods = {one["metadata"]["uid"]: one for one in lists["Pod"]}
    by_name = {_name(one): one for one in lists["ResourceClaim"]}
    for name, claim in by_name.items():
        users = (claim.get("status") or {}).get("reservedFor") or ()
        if _results(claim) and not users:
            yield f"claim {name} holds devices for nobody"
        for user in users:
            pod = pods.get(user["uid"])
            if user["resource"] == "pods" and (pod is None or not pod["spec"].get("nodeName")):
                yield f"claim {name} is held for {user['name']}, which is not on a node"
    for uid, pod in pods.items():
        if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue
        told = pod["status"].get("resourceClaimStatuses") or ()
        made = {one["name"]: one.get("resourceClaimName") for one in told}
        for entry in pod["spec"].get("resourceClaims") or ():
            named = entry.get("resourceClaimName") or made.get(entry["name"])
            mine = by_name.get(f"{pod['metadata']['namespace']}/{named}", {})
            status = mine.get("status") or {}
            users = [user["uid"] for user in status.get("reservedFor") or ()]
            if "allocation" not in status or uid not in users:
                yield f"{_name(pod)} is on a node without its claim {named}"


def _volumes(lists: Lists) -> Iterator[str]:
    """A volume has one claim and that claim has it; a pod on a node has its claims bound."""
    volumes = {one["metadata"]["name"]: one for one in lists["PersistentVolume"]}
    claims = {_name(one): one for one in lists["PersistentVolumeClaim"]}
    of_volume: dict[str, list[str]] = defaultdict(list)
    for name, claim in claims.items():
        if volume := claim["spec"].get("volumeName"):
            of_volume[volume].append(name)
            reference = volumes.get(volume, {"spec": {}})["spec"].get("claimRef") or {}
            if reference.get("uid") != claim["metadata"]["uid"]:
                yield f"claim {name} names volume {volume}, which is not its own"
    for volume, names in of_volume.items():
        if len(names) > 1:
            yield f"volume {volume} is bound to {', '.join(names)}"
    for pod in lists["Pod"]:
        for volume in pod["spec"].get("volumes") or () if pod["spec"].get("nodeName") else ():
            named = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            claim = claims.get(f"{pod['metadata']['namespace']}/{named}")
            if named and (claim is None or claim.get("status", {}).get("phase") != "Bound"):
                yield f"{_name(pod)} is on a node, and its claim {named} is not bound"


def _attached(lists: Lists) -> Iterator[str]:
    """A node has at most as many volumes of a driver as it says."""
    volumes = {one["metadata"]["name"]: one for one in lists["PersistentVolume"]}
    claims = {_name(one): one for one in lists["PersistentVolumeClaim"]}
    used: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in lists["Pod"]:
        for volume in pod["spec"].get("volumes") or () if pod["spec"].get("nodeName") else ():
            named = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            claim = claims.get(f"{pod['metadata']['namespace']}/{named}", {"spec": {}})
            name = claim["spec"].get("volumeName") or ""
            if driver := (volumes.get(name, {"spec": {}})["spec"].get("csi") or {}).get("driver"):
                used[pod["spec"]["nodeName"], driver].add(name)
    for node in lists["CSINode"]:
        for driver in node["spec"].get("drivers") or ():
            limit = (driver.get("allocatable") or {}).get("count")
            found = used[node["metadata"]["name"], driver["name"]]
            if limit is not None and len(found) > limit:
                yield f"{len(found)} volumes of {driver['name']} on {_name(node)}, limit {limit}"
