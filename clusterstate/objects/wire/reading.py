"""Texts of others become values: JSON and YAML, with limits that hold before anything is built.

Depth, number of values and size are counted while a text is read, so that no text can exhaust the
stack or the memory, and no single call into C runs long enough to hold up the process's other
threads. What comes out holds no NUL character (PostgreSQL cannot store one), no lone surrogate and
no number that JSON cannot say.

YAML is read from libyaml's events, never by its composer, which descends once per level in C and
ends the process at the bottom of the stack. Plain scalars mean what sigs.k8s.io/yaml says they mean
(goyaml.v2 ``resolve.go``): integers of 64 bits in base 10, 16, 8 and 2, times and numbers beyond
the range of a float stay text, and there are no base-60 numbers. One difference is meant: ``yes``,
``no``, ``on``, ``off``, ``y`` and ``n`` are text, as YAML 1.2 has it, not booleans.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import yaml

from clusterstate.objects.values.errors import BadRequest, TooLarge

MAX_DEPTH: Final = 100
"""Levels of lists and objects; the deepest Kubernetes type has fewer than 30."""

MAX_VALUES: Final = 2_000_000
"""Values in a JSON text: 32 MiB of PodList have about half as many."""

MAX_YAML_BYTES: Final = 3 << 20
"""Size of a YAML text, and of the texts in it with its aliases written out (kube-apiserver's limit
for any body). Tools send lists as JSON."""

MAX_YAML_VALUES: Final = 500_000
"""Values in a YAML text with its aliases written out: they are built in Python, at 1-2 us each."""

_PIECE_BYTES: Final = 256 << 10
"""What is decoded in one call: a millisecond or two."""

_PIECE_LEVELS: Final = 6
"""How far down a large text is taken apart; lists of objects lie in the second or third level."""

_COUNT_BYTES: Final = 4 << 20

_decode = msgspec.json.decode


# JSON -----------------------------------------------------------------------------------------


def read_json(raw: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        BadRequest: not JSON, nested too deeply, too many values, or a text in it holds a NUL
            character.
    """
    try:
        if len(raw) <= _PIECE_BYTES:
            value = _decode(raw)
            # As many brackets as levels at least: most texts need no walk.
            if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
                raise _too_deep()
            if b"\\u0000" in raw:
                _refuse_nul(value)
            return value
        _count_values(raw)
        return _in_pieces(raw, 0, nul=_contains(raw, b"\\u0000"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from error
    except RecursionError:
        raise _too_deep() from None


class _Repeating(dict[str, Any]):
    """An object in which members stand more than once; ``repeated`` are their names."""

    repeated: list[str]


def repeated_fields(raw: bytes) -> list[str]:
    """Return the paths of members that stand more than once in a text that ``read_json`` reads.

    Of such members the last one counts. This takes ten times as long as reading.
    """
    found = False

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        found = True
        counted = Counter(name for name, _ in pairs)
        repeating = _Repeating(value)
        repeating.repeated = [name for name, count in counted.items() if count > 1]
        return repeating

    value = json.loads(raw, object_pairs_hook=members)
    return list(_repeated(value, "")) if found else []


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        own = set(value.repeated) if isinstance(value, _Repeating) else set()
        for name, child in value.items():
            where = f"{path}.{name}" if path else name
            if name in own:
                yield where
            yield from _repeated(child, where)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _repeated(child, f"{path}[{index}]")


def read_embedded(text: str, wire_type: Any) -> Any:
    """Parse JSON text from an annotation; the value must be of ``wire_type``.

    Raises:
        ValueError: not JSON, nested too deeply, or of another type.
    """
    try:
        value = read_json(text.encode())
    except BadRequest as error:
        raise ValueError(error.message.replace("the body", "the text", 1)) from error
    msgspec.convert(value, wire_type)  # a ValidationError is a ValueError
    return value


def _count_values(raw: bytes) -> None:
    """Refuse a text that may have too many values, by its commas and brackets, also in strings."""
    found = 0
    for start in range(0, len(raw), _COUNT_BYTES):
        found += sum(raw.count(mark, start, start + _COUNT_BYTES) for mark in (b",", b"[", b"{"))
        if found > MAX_VALUES:
            raise _too_many(MAX_VALUES)


def _contains(raw: bytes, part: bytes) -> bool:
    return any(
        raw.find(part, start, start + _COUNT_BYTES + len(part)) >= 0
        for start in range(0, len(raw), _COUNT_BYTES)
    )


def _in_pieces(raw: bytes | msgspec.Raw, level: int, *, nul: bool) -> Any:
    """Return the value of a large text, decoded in many calls, between which others may run."""
    view = memoryview(raw)
    if len(view) > _PIECE_BYTES and level < _PIECE_LEVELS:
        opening = bytes(view[:64]).lstrip(b" \t\r\n")[:1]
        if opening == b"{":
            members = _decode(raw, type=dict[str, msgspec.Raw])
            if nul:
                for key in members:
                    _refuse_nul(key)
            return {k: _in_pieces(v, level + 1, nul=nul) for k, v in members.items()}
        if opening == b"[":
            items = _decode(raw, type=list[msgspec.Raw])
            return [_in_pieces(item, level + 1, nul=nul) for item in items]
    value = _decode(raw)
    if is_deeper(value, MAX_DEPTH - level):
        raise _too_deep()
    if nul:
        _refuse_nul(value)
    return value


def _too_deep() -> BadRequest:
    return BadRequest(f"the body is nested too deeply: deeper than {MAX_DEPTH} levels")


def _too_many(limit: int) -> BadRequest:
    return BadRequest(f"the body has too many values: more than {limit}")


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested deeper than ``levels``; never recurses."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def _refuse_nul(value: Any) -> None:
    """Raise BadRequest when a text in ``value``, which is not deep, holds a NUL character."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if "\0" in each:
                raise BadRequest("the body holds a text with a NUL character (U+0000)")
        elif isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def repeated_keys(raw: bytes) -> list[tuple[int, str]]:
    """Return the keys that stand again in a map of a YAML text that ``read_yaml`` reads.

    Each with its line, counted from 1. The last of such keys counts, as in JSON; of merge keys
    (``<<``) all do, so they are not among them.
    """
    found: list[tuple[int, str]] = []
    # A map's keys and whether a key comes next; None for a list.
    stack: list[tuple[set[str], list[bool]] | None] = []
    loader = yaml.CSafeLoader(raw.decode("utf-8-sig"))
    try:
        next_event: Callable[[], Any] = loader.get_event
        while (event := next_event()) is not None:
            kind = type(event)
            if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                stack.pop()
                continue
            if kind is yaml.ScalarEvent or kind is yaml.AliasEvent or kind in _STARTS:
                above = stack[-1] if stack else None
                if above is not None:
                    keys, expects_key = above
                    if expects_key[0] and kind is yaml.ScalarEvent and not _is_merge(event):
                        if event.value in keys:
                            found.append((event.start_mark.line + 1, event.value))
                        keys.add(event.value)
                    expects_key[0] = not expects_key[0]
            if kind in _STARTS:
                stack.append((set(), [True]) if kind is yaml.MappingStartEvent else None)
    finally:
        loader.dispose()
    return found


def refuse_repeated_keys(raw: bytes) -> None:
    """Refuse a YAML text that ``read_yaml`` reads, where a key stands again in a map.

    For texts that a person writes, where it is unclear which of the two is meant.

    Raises:
        BadRequest: it names the first few of these keys with their lines.
    """
    if found := repeated_keys(raw):
        text = "; ".join(f"line {line} repeats {key!r}" for line, key in found[:_MOST_TOLD])
        raise BadRequest(f"duplicate key in a map: {text}")


_MOST_TOLD: Final = 5
_STARTS: Final = (yaml.MappingStartEvent, yaml.SequenceStartEvent)

# YAML -----------------------------------------------------------------------------------------


def read_yaml(raw: bytes) -> Any:
    """Return the value of the one document of a YAML text, None for an empty one.

    Raises:
        BadRequest: not YAML, more than one document, nested too deeply, too many values with its
            aliases written out, or something that JSON cannot say.
        TooLarge: it is too long, as it stands or with its aliases written out.
    """
    documents = read_yaml_documents(raw)
    value = next(documents, None)
    for _ in documents:
        raise BadRequest("the body is not valid YAML: expected a single document")
    return value


def read_yaml_documents(
    raw: bytes, *, max_bytes: int = MAX_YAML_BYTES, max_values: int = MAX_YAML_VALUES
) -> Iterator[Any]:
    """Yield the values of a YAML text's documents; raises as ``read_yaml`` does."""
    if len(raw) > max_bytes:
        raise TooLarge(f"the YAML is larger than the limit of {max_bytes} bytes")
    try:
        text = raw.decode("utf-8-sig")
        if len(_DIRECTIVES.findall(text)) > _MAX_DIRECTIVES:
            raise BadRequest("the body is not valid YAML: too many directives")
        yield from _Builder(max_bytes=max_bytes, max_values=max_values).documents(text)
    except (yaml.YAMLError, ValueError) as error:
        shown = " ".join(str(error).split())
        raise BadRequest(f"the body is not valid YAML: {shown}") from error


# libyaml compares each %TAG with all before it, in one call.
_DIRECTIVES: Final = re.compile("(?:^|[\n\r\x85\u2028\u2029])%")
_MAX_DIRECTIVES: Final = 20

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NO_JSON: Final = frozenset(
    sign + word
    for word in (".inf", ".Inf", ".INF")
    for sign in ("", "+", "-")
) | {".nan", ".NaN", ".NAN"}  # fmt: skip
_MAY_BE_NUMBER: Final = frozenset("0123456789+-.")
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))"
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INTEGER_BOUNDS: Final = (-(1 << 63), (1 << 64) - 1)
_MAX_NUMBER: Final = 400
"""Characters of a number; no client means a longer row of digits as text."""

