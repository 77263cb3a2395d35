"""Scheduling classes: what a pod holds while it is resized."""

import json

import msgspec
import pytest

from clusterstate.objects.rules import resources, scheduling_class
from clusterstate.objects.values.pod import Pod
from scheduling.engine.snapshot.requirements import from_class, from_pod
from scheduling.framework.types import PodInfo


def pod(status=None, *, cpu="2", **spec):
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    manifest = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"containers": containers}}
    manifest["spec"] |= spec
    return manifest | ({"status": status} if status else {})


def holds(*, allocated=None, actual=None, infeasible=False):
    told = {"name": "main", "image": "i", "ready": True}
    if allocated:
        told["allocatedResources"] = {"cpu": allocated}
    if actual:
        told["resources"] = {"requests": {"cpu": actual}, "limits": {"cpu": "9"}}
    status = {"phase": "Running", "containerStatuses": [told]}
    if infeasible:
        status["conditions"] = [
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "no"}
        ]
    return status


@pytest.mark.parametrize(
    "status",
    [
        holds(),
        holds(allocated="2", actual="2"),
        holds(allocated="2000m"),
        holds(actual="1", allocated="1"),  # a smaller amount never counts
        holds(allocated="2", actual="2", infeasible=True),
        {"phase": "Pending"},
        {"containerStatuses": [{"name": "other", "allocatedResources": {"cpu": "7"}}]},
        {"containerStatuses": [{"name": "main", "allocatedResources": {"example.com/x": "7"}}]},
    ],
)
def test_agents_that_report_what_a_pod_asks_for_make_no_class(status):
    assert scheduling_class.encode(pod(status)) == scheduling_class.encode(pod())


@pytest.mark.parametrize(
    ("status", "milli"),
    [
        (holds(allocated="3", actual="3"), 3000),  # to be made smaller, and not yet
        (holds(allocated="2", actual="3"), 3000),  # promised to be smaller
        (holds(allocated="1", actual="1", infeasible=True), 1000),  # will never be larger
        (holds(allocated="1", actual="1500m", infeasible=True), 1500),
    ],
)
def test_a_resized_pod_counts_for_what_its_node_bears(status, milli):
    """component-helpers/resource/helpers.go AggregateContainerRequests, v1.36."""
    digest, spec = scheduling_class.encode(pod(status))
    assert from_class(digest, spec).requests == {"cpu": milli}
    whole = msgspec.convert(pod(status), Pod)
    assert resources.pod_request_ints(whole) == {"cpu": milli}
    assert resources.qos_class(msgspec.json.decode(spec, type=Pod)) == "Burstable"


def test_a_pod_that_was_resized_has_the_class_of_one_that_was_made_so():
    resized = scheduling_class.encode(pod(holds(allocated="3", actual="3"), cpu="3"))
    assert resized == scheduling_class.encode(pod(cpu="3"))


def test_the_whole_of_a_pod_is_resized_too():
    """helpers.go PodRequests with InPlacePodLevelResourcesVerticalScaling, on in v1.36."""
    asked = {"resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}}
    same = {"allocatedResources": {"cpu": "4250m"}, "resources": {"requests": {"cpu": "4250m"}}}
    assert scheduling_class.encode(pod(same, **asked)) == scheduling_class.encode(pod(**asked))
    more = {"allocatedResources": {"cpu": "5250m"}}
    digest, spec = scheduling_class.encode(pod(more, **asked))
    assert from_class(digest, spec).requests == {"cpu": 5250}


def test_an_agent_cannot_make_up_resources():
    made_up = {f"example.com/r{number}": "1" for number in range(1000)}
    told = {"name": "main", "allocatedResources": {"cpu": "9", **made_up}}
    _, spec = scheduling_class.encode(pod({"containerStatuses": [told]}))
    kept = json.loads(spec)["status"]["containerStatuses"]
    assert kept == [{"name": "main", "allocatedResources": {"cpu": "9"}}]


@pytest.mark.parametrize("volumes", [[], [{"name": "v", "ephemeral": {}}]])
def test_a_pod_with_its_own_claims_has_the_requirements_that_its_manifest_states(volumes):
    """What pods of one template share is computed once; volumes may name claims after their pod."""
    for number in range(3):
        manifest = {
            "metadata": {"name": f"p{number}", "uid": f"u{number}", "labels": {"app": "a"}},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
                "volumes": volumes,
            },
        }
        if number:
            made = {"name": "r", "resourceClaimName": f"p{number}-r"}
            manifest["status"] = {"resourceClaimStatuses": [made]}
        digest, text = scheduling_class.encode(manifest)
        found = from_class(digest, text)
        wanted = from_pod(msgspec.json.decode(text, type=Pod), digest)
        for slot in set(PodInfo.__slots__) - {"preferred"}:
            assert getattr(found, slot) == getattr(wanted, slot), slot
        assert found.memo is not from_class(digest, text).memo
