"""What all writes share: metadata that the server owns, and the statements for rows of most kinds.

A row, its document and its change are written by one statement, whose CTEs run in this order::

    gate       the low watermark is opened (and, where something is created, the epoch compared)
    numbered   the revision is taken
    document   the new version
    row        insert, update or delete
    superseded the version that is no longer current
    change     the log

Pods have statements of their own (`actions.pods`); events are typed rows (`actions.events`).
"""

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from django.db import IntegrityError, connection, transaction

from clusterstate import catalogue, changes, sql
from clusterstate.objects import document
from clusterstate.objects.document import Overlay
from clusterstate.objects.errors import AlreadyExists, BadRequest, Conflict
from clusterstate.objects.kind import Column, Kind, Part
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.meta import Manifest
from clusterstate.queries.objects import kind_of, not_found

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_LONGEST_NAME: Final = 63
_SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "resourceVersion",
)
_random = random.SystemRandom()


class Stored(msgspec.Struct, frozen=True):
    """An object as it was stored (or would be, in a dry run); ``manifest`` is its JSON.

    ``changed`` is false when an update changed nothing: no new revision, no change in the log.
    """

    manifest: bytes
    revision: int
    warnings: list[str]
    uid: str = ""
    changed: bool = True


class Deleted(msgspec.Struct, frozen=True):
    """The answer to a deletion. ``gone`` is false while the object stays for its finalizers."""

    manifest: bytes
    revision: int
    uid: str
    gone: bool


class Row(msgspec.Struct):
    """A stored row, locked for change, with its document."""

    id: int
    uid: str
    namespace: str
    name: str
    document_id: int
    revision: int
    text: str
    overlay: Overlay = document.EMPTY
    class_id: int = 0
    phase: str = ""
    nominated_node_name: str = ""

    def manifest(self) -> Manifest:
        """Return the stored manifest, decoded afresh; the caller may change it."""
        return document.decode(self.text, self.revision, self.overlay)

    def composed(self) -> bytes:
        """Return the stored manifest as JSON."""
        return document.compose(self.text, self.revision, self.overlay)


def new_uid() -> uuid.UUID:
    """Return a random UUID, for ``metadata.uid``."""
    return uuid.uuid4()


@lru_cache(maxsize=16)
def stamp(moment: datetime) -> str:
    """Return a moment as manifests write it; remembered, since a batch asks for one many times."""
    return document.format_time(moment)


def name_suffix() -> str:
    """Return five letters that spell no words (apiserver ``names.SimpleNameGenerator``)."""
    return "".join(_random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))


def generated_name(base: str) -> str:
    """Return a name that begins like ``generateName`` says."""
    return base[: _LONGEST_NAME - _SUFFIX_LENGTH] + name_suffix()


