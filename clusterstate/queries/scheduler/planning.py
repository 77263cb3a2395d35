"""Reads of plans: nodes, and pods that may leave."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.objects.values.document import SLOT
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import MIRROR_POD
from clusterstate.queries.pods.stays import BOUND_AT, Stay

FINISHED: Final = ("Succeeded", "Failed")


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    owner_references: tuple[_Owner, ...] | None = ()
    annotations: dict[str, str] | None = None


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    empty_dir: dict[str, Any] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    termination_grace_period_seconds: int | None = None
    volumes: tuple[_Volume, ...] | None = ()


class _Lens(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


_decode = msgspec.json.Decoder(_Lens).decode


class StayingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a node, with what decides whether and how it may leave.

    ``grace_seconds`` ``None``: the default. ``owner_kind`` and ``owner_name``: of the controller
    that would replace it, empty for none. ``deletion_at``: it is terminating.
    """

    id: int
    uid: str
    namespace: str
    name: str
    class_id: int
    node_name: str
    phase: str
    bound_at: datetime
    deletion_at: datetime | None
    grace_seconds: int | None
    owner_kind: str
    owner_name: str
    is_mirror: bool
    has_local_data: bool

    @property
    def title(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def stay(self) -> Stay:
        """The pod's node and class, and since when it is bound."""
        return Stay(self.id, self.node_name, self.class_id, self.bound_at)


_PODS = (
    "SELECT p.id, p.uid::text, p.namespace, p.name, p.class_id, p.node_name, p.phase,"
    f" {BOUND_AT}, p.deletion_at, d.text FROM pod p JOIN document d ON d.id = p.document_id"
)
_UNFINISHED = "p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed')"


def pods_staying_on(node_names: Sequence[str]) -> list[StayingPod]:
    """Return the unfinished pods on these nodes, by id. Queries once."""
    rows = sql.fetch(
        f"{_PODS} WHERE p.node_name = ANY(%s) AND {_UNFINISHED} ORDER BY p.id",
        (sql.Texts(list(node_names)),),
    )
    return [_pod(row) for row in rows]


def pods_staying(ids: Sequence[int]) -> dict[int, StayingPod]:
    """Return the pods that exist, on a node or not. Queries once."""
    if not ids:
        return {}
    rows = sql.fetch(f"{_PODS} WHERE p.id = ANY(%s)", (sql.Int8s(list(ids)),))
    return {row[0]: _pod(row) for row in rows}


def pods_named(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StayingPod]:
    """Return the pods (namespace, name) that exist, finished or not. Queries once."""
    if not keys:
        return {}
    namespaces, names = zip(*keys, strict=True)
    rows = sql.fetch(
        f"{_PODS} JOIN unnest(%s::text[], %s::text[]) k(namespace, name)"
        " ON (p.namespace, p.name) = (k.namespace, k.name)",
        (sql.Texts(namespaces), sql.Texts(names)),
    )
    return {(row[2], row[3]): _pod(row) for row in rows}


def pods_terminating(*, limit: int) -> list[StayingPod]:
    """Return terminating pods on nodes, by the end of their deletion. Queries once."""
    rows = sql.fetch(
        f"{_PODS} JOIN terminating_pod t ON t.pod_id = p.id WHERE {_UNFINISHED}"
        " ORDER BY t.deletion_at, p.id LIMIT %s",
        (limit,),
    )
    return [_pod(row) for row in rows]


def _pod(row: sql.Row) -> StayingPod:
    lens = _decode(row[9].replace(SLOT, ""))
    owner = next((one for one in lens.metadata.owner_references or () if one.controller), _Owner())
    return StayingPod(
        id=row[0],
        uid=row[1],
        namespace=row[2],
        name=row[3],
        class_id=row[4],
        node_name=row[5],
        phase=row[6],
        bound_at=row[7],
        deletion_at=row[8],
        grace_seconds=lens.spec.termination_grace_period_seconds,
        owner_kind=owner.kind,
        owner_name=owner.name,
        is_mirror=MIRROR_POD in (lens.metadata.annotations or {}),
        has_local_data=any(one.empty_dir is not None for one in lens.spec.volumes or ()),
    )


def nodes_by_name(names: Sequence[str]) -> dict[str, Manifest]:
    """Return the nodes that exist, as manifests. Queries once."""
    rows = sql.fetch(
        "SELECT n.name, d.text, n.revision FROM node n JOIN document d ON d.id = n.document_id"
        " WHERE n.name = ANY(%s)",
        (sql.Texts(list(names)),),
    )
    return {name: document.decode(text, revision) for name, text, revision in rows}
