"""Simulations and headroom know claims: as the live scheduler, they give no device twice."""

import pytest

from clusterstate.admission.validation.core import formats
from scheduling import simulation
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.simulation import Base, makings
from scheduling.simulation.preparing import with_claims
from scheduling.simulation.running import world_of
from scheduling.simulation.shortages import shortages
from tests.builders import make_pod


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
            "resources": {k: {"example.com/gpu": "1"} for k in ("limits", "requests")},
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


def told(info_of, objects):
    """What the claims of a pod of a document lack."""
    document = {"spec": {"base": "empty", "objects": objects, "pods": [], "admission": False}}
    asked = simulation.read({"apiVersion": "stowage.dev/v1", "kind": "Simulation", **document})
    world = world_of(asked, Base())
    manifest = {**info_of, "metadata": {**info_of["metadata"], "namespace": "default"}}
    return shortages(world.snapshot, world.intern(with_claims(manifest, world)))


def test_taints_and_missing_slices_are_told():
    half = gpus("c", "0")
    half["spec"]["pool"]["resourceSliceCount"] = 2
    tainted = gpus("a", "0")
    tainted["spec"]["devices"][0]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    (text,) = told(pod("p", OF_TEMPLATE), [half, tainted, CLASS, TEMPLATE])
    assert text == (
        "claim default/p-gpu-new, request gpu: 2 of 2 devices suit class gpu; 1 are in incomplete"
        " pools: gpu.example.com/c (1 of 2 slices); 1 are tainted and not tolerated"
    )


def test_devices_of_older_generations_of_a_pool_are_not_counted():
    newer = gpus("a", "0")
    newer["metadata"]["name"] = "newer"
    newer["spec"]["pool"]["generation"] = 2
    for slices in ([newer, gpus("a", "0", "1")], [gpus("a", "0", "1"), newer]):
        (text,) = told(pod("p", OF_TEMPLATE), [*slices, CLASS, TEMPLATE])
        assert text == (
            "claim default/p-gpu-new, request gpu: 1 of 1 devices suit class gpu;"
            " 1 free or shared, 1 wanted on one node"
        )


def test_holders_in_other_namespaces_are_counted():
    held = {"driver": "gpu.example.com", "pool": "a", "device": "0", "request": "gpu"}
    user = {"resource": "pods", "name": "secret", "uid": "u"}
    status = {"allocation": {"devices": {"results": [held]}}, "reservedFor": [user]}
    other = {**SHARED, "metadata": {"name": "theirs", "namespace": "theirs"}, "status": status}
    (text,) = told(pod("p", EXTENDED), [gpus("a", "0"), CLASS, other])
    assert text == (
        "example.com/gpu: 1 of 1 devices suit class gpu; 1 are held by other namespaces (1)"
    )


def test_room_for_volumes_is_told_by_place():
    made = {
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    room = {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "a", "namespace": "kube-system"},
        "storageClassName": "fast",
        "capacity": "500Mi",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
    }
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    }
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    asking = pod("p", {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]})
    (text,) = told(asking, [made, room, claim])
    assert text == (
        "claim default/data wants 1Gi of class fast: 0 volumes, 0 of them free, 0 large enough;"
        " too little room to make one: 500Mi in zone=a"
    )


def test_a_slice_to_make_has_a_name_whatever_the_pod_is_called():
    spec = {"base": "empty", "objects": OBJECTS, "pods": []}
    document = {"apiVersion": "stowage.dev/v1", "kind": "Simulation", "spec": spec}
    snapshot = world_of(simulation.read(document), Base()).snapshot
    cut_at_a_dot = ".".join(("a" * 49, "b" * 50, "c" * 50, "d"))
    claimer = make_pod(cut_at_a_dot).asks_also({"example.com/gpu": "1"}).build()
    made = makings.slices(snapshot, snapshot.intern(from_pod(claimer)), None)
    (one,) = made.objects
    assert not formats.dns_subdomain(one["metadata"]["name"])
