"""Bulk reads into NumPy columns: a million rows in about a second, by binary COPY.

Of `clusterstate` only this module and `pod_log` import NumPy; web processes import neither. Rows
have a fixed width if no column is null, and a structured dtype then reads the whole answer at once.
"""

import msgspec
import numpy as np
import numpy.typing as npt
from django.db import connection

from clusterstate.database import sql
from clusterstate.objects.values import document, ending

_HEADER_BYTES = 19  # signature, flags, length of the extension area (none)
_TRAILER_BYTES = 2
_BOUND = """
COPY (SELECT p.id, p.class_id, coalesce(n.id, -1),
             coalesce(extract(epoch FROM coalesce(p.started_at, p.scheduled_at)), 'NaN')
                 ::float8,
             p.deletion_at IS NOT NULL
      FROM pod p LEFT JOIN node n ON n.name = p.node_name
      WHERE p.node_name <> '' AND p.phase NOT IN ('Succeeded', 'Failed'))
TO STDOUT (FORMAT BINARY)
"""
_ROW = np.dtype(
    [
        ("fields", ">i2"),
        ("id_length", ">i4"),
        ("id", ">i8"),
        ("class_length", ">i4"),
        ("class", ">i8"),
        ("node_length", ">i4"),
        ("node", ">i8"),
        ("started_length", ">i4"),
        ("started", ">f8"),
        ("terminating_length", ">i4"),
        ("terminating", "?"),
    ]
)


class BoundPods(msgspec.Struct, frozen=True):
    """Unfinished pods that are on a node, as columns of equal length.

    ``ids``, ``classes``: int64. ``nodes``: int64, the node's id, -1 when no such node exists.
    ``started``: float64, seconds since the epoch, NaN when unknown: ``status.startTime``, or the
    binding. ``terminating``: bool.
    """

    ids: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]
    started: npt.NDArray[np.float64]
    terminating: npt.NDArray[np.bool_]


_TRIED = """
COPY (SELECT array_agg(pod_id), array_agg(xmin), array_agg(ctid) FROM pending_pod
      WHERE attempts > 0 OR stage <> 'active')
TO STDOUT (FORMAT BINARY)
"""
_ARRAY_HEADER_BYTES = 20  # dimensions, flags, element's type, length, lower bound
_IDS = np.dtype([("length", ">i4"), ("value", ">i8")])
_WRITERS = np.dtype([("length", ">i4"), ("value", ">u4")])
_SPOTS = np.dtype([("length", ">i4"), ("block", ">u4"), ("line", ">u2")])


class TriedPods(msgspec.Struct, frozen=True):
    """Pending pods that were tried or are gated, as columns of equal length, ordered by id.

    ``ids``: int64. ``versions``: uint64, different after each write of the row.
    """

    ids: npt.NDArray[np.int64]
    versions: npt.NDArray[np.uint64]

    @staticmethod
    def none() -> "TriedPods":
        """Return columns of length 0."""
        return TriedPods(np.empty(0, np.int64), np.empty(0, np.uint64))

    def since(self, earlier: "TriedPods") -> tuple[list[int], list[int]]:
        """Return the ids of rows that are new or changed since ``earlier``, and of removed ones."""
        if np.array_equal(self.ids, earlier.ids) and np.array_equal(
            self.versions, earlier.versions
        ):
            return [], []
        common, here, there = np.intersect1d(
            self.ids, earlier.ids, assume_unique=True, return_indices=True
        )
        same = common[self.versions[here] == earlier.versions[there]]
        written = np.setdiff1d(self.ids, same, assume_unique=True)
        gone = np.setdiff1d(earlier.ids, self.ids, assume_unique=True)
        return written.tolist(), gone.tolist()


def tried_pods() -> TriedPods:
    """Return the pending pods that were tried or are gated, with versions of their rows.

    A version combines the transaction that wrote the row with the row's position on disk, which
    differs between several writes of one transaction. Queries once: three arrays in one row, so
    that 100,000 pods cost some hundredths of a second.
    """
    data = _copied(_TRIED)
    at = _HEADER_BYTES + 2  # the number of fields
    columns: list[npt.NDArray[np.void]] = []
    for element in (_IDS, _WRITERS, _SPOTS):
        (length,) = np.frombuffer(data, ">i4", count=1, offset=at).tolist()
        at += 4
        if length < 0:  # NULL: no row at all
            return TriedPods.none()
        count = (length - _ARRAY_HEADER_BYTES) // element.itemsize
        start = at + _ARRAY_HEADER_BYTES
        columns.append(np.frombuffer(data, element, count=count, offset=start))
        at += length
    ids = columns[0]["value"].astype(np.int64)
    spots = columns[2]["block"].astype(np.uint64) << np.uint64(16) | columns[2]["line"]
    versions = columns[1]["value"].astype(np.uint64) << np.uint64(32) ^ spots
    order = np.argsort(ids)
    return TriedPods(ids=ids[order], versions=versions[order])


def _copied(statement: str) -> bytes:
    """Return the output of a statement, by binary COPY. Queries once."""
    connection.ensure_connection()
    with (
        connection.cursor() as cursor,
        connection.wrap_database_errors,
        cursor.cursor.copy(statement) as copy,
    ):
        return b"".join(bytes(part) for part in copy)


def bound_pods() -> BoundPods:
    """Return the pods on nodes, in no particular order. Queries once, by COPY."""
    data = _copied(_BOUND)
    count = (len(data) - _HEADER_BYTES - _TRAILER_BYTES) // _ROW.itemsize
    rows = np.frombuffer(data, _ROW, count=count, offset=_HEADER_BYTES)
    return BoundPods(
        ids=rows["id"].astype(np.int64),
        classes=rows["class"].astype(np.int64),
        nodes=rows["node"].astype(np.int64),
        started=rows["started"].astype(np.float64),
        terminating=rows["terminating"].copy(),
    )


def preempted_pods(ids: list[int]) -> list[int]:
    """Return those of the pods that preemption ended. Queries once.

    Their condition DisruptionTarget has the reason ``PreemptionByScheduler``.
    """
    rows = sql.fetch(
        "SELECT p.id, d.text FROM pod p JOIN document d ON d.id = p.document_id"
        " WHERE p.id = ANY(%s) AND p.deletion_at IS NOT NULL"
        f""" AND strpos(d.text, '"{ending.PREEMPTED}"') > 0""",
        (sql.Int8s(ids),),
    )
    return [pod_id for pod_id, text in rows if ending.is_preempted(document.conditions(text))]


def node_names_of_pods(ids: list[int]) -> dict[int, str]:
    """Return the node names of these pods. Queries once."""
    return dict(sql.fetch("SELECT id, node_name FROM pod WHERE id = ANY(%s)", (sql.Int8s(ids),)))
