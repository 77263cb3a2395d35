"""Pods: as JSON by name or id, and as rows without their manifests.

::

    queue, waiting, waiting_times    the scheduling queue; waiting pods with reasons; how long
    pace                             pods placed per minute of the last hour
    stays                            where pods are, by place and by stay
    terminating, leftovers           pods that no agent will finish; pods of lost nodes
    resizes                          resizes that wait for room
    claims, claim_news               pods that use claims; changes of pods and claims of devices
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from psycopg.types.range import Range

from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import pod_references
from clusterstate.objects.values import document

_encoder = msgspec.json.Encoder(order="sorted")


class PodRow(msgspec.Struct, frozen=True):
    """A pod as the scheduler and the controllers see it, without its manifest."""

    id: int
    uid: str
    namespace: str
    name: str
    class_id: int
    revision: int
    node_name: str
    phase: str
    priority: int
    created_at: datetime
    deletion_at: datetime | None


POD_OVERLAY: Final = "t.node_name, t.scheduled_at, t.unschedulable, t.eviction"
"""The columns of a pod ``t`` that ``overlay`` takes."""

_TIMER = """
       (SELECT (e.due_at, e.started_at, e.cause, e.taint_key, e.taint_effect)
        FROM eviction_timer e WHERE e.pod_id = t.id ORDER BY e.due_at LIMIT 1)"""

_GET_POD = f"""
SELECT d.text, t.revision, {POD_OVERLAY}, {_TIMER}
FROM pod t JOIN document d ON d.id = t.document_id
WHERE t.namespace = %s AND t.name = %s
"""


def find_pod(namespace: str, name: str) -> bytes | None:
    """Return a pod as JSON, or ``None``. Queries once."""
    row = sql.fetch_one(_GET_POD, (namespace, name))
    return None if row is None else _compose_now(*row)


def annotations_of(ids: Sequence[int], name: str) -> dict[int, str]:
    """Return an annotation's value by the ids of the pods that have it. Queries once."""
    rows = sql.fetch(
        "SELECT id, value FROM (SELECT t.id, replace(d.text, chr(1), '')::jsonb"
        " -> 'metadata' -> 'annotations' ->> %s::text AS value"
        " FROM pod t JOIN document d ON d.id = t.document_id WHERE t.id = ANY(%s)) f"
        " WHERE value IS NOT NULL",
        (name, sql.Int8s(list(ids))),
    )
    return dict(rows)


_FIND_PODS = f"""
SELECT k.position, d.text, t.revision, {POD_OVERLAY}, {_TIMER}
FROM unnest(%s, %s) WITH ORDINALITY AS k(namespace, name, position)
JOIN pod t ON t.namespace = k.namespace AND t.name = k.name
JOIN document d ON d.id = t.document_id
"""


def find_pods(keys: Sequence[tuple[str, str]]) -> list[bytes | None]:
    """Return pods by namespace and name as JSON, ``None`` for missing ones. Queries once."""
    if not keys:
        return []
    if len(keys) == 1:
        return [find_pod(*keys[0])]
    found: list[bytes | None] = [None] * len(keys)
    spaces, names = zip(*keys, strict=True)
    for position, *row in sql.fetch(_FIND_PODS, (sql.Texts(spaces), sql.Texts(names))):
        found[position - 1] = _compose_now(*row)
    return found


def _compose_now(
    text: str,
    revision: int,
    node_name: str,
    scheduled_at: datetime | None,
    unschedulable: str | None,
    eviction: Range[datetime] | None,
    timer: tuple[Any, ...] | None,
) -> bytes:
    """Return a pod as it is now, with the condition of a future eviction.

    Lists and watches are exact as of a revision and omit it: a timer that is set or moved changes
    no pod, so no watch could report it.
    """
    slots = pod_overlay(node_name, scheduled_at, unschedulable, eviction)
    if timer is not None:
        slots = msgspec.structs.replace(slots, leaving=_leaving(*timer))
    return document.compose(text, revision, slots)


