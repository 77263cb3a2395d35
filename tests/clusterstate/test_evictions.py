"""An eviction writes documents as text; what it writes is what the manifest would say."""

import datetime as dt

import pytest

from clusterstate.actions.evictions import TAINT_CONDITION, Sentence
from clusterstate.objects import document

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=dt.UTC)
READY = {"type": "Ready", "status": "True"}


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
        pod(status={"conditions": [READY]}),
        pod(status={"conditions": [READY, {"type": "PodScheduled", "status": "False"}]}),
        pod(spec={"terminationGracePeriodSeconds": 0}, status={"phase": "Running"}),
        pod({"finalizers": ["a/b"]}, {"terminationGracePeriodSeconds": 0}, {"phase": "Running"}),
        pod({"annotations": {"creationTimestamp": "x"}}, status={"phase": "Running"}),
        pod({"annotations": {"a": 'say "creationTimestamp":"x", \u0001'}}, status={}),
        pod({"labels": {"creationTimestamp": "y", "z": "w"}}, status={"phase": "Running"}),
        pod(
            spec={
                "terminationGracePeriodSeconds": 5,
                "containers": [{"livenessProbe": {"terminationGracePeriodSeconds": 9}}],
            },
            status={"phase": "Running"},
        ),
        pod(status={"conditions": [{"type": "DisruptionTarget", "status": "False"}, READY]}),
        pod({"labels": {"terminationGracePeriodSeconds": "7"}}, status={"phase": "Running"}),
    ],
)
def test_the_fast_way_is_the_slow_way(manifest):
    text, _ = document.encode("Pod", manifest)
    sentence = Sentence(TAINT_CONDITION, NOW)
    assert sentence.pronounce(text) == sentence.slowly(text)


def test_whole_seconds_in_document_and_column():
    text, _ = document.encode("Pod", pod(status={"phase": "Running"}))
    written, moment, gone = Sentence(TAINT_CONDITION, NOW).pronounce(text)
    found = document.decode(written, 1)
    assert moment == dt.datetime(2026, 11, 21, 12, 0, 30, tzinfo=dt.UTC)
    assert found["metadata"]["deletionTimestamp"] == "2026-11-21T12:00:30Z"
    assert found["status"]["conditions"][0]["type"] == "DisruptionTarget"
    assert not gone
