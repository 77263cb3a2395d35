"""Binds pods with device claims, claims and binding in one transaction; releases claims.

kube-scheduler writes a pod's claims before it binds the pod, and releases them if it cannot
(PreBind, Unreserve). Here no claim is reserved for an unbound pod: if a claim has changed since the
decision, or its pod cannot be bound, nothing is written of either. Consecutive pods with claims are
bound together, and each by itself if that fails.

Rules: dynamicresources.go ``bindClaim``, ``createSpecialClaim`` and ``PostFilter``, v1.36.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import (
    LOCK_PLACEMENT,
    Binding,
    BindRefusal,
    BindResult,
    OtherSchedulers,
    bind_pods,
)
from clusterstate.actions.pods.rewrite import rewrite_pod
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.database import sql
from clusterstate.objects.dra.attempt import (
    ALLOCATED_HERE,
    MAPPINGS,
    Release,
    allocated_claim,
    is_special,
    stamp,
)
from clusterstate.objects.dra.resourceclaim import (
    FINALIZER,
    can_be_reserved,
    full_name,
    is_reserved_for,
    reserved_for,
)
from clusterstate.objects.values.errors import Conflict, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import not_found
from clusterstate.queries.pods import pods_by_id

_CLAIM = "ResourceClaim"
_TOGETHER: Final = 250
"""This many pods with claims are bound in one transaction."""


def bind_in_order(
    bindings: Sequence[Binding],
    *,
    snapshot_revision: int,
    now: datetime,
    binder: str,
    beside: OtherSchedulers | None = None,
) -> BindResult:
    """Bind as ``bind_pods`` does, in order; pods with claims are bound together with these.

    A gang with a claiming pod is bound at the place of its first pod, with all of its claims in one
    transaction. If a pod was refused, later ones that lean on it are ``held``.
    """
    if not any(one.claims for one in bindings):
        return bind_pods(
            bindings, snapshot_revision=snapshot_revision, now=now, binder=binder, beside=beside
        )
    bound: list[tuple[int, int]] = []
    refused: dict[int, BindRefusal] = {}
    held: list[int] = []
    turns = deque(_in_turn(bindings))
    while turns:
        claiming, some = turns.popleft()
        gang = claiming and some[0].gang
        if claiming and not gang and len(some) > 1:
            together = BindResult([])
            if not refused and not held:
                together = _bind_claiming(
                    some, snapshot_revision=snapshot_revision, now=now, binder=binder, beside=beside
                )
            bound += together.bound
            if not together.bound:
                turns.extendleft((True, [one]) for one in reversed(some))
            continue
        waiting = set() if gang else {one.pod_id for one in some if one.leans and (refused or held)}
        held += waiting
        able = [one for one in some if one.pod_id not in waiting]
        work = _bind_claiming if claiming else bind_pods
        found = work(
            able, snapshot_revision=snapshot_revision, now=now, binder=binder, beside=beside
        )
        bound += found.bound
        refused |= found.refused
        held += found.held
    return BindResult(bound, refused, held)


def _in_turn(bindings: Sequence[Binding]) -> Iterator[tuple[bool, list[Binding]]]:
    """Yield groups of bindings that are written at once, in order, and whether they have claims."""
    gangs: dict[int, list[Binding]] = {one.gang: [] for one in bindings if one.gang and one.claims}
    for one in bindings:
        if one.gang in gangs:
            gangs[one.gang].append(one)
    run: list[Binding] = []
    for one in bindings:
        if one.gang in gangs:
            if run:
                yield bool(run[0].claims), run
                run = []
            if members := gangs[one.gang]:
                yield True, members
                gangs[one.gang] = []
            continue
        full = len(run) == _TOGETHER and bool(one.claims)
        if run and (full or bool(run[0].claims) != bool(one.claims)):
            yield bool(run[0].claims), run
            run = []
        run.append(one)
    if run:
        yield bool(run[0].claims), run


def _bind_claiming(
    bindings: Sequence[Binding],
    *,
    snapshot_revision: int,
    now: datetime,
    binder: str,
    beside: OtherSchedulers | None,
) -> BindResult:
    """Bind pods, all or none, and write their claims."""

    def work() -> BindResult:
        with transaction.atomic():
            # Before any row: a batch that holds this lock waits for rows.
            sql.run(LOCK_PLACEMENT)
            _write_claims(bindings, now)
            plain = [
                msgspec.structs.replace(one, leans=len(bindings) > 1, group=one.gang)
                for one in bindings
            ]
            found = bind_pods(
                plain, snapshot_revision=snapshot_revision, now=now, binder=binder, beside=beside
            )
            if len(found.bound) < len(bindings):
                transaction.set_rollback(True)
                return msgspec.structs.replace(found, bound=[])
            return found

    if not bindings:
        return BindResult([])
    try:
        return again_after_deadlock(work)
    except StatusError:
        return BindResult([], {one.pod_id: BindRefusal.CLAIMED for one in bindings})


def _write_claims(bindings: Sequence[Binding], now: datetime) -> None:
    rows = pods_by_id([one.pod_id for one in bindings])
    uses: list[tuple[Manifest, Manifest]] = []
    for one in bindings:
        if (row := rows.get(one.pod_id)) is None:
            continue  # ``bind_pods`` reports that
        user = {"resource": "pods", "name": row.name, "uid": row.uid}
        for claim in one.claims:
            if is_special(claim):
                _write_special(claim, one.pod_id, row.namespace, user, now)
            else:
                uses.append((claim, user))
    _reserve_all(uses, now)


def _reserve_all(uses: Sequence[tuple[Manifest, Manifest]], now: datetime) -> None:
    """Do what ``reserve`` does for many claims and their users, without admission.

    Raises:
        StatusError: as ``reserve`` does.
    """
    by_key: dict[tuple[str, str], list[tuple[Manifest, Manifest]]] = {}
    for claim, user in uses:
        key = claim["metadata"].get("namespace", ""), claim["metadata"]["name"]
        by_key.setdefault(key, []).append((claim, user))

    def used(stored: Manifest) -> Manifest:
        for claim, user in by_key[stored["metadata"]["namespace"], stored["metadata"]["name"]]:
            stored = _used(_with_finalizer(stored, claim), claim, user)
        return stored

    for key in by_key.keys() - objects.rewrite_each(_CLAIM, list(by_key), used, now=now):
        raise not_found(_CLAIM, key[1])


def reserve(claim: Manifest, user: Manifest, now: datetime) -> None:
    """Write a claim's allocation if it was made for this pod, and reserve the claim for the pod.

    A claim that was allocated before the decision must still be: after a release its devices may
    belong to another claim. Stores the time of the allocation, from which binding waits for
    devices.

    Raises:
        StatusError: it is gone or terminating, was allocated or released meanwhile, or is full.
    """
    where = claim["metadata"].get("namespace", ""), claim["metadata"]["name"]
    objects.update(_CLAIM, *where, lambda stored: _with_finalizer(stored, claim), now=now)
    objects.update(
        _CLAIM,
        *where,
        lambda stored: _used(stored, claim, user, stamped=stamp(now)),
        now=now,
        subresource="status",
    )


def _refuse(claim: Manifest, why: str) -> Conflict:
    return Conflict(f"claim {full_name(claim)} {why}")


def _with_finalizer(stored: Manifest, claim: Manifest) -> Manifest:
    """Return a stored claim with the finalizer that keeps it while it is allocated."""
    if stored["metadata"].get("uid") != claim["metadata"].get("uid"):
        raise _refuse(claim, "was deleted and created again")
    if stored["metadata"].get("deletionTimestamp"):
        raise _refuse(claim, "got deleted in the meantime")
    metadata = allocated_claim(stored, claim["status"]["allocation"])["metadata"]
    return {**stored, "metadata": metadata}


def _used(stored: Manifest, claim: Manifest, user: Manifest, *, stamped: str = "") -> Manifest:
    """Return a stored claim with the decided allocation and one more user."""
    allocation, status = claim["status"]["allocation"], {**(stored.get("status") or {})}
    if not status.get("allocation"):
        if ALLOCATED_HERE not in claim:
            raise _refuse(claim, "got deallocated in the meantime")
        status["allocation"] = {**allocation, _STAMP: stamped} if stamped else allocation
    if _unstamped(status["allocation"]) != _unstamped(allocation):
        raise _refuse(claim, "got allocated elsewhere in the meantime")
    if is_reserved_for(stored, user["uid"]):
        return stored
    if not can_be_reserved({**stored, "status": status}):
        raise _refuse(claim, "is in use")
    status["reservedFor"] = [*reserved_for(stored), user]
    return {**stored, "status": status}


def release(what: Release, *, now: datetime) -> None:
    """Release a claim, if it is unchanged since the decision.

    Raises:
        StatusError: it is gone or has another uid, or its status changed.
    """
    claim, becomes = what.claim, what.becomes
    where = claim["metadata"].get("namespace", ""), claim["metadata"]["name"]

    def given_back(stored: Manifest) -> Manifest:
        if stored["metadata"].get("uid") != claim["metadata"].get("uid") or (
            (stored.get("status") or {}) != (claim.get("status") or {})
        ):
            raise Conflict(f"claim {full_name(claim)} got changed in the meantime")
        return {**stored, "status": {} if becomes is None else becomes.get("status") or {}}

    def let_go(stored: Manifest) -> Manifest:
        meta = stored["metadata"]
        finalizers = [name for name in meta.get("finalizers") or () if name != FINALIZER]
        return {**stored, "metadata": {**meta, "finalizers": finalizers}}

    def work() -> None:
        with transaction.atomic():
            objects.update(_CLAIM, *where, given_back, now=now, subresource="status")
            if becomes is None:
                objects.update(_CLAIM, *where, let_go, now=now)
                objects.delete(_CLAIM, *where, now=now)

    again_after_deadlock(work)


def give_back(claim: Manifest, user: Manifest, now: datetime) -> None:
    """Undo ``reserve``, unless others use the claim."""

    def freed(stored: Manifest) -> Manifest:
        status = {**(stored.get("status") or {})}
        users = [one for one in reserved_for(stored) if one.get("uid") != user["uid"]]
        status["reservedFor"] = users
        if not users:
            for field in ("reservedFor", "allocation", "devices"):
                status.pop(field, None)
        return {**stored, "status": status}

    meta = claim["metadata"]
    with suppress(NotFound):
        objects.update(
            _CLAIM, meta.get("namespace", ""), meta["name"], freed, now=now, subresource="status"
        )


_STAMP = "allocationTimestamp"


def _unstamped(allocation: Manifest) -> Manifest:
    return {key: value for key, value in allocation.items() if key != _STAMP}


def _write_special(
    claim: Manifest, pod_id: int, namespace: str, user: Manifest, now: datetime
) -> None:
    """Create the claim for a pod's extended resources, and add it to the pod's status."""
    name, uid = user["name"], user["uid"]
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    copied = ("annotations", "finalizers")
    meta = {key: claim["metadata"][key] for key in copied if key in claim["metadata"]}
    meta |= {
        "generateName": f"{name}-extended-resources-", "namespace": namespace,
        "ownerReferences": [owner],
    }  # fmt: skip
    what = {"apiVersion": "resource.k8s.io/v1", "kind": _CLAIM}
    stored = objects.create(
        _CLAIM, namespace, {**what, "metadata": meta, "spec": claim["spec"]}, now=now
    )
    claim_name = msgspec.json.decode(stored.manifest)["metadata"]["name"]
    status = {"allocation": claim["status"]["allocation"], "reservedFor": [user]}
    objects.update(
        _CLAIM,
        namespace,
        claim_name,
        lambda old: {**old, "status": status},
        now=now,
        subresource="status",
    )

    def noted(old: Manifest) -> Manifest:
        spec = old["spec"]
        names = [one["name"] for one in (*(spec.get("initContainers") or ()), *spec["containers"])]
        mappings = [
            {**one, "containerName": names[int(one["containerName"])]} for one in claim[MAPPINGS]
        ]
        note = {"requestMappings": mappings, "resourceClaimName": claim_name}
        return {**old, "status": {**(old.get("status") or {}), "extendedResourceClaimStatus": note}}

    rewrite_pod(pod_id, noted, now=now)
