"""Field sets: which fields of an object a manager owns, in the format FieldsV1.

A *field set* is a set of paths, a path a tuple of FieldsV1 elements: ``f:NAME`` a member,
``k:{...}`` an item of a keyed list, ``v:...`` a value of a set, ``.`` the item itself. Lists have
keys as in Kubernetes' structured merge (``x-kubernetes-list-map-keys``, v1.36).

Nothing but an apply requires that keys occur once. Items of one key are one field, a whole: the
path of their key is its last element. Rules: structured-merge-diff ``typed/tofieldset.go``,
``typed/compare.go``, ``typed/merge.go`` and ``typed/remove.go``, v6.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from clusterstate.objects.registry import inspected, wire_types
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.meta import Manifest

Path = tuple[str, ...]
FieldSet = frozenset[Path]

encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.decode

_PARTNERS: Final[dict[str, set[str]]] = {}
"""Keys that name items together with others, of which some may be absent."""
for _lists in wire_types.LISTS.values():
    for _keys in _lists.values():
        for _key in _keys if len(_keys) > 1 else ():
            _PARTNERS.setdefault(_key, set()).update(_keys)
_KEY_DEFAULTS: Final = {"protocol": "TCP"}
SERVER_FIELDS: Final = frozenset(
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
"""Fields of ``metadata`` that have no owner."""

ITEM: Final = "."
_ELEMENTS: Final = ("f:", "k:", "v:", "i:")
_ABSENT: Final = object()


class _List(msgspec.Struct, frozen=True):
    """How a list merges: by ``keys``, or as a set without keys.

    ``item``: the struct of its items, ``None`` if items are atomic.
    """

    keys: tuple[str, ...]
    item: type | None


@cache
def _members(struct: type) -> Mapping[str, "type | _List | None"]:
    """Return for each field of a wire type a struct, how its list merges, or ``None`` if atomic.

    Atomic are also the structs and maps that ``x-kubernetes-map-type`` declares so.
    """
    lists = wire_types.LISTS.get(struct.__name__, {})
    found: dict[str, type | _List | None] = {}
    for field in inspected.of_struct(struct).fields:
        name = field.encode_name
        types = (
            field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else [field.type]
        )
        inner: type | _List | None = None
        for candidate in types:
            here = f"{struct.__name__}.{name}"
            if here in wire_types.ATOMIC:
                continue
            if isinstance(candidate, msgspec.inspect.StructType):
                is_whole = candidate.cls.__name__ in wire_types.ATOMIC
                inner = None if is_whole and here not in wire_types.GRANULAR else candidate.cls
            elif isinstance(candidate, msgspec.inspect.DictType):
                inner = dict
            elif isinstance(candidate, msgspec.inspect.ListType) and name in lists:
                item = candidate.item_type
                merges = (
                    isinstance(item, msgspec.inspect.StructType)
                    and item.cls.__name__ not in wire_types.ATOMIC
                )
                inner = _List(lists[name], item.cls if merges else None)  # type: ignore[attr-defined]
        found[name] = inner
    return found


def _shape(struct: "type | _List | None", name: str) -> "type | _List | None":
    """Return the shape of a member; members of free maps are atomic."""
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
    return "k:" + encode(values).decode()


def _by_element(value: list[Any], shape: _List) -> dict[str, list[Any]]:
    """Return the items of a list that merges, by their elements."""
    found: dict[str, list[Any]] = {}
    for item in value:
        if (element := _element(item, shape)) is not None:
            found.setdefault(element, []).append(item)
    return found


def _element(item: Any, shape: _List) -> str | None:
    """Return the element of an item; ``None`` if the item cannot have keys."""
    if not shape.keys:
        return "v:" + encode(item).decode()
    return _item_element(item, shape.keys) if isinstance(item, dict) else None


def _is_item(element: str) -> bool:
    return element[:2] in ("k:", "v:")


def faults(manifest: Manifest, kind: Kind) -> list[str]:
    """Return the errors in an applied manifest, with their paths.

    Unknown fields, scalars of another type, and items without or with equal keys. Rule:
    structured-merge-diff ``typed/validate.go``, v6.
    """
    found = _faults(manifest, inspected.of_struct(kind.wire_type), (), None)
    return [f"{shown(path)}: {fault}" for path, fault in found]


def _faults(
    value: Any, declared: msgspec.inspect.Type, path: Path, keys: tuple[str, ...] | None
) -> Iterator[tuple[Path, str]]:
    """Yield the faults in a value; ``keys``: of a list that merges, ``None`` for a whole."""
    if isinstance(declared, msgspec.inspect.UnionType):
        members = [one for one in declared.types if not isinstance(one, msgspec.inspect.NoneType)]
        if len(members) > 1:  # a quantity, or a number or text: any scalar
            members = [one for one in members if isinstance(one, _WITH_MEMBERS)]
        for member in members:
            yield from _faults(value, member, path, keys)
    elif isinstance(declared, msgspec.inspect.StructType) and isinstance(value, dict):
        fields = _declared(declared.cls)
        lists = wire_types.LISTS.get(declared.cls.__name__, {})
        for name, child in value.items():
            here = (*path, f"f:{name}")
            if name in fields:
                yield from _faults(child, fields[name], here, lists.get(name))
            else:
                yield here, "field not declared in schema"
    elif isinstance(declared, msgspec.inspect.DictType) and isinstance(value, dict):
        for name, child in value.items():
            yield from _faults(child, declared.value_type, (*path, f"f:{name}"), None)
    elif isinstance(declared, msgspec.inspect.ListType) and isinstance(value, list):
        seen: set[str] = set()
        for index, child in enumerate(value):
            element = f"i:{index}"
            if keys is not None and (key := _element(child, _List(keys, None))) is not None:
                if key == "k:{}":
                    yield path, _NO_KEY.format(index, encode(keys).decode().replace(",", " "))
                    break
                if key in seen:
                    yield path, f"duplicate entries for key {shown((key,))}"
                seen.add(element := key)
            yield from _faults(child, declared.item_type, (*path, element), None)
    elif isinstance(value, bool | int | float | str) and (fault := _unfit(value, declared)):
        yield path, fault


_WITH_MEMBERS: Final = (
    msgspec.inspect.StructType, msgspec.inspect.DictType, msgspec.inspect.ListType,
)  # fmt: skip


def _unfit(value: float | str, declared: msgspec.inspect.Type) -> str:
    """Return what is wrong with a scalar, in Go's words; empty if nothing is.

    The format of times is checked elsewhere.
    """
    text = value if isinstance(value, str) else encode(value).decode().removesuffix(".0")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    inspect = msgspec.inspect
    if isinstance(declared, inspect.StrType):
        fits = isinstance(value, str) or declared.pattern is not None
        return "" if fits else f"expected string, got &value.valueUnstructured{{Value:{text}}}"
    if isinstance(declared, inspect.IntType | inspect.FloatType):
        given = "bool" if isinstance(value, bool) else "string"
        return "" if is_number else f"expected numeric (int or float), got {given}"
    if isinstance(declared, inspect.BoolType):
        return "" if isinstance(value, bool) else f"expected boolean, got &{{{text}}}"
    if isinstance(declared, inspect.ListType):
        return f"expected list, got &{{{text}}}"
    is_map = isinstance(declared, inspect.StructType | inspect.DictType)
    return f"expected map, got &{{{text}}}" if is_map else ""


@cache
def _declared(struct: type) -> Mapping[str, msgspec.inspect.Type]:
    return {field.encode_name: field.type for field in inspected.of_struct(struct).fields}


_NO_KEY: Final = (
    "element {}: associative list with keys has an element that omits all key fields {} (and"
    " doesn't have default values for any key fields)"
)


def leaves(manifest: Manifest, kind: Kind, subresource: str = "") -> dict[Path, Any]:
    """Return the fields that a manifest states, with their values; ``None`` for items themselves.

    The status belongs to the subresource ``status``, everything else to the object itself.
    """
    shape: type = kind.wire_type
    found: dict[Path, Any] = {}
    for name, whole in manifest.items():
        if name in ("apiVersion", "kind") or (name == "status" and subresource != "status"):
            continue
        value = whole
        if name == "metadata":
            value = {k: v for k, v in whole.items() if k not in SERVER_FIELDS}
            if not value:
                continue
        found.update(_leaves(value, _shape(shape, name), (f"f:{name}",)))
    return found


def fields_of(manifest: Manifest, kind: Kind, subresource: str = "") -> FieldSet:
    """Return the fields that a manifest states."""
    return frozenset(leaves(manifest, kind, subresource))


def _leaves(value: Any, shape: "type | _List | None", path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(shape, _List) and isinstance(value, list) and value:
        for element, items in _by_element(value, shape).items():
            here = (*path, element)
            if len(items) > 1:
                yield here, items
            elif shape.item is None:
                yield here, items[0]
            else:
                yield (*here, ITEM), None
                for name, child in items[0].items():
                    yield from _leaves(child, _shape(shape.item, name), (*here, f"f:{name}"))
        return
    if shape is not None and not isinstance(shape, _List) and isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _leaves(child, _shape(shape, name), (*path, f"f:{name}"))
        return
    yield path, value


def changed_fields(
    old: Manifest, new: Manifest, kind: Kind, subresource: str = ""
) -> tuple[FieldSet, FieldSet]:
    """Return the fields that a write sets, added or with another value, and those it removes."""
    before, after = leaves(old, kind, subresource), leaves(new, kind, subresource)
    written = [path for path, value in after.items() if before.get(path, _ABSENT) != value]
    return frozenset(written), frozenset(before.keys() - after.keys())


def to_fields_v1(paths: Iterable[Path]) -> dict[str, Any]:
    """Return a field set as FieldsV1."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
    return tree


