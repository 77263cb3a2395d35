"""Patches of three types: functions that return the patched object.

* JSON patch (RFC 6902): a list of operations,
* merge patch (RFC 7386): null deletes, lists are replaced,
* strategic merge patch: Kubernetes' own; the types declare which lists merge by which key
  (``wire_types.PATCH``), and directives in the patch (``$patch``, ``$setElementOrder/...``,
  ``$deleteFromPrimitiveList/...``, ``$retainKeys``) the rest. No directive is ever stored.

All functions are pure: neither the object nor the patch is changed. The result is not validated; it
is decoded and admitted like any other write. Rule: apimachinery
``pkg/util/strategicpatch/patch.go``, v1.36.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Hashable
from copy import deepcopy
from functools import cache
from typing import Any, ClassVar, Final

import jsonpatch
import jsonpointer
import msgspec

from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.errors import BadRequest, StatusError, TooLarge
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire.reading import MAX_DEPTH, is_deeper

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
PATCH_TYPES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)

MAX_OPERATIONS: Final = 10_000
"""How many operations a JSON patch may hold (``endpoints/handlers/patch.go``)."""
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
"""How much a JSON patch may copy in all: each copy can double the document."""
MAX_MOVED: Final = 20_000_000
"""How many list entries a JSON patch may shift in all, by inserting before and removing them."""


class PatchNotApplicable(StatusError):
    """The patch is well formed and does not fit the object: a path is missing, a test fails."""

    code: ClassVar[int] = 422
    reason: ClassVar[str] = "Invalid"


def apply_patch(
    patch_type: str, manifest: Manifest, patch: Any, wire_type: type[msgspec.Struct]
) -> Manifest:
    """Return the patched manifest; ``patch_type`` is one of ``PATCH_TYPES``.

    Raises:
        BadRequest: the patch or the result is nested too deeply, the patch is malformed, or an
            entry lacks its merge key.
        PatchNotApplicable: a JSON patch does not fit.
        TooLarge: a JSON patch has too many operations, or copies or shifts too much.
    """
    if patch_type == JSON_PATCH:
        return json_patch(manifest, patch)
    if patch_type == MERGE_PATCH:
        return merge_patch(manifest, patch)
    return strategic_merge_patch(manifest, patch, wire_type)


# JSON patch -----------------------------------------------------------------------------------


def json_patch(manifest: Manifest, operations: Any) -> Manifest:
    """Return the object after all operations of an RFC 6902 patch."""
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
            f"got {len(operations)}"
        )
    document: Any = deepcopy(manifest)
    copied = moved = 0
    for operation in operations:
        if not isinstance(operation, dict) or _malformed(operation):
            raise BadRequest(f"the JSON patch has a malformed operation: {_shown(operation)}")
        try:
            parsed = jsonpatch.JsonPatch([operation])
            if operation["op"] == "test" and operation["path"] and operation["value"] is None:
                holder, key = jsonpointer.JsonPointer(operation["path"]).to_last(document)
                if isinstance(holder, dict) and key not in holder:
                    continue  # null means that there is no such member (evanphx/json-patch v4)
            if operation.get("op") == "copy":
                source = jsonpointer.resolve_pointer(document, operation["from"])
                copied += len(msgspec.json.encode(source))
                if copied > MAX_COPIED_BYTES:
                    raise TooLarge(
                        "unable to copy: the accumulated size of the copies of the JSON patch "
                        f"exceeds the limit of {MAX_COPIED_BYTES} bytes"
                    )
            moved += _shifted(document, operation)
            if moved > MAX_MOVED:
                raise TooLarge(f"the JSON patch shifts more than {MAX_MOVED} list entries")
            document = parsed.apply(document, in_place=True)
        except (
            jsonpatch.JsonPatchException,
            jsonpointer.JsonPointerException,
            TypeError,
            KeyError,
            ValueError,
        ) as error:
            # The libraries' words show Python's types, and whole objects.
            differs = isinstance(error, jsonpatch.JsonPatchTestFailed) and operation["op"] == "test"
            why = "the value there is another" if differs else "there is no such place"
            raise PatchNotApplicable(
                "the server rejected our request due to an error in our request: "
                f"{operation['op']} operation does not apply at {operation['path']!r}: {why}"
            ) from error
        except RecursionError:  # copies into themselves double the depth with each operation
            raise _too_deep("the patched object") from None
    if not isinstance(document, dict):
        raise PatchNotApplicable("the result of the JSON patch is not an object")
    _check_depth(document, "the patched object")
    return document


def _shifted(document: Any, operation: dict[str, Any]) -> int:
    """Return how many list entries the operation may shift; 0 if its path does not exist."""
    if operation["op"] in ("test", "replace"):
        return 0
    found = 0
    for member in ("path", "from"):
        parent = operation.get(member, "").rpartition("/")[0]
        with contextlib.suppress(jsonpointer.JsonPointerException, KeyError, TypeError, ValueError):
            place = jsonpointer.resolve_pointer(document, parent)
            found += len(place) if isinstance(place, list) else 0
    return found


_MEMBERS: Final = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "move": ("from", "path"),
    "copy": ("from", "path"),
    "test": ("path", "value"),
}


def _malformed(operation: dict[str, Any]) -> bool:
    """Return whether the operation is malformed, whatever the object."""
    name = operation.get("op")
    needs = _MEMBERS.get(name) if isinstance(name, str) else None
    if needs is None or any(member not in operation for member in needs):
        return True
    pointers = [operation[member] for member in needs if member != "value"]
    return any(not isinstance(p, str) or (p and not p.startswith("/")) for p in pointers)


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:200]


# Merge patch ----------------------------------------------------------------------------------


def merge_patch(manifest: Manifest, patch: Any) -> Manifest:
    """Return the object after an RFC 7386 merge patch."""
    if not isinstance(patch, dict):
        raise BadRequest("a merge patch must be an object")
    _check_depth(patch)
    merged: Manifest = _merge(deepcopy(manifest), patch)
    return merged


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _check_depth(value: Any, what: str = "the patch") -> None:
    if is_deeper(value, MAX_DEPTH):
        raise _too_deep(what)


def _too_deep(what: str) -> BadRequest:
    return BadRequest(f"{what} is nested deeper than {MAX_DEPTH} levels")


# Strategic merge patch ------------------------------------------------------------------------

_DIRECTIVE: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"


class _Field(msgspec.Struct, frozen=True):
    """How a field merges: the type of its value or entries, its merge key and its strategies."""

    type_name: str = ""
    merge_key: str = ""
    strategies: tuple[str, ...] = ()


_ATOMIC: Final = _Field()


@cache
def _fields(type_name: str) -> dict[str, _Field]:
    """Return the fields of a wire type; empty for free maps, which have no type."""
    struct = wire_types.STRUCTS.get(type_name)
    if struct is None:
        return {}
    rules = wire_types.PATCH.get(type_name, {})
    found: dict[str, _Field] = {}
    for field in msgspec.structs.fields(struct):
        key, strategies = rules.get(field.encode_name, ("", ""))
        found[field.encode_name] = _Field(
            _struct_name(field.type), key, tuple(filter(None, strategies.split(",")))
        )
    return found


def _struct_name(annotation: Any) -> str:
    """Return the Struct inside ``X | None`` or ``list[X] | None``; empty if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation.__name__
    origin = getattr(annotation, "__origin__", None)
    if origin is dict:
        return ""
    names = map(_struct_name, getattr(annotation, "__args__", ()))
    return next(filter(None, names), "")


