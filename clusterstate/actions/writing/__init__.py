"""The common writer of objects, with hooks for single kinds.

``Writer`` creates, updates and deletes objects of any kind. Kinds whose rows are written by
statements of their own, or together with other rows, have a subclass in the module of these
statements (`actions.objects` lists them). The kind's strategy (`objects.registry.strategies`)
determines what a write changes in the manifest.

::

    object_meta       the server's changes to metadata before it is stored
    stored            what actions return and lock
    stored_rows       the statements for rows of most kinds
    renewals          node leases whose time alone changes
    deletion          shared by deleting one object and many
    quotas            charging quotas, and recounting them
    transactions      dry runs, names that are taken
    deadlocks         retrying a batch after a deadlock
    partitions        partitions of the tables that grow with time
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import msgspec
from django.db import transaction

from clusterstate import admission, catalogue
from clusterstate.actions.writing import (
    deletion,
    object_meta,
    quotas,
    renewals,
    stored_rows,
    transactions,
)
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.actions.writing.deletion import Deletion, Outcome
from clusterstate.actions.writing.stored import DeletedObject, LockedRow, NewObject, StoredObject
from clusterstate.admission.plugins.resource_quota import Charge
from clusterstate.admission.request import CREATE, DELETE, UPDATE, User
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry import schema
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules import usage
from clusterstate.objects.rules.ownership import finalizers_for
from clusterstate.objects.values import document
from clusterstate.objects.values.document import Overlay
from clusterstate.objects.values.errors import AlreadyExists, StatusError, TooManyRequests
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire import managed_fields
from clusterstate.objects.wire.managed_fields import Manager

_MAX_TRIES = 20
_OF_WHAT_IS_WANTED = ("", "resize")
"""Subresources by which what is wanted of an object changes, which its generation counts."""


class _New(msgspec.Struct, frozen=True):
    """An admitted object, and its position in the list of the request."""

    place: int
    admitted: admission.AdmittedObject
    generated: bool


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """An update of an object, and its user; see `actions.objects.update`."""

    namespace: str
    name: str
    change: Callable[[Manifest], Manifest]
    user: User
    manager: Manager | None
    subresource: str
    sent: renewals.Sent | None = None
    """A node's lease as it was sent, so that its next renewals can be recognised."""
    renewal: renewals.Renewal | None = None
    """The renewal that this is, if the lease has not changed meanwhile."""


class NewVersion(msgspec.Struct, frozen=True):
    """A version of a locked object to write; ``slots`` fill those of its document ``text``."""

    row: LockedRow
    new: Manifest
    old: Manifest
    text: str
    slots: Overlay
    warnings: Sequence[str] = ()

    def leaves(self, kind: Kind) -> bool:
        """Return whether the object is terminating and nothing, such as a finalizer, keeps it."""
        is_leaving = self.new["metadata"].get("deletionTimestamp")
        return bool(is_leaving) and not kind.strategy.is_kept(self.new)

    def stored(self, revision: int) -> StoredObject:
        """Return the written version as the result for the client."""
        row = self.row
        body = transactions.written_json(self.text, revision, self.slots, before=row.revision)
        return StoredObject(body, revision, [*self.warnings], row.uid)


