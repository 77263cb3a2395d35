"""A time is a time in every field of every kind, and is stored as Kubernetes gives it out."""

import copy
import importlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api.forms import wire
from clusterstate.objects.registry import quantity_places, wire_types
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values import moments
from clusterstate.objects.values.errors import BadRequest, Invalid

IMPOSSIBLE = (
    "2026-02-30T00:00:00Z", "2023-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-01T24:00:00Z",
    "2026-01-01T00:60:00Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00z", "2026-01-01t00:00:00Z",
    "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.Z", "2026-W01-1T00:00:00Z",
    "2026-01-01T00:00:00+25:00", "2026-01-01T00:00:00+0100", "2026-01-01T00:00:00Z\n", "",
    "\uff12026-01-01T00:00:00Z", "12026-01-01T00:00:00Z",
)  # fmt: skip
WRITTEN = {
    # What Go's time.Parse reads: what Kubernetes gives out of it in a Time, and in a MicroTime.
    "2026-01-01T00:00:00Z": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z"),
    "2024-02-29T23:59:59.987654321Z": ("2024-02-29T23:59:59Z", "2024-02-29T23:59:59.987654Z"),
    "2026-01-01T00:00:00,5Z": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.500000Z"),
    "2026-01-01T3:04:05Z": ("2026-01-01T03:04:05Z", "2026-01-01T03:04:05.000000Z"),
    "2026-01-01T00:30:00+01:00": ("2025-12-31T23:30:00Z", "2025-12-31T23:30:00.000000Z"),
    "2026-01-01T00:00:00-24:60": ("2026-01-02T01:00:00Z", "2026-01-02T01:00:00.000000Z"),
    "0000-02-29T00:00:00Z": ("0000-02-29T00:00:00Z", "0000-02-29T00:00:00.000000Z"),
    "9999-12-31T23:59:59-01:00": ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000Z"),
}


def paths(info: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Yield how each time of a type is reached, and whether it has microseconds.

    By the types alone, as msgspec reads them: nothing of what is tested says where times are.
    """
    inspect = msgspec.inspect
    if isinstance(info, inspect.UnionType):
        for one in info.types:
            yield from paths(one, above)
    elif isinstance(info, inspect.StructType) and info.cls not in above:
        for field in info.fields:
            for path, micro in paths(field.type, (*above, info.cls)):
                yield (field.encode_name, *path), micro
    elif isinstance(info, inspect.ListType):
        for path, micro in paths(info.item_type, above):
            yield (0, *path), micro
    elif isinstance(info, inspect.DictType):
        for path, micro in paths(info.value_type, above):
            yield ("member", *path), micro
    elif isinstance(info, inspect.StrType) and info.pattern in _PATTERNS:
        yield (), info.pattern == wire_types.MICRO_TIME


_PATTERNS = (moments.TIME, wire_types.MICRO_TIME)
PLACES = [
    pytest.param(kind, path, micro, id=f"{kind.name}-{'.'.join(map(str, path))}")
    for kind in ALL_KINDS
    for path, micro in paths(msgspec.inspect.type_info(kind.wire_type))
    if path[:1] != ("metadata",) or kind.name == "Pod"
]


def with_time(path: tuple[Any, ...], text: str) -> dict[str, Any]:
    value: Any = text
    for step in reversed(path):
        value = [value] if step == 0 else {step: value}
    found = {"metadata": {"name": "n"}}
    for key, inner in value.items():
        found[key] = {**found.get(key, {}), **inner} if isinstance(inner, dict) else inner
    return found


def at(manifest: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        manifest = manifest[step]
    return manifest


def test_there_are_times_of_both_kinds() -> None:
    assert len(PLACES) > 60
    assert {micro for *_, micro in (one.values for one in PLACES)} == {True, False}


@pytest.mark.parametrize(("kind", "path", "micro"), PLACES)
def test_what_is_no_time_is_refused_in_every_field(kind: Any, path: Any, micro: bool) -> None:
    for text in IMPOSSIBLE:
        body = with_time(path, text)
        where = "disruptedPods" if path[-1] == "member" else path[-1]
        with pytest.raises(BadRequest, match=f"{where}.*RFC 3339 time"):
            wire.manifest(copy.deepcopy(body), kind)
        with pytest.raises(Invalid):
            wire.patched(copy.deepcopy(body), kind, "", wire.NOT_TWICE)
        # Who does not come over the wire is told so by admission.
        (error,) = quantity_places.impossible_times(kind.name, body)
        assert error.bad_value == text
        assert error.field.split(".")[-1] == path[-1]


@pytest.mark.parametrize(("kind", "path", "micro"), PLACES)
def test_times_are_stored_as_kubernetes_gives_them_out(kind: Any, path: Any, micro: bool) -> None:
    for text, expected in WRITTEN.items():
        manifest, _ = wire.manifest(with_time(path, text), kind)
        quantity_places.make_canonical(kind.name, manifest)
        assert at(manifest, path) == expected[micro]
        assert quantity_places.impossible_times(kind.name, manifest) == []
        again = copy.deepcopy(manifest)
        quantity_places.make_canonical(kind.name, again)
        assert again == manifest


# --- What versions of before have stored -----------------------------------------------------

migration = importlib.import_module("migrations.0047_possible_times")


@pytest.mark.parametrize(("kind", "path", "micro"), PLACES)
def test_the_migration_knows_the_field(kind: Any, path: Any, micro: bool) -> None:
    text = msgspec.json.encode(with_time(path, "2026-02-30T00:00:00Z")).decode()
    assert msgspec.json.decode(migration.mended(text)) == with_time(path, "2026-02-28T00:00:00Z")


@pytest.mark.parametrize(
    ("stored", "nearest"),
    [
        ("2026-02-30T10:00:00Z", "2026-02-28T10:00:00Z"),
        ("2024-02-30T10:00:00Z", "2024-02-29T10:00:00Z"),
        ("2026-13-32T10:00:00Z", "2026-12-31T10:00:00Z"),
        ("2026-00-00T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("2026-01-01T24:00:00Z", "2026-01-01T23:59:59Z"),
        ("2026-01-01T10:61:60.25Z", "2026-01-01T10:59:59.25Z"),
        ("2026-01-01T10:00:00+99:99", "2026-01-01T10:00:00+24:59"),
        ("2026-01-01T10:00:00Z\\n", "2026-01-01T10:00:00Z"),
        ("\uff12026-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("202\u0666-01-01T10:00:00Z", "2026-01-01T10:00:00Z"),
        ("2026-01-01T10:00:00.5Z", "2026-01-01T10:00:00.5Z"),
    ],
)
def test_what_is_stored_becomes_the_nearest_time(stored: str, nearest: str) -> None:
    before = f'{{"status":{{"conditions":[{{"lastProbeTime":"{stored}"}}\x01]}}}}'
    assert migration.mended(before) == before.replace(stored, nearest)


def test_texts_that_only_look_like_times_stay() -> None:
    date = "2026-02-30T00:00:00Z"
    free = {
        "metadata": {"annotations": {"startTime": date}, "labels": {"time": date}},
        "data": {"startTime": date},
        "spec": {"args": ["time", date], "message": f'"startTime":"{date}"'},
    }
    text = msgspec.json.encode(free).decode()
    assert migration.mended(text) == text


def test_every_kind_is_among_them() -> None:
    assert {one.values[0].name for one in PLACES} <= set(KINDS)
