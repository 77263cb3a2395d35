"""Events: recorded in bulk by the service, created by clients.

The service's own events are rows without a document; a repeated event raises a count. As in
Kubernetes' correlator, repeated means same object, type, reason and reporter; the last message is
kept. Events of clients are kept as they were sent.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec
from django.db import transaction

from clusterstate import admission, catalogue
from clusterstate.actions.writing import (
    Update,
    Writer,
    deletion,
    judge_deletion,
    object_meta,
    transactions,
)
from clusterstate.actions.writing.deletion import Deletion, Outcome
from clusterstate.actions.writing.stored import DeletedObject, LockedRow, NewObject, StoredObject
from clusterstate.admission.request import CREATE, UPDATE, User
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, get_object, not_found

EVENT = KINDS["Event"]
_LONGEST_MESSAGE = 1024  # as client-go truncates it


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An event about an object. ``uid`` and ``namespace`` are the object's."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    type: str = "Normal"
    component: str = "default-scheduler"
    api_version: str = "v1"
    resource_version: str = ""


def about_own(
    kind: str, name: str, reason: str, message: str, *, component: str, type_: str = "Normal"
) -> Occurrence:
    """Return the occurrence for a plan or a brake; its event is in namespace ``default``."""
    return Occurrence(
        kind=kind,
        api_version="stowage.dev/v1",
        namespace="",
        name=name,
        uid="",
        reason=reason,
        message=message,
        type=type_,
        component=component,
    )


_RECORD = f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.*
        FROM gate CROSS JOIN
             unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
             AS i(uid, namespace, name, fingerprint, kind, api_version, involved_namespace,
                  involved_name, involved_uid, version, reason, type, message, component, count)
        WHERE opened = 1),
    recorded AS (
        INSERT INTO event AS e (uid, namespace, name, revision, first_revision, fingerprint,
            involved_kind, involved_api_version, involved_namespace, involved_name, involved_uid,
            involved_resource_version, involved_field_path, reason, type, message, component,
            count, first_at, last_at)
        SELECT i.uid, i.namespace, i.name, i.revision, i.revision, i.fingerprint, i.kind,
               i.api_version, i.involved_namespace, i.involved_name, i.involved_uid, i.version, '',
               i.reason, i.type, i.message, i.component, i.count, %s::timestamptz, %s::timestamptz
        FROM numbered i
        ON CONFLICT (fingerprint) DO UPDATE
        SET count = e.count + excluded.count, message = excluded.message,
            last_at = excluded.last_at, revision = {changes.NEXT}
        RETURNING id, namespace, name, revision, first_revision),
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, actor_id, cause)
        SELECT revision, %s::timestamptz, {KINDS["Event"].code},
               CASE WHEN revision = first_revision THEN {changes.ADDED}
                    ELSE {changes.MODIFIED} END, id, namespace, name, {changes.BY_GATE}
        FROM recorded)
    SELECT revision FROM recorded
"""
_RECORD = " ".join(_RECORD.split())


def record_many(occurrences: Sequence[Occurrence], *, now: datetime) -> int:
    """Record events in one statement; return how many rows were written.

    Repetitions within the list are one row with their count. Events of objects without a namespace
    go to ``default``, as in Kubernetes.
    """
    if not occurrences:
        return 0
    merged: dict[int, tuple[Occurrence, int]] = {}
    for one in occurrences:
        key = _fingerprint(one)
        merged[key] = (one, merged[key][1] + 1 if key in merged else 1)
    # Sorted, so that two batches with the same events do not deadlock.
    items = sorted(merged.items())
    found = [one for _, (one, _) in items]
    uids = [object_meta.new_uid() for _ in items]
    parameters: list[Any] = [
        *actors.gate(),
        sql.Uuids(uids),
        sql.Texts([one.namespace or "default" for one in found]),
        sql.Texts([f"{one.name}.{uid.hex[:16]}" for one, uid in zip(found, uids, strict=True)]),
        sql.Int8s([key for key, _ in items]),
        sql.Texts([one.kind for one in found]),
        sql.Texts([one.api_version for one in found]),
        sql.Texts([one.namespace for one in found]),
        sql.Texts([one.name for one in found]),
        sql.Texts([one.uid for one in found]),
        sql.Texts([one.resource_version for one in found]),
        sql.Texts([one.reason for one in found]),
        sql.Texts([one.type for one in found]),
        sql.Texts([one.message[:_LONGEST_MESSAGE] for one in found]),
        sql.Texts([one.component for one in found]),
        sql.Int4s([count for _, (_, count) in items]),
        now,
        now,
        now,
    ]
    rows = sql.fetch(_RECORD, parameters)
    if rows:
        changes.announce(max(row[0] for row in rows), ("Event",))
    return len(rows)


def _fingerprint(one: Occurrence) -> int:
    """Return a signed 64-bit hash of the fields by which events count as equal."""
    text = "\0".join(
        (one.kind, one.namespace, one.name, one.uid, one.type, one.reason, one.component)
    )
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


