"""Sealing decisions: a chain of digests over recorded decisions, as the audit log has one.

Decisions are recorded in bulk and nothing waits for their digests, so recording costs no more. A
few seconds later they are *sealed*: PostgreSQL computes one digest over the rows of a stretch, and
the chain includes it. To change, remove or insert a sealed decision, every later seal must be
recomputed, and the newest one may be known elsewhere: `manage.py auditlog` prints it. Changes
before sealing are not found.

No decision with a lower number may be recorded after its stretch was sealed. The number up to which
that is certain is read under a lock that waits for transactions that record decisions, and delays
others no longer than it takes to read one number.

Old decisions are dropped with their seals, and a new seal states this: from when on decisions are
kept, and which seal was dropped last. Verification accepts no other reason for missing decisions,
so a change cannot be hidden by declaring decisions to be old.
"""

import hashlib
from datetime import datetime
from typing import Final

import msgspec
import structlog
from django.db import transaction

from clusterstate.actions.writing import transactions
from clusterstate.database import sql
from clusterstate.queries.scheduler import seals
from clusterstate.queries.scheduler.seals import DroppedDecisions, Seal, next_digest

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
    INSERT INTO decision_seal (id, last_id, decisions, first_at, last_at, rows_digest, digest,
                               dropped)
    VALUES (%s::bigint, %s::bigint, %s::integer, %s::timestamptz, %s::timestamptz, %s::bytea,
            %s::bytea, %s::text)
"""
_OLD: Final = """
    SELECT id, digest, last_id FROM decision_seal
    WHERE last_at < %s::timestamptz AND dropped IS NULL ORDER BY id DESC LIMIT 1
"""
_YOUNG: Final = """
    SELECT id FROM decision_seal
    WHERE last_at >= %s::timestamptz AND dropped IS NULL ORDER BY id LIMIT 1
