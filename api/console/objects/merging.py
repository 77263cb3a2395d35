"""Merges two changes of one object: a person's edit, and what others changed meanwhile.

Members of objects are merged one by one; a list is one value. If both changed a value, the person's
is kept, and the path is returned with the other value.
"""

from typing import Any, Final

import msgspec

from clusterstate.objects.values.meta import Manifest

_MISSING: Final = object()
_OF_SERVER: Final = frozenset({"resourceVersion", "managedFields", "generation", "uid"})


class Clash(msgspec.Struct, frozen=True):
    """A path that two people changed; ``theirs`` is the stored value, None if it was removed."""

    path: str
    theirs: Any


class MergedObject(msgspec.Struct, frozen=True):
    """The merged object; ``adopted``: paths that only others changed; ``clashes``: both."""

    manifest: Manifest
    adopted: tuple[str, ...]
    clashes: tuple[Clash, ...]


def merge(base: Manifest, mine: Manifest, theirs: Manifest) -> MergedObject:
    """Return the person's change of ``base``, merged with the change to ``theirs``.

    Metadata that the server writes (``resourceVersion`` and such) is taken from ``theirs``.
    """
    adopted: list[str] = []
    clashes: list[Clash] = []
    merged = _merge(_plain(base), _plain(mine), _plain(theirs), "", adopted, clashes)
    assert isinstance(merged, dict)
    metadata = dict(merged.get("metadata") or {})
    for field in ("uid", "generation", "resourceVersion"):
        if field in theirs["metadata"]:
            metadata[field] = theirs["metadata"][field]
    return MergedObject({**merged, "metadata": metadata}, tuple(adopted), tuple(clashes))


def _plain(manifest: Manifest) -> Manifest:
    """Return an object without the metadata that the server writes."""
    metadata = manifest.get("metadata") or {}
    return {**manifest, "metadata": {k: v for k, v in metadata.items() if k not in _OF_SERVER}}


def _merge(
    base: Any, mine: Any, theirs: Any, path: str, adopted: list[str], clashes: list[Clash]
) -> Any:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        before = base if isinstance(base, dict) else {}
        found = {}
        for key in dict.fromkeys([*mine, *theirs]):
            value = _merge(
                before.get(key, _MISSING), mine.get(key, _MISSING), theirs.get(key, _MISSING),
                f"{path}.{key}" if path else key, adopted, clashes,
            )  # fmt: skip
            if value is not _MISSING:
                found[key] = value
        return found
    if mine == theirs or theirs == base:
        return mine
    if mine == base:
        adopted.append(path)
        return theirs
    clashes.append(Clash(path, None if theirs is _MISSING else theirs))
    return mine