def prepare(
    kind: Kind, namespace: str, manifest: Manifest, *, now: datetime, uid: uuid.UUID
) -> tuple[Manifest, bool]:
    """Return the manifest with the metadata of a new object, and whether its name was generated.

    Drops what only the server sets, and the status of kinds whose status is not the client's.
    ``manifest`` itself is not changed.

    Raises:
        BadRequest: it carries a resourceVersion, or another namespace.
    """
    given: Manifest = manifest.get("metadata") or {}
    if given.get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    metadata = {
        key: value for key, value in given.items() if key not in _SERVER_OWNED and value is not None
    }
    generated = False
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"])
        generated = True
    if kind.namespaced:
        if metadata.get("namespace", namespace) != namespace and namespace:
            raise BadRequest(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        metadata["namespace"] = namespace or metadata.get("namespace") or "default"
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = str(uid)
    metadata["creationTimestamp"] = stamp(now)
    if kind.counts_generation:
        metadata["generation"] = 1
    result = {**manifest, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    if "status" in kind.subresources:
        if kind.status_at_creation:
            result.setdefault("status", {})
        else:
            result["status"] = dict(kind.new_status)
    if "spec" not in result and _has_spec(kind.wire_type):
        result["spec"] = {}
    kind.strategy.prepare_for_create(result)
    return result, generated


@lru_cache(maxsize=256)
def _has_spec(wire_type: type[msgspec.Struct]) -> bool:
    """Return whether objects have a spec, which is then given out even if it is empty."""
    return any(field.encode_name == "spec" for field in msgspec.structs.fields(wire_type))


def merge_update(kind: Kind, old: Manifest, new: Manifest, subresource: str) -> Manifest:
    """Return what an update may change: metadata and spec, or the status (the finalizers) alone.

    Fields that only the server sets keep their stored values. An update of the status changes
    metadata as well, as far as the kind's strategy lets it: annotations, for one.

    Raises:
        Conflict: ``new`` carries another resourceVersion or uid than the stored object.
    """
    old_metadata, metadata = old["metadata"], dict(new.get("metadata") or {})
    check_preconditions(
        kind,
        old_metadata,
        uid=metadata.get("uid"),
        resource_version=metadata.get("resourceVersion"),
    )
    for key in (*_SERVER_OWNED, "name", "namespace", "generateName"):
        if key in old_metadata:
            metadata[key] = old_metadata[key]
        else:
            metadata.pop(key, None)
    if subresource:
        part = "spec" if subresource == "finalize" else "status"
        if subresource == "finalize":
            metadata = dict(old_metadata)
        result = {**old, "metadata": metadata}
        if new.get(part) is None:
            result.pop(part, None)
        else:
            result[part] = new[part]
        kind.strategy.prepare_for_update(result, old, subresource)
        return result
    result = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": metadata}
    if "spec" not in result and _has_spec(kind.wire_type):
        result["spec"] = {}
    if "status" in kind.subresources:
        if old.get("status") is None:
            result.pop("status", None)
        else:
            result["status"] = old["status"]
    kind.strategy.prepare_for_update(result, old, "")
    return result


def check_preconditions(
    kind: Kind,
    metadata: Manifest,
    *,
    uid: str | None = None,
    resource_version: str | None = None,
) -> None:
    """Check what a request says about the object it means.

    The version ``0`` is any version (``AllowUnconditionalUpdate`` in apiserver registry/store.go).

    Raises:
        Conflict: the stored object is another one, or another version.
    """
    if uid and uid != metadata["uid"]:
        raise conflict(
            kind,
            metadata["name"],
            f"Precondition failed: UID in precondition: {uid}, UID in object meta:"
            f" {metadata['uid']}",
        )
    if resource_version not in (None, "", "0", metadata["resourceVersion"]):
        raise conflict(
            kind,
            metadata["name"],
            "the object has been modified; please apply your changes to the latest version and"
            " try again",
        )


def check_before_deletion(
    kind: Kind, metadata: Manifest, *, uid: str, resource_version: str
) -> None:
    """Check the preconditions of a deletion, empty for none.

    Rule: Preconditions.Check, apiserver ``storage/interfaces.go``, v1.36.

    Raises:
        Conflict: the stored object is another one, or another version.
    """
    check_preconditions(kind, metadata, uid=uid)
    if resource_version and resource_version != metadata["resourceVersion"]:
        raise conflict(
            kind,
            metadata["name"],
            f"Precondition failed: ResourceVersion in precondition: {resource_version},"
            f" ResourceVersion in object meta: {metadata['resourceVersion']}",
        )


def conflict(kind: Kind, name: str, why: str) -> Conflict:
    """Return the error ``Operation cannot be fulfilled on pods "x": why``."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}', details(kind, name)
    )


def already_exists(kind: Kind, name: str) -> AlreadyExists:
    """Return the error ``pods "x" already exists``."""
    return AlreadyExists(f'{kind.resource} "{name}" already exists', details(kind, name))


def details(kind: Kind, name: str) -> dict[str, Any]:
    """Return the ``details`` of a Status about one object."""
    result: dict[str, Any] = {"name": name, "kind": kind.plural}
    if kind.group:
        result["group"] = kind.group
    return result


def bump_generation(kind: Kind, old: Manifest, new: Manifest) -> None:
    """Count a change of the spec in ``metadata.generation`` of ``new``, in place."""
    if kind.counts_generation and old.get("spec") != new.get("spec"):
        new["metadata"] = {
            **new["metadata"],
            "generation": old["metadata"].get("generation", 0) + 1,
        }


def bump_generation_of_leaving(metadata: Manifest) -> None:
    """Count that a deletion has begun, in place: agents wait for the generation they acted on.

    Rule: BeforeDelete, apiserver ``rest/delete.go``, v1.36.
    """
    if metadata.get("generation"):
        metadata["generation"] += 1


def same(kind: Kind, row: Row, old: Manifest, new: Manifest, text: str, slots: Overlay) -> bool:
    """Return whether an update changes nothing but times in managedFields."""
    if slots != row.overlay:
        return False
    if text == row.text:
        return True
    before, after = (m["metadata"].get("managedFields") for m in (old, new))
    if before == after or not before or not after or _timeless(before) != _timeless(after):
        return False
    restored = {**new, "metadata": {**new["metadata"], "managedFields": before}}
    return document.encode(kind.name, restored)[0] == row.text


def _timeless(entries: list[Manifest]) -> list[Manifest]:
    return [{key: value for key, value in entry.items() if key != "time"} for entry in entries]


# Transactions ---------------------------------------------------------------------------------


_rehearsing: ContextVar[bool] = ContextVar("rehearsing", default=False)


@contextmanager
def rehearsal() -> Iterator[None]:
    """A dry run: whatever is written inside is done, answered, and rolled back at the end.

    Every action and statement on this connection is inside, however it opens transactions of its
    own; what they would do after their commit is never done. Nobody else sees anything of it.
    """
    token = _rehearsing.set(True)
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        _rehearsing.reset(token)


def is_rehearsal() -> bool:
    """Return whether what is written now will be rolled back."""
    return _rehearsing.get()


def work(*, dry_run: bool = False) -> AbstractContextManager[None]:
    """Return a transaction, of a dry run if that is wanted."""
    return rehearsal() if dry_run else transaction.atomic()


@contextmanager
def unique_names(kind: Kind, name: str) -> Iterator[None]:
    """Turn a violated name constraint into AlreadyExists; in a transaction, keep it usable."""
    try:
        with transaction.atomic() if connection.in_atomic_block else nullcontext():
            yield
    except IntegrityError as error:
        constraint = getattr(getattr(error.__cause__, "diag", None), "constraint_name", "") or ""
        if constraint.endswith("_name_unique"):
            raise already_exists(kind, name) from None
        raise


# Rows of all kinds but pods and events --------------------------------------------------------

Columns = dict[str, Any]


def columns_of(kind: Kind, manifest: Manifest) -> Columns:
    """Return the columns that a kind has beside the common ones, from its manifest."""
    return {column.name: column.read(manifest) for column in kind.columns}


def _new_columns(kind: Kind, manifest: Manifest) -> Columns:
    """Return the columns of a new object, and by table the rows of its parts."""
    columns = columns_of(kind, manifest)
    for part in kind.parts:
        columns[part.table] = [
            {column.name: column.read(item) for column in part.columns}
            for item in part.read(manifest)
        ]
    return columns


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def labels_json(manifest: Manifest) -> str:
    """Return the labels as JSON text."""
    labels: Mapping[str, str] = manifest["metadata"].get("labels") or {}
    return _json(labels) if labels else "{}"


def _insert_part(part: Part) -> str:
    """Return the CTE that inserts the rows of a part, in the order of the manifest's list."""
    names = ", ".join(column.name for column in part.columns)
    values = ", ".join(f"(t.item ->> '{one.name}')::{one.type}" for one in part.columns)
    return f"""
    {part.table}_rows AS (
        INSERT INTO {part.table} ({part.owner}, position, {names})
        SELECT n.id, t.position::smallint, {values}
        FROM numbered n, jsonb_array_elements(n.extra::jsonb -> '{part.table}') WITH ORDINALITY
             AS t(item, position)),"""


@lru_cache(maxsize=64)
def _insert_statement(kind_name: str) -> str:
    kind = KINDS[kind_name]
    names = "".join(f", {column.name}" for column in kind.columns)
    values = "".join(f", {_from_json(column)}" for column in kind.columns)
    if kind.is_shared:
        names += ", kind"
        values += f", {kind.code}"
    namespace = "namespace, " if kind.namespaced else ""
    placement = ("placement_revision, ", "revision, ") if kind.guards_placement else ("", "")
    parts = "".join(_insert_part(part) for part in kind.parts)
    return f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}, {catalogue.EPOCH}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('{kind.table}_id_seq') AS id,
               nextval('document_id_seq') AS document_id, i.*
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s, %s) WITH ORDINALITY
             AS i(uid, namespace, name, labels, text, extra, position)
        WHERE opened = 1 AND (%s::bigint IS NULL OR epoch = %s::bigint)),
    doc AS (INSERT INTO document (id, text) SELECT document_id, text FROM numbered),
    inserted AS (
        INSERT INTO {kind.table} (id, uid, {namespace}name, labels, created_at, document_id,
            {placement[0]}revision{names})
        SELECT id, uid, {namespace}name, labels::jsonb, %s::timestamptz, document_id,
            {placement[1]}revision{values}
        FROM (SELECT *, extra::jsonb AS e FROM numbered) n),{parts}
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id)
        SELECT revision, %s::timestamptz, %s::smallint, {changes.ADDED}, id, namespace, name,
               document_id
        FROM numbered)
    SELECT id, revision FROM numbered ORDER BY position
    """


def _from_json(column: Column) -> str:
    """Return the SQL for a column's value from the JSON object ``e``."""
    type_ = "jsonb" if column.type == "text::jsonb" else column.type
    return f"(e ->> '{column.name}')::{type_}"