def fitted(fields: FieldSet, kind: Kind) -> FieldSet:
    """Return a field set whose paths end at atomic fields, as the kind declares them now.

    Sets that a former version stored may name fields within a field that is atomic now, such as a
    label selector.
    """
    return frozenset(path[: _whole_in(path, kind.wire_type)] for path in fields)


def _whole_in(path: Path, struct: type) -> int | None:
    """Return how many elements of a path lead to an atomic field; ``None`` without one."""
    shape: type | _List | None = struct
    for index, element in enumerate(path):
        if isinstance(shape, _List):
            if not element.startswith("k:"):
                return None
            shape = shape.item
        elif element.startswith("f:"):
            shape = _shape(shape, element[2:])
        else:
            return None
        if shape is None:
            return index + 1
    return None


def is_fields_v1(tree: object) -> bool:
    """Return whether this is a FieldsV1: objects in objects, whose members are elements of paths.

    Rule: structured-merge-diff ``fieldpath/serialize.go`` and ``serialize-pe.go``.
    """
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            return False
        for element, child in node.items():
            if element != ITEM and element[:2] not in _ELEMENTS:
                return False
            waiting.append(child)
    return True


def from_fields_v1(tree: Any) -> FieldSet:
    """Return the field set of a FieldsV1; parts not in that format are ignored."""

    def walk(node: Any, path: Path) -> Iterator[Path]:
        if not isinstance(node, dict) or not node:
            if path:
                yield path
            return
        for element, child in node.items():
            if element == ITEM and path:
                yield (*path, ITEM)
            else:
                yield from walk(child, (*path, element))

    return frozenset(walk(tree, ())) if isinstance(tree, dict) else frozenset()


