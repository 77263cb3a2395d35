"""Creates claims of devices from templates, and frees devices when nothing uses them any more.

As kube-controller-manager's resourceclaim controller; the rules are in
``clusterstate.objects.dra.claimcontroller``. One transaction writes a claim and its name in the
pod's status, so that a pod never has two. Namespaces without claims and templates cost nothing.
Pods that the scheduler binds are in their claims' status already; this adds pods that others bound.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import Final

import msgspec
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.actions.pods.rewrite import rewrite_pods
from clusterstate.objects.dra.claimcontroller import Outcome, sync_claim, sync_owner
from clusterstate.objects.dra.resourceclaim import ClaimError, is_reserved_for, reserved_for
from clusterstate.objects.values.errors import NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.objects.workloads import namespaces_with
from clusterstate.queries.pods import claiming_pods, find_pod
from scheduling.controllers import by_namespace

NAME: Final = "resource-claims"
_CLAIM, _TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_TOGETHER: Final = 100
"""The claims of this many pods are made in one transaction."""
_MOST_TEMPLATES: Final = 256


def follow(now: datetime) -> int:
    """Process the namespaces with claims or templates and changes; return how many."""
    return by_namespace.follow(
        NAME,
        now,
        kinds=("Pod", _CLAIM, _TEMPLATE),
        present=lambda cursor, mark: set(namespaces_with([_CLAIM, _TEMPLATE])),
        sync=lambda namespace: sync(namespace, now),
    )


def sync(namespace: str, now: datetime) -> datetime | None:
    """Update the claims of a namespace; return when to retry what was refused."""
    refused = False
    pods = {pod_id: decode_object(item) for pod_id, item in claiming_pods(namespace).items()}
    by_name = {claim["metadata"]["name"]: claim for claim in _claims(namespace)}
    by_owner: dict[str, list[Manifest]] = {}
    for claim in by_name.values():
        for owner in claim["metadata"].get("ownerReferences") or ():
            by_owner.setdefault(owner.get("uid", ""), []).append(claim)
    claims_of = {
        pod_id: [
            *[by_name[name] for name in _names(pod) if name in by_name],
            *by_owner.get(pod["metadata"]["uid"], ()),
        ]
        for pod_id, pod in pods.items()
    }
    template = lru_cache(_MOST_TEMPLATES)(partial(_template, namespace))
    done = _make_together(pods, claims_of, template, now)

    def has_all(pod_id: int) -> bool:
        return pod_id in done or _sync_pod(pod_id, pods[pod_id], claims_of[pod_id], template, now)

    for pod_id in pods:  # done pods too: they are no longer set aside
        work = partial(has_all, pod_id)
        refused |= not aside.one(NAME, aside.pod(pod_id), work, now=now, instead=lambda: False)
    pods_by_name = {pod["metadata"]["name"]: pod for pod in pods.values()}

    def pod_named(name: str) -> Manifest | None:
        if name not in pods_by_name and (found := find_pod(namespace, name)) is not None:
            pods_by_name[name] = decode_object(found)
        return pods_by_name.get(name)

    for claim in by_name.values():  # a claim created in this pass has no devices
        which = ObjectRef(_CLAIM, name=f"{namespace}/{claim['metadata']['name']}")
        look = partial(_sync_claim, claim, pod_named, now)
        aside.one(NAME, which, look, now=now, instead=lambda: None)
    return now + by_namespace.AGAIN if refused else None


def _names(pod: Manifest) -> Iterator[str]:
    """Yield the names of claims in a pod's spec and status."""
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            yield entry["resourceClaimName"]
    for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if entry.get("resourceClaimName"):
            yield entry["resourceClaimName"]


def _claims(namespace: str) -> list[Manifest]:
    return [decode_object(item) for item in list_page(_CLAIM, namespace).items]


def _template(namespace: str, name: str) -> Manifest | None:
    found = find_object(_TEMPLATE, namespace, name)
    return None if found is None else decode_object(found)


