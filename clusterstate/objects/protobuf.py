"""Kubernetes' objects in protobuf: manifests as JSON has them to and from bytes.

A body is the letters ``k8s`` and a NUL, then a ``runtime.Unknown`` around the object's own message;
a watch event is a ``meta.v1.WatchEvent`` behind its length. ``protobuf_fields`` has the field
numbers, generated. Rules: k8s.io/apimachinery ``runtime/serializer/protobuf/protobuf.go``,
``meta/v1/time_proto.go``, ``api/resource/generated.proto``, ``util/intstr``, v1.36.

* Go writes fields that are no pointers even when they are zero, so zero and empty count as absent
  there; a pointer keeps them (``replicas: 0``, ``selector: {}``).
* Unknown fields are skipped, as protobuf does, since a newer client may send them. A value that
  JSON has and protobuf has no field for is not written.
* ``bytes`` are base64 in JSON; a time of no length is no time.

Reading is bounded: ``decode`` takes the most values that a body may hold, since each costs memory.
"""

import base64
import binascii
import datetime as dt
import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from clusterstate.objects.document import parse_time
from clusterstate.objects.errors import BadRequest
from clusterstate.objects.protobuf_fields import MESSAGES
from clusterstate.objects.reading import read_json

Manifest = dict[str, Any]

MAGIC = b"k8s\x00"
"""What a body begins with (protobuf.go ``protoEncodingPrefix``)."""
MOST_VALUES = 2_000_000
"""Values that one body may hold, unless the caller says less."""
_DEEPEST = 4
"""How deep objects may lie in RawExtensions of each other; Kubernetes' own lie two deep."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_META_KINDS = {
    "APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "CreateOptions",
    "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "Status", "UpdateOptions",
    "WatchEvent",
}  # fmt: skip
"""Kinds of meta.k8s.io that are sent under the apiVersion of any group."""


class Malformed(ValueError):
    """The bytes are no protobuf message, or not one of the expected shape; says what is wrong."""


class UnknownKind(LookupError):
    """There is no protobuf message for the object; the message names its kind."""


class TooManyValues(ValueError):
    """A body holds more values than it may."""


def message_of(api_version: str, kind: str) -> str | None:
    """Return the name of the message of a kind, ``None`` where protobuf has none.

    ``v1beta1`` of a group whose ``v1`` came since has the fields of ``v1``.
    """
    if kind in _META_KINDS:
        return f"meta.v1.{kind}"
    group, _, version = api_version.rpartition("/")
    package = group.partition(".")[0] or "core"
    for known in (version, "v1" if version == "v1beta1" else version):
        if (name := f"{package}.{known}.{kind}") in MESSAGES:
            return name
    return None


# --- Reading --------------------------------------------------------------------------------------


class _Budget:
    """Counts the values of one body, and the objects that lie in each other."""

    __slots__ = ("depth", "left")

    def __init__(self, most: int) -> None:
        self.left = most
        self.depth = 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it.

    Raises:
        Malformed: it is cut off, or longer than 64 bits.
    """
    number = shift = 0
    while True:
        try:
            byte = data[at]
        except IndexError:
            raise Malformed("a number is cut off") from None
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise Malformed("a number is longer than 64 bits")


def _skip(data: bytes, at: int, wire: int, end: int) -> int:
    """Return the place behind a value that is skipped."""
    if wire == _VARINT:
        at = _varint(data, at)[1]
    elif wire == _LENGTH:
        size, at = _varint(data, at)
        at += size
    elif wire == _FIXED64:
        at += 8
    elif wire == _FIXED32:
        at += 4
    else:
        raise Malformed(f"wire type {wire} is not used by Kubernetes")
    if at > end:
        raise Malformed("a field is cut off")
    return at


Reader = Callable[[bytes, int, int, _Budget], Any]
"""Reads the value between two places; numbers are read by ``_number``, with the value itself."""


def _text(data: bytes, at: int, end: int, budget: _Budget) -> str:
    try:
        text = data[at:end].decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"a text is not UTF-8: {error.reason}") from None
    if "\0" in text:
        raise Malformed("a text holds a NUL character (U+0000), which PostgreSQL cannot store")
    return text


def _base64(data: bytes, at: int, end: int, budget: _Budget) -> str:
    return base64.b64encode(data[at:end]).decode()


def _json(data: bytes, at: int, end: int, budget: _Budget) -> Any:
    """Read a RawExtension or FieldsV1: JSON, or another object in protobuf."""
    raw = dict(pairs(data, at, end)).get(1, b"")
    if not isinstance(raw, bytes):
        raise Malformed("a JSON value is a number")
    if not raw:
        return None
    if raw.startswith(MAGIC):
        return _decode(raw, budget)
    try:
        return read_json(raw)
    except BadRequest as error:
        raise Malformed(f"a JSON value does not parse: {error.message}") from None


