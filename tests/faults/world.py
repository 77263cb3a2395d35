"""The cluster that the fault machine plays in: nodes, workloads, and pods of many classes.

Pure: a generator of chance comes in, manifests come out.
"""

import random
from typing import Any

Object = dict[str, Any]

SPACE = "soak"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SPACE}/deployments"
MARK = "soak.example/mark"
WEAR = "soak.example/wear"
"""The key of the taints that clients set."""
CANARY = "canary"
NODES = 12
STEADY = 3
"""So many nodes are never tainted, cordoned or deleted."""
BUDGET_LABELS = {"app": "guarded"}
LEAST_GUARDED = 4
WORKLOADS = {"worn": 6, "guarded": 7, "web": 8}
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


GPUS, PARTS, VOLUMES = 3, 4, 5
"""Whole devices, parts of one more, and volumes of a node."""
ROOM = "16Gi"
"""How much a zone holds of volumes."""
_DRIVER = "devices.soak.example"


def node(number: int) -> Object:
    name = f"n{number}"
    offer = {"cpu": "4", "memory": "16Gi", "pods": "40", "ephemeral-storage": "100Gi"}
    labels = {HOST: name, ZONE: f"z{number % 3}"}
    if number % 3 == 0:
        labels["disk"] = "ssd"
    return _node(name, labels, offer, [])


def canary_node() -> Object:
    offer = {"cpu": "1000", "memory": "1000Gi", "pods": "5000"}
    taint = {"key": "soak.example/canary", "effect": "NoSchedule"}
    return _node(CANARY, {HOST: CANARY, "canary": "true"}, offer, [taint])


def _node(name: str, labels: dict[str, str], offer: Object, taints: list[Object]) -> Object:
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {
            "capacity": offer, "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def namespace() -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}


def priority_classes() -> list[Object]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return [
        {**kind, "metadata": {"name": name}, "value": value}
        for name, value in (("urgent", 1000), ("usual", 100), ("idle", -10))
    ]


def budget() -> Object:
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": SPACE},
        "spec": {"selector": {"matchLabels": BUDGET_LABELS}, "minAvailable": LEAST_GUARDED},
    }  # fmt: skip


