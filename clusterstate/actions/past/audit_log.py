"""The audit log's table: lines are appended to a chain of digests, and dropped at its old end.

To change, remove or insert a line, every later digest must be recomputed, and the newest one may be
known elsewhere: `manage.py auditlog` prints it. Writers of several processes take turns by locking
the row of the chain's ends; they write many lines at once.
"""

import hashlib
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from django.conf import settings
from django.db import transaction

from clusterstate.database import sql

_HEAD: Final = "SELECT last_id, digest FROM audit_head WHERE id = 1 FOR NO KEY UPDATE"
_FIRST: Final = """
    INSERT INTO audit_head (id, last_id, digest, trimmed_id, trimmed_digest)
    VALUES (1, 0, ''::bytea, 0, ''::bytea) ON CONFLICT (id) DO NOTHING
"""
_APPEND: Final = """
    WITH moved AS (
        UPDATE audit_head SET last_id = %s::bigint, digest = %s::bytea WHERE id = 1)
    INSERT INTO audit_line (id, at, audit_id, username, verb, resource, namespace, name, code, line,
                            digest)
    SELECT * FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s::smallint[], %s, %s)
"""
_AT_ONCE: Final = 5000
_OLD: Final = """
    SELECT max(id) FROM audit_line
    WHERE id <= (SELECT min(id) FROM audit_line) + %s::bigint
      AND (at < %s::timestamptz OR id <= (SELECT last_id FROM audit_head WHERE id = 1) - %s::bigint)
"""
_TRIM: Final = """
    WITH ends AS (SELECT id, digest FROM audit_line WHERE id = %s::bigint),
    moved AS (
        UPDATE audit_head h SET trimmed_id = e.id, trimmed_digest = e.digest
        FROM ends e WHERE h.id = 1)
    DELETE FROM audit_line WHERE id <= %s::bigint
"""


class AuditLine(msgspec.Struct, frozen=True, gc=False):
    """A line, as an Event of audit.k8s.io/v1, and its columns for searching."""

    at: datetime
    audit_id: uuid.UUID
    username: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    text: str


def next_digest(previous: bytes, line: str) -> bytes:
    """Return the digest of a line that follows another."""
    return hashlib.sha256(previous + line.encode()).digest()


def append(lines: Sequence[AuditLine]) -> None:
    """Append lines, in order, in one transaction of three statements."""
    if not lines:
        return
    with transaction.atomic():
        head = sql.fetch_one(_HEAD)
        if head is None:
            sql.run(_FIRST)
            head = sql.fetch_one(_HEAD)
            assert head is not None
        last, digest = head[0], bytes(head[1])
        digests = []
        for one in lines:
            digest = next_digest(digest, one.text)
            digests.append(digest)
        sql.run(
            _APPEND,
            (
                last + len(lines),
                digest,
                sql.Int8s([last + place for place in range(1, len(lines) + 1)]),
                sql.Times([one.at for one in lines]),
                sql.Uuids([one.audit_id for one in lines]),
                sql.Texts([one.username for one in lines]),
                sql.Texts([one.verb for one in lines]),
                sql.Texts([one.resource for one in lines]),
                sql.Texts([one.namespace for one in lines]),
                sql.Texts([one.name for one in lines]),
                sql.Int4s([one.code for one in lines]),
                sql.Texts([one.text for one in lines]),
                sql.Byteas(digests),
            ),
        )


def trim(*, now: datetime) -> int:
    """Drop lines older than AUDIT_KEEP_HOURS, and the oldest beyond AUDIT_KEEP_LINES."""
    retention = timedelta(hours=settings.AUDIT_KEEP_HOURS)
    dropped = 0
    while True:
        row = sql.fetch_one(_OLD, (_AT_ONCE, now - retention, settings.AUDIT_KEEP_LINES))
        if row is None or row[0] is None:
            return dropped
        with transaction.atomic():
            sql.fetch_one(_HEAD)  # a line that is being appended is not the last one yet
            dropped += sql.run(_TRIM, (row[0], row[0]))