# What clients do ------------------------------------------------------------------------------

_COLUMNS = (
    "involved_kind",
    "involved_api_version",
    "involved_namespace",
    "involved_name",
    "involved_uid",
    "involved_resource_version",
    "involved_field_path",
    "reason",
    "type",
    "message",
    "component",
    "count",
    "first_at",
    "last_at",
)


def _columns(manifest: Manifest, now: datetime) -> list[Any]:
    involved = manifest.get("involvedObject") or {}
    source = manifest.get("source") or {}
    first = manifest.get("firstTimestamp") or manifest.get("eventTime")
    last = manifest.get("lastTimestamp") or first
    return [
        involved.get("kind") or "",
        involved.get("apiVersion") or "",
        involved.get("namespace") or "",
        involved.get("name") or "",
        involved.get("uid") or "",
        involved.get("resourceVersion") or "",
        involved.get("fieldPath") or "",
        manifest.get("reason") or "",
        manifest.get("type") or "",
        manifest.get("message") or "",
        source.get("component") or manifest.get("reportingComponent") or "",
        manifest.get("count") or 1,
        _moment(first, now),
        _moment(last, now),
    ]


def _moment(text: str | None, now: datetime) -> datetime:
    try:
        return document.parse_time(text) if text else now
    except ValueError:
        return now


_INSERT = f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}, {catalogue.EPOCH}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id
        FROM gate WHERE opened = 1 AND epoch = %s::bigint),
    doc AS (INSERT INTO document (id, text) SELECT document_id, %s::text FROM numbered),
    inserted AS (
        INSERT INTO event (uid, namespace, name, revision, first_revision, document_id,
                           {", ".join(_COLUMNS)})
        SELECT %s::uuid, %s::text, %s::text, revision, revision, document_id,
               {", ".join(["%s::text"] * 11)}, %s::integer, %s::timestamptz, %s::timestamptz
        FROM numbered RETURNING id, revision, document_id),
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            actor_id, cause)
        SELECT revision, %s::timestamptz, {KINDS["Event"].code}, {changes.ADDED}, id, %s::text,
               %s::text, document_id, {changes.BY_GATE}
        FROM inserted)
    SELECT revision FROM inserted
"""


def create_event(namespace: str, manifest: Manifest, *, now: datetime, user: User) -> StoredObject:
    """Store an event as the client sent it.

    Raises:
        StatusError: admission refuses it; AlreadyExists.
    """
    context = catalogue.reload()
    new, _ = object_meta.prepare(EVENT, namespace, manifest, now=now, uid=object_meta.new_uid())
    admitted = admission.admit("Event", CREATE, new, None, "", context, user)
    new = admitted.manifest
    metadata = new["metadata"]
    text, _ = document.encode("Event", new)
    with transactions.unique_names(EVENT, metadata["name"]):
        row = sql.fetch_one(
            _INSERT,
            [
                *actors.gate(user.actor),
                context.epoch,
                text,
                sql.as_uuid(metadata["uid"]),
                metadata["namespace"],
                metadata["name"],
                *_columns(new, now),
                now,
                metadata["namespace"],
                metadata["name"],
            ],
        )
    # The reload above holds the admission lock shared until this transaction ends.
    assert row is not None
    changes.announce(row[0], ("Event",))
    return StoredObject(
        transactions.written_json(text, row[0]), row[0], admitted.warnings, metadata["uid"]
    )


def _lock(keys: Sequence[tuple[str, str]]) -> list[LockedRow]:
    """Lock the existing events of these keys; ``document_id`` is 0 without a document."""
    rows = []
    for namespace, name in sorted(keys):
        found = sql.fetch_one(
            "SELECT id, document_id, revision FROM event WHERE namespace = %s AND name = %s"
            " FOR NO KEY UPDATE",
            (namespace, name),
        )
        if found is None:
            continue
        id_, document_id, revision = found
        manifest = decode_object(get_object(EVENT, namespace, name))
        rows.append(
            LockedRow(
                id=id_,
                uid=manifest["metadata"]["uid"],
                namespace=namespace,
                name=name,
                document_id=document_id or 0,
                revision=revision,
                text=document.encode("Event", manifest)[0],
            )
        )
    return rows


_UPDATE = f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id
        FROM gate WHERE opened = 1),
    doc AS (INSERT INTO document (id, text) SELECT document_id, %s::text FROM numbered),
    updated AS (
        UPDATE event e
        SET revision = n.revision, document_id = n.document_id, fingerprint = NULL,
            ({", ".join(_COLUMNS)}) = ROW({", ".join(["%s::text"] * 11)}, %s::integer,
            %s::timestamptz, %s::timestamptz)
        FROM numbered n WHERE e.id = %s::bigint
        RETURNING e.id, e.revision, e.document_id),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT %s::bigint, revision FROM updated WHERE %s::bigint IS NOT NULL),
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision, actor_id, cause)
        SELECT revision, %s::timestamptz, {KINDS["Event"].code}, {changes.MODIFIED}, id,
               %s::text, %s::text, document_id, %s::bigint, %s::bigint, {changes.BY_GATE}
        FROM updated)
    SELECT revision FROM updated
"""


