"""Kubernetes' objects in protobuf: converts manifests, as in JSON, to bytes and back.

A body is the letters ``k8s`` and a NUL, then a ``runtime.Unknown`` around the object's own message;
a watch event is its length, then a ``meta.v1.WatchEvent``. ``protobuf_fields`` has the field
numbers, generated. Rules: k8s.io/apimachinery ``runtime/serializer/protobuf/protobuf.go``,
``meta/v1/time_proto.go``, ``api/resource/generated.proto``, ``util/intstr``, v1.36.

* Go writes non-pointer fields even if they are zero, so a zero or empty value of such a field is
  read as absent; a pointer's value is kept (``replicas: 0``, ``selector: {}``).
* Unknown fields are skipped, as protobuf does, since a newer client may send them. A JSON value
  without a protobuf field is not written.
* ``bytes`` are base64 in JSON; a time of length 0 is absent.

``decode`` limits the number of values in a body, since each costs memory.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.wire.protobuf_fields import MESSAGES
from clusterstate.objects.wire.protobuf_values import (
    LENGTH,
    NUMBERS,
    READERS,
    VARINT,
    WRITERS,
    Malformed,
    entry,
    number_bytes,
    pairs,
    skip,
    strings,
    text,
    varint,
    with_length,
)
from clusterstate.objects.wire.reading import read_json

Manifest = dict[str, Any]

_META_NUMBERS: Final = {1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion"}
MAGIC = b"k8s\x00"
"""The beginning of a body (protobuf.go ``protoEncodingPrefix``)."""
MOST_VALUES = 2_000_000
"""Values in one body, unless the caller allows fewer."""
_LARGEST_PART = 2048
"""The most bytes of JSON text of a cached part; at most 4,096 parts are cached."""
_LARGEST = 8192
"""Bytes of JSON text of a cached whole object below another; 1,024 at most."""
_MOST_ITEMS = 8192
"""Cached items of a list, of ``_LARGEST_PART`` bytes at most; longer lists are not cached."""
_DEEPEST = 4
"""The deepest nesting of objects in RawExtensions; Kubernetes' own have two levels."""
_META_KINDS = {
    "APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "CreateOptions",
    "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "Status", "UpdateOptions",
    "WatchEvent",
}  # fmt: skip
"""Kinds of meta.k8s.io that are sent under the apiVersion of any group."""


class UnknownKind(LookupError):
    """There is no protobuf message for the object; the message names its kind."""


class TooManyValues(ValueError):
    """A body has more values than allowed."""


def message_of(api_version: str, kind: str) -> str | None:
    """Return the name of the message of a kind, ``None`` if protobuf has none.

    ``v1beta1`` of a group that has a ``v1`` now has the fields of ``v1``.
    """
    if kind in _META_KINDS:
        return f"meta.v1.{kind}"
    group, _, version = api_version.rpartition("/")
    package = group.partition(".")[0] or "core"
    for candidate in (version, "v1" if version == "v1beta1" else version):
        if (name := f"{package}.{candidate}.{kind}") in MESSAGES:
            return name
    return None


# --- Reading --------------------------------------------------------------------------------------


class _Budget:
    """Counts the values of one body, and the depth of its nested objects."""

    __slots__ = ("depth", "values")

    def __init__(self, most: int) -> None:
        self.values = most
        self.depth = 0


def _json(data: bytes, budget: _Budget) -> Any:
    """Read a RawExtension or FieldsV1: JSON, or another object in protobuf."""
    raw = dict(pairs(data, 0, len(data))).get(1, b"")
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


_KEEPS_EMPTY = {"int-or-string", "quantity"}
_ONE, _MANY, _MAP, _INLINE = range(4)


class _Field(msgspec.Struct, frozen=True):
    """One field of a message, for reading and writing."""

    name: str
    number: int
    kind: str
    """A type of ``READERS`` or ``NUMBERS``, json, or the full name of a message."""
    shape: int
    pointer: bool
    reader: Callable[[bytes], Any] | None
    """``None``: a number, or a value that consists of several."""


@cache
def _fields(message: str) -> tuple[_Field, ...]:
    """Return the fields of a message."""
    package, _, _ = message.rpartition(".")
    found = []
    for described in MESSAGES[message].split(", ") if MESSAGES[message] else ():
        name, number, kind = described.split(" ")
        shape, pointer = _ONE, kind.endswith("?")
        for ending, meaning in (("[]", _MANY), ("{}", _MAP), ("+", _INLINE)):
            if kind.endswith(ending):
                shape = meaning
        kind = kind.rstrip("[]{}+?")
        if kind not in WRITERS and kind not in NUMBERS and "." not in kind:
            kind = f"{package}.{kind}"
        keeps_empty = pointer or kind in _KEEPS_EMPTY
        found.append(_Field(name, int(number), kind, shape, keeps_empty, READERS.get(kind)))
    return tuple(found)


