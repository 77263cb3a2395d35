"""Server-side apply: merge what a manager says, and remember what it said.

``metadata.managedFields`` lists, per manager, the fields that it applied, in the format FieldsV1.
Applying again removes what the manager no longer says, unless another manager owns it too, and a
field that another manager owns with another value is a conflict unless forced. Lists merge by key
as Kubernetes' structured merge does (``x-kubernetes-list-map-keys``, v1.36).

A *field set* is a set of paths, a path a tuple of FieldsV1 elements: ``f:NAME`` a member,
``k:{...}`` an item of a keyed list, ``v:...`` a value of a set, ``.`` the item itself.
"""

import copy
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from clusterstate.objects import wire_types
from clusterstate.objects.document import format_time
from clusterstate.objects.errors import Conflict
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest

Path = tuple[str, ...]
FieldSet = frozenset[Path]

_encode = msgspec.json.Encoder(order="sorted").encode

# Where the keys of a server-side apply differ from those of a strategic merge patch.
_KEYS: dict[tuple[str, str], tuple[str, ...]] = {
    ("Container", "ports"): ("containerPort", "protocol"),
    ("EphemeralContainer", "ports"): ("containerPort", "protocol"),
    ("PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("ServiceSpec", "ports"): ("port", "protocol"),
}
_KEY_DEFAULTS = {"protocol": "TCP"}
_SERVER_FIELDS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


class _List(msgspec.Struct, frozen=True):
    """How a list merges: by ``keys``, as a set when there are none; ``item`` is its struct."""

    keys: tuple[str, ...]
    item: type | None


@cache
def _members(struct: type) -> Mapping[str, "type | _List | None"]:
    """Return for each field of a wire type: a struct, how its list merges, or None for a whole."""
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    rules = wire_types.PATCH.get(struct.__name__, {})
    found: dict[str, type | _List | None] = {}
    for field in info.fields:
        name = field.encode_name
        key, strategy = rules.get(name, ("", ""))
        types = (
            field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else [field.type]
        )
        inner: type | _List | None = None
        for candidate in types:
            if isinstance(candidate, msgspec.inspect.StructType):
                inner = candidate.cls
            elif isinstance(candidate, msgspec.inspect.DictType):
                inner = dict
            elif isinstance(candidate, msgspec.inspect.ListType) and "merge" in strategy:
                item = candidate.item_type
                keys = _KEYS.get((struct.__name__, name), (key,) if key else ())
                is_struct = isinstance(item, msgspec.inspect.StructType)
                inner = _List(keys, item.cls if is_struct else None)  # type: ignore[attr-defined]
        found[name] = inner
    return found


def _shape(struct: "type | _List | None", name: str) -> "type | _List | None":
    """Return the shape of a member; members of free maps are wholes."""
    if struct is None or struct is dict or isinstance(struct, _List):
        return None
    return _members(struct).get(name)


def _item_element(item: Any, keys: tuple[str, ...]) -> str:
    """Return the element of a list item: its keys, with their defaults."""
    values = {
        key: item.get(key, _KEY_DEFAULTS.get(key))
        for key in keys
        if item.get(key, _KEY_DEFAULTS.get(key)) is not None
    }
    return "k:" + _encode(values).decode()


def fields_of(manifest: Manifest, kind: Kind, subresource: str = "") -> FieldSet:
    """Return the fields that a manifest states."""
    shape: type = kind.wire_type
    paths: set[Path] = set()
    for name, whole in manifest.items():
        if name in ("apiVersion", "kind") or (name == "status" and subresource != "status"):
            continue
        value = whole
        if name == "metadata":
            value = {k: v for k, v in whole.items() if k not in _SERVER_FIELDS}
            if not value:
                continue
        paths.update(_paths(value, _shape(shape, name), (f"f:{name}",)))
    return frozenset(paths)


def _paths(value: Any, shape: "type | _List | None", path: Path) -> Iterator[Path]:
    if isinstance(shape, _List) and isinstance(value, list) and value:
        for item in value:
            if not shape.keys:
                yield (*path, "v:" + _encode(item).decode())
            elif isinstance(item, dict):
                here = (*path, _item_element(item, shape.keys))
                yield (*here, ".")
                for name, child in item.items():
                    yield from _paths(child, _shape(shape.item, name), (*here, f"f:{name}"))
        return
    if shape is not None and not isinstance(shape, _List) and isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _paths(child, _shape(shape, name), (*path, f"f:{name}"))
        return
    yield path


def to_fields_v1(paths: FieldSet) -> dict[str, Any]:
    """Return a field set as FieldsV1."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
    return tree


def from_fields_v1(tree: Any) -> FieldSet:
    """Return the field set of a FieldsV1; what is not in that format counts as nothing."""

    def walk(node: Any, path: Path) -> Iterator[Path]:
        if not isinstance(node, dict) or not node:
            if path:
                yield path
            return
        for element, child in node.items():
            if element == "." and path:
                yield (*path, ".")
            else:
                yield from walk(child, (*path, element))

    return frozenset(walk(tree, ())) if isinstance(tree, dict) else frozenset()


def _find(value: Any, element: str) -> Any:
    """Return the child that an element names, None when it is not there."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return value.get(rest) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    wanted = msgspec.json.decode(rest)
    if kind == "v":
        return wanted if wanted in value else None
    for item in value:
        if isinstance(item, dict) and all(
            item.get(key, _KEY_DEFAULTS.get(key)) == text for key, text in wanted.items()
        ):
            return item
    return None


def _value(manifest: Manifest, path: Path) -> Any:
    value: Any = manifest
    for element in path:
        if element == "." or value is None:
            break
        value = _find(value, element)
    return value


def _remove(manifest: Manifest, path: Path) -> None:
    """Remove what a path names, and parents that are left empty."""
    item = path[-1] == "."
    trail: list[Any] = [manifest]
    elements = path[:-1] if item else path
    for element in elements[:-1]:
        child = _find(trail[-1], element)
        if child is None:
            return
        trail.append(child)
    for depth in range(len(elements) - 1, -1, -1):
        parent, element = trail[depth], elements[depth]
        kind, _, rest = element.partition(":")
        if kind == "f":
            if isinstance(parent, dict):
                parent.pop(rest, None)
        elif isinstance(parent, list):
            found = _find(parent, element)
            if found is not None:
                parent.remove(found)
        if parent or depth <= 1:
            return


def _merge(live: Any, said: Any, shape: "type | _List | None") -> Any:
    if isinstance(shape, _List) and isinstance(live, list) and isinstance(said, list):
        merged = list(live)
        for item in said:
            if not shape.keys:
                if item not in merged:
                    merged.append(item)
                continue
            known = _find(merged, _item_element(item, shape.keys))
            if known is None:
                merged.append(item)
            else:
                merged[merged.index(known)] = _merge(known, item, shape.item)
        return merged
    mergeable = shape is not None and not isinstance(shape, _List)
    if mergeable and isinstance(live, dict) and isinstance(said, dict):
        result = dict(live)
        for name, value in said.items():
            result[name] = _merge(live[name], value, _shape(shape, name)) if name in live else value
        return result
    return said


def _show(path: Path) -> str:
    """Return a path as messages write it: ``.spec.containers[name="c"].image``."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = msgspec.json.decode(rest)
            joined = ",".join(f"{key}={_encode(value).decode()}" for key, value in keys.items())
            text += f"[{joined}]"
        elif kind == "v":
            text += f"[={rest}]"
    return text


def apply(
    kind: Kind,
    live: Manifest | None,
    said: Manifest,
    *,
    manager: str,
    force: bool,
    now: datetime,
    subresource: str = "",
) -> Manifest:
    """Return the object after ``manager`` has applied ``said`` to ``live`` (None: not there yet).

    Raises:
        Conflict: another manager owns a field with another value, and ``force`` is not set.
    """
    fields = fields_of(said, kind, subresource)
    entries: list[dict[str, Any]] = []
    if live is not None:
        entries = copy.deepcopy(live["metadata"].get("managedFields") or [])
    own: dict[str, Any] | None = None
    others: list[dict[str, Any]] = []
    for entry in entries:
        same_place = (entry.get("subresource") or "") == subresource
        if entry.get("operation") == "Apply" and entry.get("manager") == manager and same_place:
            own = entry
        else:
            others.append(entry)
    conflicts: list[tuple[str, Path]] = []
    owned_elsewhere: set[Path] = set()
    kept: list[dict[str, Any]] = []
    for entry in others:
        theirs = from_fields_v1(entry.get("fieldsV1"))
        clashing = {
            path
            for path in theirs & fields
            if path[-1] != "." and live is not None and _value(live, path) != _value(said, path)
        }
        conflicts += [(str(entry.get("manager", "")), path) for path in sorted(clashing)]
        remaining = theirs - clashing
        owned_elsewhere |= remaining
        if remaining:
            kept.append({**entry, "fieldsV1": to_fields_v1(remaining)} if clashing else entry)
    if conflicts and not force:
        raise _conflict(conflicts)

    base: Manifest = {"apiVersion": kind.api_version, "kind": kind.name}
    if live is not None:
        base = copy.deepcopy(live)
    before = from_fields_v1(own.get("fieldsV1")) if own is not None else frozenset()
    for path in sorted(before - fields - owned_elsewhere, key=len, reverse=True):
        _remove(base, path)
    stated = {
        name: value for name, value in said.items() if name != "status" or subresource == "status"
    }
    stated["metadata"] = {
        k: v
        for k, v in said["metadata"].items()
        if k not in _SERVER_FIELDS or k in ("name", "namespace", "resourceVersion")
    }
    result: Manifest = _merge(base, stated, kind.wire_type)
    if own is None or before != fields:
        own = {
            "manager": manager,
            "operation": "Apply",
            "apiVersion": kind.api_version,
            "time": format_time(now),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(fields),
        }
        if subresource:
            own["subresource"] = subresource
    result["metadata"] = {**result["metadata"], "managedFields": [own, *kept]}
    return result


def _conflict(conflicts: list[tuple[str, Path]]) -> Conflict:
    """Return the error that makes kubectl print its advice."""
    texts = [f'conflict with "{manager}": {_show(path)}' for manager, path in conflicts]
    noun = "conflict" if len(texts) == 1 else "conflicts"
    joined = texts[0] if len(texts) == 1 else ", ".join(texts)
    return Conflict(
        f"Apply failed with {len(texts)} {noun}: {joined}",
        {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{manager}"',
                    "field": _show(path),
                }
                for manager, path in conflicts
            ]
        },
    )
