"""Create, update and delete objects of any kind: called by the REST API and the admin.

Each kind has a writer (`actions.writing`): the common one, or one of its own. An update is a
function from the stored manifest to the wanted one, run under the row lock, so that a patch never
works on an old version.

All writers take locks in this order: admission, placement, rows, revision.
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
from clusterstate.actions.writing import Update, Writer, deletion, stored_rows, transactions
from clusterstate.actions.writing.deletion import DeleteOptions, Deletion
from clusterstate.actions.writing.stored import DeletedObject, NewObject, StoredObject
from clusterstate.admission.request import NOBODY, User
from clusterstate.change_log import changes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values import document
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
        StatusError: admission refuses it; AlreadyExists; NotFound for a missing namespace.
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

    Consecutive objects of one kind are inserted by one statement, which is the transaction if there
    are no others.
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
    """Create objects together, or one by one if another process does the same now.

    Returns the names of those created here. ``missing``: namespace and manifest of each.

    Raises:
        StatusError: admission refuses one; NotFound for a missing namespace.
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

    Kinds that admission looks up are written under its lock, and events one by one.
    """
    return not kind.in_catalogue and _writer(kind).is_batched


def create_each(
    kind: Kind, items: Sequence[NewObject], *, now: datetime
) -> list[StoredObject | StatusError]:
    """Create objects of a kind that ``is_batched``: namespace, manifest and user of each.

    Returns their results, in order. A failing object has its error there and does not affect the
    others, which are inserted by one statement, in the order of the list; by a second one when a
    name turns out to be taken. If anything else is raised, nothing was stored.
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
    """Replace an object by the result of ``change``; through a subresource, only its part.

    ``change`` receives the stored manifest and returns the wanted one; it may be called again with
    a newer version. A resourceVersion in its result must be the stored one. An equal result writes
    nothing. A terminating object that loses its last finalizer is removed. One transaction.
    ``manager`` becomes the manager of the fields that it changes (`objects.wire.managed_fields`);
    ``None``: managers stay as they are, or as ``change`` sets them.

    Raises:
        NotFound: there is none. Conflict: a precondition does not hold.
        StatusError: admission refuses it, or ``change`` raises.
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
    """Return whether most such updates are heartbeats, which ``renew_each`` batches.

    Leases for leader election are in other namespaces.
    """
    if kind.name == "Node":
        return subresource == "status"
    return kind.skips_change_log and namespace == NODE_LEASES


def renew_each(
    kind: Kind, updates: Sequence[Update], *, now: datetime
) -> list[StoredObject | Exception]:
    """Update objects that ``are_renewed``, each as ``update`` does; return the results, in order.

    A failing update has its error there and does not affect the others; if anything is raised,
    nothing was updated. Pure heartbeats are written by one statement; those of leases are not
    flushed to disk, since the next renewal repeats what a crash loses.
    """
    return _writer(kind).renew_each(kind, updates, now)


def rewrite_each(
    kind: Kind | str,
    keys: Sequence[tuple[str, str]],
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
) -> set[tuple[str, str]]:
    """Make the service's own changes of objects by namespace and name, in one transaction.

    For kinds that ``stored_rows.takes_documents`` accepts, without admission, by a few statements
    for all. ``change`` returns the new manifest, and does not change the stored one. An object that
    is being deleted and loses its last finalizer is removed. Returns the keys of those that exist.
    """
    kind = kind_of(kind)
    with transaction.atomic():
        rows = stored_rows.lock_rows(kind, list(dict.fromkeys(keys))) if keys else []
        changed, leaving = [], []
        for row in rows:
            new = change(row.manifest())
            text = document.encode(kind.name, new)[0]
            if text == row.text:
                continue
            if new["metadata"].get("deletionTimestamp") and not kind.strategy.is_kept(new):
                leaving.append(row)
            else:
                changed.append((row, new, text))
        revisions = stored_rows.update_documents(kind, changed, now=now) if changed else []
        if leaving:
            revisions += stored_rows.delete_rows(kind, leaving, now=now)
        if revisions:
            changes.announce(max(revisions), (kind.name,))
    return {(row.namespace, row.name) for row in rows}


Follower = Callable[[str, str, str, datetime], object]
_followers: dict[str, Follower] = {}


def follow_with(follower: Follower, kinds: Iterable[str]) -> None:
    """Register a function that ``follow_at_once`` calls for objects of these kinds.

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
    """Delete an object, or mark it: pods gracefully, namespaces by their content, others at once.

    ``options`` may be a checked DeleteOptions manifest; the grace period is for pods only. Objects
    with finalizers stay until these are gone; the propagation policy adds or removes one for the
    garbage collector.

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

    Returns their results, in order. A failing deletion has its error there and does not affect the
    others. If anything else is raised, nothing was deleted.
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
    "rewrite_each",
    "update",
]
