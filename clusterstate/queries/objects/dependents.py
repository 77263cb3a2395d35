"""Reads for the garbage collector: which objects name an owner, and which owners exist.

Only an object's document has its owners. So the collector caches, for each owner, which objects
name it; of pods only the scheduling classes in which some do, by which they are found again. It
reads both from the log, and from all rows when it starts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from clusterstate.change_log import changes, lineage
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS, NAMES
from clusterstate.objects.rules.ownership import FOREGROUND, Owner, Reference, State, references
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest

_OWNED: Final = '"ownerReferences":['
_FINAL: Final = '"finalizers":['
_PODS_AT_ONCE: Final = 100_000
Key = tuple[str, str, str]
"""Kind, namespace (empty where none) and name."""


class Dependent(msgspec.Struct, frozen=True):
    """An object that may have owners and is no pod. ``manifest`` is ``None`` without owners."""

    key: Key
    deleted: bool
    terminating: bool
    manifest: Manifest | None


class DependentPods(msgspec.Struct, frozen=True):
    """Pods of one scheduling class have these owners."""

    class_id: int
    references: tuple[Reference, ...]


class News(msgspec.Struct, frozen=True):
    """What changed up to ``cursor`` and may concern garbage collection."""

    cursor: int
    objects: list[Dependent]
    pods: list[DependentPods]
    deleted_pods: list[Key]
    terminating_pods: list[Key]


_OBJECTS = f"""
SELECT c.kind, c.namespace, c.name, c.verb, c.deletion_at IS NOT NULL,
       CASE WHEN c.verb <> {changes.DELETED} AND position('{_OWNED}' in {sql.METADATA}) > 0
            THEN d.text END
