"""When pods must leave because their devices have NoExecute taints.

Rules: pkg/controller/devicetainteviction/device_taint_eviction.go, v1.36, and v1.38 for the claims
that the scheduler makes for extended resources. A pod on a node leaves when an allocated device has
a NoExecute taint that the allocation does not tolerate, or when the shortest toleration ends,
counted from the time of the taint.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusterstate.objects.dra.resourceclaim import (
    ClaimError,
    claim_name,
    is_for,
    is_reserved_for_pod,
    pod_claims,
    tolerates,
)
from clusterstate.objects.dra.slices import DeviceId
from clusterstate.objects.dra.slicetracker import rule_applies
from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.meta import Manifest


def device_taints(slices: Iterable[Manifest]) -> dict[DeviceId, Sequence[Manifest]]:
    """Return the taints of devices in the newest generations of their pools."""
    newest: dict[tuple[str, str], tuple[int, list[Manifest]]] = {}
    for one in slices:
        spec = one["spec"]
        pool = spec.get("pool") or {}
        key = (spec.get("driver", ""), pool.get("name", ""))
        generation = pool.get("generation") or 0
        entry = newest.get(key)
        if entry is None or generation > entry[0]:
            newest[key] = (generation, [one])
        elif generation == entry[0]:
            entry[1].append(one)
    return {
        (*key, device["name"]): device.get("taints") or ()
        for key, (_, of_pool) in newest.items()
        for one in of_pool
        for device in one["spec"].get("devices") or ()
    }


def claim_leaves(
    claim: Manifest,
    taints: Mapping[DeviceId, Sequence[Manifest]],
    rules: Iterable[Manifest] = (),
) -> dt.datetime | None:
    """Return when pods that use a claim have to leave, ``None`` if they need not."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    rules, first = list(rules), None
    for result in (allocation.get("devices") or {}).get("results") or ():
        device = (result["driver"], result["pool"], result["device"])
        added = [rule["spec"]["taint"] for rule in rules if rule_applies(rule, *device)]
        leaves = _leaves(result.get("tolerations") or (), [*taints.get(device, ()), *added])
        if leaves is not None and (first is None or leaves < first):
            first = leaves
    return first


def _leaves(
    tolerations: Sequence[Mapping[str, Any]], taints: Sequence[Manifest]
) -> dt.datetime | None:
    first: dt.datetime | None = None
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        since = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else None
        since = since or dt.datetime.fromtimestamp(0, dt.UTC)
        matching = [one for one in tolerations if tolerates(one, taint)]
        seconds = [
            one["tolerationSeconds"] for one in matching if one.get("tolerationSeconds") is not None
        ]
        if len(seconds) < len(matching):
            continue  # one of them has no end
        leaves = since + dt.timedelta(seconds=max(min(seconds, default=0), 0))
        first = leaves if first is None else min(first, leaves)
    return first


def pod_leaves(
    pod: Manifest,
    claims: Mapping[str, Manifest],
    taints: Mapping[DeviceId, Sequence[Manifest]],
    rules: Iterable[Manifest] = (),
    *,
    workload_claims: bool = False,
) -> dt.datetime | None:
    """Return when a pod has to leave because of its devices, ``None`` if it need not.

    ``claims`` are those of its namespace by name; ``workload_claims``: claims of its group count.
    A pod that is not on a node, or is going, stays out of it.
    """
    if not pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
        return None
    first: dt.datetime | None = None
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    for entry in (*pod_claims(pod), None):
        try:
            name, must_own = (
                claim_name(pod, entry) if entry else (extended.get("resourceClaimName"), True)
            )
            claim = claims[name or ""]
            if must_own:
                is_for(claim, pod, "Pod", or_group=workload_claims)
        except (ClaimError, KeyError):
            continue
        if not is_reserved_for_pod(claim, pod, accept_pod_group=workload_claims):
            continue
        leaves = claim_leaves(claim, taints, rules)
        if leaves is not None and (first is None or leaves < first):
            first = leaves
    return first