def _time(data: bytes, at: int, end: int, budget: _Budget, *, fraction: bool = False) -> str | None:
    if at == end:
        return None
    parts = dict(pairs(data, at, end))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise Malformed("a time is no number")
    try:
        moment = _EPOCH + dt.timedelta(seconds=_signed(seconds))
    except OverflowError:
        raise Malformed("a time lies outside of the years 1 to 9999") from None
    if not 0 <= nanos < 10**9:
        raise Malformed("the nanoseconds of a time are not between 0 and 999999999")
    text = moment.replace(tzinfo=None).isoformat()
    return f"{text}.{nanos // 1000:06d}Z" if fraction else f"{text}Z"


def _micro_time(data: bytes, at: int, end: int, budget: _Budget) -> str | None:
    return _time(data, at, end, budget, fraction=True)


def _quantity(data: bytes, at: int, end: int, budget: _Budget) -> str:
    raw = dict(pairs(data, at, end)).get(1, b"")
    if not isinstance(raw, bytes):
        raise Malformed("a quantity is a number")
    return _text(raw, 0, len(raw), budget) or "0"


def _int_or_string(data: bytes, at: int, end: int, budget: _Budget) -> int | str:
    parts = dict(pairs(data, at, end))
    if parts.get(1, 0):
        raw = parts.get(3, b"")
        if not isinstance(raw, bytes):
            raise Malformed("a text is a number")
        return _text(raw, 0, len(raw), budget)
    value = parts.get(2, 0)
    if not isinstance(value, int):
        raise Malformed("a number has a length")
    return _signed32(value)


def _strings(data: bytes, at: int, end: int, budget: _Budget) -> list[str]:
    found = []
    for number, raw in pairs(data, at, end):
        if number == 1 and isinstance(raw, bytes):
            budget.left -= 1
            found.append(_text(raw, 0, len(raw), budget))
    return found


def pairs(data: bytes, at: int, end: int) -> list[tuple[int, int | bytes]]:
    """Return the fields of a small message: number, and a number or bytes."""
    found: list[tuple[int, int | bytes]] = []
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            found.append((number, value))
        elif wire == _LENGTH:
            size, at = _varint(data, at)
            if at + size > end:
                raise Malformed("a field is cut off")
            found.append((number, data[at : at + size]))
            at += size
        else:
            at = _skip(data, at, wire, end)
    return found


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _signed32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


_READERS: dict[str, Reader] = {
    "string": _text,
    "bytes": _base64,
    "time": _time,
    "micro-time": _micro_time,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
    "json": _json,
    "strings": _strings,
}
_NUMBERS: dict[str, Callable[[int], int | bool]] = {
    "int32": _signed32,
    "int64": _signed,
    "bool": bool,
}
_KEEPS_EMPTY = {"int-or-string", "quantity"}
_ONE, _MANY, _MAP, _INLINE = range(4)


class _Field(msgspec.Struct, frozen=True):
    """One field of a message, in both directions."""

    name: str
    number: int
    kind: str
    """A type of ``_READERS`` or ``_NUMBERS``, or the full name of a message."""
    shape: int
    pointer: bool


@cache
def _fields(message: str) -> tuple[_Field, ...]:
    """Return the fields of a message."""
    package, _, _ = message.rpartition(".")
    found = []
    for entry in MESSAGES[message].split(", ") if MESSAGES[message] else ():
        name, number, kind = entry.split(" ")
        shape, pointer = _ONE, kind.endswith("?")
        for ending, meaning in (("[]", _MANY), ("{}", _MAP), ("+", _INLINE)):
            if kind.endswith(ending):
                shape = meaning
        kind = kind.rstrip("[]{}+?")
        if kind not in _READERS and kind not in _NUMBERS and "." not in kind:
            kind = f"{package}.{kind}"
        found.append(_Field(name, int(number), kind, shape, pointer or kind in _KEEPS_EMPTY))
    return tuple(found)


@cache
def _by_tag(message: str) -> dict[int, _Field]:
    """Return the fields of a message by tag: number and wire type."""
    return {
        (field.number << 3)
        | (_VARINT if field.kind in _NUMBERS and field.shape != _MAP else _LENGTH): field
        for field in _fields(message)
    }


