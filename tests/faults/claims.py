"""Which devices and volumes are held twice, too much of, out of reach, or by nobody.

Read from manifests alone, by kind. What is held twice or too much of must not be at any revision;
the rest is judged of a cluster at rest, since a transaction has several revisions. Shares no code
with the service.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.faults.arithmetic import matches_terms, quantity

Manifest = Mapping[str, Any]
Lists = Mapping[str, Sequence[Manifest]]
"""All objects by kind."""
KINDS = (
    "Pod", "ResourceClaim", "ResourceSlice", "PersistentVolume", "PersistentVolumeClaim", "CSINode",
    "StorageClass",
)  # fmt: skip


def claim_violations(lists: Lists) -> list[str]:
    """Return what must not be of claims, devices and volumes while nothing happens."""
    return [*held_twice(lists), *_users(lists), *_volumes(lists)]


def held_twice(lists: Lists, kind: str = "") -> list[str]:
    """Return what must not be at any revision; of what an object of this kind may have changed."""
    found: list[str] = []
    if kind in ("", "ResourceClaim", "ResourceSlice"):
        found += _devices(lists)
    if kind in ("", "PersistentVolume", "PersistentVolumeClaim"):
        found += [*_two_claims(lists), *_room(lists)]
    if kind in ("", "Pod", "PersistentVolumeClaim", "CSINode"):
        found += _attached(lists)
    return found


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
        if not pod["spec"].get("nodeName") or _is_done(pod):
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


def _claims_of(pod: Manifest) -> Iterator[str]:
    """Yield the names of the claims of a pod's volumes."""
    meta = pod["metadata"]
    for volume in pod["spec"].get("volumes") or ():
        if named := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield f"{meta['namespace']}/{named}"
        elif "ephemeral" in volume:
            yield f"{meta['namespace']}/{meta['name']}-{volume['name']}"


def waits(pod: Manifest) -> bool:
    """Return whether a pod has claims, so that it may wait between its decision and its bind."""
    return bool(pod["spec"].get("resourceClaims") or [*_claims_of(pod)])


def _on_nodes(lists: Lists) -> Iterator[Manifest]:
    for pod in lists["Pod"]:
        if pod["spec"].get("nodeName") and not _is_done(pod):
            yield pod


