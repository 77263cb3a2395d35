"""Where the amounts stand in objects of each kind, and what equal amounts mean there.

Kubernetes decodes every amount when it reads an object, so ``0.5`` is given out as ``500m``, and
objects whose amounts are equal are equal, however these are written: updates of fields that may not
change, generations and templates are all judged so. Here documents hold texts. Admission writes
them as Kubernetes would (``make_canonical``); of an update it keeps the stored text where the
amount is the same (``keep_equal``), so that whoever compares texts afterwards compares amounts.

Rules: ``Quantity.UnmarshalJSON``, apimachinery ``api/resource/quantity.go``;
``equality.Semantic``, apimachinery ``api/equality/semantic.go``, v1.36.
"""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from clusterstate.objects.registry import wire_types
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity, QuantityError
from clusterstate.objects.values.remembered import remembered

_AMOUNT: Final = "an amount"
_QUANTITY: Final = frozenset(get_args(wire_types.Quantity))


class _Each(msgspec.Struct, frozen=True):
    """A list whose items, or an object all of whose members, are or hold amounts."""

    item: "_Place"


_Place = str | _Each | dict[str, "_Place"]
"""``_AMOUNT``, or what leads to amounts: an object's members that do, or all of it."""


def write_as_text(kind: str, manifest: Manifest) -> None:
    """Write amounts that are numbers as text, in place; ``manifest`` has the types of its kind."""
    for holder, key in _amounts(_of_kind(kind), manifest):
        if not isinstance(holder[key], str):
            holder[key] = msgspec.json.encode(holder[key]).decode()


def make_canonical(kind: str, manifest: Manifest) -> None:
    """Write the amounts of an object as Kubernetes gives them out, in place.

    Spaces around it are no part of an amount. What is no quantity stays for validation to name.
    """
    for holder, key in _amounts(_of_kind(kind), manifest):
        holder[key] = _canonical(holder[key])


def keep_equal(kind: str, new: Manifest, old: Manifest) -> None:
    """Write the amounts of ``new`` that ``old`` has, too, as ``old`` writes them, in place.

    Items of lists that have names are found by these.
    """
    _keep(_of_kind(kind), new, old)


def of_template(template: Manifest) -> Manifest:
    """Return a copy of a pod template in which amounts, which compare as such, replace texts."""
    copy: Manifest = msgspec.json.decode(msgspec.json.encode(template))
    for holder, key in _amounts(_TEMPLATE, copy):
        holder[key] = _amount(holder[key])
    return copy


@remembered(16_384, longest=64)
def _canonical(written: Any) -> Any:
    try:
        return str(Quantity.parse(written.strip() if isinstance(written, str) else written))
    except QuantityError:
        return written


def _amount(written: Any) -> Any:
    try:
        return Quantity.parse(written)
    except QuantityError:
        return written


# The walk -------------------------------------------------------------------------------------


def _amounts(place: _Place, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each list or object that holds an amount, and the amount's index or key."""
    members: Any
    if isinstance(place, dict):
        if not isinstance(value, dict):
            return
        members = [(key, below) for key, below in place.items() if value.get(key) is not None]
    elif isinstance(place, _Each) and isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        members = [(key, place.item) for key in keys]
    else:
        return
    for key, below in members:
        if below != _AMOUNT:
            yield from _amounts(below, value[key])
        elif _is_written(value[key]):
            yield value, key


def _keep(place: _Place, new: Any, old: Any) -> None:
    if type(new) is not type(old) or new == old:
        return
    if isinstance(place, dict):
        members = [(key, key, below) for key, below in place.items() if key in new and key in old]
    elif isinstance(place, _Each):
        pairs = _pairs(new, old)
        members = [(key, partner, place.item) for key, partner in pairs]
    else:
        return
    for key, partner, below in members:
        before, after = old[partner], new[key]
        if below != _AMOUNT:
            _keep(below, after, before)
        elif _is_written(after) and _is_written(before) and _amount(after) == _amount(before):
            new[key] = before


def _pairs(new: Any, old: Any) -> list[tuple[Any, Any]]:
    """Return the keys, or the indexes, of members of two objects or lists that belong together."""
    if isinstance(new, dict):
        return [(key, key) for key in new if key in old]
    named = {one["name"]: index for index, one in enumerate(old) if _has_name(one)}
    found = []
    for index, one in enumerate(new):
        partner = named.get(one["name"]) if _has_name(one) else index
        if partner is not None and partner < len(old):
            found.append((index, partner))
    return found


def _has_name(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)


def _is_written(value: Any) -> bool:
    return isinstance(value, str | int | float)


# The places -----------------------------------------------------------------------------------


@cache
def _of_kind(kind: str) -> _Place:
    return _of_type(KINDS[kind].wire_type) or {}


@cache
def _of_type(wire_type: type[msgspec.Struct]) -> dict[str, _Place]:
    """Return the members of an object that are or hold amounts."""
    hints = get_type_hints(wire_type)
    found = {}
    for field in msgspec.structs.fields(wire_type):
        place = _of_hint(hints[field.name])
        if place is not None:
            found[field.encode_name] = place
    return found


def _of_hint(hint: Any) -> _Place | None:
    """Return the place of values of a type, None if they hold no amounts."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        some = [one for one in args if one is not type(None)]
        if frozenset(some) == _QUANTITY:
            return _AMOUNT
        return _of_hint(some[0]) if len(some) == 1 else None
    if origin in (list, dict):
        item = _of_hint(args[-1])
        return None if item is None else _Each(item)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _of_type(hint) or None
    return None


_TEMPLATE: Final[_Place] = _of_type(wire_types.PodTemplateSpec)
