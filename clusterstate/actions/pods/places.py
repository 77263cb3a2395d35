"""Places that are held for pods that move, and handed over to their replacements.

Before an operation evicts a pod, the node predicted for its replacement gets a *placeholder*: a pod
in the namespace ``PLACES`` with the same requests, tolerations and priority, which the scheduler
can place only on that node (``controllers.held_places``). It is an ordinary bound pod, so every
scheduler and agent counts it, but it preempts no pod. When the controller of the leaving pod
creates another one, the place is handed over in the transaction of the creation: the new pod is
nominated to the node, and the placeholder is removed.

A placeholder's name is ``OWNER.POD.PLAN.CLASS``: the uid of the controller, that of the moving pod,
the number of the plan, and that of the pod's scheduling class. The first operation that holds
places creates the namespace, which has the annotation ``HELD`` while there may be some. It is in
admission's catalogue, so creations look for places only then, and miss none that is created
meanwhile.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate import catalogue
from clusterstate.actions.pods.clauses import FINISHED
from clusterstate.actions.pods.delete import delete_pods_each
from clusterstate.actions.pods.status import nominate
from clusterstate.actions.writing.deletion import Deletion
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.numbers import natural
from clusterstate.queries.pods import annotations_of
from clusterstate.queries.scheduler.plans import PLACES

MOVES: Final = "stowage.dev/place-for"
"""Annotation of a placeholder: namespace and name of the pod that moves."""
HELD: Final = "stowage.dev/places"
"""Annotation of the namespace while it may have placeholders."""
_IS_HELD: Final = "node_name <> '' AND phase <> ALL(%s) AND deletion_at IS NULL"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A placeholder; ``plan_id``: of the operation that holds it; ``class_id``: of the moving pod.

    ``owner``, ``uid``: the uids of the moving pod's controller and of the moving pod.
    ``node_name`` is empty while the placeholder is not placed, and once it has ended.
    ``is_refused``: by the scheduler, or by the node. ``mover``: namespace and name of the moving
    pod. ``left_at``: when that was gone, or the end of its grace period while it terminates;
    ``None`` before. From then on a new pod of its controller gets the place.
    """

    name: str
    owner: str
    uid: str
    plan_id: int
    class_id: int
    node_name: str
    is_refused: bool
    mover: str
    left_at: datetime | None


def may_be_held(context: catalogue.Catalogue) -> bool:
    """Return whether plans may hold places: their namespace has the annotation."""
    namespace = context.namespace(PLACES)
    return namespace is not None and HELD in (namespace["metadata"].get("annotations") or {})


def keep(name: str) -> bool:
    """Lock the placeholder until the transaction ends; True if it has a node. Queries once."""
    return sql.fetch_one(
        f"SELECT 1 FROM pod WHERE namespace = %s AND name = %s AND {_IS_HELD} FOR SHARE",
        (PLACES, name, sql.Texts(FINISHED)),
    ) is not None  # fmt: skip


def find_places(owners: Collection[str] | None = None) -> list[Place]:
    """Return the places, all or those for pods of controllers (their uids). Queries thrice.

    Queries once if there are none. Other pods in the namespace hold no place.
    """
    rows = [
        (parts, row)
        for row in sql.fetch(
            "SELECT id, name, CASE WHEN phase <> ALL(%s) THEN node_name ELSE '' END, created_at,"
            " phase = ANY(%s) OR coalesce(unschedulable, '') LIKE '%%\"Unschedulable\"%%' FROM pod"
            " WHERE namespace = %s AND (%s::text[] IS NULL OR"
            " substring(name FROM '^(.*)[.][^.]*[.][^.]*[.][^.]*$') = ANY(%s)) ORDER BY name",
            (
                *[sql.Texts(FINISHED)] * 2,
                PLACES,
                *[None if owners is None else sql.Texts(sorted(owners))] * 2,
            ),
        )
        if len(parts := row[1].rsplit(".", 3)) == 4
    ]
    if not rows:
        return []
    moves = annotations_of([row[0] for _, row in rows], MOVES)
    keys = [one.partition("/") for one in moves.values()]
    there = {
        f"{namespace}/{called}": (uid, deletion_at, gone_at)
        for namespace, called, uid, deletion_at, gone_at in sql.fetch(
            "SELECT k.namespace, k.name, p.uid::text, p.deletion_at,"
            " (SELECT max(c.at) FROM change c"
            f" WHERE c.kind = {KINDS['Pod'].code} AND c.verb = {changes.DELETED}"
            " AND c.namespace = k.namespace AND c.name = k.name)"
            " FROM unnest(%s::text[], %s::text[]) k(namespace, name)"
            " LEFT JOIN pod p ON (p.namespace, p.name) = (k.namespace, k.name)",
            (sql.Texts([key[0] for key in keys]), sql.Texts([key[2] for key in keys])),
        )
    }
    found = []
    for (owner, mover_uid, plan, scheduling_class), row in rows:
        id_, called, node_name, created_at, is_refused = row
        plan_id, class_id = natural(plan), natural(scheduling_class)
        if id_ not in moves or plan_id is None or class_id is None:
            continue
        uid, deletion_at, gone_at = there.get(moves[id_], ("", None, None))
        found.append(
            Place(
                name=called,
                owner=owner,
                uid=mover_uid,
                plan_id=plan_id,
                class_id=class_id,
                node_name=node_name,
                is_refused=is_refused,
                mover=moves[id_],
                left_at=deletion_at if uid == mover_uid else gone_at or created_at,
            )
        )
    return found


