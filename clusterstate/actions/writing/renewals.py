"""Writes renewals of node leases without admission and managed fields, if their result is known.

An agent sends its whole lease every few seconds, and only ``renewTime`` differs. The document that
an update stores depends on the stored document, the sent object and the user. Two updates in a row
show what the next one stores: if they had the same user, sent the same object except for
``renewTime`` and ``resourceVersion``, and stored documents that differ in ``renewTime`` alone, then
the third such update stores the same document with its own ``renewTime``. `write` stores it if the
lease still has the revision that the client names and that this process wrote. Otherwise the lease
is updated like any object.

A lease is learned again after a change of admission's catalogue, of the user or of the sent object.
"""

import hashlib
import re
from collections import OrderedDict
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.actions.writing import stored_rows
from clusterstate.actions.writing.stored import LockedRow, StoredObject
from clusterstate.admission.request import User
from clusterstate.change_log import actors, changes
from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory

MOST: Final = 100_000
"""The most leases that are remembered; each takes 1 to 2 KB."""
_REVISION: Final = re.compile("[1-9][0-9]{0,17}")
_TIME: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}Z")


class Sent(msgspec.Struct, frozen=True):
    """An update of a lease as it was sent, in its parts; ``manager``: its field manager."""

    rest: bytes
    """A digest of the object without ``renewTime`` and ``resourceVersion``."""
    renew_time: str
    revision: int
    size: int
    """The length of the body without the digits of ``resourceVersion``."""
    user: User
    manager: str


class Known(msgspec.Struct):
    """A lease of which renewals are known.

    ``head`` and ``tail``: its document around ``renewTime``. Only its own row names the document.
    """

    id: int
    document_id: int
    uid: str
    revision: int
    epoch: int
    sent: Sent
    head: str
    tail: str


class Renewal(msgspec.Struct, frozen=True):
    """A renewal of a known lease: the time and the document that it writes.

    ``revision``: the one that the client named.
    """

    known: Known
    revision: int
    at: datetime
    text: str


_known: OrderedDict[tuple[str, str], Known] = OrderedDict()
memory.when_replaced(_known.clear)


def read(value: Manifest, size: int, user: User, manager: str) -> Sent | None:
    """Take the parts that change out of a sent lease, ``value``; None if it is no renewal."""
    metadata, spec = value.get("metadata"), value.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    revision, at = metadata.pop("resourceVersion", None), spec.pop("renewTime", None)
    if not isinstance(revision, str) or not isinstance(at, str):
        return None
    if _REVISION.fullmatch(revision) is None or _TIME.fullmatch(at) is None:
        return None
    who = msgspec.structs.replace(user, request=None)
    rest = hashlib.blake2b(msgspec.json.encode(value, order="sorted"), digest_size=16).digest()
    return Sent(rest, at, int(revision), size - len(revision), who, manager)


def of(namespace: str, name: str, sent: Sent) -> Renewal | None:
    """Return the renewal if the result of this update is known, else None."""
    known = _known.get((namespace, name))
    if known is None or known.revision != sent.revision:
        return None
    before = known.sent
    if (sent.size, sent.user, sent.manager) != (before.size, before.user, before.manager):
        return None
    if sent.rest != before.rest:
        return None
    try:
        at = datetime.fromisoformat(sent.renew_time)
    except ValueError:
        return None
    return Renewal(known, sent.revision, at, f"{known.head}{sent.renew_time}{known.tail}")


def learn(row: LockedRow, sent: Sent, text: str, written: tuple[int, int], epoch: int) -> None:
    """Remember what an update of a lease, written through admission, has stored.

    ``row``: the lease before it; ``text``: its document now; ``written``: its revision and the
    document's id; ``epoch``: of the catalogue by which it was admitted.
    """
    revision, document_id = written
    head, mark, tail = text.partition(f'"renewTime":"{sent.renew_time}"')
    head, tail = head + mark[: -len(sent.renew_time) - 1], '"' + tail
    place = (row.namespace, row.name)
    is_same = (
        mark != ""
        and document_id == row.document_id  # overwritten, so no entry of the change log names it
        and len(row.text) == len(text)
        and row.text.startswith(head)
        and row.text.endswith(tail)
    )
    if not is_same:
        _known.pop(place, None)
        return
    _known[place] = Known(row.id, document_id, row.uid, revision, epoch, sent, head, tail)
    if len(_known) > MOST:
        _known.popitem(last=False)


_WRITE = f"""
{changes.WITH_GATE},
mine AS MATERIALIZED (
    SELECT t.id, i.document_id, i.text, i.at
    FROM unnest(%s, %s, %s, %s, %s) AS i(id, document_id, before, text, at)
    JOIN lease t ON t.id = i.id AND t.revision = i.before
    ORDER BY t.id FOR NO KEY UPDATE OF t),
numbered AS MATERIALIZED (
    SELECT {changes.NEXT} AS revision, mine.* FROM gate CROSS JOIN mine WHERE opened = 1),
again AS (UPDATE document d SET text = n.text FROM numbered n WHERE d.id = n.document_id)
UPDATE lease t SET revision = n.revision, renewed_at = n.at FROM numbered n WHERE t.id = n.id
RETURNING t.id, t.revision
"""


def write(renewals: list[Renewal]) -> list[StoredObject | None]:
    """Write renewals of different leases; return their results, ``None``: the lease has changed.

    One statement in the open transaction, whose commit does not wait for the disk.
    """
    known = [one.known for one in renewals]
    parameters = [
        *actors.gate(),
        sql.Int8s([one.id for one in known]),
        sql.Int8s([one.document_id for one in known]),
        sql.Int8s([one.revision for one in renewals]),
        sql.Texts([one.text for one in renewals]),
        sql.Times([one.at for one in renewals]),
    ]
    _, rows = sql.fetch_together(stored_rows.NOT_FLUSHED, (_WRITE, parameters))
    found: dict[int, int] = dict(rows)
    results: list[StoredObject | None] = []
    for one in renewals:
        revision = found.get(one.known.id)
        if revision is None:
            results.append(None)
            continue
        body = document.compose(one.text, revision)
        results.append(StoredObject(body, revision, [], one.known.uid))
    return results


def note(renewal: Renewal, revision: int) -> None:
    """Note that a renewal was committed."""
    renewal.known.revision = revision
