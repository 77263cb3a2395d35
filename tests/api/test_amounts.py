"""Amounts are given out as Kubernetes writes them, and equal ones change nothing."""

from typing import Any

import pytest

from clusterstate.objects.registry.kinds import KINDS
from tests.api.bodies import body_of, collection, named
from tests.api.builders import DEPLOYMENTS, PODS, deployment, pod
from tests.api.conftest import APPLY, MERGE, STRATEGIC

WRITTEN, CANONICAL, EQUAL = "0.5Gi", "512Mi", "536870912"


def _filled(spec: Any, amount: str) -> dict[str, Any]:
    for container in spec["containers"]:
        container["resources"] = {"requests": {"memory": amount}, "limits": {"memory": amount}}
    return spec


def _with_amount(name: str, amount: str) -> dict[str, Any]:
    body = body_of(KINDS[name], "one")
    spec = body.get("spec")
    if name == "Pod":
        _filled(spec, amount)
    elif name == "CronJob":
        _filled(spec["jobTemplate"]["spec"]["template"]["spec"], amount)
    elif name == "PodTemplate":
        _filled(body["template"]["spec"], amount)
    elif name in ("PersistentVolumeClaim", "StatefulSet"):
        claim = spec
        if name == "StatefulSet":
            _filled(spec["template"]["spec"], amount)
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {}}}
            spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
        claim["resources"]["requests"]["storage"] = amount
    elif name == "PersistentVolume":
        spec["capacity"]["storage"] = amount
    elif name == "ResourceQuota":
        body["spec"] = {"hard": {"requests.memory": amount}}
    elif name == "LimitRange":
        body["spec"] = {"limits": [{"type": "Pod", "max": {"memory": amount}}]}
    elif name == "RuntimeClass":
        body["overhead"] = {"podFixed": {"memory": amount}}
    elif name == "CSIStorageCapacity":
        body["capacity"] = amount
    elif name == "Node":
        body["status"] = {"capacity": {"memory": amount}}
    elif name == "HorizontalPodAutoscaler":
        target = {"type": "AverageValue", "averageValue": amount}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "memory", "target": target}}]
    else:
        _filled(spec["template"]["spec"], amount)
    return body


HOLDERS = (
    "Pod", "Node", "PodTemplate", "ReplicationController", "Deployment", "ReplicaSet",
    "StatefulSet", "DaemonSet", "Job", "CronJob", "PersistentVolumeClaim", "PersistentVolume",
    "ResourceQuota", "LimitRange", "RuntimeClass", "CSIStorageCapacity", "HorizontalPodAutoscaler",
)  # fmt: skip


@pytest.mark.parametrize("name", HOLDERS)
def test_an_equal_amount_changes_nothing(api, name):
    """Kubernetes compares amounts, not their texts: updates were refused, or started rollouts."""
    kind = KINDS[name]
    made = api.post(collection(kind), _with_amount(name, WRITTEN)).ok(201)
    assert CANONICAL in str(made)
    assert WRITTEN not in str(made)
    path = f"{collection(kind)}/{named(kind, 'one')}"
    for amount in (WRITTEN, EQUAL):
        body = _with_amount(name, amount)
        # A Job's labels are the server's, and it may not lose them.
        patch = {key: body[key] for key in body if key not in ("apiVersion", "kind", "metadata")}
        patch.get("spec", {}).pop("selector", None)
        for content_type in (MERGE, STRATEGIC):
            changed = api.patch(path, patch, content_type)
            assert changed.ok()["metadata"] == made["metadata"], (amount, content_type)
    query = f"{path}?fieldManager=test&force=true"
    api.patch(query, _with_amount(name, EQUAL), APPLY).ok()
    live = api.get(path).ok()
    live["metadata"]["managedFields"] = made["metadata"].get("managedFields")
    live["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    if live["metadata"]["managedFields"] is None:
        del live["metadata"]["managedFields"]
    assert live == made


def test_another_amount_is_another_one(api):
    made = api.post(DEPLOYMENTS, _with_amount("Deployment", WRITTEN)).ok(201)
    path = f"{DEPLOYMENTS}/one"
    spec = {"template": _with_amount("Deployment", "513Mi")["spec"]["template"]}
    changed = api.patch(path, {"spec": spec}).ok()["metadata"]
    assert changed["generation"] == made["metadata"]["generation"] + 1
    api.post(PODS, _with_amount("Pod", WRITTEN)).ok(201)
    spec = {"containers": _with_amount("Pod", "513Mi")["spec"]["containers"]}
    api.patch(f"{PODS}/one", {"spec": spec}).fails(422, "Invalid")


def test_amounts_that_are_numbers_are_given_out_as_texts(api):
    body = pod("p")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": 2, "memory": 1.5}}
    made = api.post(PODS, body).ok(201)["spec"]["containers"][0]["resources"]
    assert made["requests"] == {"cpu": "2", "memory": "1500m"}
    wrong = deployment("d")
    requests = {"requests": {"cpu": "much"}}
    wrong["spec"]["template"]["spec"]["containers"][0]["resources"] = requests
    (cause,) = api.post(DEPLOYMENTS, wrong).fails(422, "Invalid")["details"]["causes"]
    assert "much" in cause["message"]
