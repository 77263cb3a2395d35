"""The page of devices: who has each, why nobody gets a free one; and the claims of a pod."""

from typing import Any

import pytest
from django.test import Client

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from tests.clock import NOW
from tests.console.conftest import allow, text

RESOURCE = "resource.k8s.io"


def make(kind: str, name: str, *, namespace: str = "", **body: Any) -> None:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    objects.create(kind, namespace, {"kind": kind, "metadata": meta, **body}, now=NOW)


def pool(name: str, *devices: dict[str, Any], count: int = 1, generation: int = 1) -> None:
    spec = {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
        "devices": list(devices),
    }
    make("ResourceSlice", f"{name}-{generation}", spec=spec)


@pytest.fixture
def devices(cluster: None) -> None:
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    model = {"attributes": {"model": {"string": "A100"}}}
    pool("one", {"name": "gpu-0", **model}, {"name": "gpu-1"}, {"name": "gpu-2", "taints": [taint]})
    pool("half", {"name": "gpu-9"}, count=2)
    make("DeviceClass", "gpu", spec={})
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    spec = {"devices": {"requests": [request]}}
    make("ResourceClaim", "mine", namespace="default", spec=spec)
    pod = {
        "metadata": {"name": "trains", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}],
        },
    }
    (uid,) = [one["metadata"]["uid"] for one in _stored(create_pods([pod], now=NOW))]
    result = {"request": "r", "driver": "gpu.example.com", "pool": "one", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "trains", "uid": uid}],
    }
    objects.update(
        "ResourceClaim", "default", "mine", lambda old: {**old, "status": status}, now=NOW,
        subresource="status",
    )  # fmt: skip


def _stored(made: Any) -> list[dict[str, Any]]:
    from clusterstate.queries.objects import decode_object, find_object

    found = find_object("Pod", "default", "trains")
    assert found is not None, made
    return [decode_object(found)]


def test_it_says_who_has_a_device_and_why_nobody_gets_others(
    operator: Client, devices: None
) -> None:
    page = text(operator.get("/console/devices/"))
    assert '<a href="/console/pods/default/trains/">default/trains</a>' in page
    assert "1 of 3 allocated" in page
    assert "tainted: broken=yes:NoSchedule" in page
    assert "the pool is incomplete: 1 of 2 slices" in page
    assert "model=A100" in page
    found = text(operator.get("/console/devices/?q=trains"))
    assert ("gpu-0" in found, "gpu-1" in found) == (True, False)
    assert operator.get("/console/devices/?name=x").status_code == 400


def test_it_takes_the_right_to_list_slices_and_hides_claims_of_others(devices: None) -> None:
    see = {"apiGroups": [RESOURCE], "resources": ["resourceslices"], "verbs": ["list"]}
    assert allow("nora", []).get("/console/devices/").status_code == 403
    page = text(allow("sam", [see]).get("/console/devices/"))
    assert "trains" not in page
    assert "mine" not in page
    assert "1 in other namespaces" in page


def test_devices_of_older_generations_of_a_pool_are_not_shown(
    operator: Client, devices: None
) -> None:
    pool("one", {"name": "gpu-0"}, {"name": "gpu-7"}, generation=2)
    page = text(operator.get("/console/devices/"))
    assert "1 of 2 allocated" in page
    assert ("gpu-7" in page, "gpu-2" in page) == (True, False)


def test_taints_of_rules_are_shown_to_who_may_list_the_rules(devices: None) -> None:
    taint = {"key": "burns", "value": "secret", "effect": "NoSchedule"}
    make("DeviceTaintRule", "r", spec={"deviceSelector": {"device": "gpu-1"}, "taint": taint})
    for name, kinds in (
        ("sam", ["resourceslices"]),
        ("ann", ["resourceslices", "devicetaintrules"]),
    ):
        rules = [{"apiGroups": [RESOURCE], "resources": kinds, "verbs": ["list"]}]
        page = text(allow(name, rules).get("/console/devices/"))
        assert "tainted: broken=yes:NoSchedule" in page, "the slice says it"
        assert ("burns=secret" in page) == (name == "ann")


def test_a_pod_s_page_has_its_claims(operator: Client, devices: None) -> None:
    page = text(operator.get("/console/pods/default/trains/"))
    assert "gpu.example.com/one/gpu-0" in page
    assert 'href="/console/objects/ResourceClaim/default/mine/"' in page
    assert "not made yet" in page, "of the volume's claim"
    get = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    hidden = text(allow("rita", [get]).get("/console/pods/default/trains/"))
    assert "gpu-0" not in hidden
    claim = {"apiGroups": [RESOURCE], "resources": ["resourceclaims"], "verbs": ["get"]}
    own = allow("olga", [get, {**claim, "resourceNames": ["mine"]}])
    assert "gpu-0" in text(own.get("/console/pods/default/trains/")), "no other claim is read"
