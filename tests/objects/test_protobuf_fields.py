"""The table of protobuf messages fits together, and has the fields that JSON has."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from clusterstate.objects.wire import protobuf_fields
from tools import generate_wire_types

VALUES = {
    "string", "bool", "int32", "int64", "bytes", "time", "micro-time", "duration", "quantity",
    "int-or-string", "json", "strings",
}  # fmt: skip
OLDER = {
    "core.v1.NodeAllocatableResourceClaimStatus": {"resources"},
    "resource.v1.Device": {"nodeAllocatableResourceMappings"},
}
"""Fields of 1.36, of features in alpha, which the definitions of 1.37 replace."""

Messages = dict[str, str]


class Field(NamedTuple):
    name: str
    number: int
    type: str
    """A value, or the full name of a message."""
    is_inline: bool


def short(full_name: str) -> str:
    """Return a definition's name as the table has it: ``core.v1.Pod``, ``meta.v1.ObjectMeta``."""
    for before in ("io.k8s.", "apimachinery.pkg.", "apis.", "api."):
        full_name = full_name.removeprefix(before)
    return full_name


def fields_of(messages: Messages, name: str) -> Iterator[Field]:
    package = name.rpartition(".")[0]
    for entry in messages[name].split(", ") if messages[name] else ():
        field, number, kind = entry.split(" ")
        plain = kind.rstrip("?+[]{}")
        full = plain if plain in VALUES or "." in plain else f"{package}.{plain}"
        yield Field(field, int(number), full, kind.endswith("+"))


def shown(messages: Messages, name: str) -> set[str]:
    """Return the fields that an object of a message has in JSON."""
    found: set[str] = set()
    for field in fields_of(messages, name):
        found |= shown(messages, field.type) if field.is_inline else {field.name}
    return found


def problems(messages: Messages) -> list[str]:
    """Return what does not fit together, and what JSON does not know."""
    found = []
    for name in messages:
        fields = list(fields_of(messages, name))
        if len({field.number for field in fields}) < len(fields):
            found.append(f"{name}: a number stands twice")
        found += [
            f"{name}.{field.name}: there is no message {field.type}"
            for field in fields
            if field.type not in VALUES and field.type not in messages
        ]
    if found:
        return found
    for full_name, definition in generate_wire_types.definitions().items():
        name = short(full_name)
        if name in messages and "properties" in definition:
            strange = shown(messages, name) - set(definition["properties"]) - OLDER.get(name, set())
            found += [f"{name}: JSON has no {field}" for field in sorted(strange)]
    return found


def test_the_table_fits_together_and_has_the_fields_of_json() -> None:
    assert problems(protobuf_fields.MESSAGES) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("target 2", "tarjet 2", "core.v1.Binding: JSON has no tarjet"),
        ("target 2", "target 1", "core.v1.Binding: a number stands twice"),
        ("ObjectReference", "Reference", "target: there is no message core.v1.Reference"),
    ],
)
def test_what_does_not_fit_is_found(before: str, after: str, problem: str) -> None:
    binding = protobuf_fields.MESSAGES["core.v1.Binding"]
    assert before in binding
    wrong = protobuf_fields.MESSAGES | {"core.v1.Binding": binding.replace(before, after)}
    assert any(problem in one for one in problems(wrong))


def test_every_type_that_is_generated_has_a_message() -> None:
    """A served kind without one is answered 406 where it is asked for in protobuf."""
    roots = map(short, generate_wire_types.ROOTS)
    assert [one for one in roots if one not in protobuf_fields.MESSAGES] == []
