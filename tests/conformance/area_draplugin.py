"""DynamicResources at each point of scheduling, step by step on a small cluster."""

import datetime as dt
import json
import re

import msgspec

from clusterstate.objects.dra.allocator import Features
from clusterstate.objects.dra.attempt import (
    Attempt,
    Cancelled,
    DeviceWorld,
    Gates,
    TimedOut,
    Verdict,
    is_special,
    pre_enqueue,
    stamp,
)
from clusterstate.objects.dra.resourceclaim import ClaimError
from clusterstate.objects.dra.scoring import normalize
from clusterstate.objects.dra.slices import NodeView
from clusterstate.objects.dra.slicetracker import patched_slices
from clusterstate.objects.rules.resources import pod_requests
from clusterstate.objects.values.meta import strip_nulls
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import Quantity
from tests.conformance import Skip

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
FEATURES = {
    "DRAAdminAccess": "admin_access",
    "DRAPrioritizedList": "prioritized_list",
    "DRAPartitionableDevices": "partitionable_devices",
    "DRADeviceTaints": "device_taints",
    "DRADeviceBindingConditions": "binding_conditions",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAListTypeAttributes": "list_attributes",
}


OTHERS = {
    "DRADeviceTaintRules", "DRAExtendedResource", "DRANodeAllocatableResources",
    "DRAResourceClaimDeviceStatus",
    "DRASchedulerFilterTimeout", "DRAWorkloadResourceClaims", "DynamicResourceAllocation",
}  # fmt: skip
UNREAD = {"pods"}
"""The pod itself, as it is in the API."""


def gates_of(names):
    assert names.keys() <= FEATURES.keys() | OTHERS, names
    given = {FEATURES[name]: on for name, on in names.items() if name in FEATURES}
    if names.get("DRAResourceClaimDeviceStatus") is False:
        given["binding_conditions"] = False
    return Gates(
        enabled=names.get("DynamicResourceAllocation", True),
        extended_resources=names.get("DRAExtendedResource", True),
        workload_claims=names.get("DRAWorkloadResourceClaims", False),
        allocator=Features(**given),
    )