class Inserted(msgspec.Struct, frozen=True):
    """A row that was inserted, and its document's text."""

    id: int
    revision: int
    text: str


def insert_rows(
    kind: Kind, manifests: Sequence[Manifest], *, now: datetime, epoch: int | None
) -> list[Inserted] | None:
    """Insert objects of one kind in one statement; return them in order.

    ``None`` when ``epoch`` is given and is not the current one: nothing was written.

    Raises:
        AlreadyExists: a name is taken, also twice in the list; nothing was written. It names the
            first of the list; which are taken is told by ``taken_names``.
    """
    metadata = [manifest["metadata"] for manifest in manifests]
    namespaces = [one.get("namespace", "") if kind.namespaced else "" for one in metadata]
    names = [one["name"] for one in metadata]
    texts = [document.encode(kind.name, manifest)[0] for manifest in manifests]
    parameters = (
        sql.Uuids([sql.as_uuid(one["uid"]) for one in metadata]),
        sql.Texts(namespaces),
        sql.Texts(names),
        sql.Texts([labels_json(manifest) for manifest in manifests]),
        sql.Texts(texts),
        sql.Texts([_json(_new_columns(kind, manifest)) for manifest in manifests]),
        epoch,
        epoch,
        now,
        now,
        kind.code,
    )
    with unique_names(kind, names[0]):
        rows = sql.fetch(_insert_statement(kind.name), parameters)
    if not rows:
        return None
    return [Inserted(row[0], row[1], text) for row, text in zip(rows, texts, strict=True)]


