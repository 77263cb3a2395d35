"""Sealing decisions: a chain of digests over what was decided, as the audit log has one.

Decisions are recorded in bulk and nothing waits for their digests, so recording them costs what it
did. A few seconds later they are *sealed*: PostgreSQL computes one digest over the rows of a
stretch, and the chain takes it in. Whoever changes, removes or inserts a decision that is sealed
has to compute every later seal again, and the newest one may be known elsewhere: `manage.py
auditlog` prints it. What was changed before it was sealed is not found.

No decision with a lower number may come later than its stretch is sealed. The number up to which
that is certain is read under a lock that waits for whoever records decisions at this moment, and
holds up others for no longer than it takes to read one number.
"""

from datetime import datetime
from typing import Final

import structlog
from django.db import OperationalError, transaction
from psycopg import errors

from clusterstate import sql
from clusterstate.queries import seals
from clusterstate.queries.seals import next_digest

logger = structlog.get_logger(__name__)

STRETCH: Final = 5000
"""Decisions under one seal, at most."""
MOST: Final = 200_000
"""Decisions that are sealed in one call."""
_LOCK: Final = "LOCK TABLE ONLY decision IN SHARE MODE"
_LAST: Final = "SELECT coalesce(pg_sequence_last_value('decision_id'), 0)"
_FIRST_HEAD: Final = """
    INSERT INTO seal_head (id, last_id, sealed_decision, digest, trimmed_id, trimmed_digest,
                           trimmed_decision)
    VALUES (1, 0, 0, ''::bytea, 0, ''::bytea, 0) ON CONFLICT (id) DO NOTHING
"""
_HOLD: Final = "SELECT last_id, sealed_decision, digest FROM seal_head WHERE id = 1 FOR UPDATE"
_APPEND: Final = """
    WITH moved AS (
        UPDATE seal_head SET last_id = %s::bigint, sealed_decision = %s::bigint, digest = %s::bytea
        WHERE id = 1)
    INSERT INTO decision_seal (id, last_id, decisions, first_at, last_at, rows_digest, digest)
    VALUES (%s::bigint, %s::bigint, %s::integer, %s::timestamptz, %s::timestamptz, %s::bytea,
            %s::bytea)
"""
_OLD: Final = """
    SELECT id, digest, last_id FROM decision_seal
    WHERE last_at < %s::timestamptz ORDER BY id DESC LIMIT 1
"""
_YOUNG: Final = """
    SELECT id FROM decision_seal WHERE last_at >= %s::timestamptz ORDER BY id LIMIT 1
"""


def seal() -> int:
    """Seal the decisions that are recorded; return how many. By several at once: each waits."""
    until = _certain()
    sealed = 0
    while sealed < MOST:
        done = _seal_some(until)
        sealed += done
        if done < STRETCH:
            break
    return sealed


def _certain() -> int:
    """Return the id of a decision below which none will come any more; 0 if that is not known."""
    try:
        with transaction.atomic():
            sql.fetch("SELECT set_config('lock_timeout', '300ms', true)")
            sql.run(_LOCK)
            ((last,),) = sql.fetch(_LAST)
            return int(last)
    except OperationalError as error:
        if isinstance(error.__cause__, errors.LockNotAvailable):
            return 0  # the table is being looked after; the next call will do it
        raise


def _seal_some(until: int) -> int:
    with transaction.atomic():
        head = sql.fetch_one(_HOLD)
        if head is None:
            sql.run(_FIRST_HEAD)
            head = sql.fetch_one(_HOLD)
            assert head is not None
        last, sealed, digest = head[0], head[1], bytes(head[2])
        if until <= sealed:
            return 0
        found = seals.rows(sealed, until, most=STRETCH)
        if found.last_id is None:
            return 0
        digest = next_digest(digest, found.last_id, found.decisions, found.digest)
        sql.run(
            _APPEND,
            (
                last + 1, found.last_id, digest, last + 1, found.last_id, found.decisions,
                found.first_at, found.last_at, found.digest, digest,
            ),
        )  # fmt: skip
        return found.decisions


def trim(*, before: datetime) -> None:
    """Drop the seals of decisions that were all made before a moment, and are dropped then, too.

    To be called before the decisions go.
    """
    with transaction.atomic():
        if sql.fetch_one(_HOLD) is None:
            return
        young = sql.fetch_one(_YOUNG, (before,))
        old = sql.fetch_one(_OLD, (before,))
        if old is not None and young is not None and young[0] <= old[0]:
            # Seals are kept without gaps, up to the first that is needed.
            old = sql.fetch_one(
                "SELECT id, digest, last_id FROM decision_seal WHERE id = %s::bigint",
                (young[0] - 1,),
            )
        if old is not None:
            sql.run(
                "UPDATE seal_head SET trimmed_id = %s::bigint, trimmed_digest = %s::bytea,"
                " trimmed_decision = %s::bigint WHERE id = 1",
                old,
            )
            sql.run("DELETE FROM decision_seal WHERE id <= %s::bigint", (old[0],))
        sql.run(
            "UPDATE seal_head SET trimmed_at = greatest(trimmed_at, %s::timestamptz) WHERE id = 1",
            (before,),
        )


# Verifying ---------------------------------------------------------------------------------------


class Broken(Exception):
    """The chain, or a decision under it, is not what was written; the message is a sentence."""


class Verified:
    """What was found: seals that follow each other, decisions that are as they were recorded.

    ``trimmed`` counts decisions under seals of which some were dropped for their age.
    """

    def __init__(self) -> None:
        self.decisions = 0
        self.trimmed = 0
        self.last = 0
        self.digest = b""
        self.digests: set[str] = set()


def verify(*, wanted: str = "") -> Verified:
    """Follow the chain from its old end to the newest seal, and compute each digest again.

    ``wanted``: remember whether this digest, in hexadecimal, was met. Queries once or twice for
    each seal.

    Raises:
        Broken: a seal does not follow from the one before it, one is missing, or the decisions
            under it are not those that were sealed.
    """
    ends = seals.ends()
    found = Verified()
    number, digest, decision = ends.trimmed, ends.trimmed_digest, ends.trimmed_decision
    if digest.hex() == wanted:
        found.digests.add(wanted)
    for one in seals.chain(ends.trimmed, until=ends.last):
        if one.id != number + 1:
            raise Broken(f"decision seal {number + 1} is missing: the next is {one.id}")
        digest = next_digest(digest, one.last_id, one.decisions, one.rows_digest)
        if digest != one.digest:
            raise Broken(f"decision seal {one.id} is not the one that was written")
        if ends.trimmed_at is not None and one.first_at < ends.trimmed_at:
            found.trimmed += one.decisions
        else:
            _compare(one, decision)
            found.decisions += one.decisions
        if digest.hex() == wanted:
            found.digests.add(wanted)
        number, decision = one.id, one.last_id
    if number != ends.last or digest != ends.digest:
        raise Broken(f"the newest decision seals are missing: {number} of {ends.last}")
    found.last, found.digest = number, digest
    return found


def _compare(one: seals.Seal, after: int) -> None:
    now = seals.rows(after, one.last_id)
    if (now.decisions, now.digest) == (one.decisions, one.rows_digest):
        return
    what = "changed" if now.decisions == one.decisions else f"{one.decisions} are {now.decisions}"
    raise Broken(
        f"the decisions after {after} up to {one.last_id} are not those that were sealed: {what}"
    )