@cache
def _by_tag(message: str) -> dict[int, _Field]:
    """Return the fields of a message by tag: number and wire type."""
    return {
        (field.number << 3)
        | (VARINT if field.kind in NUMBERS and field.shape != _MAP else LENGTH): field
        for field in _fields(message)
    }


def _read(message: str, data: bytes, at: int, end: int, budget: _Budget) -> Manifest:
    """Return the message in ``data[at:end]``, as in JSON."""
    table = _by_tag(message)
    result: Manifest = {}
    while at < end:
        # A number below 128 is one byte, as most tags and lengths are.
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = varint(data, at)
        field = table.get(tag)
        if field is None:
            at = _read_unusual(table, tag, data, at, end, result, budget)
            continue
        budget.values -= 1
        if budget.values < 0:
            raise TooManyValues
        shape = field.shape
        if tag & 7 == VARINT:
            number, at = varint(data, at)
            value: Any = NUMBERS[field.kind](number)
            if shape == _MANY:
                result.setdefault(field.name, []).append(value)
            elif value or field.pointer:
                result[field.name] = value
            continue
        if at < end and data[at] < 0x80:
            stop = at + 1 + data[at]
            at += 1
        else:
            size, at = varint(data, at)
            stop = at + size
        if stop > end:
            raise Malformed("a field is cut off")
        if shape == _MAP:
            key, raw = entry(data[at:stop])
            name = text(key)
            reader = field.reader
            value = _deeper(field, raw, 0, len(raw), budget) if reader is None else reader(raw)
            result.setdefault(field.name, {})[name] = value
        else:
            reader = field.reader
            value = (
                _deeper(field, data, at, stop, budget) if reader is None else reader(data[at:stop])
            )
            if shape == _ONE:
                if value or (field.pointer and value is not None):
                    result[field.name] = value
            elif shape == _MANY:
                result.setdefault(field.name, []).append(value)
            else:
                result.update(value)
        at = stop
    return result


def _deeper(field: _Field, data: bytes, at: int, end: int, budget: _Budget) -> Any:
    """Return the value of a nested field in ``data[at:end]``; counts its parts in ``budget``."""
    if field.kind == "json":
        return _json(data[at:end], budget)
    if field.kind == "strings":
        found = strings(data[at:end])
        budget.values -= len(found)
        return found
    return _read(field.kind, data, at, end, budget)


def _read_unusual(
    table: dict[int, _Field],
    tag: int,
    data: bytes,
    at: int,
    end: int,
    result: Manifest,
    budget: _Budget,
) -> int:
    """Read a packed list of numbers into ``result``, or skip any other field; return its end."""
    field = table.get(tag & ~7)
    if field is None or tag & 7 != LENGTH or field.shape != _MANY:
        return skip(data, at, tag & 7, end)
    size, at = varint(data, at)
    stop = at + size
    if stop > end:
        raise Malformed("a field is cut off")
    values = result.setdefault(field.name, [])
    while at < stop:
        number, at = varint(data, at)
        budget.values -= 1
        if budget.values < 0:
            raise TooManyValues
        values.append(NUMBERS[field.kind](number))
    if at != stop:
        raise Malformed("a number is cut off")
    return at


def decode(data: bytes, *, most: int = MOST_VALUES) -> Manifest:
    """Return the object in a body, with ``apiVersion`` and ``kind``.

    Args:
        data: the whole body.
        most: the highest number of values (fields, items, entries).

    Raises:
        Malformed: the bytes are not such a body.
        UnknownKind: the object has no message.
        TooManyValues: the body has more than ``most`` values.
    """
    return _decode(data, _Budget(most))


def _decode(data: bytes, budget: _Budget) -> Manifest:
    if not data.startswith(MAGIC):
        raise Malformed("the body is not in Kubernetes' protobuf form")
    budget.depth += 1
    if budget.depth > _DEEPEST:
        raise Malformed(f"objects are nested deeper than {_DEEPEST} levels")
    unknown = dict(pairs(data, len(MAGIC), len(data)))
    header, raw = unknown.get(1, b""), unknown.get(2, b"")
    if not isinstance(header, bytes) or not isinstance(raw, bytes):
        raise Malformed("its typeMeta or raw field is a number")
    if unknown.get(3):
        raise Malformed("the body is encoded (contentEncoding)")
    types = _read("runtime.TypeMeta", header, 0, len(header), budget)
    api_version, kind = types.get("apiVersion", ""), types.get("kind", "")
    message = message_of(api_version, kind)
    if message is None:
        raise UnknownKind(f"{api_version}, Kind={kind}")
    return {**types, **_read(message, raw, 0, len(raw), budget)}


