"""Every field of every kind is acted upon, kept for others, warned of or refused: in one of these.

A new field in the generated types belongs nowhere until `field_table` or `silent_fields` names it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec
import pytest

from clusterstate.admission.warnings import warnings_for
from clusterstate.objects.registry import silent_fields
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, VIEWS
from clusterstate.objects.registry.silent_fields import SILENT, SILENT_LABELS
from tests.live import ROOT
from tests.objects import field_table

PLACES = {
    "acts": field_table.ACTS,
    "agents": field_table.AGENTS,
    "reported": field_table.REPORTED,
    "whole": field_table.WHOLE,
    "refused": field_table.REFUSED,
}
DECLARING = (
    "wire_types",
    "protobuf_fields",
    "silent_fields",
    "descriptions",
    "defaults",
    "field_sets",
)
"""Modules that name fields without acting upon them; so does validation."""


def structs_of(info: Any) -> list[type[msgspec.Struct]]:
    inspect = msgspec.inspect
    if isinstance(info, inspect.StructType):
        return [info.cls]
    if isinstance(info, inspect.UnionType):
        return [one for each in info.types for one in structs_of(each)]
    if isinstance(info, inspect.ListType):
        return structs_of(info.item_type)
    return structs_of(info.value_type) if isinstance(info, inspect.DictType) else []


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, list[type[msgspec.Struct]]]:
    found = msgspec.inspect.type_info(struct)
    return {field.encode_name: structs_of(field.type) for field in found.fields}


KINDS = (*ALL_KINDS, *VIEWS.values())


def reachable(
    roots: Iterable[Kind], *, also: Callable[[str, str], bool] = lambda struct, field: True
) -> dict[str, dict[str, list[type[msgspec.Struct]]]]:
    """Return the types to which fields of kinds lead, each with its fields and their types."""
    found: dict[str, dict[str, list[type[msgspec.Struct]]]] = {}
    waiting = [kind.wire_type for kind in roots]
    while waiting:
        struct = waiting.pop()
        if struct.__name__ not in found:
            found[struct.__name__] = fields_of(struct)
            for field, inner in found[struct.__name__].items():
                if also(struct.__name__, field):
                    waiting += inner
    return found


def is_looked_into(struct: str, field: str) -> bool:
    silent = SILENT.get((struct, field))
    is_warned_of = silent is not None and not silent.only
    return not is_warned_of and field not in field_table.WHOLE.get(struct, ())


def warned_of_as_a_whole() -> dict[str, Iterable[str]]:
    """Return the types that only what is warned of leads to, with their fields."""
    looked_into = reachable((kind for kind in KINDS if not kind.not_done), also=is_looked_into)
    named = {struct for place in PLACES.values() for struct in place}
    named |= {struct for struct, _ in SILENT}
    return {
        struct: fields
        for struct, fields in reachable(KINDS).items()
        if struct not in looked_into and struct not in named
    }


def test_every_field_is_in_exactly_one_place():
    named = Counter((struct, field) for place in (*PLACES.values(), warned_of_as_a_whole())
                    for struct, fields in place.items() for field in fields)  # fmt: skip
    named.update(key for key, silent in SILENT.items() if not silent.only)
    there = {(struct, field) for struct, fields in reachable(KINDS).items() for field in fields}
    assert there - named.keys() == set(), "fields of which nobody says what becomes of them"
    assert named.keys() - there == set(), "fields that no kind has"
    assert [field for field, times in named.items() if times > 1] == []


def test_what_is_silent_for_some_values_is_acted_upon_or_kept_for_agents_with_others():
    tables = (field_table.ACTS, field_table.AGENTS)
    for (struct, field), silent in SILENT.items():
        if silent.only:
            assert any(field in table.get(struct, ()) for table in tables)


def test_code_that_acts_names_the_fields_that_are_acted_upon():
    words: set[str] = set()
    for folder in ("clusterstate", "scheduling", "api"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.stem not in DECLARING and "validation" not in path.parts:
                words.update(re.findall(r"\w+", path.read_text()))
    unnamed = [
        (struct, field)
        for struct, fields in field_table.ACTS.items()
        for field in sorted(fields)
        if not {field, re.sub(r"(?<!^)([A-Z]+)", r"_\1", field).lower()} & words
    ]
    assert unnamed == []


@cache
def example(struct: type[msgspec.Struct], wanted: tuple[str, str], depth: int = 8) -> Any:
    """Return the smallest object of a type in which a field is set, ``None`` if none can be."""
    if struct.__name__ == wanted[0]:
        return {wanted[1]: value_for(wanted)}
    if depth:
        for field, inner in fields_of(struct).items():
            if field != "status" and (struct.__name__, field) not in SILENT:
                for one in inner:
                    found = example(one, wanted, depth - 1)
                    if found is not None:
                        info = next(
                            each for each in msgspec.inspect.type_info(struct).fields
                            if each.encode_name == field
                        )  # fmt: skip
                        is_list = any(
                            isinstance(member, msgspec.inspect.ListType)
                            for member in getattr(info.type, "types", (info.type,))
                        )
                        return {field: [found] if is_list else found}
    return None


def value_for(wanted: tuple[str, str]) -> Any:
    silent = SILENT[wanted]
    return silent.only[0] if silent.only else {"any": "thing"}


@pytest.mark.parametrize("wanted", sorted(SILENT), ids=".".join)
def test_whoever_sets_a_silent_field_is_told_why_nothing_comes_of_it(wanted):
    told = 0
    for kind in ALL_KINDS:
        body = example(kind.wire_type, wanted)
        if body is None or kind.not_done:
            continue
        found = silent_fields.warnings(kind.name, body)
        (text,) = found
        path, _, reason = text.partition(": ")
        assert (reason, wanted[1] in path) == (SILENT[wanted].reason, True), kind.name
        told += 1
    assert told, "no kind leads to it"


def test_a_template_is_looked_at_as_deep_as_a_pod():
    claim = {"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}}
    volume = {"name": "b", "ephemeral": {"volumeClaimTemplate": claim}}
    job = {"spec": {"template": {"spec": {"volumes": [{"name": "a"}, volume]}}}}
    (found,) = silent_fields.warnings("Job", job)
    assert found.startswith(
        "spec.template.spec.volumes[1].ephemeral.volumeClaimTemplate.spec.dataSource: the hollow"
    )


def test_a_value_that_asks_for_nothing_needs_no_warning():
    assert silent_fields.warnings("Pod", {"spec": {"automountServiceAccountToken": False}}) == []
    assert silent_fields.warnings("Service", {"spec": {"type": "ClusterIP"}}) == []
    assert silent_fields.warnings("Pod", {"spec": {"resourceClaims": []}}) == []


def test_labels_are_warned_of_when_they_are_set_and_not_again():
    for kind, labels in SILENT_LABELS.items():
        for key, silent in labels.items():
            new = {"metadata": {"labels": {key: "restricted"}}}
            assert warnings_for(kind, new, None) == [f"metadata.labels[{key}]: {silent.reason}"]
            assert warnings_for(kind, new, {"metadata": {}}) != []
            assert warnings_for(kind, new, new) == []
            harmless = {"metadata": {"labels": {key: "privileged"}}}
            assert warnings_for(kind, harmless, None) == []


def test_the_table_of_the_documentation_names_every_silent_field():
    text = (ROOT / "docs/fields.md").read_text()
    rows = set(re.findall(r"^\| `(.+?)` \| (.+?) \|$", text, re.MULTILINE))
    wanted = set()
    for (struct, field), silent in SILENT.items():
        values = f": {', '.join(map(str, silent.only))}" if silent.only else ""
        wanted.add((f"{struct}.{field}{values}", silent.reason))
    for kind, labels in SILENT_LABELS.items():
        wanted |= {(f"{kind}, label {key}", silent.reason) for key, silent in labels.items()}
    assert rows == wanted
