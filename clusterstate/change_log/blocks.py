"""Blocks: changes of one kind, packed into two compressed columns; pure.

A *block* contains consecutive changes of one kind, sorted by object and revision. Its ``index`` has
the author, verb and time of each change, the revision at which the version before began and, for
pods, that version's node and requests (its *glance*). Its ``body`` has the versions that the
changes ended, one after the other, as clients got them. Versions of one object, and objects of one
controller, differ in a few characters and lie beside each other: they compress to a twentieth.

A search for an object decodes the index, and the body only if the object is in it.
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from clusterstate.objects.rules.glances import Glance
from clusterstate.objects.values import causes
from clusterstate.objects.values.actor import KUBE_SCHEDULER

_LEVEL: Final = 6
_encode = msgspec.msgpack.Encoder().encode


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A change of an object.

    ``at`` is in microseconds since the epoch, ``verb`` as in the change log. The change ended an
    earlier version of the object, unless it created the object: ``previous`` is the revision at
    which that version began (0: none), and ``body`` the version as JSON (``None``: none, or not
    known). ``glance`` has the node and requests of that version of a pod; ``None``: ``body`` has
    them. ``node_name`` is a pod's node after the change. ``cause`` is a UUID as text, or empty.
    """

    revision: int
    at: int
    verb: int
    object_id: int
    previous: int
    namespace: str
    name: str
    actor: str
    impersonator: str
    cause: str
    node_name: str
    body: bytes | None
    glance: Glance | None = None

    @property
    def key(self) -> str:
        """The sort key of the entry: ``key_of`` of its object."""
        return key_of(self.namespace, self.name)


def key_of(namespace: str, name: str) -> str:
    """Return the key of an object in blocks; ordered as (namespace, name) are."""
    return f"{namespace} {name}"  # no namespace or name has a space, or anything below it


def mark_of(key: str) -> bytes:
    """Return a hash of four bytes; a block whose ``marks`` have it may have the object."""
    return zlib.crc32(key.encode()).to_bytes(4, "big")


class _Columns(msgspec.Struct, array_like=True, gc=False):
    """An index as it is stored: a column for each field, texts as positions in ``words``.

    ``uses`` and ``places`` are the requests and the node of the version of a pod that a change
    ended. In ``uses`` -1 means none. In ``places`` positions begin with 1, and 0 means the node
    that the pod has after the change. Blocks of earlier versions of the service have neither.
    """

    revision: int
    at: int
    words: list[str]
    revisions: list[int]
    ats: list[int]
    verbs: bytes
    object_ids: list[int]
    previous: list[int]
    namespaces: list[int]
    names: list[int]
    actors: list[int]
    impersonators: list[int]
    causes: list[int]
    node_names: list[int]
    lengths: list[int]
    places: list[int] = []
    uses: list[int] = []