def _make_together(
    pods: Mapping[int, Manifest],
    claims_of: Mapping[int, list[Manifest]],
    template: Callable[[str], Manifest | None],
    now: datetime,
) -> set[int]:
    """Create the claims that pods lack, many in one transaction; return the pods that have all.

    Left out are pods that lack something else as well, and all pods of a transaction that fails
    because of one of them.

    Raises:
        django.db.Error: the database fails, not the claims (``aside.is_an_objects_fault``).
    """
    new: list[tuple[int, Manifest, Outcome]] = []
    done: set[int] = set()
    for pod_id, pod in pods.items():
        with suppress(Exception):  # the work on the single pod fails alike, and reports it
            outcome = sync_owner(pod, "Pod", claims_of[pod_id], template)
            if outcome.update:
                continue
            if outcome.statuses is None:
                done.add(pod_id)
            else:
                new.append((pod_id, pod, outcome))
    for first in range(0, len(new), _TOGETHER):
        some = new[first : first + _TOGETHER]
        try:
            with transaction.atomic():
                _make_all(some, now)
        except Exception as error:
            if not aside.is_an_objects_fault(error):
                raise
        else:
            done.update(pod_id for pod_id, _, _ in some)
    return done


class _Gone(Exception):
    """A pod was deleted before its claims were created."""


def _make_all(some: Sequence[tuple[int, Manifest, Outcome]], now: datetime) -> None:
    """Create claims, and write the names of all of each pod's claims into its status.

    Raises:
        StatusError: one was refused.
        _Gone: a pod is gone.
    """
    new_claims = [
        (_CLAIM, pod["metadata"]["namespace"], claim)
        for _, pod, outcome in some
        for _, claim in outcome.create
    ]
    stored = iter(objects.create_all(new_claims, now=now))
    changes = []
    for pod_id, pod, outcome in some:
        statuses = list(outcome.statuses or ())
        for entry, _ in outcome.create:
            name = msgspec.json.decode(next(stored).manifest)["metadata"]["name"]
            statuses.append({"name": entry, "resourceClaimName": name})
        meta = pod["metadata"]
        changes.append((pod_id, meta["namespace"], meta["name"], partial(_named, statuses)))
    if rewrite_pods(changes, now=now) < len(some):
        raise _Gone


def _named(statuses: list[Manifest], old: Manifest) -> Manifest:
    return {**old, "status": {**(old.get("status") or {}), "resourceClaimStatuses": statuses}}


def _sync_pod(
    pod_id: int,
    pod: Manifest,
    claims: list[Manifest],
    template: Callable[[str], Manifest | None],
    now: datetime,
) -> bool:
    """Create the claims that a pod lacks; False if one was refused, such as by a quota."""
    namespace = pod["metadata"]["namespace"]
    try:
        outcome = sync_owner(pod, "Pod", claims, template)
        if outcome.statuses is not None:
            with suppress(_Gone), transaction.atomic():
                _make_all([(pod_id, pod, outcome)], now)
    except (ClaimError, StatusError) as error:
        problem = Occurrence(
            kind="Pod", namespace=namespace, name=pod["metadata"]["name"],
            uid=pod["metadata"]["uid"], type="Warning", reason="FailedResourceClaimCreation",
            message=str(error),
        )  # fmt: skip
        events.record_many([problem], now=now)
        return isinstance(error, ClaimError)
    for claim in outcome.update:
        _add_user(claim, pod["metadata"]["uid"], now)
    return True


def _add_user(claim: Manifest, uid: str, now: datetime) -> None:
    users = [user for user in reserved_for(claim) if user.get("uid") == uid]

    def used(stored: Manifest) -> Manifest:
        status = stored.get("status") or {}
        if not status.get("allocation") or is_reserved_for(stored, uid):
            return stored
        return {**stored, "status": {**status, "reservedFor": [*reserved_for(stored), *users]}}

    _write(claim, used, "status", now)


def _sync_claim(
    claim: Manifest, pod_named: Callable[[str], Manifest | None], now: datetime
) -> None:
    outcome = sync_claim(claim, pod_named)

    def changed(stored: Manifest) -> Manifest:
        return next(iter(sync_claim(stored, pod_named).update), stored)

    if outcome.update:
        with transaction.atomic():
            _write(claim, changed, "status", now)
            _write(claim, changed, "", now)
    for one in outcome.delete:
        meta = one["metadata"]
        try:
            objects.delete(_CLAIM, meta["namespace"], meta["name"], now=now)
        except NotFound:
            continue


def _write(
    claim: Manifest, change: Callable[[Manifest], Manifest], subresource: str, now: datetime
) -> None:
    meta = claim["metadata"]
    try:
        objects.update(
            _CLAIM, meta["namespace"], meta["name"], change, now=now, subresource=subresource
        )
    except NotFound:
        return
