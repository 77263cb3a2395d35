"""Writes of the subresource ``status``: impossible amounts and counts are refused."""

import pytest

from clusterstate.admission.validation.kinds import validate
from clusterstate.admission.validation.workloads.statuses import _COUNTS, _PARTS

META = {"name": "one", "namespace": "ns", "resourceVersion": "1"}


def told(kind, status, before=None):
    new, old = ({"metadata": META, "status": one} for one in (status, before or {}))
    return {error.field: error.detail for error in validate(kind, new, old, "status")}


@pytest.mark.parametrize("kind", _COUNTS)
def test_no_count_of_a_status_is_below_zero(kind):
    for name in _COUNTS[kind]:
        assert f"status.{name}" in told(kind, {name: -1})
    assert told(kind, dict.fromkeys(_COUNTS[kind], 1)) == {}


@pytest.mark.parametrize("kind", [kind for kind, names in _COUNTS.items() if "replicas" in names])
def test_no_part_of_the_replicas_is_more_than_all_of_them(kind):
    counts = dict.fromkeys(_COUNTS[kind], 2)
    for name in _PARTS:
        if name in counts:
            assert f"status.{name}" in told(kind, {**counts, name: 3})
    assert told(kind, {**counts, "readyReplicas": 1}) == {
        "status.availableReplicas": "cannot be greater than readyReplicas"
    }


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "StatefulSet"])
def test_collisions_are_counted_upwards(kind):
    for count in ({"collisionCount": 1}, {}):
        assert list(told(kind, count, {"collisionCount": 2})) == ["status.collisionCount"]


@pytest.mark.parametrize("amount", ["-1", "-9.5Gi", "-1e30"])
@pytest.mark.parametrize(
    ("kind", "field", "name"),
    [
        ("PersistentVolumeClaim", "capacity", "storage"),
        ("PersistentVolumeClaim", "allocatedResources", "storage"),
        ("ResourceQuota", "hard", "pods"),
        ("ResourceQuota", "used", "requests.storage"),
    ],
)
def test_no_amount_of_a_status_is_below_zero(kind, field, name, amount):
    status = {field: {name: amount}}
    assert f"status.{field}[{name}]" in told(kind, status)
    assert told(kind, status, status) == {}, "it was there before"
    assert told(kind, {field: {name: "9223372036854775808"}}) == {}