# --- Writing --------------------------------------------------------------------------------------


class _Written(msgspec.Struct, frozen=True):
    """A field of a message, prepared for writing: the bytes of its tag, and the value's writer."""

    tag: bytes
    kind: str
    shape: int
    writer: Callable[[Any], bytes] | None
    """``None``: a number, or a message."""
    is_number: bool
    is_text: bool
    """One text, written as it is."""


@cache
def _by_name(message: str) -> tuple[dict[str, _Written], tuple[tuple[bytes, str], ...]]:
    """Return a message's fields by name, and (tag, message) of those that JSON shows inline."""
    fields, inline = {}, []
    for field in _fields(message):
        is_number = field.kind in NUMBERS
        wire = VARINT if is_number and field.shape != _MAP else LENGTH
        tag = number_bytes(field.number << 3 | wire)
        if field.shape == _INLINE:
            inline.append((tag, field.kind))
        else:
            fields[field.name] = _Written(
                tag,
                field.kind,
                field.shape,
                WRITERS.get(field.kind),
                is_number,
                field.kind == "string" and field.shape == _ONE,
            )
    return fields, tuple(inline)


def _value_bytes(field: _Written, value: Any) -> bytes:
    """Return the bytes of one value, preceded by its length except for numbers."""
    if field.is_number:
        return number_bytes(int(value))
    if field.writer is not None:
        return with_length(field.writer(value))
    return with_length(_write(field.kind, value))


def _write(message: str, value: Mapping[str, Any]) -> bytes:
    """Return a part of a manifest as the bytes of a message."""
    fields, inline = _by_name(message)
    parts: list[bytes] = []
    for name, item in value.items():
        field = fields.get(name)
        if field is None or item is None:
            continue
        if field.shape == _ONE:
            if field.is_number:
                parts += (field.tag, number_bytes(int(item)))
                continue
            writer = field.writer
            data = _write(field.kind, item) if writer is None else writer(item)
            parts += (field.tag, number_bytes(len(data)), data)
        elif field.shape == _MANY:
            for one in item:
                parts.append(field.tag)
                parts.append(_value_bytes(field, one))
        else:
            for key, one in item.items():
                pair = b"\x0a" + with_length(key.encode()) + b"\x12" + _value_bytes(field, one)
                parts += (field.tag, number_bytes(len(pair)), pair)
    for tag, kind in inline:
        inner = _write(kind, {k: v for k, v in value.items() if k not in fields})
        parts.append(tag)
        parts.append(with_length(inner))
    return b"".join(parts)


def encode(manifest: Mapping[str, Any]) -> bytes:
    """Encode an object, with ``apiVersion`` and ``kind``, as Kubernetes' protobuf.

    Raises:
        UnknownKind: its kind has no protobuf message.
        Malformed: protobuf cannot express a value, such as a time that does not parse.
    """
    api_version, kind = manifest.get("apiVersion") or "", manifest.get("kind") or ""
    message = message_of(api_version, kind)
    if message is None:
        raise UnknownKind(f"{api_version}, Kind={kind}")
    return envelope(api_version, kind, _write(message, manifest))


def encode_text(text: bytes) -> bytes:
    """Return the JSON text of an object, or of a list of objects, as a body.

    The bytes are as from ``encode``. Pods of one owner are nearly equal, so the parts of
    ``metadata``, ``spec`` and ``status`` are cached by their text, and only new parts are decoded;
    so are the items of a list, most of which are unchanged in the next read.

    Raises:
        UnknownKind, Malformed: as ``encode``.
    """
    members = _members(text)
    api_version, kind = (
        msgspec.json.decode(members[name]) if name in members else ""
        for name in ("apiVersion", "kind")
    )
    message = message_of(api_version or "", kind or "")
    if message is None:
        raise UnknownKind(f"{api_version}, Kind={kind}")
    of_list = "items" in members and kind.endswith("List")
    return envelope(api_version, kind, _write_members(message, members, 2 if of_list else 1))


