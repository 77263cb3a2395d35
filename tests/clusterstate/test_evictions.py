"""What an eviction for a taint says fills slots of the document, which stays as it is."""

import datetime as dt

import pytest

from clusterstate.actions.evictions import grace_seconds
from clusterstate.objects import document
from clusterstate.objects.document import Eviction, Overlay

AT = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
READY = {"type": "Ready", "status": "True"}
EVICTED = {**document.TAINT_EVICTION, "lastTransitionTime": "2026-11-21T12:00:00Z"}
DELETED = {"deletionTimestamp": "2026-11-21T12:00:05Z", "deletionGracePeriodSeconds": 5}


def pod(metadata=None, spec=None, status=None):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "creationTimestamp": "2026-11-21T11:00:00Z",
            **(metadata or {}),
        },
        "spec": {"containers": [{"name": "main"}], **(spec or {})},
        **({} if status is None else {"status": status}),
    }


@pytest.mark.parametrize(
    "manifest",
    [
        pod(status={"phase": "Running"}),
        pod(status={}),
        pod(status={"phase": "Running", "conditions": [READY], "podIP": "1.2.3.4"}),
        pod(status={"conditions": [READY, {"type": "PodScheduled", "status": "False"}]}),
        pod({"annotations": {"a": 'say "deletionTimestamp":"x", \u0001'}}, status={}),
        pod({"finalizers": ["a/b"]}, status={"phase": "Running", "conditions": [READY]}),
    ],
)
def test_an_evicted_pods_document_is_the_same_and_its_manifest_tells_of_it(manifest):
    text, overlay = document.encode("Pod", manifest)
    slots = Overlay(
        node_name="n",
        scheduled_at=AT,
        unschedulable=None,
        eviction=Eviction(AT, AT + dt.timedelta(seconds=5)),
    )
    found = document.decode(text, 7, slots)
    assert {**found["metadata"], **DELETED} == found["metadata"]
    scheduled, evicted, *others = found["status"]["conditions"]
    assert scheduled["type"] == "PodScheduled"
    assert evicted == EVICTED
    assert others == [
        one
        for one in (manifest.get("status") or {}).get("conditions") or ()
        if one["type"] != "PodScheduled"
    ]
    assert document.encode("Pod", found) == (text, slots)
    assert overlay.eviction is None


@pytest.mark.parametrize(
    ("deletion", "condition"),
    [
        ({}, {}),
        ({"deletionGracePeriodSeconds": 4}, {}),
        ({"deletionGracePeriodSeconds": None}, {}),
        ({"deletionTimestamp": "2026-11-21T12:00:05+00:00"}, {}),
        ({}, {"status": "False"}),
        ({}, {"lastTransitionTime": "2026-11-21T12:00:00.5Z"}),
        ({}, {"observedGeneration": 3}),
        ({}, {"reason": "EvictionByEvictionAPI"}),
    ],
)
def test_whatever_else_a_pod_tells_of_its_end_comes_back_as_it_was(deletion, condition):
    conditions = [{**EVICTED, **condition}, READY]
    manifest = pod({**DELETED, **deletion}, status={"conditions": conditions})
    text, overlay = document.encode("Pod", manifest)
    assert (overlay.eviction is not None) == (not deletion and not condition)
    found = document.decode(text, 1, overlay)
    del found["metadata"]["resourceVersion"]
    assert found == manifest


@pytest.mark.parametrize(
    ("spec", "metadata", "seconds"),
    [
        ({"terminationGracePeriodSeconds": 7}, {}, 7),
        ({"terminationGracePeriodSeconds": 0}, {}, 0),
        ({"terminationGracePeriodSeconds": -3}, {}, 1),
        ({}, {}, 30),
        ({}, {"labels": {"terminationGracePeriodSeconds": "7"}}, 30),
        (
            {
                "terminationGracePeriodSeconds": 5,
                "containers": [{"livenessProbe": {"terminationGracePeriodSeconds": 9}}],
            },
            {},
            5,
        ),
        (
            {
                "terminationGracePeriodSeconds": 5,
                "volumes": [{"csi": {"volumeAttributes": {"terminationGracePeriodSeconds": "9"}}}],
            },
            {},
            5,
        ),
    ],
)
def test_the_grace_period_is_found_in_the_text(spec, metadata, seconds):
    text, _ = document.encode("Pod", pod(metadata, spec, {"phase": "Running"}))
    assert grace_seconds(text) == seconds
