"""Reads the audit log: searches it, the newest line first, and verifies its chain of digests."""

import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.database import sql


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The filters of a search; empty ones are ignored. ``until`` is exclusive.

    ``address``: the sender's address, as the log has it.
    """

    username: str = ""
    verb: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    address: str = ""
    code: int | None = None
    audit_id: uuid.UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


_SEARCH: Final = """
    SELECT id, line FROM audit_line
    WHERE id < %s::bigint
      AND (%s = '' OR username = %s) AND (%s = '' OR verb = %s)
      AND (%s = '' OR resource = %s) AND (%s = '' OR namespace = %s) AND (%s = '' OR name = %s)
      AND (%s::integer IS NULL OR code = %s::integer)
      AND (%s::timestamptz IS NULL OR at >= %s::timestamptz)
      AND (%s::timestamptz IS NULL OR at < %s::timestamptz)
      AND (%s = '' OR position(%s IN line) > 0)
    ORDER BY id DESC LIMIT %s::bigint
"""
_OF_REQUEST: Final = """
    SELECT id, line FROM audit_line WHERE id < %s::bigint AND audit_id = %s::uuid
    ORDER BY id DESC LIMIT %s::bigint
"""
_LAST: Final = 1 << 62
_CHAIN: Final = """
    SELECT id, line, digest FROM audit_line WHERE id > %s::bigint AND id <= %s::bigint
    ORDER BY id LIMIT %s::bigint
"""


def search(filters: Search, *, limit: int, before: int = 0) -> tuple[list[str], int]:
    """Return lines, the newest first, and the id before which to continue (0: there are no more).

    Queries once.
    """
    before = before or _LAST
    if filters.audit_id is not None:
        rows = sql.fetch(_OF_REQUEST, (before, filters.audit_id, limit + 1))
    else:
        words = (filters.username, filters.verb, filters.resource, filters.namespace, filters.name)
        twice = [value for word in words for value in (word, word)]
        times = [filters.since, filters.since, filters.until, filters.until]
        # As text: PostgreSQL cannot parse JSON with a NUL, which a path may contain. Quotes in a
        # stranger's text are escaped, so it cannot match the member.
        place = f'"sourceIPs":{msgspec.json.encode([filters.address]).decode()}'
        codes = [filters.code, filters.code]
        parameters = [before, *twice, *codes, *times, filters.address, place, limit + 1]
        rows = sql.fetch(_SEARCH, parameters)
    more = rows[limit - 1][0] if len(rows) > limit else 0
    return [row[1] for row in rows[:limit]], more


class Ends(msgspec.Struct, frozen=True):
    """Both ends of the chain: the line up to which it was trimmed, and the newest line.

    ``has_older``: there are lines that should have been trimmed.
    """

    trimmed_id: int
    trimmed_digest: bytes
    last_id: int
    digest: bytes
    has_older: bool = False


def ends() -> Ends:
    """Return both ends of the chain. Queries once."""
    row = sql.fetch_one(
        "SELECT trimmed_id, trimmed_digest, last_id, digest,"
        " EXISTS (SELECT FROM audit_line WHERE id <= trimmed_id)"
        " FROM audit_head WHERE id = 1"
    )
    if row is None:
        return Ends(0, b"", 0, b"")
    return Ends(row[0], bytes(row[1]), row[2], bytes(row[3]), row[4])


def chain(after: int, *, until: int, at_once: int = 5000) -> Iterator[tuple[int, str, bytes]]:
    """Yield id, line and digest of the lines between two ids. Queries every few thousand lines."""
    while rows := sql.fetch(_CHAIN, (after, until, at_once)):
        for id_, line, digest in rows:
            yield id_, line, bytes(digest)
        after = rows[-1][0]