def _leaving(
    due_at: datetime, started_at: datetime, cause: str, taint_key: str, taint_effect: str
) -> str:
    """Return the condition of a pod whose eviction timer runs, as JSON."""
    why = f"taint {taint_key}:{taint_effect}" if taint_key else "node labels no longer match"
    return _encoder.encode(
        {
            "type": document.LEAVING,
            "status": "True",
            "reason": cause[:1].upper() + cause[1:],
            "message": f"leaves the node at {due_at.isoformat(timespec='milliseconds')}: {why}",
            "lastTransitionTime": document.format_time(started_at),
        }
    ).decode()


def pod_overlay(
    node_name: str | None,
    scheduled_at: datetime | None,
    unschedulable: str | None,
    eviction: Range[datetime] | None,
) -> document.Overlay:
    """Return the slots of a pod from its columns, of the row or of a change in the log."""
    if not node_name and scheduled_at is None and unschedulable is None and eviction is None:
        return document.EMPTY
    evicted: document.Eviction | None = None
    if eviction is not None:
        assert eviction.lower is not None
        assert eviction.upper is not None
        evicted = document.Eviction(eviction.lower, eviction.upper)
    return document.Overlay(
        node_name=node_name or "",
        scheduled_at=scheduled_at,
        unschedulable=unschedulable,
        eviction=evicted,
    )


def pods_gated_by(gate: str) -> list[tuple[int, str, str]]:
    """Return id, namespace and name of waiting pods with a scheduling gate. Queries once."""
    rows = sql.fetch(
        "SELECT p.id, p.namespace, p.name FROM pending_pod q JOIN pod p ON p.id = q.pod_id"
        " JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE q.stage = 'gated' AND p.deletion_at IS NULL AND strpos(c.spec, %s) > 0"
        " ORDER BY p.id",
        (f'"{gate}"',),
    )
    return [(id_, namespace, name) for id_, namespace, name in rows]


_POD_ROW = (
    "SELECT id, uid::text, namespace, name, class_id, revision, node_name, phase, priority,"
    " created_at, deletion_at FROM pod"
)


def pods_by_id(ids: Sequence[int]) -> dict[int, PodRow]:
    """Return the pods with these ids that exist. Queries once."""
    rows = sql.fetch(f"{_POD_ROW} WHERE id = ANY(%s)", (sql.Int8s(list(ids)),))
    return {row[0]: PodRow(*row) for row in rows}


def pods_on_node(node_name: str) -> list[PodRow]:
    """Return the pods bound to a node, by id. Queries once, by index."""
    rows = sql.fetch(
        f"{_POD_ROW} WHERE node_name = %s AND node_name <> '' ORDER BY id", (node_name,)
    )
    return [PodRow(*row) for row in rows]


def find_pod_id(namespace: str, name: str) -> int | None:
    """Return the id of a pod, or ``None``. Queries once."""
    row = sql.fetch_one("SELECT id FROM pod WHERE namespace = %s AND name = %s", (namespace, name))
    return None if row is None else row[0]


