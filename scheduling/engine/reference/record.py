"""Packs decisions for storage, small enough to keep one for each pod.

The *body* (under a kilobyte) has the ten best nodes with their scores by plugin and the rejections
counted by plugin and reason; columns beside it have what is queried. The *table*, for pods that fit
nowhere, has every node's first rejection: names, one number per node, and the distinct rejections,
compressed; equal tables have equal bytes, so all attempts of a pod share one stored table.
"""

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from scheduling.engine.reference.decision import (
    BEST_KEPT,
    Best,
    Decision,
    FullTable,
    NodeVerdict,
    Rejection,
)
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.status import Code, Status

LARGEST_BODY: Final = 1000
_LONGEST_REASONS: Final = 8


class PackedRejection(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rejection, and the number of nodes on which it was the first one."""

    plugin: str
    code: int
    reasons: tuple[str, ...]
    nodes: int


class Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The body of a decision as stored beside the columns.

    ``names``: the best nodes, in no order. ``columns``: for each of ``plugins`` the weighted scores
    of these nodes, or one number where all are equal.
    """

    plugins: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    columns: tuple[int | tuple[int, ...], ...] = ()
    rejections: tuple[PackedRejection, ...] = ()
    rejected_by: tuple[str, ...] = ()
    nominated_node: str = ""
    victims: int = 0

    def best(self, winner: str) -> tuple[Best, ...]:
        """Return the best nodes, the winner first, then by total and name."""
        found = []
        for place, name in enumerate(self.names):
            weighted = tuple(c if isinstance(c, int) else c[place] for c in self.columns)
            found.append(Best(name, sum(weighted), weighted))
        found.sort(key=lambda b: (b.node_name != winner, -b.total, b.node_name))
        return tuple(found)


class _Table(msgspec.Struct, frozen=True, array_like=True):
    names: str  # joined by line feeds
    verdicts: bytes  # uint16, little endian, index into statuses
    statuses: tuple[tuple[int, str, tuple[str, ...]], ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode
_decode_table = msgspec.msgpack.Decoder(_Table).decode


def pack(decision: Decision) -> bytes:
    """Return the encoded ``Body``; with very long names it has fewer of the best nodes."""
    packed = _packed(decision, BEST_KEPT, len(decision.rejections))
    if len(packed) <= LARGEST_BODY:
        return packed
    for count in range(BEST_KEPT - 1, 0, -1):
        packed = _packed(decision, count, max(count, 2))
        if len(packed) <= LARGEST_BODY:
            break
    return packed


def _packed(decision: Decision, best: int, rejections: int) -> bytes:
    nomination, scores = decision.nomination, decision.best_scores
    names: Sequence[str] = ()
    columns: Sequence[int | Sequence[int]] = ()
    if scores is not None and best >= len(scores.names):
        names, columns = scores.names, scores.columns()
    elif scores is not None:
        chosen = decision.best[:best]
        names = [node.node_name for node in chosen]
        columns = list(zip(*(node.weighted for node in chosen), strict=True))
    return encode_body(
        decision.plugins,
        names,
        columns,
        pack_rejections(decision.rejections[:rejections]),
        decision.rejected_by,
        "" if nomination is None else nomination.node_name,
        0 if nomination is None else len(nomination.victims),
    )


def pack_rejections(rejections: Sequence[Rejection]) -> msgspec.Raw:
    """Return rejections in the form that ``encode_body`` takes."""
    return msgspec.Raw(
        _encode(
            [
                (r.status.plugin, r.status.code.value, r.status.reasons[:_LONGEST_REASONS], r.nodes)
                for r in rejections
            ]
        )
    )


def encode_body(
    plugins: tuple[str, ...],
    names: Sequence[str],
    columns: Sequence[int | Sequence[int]],
    rejections: msgspec.Raw,
    rejected_by: tuple[str, ...] = (),
    nominated_node: str = "",
    victims: int = 0,
) -> bytes:
    """Return an encoded ``Body``, of any length."""
    return _encode((plugins, names, columns, rejections, rejected_by, nominated_node, victims))


def unpack(body: bytes) -> Body:
    """Return the ``Body`` that ``pack`` encoded."""
    return _decode(body)


def pack_table(decision: Decision, snapshot: Snapshot) -> bytes:
    """Return the encoded first rejection of every node, for a decision that placed no pod.

    ``snapshot``: that of the decision; nodes must not have changed their rows since.
    """
    names = snapshot.names
    live = snapshot.rows()
    absent = decision.absent
    statuses: list[tuple[int, str, tuple[str, ...]]] = []
    if decision.judged is None:
        rows = live
        verdicts = np.zeros(len(rows), "<u2")
        statuses.append(_status(absent))
    else:
        rows = decision.judged.rows
        verdicts = decision.judged.verdict.astype("<u2")
        statuses += [_status(status) for status in decision.judged.statuses]
        others = np.setdiff1d(live, rows) if not absent.ok else live[:0]
        if len(others):
            left_out = np.full(len(others), len(statuses), "<u2")
            statuses.append(_status(absent))
            rows = np.concatenate((rows, others))
            verdicts = np.concatenate((verdicts, left_out))
    joined = "\n".join([names[row] for row in rows.tolist()])
    return zlib.compress(_encode((joined, verdicts.tobytes(), statuses)), 1)


def _status(status: Status) -> tuple[int, str, tuple[str, ...]]:
    return int(status.code), status.plugin, status.reasons


def unpack_table(packed: bytes) -> FullTable:
    """Return the table that ``pack_table`` encoded."""
    table = _decode_table(zlib.decompress(packed))
    statuses = [Status(Code(code), reasons, plugin) for code, plugin, reasons in table.statuses]
    names = table.names.split("\n") if table.names else []
    verdicts = np.frombuffer(table.verdicts, "<u2").tolist()
    return FullTable(
        {
            name: NodeVerdict(rejected=None if statuses[v].ok else statuses[v])
            for name, v in zip(names, verdicts, strict=True)
        }
    )
