"""The three patch types; the strategic one with all its directives (R15, R16, C28)."""

import time
from copy import deepcopy

import pytest

from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.errors import BadRequest, TooLarge
from clusterstate.objects.wire import patching
from clusterstate.objects.wire.patching import PatchNotApplicable
from clusterstate.objects.wire.reading import is_deeper


def strategic(original, patch, wire_type=wire_types.Pod):
    before, patch_before = deepcopy(original), deepcopy(patch)
    result = patching.strategic_merge_patch(original, patch, wire_type)
    assert (original, patch) == (before, patch_before)
    return result


def pod(**spec):
    return {"metadata": {"name": "p"}, "spec": spec}


def names(entries):
    return [entry["name"] for entry in entries]


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": "foo"}, {"a": {"b": "c", "d": None}}, {"a": {"b": "c"}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_as_in_the_rfc(original, patch, result):
    assert patching.merge_patch(original, patch) == result


@pytest.mark.parametrize("patch", [[], "x", 1, None])
def test_a_merge_patch_is_an_object(patch):
    with pytest.raises(BadRequest):
        patching.merge_patch({}, patch)
    with pytest.raises(BadRequest):
        strategic({}, patch)


def test_a_patch_nested_without_end_is_refused():
    patch = {}
    for _ in range(5000):
        patch = {"a": patch}
    with pytest.raises(BadRequest, match="nested"):
        patching.merge_patch({}, patch)
    with pytest.raises(BadRequest, match="nested"):
        patching.strategic_merge_patch({}, patch, wire_types.Pod)


def test_json_patch():
    original = {"spec": {"list": [1, 2]}}
    result = patching.json_patch(
        original,
        [
            {"op": "test", "path": "/spec/list/0", "value": 1},
            {"op": "add", "path": "/spec/list/-", "value": 3},
            {"op": "remove", "path": "/spec/list/0"},
            {"op": "copy", "from": "/spec/list", "path": "/other"},
            {"op": "replace", "path": "/spec", "value": {"a~b": 1}},
            {"op": "move", "from": "/spec/a~0b", "path": "/c"},
        ],
    )
    assert result == {"spec": {}, "other": [2, 3], "c": 1}
    assert original == {"spec": {"list": [1, 2]}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nowhere"},
        {"op": "replace", "path": "/a/b", "value": 1},
        {"op": "test", "path": "/a", "value": True},
        {"op": "test", "path": "/nowhere", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "copy", "from": "/nowhere", "path": "/b"},
        {"op": "move", "from": "/list", "path": "/list/0"},
        {"op": "replace", "path": "", "value": 1},
        {"op": "remove", "path": "/a/b/c"},
    ],
)
def test_a_json_patch_that_does_not_fit_is_a_422(operation):
    with pytest.raises(PatchNotApplicable) as raised:
        patching.json_patch({"a": 1, "list": [1]}, [operation])
    assert (raised.value.code, raised.value.reason) == (422, "Invalid")
    why = "the value there is another" if operation["op"] == "test" else "there is no such place"
    whole = f"does not apply at {operation['path']!r}: {why}"
    assert raised.value.message.endswith(whole if operation["path"] else "is not an object")


def test_null_stands_for_a_member_that_is_not_there():
    """evanphx/json-patch v4, ``Patch.test``: so a client makes sure that nobody set a field."""
    absent = {"op": "test", "path": "/metadata/labels/a", "value": None}
    added = {"op": "add", "path": "/metadata/labels/a", "value": "1"}
    document = {"metadata": {"labels": {}}}
    made = patching.json_patch(document, [absent, added])
    assert made == {"metadata": {"labels": {"a": "1"}}}
    for there in (made, {"metadata": {}}, {"metadata": {"labels": []}}):
        with pytest.raises(patching.PatchNotApplicable):
            patching.json_patch(there, [absent, added])
    with pytest.raises(patching.PatchNotApplicable):
        patching.json_patch(document, [{"op": "test", "path": "", "value": None}])


