"""Rows of most kinds: the statements that insert, lock, update and delete them.

One statement writes a row, its document and its change; its CTEs run in this order::

    gate       opens the low watermark (and compares the epoch, if something is created)
    numbered   takes the revision
    document   the new version
    row        insert, update or delete
    superseded the version that is no longer current
    change     the log

Pods have statements of their own (`actions.pods`); events are typed rows (`actions.kinds.events`).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from clusterstate import catalogue
from clusterstate.actions.writing.stored import LockedRow
from clusterstate.actions.writing.transactions import unique_names
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Column, Kind, Part
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.actor import Actor
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import not_found

Columns = dict[str, Any]


def columns_of(kind: Kind, manifest: Manifest) -> Columns:
    """Return the columns that a kind has in addition to the common ones, from its manifest."""
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
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s, %s, %s, %s) WITH ORDINALITY
             AS i(uid, namespace, name, labels, text, extra, actor_id, cause, position)
        WHERE opened = 1 AND (%s::bigint IS NULL OR epoch = %s::bigint)),
    doc AS (INSERT INTO document (id, text) SELECT document_id, text FROM numbered),
    inserted AS (
        INSERT INTO {kind.table} (id, uid, {namespace}name, labels, created_at, document_id,
            {placement[0]}revision{names})
        SELECT id, uid, {namespace}name, labels::jsonb, %s::timestamptz, document_id,
            {placement[1]}revision{values}
        FROM (SELECT *, extra::jsonb AS e FROM numbered) n),{parts}
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            actor_id, cause)
        SELECT revision, %s::timestamptz, %s::smallint, {changes.ADDED}, id, namespace, name,
               document_id, actor_id, cause
        FROM numbered)
    SELECT id, revision FROM numbered ORDER BY position
    """


def _from_json(column: Column) -> str:
    """Return the SQL for a column's value from the JSON object ``e``."""
    type_ = "jsonb" if column.type == "text::jsonb" else column.type
    return f"(e ->> '{column.name}')::{type_}"


class InsertedRow(msgspec.Struct, frozen=True):
    """A row that was inserted, and its document's text."""

    id: int
    revision: int
    text: str


def insert_rows(
    kind: Kind,
    manifests: Sequence[Manifest],
    *,
    now: datetime,
    epoch: int | None,
    by: Sequence[Actor | None] = (),
    fetch: Callable[[str, Sequence[Any]], list[sql.Row]] = sql.fetch,
    savepoint: bool = True,
) -> list[InsertedRow] | None:
    """Insert objects of one kind in one statement; return them in order.

    ``by``: who creates each; by default, the actor of this thread. ``fetch`` executes the
    statement, in a ``savepoint`` if an error must not abort the caller's transaction. ``None``,
    without a write, when ``epoch`` is given and is not the current one.

    Raises:
        AlreadyExists: a name is taken, or occurs twice in the list; nothing was written. It has the
            first one of the list; ``taken_names`` returns all of them.
    """
    metadata = [manifest["metadata"] for manifest in manifests]
    namespaces = [one.get("namespace", "") if kind.namespaced else "" for one in metadata]
    names = [one["name"] for one in metadata]
    texts = [document.encode(kind.name, manifest)[0] for manifest in manifests]
    parameters = (
        *actors.gate(),
        sql.Uuids([sql.as_uuid(one["uid"]) for one in metadata]),
        sql.Texts(namespaces),
        sql.Texts(names),
        sql.Texts([labels_json(manifest) for manifest in manifests]),
        sql.Texts(texts),
        sql.Texts([_json(_new_columns(kind, manifest)) for manifest in manifests]),
        *actors.columns(by or [None] * len(manifests)),
        epoch,
        epoch,
        now,
        now,
        kind.code,
    )
    with unique_names(kind, names[0], savepoint=savepoint):
        rows = fetch(_insert_statement(kind.name), parameters)
    if not rows:
        return None
    return [InsertedRow(row[0], row[1], text) for row, text in zip(rows, texts, strict=True)]


def taken_names(kind: Kind, manifests: Sequence[Manifest]) -> set[int]:
    """Return the positions of new objects whose name is taken, or occurs earlier in the list."""
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
    names = {(row[0], row[1]) for row in rows}
    positions = set()
    for position, key in enumerate(keys):
        if key in names:
            positions.add(position)
        names.add(key)
    return positions


