"""Single values in protobuf: numbers, texts, times, quantities, in both directions.

``protobuf`` composes messages of them. A reader takes the bytes of a value, a writer the value as
in JSON. Objects have the same few times and quantities over and over again, so short ones are
cached.
"""

import base64
import binascii
import datetime as dt
from collections.abc import Callable
from typing import Any, Final

import msgspec

from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.remembered import remembered

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND: Final = dt.timedelta(seconds=1)
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types."""
_MOST: Final = 4096


class Malformed(ValueError):
    """The bytes are no protobuf message, or have another shape; the message says what is wrong."""


# --- Reading --------------------------------------------------------------------------------------


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the offset after it.

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


def skip(data: bytes, at: int, wire: int, end: int) -> int:
    """Return the offset after a value, without reading it.

    Raises:
        Malformed: it is cut off, or of an unknown wire type.
    """
    if wire == VARINT:
        at = varint(data, at)[1]
    elif wire == LENGTH:
        size, at = varint(data, at)
        at += size
    elif wire == FIXED64:
        at += 8
    elif wire == FIXED32:
        at += 4
    else:
        raise Malformed(f"wire type {wire} is not used by Kubernetes")
    if at > end:
        raise Malformed("a field is cut off")
    return at


def pairs(data: bytes, at: int, end: int) -> list[tuple[int, int | bytes]]:
    """Return the fields of a small message: (number, integer or bytes).

    Raises:
        Malformed: a field is cut off.
    """
    found: list[tuple[int, int | bytes]] = []
    while at < end:
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = varint(data, at)
            found.append((number, value))
        elif wire == LENGTH:
            size, at = varint(data, at)
            if at + size > end:
                raise Malformed("a field is cut off")
            found.append((number, data[at : at + size]))
            at += size
        else:
            at = skip(data, at, wire, end)
    return found


def entry(data: bytes) -> tuple[bytes, bytes]:
    """Return key and value of a map's entry, as bytes.

    Raises:
        Malformed: one of them is an integer.
    """
    # Nearly always both come once, in order, and are shorter than 128 bytes.
    size = len(data)
    if size >= 4 and data[0] == 0x0A and data[1] < 0x80 and (middle := 2 + data[1]) + 2 <= size:
        length = data[middle + 1]
        if data[middle] == 0x12 and length < 0x80 and middle + 2 + length == size:
            return data[2:middle], data[middle + 2 :]
    parts = dict(pairs(data, 0, size))
    key, value = parts.get(1, b""), parts.get(2, b"")
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        raise Malformed("an entry of a map is a number instead of a message")
    return key, value


def text(data: bytes) -> str:
    """Return a text.

    Raises:
        Malformed: it is not UTF-8, or has a character that PostgreSQL cannot store.
    """
    try:
        found = data.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"a text is not UTF-8: {error.reason}") from None
    if "\0" in found:
        raise Malformed("a text holds a NUL character (U+0000), which PostgreSQL cannot store")
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@remembered(_MOST)
def _time(data: bytes) -> str | None:
    return _read_time(data)


def _micro_time(data: bytes) -> str | None:
    return _read_time(data, fraction=True)


def _read_time(data: bytes, *, fraction: bool = False) -> str | None:
    if not data:
        return None
    parts = dict(pairs(data, 0, len(data)))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise Malformed("a time is not a number")
    try:
        moment = _EPOCH + dt.timedelta(seconds=_signed(seconds))
    except OverflowError:
        raise Malformed("a time lies outside of the years 1 to 9999") from None
    if not 0 <= nanos < 10**9:
        raise Malformed("the nanoseconds of a time are not between 0 and 999999999")
    whole = moment.replace(tzinfo=None).isoformat()
    return f"{whole}.{nanos // 1000:06d}Z" if fraction else f"{whole}Z"


@remembered(_MOST)
def _quantity(data: bytes) -> str:
    raw = dict(pairs(data, 0, len(data))).get(1, b"")
    if not isinstance(raw, bytes):
        raise Malformed("a quantity is a number")
    return text(raw) or "0"


def _int_or_string(data: bytes) -> int | str:
    parts = dict(pairs(data, 0, len(data)))
    if parts.get(1, 0):
        raw = parts.get(3, b"")
        if not isinstance(raw, bytes):
            raise Malformed("a text is a number")
        return text(raw)
    value = parts.get(2, 0)
    if not isinstance(value, int):
        raise Malformed("a number has a length")
    return _signed32(value)


def strings(data: bytes) -> list[str]:
    """Return the texts of a message that consists of a list of texts."""
    found = pairs(data, 0, len(data))
    return [text(raw) for number, raw in found if number == 1 and isinstance(raw, bytes)]


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _signed32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "string": text,
    "bytes": _base64,
    "time": _time,
    "micro-time": _micro_time,
    "quantity": _quantity,
    "int-or-string": _int_or_string,
}
NUMBERS: Final[dict[str, Callable[[int], int | bool]]] = {
    "int32": _signed32,
    "int64": _signed,
    "bool": bool,
}


# --- Writing --------------------------------------------------------------------------------------


def number_bytes(number: int) -> bytes:
    """Return a number as a varint; negative numbers take ten bytes, as in protobuf."""
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


def with_length(data: bytes) -> bytes:
    """Return the bytes, preceded by their length."""
    return number_bytes(len(data)) + data


def _write_text(value: Any) -> bytes:
    return str(value).encode()


def _write_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise Malformed(f"a value is not base64: {error}") from None


def _write_json(value: Any) -> bytes:
    return b"\x0a" + with_length(msgspec.json.encode(value))


@remembered(_MOST)
def _write_time(value: Any) -> bytes:
    try:
        moment = parse_time(value)
    except (TypeError, ValueError, OverflowError):
        raise Malformed(f"{value!r} is no time") from None
    delta = moment - _EPOCH
    seconds = delta // _SECOND
    nanos = (delta % _SECOND).microseconds * 1000
    return b"\x08" + number_bytes(seconds) + b"\x10" + number_bytes(nanos)


def _write_quantity(value: Any) -> bytes:
    return b"\x0a" + with_length(str(value).encode())


def _write_int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return b"\x08\x01\x10\x00\x1a" + with_length(value.encode())
    return b"\x08\x00\x10" + number_bytes(int(value)) + b"\x1a\x00"


def _write_strings(value: Any) -> bytes:
    return b"".join(b"\x0a" + with_length(str(one).encode()) for one in value)


WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "string": _write_text,
    "bytes": _write_base64,
    "time": _write_time,
    "micro-time": _write_time,
    "quantity": _write_quantity,
    "int-or-string": _write_int_or_string,
    "json": _write_json,
    "strings": _write_strings,
}
