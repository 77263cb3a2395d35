"""Changes of the cluster around a moment, summed by minute, author and kind."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS

_VERBS: Final = {changes.ADDED: "created", changes.MODIFIED: "changed", changes.DELETED: "deleted"}
_BY_CODE: Final = {kind.code: kind.name for kind in KINDS.values()}
_FEED: Final = """
    SELECT date_bin('1 minute', c.at, timestamptz 'epoch'), coalesce(a.name, ''), c.kind, c.verb,
           count(*), count(DISTINCT c.object_id),
           (array_agg(DISTINCT ARRAY[c.namespace::text, c.name::text]))[1:3]
    FROM change c LEFT JOIN actor a ON a.id = c.actor_id
    WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.kind = ANY(%s::smallint[])
      AND (%s = '' OR c.namespace = %s) AND (%s = '' OR a.name = %s)
    GROUP BY 1, 2, 3, 4 ORDER BY 1 DESC, 5 DESC, 2, 3, 4 LIMIT %s::bigint
"""


class FeedEntry(msgspec.Struct, frozen=True):
    """Changes of one user or controller to objects of a kind within a minute.

    ``changes`` and ``objects`` are numbers; ``examples``: (namespace, name) of up to three.
    """

    minute: datetime
    actor: str
    kind: str
    verb: str
    changes: int
    objects: int
    examples: list[tuple[str, str]]


def feed(
    after: int, until: int, *, kinds: Collection[str], namespace: str, actor: str, limit: int
) -> list[FeedEntry]:
    """Return the changes after one revision and up to another, the newest minute first.

    Filtered by kinds, namespace and actor, unless empty. Queries once, and reads the log between
    the two revisions.
    """
    codes = [KINDS[name].code for name in kinds]
    rows = sql.fetch(_FEED, (after, until, codes, namespace, namespace, actor, actor, limit))
    found = []
    for minute, name, kind, verb, count, objects, examples in rows:
        named = [(space, one) for space, one in examples]
        found.append(FeedEntry(minute, name, _BY_CODE[kind], _VERBS[verb], count, objects, named))
    return found
