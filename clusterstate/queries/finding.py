"""Objects found by a part of their name, for people who search."""

from clusterstate import sql


def pods_like(part: str, *, namespace: str = "", limit: int) -> list[tuple[str, str]]:
    """Return namespace and name of pods with a text in their name, the exact name first.

    Queries once; looks at all pods where few match.
    """
    rows = sql.fetch(
        "SELECT namespace, name FROM pod WHERE strpos(name, %s) > 0"
        " AND (%s = '' OR namespace = %s) ORDER BY name <> %s, namespace, name LIMIT %s::bigint",
        (part, namespace, namespace, part, limit),
    )
    return [(row[0], row[1]) for row in rows]
