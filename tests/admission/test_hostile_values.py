"""Whatever text stands in a field, an object is admitted or refused, and soon: nothing fails.

Each field of each type gets, one after the other, texts that are the extremes of what is parsed
somewhere: very long numbers, percentages, amounts, schedules and names.
"""

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.registry.schema import type_problem
from clusterstate.objects.values.errors import StatusError
from tests.admission.context import create
from tests.api.bodies import body_of

LONG = 30_000
TEXTS = (
    "9" * 5_000,
    "9" * 400 + "%",
    "9" * 5_000 + "%",
    "1" * LONG + "x",
    "0." + "1" * LONG + "!",
    "1e" + "9" * 5_000,
    "1" * 3_000 + "Ki",
    "*/" + "1" * 5_000 + " * * * *",
    ",".join(map(str, range(LONG // 6))) + ",x",
    "a" * LONG + "!",
    "a." * (LONG // 2) + "!",
    "a-" * (LONG // 2) + "!",
    "/a" * (LONG // 2) + "\n",
    "²",
)
SECONDS = 0.4
"""Of the processor, for one object; what takes quadratic time takes seconds."""

Path = tuple[str | int, ...]


def _places(info: Any, seen: set[tuple[Any, str]]) -> Iterator[Path]:
    """Yield paths to the texts of a type, to each field of each type within it once."""
    inspect = msgspec.inspect
    kind = type(info)
    if kind is inspect.UnionType:
        for member in info.types:
            yield from _places(member, seen)
    elif kind is inspect.StructType:
        for field in info.fields:
            if (info.cls, field.encode_name) not in seen:
                seen.add((info.cls, field.encode_name))
                yield from ((field.encode_name, *path) for path in _places(field.type, seen))
    elif kind is inspect.ListType:
        yield from ((0, *path) for path in _places(info.item_type, seen))
    elif kind is inspect.DictType:
        yield from (("key", *path) for path in _places(info.value_type, seen))
    elif kind is inspect.StrType:
        yield ()


def _with(manifest: Any, path: Path, text: str) -> Any:
    """Return a copy of a manifest that has the text at a path; what lacks on the way is made."""
    if not path:
        return text
    step, rest = path[0], path[1:]
    if step == 0:
        items = list(manifest) if isinstance(manifest, list) and manifest else [None]
        return [_with(items[0], rest, text), *items[1:]]
    members = dict(manifest) if isinstance(manifest, dict) else {}
    return {**members, step: _with(members.get(step), rest, text)}


def _problem(kind: Kind, path: Path, text: str) -> str:
    """Return what goes wrong when an object with the text is created; empty if nothing does."""
    manifest = _with(body_of(kind, "name"), path, text)
    if type_problem(manifest, kind.wire_type):
        return ""
    began = time.process_time()
    try:
        create(manifest, kind=kind.name)
    except StatusError:
        pass
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    taken = time.process_time() - began
    return "" if taken < SECONDS else f"{taken:.1f} s"


SEEN: set[tuple[Any, str]] = set()
PLACES = {
    kind.name: list(_places(msgspec.inspect.type_info(kind.wire_type), SEEN)) for kind in ALL_KINDS
}


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_no_text_in_any_field_fails_or_takes_long(kind: Kind) -> None:
    wrong = [
        f"{'.'.join(map(str, path))}: {text[:20]}...: {problem}"
        for path in PLACES[kind.name]
        for text in TEXTS
        if (problem := _problem(kind, path, text))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_fields_of_all_types_are_among_them() -> None:
    assert sum(map(len, PLACES.values())) > 700