def _is_done(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _two_claims(lists: Lists) -> Iterator[str]:
    """A volume has one claim."""
    of_volume: dict[str, list[str]] = defaultdict(list)
    for claim in lists["PersistentVolumeClaim"]:
        if volume := claim["spec"].get("volumeName"):
            of_volume[volume].append(_name(claim))
    for volume, names in of_volume.items():
        if len(names) > 1:
            yield f"volume {volume} is bound to {', '.join(names)}"


def _volumes(lists: Lists) -> Iterator[str]:
    """A claim's volume is its own, and has it; a pod on a node has its claims bound."""
    volumes = {one["metadata"]["name"]: one for one in lists["PersistentVolume"]}
    claims = {_name(one): one for one in lists["PersistentVolumeClaim"]}
    taken = set()
    for name, claim in claims.items():
        if volume := claim["spec"].get("volumeName"):
            taken.add(volume)
            reference = volumes.get(volume, {"spec": {}})["spec"].get("claimRef") or {}
            if reference.get("uid") != claim["metadata"]["uid"]:
                yield f"claim {name} names volume {volume}, which is not its own"
    for name, one in volumes.items():
        held_for = one["spec"].get("claimRef")
        released = (one.get("status") or {}).get("phase") in ("Released", "Failed")
        if held_for and held_for.get("uid") and not released and name not in taken:
            yield f"volume {name} is held for {held_for.get('name')}, which does not have it"
    for pod in _on_nodes(lists):
        for named in _claims_of(pod):
            claim = claims.get(named)
            if claim is None or claim.get("status", {}).get("phase") != "Bound":
                yield f"{_name(pod)} is on a node, and its claim {named} is not bound"


def segment(volume: Manifest) -> str:
    """Return from where alone a volume is reached, as the hollow driver says it; or nothing."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for one in term.get("matchExpressions") or ():
            return str(one["values"][0])
    return ""


def rooms(lists: Lists) -> dict[tuple[str, str], Fraction]:
    """Return what is left of the capacity of each class and segment that has a volume."""
    told = {
        one["metadata"]["name"]: (one.get("parameters") or {}).get("capacity")
        for one in lists["StorageClass"]
    }
    left: dict[tuple[str, str], Fraction] = {}
    for volume in lists["PersistentVolume"]:
        of = volume["spec"].get("storageClassName") or ""
        if capacity := told.get(of):
            key = of, segment(volume)
            size = quantity(volume["spec"]["capacity"]["storage"])
            left[key] = left.get(key, quantity(capacity)) - size
    return left


def _room(lists: Lists) -> Iterator[str]:
    """No segment has volumes beyond the capacity of their class."""
    for (of, where), left in rooms(lists).items():
        if left < 0:
            yield f"volumes of {of} in {where or 'all'}: {-left} beyond the capacity"


def attached(lists: Lists) -> dict[tuple[str, str], set[str]]:
    """Return the volumes that pods of a node use, by node and driver."""
    volumes = {one["metadata"]["name"]: one for one in lists["PersistentVolume"]}
    claims = {_name(one): one for one in lists["PersistentVolumeClaim"]}
    used: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in _on_nodes(lists):
        for named in _claims_of(pod):
            name = claims.get(named, {"spec": {}})["spec"].get("volumeName") or ""
            if driver := (volumes.get(name, {"spec": {}})["spec"].get("csi") or {}).get("driver"):
                used[pod["spec"]["nodeName"], driver].add(name)
    return used


def limits(lists: Lists) -> dict[tuple[str, str], int]:
    """Return how many volumes a node takes, by node and driver."""
    found = {}
    for node in lists["CSINode"]:
        for driver in node["spec"].get("drivers") or ():
            limit = (driver.get("allocatable") or {}).get("count")
            if limit is not None:
                found[_name(node), driver["name"]] = int(limit)
    return found


def _attached(lists: Lists) -> Iterator[str]:
    """A node has at most as many volumes of a driver as it says."""
    used = attached(lists)
    for (node, driver), limit in limits(lists).items():
        if len(found := used[node, driver]) > limit:
            yield f"{len(found)} volumes of {driver} on {node}, limit {limit}"


def unreachable(lists: Lists, pod: Manifest, node: Manifest) -> list[str]:
    """Return what a pod that is bound to this node cannot reach from there."""
    volumes = {one["metadata"]["name"]: one for one in lists["PersistentVolume"]}
    found = []
    mine = set(_claims_of(pod))
    for claim in lists["PersistentVolumeClaim"]:
        if _name(claim) in mine:
            volume = volumes.get(claim["spec"].get("volumeName") or "")
            required = ((volume or {"spec": {}})["spec"].get("nodeAffinity") or {}).get("required")
            if required and not matches_terms(required["nodeSelectorTerms"], node):
                found.append(f"volume {claim['spec']['volumeName']}")
    for claim in lists["ResourceClaim"]:
        users = (claim.get("status") or {}).get("reservedFor") or ()
        if pod["metadata"]["uid"] not in [one["uid"] for one in users]:
            continue
        selector = ((claim["status"].get("allocation") or {}).get("nodeSelector") or {}).get(
            "nodeSelectorTerms"
        )
        if selector and not matches_terms(selector, node):
            found.append(f"devices of {_name(claim)}")
    return found


@dataclass(frozen=True)
class Offer:
    """What is free for pods that wait, where that is plain: whole devices, and new volumes."""

    devices: Mapping[str, int]
    """Whole devices without a claim, by node."""
    volumes: Mapping[str, Mapping[str, int]]
    """How many more volumes a node takes, by node and driver."""
    room: Mapping[tuple[str, str], Fraction]
    lists: Lists

    @classmethod
    def of(cls, lists: Lists) -> "Offer":
        """Read it from the objects that are there."""
        held = {
            (result["driver"], result["pool"], result["device"])
            for claim in lists["ResourceClaim"]
            for result in _results(claim)
        }
        devices: Counter[str] = Counter()
        for one in lists["ResourceSlice"]:
            spec = one["spec"]
            for device in spec.get("devices") or ():
                name = spec["driver"], spec["pool"]["name"], device["name"]
                plain = device.keys() <= {"name", "attributes"}
                devices[spec.get("nodeName") or ""] += plain and name not in held
        used = attached(lists)
        volumes: dict[str, dict[str, int]] = defaultdict(dict)
        for (node, driver), limit in limits(lists).items():
            volumes[node][driver] = limit - len(used[node, driver])
        return cls(devices, volumes, rooms(lists), lists)

    def suffices(self, pod: Manifest, node: Manifest) -> bool:
        """Return whether a pod surely gets what it claims on a node; doubtful cases are no."""
        if pod["spec"].get("resourceClaims"):
            templates = [
                one.get("resourceClaimTemplateName") for one in pod["spec"]["resourceClaims"]
            ]
            free = self.devices.get(node["metadata"]["name"], 0)
            if templates != ["gpu"] or free < 1 or self._holds(pod):
                return False
        return all(self._has_room(pod, volume, node) for volume in pod["spec"].get("volumes") or ())

    def _holds(self, pod: Manifest) -> bool:
        uid = pod["metadata"]["uid"]
        return any(
            "allocation" in (claim.get("status") or {})
            for claim in self.lists["ResourceClaim"]
            if uid in [one["uid"] for one in claim["metadata"].get("ownerReferences") or ()]
        )

    def _has_room(self, pod: Manifest, volume: Manifest, node: Manifest) -> bool:
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is None:
            return not volume.get("persistentVolumeClaim")
        name = f"{_name(pod)}-{volume['name']}"
        for claim in self.lists["PersistentVolumeClaim"]:
            chosen = (claim["metadata"].get("annotations") or {}).get(_SELECTED)
            if _name(claim) == name and (claim["spec"].get("volumeName") or chosen):
                return False
        spec = template["spec"]
        here = next(
            (
                left
                for (of, where), left in self.room.items()
                if of == spec["storageClassName"]
                and where in (node["metadata"].get("labels") or {}).values()
            ),
            Fraction(0),
        )
        more = self.volumes.get(node["metadata"]["name"], {}).values()
        return (
            here >= quantity(spec["resources"]["requests"]["storage"]) and min(more, default=0) > 0
        )


_SELECTED = "volume.kubernetes.io/selected-node"