def find_pod_ids(places: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return the ids of those pods (namespace, name) that exist. Queries once."""
    if not places:
        return {}
    rows = sql.fetch(
        "SELECT namespace, name, id FROM pod JOIN"
        " unnest(%s::text[], %s::text[]) asked(namespace, name) USING (namespace, name)",
        ([namespace for namespace, _ in places], [name for _, name in places]),
    )
    return {(namespace, name): pod_id for namespace, name, pod_id in rows}


def claim_users(namespace: str) -> dict[str, int]:
    """Return the PersistentVolumeClaims that pods on nodes use, with the last such pod of each.

    A pod that is on no node cannot start any more with a claim that is being deleted. Queries twice
    and reads the pods with claims, for all claims of a namespace at once. Rule: ``podUsesPVC``,
    pkg/controller/volume/pvcprotection/pvc_protection_controller.go, v1.36.
    """
    rows = sql.fetch(
        "SELECT p.id FROM pod p JOIN document d ON d.id = p.document_id"
        " WHERE p.namespace = %s AND p.node_name <> ''"
        " AND d.text ~ '\"(claimName|ephemeral)\":'",
        (namespace,),
    )
    return {
        claim: pod_id
        for pod_id, text in sorted(pod_manifests([row[0] for row in rows]).items())
        for claim in pod_references.names(msgspec.json.decode(text), "persistentvolumeclaims")
    }


def claiming_pods(namespace: str, names: Sequence[str] = ()) -> dict[int, bytes]:
    """Return the pods of a namespace that claim devices, as JSON by id. Queries twice.

    ``names``: pods that are returned as well, such as those with extended resources.
    """
    rows = sql.fetch(
        "SELECT p.id FROM pod p JOIN scheduling_class c ON c.id = p.class_id WHERE p.namespace = %s"
        " AND (strpos(c.spec, '\"resourceClaims\"') > 0 OR p.name = ANY(%s)) ORDER BY p.id",
        (namespace, list(names)),
    )
    return pod_manifests([row[0] for row in rows]) if rows else {}


_OF_GROUP: Final = (
    "FROM pod p JOIN scheduling_class c ON c.id = p.class_id"
    " WHERE c.namespace = %s AND c.spec::jsonb #>> '{spec,schedulingGroup,podGroupName}' = %s"
    " AND c.spec LIKE '%%\"schedulingGroup\"%%' AND p.phase NOT IN ('Succeeded', 'Failed')"
)
"""The unfinished pods of a PodGroup; classes of groups have an index."""


def member_of(namespace: str, group: str) -> int | None:
    """Return an unfinished pod of a PodGroup, ``None`` if there is none. Queries once."""
    rows = sql.fetch(f"SELECT p.id {_OF_GROUP} LIMIT 1", (namespace, group))
    return rows[0][0] if rows else None


def waiting_members(namespace: str, group: str) -> list[tuple[int, int]]:
    """Return id and class of the pods of a PodGroup that are on no node. Queries once."""
    rows = sql.fetch(
        f"SELECT p.id, p.class_id {_OF_GROUP} AND p.node_name = '' AND p.deletion_at IS NULL"
        " ORDER BY p.priority DESC, p.id",
        (namespace, group),
    )
    return [(pod_id, class_id) for pod_id, class_id in rows]


class Member(msgspec.Struct, frozen=True):
    """An unfinished pod of a PodGroup; ``state``: its phase, or Terminating."""

    name: str
    node_name: str
    state: str


def members_of(namespace: str, group: str) -> list[Member]:
    """Return the unfinished pods of a PodGroup by name. Queries once."""
    rows = sql.fetch(
        "SELECT p.name, p.node_name,"
        f" CASE WHEN p.deletion_at IS NULL THEN p.phase ELSE 'Terminating' END {_OF_GROUP}"
        " ORDER BY p.name",
        (namespace, group),
    )
    return [Member(*row) for row in rows]


class GroupToDisrupt(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup whose pods leave together; ``pods``: names of those on a node, by id."""

    namespace: str
    name: str
    uid: str
    pods: dict[int, str]


_TOGETHER: Final = f"""
    SELECT g.namespace, g.name, g.uid::text,
           (SELECT coalesce(jsonb_object_agg(p.id, p.name), '{{}}')::text
            FROM scheduling_class o JOIN pod p ON p.class_id = o.id
            WHERE o.namespace = g.namespace AND o.spec LIKE '%%"schedulingGroup"%%'
              AND o.spec::jsonb #>> '{{spec,schedulingGroup,podGroupName}}' = g.name
              AND p.node_name <> '' AND p.deletion_at IS NULL
              AND p.phase NOT IN ('Succeeded', 'Failed'))
    FROM (SELECT DISTINCT p.namespace,
                 c.spec::jsonb #>> '{{spec,schedulingGroup,podGroupName}}' AS name
          FROM pod p JOIN scheduling_class c ON c.id = p.class_id
          WHERE p.id = ANY(%s) AND c.spec LIKE '%%"schedulingGroup"%%'
                AND p.deletion_at IS NULL AND p.phase NOT IN ('Succeeded', 'Failed') OFFSET 0) w
    JOIN generic_object g ON g.kind = {KINDS["PodGroup"].code} AND g.namespace = w.namespace
                         AND g.name = w.name
    JOIN document d ON d.id = g.document_id
    WHERE replace(d.text, chr(1), '')::jsonb #> '{{spec,disruptionMode,all}}' IS NOT NULL
    ORDER BY g.namespace, g.name
"""


def leaving_together(pod_ids: Collection[int]) -> list[GroupToDisrupt]:
    """Return the groups of those pods that run, if a group's pods leave together. Queries once."""
    return [
        GroupToDisrupt(
            namespace=namespace, name=name, uid=uid,
            pods=msgspec.json.decode(pods, type=dict[int, str]),
        )
        for namespace, name, uid, pods in sql.fetch(_TOGETHER, (sql.Int8s(sorted(pod_ids)),))
    ]  # fmt: skip


_GROUP_OF_POD: Final = f"""
    SELECT coalesce(g.spec #>> '{{schedulingPolicy,gang,minCount}}', '1')::int,
           g.spec #> '{{disruptionMode,all}}' IS NOT NULL, array_agg(p.id)
    FROM (SELECT c.namespace, c.spec::jsonb #>> '{{spec,schedulingGroup,podGroupName}}' AS name
          FROM pod p JOIN scheduling_class c ON c.id = p.class_id
          WHERE p.id = %s AND c.spec LIKE '%%"schedulingGroup"%%' OFFSET 0) w
    JOIN LATERAL (
        SELECT replace(d.text, chr(1), '')::jsonb -> 'spec' AS spec
        FROM generic_object o JOIN document d ON d.id = o.document_id
        WHERE o.kind = {KINDS["PodGroup"].code} AND o.namespace = w.namespace AND o.name = w.name
    ) g ON true
    JOIN scheduling_class c ON c.namespace = w.namespace AND c.spec LIKE '%%"schedulingGroup"%%'
        AND c.spec::jsonb #>> '{{spec,schedulingGroup,podGroupName}}' = w.name
    JOIN pod p ON p.class_id = c.id AND p.node_name <> '' AND p.deletion_at IS NULL
        AND p.phase NOT IN ('Succeeded', 'Failed')
    GROUP BY g.spec
"""


def group_of_pod(pod_id: int) -> tuple[int, bool, list[int]] | None:
    """Return the minCount of a pod's PodGroup, whether its pods leave together, and their ids.

    The ids are those of running pods. ``None``: the pod has no group, the group does not exist, or
    none of its pods runs. Queries once.
    """
    row = sql.fetch_one(_GROUP_OF_POD, (pod_id,))
    return None if row is None else (row[0], row[1], row[2])


def present(ids: Collection[int]) -> set[int]:
    """Return which of these pods exist. Queries once, and not for none."""
    if not ids:
        return set()
    return {
        row[0]
        for row in sql.fetch("SELECT id FROM pod WHERE id = ANY(%s)", (sql.Int8s(list(ids)),))
    }


def pod_manifests(ids: Sequence[int]) -> dict[int, bytes]:
    """Return pods as JSON by id. Queries once."""
    rows = sql.fetch(
        f"SELECT t.id, d.text, t.revision, {POD_OVERLAY}"
        " FROM pod t JOIN document d ON d.id = t.document_id WHERE t.id = ANY(%s)",
        (sql.Int8s(list(ids)),),
    )
    return {row[0]: document.compose(row[1], row[2], pod_overlay(*row[3:])) for row in rows}


def node_of_pod(namespace: str, name: str) -> str | None:
    """Return the node that a pod is bound to (empty: none); ``None``: there is no such pod.

    Queries once.
    """
    row = sql.fetch_one(
        "SELECT node_name FROM pod WHERE namespace = %s AND name = %s", (namespace, name)
    )
    return None if row is None else row[0]