@pytest.mark.parametrize(
    "operations",
    [
        {"op": "add"},
        ["x"],
        [{}],
        [{"op": "frobnicate", "path": "/a"}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": 1, "value": 1}],
        [{"op": "copy", "path": "/a"}],
        [{"op": ["add"], "path": "/a", "value": 1}],
    ],
)
def test_a_malformed_json_patch_is_a_400(operations):
    with pytest.raises(BadRequest):
        patching.json_patch({"a": 1}, operations)


def test_a_json_patch_cannot_grow_without_bound():
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 64
    with pytest.raises(TooLarge):
        patching.json_patch({"a": ["x" * 100]}, doubling)
    with pytest.raises(TooLarge):
        patching.json_patch({}, [{"op": "test", "path": "", "value": {}}] * 10_001)


def copies_into_itself(times):
    """Return operations of which each doubles the depth of an object."""
    copies = [
        {"op": "copy", "from": "/x", "path": "/x" * (2**number + 1)} for number in range(times)
    ]
    return [{"op": "add", "path": "/x", "value": {}}, *copies]


@pytest.mark.parametrize("times", [7, 9, 14])
def test_copies_into_themselves_end_with_a_refusal(times):
    """128, 512 and 16,384 levels; a stack does not hold the last."""
    assert is_deeper(patching.json_patch({}, copies_into_itself(6)), 64)
    with pytest.raises(BadRequest, match="nested deeper than 100 levels"):
        patching.json_patch({}, copies_into_itself(times))


def test_maps_merge_and_null_deletes():
    result = strategic(
        {"metadata": {"labels": {"a": "1", "b": "2"}}},
        {"metadata": {"labels": {"a": None, "c": "3"}, "annotations": {"x": "y"}}},
    )
    assert result["metadata"] == {"labels": {"b": "2", "c": "3"}, "annotations": {"x": "y"}}


def test_containers_merge_by_name_in_the_order_of_the_patch():
    original = pod(containers=[{"name": "a", "image": "i:1", "env": [{"name": "X", "value": "1"}]}])
    result = strategic(
        original,
        pod(
            containers=[
                {"name": "b", "image": "j", "env": [{"name": "E", "value": None}]},
                {"name": "a", "image": "i:2", "env": [{"name": "Y", "value": "2"}]},
            ]
        ),
    )
    b, a = result["spec"]["containers"]
    assert (a["image"], names(a["env"]), b) == (
        "i:2",
        ["Y", "X"],
        {"name": "b", "image": "j", "env": [{"name": "E"}]},
    )


def test_new_entries_stand_before_those_that_the_patch_does_not_name():
    """Rule: normalizeElementOrder, strategicpatch/patch.go."""
    original = pod(containers=[{"name": "a"}, {"name": "b"}, {"name": "c"}])
    result = strategic(original, pod(containers=[{"name": "new"}, {"name": "b", "image": "i"}]))
    assert names(result["spec"]["containers"]) == ["new", "a", "b", "c"]


@pytest.mark.parametrize(
    ("wire_type", "path", "before", "patch"),
    [
        (wire_types.Node, "spec.taints", [{"key": "a"}, {"key": "b"}], [{"key": "c"}]),
        (wire_types.Pod, "spec.tolerations", [{"key": "a"}], [{"key": "b"}]),
        (wire_types.PriorityClass, "x", [1, 2], [2, 3]),
    ],
)
def test_lists_without_a_merge_key_are_replaced(wire_type, path, before, patch):
    first, _, second = path.partition(".")

    def build(value):
        return {first: {second: value}} if second else {first: value}

    assert strategic(build(before), build(patch), wire_type) == build(patch)


def test_affinity_terms_and_their_values_are_replaced():
    """R15, R16, C28."""

    def build(key, *values):
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
        required = {"nodeSelectorTerms": [term]}
        field = "requiredDuringSchedulingIgnoredDuringExecution"
        return pod(affinity={"nodeAffinity": {field: required}})

    patch = build("a", "2")
    assert strategic(build("a", "1"), patch) == patch
    assert strategic(build("b", "1"), patch) == patch


def test_clearing_the_taints():
    node = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True}}
    cleared = strategic(node, {"spec": {"taints": None, "unschedulable": None}}, wire_types.Node)
    assert cleared == {"spec": {}}