"""


def seal() -> int:
    """Seal the recorded decisions; return how many. Concurrent calls wait for each other."""
    until = _certain()
    sealed = 0
    while sealed < MOST:
        done = _seal_some(until)
        sealed += done
        if done < STRETCH:
            break
    return sealed


def _certain() -> int:
    """Return an id below which no decision will be added any more; 0 if unknown."""
    try:
        with transactions.briefly():
            sql.run(_LOCK)
            ((last,),) = sql.fetch(_LAST)
            return int(last)
    except transactions.TablesInUse:
        return 0  # the table is being vacuumed; the next call does it


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
                found.first_at, found.last_at, found.digest, digest, None,
            ),
        )  # fmt: skip
        return found.decisions


def trim(*, before: datetime, now: datetime) -> None:
    """Drop the seals of decisions that were all made before a moment; a new seal states this.

    Must be called in the transaction that drops those decisions.
    """
    head = sql.fetch_one(_HOLD)
    if head is None:
        return
    last, sealed, digest = head[0], head[1], bytes(head[2])
    young = sql.fetch_one(_YOUNG, (before,))
    old = sql.fetch_one(_OLD, (before,))
    if old is not None and young is not None and young[0] <= old[0]:
        # Seals are kept without gaps, from the first needed one on.
        old = sql.fetch_one(
            "SELECT id, digest, last_id FROM decision_seal WHERE id = %s::bigint",
            (young[0] - 1,),
        )
    if old is None:
        ends = seals.ends()
        old = ends.trimmed, ends.trimmed_digest, ends.trimmed_decision
    statement = DroppedDecisions(before, old[0], old[2], bytes(old[1])).text()
    said_digest = hashlib.sha256(statement.encode()).digest()
    digest = next_digest(digest, sealed, 0, said_digest)
    sql.run(
        _APPEND,
        (last + 1, sealed, digest, last + 1, sealed, 0, now, now, said_digest, digest, statement),
    )
    sql.run(
        "UPDATE seal_head SET trimmed_id = %s::bigint, trimmed_digest = %s::bytea,"
        " trimmed_decision = %s::bigint, trimmed_at = greatest(trimmed_at, %s::timestamptz)"
        " WHERE id = 1",
        (*old, before),
    )
    sql.run("DELETE FROM decision_seal WHERE id <= %s::bigint", (old[0],))


# Verifying ---------------------------------------------------------------------------------------


class Broken(Exception):
    """The seals, or a decision that they cover, were altered; the message says which."""


class Verification:
    """The result of a check: numbers of unchanged seals and decisions.

    ``trimmed``: decisions under seals of which some were dropped for their age, that is those made
    before ``kept_from`` (``None``: none was ever dropped).
    """

    def __init__(self) -> None:
        self.decisions = 0
        self.trimmed = 0
        self.last = 0
        self.digest = b""
        self.digests: set[str] = set()
        self.kept_from: datetime | None = None


class _Chain(msgspec.Struct, frozen=True):
    """The chain as it was at one moment, followed from end to end."""

    ends: seals.Ends
    seals: list[Seal]
    kept_from: datetime | None


def verify(*, expected: str = "") -> Verification:
    """Follow the chain from its old end to the newest seal, and recompute each digest.

    ``expected``: a digest, in hexadecimal, to look for. Queries once for each seal, and for a
    thousand of them once more. Sealing and dropping may continue meanwhile.

    Raises:
        Broken: a seal does not follow from the one before it, one is missing, missing decisions
            were
            not dropped for their age, or the decisions under a seal have changed.
    """
    chain = _follow()
    found = Verification()
    if expected in {chain.ends.trimmed_digest.hex(), *(one.digest.hex() for one in chain.seals)}:
        found.digests.add(expected)
    kept_from, decision = chain.kept_from, chain.ends.trimmed_decision
    for one in chain.seals:
        while not _is_partly_gone(one, kept_from):
            try:
                _compare(one, decision)
                found.decisions += one.decisions
                break
            except Broken:
                before, kept_from = kept_from, _follow().kept_from
                if before == kept_from:
                    raise  # nothing was dropped meanwhile
        else:
            found.trimmed += one.decisions
        decision = one.last_id
    found.last, found.digest = chain.ends.last, chain.ends.digest
    found.kept_from = kept_from
    return found


def _is_partly_gone(one: Seal, kept_from: datetime | None) -> bool:
    return kept_from is not None and one.dropped is None and one.first_at < kept_from


def _follow() -> _Chain:
    """Return the present chain; check that no decision is stored that it states as dropped."""
    with transaction.atomic():
        sql.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        ends = seals.ends()
        found: list[Seal] = []
        dropped: list[DroppedDecisions] = []
        number, digest = ends.trimmed, ends.trimmed_digest
        for one in seals.chain(ends.trimmed, until=ends.last):
            if one.id != number + 1:
                raise Broken(f"decision seal {number + 1} is missing: the next is {one.id}")
            number, digest = (
                one.id,
                next_digest(digest, one.last_id, one.decisions, one.rows_digest),
            )
            if digest != one.digest:
                raise Broken(f"decision seal {one.id} was changed after it was written")
            if one.dropped is not None:
                dropped.append(_dropped(one))
            found.append(one)
        if number != ends.last or digest != ends.digest:
            raise Broken(f"the newest decision seals are missing: {number} of {ends.last}")
        _require_said(ends, dropped)
        kept_from = max((each.before for each in dropped), default=None)
        if kept_from is not None:
            is_seal, is_decision = seals.left_behind(ends.trimmed, kept_from)
            if is_seal or is_decision:
                raise Broken(
                    f"decisions from before {kept_from:%Y-%m-%dT%H:%M:%SZ} are recorded as dropped,"
                    " but some still exist"
                )
        return _Chain(ends, found, kept_from)


def _dropped(one: Seal) -> DroppedDecisions:
    text = one.dropped or ""
    if one.decisions or hashlib.sha256(text.encode()).digest() != one.rows_digest:
        raise Broken(f"decision seal {one.id} differs from what was sealed")
    return DroppedDecisions.parse(text)


def _require_said(ends: seals.Ends, dropped: list[DroppedDecisions]) -> None:
    """Check that a seal records where the chain begins after older seals were dropped."""
    begins = ends.trimmed, ends.trimmed_decision, ends.trimmed_digest
    if begins == (0, 0, b""):
        return
    if begins not in {(one.seal, one.decision, one.digest) for one in dropped}:
        raise Broken(f"the seals up to {ends.trimmed} are missing, and no seal records that")


def _compare(one: Seal, after: int) -> None:
    if one.dropped is not None:
        return
    now = seals.rows(after, one.last_id)
    if (now.decisions, now.digest) == (one.decisions, one.rows_digest):
        return
    counts = f"{one.decisions} sealed, {now.decisions} stored"
    what = "changed" if now.decisions == one.decisions else counts
    raise Broken(f"the decisions {after + 1} to {one.last_id} differ from their seal: {what}")