def _json_value(text: str) -> Any:
    """Return the JSON value in an element, ``None`` if a client wrote no valid JSON."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


def _find(value: Any, element: str) -> Any:
    """Return the first child with this element, ``None`` if absent."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return value.get(rest) if isinstance(value, dict) else None
    return next(iter(_items(value, element)), None)


def _items(value: Any, element: str) -> list[Any]:
    """Return the items of a list with this element."""
    kind, _, rest = element.partition(":")
    if kind not in ("k", "v") or not isinstance(value, list):
        return []
    selected = _json_value(rest)
    if kind == "v":
        return [item for item in value if item == selected]
    if not isinstance(selected, dict):
        return []
    keys = set(selected).union(*(_PARTNERS.get(key, ()) for key in selected))
    values = {key: selected.get(key, _KEY_DEFAULTS.get(key)) for key in keys}
    return [
        item
        for item in value
        if isinstance(item, dict)
        and all(item.get(key, _KEY_DEFAULTS.get(key)) == text for key, text in values.items())
    ]


def value_at(manifest: Manifest, path: Path) -> Any:
    """Return the value of a field, ``None`` if absent."""
    value: Any = manifest
    for element in path:
        if element == ITEM or value is None:
            break
        value = _find(value, element)
    return value


def remove(manifest: Manifest, paths: FieldSet, owned: FieldSet, kind: Kind) -> None:
    """Remove fields, in place, and objects that become empty by that.

    An item of a list is removed as a whole, unless ``owned`` has a field in it; then its keys stay.
    An applied empty object stays if it now has fields of other managers.
    """
    for path in sorted(paths, key=len):
        if path[-1] == ITEM:
            item = path[:-1]
            if not any(one[: len(item)] == item for one in owned):
                _remove(manifest, item)
    for path in paths:
        if path[-1] == ITEM or _is_key(path):
            continue
        value = value_at(manifest, path)
        if not (isinstance(value, dict) and value) or _whole_in(path, kind.wire_type):
            _remove(manifest, path)