def update_event(
    namespace: str,
    name: str,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    user: User,
) -> StoredObject:
    """Change an event under its row lock; the service's own then get a document, too.

    Raises:
        NotFound: there is none. Conflict: a precondition does not hold.
    """
    context = catalogue.fresh()
    found = _lock([(namespace, name)])
    if not found:
        raise not_found(EVENT, name)
    (row,) = found
    row.actor = user.actor
    old = row.manifest()
    new = object_meta.merge_update(EVENT, old, change(row.manifest()), "")
    admitted = admission.admit("Event", UPDATE, new, old, "", context, user)
    new = admitted.manifest
    text, _ = document.encode("Event", new)
    if text == row.text:
        return StoredObject(row.composed(), row.revision, admitted.warnings, row.uid, changed=False)
    if new["metadata"].get("deletionTimestamp") and not EVENT.strategy.is_kept(new):
        revision = _remove(row, now)
    else:
        revision = _write(row, new, text, now)
    changes.announce(revision, ("Event",))
    body = transactions.written_json(text, revision, before=row.revision)
    return StoredObject(body, revision, admitted.warnings, row.uid)


def _write(row: LockedRow, new: Manifest, text: str, now: datetime) -> int:
    """Write a new version of a locked event; return its revision."""
    document_id = row.document_id or None
    found = sql.fetch_one(
        _UPDATE,
        [
            *actors.gate(row.actor), text, *_columns(new, now), row.id, document_id, document_id,
            now, row.namespace, row.name, document_id, row.revision,
        ],
    )  # fmt: skip
    assert found is not None  # the row is locked
    revision: int = found[0]
    return revision


def _delete_each(deletions: Sequence[Deletion], now: datetime) -> list[DeletedObject | StatusError]:
    """Remove events, or mark those with finalizers; return the results, in order.

    The log keeps the last state of each as a document.
    """
    context = catalogue.fresh()

    def judge(row: LockedRow, one: Deletion) -> Outcome:
        return judge_deletion(EVENT, row, one, context, now)

    def write(outcomes: Sequence[tuple[LockedRow, Outcome]]) -> list[int]:
        return [
            _write(row, one.manifest, one.text, now)
            for row, one in outcomes
            if one.manifest is not None
        ]

    def remove(rows: Sequence[LockedRow]) -> list[int]:
        return [_remove(row, now) for row in rows]

    return deletion.delete_each(
        EVENT, deletions, lock=_lock, judge=judge, write=write, remove=remove
    )


_DELETE = f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (SELECT {changes.NEXT} AS revision FROM gate WHERE opened = 1),
    deleted AS (
        DELETE FROM event e USING numbered n WHERE e.id = %s::bigint RETURNING e.id, n.revision),
    superseded AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT %s::bigint, revision FROM deleted),
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision, actor_id, cause)
        SELECT revision, %s::timestamptz, {KINDS["Event"].code}, {changes.DELETED}, id,
               %s::text, %s::text, %s::bigint, %s::bigint, %s::bigint, {changes.BY_GATE}
        FROM deleted)
    SELECT revision FROM deleted
"""


def _remove(row: LockedRow, now: datetime) -> int:
    """Remove a locked event; return the revision. The service's own get a document for the log."""
    document_id = row.document_id
    if not document_id:
        document_row = sql.fetch_one(
            "INSERT INTO document (text) VALUES (%s::text) RETURNING id", (row.text,)
        )
        assert document_row is not None
        document_id = document_row[0]
    found = sql.fetch_one(
        _DELETE,
        (
            *actors.gate(row.actor), row.id, document_id, now, row.namespace, row.name,
            document_id, document_id, row.revision,
        ),
    )  # fmt: skip
    assert found is not None  # the row is locked
    revision: int = found[0]
    return revision


class EventWriter(Writer):
    """Writes events, which are typed rows; those of clients have a document, too."""

    is_batched = False

    def create_each(
        self, kind: Kind, items: Sequence[NewObject], now: datetime, *, all_or_nothing: bool = False
    ) -> list[StoredObject | StatusError]:
        """Store events one by one; all or none, in the caller's transaction."""
        return [
            create_event(namespace, manifest, now=now, user=user)
            for namespace, manifest, user in items
        ]

    def update(self, kind: Kind, request: Update, now: datetime) -> StoredObject:
        """See ``update_event``: fields of an event have no managers."""
        with transaction.atomic():
            return update_event(
                request.namespace, request.name, request.change, now=now, user=request.user
            )

    def delete_each(
        self, kind: Kind, deletions: Sequence[Deletion], now: datetime
    ) -> list[DeletedObject | StatusError]:
        """Delete events in one transaction; see ``Writer.delete_each``."""
        with transaction.atomic():
            return _delete_each(deletions, now)
