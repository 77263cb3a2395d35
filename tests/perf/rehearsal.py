"""Rows for measurements on a throw-away database: more than a cluster would have in a year."""

from datetime import datetime, timedelta

from clusterstate.database import sql
from clusterstate.models import Node, Pod


def add_waiting_timers(count: int, *, now: datetime) -> None:
    """Insert eviction timers that are due in a year, of pods that do not exist."""
    later = now + timedelta(days=365)
    sql.run(
        "INSERT INTO eviction_timer (pod_id, cause, node_name, taint_key, taint_effect, seconds,"
        " started_at, due_at, blocked_by)"
        " SELECT 1000000000 + i, 'taint', 'waiting-' || i / 100, 'k', 'NoExecute', 31536000,"
        " %s::timestamptz, %s::timestamptz + i * interval '1 ms', ''"
        " FROM generate_series(1, %s::bigint) i",
        (now, later, count),
    )
    sql.run("ANALYZE eviction_timer")


def date_taints(node_name: str, added_at: datetime) -> None:
    """Let a node's taints have been added at that moment, to the microsecond."""
    sql.run(
        "UPDATE taint t SET added_at = %s::timestamptz FROM node n"
        " WHERE n.id = t.node_id AND n.name = %s",
        (added_at, node_name),
    )


def copy_node(name: str, prefix: str, count: int) -> None:
    """Insert nodes ``prefix`` and a number from 0 on, like the one called ``name``.

    Wherever the name stands in the document the copy's stands instead.
    """
    columns, chosen = _copied(Node, name="m.name", document_id="m.doc")
    sql.run(
        "WITH t AS (SELECT n.*, d.text FROM node n JOIN document d ON d.id = n.document_id"
        "           WHERE n.name = %s),"
        " m AS MATERIALIZED (SELECT %s || i AS name,"
        "                    nextval(pg_get_serial_sequence('document', 'id')) AS doc"
        "                    FROM generate_series(0, %s::int - 1) i),"
        " d AS (INSERT INTO document (id, text) OVERRIDING SYSTEM VALUE"
        "       SELECT m.doc, replace(t.text, t.name, m.name) FROM t, m)"
        f" INSERT INTO node ({columns}) SELECT {chosen} FROM t, m",
        (name, prefix, count),
    )
    sql.run("ANALYZE node")


def copy_pods(
    namespace: str, prefix: str, count: int, *, nodes: int, node_prefix: str, now: datetime
) -> None:
    """Insert pods like those of a namespace in turn, on nodes in turn; they share documents."""
    columns, chosen = _copied(
        Pod, name="a.prefix || i", node_name="a.node || (i %% a.nodes)", scheduled_at="a.now",
        phase="'Running'",
    )  # fmt: skip
    sql.run(
        "WITH t AS MATERIALIZED (SELECT *, row_number() OVER (ORDER BY id) - 1 AS place"
        "                        FROM pod WHERE namespace = %s),"
        " n AS (SELECT count(*) AS many FROM t),"
        " a AS (SELECT %s::text AS prefix, %s::text AS node, %s::int AS nodes,"
        "       %s::timestamptz AS now)"
        f" INSERT INTO pod ({columns})"
        f" SELECT {chosen} FROM generate_series(0, %s::int - 1) i, a, n, t"
        " WHERE t.place = i %% n.many",
        (namespace, prefix, node_prefix, nodes, now, count),
    )
    sql.run("ANALYZE pod")


def _copied(model: type[Node] | type[Pod], **values: str) -> tuple[str, str]:
    """Return a table's columns but the key, and what each gets: that of ``t``, or of ``values``."""
    names = [str(field.column) for field in model._meta.local_concrete_fields]
    columns = [name for name in names if name != "id"]
    values = {"uid": "gen_random_uuid()"} | values
    return ", ".join(columns), ", ".join(values.get(name, f"t.{name}") for name in columns)