def _is_key(path: Path) -> bool:
    """Return whether a field is one of the keys of its item."""
    if len(path) < 2 or not path[-2].startswith("k:"):
        return False
    keys = _json_value(path[-2].removeprefix("k:"))
    return isinstance(keys, dict) and path[-1].removeprefix("f:") in keys


def _remove(manifest: Manifest, elements: Path) -> None:
    """Remove the value at a path, and parents that become empty."""
    trail: list[Any] = [manifest]
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
            for found in _items(parent, element):
                parent.remove(found)
        if parent or depth <= 1:
            return


def merge(live: Manifest, applied: Manifest, kind: Kind) -> Manifest:
    """Return ``live`` with the fields of ``applied``; lists are merged by their keys."""
    merged: Manifest = _merge(live, applied, kind.wire_type)
    return merged


def _merge(live: Any, applied: Any, shape: "type | _List | None") -> Any:
    if isinstance(shape, _List) and isinstance(live, list) and isinstance(applied, list):
        return _merge_items(live, applied, shape)
    mergeable = shape is not None and not isinstance(shape, _List)
    if mergeable and isinstance(live, dict) and isinstance(applied, dict):
        result = dict(live)
        for name, value in applied.items():
            result[name] = _merge(live[name], value, _shape(shape, name)) if name in live else value
        return result
    return applied


def _merge_items(live: list[Any], applied: list[Any], shape: _List) -> list[Any]:
    """Return the items of both lists: applied ones in their order, others in their places.

    An applied item replaces all items of its key in ``live``. It is merged with a single one, and
    with none of several.
    """
    there, by_element = _by_element(live, shape), _by_element(applied, shape)
    old = deque((_element(item, shape), item) for item in live)
    new = deque(by_element)
    in_both = deque(element for element in by_element if element in there)
    merged: list[Any] = []
    done: set[str | None] = set()
    while old or new:
        here, item = old[0] if old else (None, None)
        if old and here not in by_element:
            merged.append(item)
            old.popleft()
            continue
        if old and new and here != new[0] and in_both and here != in_both[0]:
            old.popleft()  # applied items are inserted in their own order
            continue
        if old and here in done:
            old.popleft()
        if new:
            element = new.popleft()
            if old and old[0][0] == element:
                old.popleft()
            if in_both and in_both[0] == element:
                in_both.popleft()
            before, applied_item = there.get(element, []), by_element[element][0]
            is_one = len(before) == 1
            merged.append(_merge(before[0], applied_item, shape.item) if is_one else applied_item)
            done.add(element)
    return merged


def several(manifest: Manifest, fields: FieldSet, applied: FieldSet) -> FieldSet:
    """Return the paths in ``fields`` of items with a repeated key that ``applied`` replaces."""
    replaced = {path[: n + 1] for path in applied for n, one in enumerate(path) if _is_item(one)}
    return frozenset(
        path
        for path in fields & replaced
        if len(_items(value_at(manifest, path[:-1]), path[-1])) > 1
    )


def shown(path: Path) -> str:
    """Return a path as messages write it: ``.spec.containers[name="c"].image``."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            keys = _json_value(rest) or {}
            joined = ",".join(f"{key}={encode(value).decode()}" for key, value in keys.items())
            text += f"[{joined}]"
        elif kind == "v":
            text += f"[={rest}]"
        elif kind == "i":
            text += f"[{rest}]"
    return text
