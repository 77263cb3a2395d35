"""When pods leave tainted devices.

The statuses of DeviceTaintRules, whose API is off, are not judged: nothing here writes them.
"""

import datetime as dt

from clusterstate.objects.dra.tainteviction import device_taints, pod_leaves
from clusterstate.objects.values.document import parse_time

KINDS = {
    "ResourceSlice": "slices",
    "ResourceClaim": "claims",
    "Pod": "pods",
    "DeviceTaintRule": "deviceTaintRules",
}


def key(one):
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


UNREAD = {"evicting"}
"""Not read: which pods are leaving at first follows from the objects of the case."""


def evictions(objects, now, *, workload_claims):
    taints = device_taints(objects["slices"].values())
    found = {}
    for (namespace, name), pod in objects["pods"].items():
        claims = {n: c for (where, n), c in objects["claims"].items() if where == namespace}
        leaves = pod_leaves(
            pod, claims, taints, objects["deviceTaintRules"].values(),
            workload_claims=workload_claims,
        )  # fmt: skip
        if leaves is not None:
            found[f"{namespace}/{name}"] = max(leaves, now)
    return found


def texts(found):
    return {name: when.strftime("%Y-%m-%dT%H:%M:%SZ") for name, when in found.items()}


def check(case):
    now, groups = parse_time(case["now"]), case["gates"].get("DRAWorkloadResourceClaims", False)
    objects = {name: {key(one): one for one in case[name]} for name in KINDS.values()}
    for event in case["events"]:
        held = objects[KINDS[event["kind"]]]
        if event["op"] == "delete":
            held.pop(key(event["old"]), None)
        else:
            held[key(event["new"])] = event["new"]
    found, expect = evictions(objects, now, workload_claims=groups), case["expect"]
    if texts(found) != expect["evictions"]:
        return f"evictions {texts(found)}, expected {expect['evictions']}"
    for number, step in enumerate(expect["steps"]):
        for name, when in evictions(objects, now, workload_claims=groups).items():
            if when <= now:
                del objects["pods"][tuple(name.split("/"))]
        left = {
            "pods": sorted(objects["pods"]),
            "evictions": texts(evictions(objects, now, workload_claims=groups)),
        }
        wanted = {"pods": sorted(map(key, step["pods"])), "evictions": step["evictions"]}
        if left != wanted:
            return f"step {number}: got {left}, expected {wanted}"
        now += dt.timedelta(seconds=step["advanceSeconds"])
    return None
