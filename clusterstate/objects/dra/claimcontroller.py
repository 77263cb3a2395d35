"""Claims from templates, and unused claims: the resource claim controller.

Rules: pkg/controller/resourceclaim/controller.go, v1.36. Functions take manifests and return
changed claims and statuses; the caller writes them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from clusterstate.objects.dra.resourceclaim import (
    FINALIZER,
    POD_CLAIM_NAME,
    ClaimError,
    NotCreatedYet,
    can_be_reserved,
    claim_name,
    full_name,
    is_for,
    is_reserved_for,
    requests_of,
    reserved_for,
)
from clusterstate.objects.values.meta import Manifest

_GROUPS = "scheduling.k8s.io"


class Outcome(msgspec.Struct):
    """The result of processing a pod, a group or a claim.

    ``create``: claims with ``generateName``, and the entry that each is for; ``statuses``: the
    owner's ``resourceClaimStatuses`` without those, ``None`` where nothing changes; ``update``:
    claims as they become; ``delete``: claims that go.
    """

    create: list[tuple[str, Manifest]] = []
    statuses: list[Manifest] | None = None
    update: list[Manifest] = []
    delete: list[Manifest] = []


def is_done(pod: Manifest) -> bool:
    """Return whether a pod runs no more, or never will."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    going = pod["metadata"].get("deletionTimestamp") is not None
    return going and not pod["spec"].get("nodeName")


def made_for(claim: Manifest, owner: Manifest, entry: str) -> bool:
    """Return whether a claim was created for an entry of a pod or PodGroup."""
    annotations = claim["metadata"].get("annotations") or {}
    return annotations.get(POD_CLAIM_NAME) == entry and any(
        one.get("controller") and one.get("uid") == owner["metadata"].get("uid")
        for one in claim["metadata"].get("ownerReferences") or ()
    )


def sync_owner(
    owner: Manifest,
    kind: str,
    claims: Iterable[Manifest],
    template: Callable[[str], Manifest | None],
    *,
    group: Manifest | None = None,
    admin_access: bool = True,
) -> Outcome:
    """Return the claims that a pod or PodGroup needs from templates, and their names in its status.

    ``claims`` are those of the namespace; ``group``: the pod's group, if groups have claims.

    Raises:
        ClaimError: a template is missing or cannot be used.
    """
    outcome = Outcome()
    if owner["metadata"].get("deletionTimestamp") or (kind == "Pod" and is_done(owner)):
        return outcome
    here = list(claims)
    by_name = {one["metadata"]["name"]: one for one in here}
    statuses = list((owner.get("status") or {}).get("resourceClaimStatuses") or ())
    count = len(statuses)
    for entry in owner["spec"].get("resourceClaims") or ():
        name = entry["name"]
        if entry.get("resourceClaimTemplateName") is None:
            continue
        of_group = group is not None and entry in (group["spec"].get("resourceClaims") or ())
        made_by = group if of_group and group is not None else owner
        try:
            claim, _ = claim_name(owner, entry, kind)
        except NotCreatedYet:
            claim = ""
        if claim is None or claim in by_name:
            if claim and made_by is owner:
                is_for(by_name[claim], owner, kind)
            continue
        found = next((one for one in here if made_for(one, made_by, name)), None)
        if found is not None:
            statuses = [one for one in statuses if one["name"] != name]
            statuses.append({"name": name, "resourceClaimName": found["metadata"]["name"]})
            count = -1
        elif made_by is owner:
            try:
                claim_ = new_claim(owner, kind, entry, template, admin_access=admin_access)
            except ClaimError as error:
                what = "pod" if kind == "Pod" else kind
                text = f"{what} {full_name(owner)}, {kind}ResourceClaim {name}: {error}"
                raise ClaimError(text) from None
            statuses = [one for one in statuses if one["name"] != name]
            outcome.create.append((name, claim_))
            count = -1
    if count < 0:
        outcome.statuses = statuses
    if kind == "Pod" and owner["spec"].get("nodeName"):
        _reserve(owner, by_name, outcome)
    return outcome


