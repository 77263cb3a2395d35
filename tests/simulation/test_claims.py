"""Simulations and headroom know claims: as the live scheduler, they give no device twice."""

import pytest

from scheduling import simulation
from scheduling.simulation import Base


def node(name, **labels):
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"zone": name[-1], **labels}},
        "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
    }


def gpus(node_name, *names):
    return {
        "kind": "ResourceSlice",
        "metadata": {"name": node_name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name} for name in names],
        },
    }


CLASS = {
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
        "extendedResourceName": "example.com/gpu",
    },
}
DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
TEMPLATE = {
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"spec": DEVICES},
}
SHARED = {
    "kind": "ResourceClaim",
    "metadata": {"name": "shared", "namespace": "default"},
    "spec": DEVICES,
}
OBJECTS = [node("a"), node("b"), gpus("a", "0"), gpus("b", "0", "1"), CLASS, TEMPLATE, SHARED]


def pod(name, spec=None, **more):
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec or {}, **more}


def claiming(**how):
    return {"resourceClaims": [{"name": "gpu", **how}], "containers": [{"name": "c", "image": "i"}]}


OF_TEMPLATE = claiming(resourceClaimTemplateName="one")
EXTENDED = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "resources": {"limits": {"example.com/gpu": "1"}},
        }
    ]
}


def run(pods, objects=OBJECTS, **spec):
    spec = {"base": "empty", "objects": objects, "pods": pods, "explain": "none", **spec}
    document = {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": spec}
    return simulation.run(simulation.read(document), Base())["status"]["results"]


def places(results):
    return sorted(one["nodeName"] for one in results)


@pytest.mark.parametrize("spec", [OF_TEMPLATE, EXTENDED], ids=["template", "extended resource"])
def test_no_two_pods_of_a_simulation_get_one_device(spec):
    found = run([pod(f"p{n}", spec) for n in range(4)])
    assert places(found) == ["", "a", "b", "b"]
    refused = next(one for one in found if not one["nodeName"])
    assert "cannot allocate all claims" in refused["message"]


def test_pods_share_a_claim_on_the_node_of_its_devices():
    found = run([pod(f"p{n}", claiming(resourceClaimName="shared")) for n in range(3)])
    assert places(found) in (["a"] * 3, ["b"] * 3)


def test_a_pod_without_its_template_waits_for_the_claim():
    (found,) = run([pod("p", claiming(resourceClaimTemplateName="none"))])
    assert (found["status"], found["nodeName"]) == ("unschedulable", "")
    assert 'pod "default/p": ResourceClaim not created yet' in found["message"]


@pytest.mark.parametrize(
    ("spec", "nodes", "blocked_by"),
    [
        (OF_TEMPLATE, {"a": 1, "b": 2}, "DynamicResources"),
        (EXTENDED, {"a": 1, "b": 2}, "DynamicResources"),
        (claiming(resourceClaimName="shared"), {"a": 110}, "NodeResourcesFit"),
    ],
    ids=["template", "extended resource", "shared"],
)
def test_headroom_counts_devices(spec, nodes, blocked_by):
    question = {
        "apiVersion": "stowage.dev/v1",
        "kind": "Headroom",
        "spec": {"base": "empty", "objects": OBJECTS, "pod": pod("p", spec)},
    }
    found = simulation.run_headroom(simulation.read_headroom(question), Base())["status"]
    assert (found["fits"], found["nodes"]) == (sum(nodes.values()), nodes)
    assert blocked_by in {one["plugin"] for one in found["blockers"]}


def test_a_preempted_pod_gives_its_device_back():
    holder = {
        **SHARED,
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "0"}
                    ]
                }
            },
            "reservedFor": [{"resource": "pods", "name": "low", "uid": "low"}],
        },
        "metadata": {
            **SHARED["metadata"],
            "uid": "s",
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        },
    }
    full = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "40"}}}]
    low = pod("low", {**claiming(resourceClaimName="shared"), "containers": full, "nodeName": "a"})
    objects = [node("a"), gpus("a", "0"), CLASS, TEMPLATE, holder, low]
    first = pod("high", {"containers": full, "priority": 10})
    found = run([first, pod("later", OF_TEMPLATE)], objects, preemption="perform", admission=False)
    assert places(found) == ["a", "a"], "the device is free once its holder is gone"


def test_a_volume_is_given_once_and_pins_its_pod():
    def volume(name, node_name):
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [node_name]}]}]
        return {
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            "status": {"phase": "Available"},
        }

    local = {
        "kind": "StorageClass",
        "metadata": {
            "name": "local",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": wanted}}}],
    }
    objects = [node("a"), node("b"), local, volume("one", "a"), volume("two", "b")]
    found = run([pod(f"p{n}", spec) for n in range(3)], objects)
    assert places(found) == ["", "a", "b"]
    assert "didn't find available persistent volumes" in str([one["message"] for one in found])
