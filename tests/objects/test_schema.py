"""Kinds, their fields and the generated types."""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.registry import schema, wire_types
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values.errors import BadRequest
from tools import generate_wire_types


def test_the_generated_types_are_up_to_date():
    assert generate_wire_types.TARGET.read_text() == generate_wire_types.generate()
    assert generate_wire_types.TEXTS.read_text() == generate_wire_types.texts()


def test_every_kind_is_found_by_name_and_by_resource():
    for kind in ALL_KINDS:
        assert KINDS[kind.name] is KINDS[kind.group, kind.plural] is kind
        assert kind.wire_type is getattr(wire_types, kind.name)
        assert kind.version in kind.versions
    assert len(KINDS) == 2 * len(ALL_KINDS)
    assert KINDS["Deployment"].api_version == "apps/v1"
    assert KINDS["Deployment"].resource == "deployments.apps"
    assert KINDS["Pod"].api_version == "v1"
    assert KINDS["Pod"].list_kind == "PodList"


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Node", "nodes"), ("NetworkPolicy", "networkpolicies"), ("Ingress", "ingresses"),
        ("StorageClass", "storageclasses"), ("Endpoints", "endpoints"),
        ("CSIStorageCapacity", "csistoragecapacities"),
    ],
)  # fmt: skip
def test_the_resource_of_a_kind_is_what_kubernetes_calls_it(kind, plural):
    assert KINDS[kind].plural == plural


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        (("PodSpec", "containers"), ("name", "merge")),
        (("PodSpec", "volumes"), ("name", "merge,retainKeys")),
        (("Container", "ports"), ("containerPort", "merge")),
        (("NodeStatus", "conditions"), ("type", "merge")),
        (("ObjectMeta", "finalizers"), ("", "merge")),
        (("ServiceSpec", "ports"), ("port", "merge")),
        (("DeploymentSpec", "strategy"), ("", "retainKeys")),
        (("NodeSpec", "taints"), None),
        (("PodSpec", "tolerations"), None),
        (("NodeSelector", "nodeSelectorTerms"), None),
        (("NodeSelectorTerm", "matchExpressions"), None),
    ],
)
def test_how_lists_merge(field, rule):
    assert wire_types.PATCH.get(field[0], {}).get(field[1]) == rule


def test_unknown_fields_are_named_with_their_paths():
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"anything": "goes"}, "nam": "x"},
        "spec": {
            "containers": [
                {"name": "a", "imagee": "x", "env": [{"name": "E", "valu": "1"}]},
            ],
            "nodeSelector": {"free": "map"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnored": {}}},
        },
        "extra": 1,
    }
    assert sorted(schema.unknown_fields("Pod", manifest)) == [
        "extra",
        "metadata.nam",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnored",
        "spec.containers[0].env[0].valu",
        "spec.containers[0].imagee",
    ]


_NAMES = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "labels",
        "spec",
        "template",
        "containers",
        "image",
        "env",
        "data",
        "flurb",
        "x",
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=5),
)


@given(
    kind=st.sampled_from(["Pod", "Deployment", "ConfigMap", "ControllerRevision"]),
    manifest=st.dictionaries(_NAMES, _VALUES),
)
def test_what_is_dropped_is_what_is_unknown(kind, manifest):
    """Held against the paths: each of them is gone, nothing else is, and the copies are alike."""
    left, again = copy.deepcopy(manifest), copy.deepcopy(manifest)
    unknown = schema.unknown_fields(kind, manifest)
    schema.drop_unknown(kind, left, again)
    assert again == left
    assert schema.unknown_fields(kind, left) == []
    kept = [
        path
        for path in schema.paths_of(manifest)
        if not any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in unknown)
    ]
    assert list(schema.paths_of(left)) == kept


def test_the_planned_affinity_and_the_old_preferred_form_are_known():
    """R1, R19, C2, C5."""
    expressions = [{"key": "a", "operator": "Exists"}]
    affinity = {
        "requiredDuringSchedulingRequiredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": expressions}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "matchExpressions": expressions}
        ],
    }
    manifest = {"kind": "Pod", "spec": {"affinity": {"nodeAffinity": affinity}}}
    assert schema.unknown_fields("Pod", manifest) == []
    schema.check_types("Pod", manifest)


@pytest.mark.parametrize(
    ("kind", "manifest", "path"),
    [
        ("Pod", {"spec": {"containers": [{"image": 5}]}}, "spec.containers[0].image"),
        ("Pod", {"spec": {"containers": {}}}, "spec.containers"),
        ("Pod", {"spec": {"priority": 1.0}}, "spec.priority"),
        ("Pod", {"spec": {"priority": 2**31}}, "spec.priority"),
        ("Pod", {"spec": {"hostNetwork": "true"}}, "spec.hostNetwork"),
        ("Pod", {"metadata": {"labels": {"a": 5}}}, "metadata.labels[...]"),
        (
            "Pod",
            {"metadata": {"creationTimestamp": "2026-01-02 03:04:05Z"}},
            "metadata.creationTimestamp",
        ),
        ("Pod", {"spec": {"overhead": {"cpu": True}}}, "spec.overhead[...]"),
        ("Node", {"spec": {"unschedulable": "true"}}, "spec.unschedulable"),
        ("Node", {"spec": []}, "spec"),
        ("PriorityClass", {"value": "1"}, "value"),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_type_is_a_400_that_names_it(kind, manifest, path):
    with pytest.raises(BadRequest) as raised:
        schema.check_types(kind, manifest)
    start = f'{kind} in version "v1" cannot be handled as a {kind}: {path}: Expected '
    assert raised.value.message.startswith(start)


def test_good_types_and_unknown_fields_pass():
    schema.check_types(
        "Pod",
        {
            "metadata": {"creationTimestamp": "2026-01-02T03:04:05+00:00", "generation": 2**40},
            "spec": {"containers": [{"resources": {"requests": {"cpu": 1, "memory": 0.5}}}]},
            "whatever": [1],
        },
    )
    schema.check_types("PodDisruptionBudget", {"spec": {"minAvailable": "50%"}})
    schema.check_types("PodDisruptionBudget", {"spec": {"minAvailable": 2}})


def test_a_manifest_nested_without_end_is_refused():
    inner = {}
    for _ in range(100_000):
        inner = {"f:a": inner}
    manifest = {"metadata": {"managedFields": [{"fieldsV1": inner}]}}
    assert schema.type_problem(manifest, wire_types.Pod) in ("", "nested too deeply")
    assert isinstance(msgspec.structs.fields(wire_types.Pod), tuple)
