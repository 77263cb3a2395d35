"""Pods that use claims, by the volumes of their scheduling classes."""

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values.pod import Pod, Volume

_decode = msgspec.json.Decoder(Pod).decode


class ClaimingPod(msgspec.Struct, frozen=True):
    """A pod with claims, unfinished; ``node_name`` is empty while it waits."""

    id: int
    uid: str
    namespace: str
    name: str
    node_name: str
    volumes: tuple[Volume, ...]


def pods_with_claims() -> list[ClaimingPod]:
    """Return the unfinished pods that use claims, including generic ephemeral volumes.

    Queries once, by index: of the classes with volumes few have no claims.
    """
    rows = sql.fetch(
        "SELECT p.id, p.uid::text, p.namespace, p.name, p.node_name, c.spec FROM pod p"
        " JOIN scheduling_class c ON c.id = p.class_id"
        " WHERE c.id IN (SELECT id FROM scheduling_class"
        " WHERE spec LIKE '%%\"persistentVolumeClaim\"%%' OR spec LIKE '%%\"ephemeral\"%%')"
        " AND p.phase NOT IN ('Succeeded', 'Failed') ORDER BY p.id"
    )
    return [
        ClaimingPod(id_, uid, namespace, name, node_name, _decode(spec).spec.volumes)
        for id_, uid, namespace, name, node_name, spec in rows
    ]
