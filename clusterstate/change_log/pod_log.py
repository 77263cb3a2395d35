"""Changes of pods as NumPy columns, for followers that read many.

A row of the log as a `Change` costs its reader 2.5 us, most of it for columns that a follower of
pods does not use. Here PostgreSQL sends each column as one array, and the whole answer is parsed at
once. Only followers import this module, so web processes do not load NumPy.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.change_log import changes
from clusterstate.change_log.changes import ADDED, DELETED, MODIFIED, Change
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import Expired

_HEADER = struct.Struct(">iiIii")  # dimensions, flags, type, length, lower bound
_INT8 = np.dtype([("length", ">i4"), ("value", ">i8")])
_POSTGRES_EPOCH: Final = 946_684_800
_NEVER: Final = -(1 << 63)
_GONE, _TERMINATING, _PENDING, _ADDED, _PLACED = 1, 2, 4, 8, 16

_COLUMNS = f"""
SELECT (SELECT trimmed_revision FROM history WHERE id = 1),
       array_send(array_agg(c.revision)), array_send(array_agg(c.object_id)),
       array_send(array_agg(c.class_id)), array_send(array_agg(c.flags)),
       array_send(array_agg(c.at)), array_send(array_agg(c.scheduled_at)),
       string_agg(c.node_name, chr(10)), string_agg(c.name, chr(10)),
       CASE WHEN count(c.nominated) > 0 THEN string_agg(coalesce(c.nominated, ''), chr(10)) END
FROM (SELECT revision, object_id, coalesce(class_id, 0) AS class_id, at, name,
             coalesce({changes.STARTED}, scheduled_at, '-infinity') AS scheduled_at,
             coalesce(node_name, '') AS node_name, nominated_node_name AS nominated,
             (CASE WHEN verb = {DELETED} OR phase IN ('Succeeded', 'Failed') THEN {_GONE}
                   ELSE 0 END
              + CASE WHEN deletion_at IS NULL THEN 0 ELSE {_TERMINATING} END
              + CASE phase WHEN 'Pending' THEN {_PENDING} ELSE 0 END
              + CASE verb WHEN {ADDED} THEN {_ADDED} ELSE 0 END
              + CASE WHEN node_name <> '' THEN {_PLACED} ELSE 0 END)::bigint AS flags
      FROM change c
      WHERE revision > (SELECT %s::bigint) AND revision <= (SELECT %s::bigint)
        AND kind = {KINDS["Pod"].code}
      ORDER BY revision LIMIT %s) c
