"""Reads of reservations: pods that have a node and are not bound yet, or just were.

Reservations are rows and are not in the change log. A process with a mirror reads all of them for
each question; they are as many as pods wait on Permit or PreBind. It reads them before the log: a
reservation that ends by binding in between is then in both, and never in neither. For a past moment
they are derived from the decisions before it (``decisions.placed_before``), from which the
scheduler counts a pod. That search goes back as far as Permit may hold a pod.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.database import sql

WAITING: Final = "waiting"
BINDING: Final = "binding"
READY: Final = "ready"
BOUND: Final = "bound"
INFORMED: Final = "informed"
REFUSED: Final = "refused"
ACTIVATE: Final = "activate"
"""The note of an informed reservation: names of pods, as ``namespace/name``."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation with the needed parts of its pod; steps and fields as in the table.

    ``alive``: the pod exists, unfinished and not being deleted. ``pod_node_name``: the node that it
    is bound to, empty if none. ``waits``: the deadline of each Permit plugin that still waits.
    """

    pod_id: int
    uid: str
    namespace: str
    name: str
    class_id: int
    pod_node_name: str
    alive: bool
    attempts: int
    node_name: str
    profile: str
    profile_revision: int
    step: str
    since: datetime
    waits: dict[str, datetime]
    due_at: datetime | None
    notes: dict[str, Any]
    plugin: str
    code: int
    message: str

    @property
    def is_held(self) -> bool:
        """Whether the node is set aside, and the pod not bound yet."""
        return self.step in (WAITING, BINDING, READY) and not self.pod_node_name


_SELECT = """
SELECT r.pod_id, coalesce(p.uid::text, ''), coalesce(p.namespace, ''), coalesce(p.name, ''),
       coalesce(p.class_id, 0), coalesce(p.node_name, ''),
       p.deletion_at IS NULL AND p.phase = 'Pending' AND p.id IS NOT NULL,
       coalesce(q.attempts, 0), r.node_name, r.profile, r.profile_revision, r.step, r.since,
       r.waits::text, r.due_at, r.notes::text, r.plugin, r.code, r.message
FROM reservation r LEFT JOIN pod p ON p.id = r.pod_id LEFT JOIN pending_pod q ON q.pod_id = r.pod_id
"""
_decode_waits = msgspec.json.Decoder(dict[str, datetime]).decode


def _read(where: str, parameters: Sequence[Any] = ()) -> list[Reservation]:
    rows = sql.fetch(f"{_SELECT} {where} ORDER BY r.since, r.pod_id", parameters)
    return [_reservation(row) for row in rows]


def _reservation(row: sql.Row) -> Reservation:
    values = dict(zip(Reservation.__struct_fields__, row, strict=True))
    values["alive"] = bool(values["alive"])
    values["waits"] = _decode_waits(values["waits"])
    values["notes"] = msgspec.json.decode(values["notes"])
    return Reservation(**values)


def everything() -> list[Reservation]:
    """Return all reservations, the oldest first. Queries once."""
    return _read("")


def find(pod_id: int) -> Reservation | None:
    """Return a pod's reservation, ``None`` if it has none. Queries once."""
    found = _read("WHERE r.pod_id = %s::bigint", (pod_id,))
    return found[0] if found else None


def waiting(*, namespace: str = "", name: str = "") -> list[Reservation]:
    """Return the pods that wait on Permit, the longest waiting first. Queries once."""
    conditions, parameters = [f"r.step = '{WAITING}' AND r.waits <> '{{}}'"], list[Any]()
    for column, value in (("p.namespace", namespace), ("p.name", name)):
        if value:
            conditions.append(f"{column} = %s")
            parameters.append(value)
    return _read(f"WHERE {' AND '.join(conditions)}", parameters)


def with_work(limit: int = 100) -> list[int]:
    """Return the oldest pods whose plugins have work: PreBind, Bind or PostBind. Queries once.

    PreBind plugins that wait run again when their time has come.
    """
    rows = sql.fetch(
        f"SELECT pod_id FROM reservation WHERE (step = '{BINDING}' AND (due_at IS NULL OR"
        f" due_at <= now()) OR step = '{BOUND}')"
        " ORDER BY since, pod_id LIMIT %s::bigint",
        (limit,),
    )
    return [row[0] for row in rows]
