"""Where in the change log, as far as it reaches, a moment lies."""

from datetime import datetime

from clusterstate.database import sql


def revision_before(moment: datetime) -> tuple[int, datetime]:
    """Return the last revision before a moment, and when what is kept of the log begins.

    Where the log does not reach back so far, that of its beginning. Queries once; looks through the
    log, which takes a second for some millions of changes.
    """
    row = sql.fetch_one(
        "SELECT coalesce((SELECT min(revision) FROM change WHERE at >= %s) - 1,"
        " (SELECT max(revision) FROM change), h.trimmed_revision, 0),"
        " coalesce(h.trimmed_revision, 0), (SELECT min(at) FROM change), now()"
        " FROM (SELECT 1) one LEFT JOIN history h ON h.id = 1",
        (moment,),
    )
    assert row is not None
    revision, trimmed, began_at, now = row
    return max(revision, trimmed), max(moment, began_at or now)
