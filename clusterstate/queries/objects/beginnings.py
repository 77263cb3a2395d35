"""When a namespace was created: earlier changes belong to a former namespace of its name."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.document import parse_time
from clusterstate.processes import memory
from clusterstate.queries import past
from clusterstate.queries.objects import decode_object, find_object

_KIND: Final = KINDS["Namespace"]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_PRESENT: Final = f"SELECT t.uid::text, t.id, t.revision FROM {_KIND.rows} t WHERE t.name = %s"
_OLDEST: Final = """
    WITH RECURSIVE steps AS (
        SELECT revision, previous_revision, verb, at FROM change WHERE revision = %s::bigint
        UNION ALL
        SELECT c.revision, c.previous_revision, c.verb, c.at
        FROM steps s JOIN change c ON c.revision = s.previous_revision)
    SELECT revision, verb, at FROM steps ORDER BY revision LIMIT 1
"""
_MOST_REMEMBERED: Final = 4096


class Beginning(msgspec.Struct, frozen=True):
    """The change that created a namespace.

    ``revision`` is 0 if it is older than all kept changes; then ``at`` is the second after its
    creationTimestamp, which has no fractions.
    """

    revision: int
    at: datetime


_known: dict[str, Beginning] = {}


def forget() -> None:
    """Empty the cache, after a restore."""
    _known.clear()


memory.when_replaced(forget)


def beginning(namespace: str) -> Beginning | None:
    """Return when a namespace was created, ``None`` if it does not exist.

    Queries once; for a namespace that is not cached, up to twice more, and once for each block of
    packed changes that it reads.
    """
    row = sql.fetch_one(_PRESENT, (namespace,))
    if row is None:
        return None
    uid, number, revision = row
    found = _known.get(uid)
    if found is None:
        found = _find(namespace, number, revision)
        if found is None:
            return None
        if len(_known) >= _MOST_REMEMBERED:
            _known.clear()
        _known[uid] = found
    return found


def _find(namespace: str, number: int, revision: int) -> Beginning | None:
    row = sql.fetch_one(_OLDEST, (revision,))
    before = revision + 1
    if row is not None:
        before, verb, at = row
        if verb == changes.ADDED:
            return Beginning(before, at)
    for entry in past.changes_of(_KIND, "", namespace, before):
        if entry.object_id != number:
            break
        if entry.verb == changes.ADDED:
            return Beginning(entry.revision, _EPOCH + timedelta(microseconds=entry.at))
    body = find_object("Namespace", "", namespace)
    if body is None:  # it was deleted just now
        return None
    created = parse_time(decode_object(body)["metadata"]["creationTimestamp"])
    return Beginning(0, created + _SECOND)