class Writer:
    """How objects of a kind are created, updated and deleted; each call is one transaction."""

    is_batched = True
    """Whether one statement creates many."""

    def lock_before(self) -> None:
        """Take the locks that come before the locks of rows (`actions.objects` has the order)."""

    def lock(self, kind: Kind, namespace: str, name: str) -> LockedRow:
        """Return the stored row, locked until the transaction ends.

        Raises:
            NotFound: there is none.
        """
        return stored_rows.lock_row(kind, namespace, name)

    def permit(
        self, kind: Kind, new: Manifest, old: Manifest | None, user: User, subresource: str = ""
    ) -> None:
        """Raise Forbidden where a user who may write such objects may not write this one."""

    def settle(self, new: Manifest, old: Manifest | None, now: datetime) -> Manifest:
        """Return an admitted manifest with the parts that the service itself adds."""
        return new

    def foretell(self, new: Manifest, old: Manifest, now: datetime) -> list[str]:
        """Return warnings about the effects of an update, for dry runs."""
        return []

    def store(self, kind: Kind, version: NewVersion, now: datetime) -> int:
        """Write the new version of a locked row; return its revision."""
        new, old = version.new, version.old
        return stored_rows.update_row(
            kind,
            version.row,
            new,
            version.text,
            now=now,
            placement=kind.strategy.moves_placement(new, old),
            logged=kind.strategy.is_logged(new, old),
        )

    def remove(self, kind: Kind, rows: Sequence[LockedRow], now: datetime) -> list[int]:
        """Remove locked rows; return the revisions of their deletions, in order."""
        return stored_rows.delete_rows(kind, rows, now=now)

    def create(
        self, kind: Kind, items: Sequence[tuple[str, Manifest]], *, now: datetime, user: User
    ) -> list[StoredObject]:
        """Create objects, namespace and manifest each, by one statement: all or none.

        Raises:
            StatusError: admission refuses one; AlreadyExists; NotFound for a missing namespace.
        """
        new_objects = [(namespace, manifest, user) for namespace, manifest in items]
        stored = self.create_each(kind, new_objects, now, all_or_nothing=True)
        return [one for one in stored if isinstance(one, StoredObject)]

    def create_each(
        self, kind: Kind, items: Sequence[NewObject], now: datetime, *, all_or_nothing: bool = False
    ) -> list[StoredObject | StatusError]:
        """Create objects: namespace, manifest and user each; return their results, in order.

        A failing object has its error there and does not affect the others, which are inserted by
        one statement, in the order of the list; by a second one when a name turns out to be taken.
        With ``all_or_nothing`` the first error is raised instead and nothing is stored.
        """
        if kind.in_catalogue:
            catalogue.lock_for_writing()
        return self._create(kind, items, now, None, all_or_nothing=all_or_nothing)

    def _create(
        self,
        kind: Kind,
        items: Sequence[NewObject],
        now: datetime,
        books: quotas.Books | None,
        *,
        all_or_nothing: bool,
    ) -> list[StoredObject | StatusError]:
        """Create objects as ``create_each`` does, and charge ``books`` (quotas), if given."""
        writes_catalogue = kind.in_catalogue
        context = catalogue.current()
        results: list[StoredObject | StatusError | None] = [None] * len(items)
        remaining: Sequence[int] = range(len(items))
        for attempt in range(_MAX_TRIES):
            if books is None and context.has_quotas:
                spaces = {namespace or _own_namespace(one) for namespace, one, _ in items}
                if limited := quotas.limited(context, kind, spaces):
                    again = partial(self._create, kind, items, now, all_or_nothing=all_or_nothing)
                    return quotas.with_books(kind, spaces, limited, now, again)
            prepared, refused = self._admit_new(kind, items, remaining, now, context)
            # An outdated rule may refuse what the current one admits.
            if refused and not catalogue.is_current(context):
                context = catalogue.reload()
                continue
            charges = _charge(books, kind, prepared, refused)
            if refused and all_or_nothing:
                raise next(iter(refused.values()))
            for place, error in refused.items():
                results[place] = error
            if not prepared:
                break
            try:
                inserted = stored_rows.insert_rows(
                    kind,
                    [one.admitted.manifest for one in prepared],
                    now=now,
                    # The lock keeps the epoch as it is; earlier reads may be older, and the
                    # namespace may be about to be deleted.
                    epoch=context.epoch if kind.namespaced or not writes_catalogue else None,
                    by=[items[one.place][2].actor for one in prepared],
                    fetch=sql.fetch if books is None else partial(books.fetch, now=now),
                    savepoint=books is None or not books.is_hopeful,
                )
            except AlreadyExists as error:
                if books is not None:
                    for namespace, charged in charges:
                        books.take_back(namespace, charged)
                clashes = stored_rows.taken_names(kind, [one.admitted.manifest for one in prepared])
                last = attempt == _MAX_TRIES - 1
                for position, one in enumerate(prepared):
                    if position in clashes and (last or not one.generated):
                        name = one.admitted.manifest["metadata"]["name"]
                        error = object_meta.already_exists(kind, name)
                        if all_or_nothing:
                            raise error from None
                        results[one.place] = error
                if last and all_or_nothing:
                    raise
                remaining = [place for place in remaining if results[place] is None]
                continue
            if inserted is None:
                context = catalogue.reload()
                continue
            if writes_catalogue:
                catalogue.advance()
            changes.announce(inserted[-1].revision, (kind.name,))
            for row, one in zip(inserted, prepared, strict=True):
                results[one.place] = StoredObject(
                    transactions.written_json(row.text, row.revision),
                    row.revision,
                    one.admitted.warnings,
                    one.admitted.manifest["metadata"]["uid"],
                )
            break
        late = TooManyRequests("objects that admission reads change too quickly; try again")
        if all_or_nothing and None in results:
            raise late
        return [late if result is None else result for result in results]

    def charge_update(
        self, kind: Kind, new: Manifest, old: Manifest, subresource: str
    ) -> quotas.Books | None:
        """Charge a change of a locked object's usage; the caller writes the books afterwards.

        A report by the service itself of an object's outcome is counted whether it fits or not.

        Raises:
            Forbidden: it does not fit into a quota.
        """
        if kind.name not in usage.CHANGING:
            return None
        resources_of = quotas.resources_of_device_classes(kind)
        after, before = (usage.object_usage(kind, one, resources_of) for one in (new, old))
        if after == before:
            return None
        metadata = new["metadata"]
        namespace = metadata.get("namespace") or ""
        books, _ = quotas.open_books([namespace])
        if subresource:
            books.change(namespace, before, after)
        else:
            books.charge(kind, namespace, metadata["name"], after, before)
        return books

    def _admit_new(
        self,
        kind: Kind,
        items: Sequence[NewObject],
        places: Sequence[int],
        now: datetime,
        context: catalogue.Catalogue,
    ) -> tuple[list[_New], dict[int, StatusError]]:
        """Return the admitted new objects, and the refusals, by position."""
        prepared: list[_New] = []
        refused: dict[int, StatusError] = {}
        for place in places:
            namespace, manifest, user = items[place]
            try:
                new, generated = object_meta.prepare(
                    kind, namespace, manifest, now=now, uid=object_meta.new_uid()
                )
                admitted = admission.admit(kind.name, CREATE, new, None, "", context, user)
                self.permit(kind, admitted.manifest, None, user)
            except StatusError as error:
                refused[place] = error
                continue
            settled = self.settle(admitted.manifest, None, now)
            settled = managed_fields.created(kind, settled, now)
            if settled is not admitted.manifest:
                admitted = admission.AdmittedObject(settled, admitted.warnings)
            prepared.append(_New(place, admitted, generated))
        return prepared, refused

    def update(self, kind: Kind, request: Update, now: datetime) -> StoredObject:
        """Replace an object by the result of ``request.change``; see `actions.objects.update`."""
        with transaction.atomic():
            if kind.in_catalogue:
                catalogue.lock_for_writing()
            context = catalogue.fresh()
            self.lock_before()
            row = self.lock(kind, request.namespace, request.name)
            version = self._next(kind, row, request, context, now)
            if isinstance(version, StoredObject):
                return version
            new, old = version.new, version.old
            leaves = version.leaves(kind)
            books = None if leaves else self.charge_update(kind, new, old, request.subresource)
            revision = self._write(kind, version, now)
            if books is not None:
                books.write(now)
            return version.stored(revision)

    def _next(
        self,
        kind: Kind,
        row: LockedRow,
        request: Update,
        context: catalogue.Catalogue,
        now: datetime,
    ) -> NewVersion | StoredObject:
        """Return the version of a locked row to write, or the present one if nothing differs.

        Raises:
            StatusError: admission refuses it, or the change raises.
        """
        subresource, user = request.subresource, request.user
        row.actor = user.actor
        old, current = row.manifest(), row.manifest()
        # Earlier versions stored unknown fields. As with etcd, the next write drops them, without
        # counting as a change: neither of the generation nor of an immutable spec.
        schema.drop_unknown(kind.name, old, current)
        new = object_meta.merge_update(kind, old, request.change(current), subresource)
        admitted = admission.admit(kind.name, UPDATE, new, old, subresource, context, user)
        self.permit(kind, admitted.manifest, old, user, subresource)
        new = self.settle(admitted.manifest, old, now)
        kind.strategy.canonicalize(new, old)
        kind.strategy.stamp(new, object_meta.stamp(now))
        if request.manager is not None:
            new = managed_fields.updated(kind, old, new, request.manager, now)
        text, slots = document.encode(kind.name, new)
        if object_meta.same(kind, row, old, new, text, slots):
            return StoredObject(
                row.composed(), row.revision, admitted.warnings, row.uid, changed=False
            )
        if subresource in _OF_WHAT_IS_WANTED and kind.counts_generation:
            object_meta.bump_generation(kind, old, new)
            text, slots = document.encode(kind.name, new)
        object_meta.require_size(row.text, text)
        warnings = admitted.warnings
        if transactions.is_rehearsal():
            warnings = [*warnings, *self.foretell(new, old, now)]
        return NewVersion(row, new, old, text, slots, warnings)

    def renew_each(
        self, kind: Kind, updates: Sequence[Update], now: datetime
    ) -> list[StoredObject | Exception]:
        """Update objects, each as ``update`` does; return their results, in order.

        Pure heartbeats (``Strategy.is_heartbeat``) are written by one statement. Others, and
        objects that are named twice, are updated one by one afterwards. A failing update has its
        error there and does not affect the others. If anything is raised, nothing was updated.
        Known renewals of leases (`renewals`) skip admission and managed fields.
        """
        results: dict[int, StoredObject | Exception] = {}
        learned: list[Callable[[], None]] = []

        def renew_known(epoch: int) -> None:
            first: dict[int, tuple[int, renewals.Renewal]] = {}
            for place, one in enumerate(updates):
                if one.renewal is not None and one.renewal.known.epoch == epoch:
                    first.setdefault(one.renewal.known.id, (place, one.renewal))
            written = renewals.write([renewal for _, renewal in first.values()])
            for (place, renewal), stored in zip(first.values(), written, strict=True):
                if stored is not None:
                    results[place] = stored
                    learned.append(partial(renewals.note, renewal, stored.revision))

        def renew() -> None:
            results.clear()
            learned.clear()
            with transaction.atomic():
                context = catalogue.fresh()
                if any(one.renewal for one in updates):
                    renew_known(context.epoch)
                keys = [
                    (one.namespace, one.name)
                    for place, one in enumerate(updates)
                    if place not in results
                ]
                if not keys:
                    return
                found = stored_rows.lock_rows(kind, keys)
                rows = {(row.namespace, row.name): row for row in found}
                renewed: dict[int, NewVersion] = {}
                for place, one in enumerate(updates):
                    if place in results:
                        continue
                    row = rows.pop((one.namespace, one.name), None)
                    if row is None:
                        continue
                    try:
                        version = self._next(kind, row, one, context, now)
                    except StatusError as error:
                        results[place] = error
                        continue
                    if isinstance(version, StoredObject):
                        results[place] = version
                    elif kind.strategy.is_heartbeat(version.new, version.old):
                        renewed[place] = version
                if not renewed:
                    return
                versions = [(one.row, one.new, one.text) for one in renewed.values()]
                written = stored_rows.renew_rows(kind, versions, now=now)
                for place, version in renewed.items():
                    row = version.row
                    results[place] = version.stored(written[row.id][0])
                    if (sent := updates[place].sent) is not None and not version.warnings:
                        learned.append(
                            partial(
                                renewals.learn,
                                row,
                                sent,
                                version.text,
                                written[row.id],
                                context.epoch,
                            )
                        )
                if not kind.skips_change_log:
                    changes.announce(
                        max(revision for revision, _ in written.values()), (kind.name,)
                    )

        def one_by_one(one: Update) -> StoredObject | Exception:
            try:
                return again_after_deadlock(lambda: self.update(kind, one, now))
            except Exception as error:  # noqa: BLE001  # the heartbeats are committed already
                return error

        again_after_deadlock(renew)
        for learn in learned:  # it is committed
            learn()
        return [results.get(place) or one_by_one(one) for place, one in enumerate(updates)]

    def _write(self, kind: Kind, version: NewVersion, now: datetime) -> int:
        """Write the new version of a locked row, or remove it if nothing keeps it any more."""
        new, old = version.new, version.old
        if version.leaves(kind):
            (revision,) = self.remove(kind, [version.row], now)
        else:
            revision = self.store(kind, version, now)
            if not kind.strategy.is_logged(new, old):
                return revision
            if kind.in_catalogue and not kind.strategy.moves_admission(new, old):
                changes.announce(revision, (kind.name,))
                return revision
        if kind.in_catalogue:
            catalogue.advance()
        changes.announce(revision, (kind.name,))
        return revision

    def delete_each(
        self, kind: Kind, deletions: Sequence[Deletion], now: datetime
    ) -> list[DeletedObject | StatusError]:
        """Delete objects, or mark them, in one transaction; return their results, in order.

        A failing deletion has its error there and does not affect the others. If anything else is
        raised, nothing was deleted.
        """
        context = catalogue.current()

        def lock(keys: Sequence[tuple[str, str]]) -> list[LockedRow]:
            return stored_rows.lock_rows(kind, keys)

        def judge(row: LockedRow, one: Deletion) -> Outcome:
            return judge_deletion(kind, row, one, context, now)

        def write(outcomes: Sequence[tuple[LockedRow, Outcome]]) -> list[int]:
            versions = [
                NewVersion(row, one.manifest, row.manifest(), one.text, one.overlay)
                for row, one in outcomes
                if one.manifest is not None
            ]
            if type(self).store is Writer.store and stored_rows.takes_documents(kind):
                leaving = [(one.row, one.new, one.text) for one in versions]
                return stored_rows.update_documents(kind, leaving, now=now)
            return [self.store(kind, one, now) for one in versions]

        def remove(rows: Sequence[LockedRow]) -> list[int]:
            return self.remove(kind, rows, now)

        def work() -> list[DeletedObject | StatusError]:
            with transaction.atomic():
                if kind.in_catalogue:
                    catalogue.lock_for_writing()
                self.lock_before()
                results = deletion.delete_each(
                    kind, deletions, lock=lock, judge=judge, write=write, remove=remove
                )
                if kind.in_catalogue and any(isinstance(one, DeletedObject) for one in results):
                    catalogue.advance()
                return results

        return again_after_deadlock(work)