def _is_seen(kind: Kind) -> str:
    """Return a condition on a document's row ``t``: the statement sees its newest version.

    An unlogged heartbeat overwrites a document, so a statement that waited for it finds the row's
    newest version with the previous document. After any other update it finds no document, since
    the newest version has a new one.
    """
    if not kind.skips_change_log:
        return ""
    return f" AND EXISTS (SELECT FROM {kind.table} s WHERE s.id = t.id AND s.revision = t.revision)"


@lru_cache(maxsize=64)
def _lock_statements(kind_name: str, more: str) -> tuple[str, str]:
    kind = KINDS[kind_name]
    where = "t.namespace = %s AND t.name = %s" if kind.namespaced else "t.name = %s"
    namespace = "t.namespace" if kind.namespaced else "''"
    read = (
        f"SELECT t.id, t.uid::text, {namespace}, t.name, t.document_id, t.revision, d.text{more}"
        f" FROM {kind.rows} t JOIN document d ON d.id = t.document_id WHERE {where}{_is_seen(kind)}"
        " FOR NO KEY UPDATE OF t"
    )
    return read, f"SELECT 1 FROM {kind.rows} t WHERE {where} FOR NO KEY UPDATE"


def lock_row(kind: Kind, namespace: str, name: str) -> LockedRow:
    """Return the stored row with its document, locked until the transaction ends; not for pods.

    Raises:
        NotFound: there is none.
    """
    return LockedRow(*lock_columns(kind, namespace, name))


def lock_columns(kind: Kind, namespace: str, name: str, more: str = "") -> sql.Row:
    """Return a row's first columns, as in ``LockedRow``, and the columns ``more``; locked.

    When the statement had to wait for another writer, PostgreSQL checks the row's newest version
    against the document of the older one and finds no match. Then the row is locked by itself,
    after which no other transaction can change it, and read again.

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
    # OFFSET 0 and the arrays force an index look-up for each, whatever the statistics.
    return f"""
    WITH found AS MATERIALIZED (
        SELECT one.id FROM unnest(%s, %s) AS k(namespace, name),
             LATERAL (SELECT t.id FROM {kind.rows} t WHERE {match} OFFSET 0) one),
    locked AS MATERIALIZED (
        SELECT t.* FROM {kind.table} t WHERE t.id = ANY (ARRAY(SELECT id FROM found))
        ORDER BY t.id FOR NO KEY UPDATE OF t)
    SELECT t.id, t.uid::text, {namespace}, t.name, t.document_id, t.revision,
           (SELECT d.text FROM document d WHERE d.id = t.document_id{_is_seen(kind)}){more}
    FROM locked t
    """


def lock_rows(kind: Kind, keys: Sequence[tuple[str, str]]) -> list[LockedRow]:
    """Return the stored rows with these namespaces and names, locked; not for pods.

    Absent ones are left out. See ``lock_many_columns``.
    """
    return [LockedRow(*found) for found in lock_many_columns(kind, keys)]


def lock_many_columns(kind: Kind, keys: Sequence[tuple[str, str]], more: str = "") -> list[sql.Row]:
    """Return the result of ``lock_columns`` for rows with these namespaces and names.

    They are locked in the order of their ids, as by every writer of many. After waiting for another
    writer, the statement sees the newest version of a row without its document: those rows are read
    once more, when no other transaction can write them any more.
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
                            previous_document_id, previous_revision, deletion_at, actor_id, cause)
        SELECT u.revision, %s::timestamptz, %s::smallint, {changes.MODIFIED}, u.id, %s::text,
               %s::text, u.document_id, %s::bigint, %s::bigint, u.deletion_at, {changes.BY_GATE}
        FROM updated u)"""
    return f"""
    {changes.WITH_GATE},
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
    row: LockedRow,
    manifest: Manifest,
    text: str,
    *,
    now: datetime,
    placement: bool = False,
    logged: bool = True,
) -> int:
    """Write a new version of a locked row; return its revision.

    ``placement``: the node's placement revision changes too. ``logged`` False leaves the change out
    of the log (a lease that is merely renewed).
    """
    statement, parameters = update_of(
        kind, row, manifest, text, now=now, placement=placement, logged=logged
    )
    found = sql.fetch_one(statement, parameters)
    assert found is not None  # the row is locked
    revision: int = found[0]
    return revision


