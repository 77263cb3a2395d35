"""Workloads with volumes, in the shapes of scheduler_perf's ``volumes`` folder (v1.36)."""

from typing import Any

from tests.perf.workloads import Manifest, Workload, node, pod

DRIVER = "ebs.csi.aws.com"
_MOST_ON_A_NODE = 39
_SIZE = {"storage": "1Gi"}
_BOUND = {"phase": "Bound"}


def csi_nodes(nodes: int) -> list[Manifest]:
    """Return what each node's driver attaches at most."""
    found = []
    for number in range(nodes):
        name = node(number)["metadata"]["name"]
        driver = {"name": DRIVER, "nodeID": name, "allocatable": {"count": _MOST_ON_A_NODE}}
        found.append({"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": [driver]}})
    return found


def bound_claim(number: int) -> list[Manifest]:
    """Return a pod's claim and the volume that it is bound to, as scheduler_perf makes them."""
    claim, volume = f"pvc-{number}", f"pv-{number}"
    modes = ["ReadOnlyMany"]
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    of_volume: dict[str, Any] = {
        "accessModes": modes, "capacity": _SIZE, "claimRef": {**reference, "uid": f"uid-{claim}"},
        "csi": {"driver": DRIVER, "volumeHandle": volume},
        "persistentVolumeReclaimPolicy": "Retain",
    }  # fmt: skip
    of_claim = {"accessModes": modes, "resources": {"requests": _SIZE}, "volumeName": volume}
    marks = {"pv.kubernetes.io/bind-completed": "true"}
    meta = {"name": claim, "namespace": "default", "uid": f"uid-{claim}", "annotations": marks}
    return [
        {
            "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": of_volume, "status": _BOUND,
        },
        {
            "kind": "PersistentVolumeClaim", "metadata": meta,
            "spec": {**of_claim, "storageClassName": ""}, "status": _BOUND,
        },
    ]  # fmt: skip


def mounting_pod(number: int) -> Manifest:
    """Return a pod that mounts the claim of its number."""
    claim = {"claimName": f"pvc-{number}"}
    made = pod(number, volumes=[{"name": "vol", "persistentVolumeClaim": claim}])
    made["metadata"]["namespace"] = "default"
    return made


VOLUMES: tuple[Workload, ...] = (
    Workload(
        name="SchedulingCSIPVs",
        about="each pod mounts a volume of a CSI driver that attaches 39 to a node",
        node=node, pod=mounting_pod, init_pod=mounting_pod, init=lambda nodes: nodes,
        measured=lambda nodes: min(nodes, 5_000), classes=5_000, warms=False,
        objects=csi_nodes, objects_of=bound_claim,
    ),
)  # fmt: skip