def are_held_for_others(node: str, plan_id: int) -> bool:
    """Return whether another operation may hold a place on a node.

    Or a replacement has got its place there, and the scheduler has not tried it yet. Queries up to
    four times.
    """
    if any(one.plan_id != plan_id and one.node_name in ("", node) for one in find_places()):
        return True
    return sql.fetch_one(
        "SELECT 1 FROM pod WHERE node_name = '' AND nominated_node_name = %s"
        " AND unschedulable IS NULL LIMIT 1",
        (node,),
    ) is not None  # fmt: skip


def hand_over(created: Sequence[tuple[Manifest, str, str]], *, now: datetime) -> None:
    """Hand over held places to new pods, one each.

    Must be called in the transaction that creates them: no scheduler sees a pod of it before its
    nomination. A pod gets the place of a pod of its class, and of its name, if there is one. Waits
    for transactions that have locked a place, for example to report its status: a pod that gets
    none now would get none later. Queries once if there is no place; else some times more.

    Args:
        created: manifest, namespace and name of each new pod.
        now: the time.
    """
    owners = {}
    for manifest, namespace, name in created:
        if (owner := controller_of({"metadata": {}, **manifest})) is not None:
            owners[namespace, name] = str(owner.get("uid"))
    places = find_places(set(owners.values())) if owners else []
    places = [one for one in places if one.left_at is not None and one.node_name]
    if not places:
        return
    locked = _lock([one.name for one in places])
    places = [one for one in places if one.name in locked]
    held_for = {one.owner for one in places}
    keys = [key for key, owner in owners.items() if owner in held_for]
    rows = sql.fetch(
        "SELECT p.id, p.class_id, p.namespace, p.name FROM pod p"
        " JOIN unnest(%s::text[], %s::text[]) k(namespace, name)"
        " ON (p.namespace, p.name) = (k.namespace, k.name) WHERE p.node_name = '' ORDER BY p.id",
        (sql.Texts([key[0] for key in keys]), sql.Texts([key[1] for key in keys])),
    )
    taken: dict[str, int] = {}
    for pod_id, class_id, namespace, name in rows:
        title = f"{namespace}/{name}"
        found = [
            ((one.class_id != class_id, one.mover != title, one.name), one.name)
            for one in places
            if one.owner == owners[namespace, name]
            and one.mover.startswith(f"{namespace}/")
            and one.name not in taken
        ]
        if found:
            taken[min(found)[1]] = pod_id
    if taken:
        nodes = {one.name: one.node_name for one in places}
        nominate({pod_id: nodes[place] for place, pod_id in taken.items()}, now=now)
        release(list(taken), now=now)
        changes.note_atomic()


def _lock(names: Sequence[str]) -> set[str]:
    """Lock places until the transaction ends; return those that are still held. Queries once.

    Every transaction locks them in the same order, so that no two wait for each other.
    """
    rows = sql.fetch(
        f"SELECT name FROM pod WHERE namespace = %s AND name = ANY(%s) AND {_IS_HELD}"
        " ORDER BY id FOR UPDATE",
        (PLACES, sql.Texts(names), sql.Texts(FINISHED)),
    )
    return {row[0] for row in rows}


def release(names: Sequence[str], *, now: datetime) -> None:
    """Release places; those handed over or deleted meanwhile are skipped."""
    delete_pods_each(
        [Deletion(namespace=PLACES, name=name, grace_seconds=0) for name in names], now=now
    )