def claimed() -> list[tuple[str, Object]]:
    """Return paths and documents of devices and volumes, and of what claims of them name."""
    devices, storage = "/apis/resource.k8s.io/v1", "/apis/storage.k8s.io/v1"
    found: list[tuple[str, Object]] = []
    for number in range(NODES):
        name = f"n{number}"
        found += [(f"{devices}/resourceslices", one) for one in _slices(name)]
        driver = {"name": "hollow.stowage.dev", "nodeID": name, "allocatable": {"count": VOLUMES}}
        csi = {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": [driver]}}
        found.append((f"{storage}/csinodes", csi))
    of = {"kind": "StorageClass", "metadata": {"name": "hollow"}}
    of |= {"provisioner": "stowage.dev/hollow", "volumeBindingMode": "WaitForFirstConsumer"}
    told = {"topologyKey": ZONE, "capacity": ROOM, "delay": "300ms"}
    found.append((f"{storage}/storageclasses", {**of, "parameters": told}))
    space = f"{devices}/namespaces/{SPACE}"
    for name, more in _ASKED.items():
        chosen = f"device.attributes['{_DRIVER}'].sort == '{name}'"
        selectors = [{"cel": {"expression": chosen}}]
        made = {"kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}
        found.append((f"{devices}/deviceclasses", made))
        request = {"name": "one", "exactly": {"deviceClassName": name, **more}}
        spec = {"devices": {"requests": [request]}}
        template = {"metadata": {"name": name}, "spec": {"spec": spec}}
        found.append((f"{space}/resourceclaimtemplates", template))
    for number in range(2):
        request = {"name": "one", "exactly": {"deviceClassName": "gpu"}}
        spec = {"devices": {"requests": [request]}}
        claim = {"metadata": {"name": f"common-{number}"}, "spec": spec}
        found.append((f"{space}/resourceclaims", claim))
    return found


_ASKED: dict[str, Object] = {
    "gpu": {}, "part": {}, "shared": {"capacity": {"requests": {"bandwidth": "3"}}},
}  # fmt: skip


def _slices(name: str) -> list[Object]:
    """Return a node's pool: the counters of its card, and its devices."""

    def device(called: str, sort: str, **more: Any) -> Object:
        return {"name": called, "attributes": {"sort": {"string": sort}}, **more}

    def part(number: int, slots: int) -> Object:
        counters = {"slots": {"value": str(slots)}}
        consumed = [{"counterSet": "card", "counters": counters}]
        return device(f"part-{number}", "part", consumesCounters=consumed)

    shared = device("nic", "shared", capacity={"bandwidth": {"value": "10"}})
    devices = [device(f"gpu-{number}", "gpu") for number in range(GPUS)]
    devices += [part(number, 1 + number % 2) for number in range(PARTS)]
    devices.append({**shared, "allowMultipleAllocations": True})
    card = {"name": "card", "counters": {"slots": {"value": str(PARTS)}}}
    spec = {
        "driver": _DRIVER, "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 2},
    }  # fmt: skip
    return [
        {"metadata": {"name": f"{name}-card"}, "spec": {**spec, "sharedCounters": [card]}},
        {"metadata": {"name": name}, "spec": {**spec, "devices": devices}},
    ]


def _pod(name: str, cpu: str, memory: str, labels: dict[str, str], **spec: Any) -> Object:
    requests = {"cpu": cpu, "memory": memory}
    main = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE, "labels": labels},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 1, **spec},
    }  # fmt: skip


def canary(name: str) -> Object:
    """Return a pod that always fits: its node is kept for it."""
    tolerations = [{"key": "soak.example/canary", "operator": "Exists"}]
    return _pod(
        name, "1m", "1Mi", {"app": CANARY}, nodeSelector={"canary": "true"}, tolerations=tolerations
    )


def deployment(name: str, replicas: int) -> Object:
    labels = {"app": name}
    spec: Object = {"priorityClassName": "usual"}
    if name == "worn":
        # Tolerates an old taint for two seconds: it must not come back to it in a hot loop.
        spec["tolerations"] = [
            {"key": WEAR, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
        ]
    template = _pod("", "150m", "256Mi", labels, **spec)
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }  # fmt: skip


def _term(labels: dict[str, str], topology: str) -> Object:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": topology}


def pod(name: str, rng: random.Random) -> Object:
    """Return a pod of a class that chance picks."""
    return _CLASSES[rng.choice(_NAMES)](name, rng)


def _plain(name: str, rng: random.Random) -> Object:
    cpu, memory = rng.choice((("100m", "128Mi"), ("250m", "1Gi"), ("500m", "1Gi"), ("900m", "3Gi")))
    wanted = rng.choice(("usual", "usual", "idle"))
    return _pod(name, cpu, memory, {"app": "plain"}, priorityClassName=wanted)


def _urgent(name: str, rng: random.Random) -> Object:
    return _pod(name, "1500m", "2Gi", {"app": "urgent"}, priorityClassName="urgent")


def _idle(name: str, rng: random.Random) -> Object:
    return _pod(name, "300m", "512Mi", {"app": "idle"}, priorityClassName="idle")


def _tolerant(name: str, rng: random.Random) -> Object:
    toleration: Object = {"key": WEAR, "operator": "Exists", "effect": "NoExecute"}
    if rng.random() < 0.8:
        toleration["tolerationSeconds"] = rng.choice((0, 2, 10, 30, 300, 10**12))
    return _pod(name, "150m", "128Mi", {"app": "tolerant"}, tolerations=[toleration])


