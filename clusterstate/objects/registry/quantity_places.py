"""Where amounts and times are in objects of each kind, and how equal ones compare.

Kubernetes decodes every amount when it reads an object, so ``0.5`` is returned as ``500m``, and
objects with equal amounts are equal, however these are written: that decides immutable fields,
generations and templates. Here documents hold texts. Admission writes them as Kubernetes would
(``make_canonical``); in an update it keeps the stored text if the amount is the same
(``keep_equal``), so that later text comparisons compare amounts.

Times, too, are decoded and rewritten: in UTC, to the second or the microsecond. An invalid time
breaks every typed client that lists the object, so no object is stored with one.

Rules: ``Quantity.UnmarshalJSON``, apimachinery ``api/resource/quantity.go``; ``equality.Semantic``,
apimachinery ``api/equality/semantic.go``; ``Time.UnmarshalJSON``, apimachinery ``meta/v1/time.go``,
v1.36.
"""

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from clusterstate.objects.registry import wire_types
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import moments
from clusterstate.objects.values.errors import INVALID, FieldError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity, QuantityError
from clusterstate.objects.values.remembered import remembered

_AMOUNT: Final = "an amount"
_TIME: Final = "a time"
_MICRO_TIME: Final = "a time with microseconds"
_TIMES: Final = {wire_types.SCALARS["Time"]: _TIME, wire_types.SCALARS["MicroTime"]: _MICRO_TIME}
_QUANTITY: Final = frozenset(get_args(wire_types.SCALARS["Quantity"]))


class _Each(msgspec.Struct, frozen=True):
    """A list or map whose items are or contain quantities or times."""

    item: "_Place"


_Place = str | _Each | dict[str, "_Place"]
"""What stands there, or what leads to it: an object's members that do, or all of it."""


def write_as_text(kind: str, manifest: Manifest) -> None:
    """Write amounts that are numbers as text, in place; ``manifest`` has the types of its kind."""
    for holder, key, leaf in _leaves(_of_kind(kind), manifest):
        if leaf == _AMOUNT and not isinstance(holder[key], str):
            holder[key] = msgspec.json.encode(holder[key]).decode()


def make_canonical(kind: str, manifest: Manifest) -> None:
    """Write the amounts and times of an object as Kubernetes gives them out, in place.

    Spaces around it are no part of an amount. What is no quantity or no time stays for validation
    to name.
    """
    for holder, key, leaf in _leaves(_of_kind(kind), manifest):
        holder[key] = _canonical(holder[key], leaf)


def impossible_times(kind: str, manifest: Manifest) -> list[FieldError]:
    """Return an error for each text that stands where a time does and is none."""
    found = []
    for holder, key, leaf in _leaves(_of_kind(kind), manifest):
        if leaf != _AMOUNT and not _is_time(holder[key]):
            path = next(_paths_to(manifest, holder, ""))
            where = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".lstrip(".")
            detail = "must be an RFC 3339 time with a zone, such as 2026-01-31T12:00:00Z"
            found.append(FieldError(INVALID, where, holder[key], detail))
    return found


def keep_equal(kind: str, new: Manifest, old: Manifest) -> None:
    """Write quantities of ``new`` that equal those in ``old`` in the notation of ``old``, in place.

    Items of lists with names are matched by name.
    """
    _keep(_of_kind(kind), new, old)


def of_template(template: Manifest) -> Manifest:
    """Return a copy of a pod template with its quantities as values that compare by amount."""
    copy: Manifest = msgspec.json.decode(msgspec.json.encode(template))
    for holder, key, leaf in _leaves(_TEMPLATE, copy):
        if leaf == _AMOUNT:
            holder[key] = _amount(holder[key])
    return copy


@remembered(16_384, longest=64)
def _canonical_amount(written: Any) -> Any:
    try:
        return str(Quantity.parse(written.strip() if isinstance(written, str) else written))
    except QuantityError:
        return written


def _canonical(written: Any, leaf: str) -> Any:
    if leaf == _AMOUNT:
        return _canonical_amount(written)
    try:
        return moments.canonical(written, micro=leaf == _MICRO_TIME)
    except (TypeError, ValueError):
        return written


def _is_time(written: Any) -> bool:
    try:
        moments.parse(written)
    except (TypeError, ValueError):
        return False
    return True


def _paths_to(value: Any, target: Any, path: str) -> Iterator[str]:
    """Yield the path of ``target``, compared by identity, within ``value``."""
    if value is target:
        yield path
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _paths_to(child, target, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _paths_to(child, target, f"{path}[{index}]")


def _amount(written: Any) -> Any:
    try:
        return Quantity.parse(written)
    except QuantityError:
        return written


# The walk -------------------------------------------------------------------------------------


def _leaves(place: _Place, value: Any) -> list[tuple[Any, Any, str]]:
    """Return each list or object that holds an amount or a time, its index or key, and which."""
    found: list[tuple[Any, Any, str]] = []
    _find_leaves(place, value, found)
    return found


def _find_leaves(place: _Place, value: Any, found: list[tuple[Any, Any, str]]) -> None:
    if isinstance(place, dict):
        if not isinstance(value, dict):
            return
        for key, below in place.items():
            if key in value:
                _find_leaf(below, value, key, found)
    elif isinstance(place, _Each) and isinstance(value, dict | list):
        for at in value if isinstance(value, dict) else range(len(value)):
            _find_leaf(place.item, value, at, found)


def _find_leaf(below: _Place, holder: Any, key: Any, found: list[tuple[Any, Any, str]]) -> None:
    if not isinstance(below, str):
        _find_leaves(below, holder[key], found)
    elif _is_written(holder[key]):
        found.append((holder, key, below))


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
        if not isinstance(below, str):
            _keep(below, after, before)
        elif (
            below == _AMOUNT
            and _is_written(after)
            and _is_written(before)
            and _amount(after) == _amount(before)
        ):
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
    """Return the fields of a wire type that are or contain quantities or times."""
    hints = get_type_hints(wire_type, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(wire_type):
        place = _of_hint(hints[field.name])
        if place is not None:
            found[field.encode_name] = place
    return found


def _of_hint(hint: Any) -> _Place | None:
    """Return where values of a type hint contain quantities or times, ``None``: nowhere."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _TIMES.get(hint)
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