def update_of(
    kind: Kind,
    row: LockedRow,
    manifest: Manifest,
    text: str,
    *,
    now: datetime,
    placement: bool = False,
    logged: bool = True,
) -> tuple[str, list[Any]]:
    """Return the statement of ``update_row``, which returns the revision, and its parameters."""
    metadata = manifest["metadata"]
    deletion = metadata.get("deletionTimestamp")
    parameters = [
        *actors.gate(row.actor),
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
    return _update_statement(kind.name, logged=logged), parameters


@lru_cache(maxsize=64)
def _renew_statement(kind_name: str) -> str:
    kind = KINDS[kind_name]
    columns = "".join(f", {one.name} = {_from_json(one)}" for one in kind.columns)
    namespace = "t.namespace" if kind.namespaced else "''"
    its_own = (
        "true"
        if not kind.skips_change_log
        else ("EXISTS (SELECT FROM change c WHERE c.revision = i.before)")
    )
    log = f"""
    , logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision, deletion_at, actor_id, cause)
        SELECT u.revision, %s::timestamptz, {kind.code}, {changes.MODIFIED}, u.id, u.namespace,
               u.name, n.written, n.document_id, n.before, u.deletion_at, n.actor_id, n.cause
        FROM updated u JOIN numbered n ON n.object_id = u.id)"""
    return f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.*, i.extra::jsonb AS e,
               CASE WHEN {its_own} THEN nextval('document_id_seq') ELSE i.document_id END AS written
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s, %s, %s)
             AS i(object_id, document_id, before, text, extra, actor_id, cause)
        WHERE opened = 1),
    again AS (
        UPDATE document d SET text = n.text FROM numbered n
        WHERE d.id = n.written AND d.id = ANY (
            ARRAY(SELECT written FROM numbered WHERE document_id = written))),
    doc AS (
        INSERT INTO document (id, text)
        SELECT written, text FROM numbered WHERE document_id <> written),
    old AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT document_id, revision FROM numbered WHERE document_id <> written),
    updated AS (
        UPDATE {kind.table} t SET document_id = n.written, revision = n.revision{columns}
        FROM numbered n WHERE t.id = n.object_id
            AND t.id = ANY (ARRAY(SELECT object_id FROM numbered))
        RETURNING t.id, t.revision, {namespace} AS namespace, t.name, t.deletion_at, t.document_id
    ){"" if kind.skips_change_log else log}
    SELECT id, revision, document_id FROM updated
    """


NOT_FLUSHED: Final = ("SELECT set_config('synchronous_commit', 'off', true)", ())
"""A statement: the commit of the open transaction does not wait for the disk."""


def renew_rows(
    kind: Kind, versions: Sequence[tuple[LockedRow, Manifest, str]], *, now: datetime
) -> dict[int, tuple[int, int]]:
    """Write heartbeats: versions (row, manifest and text) of locked rows, by one statement.

    Returns their revisions, and the ids of their documents, by the rows' ids. For a kind with
    unlogged heartbeats, the commit does not wait for the disk, and a document that no entry of the
    log names is overwritten: no reader can ask for its former content. Labels, parts, and whether
    an object is being deleted, stay.
    """
    rows = [row for row, _, _ in versions]
    parameters = [
        *actors.gate(),
        sql.Int8s([row.id for row in rows]),
        sql.Int8s([row.document_id for row in rows]),
        sql.Int8s([row.revision for row in rows]),
        sql.Texts([text for _, _, text in versions]),
        sql.Texts([_json(columns_of(kind, manifest)) for _, manifest, _ in versions]),
        *actors.columns([row.actor for row in rows]),
    ]
    if not kind.skips_change_log:
        found = sql.fetch(_renew_statement(kind.name), [*parameters, now])
    else:
        _, found = sql.fetch_together(NOT_FLUSHED, (_renew_statement(kind.name), parameters))
    return {row[0]: (row[1], row[2]) for row in found}


@lru_cache(maxsize=64)
def _update_many_statement(kind_name: str) -> str:
    kind = KINDS[kind_name]
    return f"""
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, nextval('document_id_seq') AS document_id, i.*
        FROM gate CROSS JOIN unnest(%s, %s, %s, %s, %s)
             AS i(object_id, text, deletion_at, actor_id, cause)
        WHERE opened = 1),
    doc AS (INSERT INTO document (id, text) SELECT document_id, text FROM numbered),
    before AS MATERIALIZED (
        SELECT id, document_id, revision FROM {kind.table}
        WHERE id = ANY (ARRAY(SELECT object_id FROM numbered))),
    updated AS (
        UPDATE {kind.table} t
        SET document_id = n.document_id, revision = n.revision, deletion_at = n.deletion_at
        FROM numbered n WHERE t.id = n.object_id
            AND t.id = ANY (ARRAY(SELECT object_id FROM numbered))
        RETURNING t.id, t.revision, t.document_id, t.deletion_at, t.namespace, t.name,
                  n.actor_id, n.cause),
    old AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT b.document_id, u.revision FROM updated u JOIN before b ON b.id = u.id),
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision, deletion_at, actor_id, cause)
        SELECT u.revision, %s::timestamptz, %s::smallint, {changes.MODIFIED}, u.id, u.namespace,
               u.name, u.document_id, b.document_id, b.revision, u.deletion_at, u.actor_id, u.cause
        FROM updated u JOIN before b ON b.id = u.id)
    SELECT id, revision FROM updated
    """


def takes_documents(kind: Kind) -> bool:
    """Return whether ``update_documents`` writes a kind, whose objects are only documents."""
    return kind.namespaced and not kind.columns and not kind.parts


def update_documents(
    kind: Kind, versions: Sequence[tuple[LockedRow, Manifest, str]], *, now: datetime
) -> list[int]:
    """Write versions (row, manifest and text) of locked rows by one statement.

    Returns their revisions, in order. For kinds that ``takes_documents`` accepts; labels stay.
    """
    assert takes_documents(kind)
    rows = [row for row, _, _ in versions]
    deletions = [new["metadata"].get("deletionTimestamp") for _, new, _ in versions]
    parameters = (
        *actors.gate(),
        sql.Int8s([row.id for row in rows]),
        sql.Texts([text for _, _, text in versions]),
        sql.Times([at and document.parse_time(at) for at in deletions]),
        *actors.columns([row.actor for row in rows]),
        now,
        kind.code,
    )
    revisions: dict[int, int] = dict(sql.fetch(_update_many_statement(kind.name), parameters))
    return [revisions[row.id] for row in rows]


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
    {changes.WITH_GATE},
    numbered AS MATERIALIZED (
        SELECT {changes.NEXT} AS revision, i.*
        FROM gate CROSS JOIN unnest(%s, %s, %s) AS i(id, actor_id, cause) WHERE opened = 1),
    {parts}
    deleted AS (
        DELETE FROM {kind.table} t USING numbered n
        WHERE t.id = n.id AND t.id = ANY (ARRAY(SELECT id FROM numbered))
        RETURNING t.id, {namespace} AS namespace, t.name, t.document_id, t.deletion_at,
                  t.revision AS old_revision, n.revision, n.actor_id, n.cause),
    old AS (
        INSERT INTO superseded_document (document_id, revision)
        SELECT document_id, revision FROM deleted),
    logged AS (
        INSERT INTO change (revision, at, kind, verb, object_id, namespace, name, document_id,
                            previous_document_id, previous_revision, deletion_at, actor_id, cause)
        SELECT revision, %s::timestamptz, %s::smallint, {changes.DELETED}, id, namespace, name,
               document_id, document_id, old_revision, deletion_at, actor_id, cause
        FROM deleted)
    SELECT id, revision FROM deleted
    """


def delete_rows(kind: Kind, rows: Sequence[LockedRow], *, now: datetime) -> list[int]:
    """Remove locked rows by one statement; return the revisions of their deletions, in order."""
    by = actors.columns([row.actor for row in rows])
    found = sql.fetch(
        _delete_statement(kind.name),
        (*actors.gate(), sql.Int8s([row.id for row in rows]), *by, now, kind.code),
    )
    revisions: dict[int, int] = dict(found)
    return [revisions[row.id] for row in rows]
