"""What happened in a namespace to pods that claim devices, and to claims."""

from collections.abc import Collection

import msgspec

from clusterstate.change_log.changes import ADDED, DELETED
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import pod_manifests

_POD, _CLAIM, _TEMPLATE = (
    KINDS[kind].code for kind in ("Pod", "ResourceClaim", "ResourceClaimTemplate")
)


class ClaimNews(msgspec.Struct, frozen=True):
    """Pods, claims and templates that changed between two revisions.

    ``pods``: JSON by id of those that claim devices and are there; ``new``: the ids of those that
    were created since. ``left``: the last JSON of deleted ones. ``claims``: names of claims that
    changed. ``gone``: the last JSON of deleted claims. ``templates``: whether a template changed.
    """

    pods: dict[int, bytes]
    new: set[int]
    left: list[bytes]
    claims: set[str]
    gone: list[bytes]
    templates: bool


def claim_news(
    namespace: str, after: int, mark: int, *, controller: int, scheduler: int
) -> ClaimNews:
    """Return what changed in a namespace after a revision, up to ``mark``.

    ``controller``, ``scheduler``: the numbers of actors. The controller's changes are left out. So
    are the scheduler's binds: it writes the claims together with them. So are conditions, which
    write no document of a pod. A pod whose extended resources are devices is among these only when
    it ends. Queries up to twice.
    """
    ended = (
        f"(c.verb = {DELETED} OR c.deletion_at IS NOT NULL OR c.phase IN ('Succeeded', 'Failed'))"
    )
    rows = sql.fetch(
        f"""
        SELECT c.kind, c.verb, c.object_id, c.name,
               CASE WHEN c.verb = {DELETED} THEN d.text END
        FROM change c
        LEFT JOIN scheduling_class k ON k.id = c.class_id
        LEFT JOIN document d ON d.id = c.document_id
             AND (c.kind = {_POD} AND {ended} OR c.kind = {_CLAIM} AND c.verb = {DELETED})
        WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.namespace = %s::text
              AND c.actor_id IS DISTINCT FROM %s::integer
              AND (c.kind IN ({_CLAIM}, {_TEMPLATE}) OR c.kind = {_POD}
                   AND (c.document_id IS DISTINCT FROM c.previous_document_id OR {ended}
                        OR (c.node_name IS DISTINCT FROM c.previous_node_name
                            AND c.actor_id IS DISTINCT FROM %s::integer))
                   AND (strpos(k.spec, '"resourceClaims"') > 0
                        OR strpos(d.text, '"extendedResourceClaimStatus"') > 0))
        """,
        (after, mark, namespace, controller, scheduler),
    )
    pods = {row[2]: row[1] for row in rows if row[0] == _POD}
    last = [(row[0], document.compose(row[4], 0)) for row in rows if row[4] is not None]
    return ClaimNews(
        pods=pod_manifests(list(pods)) if pods else {},
        new={row[2] for row in rows if row[0] == _POD and row[1] == ADDED},
        left=[text for kind, text in last if kind == _POD],
        claims={row[3] for row in rows if row[0] == _CLAIM and row[1] != DELETED},
        gone=[text for kind, text in last if kind == _CLAIM],
        templates=any(row[0] == _TEMPLATE for row in rows),
    )


def claimants(namespace: str, names: Collection[str]) -> dict[str, Manifest]:
    """Return the pods with these names as manifests, by name. Queries once.

    With what decides whether a pod still uses a claim: uid, node, phase, deletion.
    """
    if not names:
        return {}
    rows = sql.fetch(
        "SELECT name, uid::text, node_name, phase, deletion_at FROM pod"
        " WHERE namespace = %s AND name = ANY(%s)",
        (namespace, sql.Texts(sorted(names))),
    )
    return {
        name: {
            "metadata": {"uid": uid} | ({"deletionTimestamp": str(leaves)} if leaves else {}),
            "spec": {"nodeName": node_name},
            "status": {"phase": phase},
        }
        for name, uid, node_name, phase, leaves in rows
    }
