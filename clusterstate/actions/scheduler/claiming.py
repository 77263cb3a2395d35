"""Bind pods that were given devices, claims and binding in one transaction; give claims back.

Upstream writes a pod's claims before it binds the pod, and takes them back if it cannot (PreBind,
Unreserve). Here no claim is held for a pod that is not bound: each such pod is bound by itself, and
if a claim is no longer as it was decided, or the pod cannot be bound, nothing is written.

Rules: dynamicresources.go ``bindClaim``, ``createSpecialClaim`` and ``PostFilter``, v1.36.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

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
from clusterstate.queries.pods import pods_by_id

_CLAIM = "ResourceClaim"


def bind_in_order(
    bindings: Sequence[Binding],
    *,
    snapshot_revision: int,
    now: datetime,
    binder: str,
    beside: OtherSchedulers | None = None,
) -> BindResult:
    """Bind as ``bind_pods`` does; pods that have claims one by one, in their places.

    A gang of which a pod has claims is bound at the place of its first pod, with all of its claims
    in one transaction. Where a pod was refused, those behind it that lean are ``held``.
    """
    if not any(one.claims for one in bindings):
        return bind_pods(
            bindings, snapshot_revision=snapshot_revision, now=now, binder=binder, beside=beside
        )
    bound: list[tuple[int, int]] = []
    refused: dict[int, BindRefusal] = {}
    held: list[int] = []
    for claiming, some in _in_turn(bindings):
        gang = claiming and some[0].gang
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
    """Yield what is bound at once, in order, and whether claims are written with it."""
    gangs: dict[int, list[Binding]] = {one.gang: [] for one in bindings if one.gang and one.claims}
    for one in bindings:
        if one.gang in gangs:
            gangs[one.gang].append(one)
    run: list[Binding] = []
    for one in bindings:
        if not one.claims and one.gang not in gangs:
            run.append(one)
            continue
        if run:
            yield False, run
            run = []
        if one.gang not in gangs:
            yield True, [one]
        elif members := gangs[one.gang]:
            yield True, members
            gangs[one.gang] = []
    if run:
        yield False, run


def _bind_claiming(
    bindings: Sequence[Binding],
    *,
    snapshot_revision: int,
    now: datetime,
    binder: str,
    beside: OtherSchedulers | None,
) -> BindResult:
    """Bind one pod, or a gang as a whole, and write the claims that it was given."""

    def work() -> BindResult:
        with transaction.atomic():
            # Before any row: a batch that holds this lock waits for rows.
            sql.run(LOCK_PLACEMENT)
            for one in bindings:
                _write_claims(one, now)
            plain = [
                msgspec.structs.replace(one, claims=(), leans=len(bindings) > 1, group=one.gang)
                for one in bindings
            ]
            found = bind_pods(
                plain, snapshot_revision=snapshot_revision, now=now, binder=binder, beside=beside
            )
            if len(found.bound) < len(bindings):
                transaction.set_rollback(True)
            return found

    if not bindings:
        return BindResult([])
    try:
        return again_after_deadlock(work)
    except StatusError:
        return BindResult([], {one.pod_id: BindRefusal.CLAIMED for one in bindings})


def _write_claims(binding: Binding, now: datetime) -> None:
    row = pods_by_id([binding.pod_id]).get(binding.pod_id)
    if row is None:
        return  # ``bind_pods`` says so
    user = {"resource": "pods", "name": row.name, "uid": row.uid}
    for claim in binding.claims:
        if is_special(claim):
            _write_special(claim, binding.pod_id, row.namespace, user, now)
        else:
            reserve(claim, user, now)


def reserve(claim: Manifest, user: Manifest, now: datetime, *, stamped: bool = False) -> None:
    """Write a claim's allocation if it was found for this pod, and that the pod uses the claim.

    A claim that was allocated when the pod was decided must still be: its devices may be another
    claim's once they are given back. ``stamped``: with the time of the allocation, from which on
    binding waits for devices.

    Raises:
        StatusError: it is gone or going, was allocated or freed meanwhile, or is full.
    """
    meta, allocation = claim["metadata"], claim["status"]["allocation"]

    def refuse(why: str) -> Conflict:
        return Conflict(f"claim {full_name(claim)} {why}")

    def kept(stored: Manifest) -> Manifest:
        if stored["metadata"].get("uid") != meta.get("uid"):
            raise refuse("is another one now")
        if stored["metadata"].get("deletionTimestamp"):
            raise refuse("got deleted in the meantime")
        return {**stored, "metadata": allocated_claim(stored, allocation)["metadata"]}

    def used(stored: Manifest) -> Manifest:
        status = {**(stored.get("status") or {})}
        if not status.get("allocation"):
            if ALLOCATED_HERE not in claim:
                raise refuse("got deallocated in the meantime")
            status["allocation"] = {**allocation, _STAMP: stamp(now)} if stamped else allocation
        if _unstamped(status["allocation"]) != _unstamped(allocation):
            raise refuse("got allocated elsewhere in the meantime")
        if is_reserved_for(stored, user["uid"]):
            return stored
        if not can_be_reserved({**stored, "status": status}):
            raise refuse("is in use")
        status["reservedFor"] = [*reserved_for(stored), user]
        return {**stored, "status": status}

    where = meta.get("namespace", ""), meta["name"]
    objects.update(_CLAIM, *where, kept, now=now)
    objects.update(_CLAIM, *where, used, now=now, subresource="status")


def release(what: Release, *, now: datetime) -> None:
    """Write that a claim was given back, if it still is as it was when that was decided.

    Raises:
        StatusError: it is gone or another one, or its status is not as it was.
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
        kept = [name for name in meta.get("finalizers") or () if name != FINALIZER]
        return {**stored, "metadata": {**meta, "finalizers": kept}}

    def work() -> None:
        with transaction.atomic():
            objects.update(_CLAIM, *where, given_back, now=now, subresource="status")
            if becomes is None:
                objects.update(_CLAIM, *where, let_go, now=now)
                objects.delete(_CLAIM, *where, now=now)

    again_after_deadlock(work)


def give_back(claim: Manifest, user: Manifest, now: datetime) -> None:
    """Take back what ``reserve`` wrote, as far as nobody else uses the claim."""

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
    """Make the claim for a pod's extended resources, and note it in the pod's status."""
    name, uid = user["name"], user["uid"]
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid,
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    kept = ("annotations", "finalizers")
    meta = {key: claim["metadata"][key] for key in kept if key in claim["metadata"]}
    meta |= {
        "generateName": f"{name}-extended-resources-", "namespace": namespace,
        "ownerReferences": [owner],
    }  # fmt: skip
    what = {"apiVersion": "resource.k8s.io/v1", "kind": _CLAIM}
    stored = objects.create(
        _CLAIM, namespace, {**what, "metadata": meta, "spec": claim["spec"]}, now=now
    )
    made = msgspec.json.decode(stored.manifest)["metadata"]["name"]
    status = {"allocation": claim["status"]["allocation"], "reservedFor": [user]}
    objects.update(
        _CLAIM,
        namespace,
        made,
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
        told = {"requestMappings": mappings, "resourceClaimName": made}
        return {**old, "status": {**(old.get("status") or {}), "extendedResourceClaimStatus": told}}

    rewrite_pod(pod_id, noted, now=now)