def _read(message: str, data: bytes, at: int, end: int, budget: _Budget) -> Manifest:
    """Return the message between two places as JSON has it."""
    table = _by_tag(message)
    result: Manifest = {}
    while at < end:
        tag, at = _varint(data, at)
        field = table.get(tag)
        if field is None:
            at = _read_unusual(table, tag, data, at, end, result, budget)
            continue
        budget.left -= 1
        if budget.left < 0:
            raise TooManyValues
        kind = field.kind
        if tag & 7 == _VARINT:
            number, at = _varint(data, at)
            value: Any = _NUMBERS[kind](number)
            if field.shape == _MANY:
                result.setdefault(field.name, []).append(value)
            elif value or field.pointer:
                result[field.name] = value
            continue
        size, at = _varint(data, at)
        stop = at + size
        if stop > end:
            raise Malformed("a field is cut off")
        if field.shape == _MAP:
            key, value = _entry(kind, data, at, stop, budget)
            result.setdefault(field.name, {})[key] = value
        else:
            reader = _READERS.get(kind)
            value = (
                _read(kind, data, at, stop, budget)
                if reader is None
                else reader(data, at, stop, budget)
            )
            if field.shape == _MANY:
                result.setdefault(field.name, []).append(value)
            elif field.shape == _INLINE:
                result.update(value)
            elif value or (field.pointer and value is not None):
                result[field.name] = value
        at = stop
    return result


def _read_unusual(
    table: dict[int, _Field],
    tag: int,
    data: bytes,
    at: int,
    end: int,
    result: Manifest,
    budget: _Budget,
) -> int:
    """Read numbers that are packed into one field; skip every other field."""
    field = table.get(tag & ~7)
    if field is None or tag & 7 != _LENGTH or field.shape != _MANY:
        return _skip(data, at, tag & 7, end)
    size, at = _varint(data, at)
    stop = at + size
    if stop > end:
        raise Malformed("a field is cut off")
    values = result.setdefault(field.name, [])
    while at < stop:
        number, at = _varint(data, at)
        budget.left -= 1
        if budget.left < 0:
            raise TooManyValues
        values.append(_NUMBERS[field.kind](number))
    if at != stop:
        raise Malformed("a number is cut off")
    return at


def _entry(kind: str, data: bytes, at: int, end: int, budget: _Budget) -> tuple[str, Any]:
    """Return key and value of a map's entry."""
    parts = dict(pairs(data, at, end))
    key, value = parts.get(1, b""), parts.get(2, b"")
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        raise Malformed("an entry of a map is a number")
    reader = _READERS.get(kind)
    name = _text(key, 0, len(key), budget)
    if reader is None:
        return name, _read(kind, value, 0, len(value), budget)
    return name, reader(value, 0, len(value), budget)


def decode(data: bytes, *, most: int = MOST_VALUES) -> Manifest:
    """Return the object in a body, with ``apiVersion`` and ``kind``.

    Args:
        data: the whole body.
        most: how many values (fields, items, entries) it may hold.

    Raises:
        Malformed: the bytes are not such a body.
        UnknownKind: the object has no message.
        TooManyValues: it holds more than ``most`` values.
    """
    return _decode(data, _Budget(most))


def _decode(data: bytes, budget: _Budget) -> Manifest:
    if not data.startswith(MAGIC):
        raise Malformed("the body is not in Kubernetes' protobuf form")
    budget.depth += 1
    if budget.depth > _DEEPEST:
        raise Malformed(f"objects lie more than {_DEEPEST} deep in each other")
    unknown = dict(pairs(data, len(MAGIC), len(data)))
    header, raw = unknown.get(1, b""), unknown.get(2, b"")
    if not isinstance(header, bytes) or not isinstance(raw, bytes):
        raise Malformed("the envelope holds a number")
    if unknown.get(3):
        raise Malformed("the body is encoded (contentEncoding)")
    types = _read("runtime.TypeMeta", header, 0, len(header), budget)
    api_version, kind = types.get("apiVersion", ""), types.get("kind", "")
    message = message_of(api_version, kind)
    if message is None:
        raise UnknownKind(f"{api_version}, Kind={kind}")
    return {**types, **_read(message, raw, 0, len(raw), budget)}


# --- Writing --------------------------------------------------------------------------------------


