"""Create, update and delete objects of any kind: what the REST API and the admin call.

Each kind has a writer (`actions.writing`): the common one, or one of its own. An update is a
function from the stored manifest to the wanted one, run under the row lock, so that a patch never
works on an old version.

Locks are taken in this order, by everybody: admission, placement, rows, revision.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Final

from django.db import transaction

from clusterstate import catalogue
from clusterstate.actions.kinds.certificates import CertificateWriter
from clusterstate.actions.kinds.events import EventWriter
from clusterstate.actions.kinds.nodes import NodeWriter
from clusterstate.actions.kinds.quota_writer import DeviceClassWriter, QuotaWriter
from clusterstate.actions.kinds.roles import BindingWriter, RoleWriter
from clusterstate.actions.kinds.services import ServiceWriter
from clusterstate.actions.pods.resize import ResizingWriter
from clusterstate.actions.pods.writer import PodWriter
from clusterstate.actions.writing import Update, Writer, deletion, transactions
from clusterstate.actions.writing.deletion import DeleteOptions, Deletion
from clusterstate.actions.writing.stored import DeletedObject, NewObject, StoredObject
from clusterstate.admission.request import NOBODY, User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import AlreadyExists, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire.managed_fields import Manager
from clusterstate.queries.objects import kind_of
from clusterstate.queries.pods.terminating import NODE_LEASES

_WRITERS: Final[dict[str, Writer]] = {
    "CertificateSigningRequest": CertificateWriter(),
    "ClusterRole": RoleWriter(),
    "ClusterRoleBinding": BindingWriter(),
    "DeviceClass": DeviceClassWriter(),
    "Event": EventWriter(),
    "Node": NodeWriter(),
    "Pod": PodWriter(),
    "Role": RoleWriter(),
    "RoleBinding": BindingWriter(),
    "Service": ServiceWriter(),
    "ResourceQuota": QuotaWriter(),
}
_ANY: Final = Writer()


def _writer(kind: Kind) -> Writer:
    return _WRITERS.get(kind.name, _ANY)


def create(
    kind: Kind | str,
    namespace: str,
    manifest: Manifest,
    *,
    now: datetime,
    user: User = NOBODY,
) -> StoredObject:
    """Create an object; ``namespace`` is empty for kinds without. One transaction.

    Raises:
        StatusError: what admission says; AlreadyExists; NotFound for a missing namespace.
    """
    kind = kind_of(kind)
    with nullcontext() if is_batched(kind) else transaction.atomic():
        return _writer(kind).create(kind, [(namespace, manifest)], now=now, user=user)[0]


def create_all(
    new_objects: Sequence[tuple[Kind | str, str, Manifest]],
    *,
    now: datetime,
    user: User = NOBODY,
) -> list[StoredObject]:
    """Create objects of any kinds in order, all or none, in one transaction.

    Neighbours of one kind are inserted by one statement, which is a transaction if there are no
    others.
    """
    groups = _groups(new_objects)
    if len(groups) == 1 and is_batched(groups[0][0]):
        kind, items = groups[0]
        return _writer(kind).create(kind, items, now=now, user=user)
    with transaction.atomic():
        if any(kind.in_catalogue for kind, _ in groups):
            catalogue.lock_for_writing()
        return [
            stored
            for kind, items in groups
            for stored in _writer(kind).create(kind, items, now=now, user=user)
        ]


def create_missing(
    kind: str, missing: Sequence[tuple[str, Manifest]], *, now: datetime
) -> list[str]:
    """Create objects together, one by one where another process does the same at this moment.

    Returns the names of those that were created here. ``missing`` has namespace and manifest each.

    Raises:
        StatusError: what admission says; NotFound for a missing namespace.
    """
    if not missing:
        return []
    try:
        with transaction.atomic():
            create_all([(kind, namespace, manifest) for namespace, manifest in missing], now=now)
    except AlreadyExists:
        created = []
        for namespace, manifest in missing:
            with suppress(AlreadyExists), transaction.atomic():
                create(kind, namespace, manifest, now=now)
                created.append(manifest["metadata"]["name"])
        return created
    return [manifest["metadata"]["name"] for _, manifest in missing]


def _groups(
    items: Sequence[tuple[Kind | str, str, Manifest]],
) -> list[tuple[Kind, list[tuple[str, Manifest]]]]:
    groups: list[tuple[Kind, list[tuple[str, Manifest]]]] = []
    for named, namespace, manifest in items:
        kind = kind_of(named)
        if not groups or groups[-1][0].name != kind.name:
            groups.append((kind, []))
        groups[-1][1].append((namespace, manifest))
    return groups


def is_batched(kind: Kind) -> bool:
    """Return whether objects of the kind are created by one statement for many (``create_each``).

    Those that admission looks up are written under its lock, and events one by one.
    """
    return not kind.in_catalogue and _writer(kind).is_batched


def create_each(
    kind: Kind, items: Sequence[NewObject], *, now: datetime
) -> list[StoredObject | StatusError]:
    """Create objects of a kind that ``is_batched``: namespace, manifest, and who wants it.

    Returns each one's result, in order. What fails has its error there and spoils nothing for the
    others, which are inserted by one statement, in the order of the list; by a second one when a
    name turns out to be taken. Whatever else is raised, nothing was stored.
    """
    return _writer(kind).create_each(kind, items, now)


def update(
    kind: Kind | str,
    namespace: str,
    name: str,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    user: User = NOBODY,
    manager: Manager | None = None,
    subresource: str | None = "",
) -> StoredObject:
    """Replace an object by what ``change`` makes of it; only its part through a subresource.

    ``change`` receives the stored manifest and returns the wanted one; it may be called again with
    a newer version. A resourceVersion in its result must be the stored one. A result that
    differs in nothing writes nothing. An object that is being deleted and loses its last finalizer
    is removed. One transaction. ``manager`` owns what it changes from now on
    (`objects.wire.managed_fields`); ``None``: owners stay as they are, or as ``change`` sets them.

    Raises:
        NotFound: there is none. Conflict: a precondition does not hold.
        StatusError: what admission says, or ``change`` raises.
    """
    request = Update(
        namespace=namespace,
        name=name,
        change=change,
        user=user,
        manager=manager,
        subresource=subresource or "",
    )
    return carry_out(kind_of(kind), request, now=now)


def carry_out(kind: Kind, request: Update, *, now: datetime) -> StoredObject:
    """Carry out an ``Update``; see ``update``, also for errors."""
    writer = ResizingWriter() if request.subresource == "resize" else _writer(kind)
    return writer.update(kind, request, now)


def are_renewed(kind: Kind, namespace: str, subresource: str) -> bool:
    """Return whether most updates there are heartbeats, which ``renew_each`` takes together.

    The leases by which controllers elect a leader stand in other namespaces.
    """
    if kind.name == "Node":
        return subresource == "status"
    return kind.skips_change_log and namespace == NODE_LEASES


def renew_each(
    kind: Kind, updates: Sequence[Update], *, now: datetime
) -> list[StoredObject | Exception]:
    """Update objects that ``are_renewed``, each as ``update`` does; return the results, in order.

    What fails has its error there and spoils nothing for the others; whatever is raised, nothing
    was updated. Those that say nothing but that an agent lives are written by one statement; of
    leases not to the disk at once, since what a crash loses comes again with the next renewal.
    """
    return _writer(kind).renew_each(kind, updates, now)


Follower = Callable[[str, str, str, datetime], object]
_followers: dict[str, Follower] = {}


def follow_with(follower: Follower, kinds: Iterable[str]) -> None:
    """Have ``follow_at_once`` call this function for objects of these kinds.

    Called when the applications are ready.
    """
    _followers.update(dict.fromkeys(kinds, follower))


def follow_at_once(kind: Kind, namespace: str, name: str, now: datetime) -> None:
    """Run the controllers' immediate work on a changed object, before its client is answered.

    The controllers register it as a function (``follow_with``). Does nothing in a rehearsal.
    """
    follower = _followers.get(kind.name)
    if follower is not None and not transactions.is_rehearsal():
        follower(kind.name, namespace, name, now)


def delete(
    kind: Kind | str,
    namespace: str,
    name: str,
    options: DeleteOptions | Manifest | None = None,
    *,
    now: datetime,
    user: User = NOBODY,
) -> DeletedObject:
    """Delete an object, or begin to: pods gracefully, namespaces by their content, others at once.

    ``options`` may be a checked DeleteOptions manifest; the grace period is for pods only. Objects
    with finalizers stay until these are gone; the propagation policy adds one, or takes it away,
    for the garbage collector to answer.

    Raises:
        NotFound: there is none. Conflict: a precondition does not hold.
        Forbidden: a namespace that may not be deleted.
    """
    kind = kind_of(kind)
    chosen = DeleteOptions.of(options)
    request = chosen.about(namespace, name, user)
    with transactions.work(dry_run=chosen.dry_run):
        return deletion.only(_writer(kind).delete_each(kind, [request], now))


def delete_each(
    kind: Kind, deletions: Sequence[Deletion], *, now: datetime
) -> list[DeletedObject | StatusError]:
    """Delete objects of one kind in one transaction, each as ``delete`` does.

    Returns each one's result, in order. What fails has its error there and spoils nothing for the
    others. Whatever else is raised, nothing was deleted.
    """
    return _writer(kind).delete_each(kind, deletions, now)


__all__ = [
    "Update",
    "are_renewed",
    "carry_out",
    "create",
    "create_all",
    "create_each",
    "delete",
    "delete_each",
    "is_batched",
    "renew_each",
    "update",
]
