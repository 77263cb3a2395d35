"""Workloads of a namespace and their pods, as rows; documents are read separately.

A document never changes, so a controller reads each once: it reads rows, which are narrow and
always current, and then the documents that it has not cached.

Pods are found by their scheduling classes, which are read first. A pod may change its class between
the two statements (a client changes its labels), and must not be missed: so the second statement
also returns pods that changed after the first, by the log. The first one begins with a watermark
(``mark``), which the second one gets.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules.disruption import is_assumed
from clusterstate.objects.values import document
from clusterstate.queries.objects.namespaces import changed_namespaces
from clusterstate.queries.pods.stays import BOUND_AT
from clusterstate.queries.pods.terminating import WITH_AGENT


class ObjectRow(msgspec.Struct, frozen=True):
    """The current version of an object."""

    document_id: int
    revision: int


class PodRow(msgspec.Struct, frozen=True):
    """A pod without its document. ``bound_at`` is ``None`` while it has no node."""

    id: int
    uid: str
    name: str
    class_id: int
    document_id: int
    phase: str
    node_name: str
    created_at: datetime
    bound_at: datetime | None
    is_leaving: bool


def namespaces_with(kinds: Sequence[str]) -> list[str]:
    """Return the namespaces with objects of any of these kinds. Queries once."""
    parts = [
        f"EXISTS (SELECT FROM {KINDS[kind].rows} t WHERE t.namespace = n.name)" for kind in kinds
    ]
    found = sql.fetch(f"SELECT n.name FROM namespace n WHERE {' OR '.join(parts) or 'false'}")
    return [row[0] for row in found]


def objects_saying(kind: str, text: str) -> list[bytes]:
    """Return the objects of a kind whose JSON contains a text, as JSON. Queries once."""
    rows = sql.fetch(
        f"SELECT d.text, t.revision FROM {KINDS[kind].rows} t"
        " JOIN document d ON d.id = t.document_id WHERE strpos(d.text, %s) > 0 ORDER BY t.name",
        (text,),
    )
    return [document.compose(*row) for row in rows]


def namespaces_of_pods_of(kind: str, cursor: int | None, mark: int) -> set[str]:
    """Return the namespaces in which pods may have lost their owner, a workload of this kind.

    These are the namespaces in which such workloads changed between two revisions. Without a
    cursor, or if the log does not reach back so far, all with scheduling classes of such pods.
    Queries once or twice.
    """
    found = None if cursor is None else changed_namespaces(cursor, mark, (kind,))
    if found is not None:
        return set(found)
    rows = sql.fetch(
        "SELECT DISTINCT namespace FROM scheduling_class WHERE strpos(spec, %s) > 0",
        (f'"kind":"{kind}"',),
    )
    return {row[0] for row in rows}


def objects_in(kind: str, namespace: str) -> list[ObjectRow]:
    """Return the objects of a kind in a namespace, by name. Queries once, by index."""
    rows = sql.fetch(
        f"SELECT t.document_id, t.revision FROM {KINDS[kind].rows} t WHERE t.namespace = %s"
        " ORDER BY t.name",
        (namespace,),
    )
    return [ObjectRow(*row) for row in rows]


def nodes() -> list[ObjectRow]:
    """Return all nodes. Queries once."""
    rows = sql.fetch("SELECT document_id, revision FROM node")
    return [ObjectRow(*row) for row in rows]


def documents(ids: Collection[int]) -> dict[int, str]:
    """Return the texts of documents, with slots, by id. Queries once."""
    if not ids:
        return {}
    rows = sql.fetch("SELECT id, text FROM document WHERE id = ANY(%s)", (sql.Int8s(list(ids)),))
    return {row[0]: row[1] for row in rows}


def classes_in(namespace: str) -> tuple[int, list[int]]:
    """Return the watermark, and the ids of the scheduling classes of a namespace's pods.

    The watermark is read first. Queries twice.
    """
    mark = changes.watermark()
    rows = sql.fetch("SELECT DISTINCT p.class_id FROM pod p WHERE p.namespace = %s", (namespace,))
    return mark, [row[0] for row in rows]


_PODS: Final = f"""
SELECT p.id, p.uid::text, p.name, p.class_id, p.document_id, p.phase, p.node_name, p.created_at,
       CASE WHEN p.node_name <> '' THEN {BOUND_AT} END, p.deletion_at IS NOT NULL
