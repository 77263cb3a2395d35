"""Claims: whose they are, what requests take, what all of them hold, extended resources."""

from clusterstate.objects.dra import capacity, extended, resourceclaim, scoring
from clusterstate.objects.dra.allocated import AllocatedState
from clusterstate.objects.values.quantity import Quantity


def found_in(call):
    try:
        return call()
    except resourceclaim.ClaimError as error:
        return {"error": str(error)}


def belongs(claim, owner, kind, **more):
    try:
        resourceclaim.is_for(claim, owner, kind, **more)
    except resourceclaim.ClaimError as error:
        return {"result": False, "error": str(error)}
    return {"result": True}


def name_of(owner, entry, kind):
    def call():
        name, must_check = resourceclaim.claim_name(owner, entry, kind)
        return {**({} if name is None else {"claimName": name}), "mustCheckOwner": must_check}

    return found_in(call)


def allocated(case):
    state = AllocatedState()
    for claim in [*case["claims"], *(case.get("inFlight") or {}).values()]:
        state.take(claim, consumable=case["consumableCapacity"])
    total = {}
    for amounts in state.consumed.values():
        capacity.add(total, amounts)
    found = {"devices": len(state.devices), "sharedDevices": len(state.shares)}
    whole = sum(amount.value() for amount in total.values())
    return {**found, **({"consumedCapacity": str(whole)} if whole else {})}


def by_extended_resources(case):
    classes = case.get("classes") or {}
    requests, mappings = extended.requests_and_mappings(
        case["pod"], case.get("extendedResources") or (), classes.get
    )
    found = {"requests": requests, "mappings": mappings}
    return {key: value for key, value in found.items() if value}


def normalized(case):
    scores = scoring.normalize({entry["Name"]: entry["Score"] for entry in case["input"]})
    return {"result": [{"Name": name, "Score": score} for name, score in scores.items()]}


OPERATIONS = {
    "isForPod": lambda c: belongs(c["claim"], c["pod"], "Pod", or_group=c["acceptPodGroup"]),
    "isForPodGroup": lambda c: belongs(c["claim"], c["podGroup"], "PodGroup"),
    "isReservedForPod": lambda c: {
        "result": resourceclaim.is_reserved_for_pod(
            c["claim"], c["pod"], accept_pod_group=c["acceptPodGroup"]
        )
    },
    "claimName": lambda c: name_of(c["pod"], c["podClaim"], "Pod"),
    "claimNameFromPodGroup": lambda c: name_of(c["podGroup"], c["podGroupClaim"], "PodGroup"),
    "toleratesDeviceTaint": lambda c: {
        "result": resourceclaim.tolerates(c["toleration"], c["taint"])
    },
    "podExtendedStatusEqual": lambda c: {"result": extended.status_equal(c.get("a"), c.get("b"))},
    "violatesCapacityPolicy": lambda c: {
        "result": capacity.violates_policy(Quantity.parse(c["requested"]), c.get("requestPolicy"))
    },
    "consumedCapacity": lambda c: {
        "result": str(
            capacity.consumed_capacity(
                Quantity.parse(c["requested"]) if "requested" in c else None, c["capacity"]
            )
        )
    },
    "computeScore": lambda c: {"score": scoring.allocation_score(c["claims"], c["allocations"])},
    "normalizeScore": normalized,
    "allocatedState": allocated,
    "extendedResources": by_extended_resources,
}


def check(case):
    found = OPERATIONS[case["op"]](case)
    if case["op"] == "extendedResources":
        # The order of mappings is no part of the rule.
        for side in (found, case["expect"]):
            side["mappings"] = sorted(side.get("mappings") or (), key=lambda m: sorted(m.items()))
    return None if found == case["expect"] else f"got {found}, expected {case['expect']}"