"""


class PodChanges(msgspec.Struct, frozen=True):
    """Changes of pods in order, as columns of equal length.

    ``revisions``, ``ids``, ``classes``: int64. ``gone`` (deleted or finished), ``terminating``,
    ``pending`` (by phase), ``added`` and ``placed`` (on a node): bool. ``at``, ``started``:
    float64, seconds since the epoch. ``started`` is ``status.startTime``, else the time of the
    binding, else NaN. ``node_names`` and ``nominated`` are empty where the pod has no such node.
    """

    revisions: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    classes: npt.NDArray[np.int64]
    gone: npt.NDArray[np.bool_]
    terminating: npt.NDArray[np.bool_]
    pending: npt.NDArray[np.bool_]
    added: npt.NDArray[np.bool_]
    placed: npt.NDArray[np.bool_]
    at: npt.NDArray[np.float64]
    started: npt.NDArray[np.float64]
    node_names: list[str]
    names: list[str]
    nominated: list[str]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, first: int, end: int) -> "PodChanges":
        """Return the changes from position ``first`` to before ``end``."""
        if first == 0 and end == len(self):
            return self
        return PodChanges(
            *(getattr(self, name)[first:end] for name in PodChanges.__struct_fields__)
        )

    def change(self, number: int) -> Change:
        """Return one change as a row of the change log, without documents and previous values."""
        started = self.started.item(number)
        at = datetime.fromtimestamp(self.at.item(number), UTC)
        phase = "Pending" if self.pending[number] else "Running"
        verb = ADDED if self.added[number] else MODIFIED
        return Change(
            revision=self.revisions.item(number),
            at=at,
            kind="Pod",
            verb=DELETED if self.gone[number] else verb,
            object_id=self.ids.item(number),
            namespace="",
            name=self.names[number],
            document_id=None,
            previous_document_id=None,
            previous_revision=None,
            class_id=self.classes.item(number) or None,
            previous_class_id=None,
            node_name=self.node_names[number],
            previous_node_name=None,
            scheduled_at=None if started != started else datetime.fromtimestamp(started, UTC),
            previous_scheduled_at=None,
            unschedulable=None,
            previous_unschedulable=None,
            phase=phase,
            previous_phase=None,
            deletion_at=at if self.terminating[number] else None,
            eviction=None,
            previous_eviction=None,
            nominated_node_name=self.nominated[number] or None,
            text=None,
            previous_text=None,
        )


class News(msgspec.Struct, frozen=True):
    """Changes of pods and of other kinds, and the next cursor; ``more``: read on at once."""

    pods: PodChanges
    others: list[Change]
    cursor: int
    more: bool

    def in_order(
        self, keeps_its_place: Callable[[Change], bool]
    ) -> Iterator[PodChanges | list[Change]]:
        """Yield runs of pods' changes, each followed by the other kinds' changes within it.

        A change for which ``keeps_its_place`` is True ends a run and is yielded alone after it; the
        function is called after the caller has consumed the runs before. Of other changes of one
        object in a run only the last is yielded: it has the object's whole state.
        """
        first = 0
        others: dict[tuple[str, str, str], Change] = {}
        for other in self.others:
            if not keeps_its_place(other):
                of = other.kind, other.namespace, other.name
                others.pop(of, None)
                others[of] = other
                continue
            end = int(np.searchsorted(self.pods.revisions, other.revision))
            yield from self._stretch(first, end, others)
            yield [other]
            first, others = end, {}
        yield from self._stretch(first, len(self.pods), others)

    def _stretch(
        self, first: int, end: int, others: Mapping[tuple[str, str, str], Change]
    ) -> Iterator[PodChanges | list[Change]]:
        if first < end:
            yield self.pods.part(first, end)
        if others:
            yield list(others.values())


def read_since(cursor: int, *, mark: int, others: Collection[str], limit: int) -> News:
    """Return the changes after ``cursor`` up to ``mark``, a watermark.

    Those of pods are columns, at most ``limit`` of them; those of the kinds ``others`` have their
    documents. Queries twice.

    Raises:
        Expired: changes after ``cursor`` were trimmed already.
    """
    if mark <= cursor:
        return News(_NONE, [], cursor, more=False)
    ((trimmed, *columns),) = sql.fetch(_COLUMNS, (cursor, mark, limit))
    if cursor < (trimmed or 0):
        raise Expired(f"too old resource version: {cursor} ({trimmed})")
    pods = _NONE if columns[0] is None else _read(*columns)
    more = len(pods) >= limit
    end = pods.revisions.item(-1) if more else mark
    rest = changes.read_since(cursor, mark=end, kinds=others, documents=others, limit=limit)
    if rest.more:
        count = int(np.searchsorted(pods.revisions, rest.cursor, side="right"))
        return News(pods.part(0, count), rest.items, rest.cursor, more=True)
    return News(pods, rest.items, end, more)


def _read(
    revisions: bytes,
    ids: bytes,
    classes: bytes,
    flags: bytes,
    at: bytes,
    started: bytes,
    node_names: str,
    names: str,
    nominated: str | None,
) -> PodChanges:
    bits = _integers(flags)
    begun = _integers(started)
    return PodChanges(
        revisions=_integers(revisions),
        ids=_integers(ids),
        classes=_integers(classes),
        gone=(bits & _GONE) != 0,
        terminating=(bits & _TERMINATING) != 0,
        pending=(bits & _PENDING) != 0,
        added=(bits & _ADDED) != 0,
        placed=(bits & _PLACED) != 0,
        at=_seconds(_integers(at)),
        started=np.where(begun == _NEVER, np.nan, _seconds(begun)),
        node_names=node_names.split("\n"),
        names=names.split("\n"),
        nominated=[""] * len(bits) if nominated is None else nominated.split("\n"),
    )


def _integers(data: bytes) -> npt.NDArray[np.int64]:
    """Return an array of ``bigint`` or ``timestamptz`` without NULL as PostgreSQL sends it."""
    return np.frombuffer(data, _INT8, offset=_HEADER.size)["value"].astype(np.int64)


def _seconds(microseconds: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return (microseconds + _POSTGRES_EPOCH * 1_000_000) / 1e6


_EMPTY = np.empty(0, np.int64)
_FALSE = np.empty(0, np.bool_)
_NONE: Final = PodChanges(
    _EMPTY,
    _EMPTY,
    _EMPTY,
    _FALSE,
    _FALSE,
    _FALSE,
    _FALSE,
    _FALSE,
    np.empty(0),
    np.empty(0),
    [],
    [],
    [],
)