FROM pod p WHERE p.namespace = %s
"""
_PODS_OF_CLASSES: Final = f"""
{_PODS} AND p.class_id = ANY(%s)
UNION ALL
{_PODS} AND p.id = ANY({changes.PODS_SINCE}) AND NOT p.class_id = ANY(%s)
ORDER BY 1
"""


def pods_of_classes(namespace: str, class_ids: Sequence[int], mark: int) -> list[PodRow]:
    """Return the pods of a namespace that are of these classes, or changed since ``mark``, by id.

    ``mark``: a watermark that was read before the classes; later changes may change a pod's class.
    Queries once.
    """
    classes = sql.Int8s(list(class_ids))
    rows = sql.fetch(_PODS_OF_CLASSES, (namespace, classes, namespace, mark, classes))
    return [PodRow(*row) for row in rows]


def without_agent(node_names: Collection[str]) -> set[str]:
    """Return the nodes that have no agent. Queries once."""
    if not node_names:
        return set()
    rows = sql.fetch(
        f"SELECT k.name FROM unnest(%s) AS k(name) WHERE k.name NOT IN ({WITH_AGENT})",
        (sql.Texts(sorted(node_names)),),
    )
    return {row[0] for row in rows}


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = ()


class _Lens(msgspec.Struct, frozen=True):
    status: _Status | None = None


def ready_among(ids: Sequence[int]) -> set[int]:
    """Return which of these pods are ready, or assumed to be (``disruption.is_assumed``).

    Queries once, and once more if no agent reported on one of them.
    """
    found: set[int] = set()
    silent: dict[int, tuple[str, str]] = {}
    for pod_id, phase, node_name, text in sql.fetch(
        "SELECT p.id, p.phase, p.node_name, d.text FROM pod p"
        " JOIN document d ON d.id = p.document_id WHERE p.id = ANY(%s)",
        (sql.Int8s(list(ids)),),
    ):
        status = msgspec.json.decode(text.replace(document.SLOT, ""), type=_Lens).status
        conditions = () if status is None else status.conditions or ()
        ready = next((one.status for one in conditions if one.type == "Ready"), None)
        if ready is None:
            silent[pod_id] = phase, node_name
        elif ready == "True":
            found.add(pod_id)
    free = without_agent({node for _, node in silent.values()} - {""})
    return found | {
        pod_id
        for pod_id, (phase, node) in silent.items()
        if is_assumed(phase, node, is_reported=False, has_agent=node not in free)
    }


def documents_with_addresses(ids: Collection[int]) -> dict[int, str | None]:
    """Return the texts of pods' documents by id, ``None`` for those without an address.

    Queries once; documents without an address are not transferred.
    """
    if not ids:
        return {}
    rows = sql.fetch(
        "SELECT id, CASE WHEN strpos(text, '\"podIP\":') > 0 THEN text END"
        " FROM document WHERE id = ANY(%s)",
        (sql.Int8s(list(ids)),),
    )
    return dict(rows)


def labels_of_classes_in(namespace: str) -> tuple[int, dict[int, str]]:
    """Return the watermark, and the labels (JSON) of a namespace's scheduling classes, by id.

    The watermark is read first. Queries twice.
    """
    mark = changes.watermark()
    rows = sql.fetch(
        "SELECT c.id, c.labels::text FROM scheduling_class c"
        " WHERE c.id IN (SELECT DISTINCT p.class_id FROM pod p WHERE p.namespace = %s)",
        (namespace,),
    )
    return mark, dict(rows)


def labels_of_classes(class_ids: Collection[int]) -> dict[int, str]:
    """Return labels as JSON, by class, of these classes. Queries once if there are any."""
    if not class_ids:
        return {}
    rows = sql.fetch(
        "SELECT c.id, c.labels::text FROM scheduling_class c WHERE c.id = ANY(%s)",
        (sql.Int8s(list(class_ids)),),
    )
    return dict(rows)