def _number_bytes(number: int) -> bytes:
    """Return a number as a varint; negative ones take ten bytes, as protobuf has it."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    number &= 0xFFFFFFFFFFFFFFFF
    parts = bytearray()
    while number >= 0x80:
        parts.append((number & 0x7F) | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


_SMALL = [bytes([number]) for number in range(0x80)]


def _with_length(data: bytes) -> bytes:
    return _number_bytes(len(data)) + data


def _write_text(value: Any) -> bytes:
    return str(value).encode()


def _write_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise Malformed(f"a value is not base64: {error}") from None


def _write_json(value: Any) -> bytes:
    return b"\x0a" + _with_length(msgspec.json.encode(value))


def _write_time(value: Any) -> bytes:
    try:
        moment = parse_time(value)
    except (TypeError, ValueError, OverflowError):
        raise Malformed(f"{value!r} is no time") from None
    delta = moment - _EPOCH
    seconds = delta // _SECOND
    nanos = (delta % _SECOND).microseconds * 1000
    return b"\x08" + _number_bytes(seconds) + b"\x10" + _number_bytes(nanos)


def _write_quantity(value: Any) -> bytes:
    return b"\x0a" + _with_length(str(value).encode())


def _write_int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00\x1a" + _with_length(value.encode())
    return b"\x08\x00\x10" + _number_bytes(int(value)) + b"\x1a\x00"


def _write_strings(value: Any) -> bytes:
    return b"".join(b"\x0a" + _with_length(str(text).encode()) for text in value)


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "string": _write_text,
    "bytes": _write_base64,
    "time": _write_time,
    "micro-time": _write_time,
    "quantity": _write_quantity,
    "int-or-string": _write_int_or_string,
    "json": _write_json,
    "strings": _write_strings,
}


class _Written(msgspec.Struct, frozen=True):
    """A field of a message, ready to be written: its tag's bytes and what writes the value."""

    tag: bytes
    kind: str
    shape: int
    writer: Callable[[Any], bytes] | None
    """``None``: a number, or a message."""
    is_number: bool


@cache
def _by_name(message: str) -> tuple[dict[str, _Written], tuple[tuple[bytes, str], ...]]:
    """Return a message's fields by name, and the messages that JSON shows inline."""
    fields, inline = {}, []
    for field in _fields(message):
        is_number = field.kind in _NUMBERS
        wire = _VARINT if is_number and field.shape != _MAP else _LENGTH
        tag = _number_bytes(field.number << 3 | wire)
        if field.shape == _INLINE:
            inline.append((tag, field.kind))
        else:
            fields[field.name] = _Written(
                tag, field.kind, field.shape, _WRITERS.get(field.kind), is_number
            )
    return fields, tuple(inline)


def _value_bytes(field: _Written, value: Any) -> bytes:
    """Return one value, behind its length where it has one."""
    if field.is_number:
        return _number_bytes(int(value))
    if field.writer is not None:
        return _with_length(field.writer(value))
    return _with_length(_write(field.kind, value))


def _write(message: str, value: Mapping[str, Any]) -> bytes:
    """Return a manifest's part as the message."""
    fields, inline = _by_name(message)
    parts: list[bytes] = []
    for name, item in value.items():
        field = fields.get(name)
        if field is None or item is None:
            continue
        if field.shape == _ONE:
            parts.append(field.tag)
            parts.append(_value_bytes(field, item))
        elif field.shape == _MANY:
            for one in item:
                parts.append(field.tag)
                parts.append(_value_bytes(field, one))
        else:
            for key, one in item.items():
                entry = b"\x0a" + _with_length(key.encode()) + b"\x12" + _value_bytes(field, one)
                parts.append(field.tag)
                parts.append(_with_length(entry))
    for tag, kind in inline:
        inner = _write(kind, {k: v for k, v in value.items() if k not in fields})
        parts.append(tag)
        parts.append(_with_length(inner))
    return b"".join(parts)


def encode(manifest: Mapping[str, Any]) -> bytes:
    """Return an object, with ``apiVersion`` and ``kind``, as a body.

    Raises:
        UnknownKind: the object has no message.
        Malformed: a value has no form in protobuf, such as a time that does not parse.
    """
    api_version, kind = manifest.get("apiVersion") or "", manifest.get("kind") or ""
    message = message_of(api_version, kind)
    if message is None:
        raise UnknownKind(f"{api_version}, Kind={kind}")
    return envelope(api_version, kind, _write(message, manifest))


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return a body around an object's message."""
    types = b"\x0a" + _with_length(api_version.encode()) + b"\x12" + _with_length(kind.encode())
    return b"".join(
        (MAGIC, b"\x0a", _with_length(types), b"\x12", _with_length(raw), b"\x1a\x00\x22\x00")
    )


def watch_event(verb: str, body: bytes) -> bytes:
    """Return a frame of a watch: four bytes of length (big endian), then a WatchEvent.

    ``verb`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; ``body`` an object's body.
    """
    extension = b"\x0a" + _with_length(body)
    event = b"\x0a" + _with_length(verb.encode()) + b"\x12" + _with_length(extension)
    return struct.pack(">I", len(event)) + event
