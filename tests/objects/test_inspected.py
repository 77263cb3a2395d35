"""What the wire types consist of is inspected once for all of them."""

import msgspec
import pytest

from clusterstate.objects.registry import inspected
from clusterstate.objects.registry.kinds import ALL_KINDS, VIEWS


def test_a_type_consists_of_what_msgspec_says_of_it_alone() -> None:
    for kind in (*ALL_KINDS, *VIEWS.values()):
        assert inspected.of_struct(kind.wire_type) == msgspec.inspect.type_info(kind.wire_type)


def test_no_type_is_inspected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = ALL_KINDS[0].wire_type
    first = inspected.of_struct(pod)
    monkeypatch.delattr(msgspec.inspect, "type_info")
    monkeypatch.delattr(msgspec.inspect, "multi_type_info")
    assert inspected.of_struct(pod) is first
    assert all(inspected.of_struct(kind.wire_type).fields for kind in ALL_KINDS)


class _Own(msgspec.Struct):
    name: str


def test_a_type_that_is_none_of_them_is_inspected_as_well() -> None:
    assert [one.name for one in inspected.of_struct(_Own).fields] == ["name"]
