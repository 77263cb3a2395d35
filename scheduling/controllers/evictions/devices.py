"""Evicts pods whose devices have NoExecute taints: in slices, or by DeviceTaintRules.

As kube-controller-manager's device-taint-eviction controller;
``clusterstate.objects.dra.tainteviction`` has the rules. When a pod must leave is a function of the
stored objects, so nothing is stored about pods: the controller's row has the time when the next
toleration of a namespace ends. Disruption budgets do not apply, as in Kubernetes. Clusters without
such taints cost a query when claims, slices or rules change.
"""

from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.together import leaving
from clusterstate.objects.dra.tainteviction import device_taints, pod_leaves
from clusterstate.objects.values import ending
from clusterstate.objects.values.errors import Conflict, NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.objects.workloads import namespaces_with, objects_saying
from clusterstate.queries.pods import claiming_pods
from scheduling.controllers import by_namespace

NAME: Final = "device-taint-eviction"
CONDITION: Final = ending.condition(
    "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint"
)
_NO_EXECUTE: Final = "NoExecute"
_RULE, _SLICE = "DeviceTaintRule", "ResourceSlice"


class _Tainted(msgspec.Struct):
    """Taints of devices by driver, pool and name, and rules that evict."""

    devices: dict[tuple[str, str, str], Any]
    rules: list[Manifest]

    @property
    def is_empty(self) -> bool:
        return not self.devices and not self.rules


def follow(now: datetime) -> int:
    """Process the namespaces whose pods may have to leave; return how many."""
    tainted: list[_Tainted] = []

    def read() -> _Tainted:
        if not tainted:
            tainted.append(_read())
        return tainted[0]

    def sync(namespace: str) -> datetime | None:
        return None if read().is_empty else _sync(namespace, read(), now)

    def namespaces() -> set[str]:
        return set(namespaces_with(["ResourceClaim"]))

    return by_namespace.follow(
        NAME,
        now,
        kinds=("Pod", "ResourceClaim", _SLICE, _RULE),
        present=lambda cursor, mark: namespaces(),
        sync=sync,
        around=by_namespace.Around(read=lambda: _as_json(read()), namespaces=namespaces),
    )


def _read() -> _Tainted:
    """Return the taints that evict. Queries twice, and reads slices if one contains NoExecute."""
    found_rules = [decode_object(one) for one in objects_saying(_RULE, _NO_EXECUTE)]
    rules = [one for one in found_rules if one["spec"]["taint"].get("effect") == _NO_EXECUTE]
    if not objects_saying(_SLICE, _NO_EXECUTE):
        return _Tainted({}, rules)
    # All slices: a newer generation of a pool may not have the taint.
    found = device_taints(map(decode_object, list_page(_SLICE).items))
    return _Tainted(
        {
            device: taints
            for device, taints in found.items()
            if any(taint.get("effect") == _NO_EXECUTE for taint in taints)
        },
        rules,
    )


def _as_json(tainted: _Tainted) -> object:
    devices = [["/".join(device), taints] for device, taints in sorted(tainted.devices.items())]
    return [devices, [[rule["metadata"]["uid"], rule["spec"]] for rule in tainted.rules]]


def _sync(namespace: str, tainted: _Tainted, now: datetime) -> datetime | None:
    """Evict the pods of a namespace that are due; return when the next one is."""
    found = map(decode_object, list_page("ResourceClaim", namespace).items)
    claims = {claim["metadata"]["name"]: claim for claim in found}
    owners = [
        owner["name"]
        for claim in claims.values()
        for owner in claim["metadata"].get("ownerReferences") or ()
    ]
    pods = {
        pod_id: decode_object(item) for pod_id, item in claiming_pods(namespace, owners).items()
    }
    next_due: datetime | None = None
    for pod_id, pod in pods.items():
        leaves = pod_leaves(pod, claims, tainted.devices, tainted.rules)
        if leaves is None:
            continue
        if leaves > now:
            next_due = leaves if next_due is None else min(next_due, leaves)
            continue
        which, work = aside.pod(pod_id), partial(_evict, pod_id, pod, now)
        aside.one(NAME, which, work, now=now, instead=lambda: None)
    return next_due


def _evict(pod_id: int, pod: Manifest, now: datetime) -> None:
    meta = pod["metadata"]
    try:
        with leaving([pod_id], CONDITION, now=now):
            delete_pod(
                meta["namespace"], meta["name"], uid=meta["uid"], condition=CONDITION, now=now
            )
    except (NotFound, Conflict):
        return  # the pod is gone, or another one has its name
    event = Occurrence(
        kind="Pod", namespace=meta["namespace"], name=meta["name"], uid=meta["uid"],
        type="Normal", reason="DeviceTaintManagerEviction", message="Marking for deletion",
        component=NAME,
    )  # fmt: skip
    events.record_many([event], now=now)
