"""The lines of a scrape of objects, composed by PostgreSQL, some thousand objects at a time.

Each page is a statement of its own, so a scrape holds no transaction and no snapshot, and a pod
that is created or deleted meanwhile may be in it or not. Objects are in the order of their rows.
"""

from typing import Any, Final

import msgspec

from clusterstate.database import sql
from clusterstate.queries.loops.state_families import StateFamily

AT_ONCE: Final = 5000
"""Objects in a page: about a megabyte of text for each metric of pods."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A selection of objects: of some namespaces (empty: all), and one of ``shards`` shards."""

    namespaces: tuple[str, ...] = ()
    shard: int = 0
    shards: int = 1


def _escaped(text: str) -> str:
    return rf"""replace(replace(replace({text}, '\', '\\'), '"', '\"'), E'\n', '\n')"""


def _statement(family: StateFamily, selection: Selection) -> str:
    """Return the statement of a page; its parameters are those of ``_parameters``."""
    conditions = ["id > %s::bigint"]
    if family.kind_code is not None:
        conditions.append(f"kind = {family.kind_code}")
    if selection.namespaces and family.namespaced:
        conditions.append("namespace = ANY(%s)")
    if selection.shards > 1:
        # As kube-state-metrics: by uid, so that an object stays in its shard.
        conditions.append(
            "mod(hashtextextended(uid::text, 0) & 2147483647, %s::bigint) = %s::bigint"
        )
    mentioned = f" AND strpos(d.text, '{family.mentions}') > 0" if family.mentions else ""
    document = (
        f" JOIN document d ON d.id = t.document_id{mentioned}"
        " CROSS JOIN LATERAL (SELECT replace(d.text, chr(1), '')::jsonb AS j OFFSET 0) x_document"
        if family.reads_document
        else ""
    )
    labels = " || ',' || ".join(
        f"""'{name}="' || {_escaped(text)} || '"'""" for name, text in family.labels
    )
    return (
        f"WITH page AS MATERIALIZED (SELECT * FROM {family.table} WHERE {' AND '.join(conditions)}"
        " ORDER BY id LIMIT %s::bigint),"
        f" line AS (SELECT '{family.name}{{' || {labels} || '}} ' || trim_scale(v.value) || E'\\n'"
        f" AS text FROM page t{document}{family.more}"
        f" CROSS JOIN LATERAL (SELECT ({family.value})::numeric AS value) v"
        f" WHERE v.value IS NOT NULL AND {family.where})"
        " SELECT (SELECT max(id) FROM page), (SELECT string_agg(text, '') FROM line)"
    )


def page(family: StateFamily, selection: Selection, after: int) -> tuple[int | None, str]:
    """Return the lines of the objects after a row, and the last row of the page; None at the end.

    ``after`` is 0 for the first page. Queries once.
    """
    parameters: list[Any] = [after]
    if selection.namespaces and family.namespaced:
        parameters.append(sql.Texts(list(selection.namespaces)))
    if selection.shards > 1:
        parameters += [selection.shards, selection.shard]
    ((last, text),) = sql.fetch(_statement(family, selection), [*parameters, AT_ONCE])
    return last, text or ""