_TAG: Final = "tag:yaml.org,2002:"


def _plain(text: str) -> Any:
    """Return the value of a plain (unquoted) YAML scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _MAY_BE_NUMBER:
        return text
    if text in _NO_JSON:
        raise ValueError(f"{text} has no JSON form")
    number = text.replace("_", "")
    if len(number) > _MAX_NUMBER:
        if number[1:].isdecimal():
            raise ValueError("a number has too many digits")
        return text
    match = _INTEGER.fullmatch(number)
    if match is not None:
        sign, hexadecimal, binary, octal, decimal = match.groups()
        if hexadecimal:
            value = int(hexadecimal, 16)
        elif binary:
            value = int(binary, 2)
        elif octal:
            value = int(octal, 8)
        else:
            value = int(decimal)
        if sign == "-":
            value = -value
        if _INTEGER_BOUNDS[0] <= value <= _INTEGER_BOUNDS[1]:
            return value
    if _FLOAT.fullmatch(number):
        real = float(number)
        if real - real != 0:
            return text  # beyond a float's range
        return int(real) if real.is_integer() and abs(real) < 1 << 53 else real
    return text


def _tagged(tag: str, text: str) -> Any:
    """Return the value of a YAML scalar with an explicit tag."""
    name = tag.removeprefix(_TAG)
    if name in ("!", "str"):
        return text
    value = _plain(text)
    types_by_tag: dict[str, tuple[type, ...]] = {
        "null": (type(None),),
        "bool": (bool,),
        "int": (int,),
        "float": (int, float),
    }
    types = types_by_tag.get(name)
    if types is None:
        raise ValueError(f"the tag {tag[:60]} is not supported")
    if not isinstance(value, types) or (isinstance(value, bool) and name != "bool"):
        raise ValueError(f"cannot read {text[:60]!r} as {name}")
    return value


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise ValueError(f"{'null' if value is None else 'a list or map'} cannot be a key")


def _is_merge(event: Any) -> bool:
    """Return whether a scalar, as a key, brings the members of other maps in."""
    plain: bool = event.tag is None and event.implicit[0]
    return plain and event.value == "<<"


class _Merge:
    """The key ``<<``."""


_MERGE: Final = _Merge()
_NO_KEY: Final = object()


class _Frame:
    """A list or map that is being built, and its size with aliases expanded."""

    __slots__ = ("anchor", "height", "key", "merged", "size", "value", "values")

    def __init__(self, value: Any, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        self.key: Any = _NO_KEY
        self.merged: list[Any] = []
        self.values = 1
        self.size = 0
        self.height = 1


class _Builder:
    """Builds values from events with a stack of its own."""

    def __init__(self, *, max_bytes: int, max_values: int) -> None:
        self._max_size = max_bytes
        self._max_values = max_values
        self._values = 0
        self._size = 0
        self._stack: list[_Frame] = []
        # Anchor -> value, values in it, size of its texts, levels.
        self._anchors: dict[str, tuple[Any, int, int, int]] = {}
        self._result: Any = None

    def documents(self, text: str) -> Iterator[Any]:
        loader = yaml.CSafeLoader(text)
        try:
            # The stubs know no attributes of events.
            next_event: Callable[[], Any] = loader.get_event
            while (event := next_event()) is not None:
                kind = type(event)
                if kind is yaml.ScalarEvent:
                    self._scalar(event)
                elif kind is yaml.MappingStartEvent:
                    self._open({}, event, "map")
                elif kind is yaml.SequenceStartEvent:
                    self._open([], event, "seq")
                elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                    self._close()
                elif kind is yaml.AliasEvent:
                    self._alias(event.anchor)
                elif kind is yaml.DocumentStartEvent:
                    self._result = None
                    self._anchors.clear()
                elif kind is yaml.DocumentEndEvent:
                    yield self._result
        finally:
            loader.dispose()

    def _scalar(self, event: Any) -> None:
        text = event.value
        if "\0" in text:
            raise ValueError("a text holds a NUL character (U+0000)")
        tag = event.tag
        plain = tag is None and event.implicit[0]
        value = _plain(text) if plain else text if tag is None else _tagged(tag, text)
        frame = self._stack[-1] if self._stack else None
        is_key = frame is not None and frame.key is _NO_KEY and isinstance(frame.value, dict)
        if is_key and _is_merge(event):
            value = _MERGE
        self._weigh(1, len(text))
        if event.anchor is not None:
            self._anchors[event.anchor] = ("<<" if value is _MERGE else value, 1, len(text), 0)
        self._put(value, 1, len(text), 0)

    def _open(self, value: Any, event: Any, name: str) -> None:
        if event.tag not in (None, "!", _TAG + name):
            raise ValueError(f"the tag {event.tag[:60]} is not supported")
        if len(self._stack) >= MAX_DEPTH:
            raise _too_deep()
        self._weigh(1, 0)
        self._stack.append(_Frame(value, event.anchor))

    def _close(self) -> None:
        frame = self._stack.pop()
        value = frame.value
        if frame.merged:
            below: dict[str, Any] = {}
            for each in reversed(frame.merged):
                below.update(each)
            value = below | value
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (value, frame.values, frame.size, frame.height)
        self._put(value, frame.values, frame.size, frame.height)

    def _alias(self, anchor: str) -> None:
        anchored = self._anchors.get(anchor)
        if anchored is None:
            raise ValueError(f"found undefined alias {anchor[:60]!r}")
        value, values, size, height = anchored
        if len(self._stack) + height > MAX_DEPTH:
            raise _too_deep()
        self._weigh(values, size)
        self._put(_copy(value), values, size, height)

    def _weigh(self, values: int, size: int) -> None:
        self._values += values
        self._size += size
        if self._values > self._max_values:
            raise _too_many(self._max_values)
        if self._size > self._max_size:
            raise TooLarge(f"the YAML expands to more than {self._max_size} bytes")

    def _put(self, value: Any, values: int, size: int, height: int) -> None:
        """Add a finished value to the list or map under construction."""
        if not self._stack:
            self._result = value
            return
        frame = self._stack[-1]
        frame.values += values
        frame.size += size
        frame.height = max(frame.height, height + 1)
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is _NO_KEY:
            frame.key = value if value is _MERGE else _key(value)
        else:
            key, frame.key = frame.key, _NO_KEY
            if key is _MERGE:
                frame.merged += _maps(value)
            else:
                frame.value[key] = value


def _maps(value: Any) -> list[dict[str, Any]]:
    """Return the maps that YAML's merge key (``<<``) brings in; earlier ones take precedence."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise ValueError("map merge requires map or sequence of maps as the value")
    return found


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_copy(child) for child in value]
    return value
