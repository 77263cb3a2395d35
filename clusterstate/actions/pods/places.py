"""Places that are held for pods which move: handed over to the pods that come in their stead.

Before an operation asks a pod to leave, the node that its replacement was predicted for gets a
*placeholder*: a pod in the namespace ``PLACES`` that asks for the same amounts, tolerates the same
taints and has the same priority, placed by the scheduler on that node alone
(``controllers.held_places``). It is an ordinary bound pod, so every scheduler and agent counts it.
When the controller of the pod that leaves creates another one, the place is handed over in the
transaction of the creation: the new pod is nominated for the node, and the placeholder is gone.

A placeholder is called ``OWNER.POD.PLAN.CLASS``: the uid of the controller, that of the pod that
moves, the number of the plan, and that of the pod's scheduling class. The namespace is made by the
first operation that holds places. It is in admission's catalogue, so creations ask for places only
where there may be some, and miss none that is made meanwhile.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.status import nominate
from clusterstate.database import sql
from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import annotations_of
from clusterstate.queries.scheduler.plans import PLACES

MOVES: Final = "stowage.dev/place-for"
"""Annotation of a placeholder: namespace and name of the pod that moves."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A placeholder; ``plan_id``: of the operation that holds it; ``class_id``: of the mover.

    ``node_name`` is empty while it is not placed; ``unschedulable`` is then its condition, if it
    was refused. ``mover``: namespace and name of the pod that moves. It ``has_left`` if it is gone
    or terminating; from then on the next pod of its controller gets the place.
    """

    name: str
    plan_id: int
    class_id: int
    node_name: str
    created_at: datetime
    unschedulable: str
    mover: str
    has_left: bool
    is_gone: bool


def find_places(*, owner: str = "") -> list[Place]:
    """Return the places, all or those for pods of one controller (its uid). Queries thrice."""
    rows = sql.fetch(
        "SELECT id, name, node_name, created_at, coalesce(unschedulable, '') FROM pod"
        " WHERE namespace = %s AND (%s = '' OR split_part(name, '.', 1) = %s) ORDER BY name",
        (PLACES, owner, owner),
    )
    moves = annotations_of([row[0] for row in rows], MOVES) if rows else {}
    keys = [moves[id_].partition("/") for id_, *_ in rows if id_ in moves]
    there = {
        f"{namespace}/{called}": (uid, deletion_at)
        for namespace, called, uid, deletion_at in sql.fetch(
            "SELECT p.namespace, p.name, p.uid::text, p.deletion_at FROM pod p"
            " JOIN unnest(%s::text[], %s::text[]) k(namespace, name)"
            " ON (p.namespace, p.name) = (k.namespace, k.name)",
            (sql.Texts([key[0] for key in keys]), sql.Texts([key[2] for key in keys])),
        )
    }
    found = []
    for id_, called, node_name, created_at, unschedulable in rows:
        mover = moves.get(id_, "")
        uid, deletion_at = there.get(mover, ("", None))
        _, mover_uid, plan_id, class_id = called.split(".")
        is_gone = uid != mover_uid
        found.append(
            Place(
                name=called,
                plan_id=int(plan_id),
                class_id=int(class_id),
                node_name=node_name,
                created_at=created_at,
                unschedulable=unschedulable,
                mover=mover,
                has_left=is_gone or deletion_at is not None,
                is_gone=is_gone,
            )
        )
    return found


def hand_over(created: Sequence[tuple[Manifest, str, str]], *, now: datetime) -> None:
    """Give new pods the places that are held for them, one each.

    To be called in the transaction that creates them, so that no scheduler sees them before. A
    pod gets the place of one of its class, and of its name, if there is such a place. Queries three
    times for each pod with a controller.

    Args:
        created: manifest, namespace and name of each new pod.
        now: the time.
    """
    for manifest, namespace, name in created:
        owner = controller_of({"metadata": {}, **manifest})
        if owner is None:
            continue
        found = [
            one
            for one in find_places(owner=str(owner.get("uid")))
            if one.has_left and one.node_name and one.mover.startswith(f"{namespace}/")
        ]
        if not found:
            continue
        row = sql.fetch_one(
            "SELECT id, class_id FROM pod WHERE namespace = %s AND name = %s", (namespace, name)
        )
        assert row is not None
        pod_id, class_id = row
        unlike = [
            (one.class_id != class_id, one.mover != f"{namespace}/{name}", one.name)
            for one in found
        ]
        place = found[unlike.index(min(unlike))]
        nominate({pod_id: place.node_name}, now=now)
        release(place.name, now=now)


def release(name: str, *, now: datetime) -> None:
    """Hold a place no longer."""
    try:
        delete_pod(PLACES, name, now=now, grace_seconds=0)
    except NotFound:
        return  # it was handed over, or somebody deleted it
