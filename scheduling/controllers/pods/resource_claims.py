"""Creates claims of devices from templates, and frees devices when nothing uses them any more.

As kube-controller-manager's resourceclaim controller; the rules are in
``clusterstate.objects.dra.claimcontroller``. A pass reads what others changed since the last one;
the first, and those after a refusal or a change of a template, read the whole namespace; so do
those after a claim was deleted before its pod, or was allocated for nobody. One transaction writes
a claim and its name in the pod's status, so that a pod never has two. Namespaces without claims and
templates cost nothing. Pods that the scheduler binds are in their claims' status already; this adds
pods that others bound.
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
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.change_log import actors
from clusterstate.objects.dra.claimcontroller import Outcome, is_done, sync_claim, sync_owner
from clusterstate.objects.dra.resourceclaim import ClaimError, is_reserved_for, reserved_for
from clusterstate.objects.values import actor
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object, find_objects, kind_of
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.objects.workloads import namespaces_with
from clusterstate.queries.pods import claiming_pods
from clusterstate.queries.pods.claim_news import claim_news, claimants
from scheduling.controllers import by_namespace

NAME: Final = "resource-claims"
ACTOR: Final = actor.controller("resource-claim-controller")
_CLAIM, _TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_TOGETHER: Final = 250
"""The claims of this many pods are made, or this many claims released, in one transaction."""
_MOST_TEMPLATES: Final = 256


def follow(now: datetime) -> int:
    """Process the namespaces with claims or templates and changes; return how many."""
    with actor.acting(ACTOR):
        return by_namespace.follow(
            NAME,
            now,
            kinds=("Pod", _CLAIM, _TEMPLATE),
            present=lambda cursor, mark: set(namespaces_with([_CLAIM, _TEMPLATE])),
            sync=lambda namespace: sync(namespace, now),
            sync_changes=lambda namespace, after, mark: _sync_changes(namespace, after, mark, now),
        )


def sync(namespace: str, now: datetime) -> datetime | None:
    """Update the claims of a namespace; return when to retry what was refused."""
    pods = {pod_id: decode_object(item) for pod_id, item in claiming_pods(namespace).items()}
    claims = [decode_object(item) for item in list_page(_CLAIM, namespace).items]
    return _sync(namespace, pods, claims, claims, now)


def _sync_changes(namespace: str, after: int, mark: int, now: datetime) -> datetime | None:
    """Do what ``sync`` does for what others changed after one revision, up to another.

    Nothing is said of claims that this controller changed: it left them as they should be.
    """
    controller, scheduler = map(actors.number, (ACTOR, actor.KUBE_SCHEDULER))
    news = claim_news(namespace, after, mark, controller=controller, scheduler=scheduler)
    if news.templates or _is_missed(namespace, [decode_object(item) for item in news.gone]):
        return sync(namespace, now)
    pods = {pod_id: decode_object(item) for pod_id, item in news.pods.items()}
    left = [*map(decode_object, news.left), *filter(is_done, pods.values())]
    check = {*news.claims, *(name for pod in left for name in _names(pod))}
    names = {*check, *(name for pod in pods.values() for name in _names(pod))}
    claims = find_objects(_CLAIM, [(namespace, name) for name in sorted(names)])
    found = [decode_object(item) for item in claims if item is not None]
    checked = [claim for claim in found if claim["metadata"]["name"] in check]
    if any(_lacks_claims(pod) for pod_id, pod in pods.items() if pod_id not in news.new):
        return sync(namespace, now)  # a claim may be there of which the pod's status says nothing
    if any(_is_idle(claim) for claim in checked if claim["metadata"]["name"] in news.claims):
        return sync(namespace, now)  # a client may have bound pods that use it
    return _sync(namespace, pods, found, checked, now)


def _sync(
    namespace: str,
    pods: Mapping[int, Manifest],
    claims: Sequence[Manifest],
    checked: Sequence[Manifest],
    now: datetime,
) -> datetime | None:
    """Make the claims that pods lack, and release those of ``checked`` that nobody uses.

    ``claims``: those of the pods, and the checked ones. Returns when to retry what was refused.
    """
    refused = False
    by_name = {claim["metadata"]["name"]: claim for claim in claims}
    by_owner: dict[str, list[Manifest]] = {}
    for claim in claims:
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
    aside.each(NAME, sorted(done), lambda some: None, which=aside.pod, now=now)  # no longer aside

    def has_all(pod_id: int) -> bool:
        return _sync_pod(pod_id, pods[pod_id], claims_of[pod_id], template, now)

    for pod_id in pods.keys() - done:
        work = partial(has_all, pod_id)
        refused |= not aside.one(NAME, aside.pod(pod_id), work, now=now, instead=lambda: False)
    users = claimants(namespace, {name for claim in checked for name in _users(claim)})
    failed: list[Manifest] = []
    unused = [claim for claim in checked if not _is_settled(sync_claim(claim, users.get))]
    for first in range(0, len(unused), _TOGETHER):
        aside.each(
            NAME,
            unused[first : first + _TOGETHER],
            partial(_release, users=users, now=now),
            which=lambda one: ObjectRef(_CLAIM, name=one["metadata"]["name"], namespace=namespace),
            now=now,
            instead=failed.append,
        )
    return now + by_namespace.AGAIN if refused or failed else None


def _users(claim: Manifest) -> Iterator[str]:
    """Yield the names of pods that a claim is reserved for, or that own it."""
    for user in reserved_for(claim):
        yield user["name"]
    for owner in claim["metadata"].get("ownerReferences") or ():
        yield owner["name"]


def _is_settled(outcome: Outcome) -> bool:
    return not outcome.update and not outcome.delete


def _is_missed(namespace: str, gone: Sequence[Manifest]) -> bool:
    """Return whether a pod is there, and not done, for which a deleted claim was made."""
    owners = [one for claim in gone for one in claim["metadata"].get("ownerReferences") or ()]
    pods = claimants(namespace, {one["name"] for one in owners})
    return any(
        (pod := pods.get(one["name"])) is not None
        and pod["metadata"]["uid"] == one["uid"]
        and not is_done(pod)
        for one in owners
    )


def _is_idle(claim: Manifest) -> bool:
    """Return whether a claim has devices, and nobody is known to use it."""
    return bool((claim.get("status") or {}).get("allocation")) and not reserved_for(claim)


def _lacks_claims(pod: Manifest) -> bool:
    """Return whether the status of a pod names no claim for one of its templates."""
    told = {one["name"] for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    return not is_done(pod) and any(
        entry.get("resourceClaimTemplateName") is not None and entry["name"] not in told
        for entry in pod["spec"].get("resourceClaims") or ()
    )


def _names(pod: Manifest) -> Iterator[str]:
    """Yield the names of claims in a pod's spec and status."""
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            yield entry["resourceClaimName"]
    for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if entry.get("resourceClaimName"):
            yield entry["resourceClaimName"]
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        yield extended["resourceClaimName"]


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

    meta = claim["metadata"]
    objects.rewrite_each(_CLAIM, [(meta["namespace"], meta["name"])], used, now=now)


def _release(claims: Sequence[Manifest], users: Mapping[str, Manifest], now: datetime) -> None:
    """Free what claims hold for pods that do not use them any more, and delete those of done pods.

    ``users``: the pods that there are, by name.
    """

    def changed(stored: Manifest) -> Manifest:
        return next(iter(sync_claim(stored, users.get).update), stored)

    keys = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in claims]
    with transaction.atomic():
        objects.rewrite_each(_CLAIM, keys, changed, now=now)
        over = [
            Deletion(namespace=key[0], name=key[1])
            for key, claim in zip(keys, claims, strict=True)
            if sync_claim(claim, users.get).delete
        ]
        if over:
            objects.delete_each(kind_of(_CLAIM), over, now=now)
