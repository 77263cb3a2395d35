"""``metadata.managedFields``, the owners of fields, and server-side apply.

Each entry names a manager, how it writes (``Apply``, or ``Update`` for all other writes) and the
fields it owns. An update takes the fields that it changes from their owners. Applying again removes
the fields that the manager omits now, unless another manager owns them too; a field that another
manager owns with another value is a conflict unless forced.

Kinds of which thousands are created in a second (``Kind.names_creators`` is false) have no entries
until the first apply: all existing fields then belong to the manager ``before-first-apply``, as in
Kubernetes for objects that it did not track from their creation. A status has entries from its
first apply on. The service's own controllers write on behalf of the field's owner.

Rules: apimachinery ``pkg/util/managedfields``, v1.36.
"""

import copy
import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest, Conflict, Untyped
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire.field_sets import (
    ITEM,
    SERVER_FIELDS,
    FieldSet,
    Path,
    changed_fields,
    faults,
    fields_of,
    fitted,
    from_fields_v1,
    is_fields_v1,
    merge,
    remove,
    several,
    shown,
    to_fields_v1,
    value_at,
)

APPLY: Final = "Apply"
UPDATE: Final = "Update"
BEFORE_FIRST_APPLY: Final = "before-first-apply"
MAX_UPDATERS: Final = 10
"""Entries of updates that are kept apart; older ones become one, called ``ANCIENT``."""
ANCIENT: Final = "ancient-changes"
SCALED: Final = "autoscaling/v1"
"""The version in which all owners of replicas are seen through a ``Scale``."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

Entry = dict[str, Any]


class Manager(msgspec.Struct, frozen=True):
    """A field manager: the client's name for itself, and the subresource of its writes."""

    name: str
    subresource: str = ""


def _same(entry: Entry, manager: Manager, operation: str) -> bool:
    return (
        entry.get("manager") == manager.name
        and entry.get("operation") == operation
        and (entry.get("subresource") or "") == manager.subresource
    )


def _entry(manager: Manager, operation: str, kind: Kind, fields: FieldSet, now: datetime) -> Entry:
    entry = {
        "manager": manager.name,
        "operation": operation,
        "apiVersion": kind.api_version,
        "time": format_time(now),
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields_v1(fields),
    }
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _fields(entry: Entry, kind: Kind) -> FieldSet:
    """Return the fields that an entry owns."""
    return fitted(from_fields_v1(entry.get("fieldsV1")), kind)


def _without(entry: Entry, fields: FieldSet, kind: Kind) -> Entry | None:
    """Return an entry without these fields; ``None`` if it owns no others."""
    owned = _fields(entry, kind)
    remaining = owned - fields
    if remaining == owned:
        return entry
    if not any(path[-1] != ITEM for path in remaining):
        return None
    return {**entry, "fieldsV1": to_fields_v1(remaining)}


def _in_order(entries: list[Entry]) -> list[Entry]:
    """Return the entries of applies before those of updates, each by time and name."""
    return sorted(
        entries,
        key=lambda one: (
            one.get("operation") != APPLY,
            str(one.get("time") or ""),
            str(one.get("manager") or ""),
        ),
    )


def _with(manifest: Manifest, entries: list[Entry]) -> Manifest:
    """Return a manifest with these entries; without any it has no ``managedFields``."""
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    if entries:
        metadata["managedFields"] = entries
    return {**manifest, "metadata": metadata}


def are_readable(entries: Sequence[Entry]) -> bool:
    """Return whether all fields in a client's entries are valid FieldsV1.

    Others are not stored: searches in stored texts would take a list in ``fieldsV1`` for the
    object's.
    """
    named = (one["fieldsV1"] for one in entries if one.get("fieldsV1") is not None)
    return all(is_fields_v1(fields) for fields in named)


# Updates --------------------------------------------------------------------------------------


def claim(kind: Kind, manifest: Manifest, manager: str) -> None:
    """Add its creator to the managed fields of a new manifest; ``created`` completes the entry."""
    if kind.names_creators:
        manifest["metadata"]["managedFields"] = [{"manager": manager}]


def created(kind: Kind, new: Manifest, now: datetime) -> Manifest:
    """Return a new object as stored; its creator owns all fields if ``claim`` added an entry."""
    entries = new["metadata"].get("managedFields")
    if not entries or len(entries) > 1 or entries[0].keys() != {"manager"}:
        return new
    manager = Manager(str(entries[0]["manager"]))
    return _with(new, [_entry(manager, UPDATE, kind, fields_of(new, kind), now)])