def taken_names(kind: Kind, manifests: Sequence[Manifest]) -> set[int]:
    """Return the positions of new objects whose name is taken, or stands earlier in the list."""
    keys = [
        (one["metadata"].get("namespace", "") if kind.namespaced else "", one["metadata"]["name"])
        for one in manifests
    ]
    namespace = "t.namespace" if kind.namespaced else "''"
    match = "AND t.namespace = k.namespace" if kind.namespaced else ""
    rows = sql.fetch(
        f"SELECT {namespace}, t.name FROM {kind.rows} t"
        f" JOIN unnest(%s, %s) AS k(namespace, name) ON t.name = k.name {match}",
        (sql.Texts([key[0] for key in keys]), sql.Texts([key[1] for key in keys])),
    )
    seen = {(row[0], row[1]) for row in rows}
    taken = set()
    for position, key in enumerate(keys):
        if key in seen:
            taken.add(position)
        seen.add(key)
    return taken


@lru_cache(maxsize=64)
def _lock_statements(kind_name: str, more: str) -> tuple[str, str]:
    kind = KINDS[kind_name]
    where = "t.namespace = %s AND t.name = %s" if kind.namespaced else "t.name = %s"
    namespace = "t.namespace" if kind.namespaced else "''"
    read = (
        f"SELECT t.id, t.uid::text, {namespace}, t.name, t.document_id, t.revision, d.text{more}"
        f" FROM {kind.rows} t JOIN document d ON d.id = t.document_id WHERE {where}"
        " FOR NO KEY UPDATE OF t"
    )
    return read, f"SELECT 1 FROM {kind.rows} t WHERE {where} FOR NO KEY UPDATE"