def timed(value):
    """Put real moments where the vector counts back from now."""
    if isinstance(value, dict):
        return {k: timed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [timed(v) for v in value]
    if isinstance(value, str) and (found := re.fullmatch(r"now(?:-(\d+)s)?", value)):
        return stamp(NOW - dt.timedelta(seconds=int(found[1] or 0)))
    return value


def seconds(text):
    parts = re.findall(r"([\d.]+)(h|ms|m|us|ns|s)", text)
    unit = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    return sum(float(number) * unit[name] for number, name in parts)


def requested(pod):
    found = pod_requests(msgspec.convert(strip_nulls(pod), Pod))
    return {name: Quantity.parse(str(value)).value() for name, value in found.items()}


class Play:
    def __init__(self, case):
        self.case, self.args = case, case.get("args") or {}
        self.gates = gates_of(case["gates"])
        slices = case.get("slices") or []
        if self.gates.allocator.device_taints:
            slices = patched_slices(slices, case.get("deviceTaintRules") or [])
        self.world = DeviceWorld(
            timed(case["claims"]), case["classes"], slices, case.get("podGroups") or ()
        )
        for claim in case.get("inFlight") or ():
            stored = self.world.claims.get(
                (claim["metadata"].get("namespace", ""), claim["metadata"]["name"]), claim
            )
            self.world.hold(claim, stored["metadata"].get("uid", ""))
        self.attempt = Attempt(
            self.world, case["pod"], self.gates, now=NOW.timestamp(),
            binding_timeout=seconds(self.args.get("bindingTimeout", "10m")), new_id=lambda: "any",
        )  # fmt: skip
        self.nodes = {node["metadata"]["name"]: node for node in case["nodes"]}
        self.clock = NOW.timestamp()
        self.changes = [s for s in case["expect"]["steps"] if s["step"] == "concurrent"]

    def step(self, name, node):
        for change in list(self.changes):
            if change.get("before") == name:
                self.changes.remove(change)
                self.store(timed(change.get("changed") or ()))
        before = dict(self.world.claims)
        verdict, more = getattr(self, re.sub("([A-Z])", r"_\1", name).lower())(node)
        after = self.world.claims
        more["changed"] = [c for k, c in after.items() if k in before and before[k] != c]
        more["added"] = [c for k, c in after.items() if k not in before]
        more["removed"] = ["/".join(k) for k in before if k not in after]
        more["inFlight"] = list(self.world.in_flight.values())
        if verdict is not None:
            more["status"] = {"code": verdict.code}
            if verdict.reason:
                more["status"]["reasons"] = [verdict.reason]
        return {key: value for key, value in more.items() if value}

    def store(self, claims):
        for claim in claims:
            self.world.set("ResourceClaim", claim)

    def pre_enqueue(self, node):
        return pre_enqueue(self.world, self.case["pod"], self.gates), {}

    def pre_filter(self, node):
        return self.attempt.pre_filter(requested(self.case["pod"])), {}

    def filter(self, node):
        meta = self.nodes[node]["metadata"]
        offered = (self.nodes[node].get("status") or {}).get("allocatable") or {}
        limit = seconds(self.args["filterTimeout"]) if "filterTimeout" in self.args else 10
        timeout = self.case["gates"].get("DRASchedulerFilterTimeout", True)

        def check():
            if self.case.get("cancelFilter"):
                raise Cancelled("test canceling Filter")
            if timeout and 0 < limit < 1e-6:
                raise TimedOut

        verdict = self.attempt.filter(
            NodeView(meta["name"], meta.get("labels") or {}),
            lambda name: Quantity.parse(offered[name]).value() if name in offered else None,
            check,
        )
        return verdict, {}

    def post_filter(self, node):
        verdict, release = self.attempt.post_filter()
        if release is not None:
            if release.becomes is None:
                meta = release.claim["metadata"]
                self.world.remove("ResourceClaim", meta["namespace"], meta["name"])
            else:
                self.world.set("ResourceClaim", release.becomes)
        return verdict, {}

    def reserve(self, node):
        return self.attempt.reserve(node), {}

    def pre_bind(self, node):
        try:
            bound = self.attempt.bound_claims(node, stamp(NOW), self.world.claims.values())
        except ClaimError as error:
            self.attempt.forget(node)
            return Verdict("Error", str(error)), {}
        named = []
        for claim in bound:
            if is_special(claim):
                name = claim["metadata"]["generateName"] + "0"
                meta = {**claim["metadata"], "name": name, "uid": "UID-1"}
                claim = {**claim, "metadata": meta}
                self.special = claim
            named.append(claim)
        self.store(named)
        self.attempt.forget(node)
        more = {}
        special = [c for c in named if c["metadata"].get("generateName", "").endswith("resources-")]
        for claim in special:
            for fault in self.case.get("apiFaults") or ():
                where = f"{claim['metadata']['namespace']}/{self.case['pod']['metadata']['name']}"
                text = f"update pod {where} ExtendedResourceClaimStatus: {fault['error']}"
                return Verdict("Error", text), {"podStatus": {}}
            status = self.attempt.pod_status(node, claim["metadata"]["name"])
            more["podStatus"] = {"extendedResourceClaimStatus": status}
        return self.wait(), more

    def wait(self):
        """Poll each five seconds of a frozen clock, as kube-scheduler does."""
        uids = {claim["metadata"].get("uid") for claim in self.attempt.claims}
        end = self.clock + self.attempt.binding_timeout
        while True:
            claims = [c for c in self.world.claims.values() if c["metadata"].get("uid") in uids]
            verdict = self.attempt.binding_verdict(claims, self.clock)
            if verdict is not None:
                return verdict
            self.clock += 5
            if self.clock > end:
                text = "device binding timeout: context deadline exceeded"
                return Verdict("Error", text)

    def unreserve(self, node):
        self.attempt.forget(node)
        mine = getattr(self, "special", None)
        if mine is not None:
            self.world.claims.pop((mine["metadata"]["namespace"], mine["metadata"]["name"]))
        uids = {claim["metadata"].get("uid") for claim in self.attempt.claims}
        now = [c for c in self.world.claims.values() if c["metadata"].get("uid") in uids]
        self.store(self.attempt.unreserved(now))
        return None, {}


def normal(value):
    """Leave out what Go's encoding leaves out, and names of devices where any is right."""
    if isinstance(value, dict):
        found = {key: normal(one) for key, one in value.items()}
        return {key: one for key, one in found.items() if one not in (None, {}, [])}
    return [normal(one) for one in value] if isinstance(value, list) else value


def anonymous(text):
    text = re.sub(r'"device": "[^"]*"', '"device": "any"', text)
    return re.sub(
        r"(my-pod|[a-z0-9-]+)-extended-resources-[a-z0-9]+", r"\1-extended-resources-0", text
    )


def check(case):
    if case["gates"].get("DRANodeAllocatableResources"):
        raise Skip("resources of a node that devices take are an alpha that is not acted upon")
    play = Play(case)
    for wanted in case["expect"]["steps"]:
        if wanted["step"] == "concurrent":
            continue
        found = play.step(wanted["step"], wanted.get("node"))
        expect = {k: v for k, v in timed(wanted).items() if k not in ("step", "node")}
        ours, theirs = (
            anonymous(json.dumps(normal(each), sort_keys=True)) for each in (found, expect)
        )
        if ours != theirs:
            return f"{wanted['step']}: got {ours}, expected {theirs}"
    scores = case["expect"].get("scores")
    if scores is not None:
        found = {name: play.attempt.score(name) for name in scores}
        if found != scores:
            return f"scores {found}, expected {scores}"
        if normalize(found) != case["expect"]["normalizedScores"]:
            return f"normalized {normalize(found)}"
    flight = case["expect"].get("preBindPreFlight")
    if flight is not None:
        ours = "Success" if play.attempt.claims or play.attempt.special else "Skip"
        if ours != flight["code"]:
            return f"preBindPreFlight: {ours}"
    return None