FROM change c LEFT JOIN document d ON d.id = c.document_id
WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.kind <> ALL(%s)
ORDER BY c.revision
"""
_LIST = f"split_part({sql.METADATA}, '{_OWNED}', 2)"
# Nearly always the list ends at the first bracket, since an owner's fields are texts and booleans.
_CUT_AT: Final = 4096
_SHORT = f"split_part(left({_LIST}, {_CUT_AT}), ']', 1)"
_IS_WHOLE = rf"""({_SHORT} LIKE '%%"}}' AND position('\' in {_SHORT}) = 0
  AND length({_SHORT}) < {_CUT_AT})"""
# A text may contain a bracket, and a list may be long: then texts are parsed as JSON.
_LONG = rf"""substring({_LIST} FROM '^((?:[^]"]|"(?:[^"\\]|\\.)*")*)\]')"""


def _new_owners(listed: str, where: str = "") -> str:
    return f"""
SELECT DISTINCT c.class_id, c.namespace, {listed}
FROM change c JOIN document d ON d.id = c.document_id
WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.kind = {KINDS["Pod"].code}
  AND c.verb <> {changes.DELETED} AND c.document_id IS DISTINCT FROM c.previous_document_id
  AND position('{_OWNED}' in {sql.METADATA}) > 0 {where}
"""


def _existing_owners(listed: str, where: str = "") -> str:
    return f"""
SELECT DISTINCT p.class_id, p.namespace, {listed}
FROM pod p JOIN document d ON d.id = p.document_id
WHERE p.id > %s::bigint AND p.id <= %s::bigint
  AND position('{_OWNED}' in {sql.METADATA}) > 0 {where}
"""


_PODS_ENDING = f"""
SELECT DISTINCT c.namespace, c.name
FROM change c JOIN document d ON d.id = c.document_id
WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.kind = {KINDS["Pod"].code}
  AND c.verb <> {changes.DELETED} AND c.deletion_at IS NOT NULL
  AND position('{_FINAL}' in {sql.METADATA}) > 0
"""
_PODS_GONE = f"""
SELECT DISTINCT c.namespace, c.name
FROM change c JOIN unnest(%s, %s) AS k(namespace, name)
  ON k.namespace = c.namespace AND k.name = c.name
WHERE c.revision > %s::bigint AND c.revision <= %s::bigint AND c.kind = {KINDS["Pod"].code}
  AND c.verb = {changes.DELETED}
"""


def news(cursor: int, *, pod_owners: Sequence[Key], limit: int = 20_000) -> News | None:
    """Return the changes of the log after ``cursor``; ``None`` when these are no longer kept.

    ``pod_owners``: the pods that own something. Queries up to 6 times.
    """
    mark = changes.watermark()
    if mark <= cursor:
        return News(cursor, [], [], [], [])
    if cursor < lineage.kept_after():
        return None
    end = changes.window(cursor, mark, limit=limit)
    window = (cursor, end)
    skipped = sql.Int4s([KINDS["Pod"].code, KINDS["Event"].code])
    gone: list[Key] = []
    if pod_owners:
        names = (
            sql.Texts([key[1] for key in pod_owners]),
            sql.Texts([key[2] for key in pod_owners]),
        )
        gone = [("Pod", *row) for row in sql.fetch(_PODS_GONE, (*names, *window))]
    return News(
        end,
        [
            Dependent(
                (NAMES[kind], namespace, name),
                verb == changes.DELETED,
                terminating,
                _decoded(text),
            )
            for kind, namespace, name, verb, terminating, text in sql.fetch(
                _OBJECTS, (*window, skipped)
            )
            if kind in NAMES  # a kind of a newer version
        ],
        _dependent_pods(_new_owners, window),
        gone,
        [("Pod", *row) for row in sql.fetch(_PODS_ENDING, window)],
    )


def _decoded(text: str | None) -> Manifest | None:
    return None if text is None else document.decode(text, 0)


def _dependent_pods(statement: Callable[..., str], window: tuple[int, int]) -> list[DependentPods]:
    """Return the owners of pods that changed in a window. Queries once; again for cut lists."""
    found = []
    rows = sql.fetch(statement(_SHORT), window)
    # A list of the maximum length was truncated, maybe between two owners.
    owners = [_owners(listed) if len(listed) < _CUT_AT else None for _, _, listed in rows]
    if None in owners:
        odd = sql.fetch(statement(_LONG, f"AND NOT {_IS_WHOLE}"), window)
        rows = [*rows, *odd]
        owners += [_owners(listed) for _, _, listed in odd]
    for (class_id, namespace, _), some in zip(rows, owners, strict=True):
        manifest = {"metadata": {"namespace": namespace, "ownerReferences": some or []}}
        if refs := references("Pod", manifest):
            found.append(DependentPods(class_id, tuple(refs)))
    return found


def _owners(listed: str | None) -> list[Manifest] | None:
    """Decode ownerReferences from JSON without its brackets; ``None`` if the text is truncated."""
    try:
        return None if listed is None else msgspec.json.decode(f"[{listed}]", type=list[Manifest])
    except msgspec.DecodeError:
        return None


def everything() -> tuple[list[Dependent], list[DependentPods]]:
    """Return all objects with owners or a deletion time, and the pods' classes with owners.

    Queries once for each kind, and once for each hundred thousand pods.
    """
    objects = []
    for kind in ALL_KINDS:
        if kind.has_slots or kind.is_composed:
            continue  # pods are read by class, and nothing owns events
        space = "t.namespace" if kind.namespaced else "''"
        rows = sql.fetch(
            f"SELECT {space}, t.name, t.deletion_at IS NOT NULL,"
            f" CASE WHEN position('{_OWNED}' in {sql.METADATA}) > 0 THEN d.text END"
            f" FROM {kind.rows} t JOIN document d ON d.id = t.document_id"
            f" WHERE t.deletion_at IS NOT NULL OR position('{_OWNED}' in {sql.METADATA}) > 0"
        )
        objects += [
            Dependent((kind.name, namespace, name), False, terminating, _decoded(text))
            for namespace, name, terminating, text in rows
        ]
    last = sql.fetch_one("SELECT coalesce(max(id), 0) FROM pod")
    assert last is not None
    pods: list[DependentPods] = []
    for first in range(0, last[0] + 1, _PODS_AT_ONCE):
        pods += _dependent_pods(_existing_owners, (first - 1, first + _PODS_AT_ONCE - 1))
    return objects, pods


def ending_pods() -> list[Key]:
    """Return the terminating pods that have finalizers. Queries once."""
    rows = sql.fetch(
        "SELECT p.namespace, p.name FROM terminating_pod t JOIN pod p ON p.id = t.pod_id"
        f" JOIN document d ON d.id = p.document_id WHERE position('{_FINAL}' in {sql.METADATA}) > 0"
    )
    return [("Pod", *row) for row in rows]


def states(owners: Iterable[Owner]) -> dict[Owner, State]:
    """Return the states of these owners. Queries once for each kind among them."""
    by_kind: dict[str, list[Owner]] = {}
    for owner in owners:
        by_kind.setdefault(owner.kind, []).append(owner)
    result: dict[Owner, State] = {}
    for kind, some in by_kind.items():
        present = _present(kind, some)
        for owner in some:
            uid, waits = present.get((owner.namespace, owner.name), ("", False))
            state = State.WAITING if waits else State.SOLID
            result[owner] = state if uid == owner.uid else State.ABSENT
    return result


def _present(kind: str, owners: Sequence[Owner]) -> dict[tuple[str, str], tuple[str, bool]]:
    names = sql.Texts([owner.name for owner in owners])
    if KINDS[kind].is_composed:
        return {}
    namespaced = KINDS[kind].namespaced
    space = "t.namespace" if namespaced else "''"
    match = "AND k.namespace = t.namespace" if namespaced else ""
    rows = sql.fetch(
        f"SELECT {space}, t.name, t.uid::text,"
        " t.deletion_at IS NOT NULL AND"
        f" coalesce(position('\"{FOREGROUND}\"' in {sql.FINALIZERS}) > 0, false)"
        f" FROM {KINDS[kind].rows} t JOIN document d ON d.id = t.document_id"
        f" JOIN unnest(%s, %s) AS k(namespace, name) ON k.name = t.name {match}",
        (sql.Texts([owner.namespace for owner in owners]), names),
    )
    return {(namespace, name): (uid, waits) for namespace, name, uid, waits in rows}


_NAMES_IT: Final = "SELECT p.id FROM pod p JOIN document d ON d.id = p.document_id WHERE"


def pods_of(
    owner: Owner, class_ids: Sequence[int], since: int, *, live: bool, limit: int
) -> list[int]:
    """Return ids of pods that name the owner, the oldest first, up to a limit. Queries once.

    Candidates are pods of these classes, and those that changed since a revision, so that a pod
    whose class changed is found as well. ``live``: only those that are not being deleted.
    """
    where = "AND p.deletion_at IS NULL" if live else ""
    return _pods_that_name(owner, class_ids, since, where, limit)


def is_a_pod_of_it_waiting(owner: Owner, class_ids: Sequence[int], since: int) -> bool:
    """Return whether a pod that names the owner waits for its own dependents. Queries once.

    The candidates are those of ``pods_of``.
    """
    where = (
        "AND p.deletion_at IS NOT NULL AND"
        f" coalesce(position('\"{FOREGROUND}\"' in {sql.FINALIZERS}) > 0, false)"
    )
    return bool(_pods_that_name(owner, class_ids, since, where, 1))


def _pods_that_name(
    owner: Owner, class_ids: Sequence[int], since: int, where: str, limit: int
) -> list[int]:
    named = f"position(%s in d.text) > 0 {where}"
    classes, uid = sql.Int8s(list(class_ids)), f'"{owner.uid}"'
    rows = sql.fetch(
        f"{_NAMES_IT} p.class_id = ANY(%s) AND {named} UNION ALL"
        f" {_NAMES_IT} p.id = ANY({changes.PODS_SINCE}) AND NOT p.class_id = ANY(%s) AND {named}"
        " ORDER BY 1 LIMIT %s::bigint",
        (classes, uid, since, classes, uid, limit),
    )
    return [row[0] for row in rows]