def lock_row(kind: Kind, namespace: str, name: str) -> Row:
    """Return the stored row with its document, locked until the transaction ends; not for pods.

    Raises:
        NotFound: there is none.
    """
    return Row(*lock_columns(kind, namespace, name))


def lock_columns(kind: Kind, namespace: str, name: str, more: str = "") -> sql.Row:
    """Return the first columns of a ``Row`` and the columns ``more``, of a row locked as above.

    When the statement had to wait for another writer, PostgreSQL checks the row's newest version
    against the document of the older one and finds no match. The row is then locked by itself,
    after which nobody else can move it, and read again.

    Raises:
        NotFound: there is none.
    """
    key = (namespace, name) if kind.namespaced else (name,)
    read, lock = _lock_statements(kind.name, more)
    found = sql.fetch_one(read, key)
    if found is None:
        if sql.fetch_one(lock, key) is None:
            raise not_found(kind, name)
        found = sql.fetch_one(read, key)
        assert found is not None
    return found


@lru_cache(maxsize=64)
def _lock_many_statement(kind_name: str, more: str) -> str:
    kind = KINDS[kind_name]
    match = "t.name = k.name" + (" AND t.namespace = k.namespace" if kind.namespaced else "")
    namespace = "t.namespace" if kind.namespaced else "''"
    # OFFSET 0 and the arrays make it a look-up by index for each, whatever the statistics say.
    return f"""
    WITH found AS MATERIALIZED (
        SELECT one.id FROM unnest(%s, %s) AS k(namespace, name),
             LATERAL (SELECT t.id FROM {kind.rows} t WHERE {match} OFFSET 0) one),
    locked AS MATERIALIZED (
        SELECT t.* FROM {kind.table} t WHERE t.id = ANY (ARRAY(SELECT id FROM found))
        ORDER BY t.id FOR NO KEY UPDATE OF t)
    SELECT t.id, t.uid::text, {namespace}, t.name, t.document_id, t.revision,
           (SELECT d.text FROM document d WHERE d.id = t.document_id){more}
    FROM locked t
    """


def lock_rows(kind: Kind, keys: Sequence[tuple[str, str]]) -> list[Row]:
    """Return the stored rows with these namespaces and names, locked; not for pods.

    Absent ones are left out. See ``lock_many_columns``.
    """
    return [Row(*found) for found in lock_many_columns(kind, keys)]


def lock_many_columns(kind: Kind, keys: Sequence[tuple[str, str]], more: str = "") -> list[sql.Row]:
    """Return what ``lock_columns`` does, of the rows with these namespaces and names.

    They are locked in the order of their ids, as by every writer of many. Where that had to wait
    for another writer, the row is the newest version, whose document the statement does not see
    yet: it is asked once more, when nobody else can write these rows any more.
    """
    parameters = (
        sql.Texts([namespace for namespace, _ in keys]),
        sql.Texts([name for _, name in keys]),
    )
    statement = _lock_many_statement(kind.name, more)
    found = sql.fetch(statement, parameters)
    if any(row[6] is None for row in found):
        locked = {row[0] for row in found}
        found = [row for row in sql.fetch(statement, parameters) if row[0] in locked]
    return found


