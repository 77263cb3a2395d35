"""Ownership of claims, reservations of them, and the claims that a pod uses.

Rules: k8s.io/dynamic-resource-allocation ``resourceclaim/claim.go``, ``devicetoleration.go``,
``pod.go``, v1.36.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from clusterstate.objects.values.meta import Manifest

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Keeps a claim while it is allocated (resource/v1 ``Finalizer``)."""
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a made claim: the pod's own name for it."""
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of the claim that the scheduler makes for extended resources."""
MOST_RESERVED: Final = 256
"""Users that one claim can have at a time (resource/v1 ``ResourceClaimReservedForMaxSize``)."""


class ClaimError(ValueError):
    """A claim is missing or does not belong to the pod; the text is the same as in Kubernetes."""


class NotCreatedYet(ClaimError):
    """The claim of a template is not made yet."""


def full_name(manifest: Manifest) -> str:
    """Return ``namespace/name``, or the name alone (klog.KObj)."""
    meta = manifest.get("metadata") or {}
    namespace = meta.get("namespace")
    return f"{namespace}/{meta.get('name', '')}" if namespace else str(meta.get("name", ""))


def _controlled_by(claim: Manifest, owner: Manifest) -> bool:
    for reference in (claim.get("metadata") or {}).get("ownerReferences") or ():
        if reference.get("controller"):
            return bool(reference.get("uid") == owner["metadata"].get("uid"))
    return False


def is_for(claim: Manifest, owner: Manifest, kind: str, *, or_group: bool = False) -> None:
    """Check that a claim made from a template belongs to a Pod or PodGroup (``IsForPod``).

    ``or_group``: the claim of a pod may belong to the pod's group (``IsForPodGroup``).

    Raises:
        ClaimError: another namespace, or another owner.
    """
    same = claim["metadata"].get("namespace") == owner["metadata"].get("namespace")
    if not same:
        raise ClaimError(
            f"ResourceClaim {full_name(claim)} is not in the same namespace as {kind} "
            f"{full_name(owner)}"
        )
    group = group_name(owner) if or_group else None
    if _controlled_by(claim, owner) or (group and _is_of_group(claim, group)):
        return
    why = f"neither Pod nor PodGroup {group} is the owner" if group else f"{kind} is not owner"
    raise ClaimError(
        f"ResourceClaim {full_name(claim)} was not created for {kind} {full_name(owner)} ({why})"
    )


def _is_of_group(claim: Manifest, group: str) -> bool:
    return any(
        reference.get("controller")
        and reference.get("kind") == "PodGroup"
        and str(reference.get("apiVersion")).startswith("scheduling.k8s.io/")
        and reference.get("name") == group
        for reference in (claim.get("metadata") or {}).get("ownerReferences") or ()
    )


def reserved_for(claim: Manifest) -> list[Manifest]:
    """Return the consumers of a claim (``status.reservedFor``)."""
    return (claim.get("status") or {}).get("reservedFor") or []


def is_reserved_for(claim: Manifest, uid: str) -> bool:
    """Return whether a claim is reserved for what has this UID."""
    return any(consumer.get("uid") == uid for consumer in reserved_for(claim))


def group_name(pod: Manifest) -> str | None:
    """Return the name of the pod's PodGroup."""
    return ((pod["spec"].get("schedulingGroup") or {}).get("podGroupName")) or None


def is_reserved_for_pod(claim: Manifest, pod: Manifest, *, accept_pod_group: bool = False) -> bool:
    """Return whether a claim is reserved for a pod, or for its group where that counts."""
    group = group_name(pod) if accept_pod_group else None
    for consumer in reserved_for(claim):
        if consumer.get("uid") == pod["metadata"].get("uid"):
            return True
        if (
            group is not None
            and consumer.get("apiGroup") == "scheduling.k8s.io"
            and consumer.get("resource") == "podgroups"
            and consumer.get("name") == group
        ):
            return True
    return False


def can_be_reserved(claim: Manifest) -> bool:
    """Return whether a claim may have one more consumer (at most ``MOST_RESERVED``)."""
    return len(reserved_for(claim)) < MOST_RESERVED


def claim_name(
    owner: Manifest, entry: Mapping[str, Any], kind: str = "Pod"
) -> tuple[str | None, bool]:
    """Return the claim's name for an entry of a pod or group, and whether the owner must own it.

    The name is ``None`` if no claim is needed.

    Raises:
        NotCreatedYet: the claim of a template does not exist yet.
        ClaimError: the entry names neither a claim nor a template.
    """
    if entry.get("resourceClaimName") is not None:
        return entry["resourceClaimName"], False
    if entry.get("resourceClaimTemplateName") is None:
        raise ClaimError(
            f"{_named(owner, kind)}, spec.resourceClaim {entry['name']}: none of the supported "
            "fields are set"
        )
    for status in (owner.get("status") or {}).get("resourceClaimStatuses") or ():
        if status["name"] == entry["name"]:
            return status.get("resourceClaimName"), True
    raise NotCreatedYet(f"{_named(owner, kind)}: ResourceClaim not created yet")


def _named(owner: Manifest, kind: str) -> str:
    return f'pod "{full_name(owner)}"' if kind == "Pod" else f"{kind} {full_name(owner)}"


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether a device toleration covers a taint (``ToleratesTaint``)."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case "Exists":
            return True
    return False


def pod_claims(pod: Manifest) -> Iterable[Manifest]:
    """Return the entries of the pod's ``resourceClaims``."""
    return pod["spec"].get("resourceClaims") or ()


def asked_devices(claim: Manifest) -> Manifest:
    """Return ``spec.devices`` of a claim; empty if the claim requests none."""
    return (claim.get("spec") or {}).get("devices") or {}


def requests_of(claim: Manifest) -> list[Manifest]:
    """Return the device requests of a claim."""
    return asked_devices(claim).get("requests") or []


def device_requests(claim: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Yield each request and subrequest with its name in results: ``request[/subrequest]``."""
    for request in requests_of(claim):
        if request.get("exactly") is not None:
            yield request["name"], request["exactly"]
        for sub in request.get("firstAvailable") or ():
            yield f"{request['name']}/{sub['name']}", sub
