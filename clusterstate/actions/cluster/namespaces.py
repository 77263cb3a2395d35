"""Deleting a namespace: mark it, delete its pods, then all other content, remove it.

``objects.delete`` marks it Terminating, after which nothing can be created in it (see
`clusterstate.catalogue` for how this is ensured). ``finish_deletion`` does the rest and may be
called again at any time; a follower of the change log calls it, and a periodic task as backstop.

Pods are deleted first, since what they use (secrets, network policies, claims) must outlive them.
The conditions of the namespace list what is left, and which finalizers hold it, all five of them at
each pass, since clients wait for a condition to appear. A namespace that is removed at the first
pass has none. Rule: ``pkg/controller/namespace/deletion/namespaced_resources_deleter.go``, v1.36.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.actions import objects
from clusterstate.actions.cluster.collection import delete_collection
from clusterstate.actions.pods.delete import finish_deletions
from clusterstate.database import sql
from clusterstate.objects.registry.kind import SHARED_TABLE, Kind
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object, find_object


def finish_deletion(name: str, *, now: datetime) -> bool:
    """Delete the content of a terminating namespace, pods first, and once empty, the namespace.

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
    for is_turn in (lambda kind: kind.name == "Pod", lambda kind: True):
        for kind in filter(is_turn, _present(name)):
            delete_collection(kind, name, {"propagationPolicy": "Background"}, now=now)
        remaining = _present(name)
        if any(map(is_turn, remaining)):
            _tell(name, remaining, now)
            return False
    if _has_conditions(name):
        _tell(name, (), now)

    def finalize(manifest: Manifest) -> Manifest:
        spec = manifest.get("spec") or {}
        finalizers = [one for one in spec.get("finalizers") or () if one != "kubernetes"]
        return {**manifest, "spec": {**spec, "finalizers": finalizers}}

    try:
        objects.update("Namespace", "", name, finalize, subresource="finalize", now=now)
    except NotFound:
        return True
    return find_object("Namespace", "", name) is None


_REMAINING: Final = f"""
    SELECT count(*), coalesce(string_agg({sql.FINALIZERS}, E'\\n'), '')
    FROM {{rows}} t LEFT JOIN document d ON d.id = t.document_id WHERE t.namespace = %s
"""


def _has_conditions(name: str) -> bool:
    """Return whether a namespace has conditions about remaining content, which must be cleared."""
    found = find_object("Namespace", "", name)
    return found is not None and bool((decode_object(found).get("status") or {}).get("conditions"))


def _tell(name: str, kinds: Sequence[Kind], now: datetime) -> None:
    """Write into the conditions of a namespace which objects of these kinds remain in it."""
    resources: list[str] = []
    finalizers: Counter[str] = Counter()
    for kind in kinds:
        row = sql.fetch_one(_REMAINING.format(rows=kind.rows), (name,))
        assert row is not None
        count, held = row
        resources.append(f"{kind.plural}.{kind.group} has {count} resource instances")
        for line in held.split("\n") if held else ():
            finalizers.update(msgspec.json.decode(line, type=list[str]))
    texts = [f"{one} in {count} resource instances" for one, count in sorted(finalizers.items())]
    new_conditions = [
        *_NO_FAILURES,
        _condition(
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(sorted(resources))}",
        )
        if resources
        else _NO_CONTENT,
        _condition(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {', '.join(texts)}",
        )
        if texts
        else _NO_FINALIZERS,
    ]

    def described(manifest: Manifest) -> Manifest:
        status = manifest.get("status") or {}
        conditions = {one["type"]: one for one in status.get("conditions") or ()}
        for one in new_conditions:
            previous = conditions.get(one["type"]) or {}
            since = previous.get("lastTransitionTime")
            if previous.get("status") != one["status"] or since is None:
                since = format_time(now)
            conditions[one["type"]] = {**one, "lastTransitionTime": since}
        return {**manifest, "status": {**status, "conditions": list(conditions.values())}}

    with suppress(NotFound):
        objects.update("Namespace", "", name, described, subresource="status", now=now)


def _condition(type_: str, reason: str, message: str, status: str = "True") -> Manifest:
    return {"type": type_, "status": status, "reason": reason, "message": message}


_NO_FAILURES: Final = (
    _condition(
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
        "False",
    ),
    _condition(
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
        "False",
    ),
    _condition(
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
        "False",
    ),
)
"""Clients wait for these, whatever they say, to learn that the deletion has begun."""
_NO_CONTENT: Final = _condition(
    "NamespaceContentRemaining", "ContentRemoved", "All content successfully removed", "False"
)
_NO_FINALIZERS: Final = _condition(
    "NamespaceFinalizersRemaining",
    "ContentHasNoFinalizers",
    "All content-preserving finalizers finished",
    "False",
)


def _present(namespace: str) -> list[Kind]:
    """Return the kinds of which a namespace has objects, in the order of the registry."""
    own = [kind for kind in ALL_KINDS if kind.namespaced and not kind.is_shared]
    parts = [
        f"SELECT {kind.code} WHERE EXISTS (SELECT 1 FROM {kind.table} WHERE namespace = %s)"
        for kind in own
    ]
    parts.append(f"SELECT DISTINCT kind::int FROM {SHARED_TABLE} WHERE namespace = %s")
    codes = {code for (code,) in sql.fetch(" UNION ALL ".join(parts), (namespace,) * len(parts))}
    return [kind for kind in ALL_KINDS if kind.namespaced and kind.code in codes]
