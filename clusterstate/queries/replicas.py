"""Live pods by scheduling class, as owners of pods count them."""

from collections.abc import Sequence

from clusterstate import sql
from clusterstate.queries.stays import LIVE


def class_counts(namespace: str) -> dict[int, int]:
    """Return how many live pods of each class a namespace has. Queries once."""
    rows = sql.fetch(
        f"SELECT p.class_id, count(*) FROM pod p WHERE p.namespace = %s AND {LIVE}"
        " GROUP BY p.class_id",
        (namespace,),
    )
    return {class_id: number for class_id, number in rows}  # noqa: C416  # typed, unlike dict(rows)


def surplus(class_ids: Sequence[int], count: int) -> list[tuple[str, str, str]]:
    """Return namespace, name and uid of live pods to do without: unbound first, then the newest."""
    rows = sql.fetch(
        "SELECT p.namespace, p.name, p.uid::text FROM pod p"
        f" WHERE p.class_id = ANY(%s) AND {LIVE}"
        " ORDER BY p.node_name <> '', p.phase = 'Running', p.id DESC LIMIT %s::bigint",
        (sql.Int8s(list(class_ids)), count),
    )
    return [(namespace, name, uid) for namespace, name, uid in rows]