def strategic_merge_patch(
    manifest: Manifest, patch: Any, wire_type: type[msgspec.Struct]
) -> Manifest:
    """Return the object after a strategic merge patch, merged by the rules of ``wire_type``."""
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be an object")
    _check_depth(patch)
    return _merge_map(deepcopy(manifest), deepcopy(patch), wire_type.__name__)


def _merge_map(original: Manifest, patch: Manifest, type_name: str) -> Manifest:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        whole: Manifest = _without_directives({k: v for k, v in patch.items() if k != _DIRECTIVE})
        return whole
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadRequest(f"unknown patch directive {directive!r}: use merge, replace or delete")
    patch.pop(_DIRECTIVE, None)
    _retain(original, patch)
    fields = _fields(type_name)
    orders = {
        key.removeprefix(_ORDER): patch.pop(key) for key in list(patch) if key.startswith(_ORDER)
    }
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            _delete_from_list(original, key.removeprefix(_DELETE_FROM), value)
        elif value is None:
            original.pop(key, None)
        else:
            field = fields.get(key, _ATOMIC)
            original[key] = _merge_value(original.get(key), value, field, orders.pop(key, None))
    for key, order in orders.items():
        present = original.get(key)
        if isinstance(present, list):
            field = fields.get(key, _ATOMIC)
            original[key] = _reorder(present, present, _as_list(order, key), field.merge_key)
    return original


def _as_list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"{_ORDER}{key} must be a list")
    return value


def _retain(original: Manifest, patch: Manifest) -> None:
    """Drop the fields that ``$retainKeys`` does not name; the patch may not set others."""
    retained = patch.pop(_RETAIN_KEYS, None)
    if retained is None:
        return
    if not isinstance(retained, list):
        raise BadRequest(f"{_RETAIN_KEYS} must be a list of names")
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE_FROM, _ORDER)) and key not in retained:
            raise BadRequest(f"{_RETAIN_KEYS} does not name the field {key!r} that the patch sets")
    for key in [key for key in original if key not in retained]:
        del original[key]


def _delete_from_list(original: Manifest, key: str, values: Any) -> None:
    if not isinstance(values, list):
        raise BadRequest(f"{_DELETE_FROM}{key} must be a list")
    present = original.get(key)
    if isinstance(present, list):
        dropped = set(map(_identity, values))
        original[key] = [entry for entry in present if _identity(entry) not in dropped]