@lru_cache(maxsize=128)
def _update_statement(kind_name: str, *, logged: bool) -> str:
    kind = KINDS[kind_name]
    columns = "".join(f", {column.name} = %s::{column.type}" for column in kind.columns)
    placement = (
        ", placement_revision = CASE WHEN %s THEN n.revision ELSE t.placement_revision END"
        if kind.guards_placement
        else ""
    )
    log = f"""
    , logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision, deletion_at)
        SELECT u.revision, %s::timestamptz, %s::smallint, {changes.MODIFIED}, u.id, %s::text,
               %s::text, u.document_id, %s::bigint, %s::bigint, u.deletion_at
        FROM updated u)"""
    return f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id
        FROM gate WHERE opened = 1),
    doc AS (INSERT INTO document (id, text) SELECT document_id, %s::text FROM numbered),
    updated AS (
        UPDATE {kind.table} t
        SET document_id = n.document_id, revision = n.revision, labels = %s::text::jsonb,
            deletion_at = %s::timestamptz{columns}{placement}
        FROM numbered n WHERE t.id = %s::bigint
        RETURNING t.id, t.revision, t.document_id, t.deletion_at),
    old AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT %s::bigint, revision FROM updated){log if logged else ""}
    SELECT revision FROM updated
    """


def update_row(
    kind: Kind,
    row: Row,
    manifest: Manifest,
    text: str,
    *,
    now: datetime,
    placement: bool = False,
    logged: bool = True,
) -> int:
    """Write a new version of a locked row; return its revision.

    ``placement``: the node's placement revision moves along. ``logged`` False leaves the change
    out of the log (a lease that is merely renewed).
    """
    metadata = manifest["metadata"]
    deletion = metadata.get("deletionTimestamp")
    parameters = [
        text,
        labels_json(manifest),
        document.parse_time(deletion) if deletion else None,
        *columns_of(kind, manifest).values(),
        *([placement] if kind.guards_placement else []),
        row.id,
        row.document_id,
    ]
    if logged:
        parameters += [
            now,
            kind.code,
            row.namespace,
            row.name,
            row.document_id,
            row.revision,
        ]
    found = sql.fetch_one(_update_statement(kind.name, logged=logged), parameters)
    assert found is not None  # the row is locked
    revision: int = found[0]
    return revision


@lru_cache(maxsize=64)
def _delete_statement(kind_name: str) -> str:
    kind = KINDS[kind_name]
    parts = " ".join(
        f"{part.table}_rows AS (DELETE FROM {part.table}"
        f" WHERE {part.owner} = ANY (ARRAY(SELECT id FROM numbered))),"
        for part in kind.parts
    )
    namespace = "t.namespace" if kind.namespaced else "''"
    return f"""
    WITH gate AS MATERIALIZED (SELECT {changes.OPEN}),
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.id
        FROM gate CROSS JOIN unnest(%s) AS i(id) WHERE opened = 1),
    {parts}
    deleted AS (
        DELETE FROM {kind.table} t USING numbered n
        WHERE t.id = n.id AND t.id = ANY (ARRAY(SELECT id FROM numbered))
        RETURNING t.id, {namespace} AS namespace, t.name, t.document_id, t.deletion_at,
                  t.revision AS old_revision, n.revision),
    old AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT document_id, revision FROM deleted),
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision, deletion_at)
        SELECT revision, %s::timestamptz, %s::smallint, {changes.DELETED}, id, namespace, name,
               document_id, document_id, old_revision, deletion_at
        FROM deleted)
    SELECT id, revision FROM deleted
    """


def delete_rows(kind: Kind, rows: Sequence[Row], *, now: datetime) -> list[int]:
    """Remove locked rows by one statement; return the revisions of their deletions, in order."""
    found = sql.fetch(
        _delete_statement(kind.name), (sql.Int8s([row.id for row in rows]), now, kind.code)
    )
    revisions: dict[int, int] = dict(found)
    return [revisions[row.id] for row in rows]


__all__ = [
    "Deleted",
    "Row",
    "Stored",
    "already_exists",
    "bump_generation",
    "check_before_deletion",
    "check_preconditions",
    "conflict",
    "delete_rows",
    "insert_rows",
    "is_rehearsal",
    "kind_of",
    "lock_columns",
    "lock_many_columns",
    "lock_row",
    "lock_rows",
    "merge_update",
    "new_uid",
    "prepare",
    "rehearsal",
    "same",
    "taken_names",
    "unique_names",
    "update_row",
    "work",
]
