"""Terminating pods whose deletion no agent will finish."""

from datetime import datetime
from typing import Final

from clusterstate.database import sql

NODE_LEASES: Final = "kube-node-lease"

POD_DELETION: Final = "pod-deletion"
"""The follower that ends deletions; the queries leave out pods that it has set aside."""

WITH_AGENT = f"""
SELECT l.name FROM lease l WHERE l.namespace = '{NODE_LEASES}'
UNION ALL SELECT h.node_name FROM node_heartbeat h WHERE h.heard_at IS NOT NULL
"""
"""The nodes that have an agent: it renews a lease, or the node's status."""


def nodes_with_agents() -> frozenset[str]:
    """Return the names of the nodes that have an agent. Queries once."""
    return frozenset(row[0] for row in sql.fetch(WITH_AGENT))


# NOT IN, so that the names are hashed once: many pods may terminate on few nodes. A deletion with
# another grace period than the pod's own waits for that period.
_ASKED_TO_WAIT = """(
    SELECT asked IS NOT NULL AND asked <> coalesce(own, '30')
    FROM (SELECT replace(d.text, chr(1), '')::json AS said OFFSET 0) j,
         LATERAL (SELECT j.said #>> '{metadata,deletionGracePeriodSeconds}' AS asked,
                         j.said #>> '{spec,terminationGracePeriodSeconds}' AS own) k)"""

# The timers run this in every round, mostly without a result. The subqueries hide the times from
# the planner, which would otherwise plan anew for each of them, at a higher cost than the rest of a
# round. The cached plan begins with the terminating pods, whatever the tables held when it was
# made.
_FINISHABLE = f"""
SELECT p.id FROM terminating_pod t,
     LATERAL (SELECT x.id, x.node_name, x.revision, x.document_id FROM pod x
              WHERE x.id = t.pod_id OFFSET 0) p,
     LATERAL (SELECT y.text FROM document y WHERE y.id = p.document_id OFFSET 0) d
WHERE (t.deletion_at <= (SELECT %s::timestamptz)
       OR (p.node_name NOT IN ({WITH_AGENT})
           AND (t.deletion_at <= (SELECT %s::timestamptz) OR NOT {_ASKED_TO_WAIT}))
       OR p.node_name NOT IN (SELECT n.name FROM node n))
  AND position('"finalizers":[' in {sql.METADATA}) = 0
  AND NOT EXISTS (SELECT 1 FROM set_aside s WHERE s.follower = '{POD_DELETION}' AND s.kind = 'Pod'
                  AND s.object_id = p.id AND s.revision = p.revision)
ORDER BY t.deletion_at, t.pod_id LIMIT (SELECT %s::bigint)
"""


def finishable(*, now: datetime, overdue_at: datetime, limit: int) -> list[int]:
    """Return terminating pods that no agent will delete, or deleted in time. Queries once.

    Those on no node, on one that is gone or on one that has no agent, and those whose grace period
    was over at ``overdue_at``; not those that a finalizer keeps. A pod on a node without an agent
    whose deletion asked for a period other than the pod's own waits until that is over at ``now``.
    """
    return [row[0] for row in sql.fetch(_FINISHABLE, (overdue_at, now, limit))]