def test_deleting_an_entry_and_replacing_a_list():
    original = pod(containers=[{"name": "a"}, {"name": "b"}, {"name": "c"}])
    gone = strategic(original, pod(containers=[{"name": "b", "$patch": "delete"}]))
    assert names(gone["spec"]["containers"]) == ["a", "c"]
    whole = strategic(original, pod(containers=[{"$patch": "replace"}, {"name": "z"}]))
    assert whole["spec"]["containers"] == [{"name": "z"}]
    nobody = strategic(original, pod(containers=[{"name": "x", "$patch": "delete"}]))
    assert names(nobody["spec"]["containers"]) == ["a", "b", "c"]
    fresh = strategic(pod(), pod(containers=[{"name": "x", "$patch": "delete"}, {"name": "y"}]))
    assert fresh["spec"]["containers"] == [{"name": "y"}]


def test_replacing_and_emptying_a_map():
    original = pod(nodeSelector={"a": "1", "b": "2"})
    replaced = strategic(original, pod(nodeSelector={"$patch": "replace", "c": "3"}))
    assert replaced["spec"]["nodeSelector"] == {"c": "3"}
    emptied = strategic(original, pod(nodeSelector={"$patch": "delete"}))
    assert emptied["spec"]["nodeSelector"] == {}


@pytest.mark.parametrize(
    ("original", "patch", "order", "expected"),
    [
        ("ab", "bc", "cb", "cab"),
        ("abc", "", "ca", "bca"),
        ("sab", "a", "ba", "sba"),
        ("asb", "a", "ab", "asb"),
        ("abs", "a", "ba", "bas"),
        ("", "ba", "ab", "ab"),
    ],
)
def test_the_order_of_elements(original, patch, order, expected):
    """Entries that only the server knows keep their place before those they stood before."""
    spec = {"$setElementOrder/containers": [{"name": n} for n in order]}
    if patch:
        spec["containers"] = [{"name": n, "image": "new"} for n in patch]
    result = strategic(pod(containers=[{"name": n} for n in original]), {"spec": spec})
    assert "".join(names(result["spec"]["containers"])) == expected
    assert "$setElementOrder/containers" not in result["spec"]


def test_an_order_for_a_list_that_is_not_there_means_nothing():
    patch = {"spec": {"$setElementOrder/containers": [{"name": "a"}]}}
    assert strategic(pod(), patch) == pod()


def test_finalizers_merge_as_a_set_and_leave_by_value():
    original = {"metadata": {"finalizers": ["a", "b"]}}
    result = strategic(
        original,
        {
            "metadata": {
                "$deleteFromPrimitiveList/finalizers": ["a"],
                "$setElementOrder/finalizers": ["c", "b"],
                "finalizers": ["c", "b"],
            }
        },
    )
    assert result == {"metadata": {"finalizers": ["c", "b"]}}


