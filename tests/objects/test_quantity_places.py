"""Amounts in objects: where they stand, how they are written, and which are equal."""

import copy
from typing import Any

import pytest

from clusterstate.objects.registry import quantity_places
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.rules import templates


def _pod(cpu: Any, *names: str) -> dict[str, Any]:
    containers = [{"name": name, "resources": {"limits": {"cpu": cpu}}} for name in names or "c"]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers}}


@pytest.mark.parametrize(
    ("written", "canonical"),
    [("0.5", "500m"), (0.5, "500m"), (2, "2"), ("1000m", "1"), ("1024Mi", "1Gi"),
     ("0.5Gi", "512Mi"),
     ("1e3", "1e3"), ("1048576", "1048576"), ("1Ki", "1Ki"), ("+.5", "500m"), (0, "0"),
     (" 2 ", "2"), ("1 0", "1 0"),
     ("much", "much"), ("", ""), (True, True)],
)  # fmt: skip
def test_amounts_are_written_as_kubernetes_does(written: Any, canonical: Any) -> None:
    manifest = _pod(written)
    quantity_places.make_canonical("Pod", manifest)
    assert manifest == _pod(canonical)
    assert type(manifest["spec"]["containers"][0]["resources"]["limits"]["cpu"]) is type(canonical)


def test_every_kind_of_place_is_found() -> None:
    """Members, lists, maps of amounts and maps of objects that have some."""
    for kind, manifest in (
        ("CSIStorageCapacity", {"capacity": "1024Ki"}),
        ("Job", {"spec": {"template": _pod("1024Ki")}}),
        ("CronJob", {"spec": {"jobTemplate": {"spec": {"template": _pod("1024Ki")}}}}),
        ("RuntimeClass", {"overhead": {"podFixed": {"memory": "1024Ki"}}}),
        ("Pod", {"spec": {"volumes": [{"emptyDir": {"sizeLimit": "1024Ki"}}]}}),
        ("Pod", {"status": {"containerStatuses": [{"allocatedResources": {"a": "1024Ki"}}]}}),
        ("LimitRange", {"spec": {"limits": [{"max": {"memory": "1024Ki"}}]}}),
        ("StatefulSet", {"spec": {"volumeClaimTemplates": [
            {"spec": {"resources": {"requests": {"storage": "1024Ki"}}}}]}}),
        ("ResourceSlice", {"spec": {"devices": [{"capacity": {"memory": {
            "value": "1024Ki", "requestPolicy": {"validValues": ["1024Ki"]}}}}]}}),
    ):  # fmt: skip
        quantity_places.make_canonical(kind, manifest)
        assert "1024Ki" not in str(manifest), kind
        assert "1Mi" in str(manifest), kind


def test_what_is_no_amount_is_left_alone() -> None:
    """Whatever stands where an object, a list or an amount should."""
    for kind in ALL_KINDS:
        for wrong in (None, "0.50", 7, [], {}, [{}], {"a": None}, [["0.50"]], {"0.50": "0.50"}):
            manifest = {"metadata": {"name": "0.50"}, "spec": wrong, "status": wrong}
            before = copy.deepcopy(manifest)
            quantity_places.make_canonical(kind.name, manifest)
            quantity_places.keep_equal(kind.name, manifest, {"spec": {"a": 1}, "status": []})
            assert manifest == before


def test_the_stored_text_of_an_equal_amount_is_kept() -> None:
    new, old = _pod("1Ki"), _pod("1024")
    quantity_places.keep_equal("Pod", new, old)
    assert new == old
    new = _pod("2Ki")
    quantity_places.keep_equal("Pod", new, old)
    assert new == _pod("2Ki")


def test_items_are_found_by_their_names() -> None:
    new, old = _pod("1Ki", "b", "a", "x"), _pod("1024", "a", "b")
    old["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1024.0"
    quantity_places.keep_equal("Pod", new, old)
    found = [one["resources"]["limits"]["cpu"] for one in new["spec"]["containers"]]
    assert found == ["1024", "1024.0", "1Ki"]


def test_templates_of_equal_amounts_are_equal() -> None:
    one, other = _pod("0.5"), _pod("500m")
    assert templates.same_template(one, other)
    assert not templates.same_template(one, _pod("501m"))
    other["spec"]["containers"][0]["image"] = "i"
    assert not templates.same_template(one, other)


def test_templates_with_either_name_of_an_account_are_equal() -> None:
    older, newer = ({"spec": {f"serviceAccount{end}": "a"}} for end in ("", "Name"))
    both = {"spec": {**older["spec"], **newer["spec"]}}
    assert templates.same_template(older, newer)
    assert templates.same_template(newer, both)
    assert not templates.same_template(newer, {"spec": {"serviceAccountName": "b"}})
    assert not templates.same_template(newer, {"spec": {}})


def test_a_field_that_pods_do_not_have_makes_no_other_template() -> None:
    one, other = _pod("1"), _pod("1")
    other["spec"]["containers"][0]["imagee"] = other["spec"]["flurb"] = other["extra"] = {"a": 1}
    kept = copy.deepcopy(other)
    assert templates.same_template(one, other)
    assert other == kept
    other["spec"]["nodeSelector"] = {"flurb": "free"}
    assert not templates.same_template(one, other)
