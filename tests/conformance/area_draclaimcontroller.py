"""The resource claim controller: claims of templates, and claims that nobody uses any more."""

import json
import re

from clusterstate.objects.dra.claimcontroller import sync_claim, sync_owner
from clusterstate.objects.dra.resourceclaim import ClaimError, group_name


def in_namespace(objects, namespace):
    found = [one for one in objects or () if one["metadata"].get("namespace") == namespace]
    return {one["metadata"]["name"]: one for one in found}


def run(case):
    kind, _, name = case["key"].partition(":")
    namespace, _, name = name.partition("/")
    claims = {(c["metadata"].get("namespace"), c["metadata"]["name"]): c for c in case["claims"]}
    made_before = case.get("claimsInCache") or ()  # and not in the API any more, or not yet
    here = list(in_namespace([*case["claims"], *made_before], namespace).values())
    groups = in_namespace(case["podGroups"], namespace)
    workload = case["gates"].get("DRAWorkloadResourceClaims", False)
    pods = in_namespace([*case["pods"], *(case.get("podsUnseen") or ())], namespace)
    templates = in_namespace(case["templates"], namespace)
    statuses = {"Pod": {}, "PodGroup": {}}
    for one, of in ((p, "Pod") for p in case["pods"]):
        if found := (one.get("status") or {}).get("resourceClaimStatuses"):
            statuses[of][one["metadata"]["name"]] = found
    for one in case["podGroups"]:
        if found := (one.get("status") or {}).get("resourceClaimStatuses"):
            statuses["PodGroup"][one["metadata"]["name"]] = found
    if kind == "claim":
        claim = claims.get((namespace, name))
        outcome = sync_claim(claim, pods.get, groups.get) if claim is not None else None
    else:
        of = "Pod" if kind == "pod" else "PodGroup"
        owner = in_namespace(case["pods"] if kind == "pod" else case["podGroups"], namespace).get(
            name
        )
        group = groups.get(group_name(owner) or "") if owner and of == "Pod" and workload else None
        outcome = owner and sync_owner(
            owner, of, here, templates.get, group=group,
            admin_access=case["gates"].get("DRAAdminAccess", True),
        )  # fmt: skip
    if outcome:
        for entry, made in outcome.create:
            for fault in case.get("apiFaults") or ():
                what = (
                    f"{of} {namespace}/{name}, {of}ResourceClaim {entry}: create ResourceClaim : "
                )
                return {
                    "error": (what[0].lower() + what[1:] if of == "Pod" else what) + fault["error"]
                }
            made["metadata"]["name"] = made["metadata"]["generateName"] + "-1"
            claims[namespace, made["metadata"]["name"]] = made
            new = {"name": entry, "resourceClaimName": made["metadata"]["name"]}
            outcome.statuses = [*(outcome.statuses or ()), new]
        if outcome.statuses is not None:
            statuses[of][name] = outcome.statuses
        for claim in outcome.update:
            claims[claim["metadata"].get("namespace"), claim["metadata"]["name"]] = claim
        for claim in outcome.delete:
            del claims[claim["metadata"].get("namespace"), claim["metadata"]["name"]]
    return {
        "claims": list(claims.values()),
        "podStatuses": statuses["Pod"],
        "podGroupStatuses": statuses["PodGroup"],
    }


def normal(found):
    claims = sorted(json.dumps(one, sort_keys=True) for one in found.pop("claims", ()))
    text = json.dumps([claims, found], sort_keys=True)
    return re.sub(r"-resource-[a-z0-9-]*", "-resource-any", text)


def check(case):
    try:
        found = run(case)
    except ClaimError as error:
        found = {"error": str(error)}
    expect = case["expect"]
    if "error" in expect and "error" in found and case.get("apiFaults"):
        # What the server says of the injected fault is the recording's own text.
        found["error"], expect = (
            found["error"].partition("create ")[0],
            {"error": expect["error"].partition("create ")[0]},
        )
    ours, theirs = normal(found), normal(dict(expect))
    if case["key"].startswith("claim:"):
        # Statuses are told where the key is their owner's.
        ours, theirs = (text.replace("{}", "") for text in (ours, theirs))
    return None if ours == theirs else f"got {ours}, expected {theirs}"