def _own_namespace(manifest: Manifest) -> str:
    """Return ``metadata.namespace`` of a new object's manifest, ``default`` if absent."""
    return (manifest.get("metadata") or {}).get("namespace") or "default"


def _charge(
    books: quotas.Books | None, kind: Kind, prepared: list[_New], refused: dict[int, StatusError]
) -> list[tuple[str, Charge]]:
    """Charge admitted objects in order; those that do not fit are refused. Returns the charges."""
    if books is None:
        return []
    charges = []
    admitted = prepared[:]
    prepared.clear()
    resources_of = quotas.resources_of_device_classes(kind)
    for one in admitted:
        metadata = one.admitted.manifest["metadata"]
        namespace = metadata.get("namespace") or ""
        counts = usage.object_usage(kind, one.admitted.manifest, resources_of)
        try:
            charges.append((namespace, books.charge(kind, namespace, metadata["name"], counts)))
        except StatusError as error:
            refused[one.place] = error
        else:
            prepared.append(one)
    return charges


def judge_deletion(
    kind: Kind, row: LockedRow, request: Deletion, context: admission.Context, now: datetime
) -> Outcome:
    """Return the effect of a deletion on a locked object that is not a pod.

    Raises:
        StatusError: a precondition does not hold, or admission refuses it.
    """
    old = row.manifest()
    object_meta.check_before_deletion(
        kind, old["metadata"], uid=request.uid, resource_version=request.resource_version
    )
    admission.admit(kind.name, DELETE, None, old, "", context, request.user)
    new = {**old, "metadata": dict(old["metadata"])}
    present = old["metadata"].get("finalizers") or []
    finalizers = finalizers_for(kind.name, present, request.propagation)
    if finalizers != present:
        new["metadata"]["finalizers"] = finalizers
        if not finalizers:
            del new["metadata"]["finalizers"]
    if not kind.strategy.is_kept(new):
        return deletion.removal(row)
    if old["metadata"].get("deletionTimestamp"):
        if finalizers == present:
            return deletion.UNCHANGED
    else:
        new["metadata"]["deletionTimestamp"] = document.format_time(now)
        object_meta.bump_generation_of_leaving(new["metadata"])
        kind.strategy.begin_deletion(new)
    text, slots = document.encode(kind.name, new)
    return Outcome(new, text, slots, gone=False)