def test_retained_keys_drop_all_others():
    original = pod(volumes=[{"name": "v", "emptyDir": {}}])
    volume = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    result = strategic(original, pod(volumes=[volume]))
    assert result["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]
    with pytest.raises(BadRequest):
        strategic(original, pod(volumes=[{**volume, "$retainKeys": ["name"]}]))


def test_a_strategy_is_retained_by_key():
    original = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    result = strategic(original, patch, wire_types.Deployment)
    assert result == {"spec": {"strategy": {"type": "Recreate"}}}


def test_the_selector_of_a_budget_is_replaced():
    original = {"spec": {"selector": {"matchLabels": {"a": "1"}}}}
    patch = {"spec": {"selector": {"matchLabels": {"b": "2"}}}}
    assert strategic(original, patch, wire_types.PodDisruptionBudget) == patch


@pytest.mark.parametrize(
    "patch",
    [
        pod(containers=[{"image": "x"}]),
        pod(containers=["x"]),
        pod(containers=[{"name": "a", "$patch": "frobnicate"}]),
        pod(nodeSelector={"$patch": "frobnicate"}),
        {"spec": {"$setElementOrder/containers": "a"}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
        pod(volumes=[{"name": "v", "$retainKeys": "x"}]),
    ],
)
def test_malformed_strategic_patches_are_a_400(patch):
    with pytest.raises(BadRequest):
        strategic(pod(containers=[{"name": "a"}]), patch)


def test_no_directive_is_ever_stored():
    patch = pod(
        tolerations=[{"$patch": "replace"}, {"key": "k", "$patch": "merge"}],
        containers=[
            {"name": "n", "$setElementOrder/env": [], "env": [{"name": "X", "$patch": "delete"}]}
        ],
        securityContext={"$patch": "replace", "$retainKeys": ["x"], "runAsUser": 1},
    )
    assert strategic(pod(), patch)["spec"] == {
        "tolerations": [{"key": "k"}],
        "containers": [{"name": "n", "env": []}],
        "securityContext": {"runAsUser": 1},
    }


def test_what_apply_sends_after_a_container_and_a_variable_were_dropped():
    """The body that kubectl apply was seen to send."""
    template = {
        "containers": [
            {
                "name": "a",
                "image": "nginx:1",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            },
            {"name": "b", "image": "x"},
        ],
        "tolerations": [{"key": "k1", "operator": "Exists"}],
    }
    original = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "old"}},
        "spec": {"template": {"spec": template}},
    }
    patch = {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "new\n"}},
        "spec": {
            "template": {
                "spec": {
                    "$setElementOrder/containers": [{"name": "a"}],
                    "containers": [
                        {
                            "$setElementOrder/env": [{"name": "A"}],
                            "env": [{"$patch": "delete", "name": "B"}],
                            "image": "nginx:2",
                            "name": "a",
                        },
                        {"$patch": "delete", "name": "b"},
                    ],
                    "tolerations": [{"key": "k2", "operator": "Exists"}],
                }
            }
        },
    }
    assert strategic(original, patch, wire_types.Deployment) == {
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "new\n"}},
        "spec": {
            "template": {
                "spec": {
                    "containers": [
                        {"name": "a", "image": "nginx:2", "env": [{"name": "A", "value": "1"}]}
                    ],
                    "tolerations": [{"key": "k2", "operator": "Exists"}],
                }
            }
        },
    }


def test_the_patch_type_chooses():
    original = {"spec": {"containers": [{"name": "a"}]}}
    patch = {"spec": {"containers": [{"name": "b"}]}}

    def apply(patch_type, body):
        return patching.apply_patch(patch_type, original, body, wire_types.Pod)["spec"]

    assert names(apply(patching.MERGE_PATCH, patch)["containers"]) == ["b"]
    assert names(apply(patching.STRATEGIC_MERGE_PATCH, patch)["containers"]) == ["b", "a"]
    operation = {"op": "remove", "path": "/spec/containers/0"}
    assert apply(patching.JSON_PATCH, [operation]) == {"containers": []}


LONG = 100_000


def test_long_lists_are_merged_in_linear_time():
    """A patch is applied under the object's lock: what it costs must follow from its size."""
    names = [f"f{i}" for i in range(LONG)]
    fields = [{"name": name, "value": name} for name in names[:20_000]]
    manifest = {
        "metadata": {"finalizers": names},
        "spec": {"containers": [{"name": "c", "env": fields}]},
    }
    patch = {
        "metadata": {
            "finalizers": names[::-1],
            "$setElementOrder/finalizers": names[::-2],
            "$deleteFromPrimitiveList/finalizers": names[:1000],
        },
        "spec": {"containers": [{"name": "c", "env": fields[::-1]}]},
    }
    before = time.process_time()
    merged = patching.strategic_merge_patch(manifest, patch, wire_types.Pod)
    assert time.process_time() - before < 5
    assert set(merged["metadata"]["finalizers"]) >= set(names[1000:])
    assert len(merged["spec"]["containers"][0]["env"]) == 20_000


def test_a_json_patch_may_not_shift_long_lists_for_ever():
    manifest = {"metadata": {"finalizers": ["x"] * LONG}}
    patch = [{"op": "remove", "path": "/metadata/finalizers/0"}] * 10_000
    with pytest.raises(TooLarge, match="shifts"):
        patching.json_patch(manifest, patch)


def test_true_is_not_one_among_merged_values():
    merged = patching.strategic_merge_patch(
        {"metadata": {"finalizers": [1, "a"]}},
        {"metadata": {"finalizers": [True, 1, "b"]}},
        wire_types.Pod,
    )
    assert merged["metadata"]["finalizers"] == [True, 1, "b", "a"]