def _reserve(pod: Manifest, claims: Mapping[str, Manifest], outcome: Outcome) -> None:
    """Reserve allocated claims for a pod that a client bound without the scheduler."""
    for entry in pod["spec"].get("resourceClaims") or ():
        try:
            name, must_own = claim_name(pod, entry)
            claim = claims[name or ""]
            if must_own:
                is_for(claim, pod, "Pod")
        except (ClaimError, KeyError):
            continue
        status = claim.get("status") or {}
        if status.get("allocation") is None or not can_be_reserved(claim):
            continue
        meta = pod["metadata"]
        if not is_reserved_for(claim, meta.get("uid", "")):
            user = {"resource": "pods", "name": meta["name"], "uid": meta.get("uid", "")}
            users = [*reserved_for(claim), user]
            outcome.update.append({**claim, "status": {**status, "reservedFor": users}})


def new_claim(
    owner: Manifest,
    kind: str,
    entry: Mapping[str, Any],
    template: Callable[[str], Manifest | None],
    *,
    admin_access: bool = True,
) -> Manifest:
    """Return the claim that an entry's template makes for a pod or group.

    Raises:
        ClaimError: there is no such template, or it asks for what is switched off.
    """
    name = entry["resourceClaimTemplateName"]
    found = template(name)
    if found is None:
        raise ClaimError(
            f'resource claim template "{name}": '
            f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
        )
    of_template = found["spec"]
    asks = any((one.get("exactly") or {}).get("adminAccess") for one in requests_of(of_template))
    if asks and not admin_access:
        raise ClaimError("admin access is requested, but the feature is disabled")
    meta, own = owner["metadata"], of_template.get("metadata") or {}
    version = "v1" if kind == "Pod" else owner.get("apiVersion", f"{_GROUPS}/v1alpha2")
    metadata: Manifest = {
        "generateName": f"{meta['name']}-{entry['name']}-",
        "namespace": meta.get("namespace", ""),
        "annotations": {**(own.get("annotations") or {}), POD_CLAIM_NAME: entry["name"]},
        "ownerReferences": [
            {
                "apiVersion": version, "kind": kind, "name": meta["name"],
                "uid": meta.get("uid", ""), "controller": True,
            }
        ],
    }  # fmt: skip
    if labels := own.get("labels"):
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": of_template.get("spec") or {}}


def sync_claim(
    claim: Manifest,
    pod: Callable[[str], Manifest | None],
    group: Callable[[str], Manifest | None] = lambda name: None,
) -> Outcome:
    """Return the changes of a claim whose users are gone: released, deallocated, deleted.

    ``pod`` and ``group`` return a stored object by name in the claim's namespace.
    """
    outcome = Outcome()
    users = reserved_for(claim)
    valid = [user for user in users if _still_uses(user, pod, group)]
    status = dict(claim.get("status") or {})
    new = claim
    if len(valid) < len(users):
        status["reservedFor"] = valid
    if not valid:
        status.pop("reservedFor", None)
        finalizers = claim["metadata"].get("finalizers") or []
        if FINALIZER in finalizers:
            for field in ("allocation", "devices"):
                status.pop(field, None)
            others = [one for one in finalizers if one != FINALIZER]
            meta = {key: v for key, v in claim["metadata"].items() if key != "finalizers"}
            new = {**claim, "metadata": {**meta, "finalizers": others} if others else meta}
    new = {key: value for key, value in new.items() if key != "status"}
    if status or claim.get("status") == {}:  # an empty one that is stored is no change
        new["status"] = status
    if not valid and _is_of_done_pod(claim, pod):
        outcome.delete.append(new)
    if new != claim:
        outcome.update.append(new)
    return outcome


def _still_uses(
    user: Mapping[str, Any],
    pod: Callable[[str], Manifest | None],
    group: Callable[[str], Manifest | None],
) -> bool:
    name, uid = user["name"], user.get("uid")
    if not user.get("apiGroup") and user.get("resource") == "pods":
        found = pod(name)
        return found is not None and found["metadata"].get("uid") == uid and not is_done(found)
    if user.get("apiGroup") == _GROUPS and user.get("resource") == "podgroups":
        found = group(name)
        return found is not None and found["metadata"].get("uid") == uid
    return True  # whoever put it there takes it away


def _is_of_done_pod(claim: Manifest, pod: Callable[[str], Manifest | None]) -> bool:
    """Return whether a claim was created for a pod that still exists and has finished."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "Pod":
            found = pod(owner["name"])
            return (
                found is not None
                and found["metadata"].get("uid") == owner.get("uid")
                and is_done(found)
            )
    return False
