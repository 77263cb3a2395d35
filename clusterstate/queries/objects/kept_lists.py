"""A cache of whole lists, updated from the change log.

A list of 5,000 pods reads as many rows and composes as many texts, nearly all of them equal to the
previous list. A repeated list costs only the changes since::

    read whole --> keep --(next LIST: the changes since)--> current --> keep

A cached list is immutable: a newer one replaces it, so threads share it without a lock. The cache
holds composed objects up to `MOST_BYTES` in a process; lists that were not requested for a minute
are dropped by the process's regular clean-up. `lists` reads rows whenever the cache has no answer.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec
from django.db import connection

from clusterstate.change_log import changes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import Expired
from clusterstate.processes import memory
from clusterstate.queries.pods import pod_overlay

MOST_BYTES: Final = 16 << 20
_OF_EACH: Final = 16 << 10
"""Counted for a list besides its objects, so that a thousand are kept at most: of namespaces there
may be any number, and most are empty for most kinds."""
_UNUSED_SECONDS: Final = 60.0
_MOST_REVISIONS: Final = 4
"""At most so many changes for each object of a list are read: more cost as much as its rows."""

Entry = tuple[str, str, bytes]
"""Namespace, name, and the object as JSON."""


class CachedList(msgspec.Struct, frozen=True):
    """Objects of a kind (and namespace) at ``revision``, in the order of ``keys``."""

    revision: int
    keys: list[tuple[str, str]]
    items: list[bytes]
    size: int
    asked_at: float


_kept: dict[tuple[str, str], CachedList] = {}
memory.when_replaced(_kept.clear)


def is_kept(kind: Kind) -> bool:
    """Return whether lists of the kind are cached: those that the log can update.

    Not inside a transaction, which may be rolled back.
    """
    logged = not (kind.is_composed or kind.skips_change_log)
    return logged and not connection.in_atomic_block


def keep(kind: Kind, namespace: str, revision: int, found: Sequence[Entry]) -> None:
    """Cache a whole list that was read, unless a newer one is cached or it is too large."""
    items = [item for _, _, item in found]
    size = sum(map(len, items), _OF_EACH)
    _put(kind, namespace, revision, [key[:2] for key in found], items, size)


def current(kind: Kind, namespace: str, mark: int) -> CachedList | None:
    """Return the list at ``mark``, a watermark, or later; ``None``: rows must be read.

    Queries once if the cached list is older.
    """
    cached = _kept.get((kind.name, namespace))
    if cached is None or mark - cached.revision > _MOST_REVISIONS * len(cached.items):
        return None
    keys, items, size = cached.keys, cached.items, cached.size
    if mark > cached.revision:
        try:
            news = changes.read_since(
                cached.revision,
                mark=mark,
                kinds=(kind.name,),
                documents=(kind.name,),
                limit=len(items),
            )
        except Expired:
            return None
        if news.more:
            return None
        latest = {(one.namespace, one.name): one for one in news.items}
        if namespace:
            latest = {key: one for key, one in latest.items() if key[0] == namespace}
        if latest:
            keys, items = keys[:], items[:]
        for key, change in latest.items():
            at = bisect_left(keys, key)
            there = at < len(keys) and keys[at] == key
            if there:
                size -= len(items[at])
            if change.verb == changes.DELETED:
                if there:
                    del keys[at], items[at]
                continue
            if change.text is None:
                return None  # trimmed while it was read
            slots = pod_overlay(
                change.node_name, change.scheduled_at, change.unschedulable, change.eviction
            )
            item = document.compose(change.text, change.revision, slots)
            size += len(item)
            if there:
                items[at] = item
            else:
                keys.insert(at, key)
                items.insert(at, item)
    return _put(kind, namespace, max(mark, cached.revision), keys, items, size)


def _put(
    kind: Kind,
    namespace: str,
    revision: int,
    keys: list[tuple[str, str]],
    items: list[bytes],
    size: int,
) -> CachedList:
    """Return a list, cached if there is space; the least recently used ones are dropped."""
    new = CachedList(revision, keys, items, size, time.monotonic())
    place = kind.name, namespace
    before = _kept.pop(place, None)
    if before is not None and before.revision > revision:
        _kept[place] = before
    elif size <= MOST_BYTES:
        _kept[place] = new
        used = sum(one.size for one in list(_kept.values()))
        for other, one in list(_kept.items())[:-1]:
            if used <= MOST_BYTES:
                break
            if _kept.pop(other, None) is not None:
                used -= one.size
    return new


def drop_unused() -> bool:
    """Drop lists that were not requested for a minute; return whether there were any."""
    oldest = time.monotonic() - _UNUSED_SECONDS
    unused = [place for place, one in list(_kept.items()) if one.asked_at < oldest]
    for place in unused:
        _kept.pop(place, None)
    return bool(unused)
