"""What Kubernetes 1.36 asks of every kind alike, with the exceptions that it has.

The exceptions are facts of Kubernetes' own tests (test/integration/apiserver/apidefinitions).
"""

import json
from typing import Any, Final

import pytest

from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.rules.ownership import PROTECTIONS
from tests.api.bodies import body_of, collection, named, status_of
from tests.api.conftest import APPLY, Api, grant

CREATED_BY_UPDATE: Final = frozenset(
    {
        "ClusterRole", "ClusterRoleBinding", "Endpoints", "Event", "Lease", "LimitRange", "Role",
        "RoleBinding", "RuntimeClass", "Service",
    }
)  # fmt: skip
ORPHANS: Final = frozenset({"Job", "ReplicationController"})
"""Kinds whose dependents stay unless the client says that they shall go."""
UNCOLLECTED: Final = frozenset({"Event", "Namespace"})
UNCOUNTED: Final = frozenset(
    {
        "CertificateSigningRequest", "Namespace", "Node",
        "PersistentVolume", "PersistentVolumeClaim", "ResourceClaim", "ResourceQuota", "Service",
        "ServiceCIDR", "VolumeAttachment",
    }
)  # fmt: skip
"""Kinds with a status whose objects have no generation."""
LABELLED_BY_STATUS: Final = frozenset(
    {
        "CertificateSigningRequest", "CronJob", "DaemonSet", "HorizontalPodAutoscaler", "Ingress",
        "Job", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim",
        "PodDisruptionBudget", "Pod", "ReplicaSet", "ReplicationController", "ResourceQuota",
        "Service", "StatefulSet",
    }
)  # fmt: skip
"""Kinds whose status changes metadata as well."""
HELD: Final = "example.org/held"

each = pytest.mark.parametrize("kind", tuple(ALL_KINDS), ids=lambda kind: kind.name)


def path_of(kind: Kind, word: str) -> str:
    return f"{collection(kind)}/{named(kind, word)}"


def held(kind: Kind, word: str) -> dict[str, Any]:
    body = body_of(kind, word)
    body["metadata"]["finalizers"] = [HELD]
    return body


@each
def test_an_update_creates_what_is_not_there_of_few_kinds(api, kind):
    body = body_of(kind, "one")
    answer = api.put(path_of(kind, "one"), body)
    if kind.name not in CREATED_BY_UPDATE:
        answer.fails(404, "NotFound")
        return
    made = answer.ok(201)
    assert made["metadata"]["uid"]
    assert api.get(path_of(kind, "one")).ok() == made
    api.delete(path_of(kind, "one"), {"gracePeriodSeconds": 0}).ok()
    api.put(path_of(kind, "one"), made).fails(404, "NotFound")


def test_who_may_update_creates_nothing_by_it(api):
    rules = [{"apiGroups": [""], "resources": ["services"], "verbs": ["update"]}]
    user = grant(api, "updater", rules)
    (kind,) = (one for one in ALL_KINDS if one.name == "Service")
    user.put(path_of(kind, "one"), body_of(kind, "one")).fails(403, "Forbidden")
    api.get(path_of(kind, "one")).fails(404, "NotFound")


@each
def test_dependents_follow_stay_or_go_first_as_the_kind_has_it(api, kind):
    for word, options, finalizer in (
        ("one", None, "orphan" if kind.name in ORPHANS else None),
        ("two", {"propagationPolicy": "Background"}, None),
        ("four", {"propagationPolicy": "Foreground"}, "foregroundDeletion"),
    ):
        api.post(collection(kind), held(kind, word)).ok(201)
        answer = api.delete(path_of(kind, word), options)
        warned = kind.name == "Job" and options is None
        assert ("propagationPolicy=Background" in answer.headers.get("Warning", "")) == warned
        left = api.get(path_of(kind, word)).ok()["metadata"]["finalizers"]
        added = [] if finalizer is None or kind.name in UNCOLLECTED else [finalizer]
        protected = [PROTECTIONS[kind.name]] if kind.name in PROTECTIONS else []
        assert left == [HELD, *protected, *added], word


@each
def test_a_status_counts_no_generation_and_leaves_what_is_not_its_own(api: Api, kind: Kind):
    if "status" not in kind.subresources:
        return
    one = path_of(kind, "one")
    made = api.post(collection(kind), body_of(kind, "one")).ok(201)
    counted = made["metadata"].get("generation")
    assert counted == (None if kind.name in UNCOUNTED else 1)
    labels = {"test": "status"}
    said = {
        "apiVersion": kind.api_version, "kind": kind.name,
        "metadata": {"name": named(kind, "one"), "labels": labels},
        "spec": {}, "status": status_of(kind),
    }  # fmt: skip
    told = api.patch(f"{one}/status?fieldManager=m&force=true", said, content_type=APPLY).ok()
    for field, value in status_of(kind).items():
        there = told["status"][field]
        assert all(one in there for one in value) if field == "conditions" else there == value
    assert told["metadata"].get("generation") == counted
    changes = kind.name in LABELLED_BY_STATUS
    assert ("test" in told["metadata"].get("labels", {})) == changes
    (entry,) = (it for it in told["metadata"]["managedFields"] if it["manager"] == "m")
    assert ("f:test" in json.dumps(entry["fieldsV1"])) == changes
    assert "f:spec" not in entry["fieldsV1"]
    strange = {"status": {"conditions": [{"type": "Strange", "status": "True"}]}}
    kept = api.patch(one, strange)
    assert "Strange" not in json.dumps(kept.json)
