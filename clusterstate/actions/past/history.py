"""Trimming: old changes, old events, and the documents that only they referred to."""

from datetime import datetime, timedelta

import msgspec
import structlog
from django.conf import settings
from django.db import DatabaseError, transaction

from clusterstate.actions import past
from clusterstate.change_log import changes, lineage
from clusterstate.database import sql

EVENT_SECONDS = 3600
"""How long an event is kept after it happened last (kube-apiserver ``--event-ttl``)."""
GIVE_UP = timedelta(days=1)
"""If the past cannot be packed, the log may grow by so much before the past is given up."""
_BATCH = 50_000
logger = structlog.get_logger(__name__)


class Trimmed(msgspec.Struct, frozen=True):
    """How many rows were dropped, and the last revision that is no longer kept."""

    changes: int
    documents: int
    events: int
    trimmed_revision: int


_BOUNDARY = """
    SELECT coalesce(
        (SELECT revision FROM change WHERE revision <= %s::bigint AND at >= %s::timestamptz
         ORDER BY revision LIMIT 1) - 1,
        %s::bigint)
"""


def trim(*, now: datetime, keep_seconds: int | None = None) -> Trimmed:
    """Drop changes older than ``keep_seconds`` (setting HISTORY_SECONDS), and what only they used.

    The boundary is the first younger change, below the low watermark: a transaction that commits
    late cannot add a change where followers no longer read. The same transaction updates
    ``history`` and deletes the rows, so a reader sees both or neither and answers Expired rightly.
    If the past is kept, dropped changes are packed before (`actions.past`). Works in batches; may
    be stopped and called again at any time.
    """
    keep = settings.HISTORY_SECONDS if keep_seconds is None else keep_seconds
    mark = changes.watermark()
    row = sql.fetch_one(_BOUNDARY, (mark, now - timedelta(seconds=keep), mark))
    assert row is not None
    boundary: int = row[0]
    if past.is_kept():
        boundary = _packed(boundary, now=now, retention=timedelta(seconds=keep))
    else:
        past.forget()
    dropped = documents = 0
    while True:
        with transaction.atomic():
            found = sql.fetch_one(
                """
                WITH doomed AS MATERIALIZED (
                    SELECT revision FROM change WHERE revision <= %s::bigint
                    ORDER BY revision LIMIT %s),
                gone AS (DELETE FROM change c USING doomed d WHERE c.revision = d.revision),
                moved AS (
                    UPDATE history h SET trimmed_revision = m.last
                    FROM (SELECT max(revision) AS last FROM doomed) m
                    WHERE h.id = 1 AND m.last > h.trimmed_revision)
                SELECT count(*), max(revision) FROM doomed
                """,
                (boundary, _BATCH),
            )
            assert found is not None
            count, last = found
            if count:
                documents += sql.run(
                    """
                    WITH old AS (
                        DELETE FROM superseded_document WHERE revision <= %s::bigint
                        RETURNING document_id)
                    DELETE FROM document d USING old WHERE d.id = old.document_id
                    """,
                    (last,),
                )
        dropped += count
        if count < _BATCH:
            break
    events = _trim_events(now)
    return Trimmed(dropped, documents, events, lineage.kept_after())


def _packed(boundary: int, *, now: datetime, retention: timedelta) -> int:
    """Pack the changes to be trimmed; return the revision up to which that was possible.

    A log that cannot be packed must not fill the disk: when it is a day longer than configured, the
    past is dropped.
    """
    try:
        packed = past.pack_up_to(boundary, now=now)
    except DatabaseError:
        raise
    except Exception:
        logger.exception("past_not_packed")
        packed = past.packed()
    if packed >= boundary:
        return boundary
    row = sql.fetch_one("SELECT at FROM change ORDER BY revision LIMIT 1")
    if row is None or row[0] > now - retention - GIVE_UP:
        return packed
    logger.error("past_given_up", packed=packed, boundary=boundary)
    past.forget()
    return boundary


def _trim_events(now: datetime) -> int:
    """Drop old events, without log entries: no follower needs to know that an event is gone.

    The document of a client's event is left to the next trimming, since changes may refer to it.
    """
    total = 0
    while True:
        count = sql.run(
            """
            WITH doomed AS MATERIALIZED (
                SELECT id FROM event WHERE last_at < %s::timestamptz ORDER BY last_at LIMIT %s
                FOR UPDATE SKIP LOCKED),
            gone AS (
                DELETE FROM event e USING doomed d WHERE e.id = d.id
                RETURNING e.document_id, e.revision),
            old AS (
                INSERT INTO superseded_document (document_id, revision)
                SELECT document_id, revision FROM gone WHERE document_id IS NOT NULL)
            SELECT id FROM doomed
            """,
            (now - timedelta(seconds=EVENT_SECONDS), _BATCH),
        )
        total += count
        if count < _BATCH:
            return total
