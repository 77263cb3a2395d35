"""An edit and what others changed meanwhile, put together."""

from typing import Any

import pytest

from api.console.objects.merging import merge


def of(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "resourceVersion": str(len(spec))}, "spec": spec}


@pytest.mark.parametrize(
    ("base", "mine", "theirs", "merged", "taken", "clashes"),
    [
        ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}, [], []),
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}, ["spec.a"], []),
        ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}, ["spec.b"], []),
        ({"a": 1}, {"a": 2}, {"a": 3}, {"a": 2}, [], ["spec.a"]),
        ({"a": 1, "b": 1}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2}, ["spec.b"], []),
        ({"a": 1, "b": 1}, {"a": 1, "b": 2}, {"b": 1}, {"b": 2}, ["spec.a"], []),
        ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"b": 1}, {"a": 2, "b": 1}, [], ["spec.a"]),
        ({}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, ["spec.b"], []),
        ({"l": [1]}, {"l": [1, 2]}, {"l": [0, 1]}, {"l": [1, 2]}, [], ["spec.l"]),
        (
            {"m": {"x": 1}}, {"m": {"x": 1, "y": 2}}, {"m": {"x": 3}}, {"m": {"x": 3, "y": 2}},
            ["spec.m.x"], [],
        ),
    ],
)  # fmt: skip
def test_each_member_is_of_who_changed_it(
    base: Any, mine: Any, theirs: Any, merged: Any, taken: Any, clashes: Any
) -> None:
    stored = {**of(**theirs), "metadata": {"name": "x", "resourceVersion": "9"}}
    found = merge(of(**base), of(**mine), stored)
    assert found.manifest["spec"] == merged
    assert list(found.adopted) == taken
    assert [one.path for one in found.clashes] == clashes
    assert found.manifest["metadata"]["resourceVersion"] == "9"