def _apart(name: str, rng: random.Random) -> Object:
    labels = {"app": "apart", "group": f"g{rng.randrange(2)}"}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(labels, HOST)]}
    return _pod(name, "100m", "64Mi", labels, affinity={"podAntiAffinity": rule})


def _together(name: str, rng: random.Random) -> Object:
    labels = {"app": "together", "group": f"g{rng.randrange(3)}"}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(labels, ZONE)]}
    return _pod(name, "100m", "64Mi", labels, affinity={"podAffinity": rule})


def _spread(name: str, rng: random.Random) -> Object:
    labels = {"app": "spread", "group": f"g{rng.randrange(2)}"}
    rule = {
        "maxSkew": 1 + rng.randrange(2), "topologyKey": rng.choice((ZONE, HOST)),
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels},
    }  # fmt: skip
    return _pod(name, "100m", "64Mi", labels, topologySpreadConstraints=[rule])


def _on_ssd(name: str, rng: random.Random) -> Object:
    if rng.random() < 0.5:
        return _pod(name, "200m", "256Mi", {"app": "ssd"}, nodeSelector={"disk": "ssd"})
    expression = {"key": ZONE, "operator": "In", "values": ["z0", "z1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return _pod(name, "200m", "256Mi", {"app": "zoned"}, affinity={"nodeAffinity": rule})


def _unplaceable(name: str, rng: random.Random) -> Object:
    if rng.random() < 0.5:
        return _pod(name, f"{rng.randrange(50, 90)}", "1Gi", {"app": "huge"})
    return _pod(name, "10m", "8Mi", {"app": "lonely"}, nodeSelector={"moon": f"{rng.randrange(9)}"})


def _gated(name: str, rng: random.Random) -> Object:
    return _pod(
        name, "50m", "32Mi", {"app": "gated"}, schedulingGates=[{"name": "soak.example/go"}]
    )


def _by_hand(name: str, rng: random.Random) -> Object:
    return _pod(name, "100m", "64Mi", {"app": "by-hand"}, schedulerName="nobody")


def _named(name: str, rng: random.Random) -> Object:
    return _pod(name, "400m", "512Mi", {"app": "named"}, nodeName=f"n{rng.randrange(NODES)}")


def _with_device(name: str, rng: random.Random) -> Object:
    made = _pod(name, "50m", "64Mi", {"app": "device"})
    if rng.random() < 0.1:
        entry = {"resourceClaimName": f"common-{rng.randrange(2)}"}
    else:
        entry = {"resourceClaimTemplateName": rng.choice(("gpu", "gpu", *_ASKED))}
    made["spec"]["resourceClaims"] = [{"name": "device", **entry}]
    return made


def _with_volume(name: str, rng: random.Random) -> Object:
    made = _with_device(name, rng) if rng.random() < 0.3 else _pod(name, "50m", "64Mi", {})
    made["metadata"]["labels"] = {"app": "stored"}
    size = rng.choice(("1Gi", "1Gi", "2Gi", "5Gi"))
    spec = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "hollow",
        "resources": {"requests": {"storage": size}},
    }  # fmt: skip
    made["spec"]["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]
    return made


_CLASSES = {
    "plain": _plain, "urgent": _urgent, "idle": _idle, "tolerant": _tolerant, "apart": _apart,
    "together": _together, "spread": _spread, "on ssd": _on_ssd, "unplaceable": _unplaceable,
    "gated": _gated, "by hand": _by_hand, "named": _named, "with device": _with_device,
    "with volume": _with_volume,
}  # fmt: skip
_NAMES = (
    *["plain"] * 8, *["idle"] * 3, *["tolerant"] * 4, *["apart"] * 2, *["together"] * 2,
    *["spread"] * 3, *["on ssd"] * 2, "urgent", "unplaceable", "gated", "by hand", "named",
    *["with device"] * 3, *["with volume"] * 3,
)  # fmt: skip
