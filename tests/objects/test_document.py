"""Documents with slots, and scheduling classes."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.values import document
from clusterstate.objects.values.document import SLOT, Overlay
from clusterstate.objects.values.pod import Pod
from tests.forms import many

YEAR_2000 = datetime(2000, 1, 1, tzinfo=UTC).replace(tzinfo=None)
YEAR_2100 = datetime(2100, 1, 1, tzinfo=UTC).replace(tzinfo=None)
TEXTS = st.text(max_size=8) | st.sampled_from(["\x01", '"', "\\", "ä", "nodeName"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS.filter(lambda k: k not in ("nodeName", "conditions")), JSON)
METADATA = OBJECTS.filter(lambda m: "resourceVersion" not in m)
ANNOTATIONS = st.dictionaries(
    TEXTS | st.sampled_from(["generation", '"generation":7,']),
    TEXTS | st.just('"generation":8,'),
    max_size=3,
)
GENERATIONS = st.integers(1, 4)
TIMES = st.datetimes(YEAR_2000, YEAR_2100, timezones=st.just(UTC)).map(
    lambda t: t.replace(microsecond=0)
)
CONDITIONS = st.lists(
    st.builds(lambda t, s: {"type": t, "status": s}, st.sampled_from(["Ready", "X"]), TEXTS),
    max_size=2,
)
SCHEDULED = (
    st.none()
    | TIMES.map(
        lambda t: {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": document.format_time(t),
        }
    )
    | st.builds(
        lambda t, generation: {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": document.format_time(t),
            "observedGeneration": generation,
        },
        TIMES,
        st.integers(1, 2**53) | GENERATIONS,
    )
    | st.builds(
        lambda m: {"type": "PodScheduled", "status": "False", "message": m, "reason": "X"},
        TEXTS | st.just('"observedGeneration":9,'),
    )
    | st.builds(
        lambda g: {"type": "PodScheduled", "status": "False", "observedGeneration": g}, GENERATIONS
    )
)


@st.composite
def pods(draw):
    status = draw(OBJECTS)
    first = draw(SCHEDULED)
    conditions = ([first] if first else []) + draw(CONDITIONS)
    if conditions:
        status["conditions"] = conditions
    spec = draw(OBJECTS)
    if draw(st.booleans()):
        spec["nodeName"] = draw(TEXTS.filter(bool))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": draw(METADATA),
        "spec": spec,
        "status": status,
    }


@settings(max_examples=many(20, 500))
@given(pods(), st.integers(1, 2**62))
def test_a_pod_comes_back_as_it_went_in_with_the_revision(pod, revision):
    before = deepcopy(pod)
    text, overlay = document.encode("Pod", pod)
    assert pod == before
    assert text.count(SLOT) == 3
    again = document.decode(text, revision, overlay)
    assert again["metadata"].pop("resourceVersion") == str(revision)
    assert again == pod
    assert document.encode("Pod", again) == (text, overlay)


@settings(max_examples=many(30, 500))
@given(pods(), ANNOTATIONS, GENERATIONS, st.integers(1, 2**62))
def test_a_condition_names_the_generation_that_it_was_made_for(
    pod, annotations, generation, revision
):
    """One that names none is of the pod as it stands."""
    pod["metadata"] = {"annotations": annotations, "generation": generation, "name": "p"}
    text, overlay = document.encode("Pod", pod)
    again = document.decode(text, revision, overlay)
    assert document.encode("Pod", again) == (text, overlay)
    for one in pod["status"].get("conditions", []):
        if one["type"] == "PodScheduled":
            one.setdefault("observedGeneration", generation)
    pod["metadata"]["resourceVersion"] = str(revision)
    assert again == pod

    grown = {**again, "metadata": {**again["metadata"], "generation": generation + 1}}
    kept = document.decode(*_at(document.encode("Pod", grown), revision))
    assert kept["status"] == again["status"], "a change of the spec leaves the condition"


def _at(encoded, revision):
    text, overlay = encoded
    return text, revision, overlay


@settings(max_examples=many(20, 500))
@given(METADATA, st.dictionaries(TEXTS, JSON), st.integers(1, 2**62))
def test_other_kinds_have_one_slot(metadata, rest, revision):
    manifest = {**rest, "apiVersion": "v1", "kind": "Node", "metadata": metadata}
    text, overlay = document.encode("Node", manifest)
    assert (text.count(SLOT), overlay) == (1, document.EMPTY)
    again = document.decode(text, revision)
    assert again["metadata"].pop("resourceVersion") == str(revision)
    assert again == manifest


@settings(max_examples=many(20, 500))
@given(pods())
def test_the_text_does_not_know_what_is_in_the_slots(pod):
    text, _ = document.encode("Pod", pod)
    bound = deepcopy(pod)
    bound["spec"]["nodeName"] = "elsewhere"
    bound["metadata"]["resourceVersion"] = "7"
    rest = [c for c in pod["status"].get("conditions", []) if c["type"] != "PodScheduled"]
    bound["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
        *rest,
    ]
    assert document.encode("Pod", bound)[0] == text
    reordered = dict(reversed(list(pod.items())))
    assert document.encode("Pod", reordered)[0] == text


def test_binding_fills_the_slots():
    text, overlay = document.encode(
        "Pod", {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"a": 1}, "status": {"b": 2}}
    )
    assert overlay == document.EMPTY
    at = datetime(2026, 1, 2, 5, 4, 5, 900_000, timezone(timedelta(hours=2)))
    bound = document.decode(text, 9, Overlay(node_name='n"1', scheduled_at=at))
    assert bound["spec"] == {"nodeName": 'n"1', "a": 1}
    assert bound["status"] == {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ],
        "b": 2,
    }


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({}, {}),
        ({"lastProbeTime": None, "message": "", "observedGeneration": 0}, {}),
        ({"observedGeneration": 2, "lastProbeTime": None}, {"observedGeneration": 2}),
        ({"reason": "Fits", "message": "said"}, {"reason": "Fits", "message": "said"}),
    ],
)
def test_a_true_condition_keeps_its_time_and_what_else_it_says(more, kept):
    """As an agent reports it: Go writes zero values that say nothing."""
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-02T05:04:05.5+02:00",
        **more,
    }
    text, overlay = document.encode("Pod", {"status": {"conditions": [condition]}})
    assert overlay.scheduled_at is not None
    assert (overlay.unschedulable is None) == (not kept)
    (again,) = document.decode(text, 1, overlay)["status"]["conditions"]
    assert again == {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
        **kept,
    }


def test_a_pod_that_had_no_spec_and_status_can_be_bound():
    text, _ = document.encode("Pod", {"metadata": None})
    bound = document.decode(text, 1, Overlay(node_name="n", unschedulable='{"type":"X"}'))
    assert bound == {
        "metadata": {"resourceVersion": "1"},
        "spec": {"nodeName": "n"},
        "status": {"conditions": [{"type": "X"}]},
    }


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05Z", "2026-01-02T05:04:05.25+02:00"])
def test_times_are_read(text):
    assert document.format_time(document.parse_time(text)) == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("text", ["", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z"])
def test_times_without_zone_or_t_are_refused(text):
    with pytest.raises(ValueError, match=r"RFC 3339|isoformat"):
        document.parse_time(text)


# Scheduling classes ---------------------------------------------------------------------------

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "uid": "u",
        "labels": {"app": "web"},
        "annotations": {"a": "b"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"},
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": "2",
                "controller": True,
            },
        ],
    },
    "spec": {
        "schedulerName": "default-scheduler",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
                ]
            }
        },
        "overhead": {"cpu": "10m"},
        "hostNetwork": True,
        "containers": [
            {
                "name": "c",
                "image": "nginx:1",
                "command": ["x"],
                "resources": {"requests": {"cpu": "1"}},
                "ports": [{"containerPort": 80}, {"containerPort": 90, "hostPort": 90}],
            }
        ],
        "terminationGracePeriodSeconds": 30,
    },
    "status": {"phase": "Pending"},
}


def changed(path, value):
    manifest = deepcopy(POD)
    place = manifest
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return manifest


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "name"), "web-2"),
        (("metadata", "uid"), "v"),
        (("metadata", "annotations"), {}),
        (("metadata", "ownerReferences", 1, "uid"), "3"),
        (("spec", "nodeName"), "n"),
        (("spec", "terminationGracePeriodSeconds"), 5),
        (("spec", "topologySpreadConstraints"), []),
        (("spec", "containers", 0, "command"), []),
        (("spec", "containers", 0, "name"), "d"),
        (("spec", "containers", 0, "ports", 0, "containerPort"), 81),
        (("status",), {}),
    ],
)
def test_what_does_not_matter_to_scheduling_is_not_in_the_class(path, value):
    assert scheduling_class.encode(changed(path, value)) == scheduling_class.encode(POD)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "namespace"), "other"),
        (("metadata", "labels", "app"), "api"),
        (("metadata", "ownerReferences", 1, "name"), "other"),
        (("metadata", "ownerReferences", 1, "controller"), False),
        (("spec", "schedulerName"), "mine"),
        (("spec", "priority"), 5),
        (("spec", "preemptionPolicy"), "Never"),
        (("spec", "nodeSelector"), {}),
        (("spec", "tolerations"), []),
        (("spec", "affinity"), {}),
        (("spec", "overhead"), {}),
        (("spec", "hostNetwork"), False),
        (("spec", "schedulingGates"), [{"name": "g"}]),
        (("spec", "resources"), {"requests": {"cpu": "2"}}),
        (("spec", "topologySpreadConstraints"), [{"maxSkew": 1}]),
        (("spec", "containers", 0, "image"), "nginx:2"),
        (("spec", "containers", 0, "resources"), {}),
        (("spec", "containers", 0, "ports", 1, "hostPort"), 91),
        (("spec", "initContainers"), [{"name": "i", "restartPolicy": "Always"}]),
    ],
)
def test_what_matters_to_scheduling_is_in_the_class(path, value):
    assert scheduling_class.encode(changed(path, value))[0] != scheduling_class.encode(POD)[0]


def test_no_selector_and_an_empty_one_are_different_classes():
    path = ("spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    without = changed((*path, 0), {"topologyKey": "kubernetes.io/hostname"})
    assert scheduling_class.encode(without)[0] != scheduling_class.encode(POD)[0]


def test_a_class_decodes_to_the_pod_that_the_engine_reads():
    digest, spec = scheduling_class.encode(POD)
    assert len(digest) == scheduling_class.DIGEST_SIZE
    pod = msgspec.json.decode(spec, type=Pod)
    assert pod.metadata.namespace == "shop"
    assert pod.metadata.owner_references[0].name == "web"
    assert pod.spec.priority == 0
    assert pod.spec.containers[0].ports[0].host_port == 90
    assert scheduling_class.encode(msgspec.json.decode(spec)) == (digest, spec)


@given(st.lists(st.sampled_from(["namespace", "labels", "priority", "image"])), st.data())
def test_classes_are_equal_exactly_when_the_reduced_pods_are(names, data):
    def draw():
        manifest = deepcopy(POD)
        for name in names:
            value = data.draw(st.integers(0, 1))
            if name == "priority":
                manifest["spec"]["priority"] = value
            elif name == "image":
                manifest["spec"]["containers"][0]["image"] = f"nginx:{value}"
            elif name == "labels":
                manifest["metadata"]["labels"]["app"] = f"web{value}"
            else:
                manifest["metadata"]["namespace"] = f"shop{value}"
        return manifest

    one, other = draw(), draw()
    same = scheduling_class.reduce(one) == scheduling_class.reduce(other)
    assert (scheduling_class.encode(one) == scheduling_class.encode(other)) == same
