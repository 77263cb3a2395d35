"""Deleting a namespace: mark it, delete its content, remove it.

``objects.delete`` marks it Terminating, from which moment nothing can be created in it (see
`clusterstate.catalogue` for why nothing slips in). ``finish_deletion`` does the rest and may be
called again at any time; a follower of the change log calls it, and a periodic task as backstop.
"""

from datetime import datetime

from clusterstate import sql
from clusterstate.actions import objects
from clusterstate.actions.collection import delete_collection
from clusterstate.actions.pods.delete import finish_deletions
from clusterstate.objects.errors import NotFound
from clusterstate.objects.kind import Kind
from clusterstate.objects.kinds import ALL_KINDS
from clusterstate.objects.meta import Manifest
from clusterstate.queries.objects import find_object


def finish_deletion(name: str, *, now: datetime) -> bool:
    """Delete the content of a terminating namespace and, once empty, the namespace.

    Returns whether it is gone. Pods on nodes keep their grace period, and objects with finalizers
    stay until these are removed; call again then. Pods whose grace period is over are removed.
    """
    row = sql.fetch_one(
        "SELECT 1 FROM namespace WHERE name = %s AND deletion_at IS NOT NULL", (name,)
    )
    if row is None:
        return sql.fetch_one("SELECT 1 FROM namespace WHERE name = %s", (name,)) is None
    due = sql.fetch(
        "SELECT id FROM pod WHERE namespace = %s AND deletion_at <= %s::timestamptz", (name, now)
    )
    finish_deletions([id_ for (id_,) in due], now=now)
    namespaced = [kind for kind in ALL_KINDS if kind.namespaced]
    for kind in namespaced:
        if _is_empty(kind, name):
            continue
        delete_collection(kind, name, {"propagationPolicy": "Background"}, now=now)
    if not all(_is_empty(kind, name) for kind in namespaced):
        return False

    def finalize(manifest: Manifest) -> Manifest:
        spec = manifest.get("spec") or {}
        kept = [one for one in spec.get("finalizers") or () if one != "kubernetes"]
        return {**manifest, "spec": {**spec, "finalizers": kept}}

    try:
        objects.update("Namespace", "", name, finalize, subresource="finalize", now=now)
    except NotFound:
        return True
    return find_object("Namespace", "", name) is None


def _is_empty(kind: Kind, namespace: str) -> bool:
    found = sql.fetch_one(
        f"SELECT 1 FROM {kind.rows} t WHERE t.namespace = %s LIMIT 1", (namespace,)
    )
    return found is None