def encode_list(api_version: str, kind: str, metadata: Manifest, items: Sequence[bytes]) -> bytes:
    """Return a list of objects, given as JSON texts, as a body, as ``encode_text`` does.

    Raises:
        UnknownKind, Malformed: as ``encode``.
    """
    message = message_of(api_version, kind)
    if message is None:
        raise UnknownKind(f"{api_version}, Kind={kind}")
    parts = [_write(message, {"metadata": metadata})]
    parts += _listed(_by_name(message)[0]["items"], items)
    return envelope(api_version, kind, b"".join(parts))


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _write_members(message: str, members: Mapping[str, msgspec.Raw], levels: int) -> bytes:
    """Return fields of an object as a message; parts ``levels`` below it are cached."""
    fields, inline = _by_name(message)
    if inline:
        return _write(message, {name: msgspec.json.decode(raw) for name, raw in members.items()})
    parts: list[bytes] = []
    for name, raw in members.items():
        field = fields.get(name)
        if field is None:
            continue
        text = bytes(raw)
        if field.is_text and text.startswith(b'"') and b"\\" not in text:
            parts += (field.tag, number_bytes(len(text) - 2), text[1:-1])
        elif levels and field.writer is None and not field.is_number and field.shape != _MAP:
            if levels == 2 and name == "items" and text.startswith(b"["):
                parts += _listed(field, [bytes(one) for one in _items(text)])
                continue
            below = [raw] if text.startswith(b"{") else _items(text) if text[:1] == b"[" else []
            for one in below:
                if levels == 1 and name != "metadata" and len(one_text := bytes(one)) <= _LARGEST:
                    data = _object(field.kind, one_text)
                else:
                    data = _write_members(field.kind, _members(one), levels - 1)
                parts += (field.tag, number_bytes(len(data)), data)
        elif len(text) <= _LARGEST_PART:
            parts.append(_known_part(message, name, text))
        else:
            parts.append(_part(message, name, text))
    return b"".join(parts)


def _listed(field: _Written, items: Sequence[bytes]) -> list[bytes]:
    """Return the items of a list, given as JSON texts, as parts of its message."""
    largest = _LARGEST_PART if len(items) <= _MOST_ITEMS else 0
    parts: list[bytes] = []
    for one in items:
        if len(one) <= largest:
            data = _known_item(field.kind, one)
        else:
            data = _write_members(field.kind, _members(one), 1)
        parts += (field.tag, number_bytes(len(data)), data)
    return parts


def _object(message: str, text: bytes) -> bytes:
    """Return an object as a message, cached by its text without a first text field.

    A pod's spec begins with ``nodeName``; the rest is equal for all pods of one owner.
    """
    if first := _FIRST_TEXT.match(text):
        field = _by_name(message)[0].get(first[1].decode())
        if field is not None and field.is_text:
            value = first[2]
            rest = _known_object(message, b"{" + text[first.end() :])
            return b"".join((field.tag, number_bytes(len(value)), value, rest))
    return _known_object(message, text)


@lru_cache(maxsize=1024)
def _known_object(message: str, text: bytes) -> bytes:
    return _write_members(message, _members(text), 0)


@lru_cache(maxsize=_MOST_ITEMS)
def _known_item(message: str, text: bytes) -> bytes:
    return _write_members(message, _members(text), 1)


_FIRST_TEXT = re.compile(rb'\{"(\w+)":"([^"\\]*)",(?=")')


def _part(message: str, name: str, text: bytes) -> bytes:
    """Return one field of an object, given as JSON text, as bytes of the message."""
    return _write(message, {name: msgspec.json.decode(text)})


_known_part = lru_cache(maxsize=4096)(_part)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """Return an object's message as a body."""
    types = b"\x0a" + with_length(api_version.encode()) + b"\x12" + with_length(kind.encode())
    return b"".join(
        (MAGIC, b"\x0a", with_length(types), b"\x12", with_length(raw), b"\x1a\x00\x22\x00")
    )


def watch_event(verb: str, body: bytes) -> bytes:
    """Return a frame of a watch: four bytes of length (big endian), then a WatchEvent.

    ``verb`` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; ``body`` an object's body.
    """
    extension = b"\x0a" + with_length(body)
    event = b"\x0a" + with_length(verb.encode()) + b"\x12" + with_length(extension)
    return struct.pack(">I", len(event)) + event


def metadata_of(data: bytes) -> tuple[str, dict[str, str]]:
    """Return the kind of an object in protobuf, and the identifying fields of its metadata.

    The rest of the body is skipped. The second value is empty for lists.

    Raises:
        Malformed: the bytes are not such a body.
    """
    if not data.startswith(MAGIC):
        raise Malformed("it does not begin as Kubernetes' bodies do")
    envelope = dict(pairs(data, len(MAGIC), len(data)))
    head, raw = envelope.get(1), envelope.get(2)
    if not isinstance(head, bytes) or not isinstance(raw, bytes):
        raise Malformed("it holds no object")
    named = dict(pairs(head, 0, len(head))).get(2, b"")
    kind = named.decode() if isinstance(named, bytes) else ""
    metadata = next((value for number, value in pairs(raw, 0, len(raw)) if number == 1), b"")
    if kind.endswith("List") or kind == "Status" or not isinstance(metadata, bytes):
        return kind, {}
    return kind, {
        _META_NUMBERS[number]: value.decode()
        for number, value in pairs(metadata, 0, len(metadata))
        if number in _META_NUMBERS and isinstance(value, bytes)
    }
