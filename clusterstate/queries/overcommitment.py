"""Nodes whose pods ask for more than the node offers."""

import msgspec

from clusterstate import sql


class OvercommittedNode(msgspec.Struct, frozen=True):
    """A node whose pods ask for more than it offers; ``resource`` names what."""

    name: str
    resource: str
    used: int
    allocatable: int


_OVERCOMMITTED = """
WITH used AS (
    SELECT p.node_name, count(*) AS pods, sum(c.cpu_milli) AS cpu, sum(c.memory_bytes) AS memory,
           sum(c.ephemeral_bytes) AS ephemeral
    FROM pod p JOIN scheduling_class c ON c.id = p.class_id
    WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')
    GROUP BY p.node_name
), more AS (
    SELECT p.node_name, e.key, sum(e.value::bigint) AS amount
    FROM pod p JOIN scheduling_class c ON c.id = p.class_id, jsonb_each_text(c.extended) e
    WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')
    GROUP BY p.node_name, e.key
)
SELECT n.name, r.resource, r.used::bigint, r.allocatable
FROM node n JOIN used u ON u.node_name = n.name
CROSS JOIN LATERAL (VALUES ('pods', u.pods, n.pods), ('cpu', u.cpu, n.cpu_milli),
                           ('memory', u.memory, n.memory_bytes),
                           ('ephemeral-storage', u.ephemeral, n.ephemeral_bytes))
     AS r(resource, used, allocatable)
WHERE r.used > r.allocatable
UNION ALL
SELECT n.name, m.key, m.amount::bigint, coalesce((n.extended ->> m.key)::bigint, 0)
FROM node n JOIN more m ON m.node_name = n.name
WHERE m.amount > coalesce((n.extended ->> m.key)::bigint, 0)
ORDER BY 1, 2
"""


def overcommitted_nodes() -> list[OvercommittedNode]:
    """Return what is overcommitted, by node and resource; empty in a sound cluster. Queries once.

    Counts every bound pod that has not finished against ``status.allocatable``: thousandths of a
    CPU, bytes, pods, whole units of extended resources.
    """
    return [OvercommittedNode(*row) for row in sql.fetch(_OVERCOMMITTED)]
