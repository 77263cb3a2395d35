"""Which namespaces have changes or budgets, or are terminating."""

from collections.abc import Sequence

from clusterstate import lineage, sql
from clusterstate.objects.kinds import KINDS


def terminating_namespaces() -> list[str]:
    """Return the names of the namespaces that are being deleted. Queries once."""
    return [row[0] for row in sql.fetch("SELECT name FROM namespace WHERE deletion_at IS NOT NULL")]


def changed_namespaces(cursor: int, mark: int, kinds: Sequence[str]) -> list[str] | None:
    """Return the namespaces in which objects of these kinds changed; ``None``: no longer known.

    Queries up to twice, by index.
    """
    if mark <= cursor:
        return []
    if cursor < lineage.kept_after():
        return None
    rows = sql.fetch(
        "SELECT DISTINCT namespace FROM change"
        " WHERE revision > %s::bigint AND revision <= %s::bigint AND kind = ANY(%s)",
        (cursor, mark, sql.Int4s([KINDS[kind].code for kind in kinds])),
    )
    return [row[0] for row in rows]


def budget_namespaces() -> list[str]:
    """Return the namespaces that have disruption budgets. Queries once."""
    rows = sql.fetch("SELECT DISTINCT namespace FROM pod_disruption_budget ORDER BY namespace")
    return [row[0] for row in rows]