def updated(kind: Kind, old: Manifest, new: Manifest, manager: Manager, now: datetime) -> Manifest:
    """Return a changed object with its new entries; for all writes but applies.

    The fields that the write sets belong to ``manager`` alone; those that it removes have no owner.
    A client that sends a list with an empty entry resets the entries; other entries from a client
    are stored if they differ from the stored ones and are valid.
    """
    stored: list[Entry] = old["metadata"].get("managedFields") or []
    entries = _base_entries(new["metadata"].get("managedFields"), stored)
    if not entries or (
        manager.subresource == "status"
        and not any(one.get("subresource") == "status" for one in entries)
    ):
        return _with(new, entries)
    place = "status" if manager.subresource == "status" else ""
    written, removed = changed_fields(old, new, kind, place)
    if not written and not removed:
        return _with(new, entries)
    others: list[Entry] = []
    own: Entry | None = None
    for entry in entries:
        if _same(entry, manager, UPDATE):
            own = entry
        elif (reduced := _without(entry, written | removed, kind)) is not None:
            others.append(reduced)
    before = frozenset() if own is None else _fields(own, kind)
    fields = (before - removed) | written
    if own is not None and fields == before:
        others.append(own)
    elif any(path[-1] != ITEM for path in fields):
        others.append(_entry(manager, UPDATE, kind, fields, now))
    return _with(new, _in_order(_capped(others)))


def _base_entries(sent: Any, stored: list[Entry]) -> list[Entry]:
    """Return the entries that a write changes: the stored ones, or those that a client sent."""
    if sent == [{}]:
        return []
    if not sent or sent == stored:
        return stored
    if all(is_fields_v1(one.get("fieldsV1")) and one.get("manager") for one in sent):
        return list(sent)
    return stored


def _capped(entries: list[Entry]) -> list[Entry]:
    """Return entries of which no more than ``MAX_UPDATERS`` are of updates."""
    updates = _in_order([one for one in entries if one.get("operation") != APPLY])
    surplus = len(updates) - MAX_UPDATERS
    if surplus <= 0:
        return entries
    oldest, rest = updates[: surplus + 1], updates[surplus + 1 :]
    fields: FieldSet = frozenset().union(*(from_fields_v1(one.get("fieldsV1")) for one in oldest))
    ancient = {**oldest[-1], "manager": ANCIENT, "fieldsV1": to_fields_v1(fields)}
    ancient.pop("subresource", None)
    return [one for one in entries if one.get("operation") == APPLY] + [ancient, *rest]


# Applies --------------------------------------------------------------------------------------


def _of_subresource(kind: Kind, applied: Manifest, subresource: str) -> Manifest:
    """Return the part of an apply that its subresource accepts; the rest has no effect or owner.

    Rule: ``GetResetFields`` and ``GetResetFieldsFilter`` of the strategies in pkg/registry, v1.36.
    """
    if subresource == "resize":
        return _of_resize(applied)
    if subresource != "status":
        return applied
    unchangeable = kind.strategy.kept_by_status
    metadata = {key: value for key, value in applied["metadata"].items() if key not in unchangeable}
    of_object = ("apiVersion", "kind", "status")
    return {key: applied[key] for key in of_object if key in applied} | {"metadata": metadata}


def _of_resize(applied: Manifest) -> Manifest:
    """Return the resources of a pod in an apply, and the names of their containers."""
    named, metadata = ("name", "namespace", "uid", "resourceVersion"), applied["metadata"]
    spec = applied.get("spec") or {}
    new_spec: Manifest = {"resources": spec["resources"]} if "resources" in spec else {}
    for field in ("containers", "initContainers"):
        if containers := spec.get(field):
            new_spec[field] = [
                {key: one[key] for key in ("name", "resources", "resizePolicy") if key in one}
                for one in containers
            ]
    found: Manifest = {key: applied[key] for key in ("apiVersion", "kind") if key in applied}
    found["metadata"] = {key: metadata[key] for key in named if key in metadata}
    return found | ({"spec": new_spec} if new_spec else {})


def require_typed(kind: Kind, applied: Any) -> None:
    """Refuse an apply that does not fit the kind's schema; an update may hold the same.

    What is of another kind, or names ``managedFields``, is refused elsewhere. Rule:
    ``structuredMergeManager.Apply``, apimachinery ``managedfields/internal``, v1.36.

    Raises:
        BadRequest: it names no version, or another one than the path.
        Untyped: a field is unknown or a scalar of another type, or items of a list with keys have
            none or the same ones.
    """
    if not isinstance(applied, dict):
        return
    if (version := applied.get("apiVersion") or "") != kind.api_version:
        raise BadRequest(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {version}, expected: {kind.api_version}"
        )
    metadata = applied.get("metadata", {})
    if applied.get("kind", kind.name) != kind.name or not isinstance(metadata, dict):
        return
    try:
        found = faults(applied, kind)
    except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return  # a number or text that JSON cannot hold is refused with its field
    if found and not metadata.get("managedFields"):
        group, _, version = kind.api_version.rpartition("/")
        namespace, name = (
            text if isinstance(text := metadata.get(field), str) else ""
            for field in ("namespace", "name")
        )
        texts = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found[:_MOST_FAULTS]])
        raise Untyped(
            f"failed to create typed patch object ({namespace}/{name}; {group}/{version}, "
            f"Kind={kind.name}): {texts[:_LONGEST_FAULTS]}"
        )


