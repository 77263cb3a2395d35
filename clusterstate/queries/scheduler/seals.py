"""The chain of digests over decisions: its ends, its seals, and digests of the present rows."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from clusterstate.database import sql

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Every column, as text that does not depend on settings of the server; NULL is a letter, which no
# number is.
_COLUMNS: Final = (
    "id", "(extract(epoch FROM at) * 1000000)::bigint", "pod_id", "pod_uid", "namespace", "name",
    "class_id", "snapshot_revision", "profile", "profile_revision", "seed", "draw", "start",
    "outcome", "node_name", "total", "coalesce(margin::text, 'n')", "ties", "node_count",
    "evaluated", "feasible", "message", "encode(sha256(body), 'hex')",
    "coalesce(encode(table_digest, 'hex'), 'n')", "scheduler", "epoch",
    "number || coalesce(chr(31) || taken_back, '')",  # rows from before this column have NULL
)  # fmt: skip
_SEPARATED: Final = " || chr(31) || ".join(_COLUMNS)
ROWS: Final = f"""
    SELECT count(*)::integer, max(id), min(at), max(at),
           coalesce(sha256(string_agg(sha256(convert_to({_SEPARATED}, 'UTF8')), ''::bytea
                                      ORDER BY id)), ''::bytea)
    FROM (SELECT * FROM decision WHERE id > %s::bigint AND id <= %s::bigint
          ORDER BY id LIMIT %s::bigint) d
"""
_HEAD: Final = """
    SELECT last_id, sealed_decision, digest, trimmed_id, trimmed_digest, trimmed_decision
    FROM seal_head WHERE id = 1
"""
_LEFT_BEHIND: Final = """
    SELECT EXISTS (SELECT FROM decision_seal WHERE id <= %s::bigint),
           EXISTS (SELECT FROM decision WHERE at < %s::timestamptz)
"""
_SEALS: Final = """
    SELECT id, last_id, decisions, first_at, last_at, rows_digest, digest, dropped
    FROM decision_seal
    WHERE id > %s::bigint AND id <= %s::bigint ORDER BY id LIMIT 1000
"""


class Ends(msgspec.Struct, frozen=True):
    """Both ends of the chain; ``decision`` is the last one that is sealed."""

    last: int = 0
    decision: int = 0
    digest: bytes = b""
    trimmed: int = 0
    trimmed_digest: bytes = b""
    trimmed_decision: int = 0


class DroppedDecisions(msgspec.Struct, frozen=True):
    """What was dropped by age: decisions before a moment, and seals up to a number.

    ``digest``: of the last dropped seal; ``decision``: the last one under it.
    """

    before: datetime
    seal: int
    decision: int
    digest: bytes

    def text(self) -> str:
        """Return this as a seal stores it."""
        micros = (self.before - _EPOCH) // timedelta(microseconds=1)
        return f"{micros} {self.seal} {self.decision} {self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> "DroppedDecisions":
        """Parse the result of ``text``.

        Raises:
            ValueError: it is something else.
        """
        micros, seal, decision, digest = text.split(" ")
        before = _EPOCH + timedelta(microseconds=int(micros))
        return cls(before, int(seal), int(decision), bytes.fromhex(digest))


class Seal(msgspec.Struct, frozen=True):
    """A seal as it is stored."""

    id: int
    last_id: int
    decisions: int
    first_at: datetime
    last_at: datetime
    rows_digest: bytes
    digest: bytes
    dropped: str | None


class Rows(msgspec.Struct, frozen=True):
    """A summary of some decisions' rows as they are now; ``last_id``: ``None`` if there is none."""

    decisions: int
    last_id: int | None
    first_at: datetime | None
    last_at: datetime | None
    digest: bytes


def ends() -> Ends:
    """Return both ends of the chain. Queries once."""
    row = sql.fetch_one(_HEAD)
    if row is None:
        return Ends()
    last, decision, digest, trimmed, trimmed_digest, *rest = row
    return Ends(last, decision, bytes(digest), trimmed, bytes(trimmed_digest), *rest)


def left_behind(seal: int, before: datetime) -> tuple[bool, bool]:
    """Return whether a seal up to ``seal`` exists, and whether a decision before ``before``."""
    ((is_seal, is_decision),) = sql.fetch(_LEFT_BEHIND, (seal, before))
    return is_seal, is_decision


def rows(after: int, until: int, *, most: int = 1 << 40) -> Rows:
    """Return the summary of the decisions after one id and up to another. Queries once."""
    ((count, last_id, first_at, last_at, digest),) = sql.fetch(ROWS, (after, until, most))
    return Rows(count, last_id, first_at, last_at, bytes(digest))


def next_digest(previous: bytes, last_id: int, decisions: int, rows_digest: bytes) -> bytes:
    """Return the digest of a seal that follows another."""
    return hashlib.sha256(previous + b"%d %d " % (last_id, decisions) + rows_digest).digest()


def chain(after: int, *, until: int) -> Iterator[Seal]:
    """Yield the seals between two ids, in order. Queries every thousand seals."""
    while found := sql.fetch(_SEALS, (after, until)):
        for number, last_id, count, first_at, last_at, rows_digest, digest, dropped in found:
            yield Seal(
                number,
                last_id,
                count,
                first_at,
                last_at,
                bytes(rows_digest),
                bytes(digest),
                dropped,
            )
        after = found[-1][0]