def _merge_value(original: Any, value: Any, field: _Field, order: Any) -> Any:
    if isinstance(value, dict):
        if "replace" in field.strategies:
            return _without_directives(value)
        return _merge_map(original if isinstance(original, dict) else {}, value, field.type_name)
    if not isinstance(value, list):
        return value
    if "merge" not in field.strategies:
        return _without_directives(value)
    before = original if isinstance(original, list) else []
    order_ = None if order is None else _as_list(order, "list")
    if not any(isinstance(entry, dict) for entry in (*before, *value)):
        merged = _distinct([*before, *value])
        return _reorder(merged, before, value if order_ is None else order_, "")
    if not field.merge_key:
        raise BadRequest("cannot merge a list of objects that has no merge key")
    merged = _merge_entries(before, value, field)
    return _reorder(merged, before, value if order_ is None else order_, field.merge_key)


def _key_of(entry: Any, merge_key: str) -> Any:
    if not isinstance(entry, dict):
        raise BadRequest(f"a list merged by {merge_key!r} has an entry that is not an object")
    if merge_key not in entry:
        shown = msgspec.json.encode(entry).decode()
        raise BadRequest(f"map: {shown} does not contain declared merge key: {merge_key}")
    return entry[merge_key]


def _merge_entries(original: list[Any], patch: list[Any], field: _Field) -> list[Any]:
    """Return the entries merged by key, in no particular order."""
    merge_key = field.merge_key
    result: list[Any] = list(original)
    changes: list[Any] = []
    deleted: set[Hashable] = set()
    for entry in patch:
        directive = entry.get(_DIRECTIVE) if isinstance(entry, dict) else None
        if directive == "replace":
            result = []
            if len(entry) > 1:
                changes.append({k: v for k, v in entry.items() if k != _DIRECTIVE})
        elif directive == "delete":
            deleted.add(_identity(_key_of(entry, merge_key)))
        elif directive in (None, "merge"):
            changes.append(entry)
        else:
            raise BadRequest(f"unknown patch directive {directive!r}: use replace or delete")
    if deleted:
        result = [e for e in result if _identity(_stored_key(e, merge_key)) not in deleted]
    # Of several entries with one key, the first is changed.
    place: dict[Hashable, int] = {}
    for index, present in enumerate(result):
        place.setdefault(_identity(_stored_key(present, merge_key)), index)
    for entry in changes:
        key = _identity(_key_of(entry, merge_key))
        at = place.get(key)
        if at is None:
            place[key] = len(result)
            result.append(_merge_map({}, entry, field.type_name))
        else:
            result[at] = _merge_map(result[at], entry, field.type_name)
    return result


def _stored_key(entry: Any, merge_key: str) -> Any:
    return entry.get(merge_key) if isinstance(entry, dict) else None


def _identity(value: Any) -> Hashable:
    """Return a key that equal JSON values share: ``1`` is not ``true``."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value, order="sorted")
    return isinstance(value, bool), value


def _distinct(values: list[Any]) -> list[Any]:
    found: dict[Hashable, Any] = {}
    for value in values:
        found.setdefault(_identity(value), value)
    return list(found.values())


def _reorder(merged: list[Any], before: list[Any], order: list[Any], merge_key: str) -> list[Any]:
    """Return the entries in the order of ``$setElementOrder``, or else of the patch.

    Entries that it does not name are only known to the server: among themselves they keep the order
    of ``before``, and each stays in front of the named entries that followed it.
    """
    identity: Callable[[Any], Any] = (
        (lambda entry: _stored_key(entry, merge_key)) if merge_key else (lambda entry: entry)
    )
    places = _positions([identity(entry) for entry in order])
    place = _positions([identity(entry) for entry in before])
    keyed = [(_identity(identity(entry)), entry) for entry in merged]
    named = deque(sorted((e for e in keyed if e[0] in places), key=lambda e: places[e[0]]))
    others = deque(entry for entry in keyed if entry[0] not in places)
    result: list[Any] = []
    while named and others:
        left, right = place.get(others[0][0]), place.get(named[0][0])
        first_is_other = left is not None and right is not None and left < right
        result.append((others if first_is_other else named).popleft()[1])
    return [*result, *(entry for _, entry in named), *(entry for _, entry in others)]


def _positions(values: list[Any]) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for index, value in enumerate(values):
        found.setdefault(_identity(value), index)
    return found


def _without_directives(value: Any) -> Any:
    """Return a value that replaces another, as it may be stored: no directives, no nulls."""
    if isinstance(value, dict):
        if value.get(_DIRECTIVE) == "delete":
            return {}
        return {
            key: _without_directives(child)
            for key, child in value.items()
            if child is not None
            and key not in (_DIRECTIVE, _RETAIN_KEYS)
            and not key.startswith((_ORDER, _DELETE_FROM))
        }
    if isinstance(value, list):
        return [
            _without_directives(child)
            for child in value
            if not (
                isinstance(child, dict)
                and (child.get(_DIRECTIVE) == "delete" or child == {_DIRECTIVE: "replace"})
            )
        ]
    return value