_MOST_FAULTS: Final = 100
_LONGEST_FAULTS: Final = 10_000
"""Characters of what a refused apply is told."""


def apply(
    kind: Kind,
    live: Manifest | None,
    applied: Manifest,
    manager: Manager,
    *,
    force: bool,
    now: datetime,
) -> Manifest:
    """Return the object after ``manager`` applied ``applied`` to ``live`` (``None``: a new object).

    Raises:
        Conflict: another manager owns a field with another value, and ``force`` is not set.
    """
    subresource = manager.subresource
    applied = _of_subresource(kind, applied, subresource)
    fields = fields_of(applied, kind, subresource)
    entries: list[Entry] = []
    if live is not None:
        entries = live["metadata"].get("managedFields") or []
        if not entries and (all_there := fields_of(live, kind)):
            entries = [_entry(Manager(BEFORE_FIRST_APPLY), UPDATE, kind, all_there, now)]
    changeable = {
        name: value
        for name, value in applied.items()
        if name != "status" or subresource == "status" or live is None
    }
    changeable["metadata"] = {
        k: v
        for k, v in applied["metadata"].items()
        if k not in SERVER_FIELDS or k in ("name", "namespace", "resourceVersion", "uid")
    }
    merged = applied if live is None else merge(live, changeable, kind)
    own: Entry | None = None
    conflicts: list[tuple[Entry, Path]] = []
    elsewhere: set[Path] = set()
    others: list[Entry] = []
    for entry in entries:
        if _same(entry, manager, APPLY):
            own = entry
            continue
        theirs = _fields(entry, kind)
        clashing = frozenset(
            path
            for path in theirs & fields
            if path[-1] != ITEM and live is not None and _differs(live, merged, path)
        )
        if live is not None:
            clashing |= several(live, theirs, fields)
        conflicts += [(entry, path) for path in sorted(clashing)]
        reduced = _without(entry, clashing, kind) if clashing else entry
        if reduced is not None:
            elsewhere |= theirs - clashing
            others.append(reduced)
    if conflicts and not force and not _were_applied_by_kubectl(kind, live, manager, conflicts):
        raise _conflict(conflicts, SCALED if subresource == "scale" else "")

    base: Manifest = {"apiVersion": kind.api_version, "kind": kind.name}
    if live is not None:
        base = copy.deepcopy(live)
    before = frozenset() if own is None else _fields(own, kind)
    remove(base, before - fields - elsewhere, fields | elsewhere, kind)
    result = merge(base, changeable, kind)
    if own is None or before != fields:
        own = _entry(manager, APPLY, kind, fields, now)
    return _with(result, _in_order([own, *others] if fields else others))


def _differs(live: Manifest, merged: Manifest, path: Path) -> bool:
    return bool(value_at(live, path) != value_at(merged, path))


def _were_applied_by_kubectl(
    kind: Kind, live: Manifest | None, manager: Manager, conflicts: list[tuple[Entry, Path]]
) -> bool:
    """Return whether kubectl wrote these fields before, by client-side apply.

    Rule: ``lastAppliedManager``, apimachinery ``managedfields/internal/lastappliedmanager.go``.
    """
    if manager.name != "kubectl" or live is None:
        return False
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return False
    try:
        applied = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False
    return {path for _, path in conflicts} <= fields_of(_readable(applied), kind)


def _readable(applied: dict[str, Any]) -> Manifest:
    """Return the object in a last-applied annotation, without invalid metadata."""
    metadata = applied.get("metadata")
    return {**applied, "metadata": metadata if isinstance(metadata, dict) else {}}


def _conflict(conflicts: list[tuple[Entry, Path]], version: str) -> Conflict:
    """Return the error that makes kubectl print its advice; ``version``: that of all owners.

    Rule: apimachinery ``managedfields/internal/conflict.go``, v1.36.
    """
    named = sorted((_named(entry, version), shown(path)) for entry, path in conflicts)
    if len(named) == 1:
        texts = [f"conflict with {named[0][0]}: {named[0][1]}"]
    else:
        texts = []
        for owner, paths in itertools.groupby(named, key=lambda one: one[0]):
            texts += [f"conflicts with {owner}:", *(f"- {path}" for _, path in paths)]
    noun = "conflict" if len(named) == 1 else "conflicts"
    return Conflict(
        f"Apply failed with {len(named)} {noun}: " + "\n".join(texts),
        {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": f"conflict with {owner}",
                    "field": path,
                }
                for owner, path in named
            ]
        },
    )


def _named(entry: Entry, version: str) -> str:
    """Return how a conflict names the manager of an entry, with its version where it updated."""
    version = version or str(entry.get("apiVersion"))
    text = msgspec.json.encode(entry.get("manager") or "").decode()
    if subresource := entry.get("subresource"):
        text += f' with subresource "{subresource}"'
    return text if entry.get("operation") == APPLY else f"{text} using {version}"