_decode = msgspec.msgpack.Decoder(_Columns).decode


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Packed entries, with a filter that shows whether an object may be among them.

    ``first_from`` is the lowest revision at which a version inside began, ``None`` where there are
    no versions inside; ``first_revision`` and ``last_revision`` are those of the changes. ``marks``
    is the ``mark_of`` the key of each object, joined. ``causes`` is the same of the causes inside:
    pods that the scheduler made room for, plans, and approvals.
    """

    entries: int
    first_from: int | None
    first_revision: int
    last_revision: int
    first_key: str
    last_key: str
    marks: bytes
    causes: bytes
    index: bytes
    body: bytes
    raw_bytes: int


def pack(entries: Sequence[Entry]) -> Block:
    """Return a block of entries of one kind, sorted by key and revision; at least one."""
    base_revision = min(one.revision for one in entries)
    base_at = min(one.at for one in entries)
    words: dict[str, int] = {"": 0}

    def number(text: str) -> int:
        return words.setdefault(text, len(words))

    columns = _Columns(
        revision=base_revision,
        at=base_at,
        words=[],
        revisions=[one.revision - base_revision for one in entries],
        ats=[one.at - base_at for one in entries],
        verbs=bytes(one.verb for one in entries),
        object_ids=[one.object_id for one in entries],
        previous=[one.revision - one.previous if one.previous else 0 for one in entries],
        namespaces=[number(one.namespace) for one in entries],
        names=[number(one.name) for one in entries],
        actors=[number(one.actor) for one in entries],
        impersonators=[number(one.impersonator) for one in entries],
        causes=[number(one.cause) for one in entries],
        node_names=[number(one.node_name) for one in entries],
        lengths=[-1 if one.body is None else len(one.body) for one in entries],
    )
    if any(one.glance for one in entries):
        columns.uses = [number(one.glance.text) if one.glance else -1 for one in entries]
        columns.places = [
            1 + number(one.glance.node_name)
            if one.glance and one.glance.node_name != one.node_name
            else 0
            for one in entries
        ]
    columns.words = list(words)
    body = b"".join(one.body for one in entries if one.body is not None)
    begins = [one.previous for one in entries if one.body is not None and one.previous]
    return Block(
        entries=len(entries),
        first_from=min(begins, default=None),
        first_revision=base_revision,
        last_revision=max(one.revision for one in entries),
        first_key=entries[0].key,
        last_key=entries[-1].key,
        marks=_marks(one.key for one in entries),
        causes=_marks(
            one.cause
            for one in entries
            if one.cause and (one.actor == KUBE_SCHEDULER.name or causes.is_own(one.cause))
        ),
        index=zlib.compress(_encode(columns), _LEVEL),
        body=zlib.compress(body, _LEVEL) if body else b"",
        raw_bytes=len(body),
    )


def _marks(keys: Iterable[str]) -> bytes:
    return b"".join(mark_of(key) for key in dict.fromkeys(keys))


class Index:
    """A block's index, decoded. An entry's *place* is its position in the block, from 0."""

    def __init__(self, packed: bytes) -> None:
        self._columns = _decode(zlib.decompress(packed))

    def __len__(self) -> int:
        return len(self._columns.revisions)

    def alive_at(self, revision: int, upto: int) -> list[int]:
        """Return places of changes up to ``upto`` that end a version current at ``revision``."""
        columns, base = self._columns, self._columns.revision
        low, high = revision - base, upto - base
        return [
            place
            for place, (ended, lasted) in enumerate(
                zip(columns.revisions, columns.previous, strict=True)
            )
            if low < ended <= high and lasted and ended - lasted <= low
        ]

    def named(self, namespace: str, name: str) -> list[int]:
        """Return the places of an object's changes, ordered by revision."""
        columns = self._columns
        try:
            space, word = columns.words.index(namespace), columns.words.index(name)
        except ValueError:
            return []
        return [
            place
            for place, pair in enumerate(zip(columns.namespaces, columns.names, strict=True))
            if pair == (space, word)
        ]

    def with_cause(self, cause: str) -> list[Entry]:
        """Return the entries with this cause, without their bodies."""
        columns = self._columns
        if cause not in columns.words:
            return []
        word = columns.words.index(cause)
        return [self.entry(place) for place, one in enumerate(columns.causes) if one == word]

    def key(self, place: int) -> tuple[str, str]:
        """Return (namespace, name) of the object of an entry."""
        columns = self._columns
        return columns.words[columns.namespaces[place]], columns.words[columns.names[place]]

    def node_name(self, place: int) -> str:
        """Return a pod's node after the change. A bound pod keeps its node until it is deleted."""
        return self._columns.words[self._columns.node_names[place]]

    def may_be_on(self, place: int, node_name: str) -> bool:
        """Return whether a pod may have been on a node (empty: on none) before its change."""
        glance = self.glance(place)
        if glance is not None:
            return glance.node_name == node_name
        return not node_name or self.node_name(place) == node_name

    def glance(self, place: int) -> Glance | None:
        """Return node and requests of the version that a change ended, ``None`` if not stored."""
        columns = self._columns
        if not columns.uses or columns.uses[place] < 0:
            return None
        name = columns.places[place] - 1 if columns.places[place] else columns.node_names[place]
        return Glance(columns.words[name], columns.words[columns.uses[place]])

    def glances(self, places: Sequence[int]) -> list[tuple[int, int]]:
        """Return (node, requests) of the versions at these places, as indexes into ``words``.

        The requests are -1 if none are stored; 0 is an empty text.
        """
        columns = self._columns
        if not columns.uses:
            return [(0, -1)] * len(places)
        after, before, uses = columns.node_names, columns.places, columns.uses
        return [
            (before[place] - 1 if before[place] else after[place], uses[place]) for place in places
        ]

    @property
    def words(self) -> Sequence[str]:
        """The texts to which positions refer."""
        return self._columns.words

    def entry(self, place: int, body: bytes | None = None) -> Entry:
        """Return the entry at a place, with ``body`` as its body."""
        columns = self._columns
        words = columns.words
        revision = columns.revision + columns.revisions[place]
        lasted = columns.previous[place]
        return Entry(
            revision=revision,
            at=columns.at + columns.ats[place],
            verb=columns.verbs[place],
            object_id=columns.object_ids[place],
            previous=revision - lasted if lasted else 0,
            namespace=words[columns.namespaces[place]],
            name=words[columns.names[place]],
            actor=words[columns.actors[place]],
            impersonator=words[columns.impersonators[place]],
            cause=words[columns.causes[place]],
            node_name=words[columns.node_names[place]],
            body=body,
            glance=self.glance(place),
        )

    def has_body(self, place: int) -> bool:
        """Return whether the version that the change at ``place`` ended has a stored body."""
        return self._columns.lengths[place] >= 0

    def bodies(self, packed: bytes, places: Sequence[int]) -> list[bytes]:
        """Return the bodies at these places, all of which have one; ``packed`` is the block's."""
        text = zlib.decompress(packed) if packed else b""
        lengths = self._columns.lengths
        starts = list(accumulate((max(length, 0) for length in lengths), initial=0))
        return [text[starts[place] : starts[place] + lengths[place]] for place in places]


class Moments(msgspec.Struct, array_like=True, gc=False):
    """The times of consecutive changes of the log: revisions and microseconds, in order."""

    revision: int
    at: int
    revisions: list[int]
    ats: list[int]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> "Moments":
        """Build from (revision, time) pairs that are ordered by revision."""
        revision, at = pairs[0]
        return cls(
            revision, at, [one - revision for one, _ in pairs], [one - at for _, one in pairs]
        )

    def pack(self) -> bytes:
        """Return the moments as compressed bytes."""
        return zlib.compress(_encode(self), _LEVEL)

    @staticmethod
    def unpack(packed: bytes) -> "Moments":
        """Return the moments in bytes that ``pack`` returned."""
        return _decode_moments(zlib.decompress(packed))

    def last_until(self, at: int) -> int | None:
        """Return the last revision of a change made at or before ``at``, ``None`` without one."""
        until = at - self.at
        for place in range(len(self.ats) - 1, -1, -1):
            if self.ats[place] <= until:
                return self.revision + self.revisions[place]
        return None

    def first_after(self, revision: int) -> int | None:
        """Return the first revision above ``revision``, ``None`` if there is none."""
        place = bisect_right(self.revisions, revision - self.revision)
        return self.revision + self.revisions[place] if place < len(self.revisions) else None


_decode_moments = msgspec.msgpack.Decoder(Moments).decode
