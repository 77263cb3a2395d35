"""The workloads as data: which nodes, which pods are there first, which are measured.

Names and shapes follow scheduler_perf's ``performance-config.yaml`` (v1.36). Each pod template is a
function of the pod's number, so that one workload can be many kinds of pod.
"""

from collections.abc import Callable
from typing import Any

import msgspec

Manifest = dict[str, Any]
Template = Callable[[int], Manifest]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One workload. ``init`` and ``measured`` say how many pods there are for so many nodes.

    ``classes`` is the number of classes among the measured pods. ``beside`` pods are created first
    and stay unschedulable, so that the others are scheduled in spite of them. ``services`` Services
    exist from the start. ``pod_for`` makes the template where it depends on the number of nodes.

    Between the batches of a measurement ``relabel`` changes a label of a node that no pod asks
    about, and so large a share of the batch's pods as ``leave`` says is deleted. ``warms``: the
    first pod of each class is placed before the measurement. ``refused``: no measured pod fits.
    ``overfull``: not all do. A workload with a ``node_count`` brings its own nodes, and the result
    tells which share of the resources in ``shares`` its pods got.

    ``objects``: what else plugins look up, for so many nodes; ``template_of_claims``: what the
    pods' claims of devices are made from; ``objects_of``: what is made for the pod of a number.
    """

    name: str
    about: str
    node: Template
    pod: Template
    init_pod: Template | None = None
    init: Callable[[int], int] = lambda nodes: 0
    measured: Callable[[int], int] = lambda nodes: min(10_000, 2 * nodes)
    classes: int = 1
    beside: int = 0
    beside_pod: Template | None = None
    preempts: bool = False
    services: int = 0
    service: Template | None = None
    pod_for: Callable[[int], Template] | None = None
    relabel: bool = False
    leave: float = 0.0
    warms: bool = True
    refused: bool = False
    overfull: bool = False
    node_count: int = 0
    shares: tuple[str, ...] = ()
    objects: Callable[[int], list[Manifest]] = lambda nodes: []
    template_of_claims: Manifest | None = None
    objects_of: Callable[[int], list[Manifest]] = lambda number: []

    def template(self, nodes: int) -> Template:
        """Return the template of the measured pods for so many nodes."""
        return self.pod if self.pod_for is None else self.pod_for(nodes)


def node(number: int) -> Manifest:
    """Return a node of 4 CPUs, 32 GiB and 110 pods in one of three zones."""
    name = f"bench-node-{number:05d}"
    offer = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOSTNAME: name, ZONE: f"zone{number % 3 + 1}"},
        },
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _tainted_node(number: int) -> Manifest:
    manifest = node(number)
    if number % 2:
        manifest["spec"] = {
            "taints": [{"key": "bench", "value": "odd", "effect": "NoSchedule"}],
        }
    else:
        manifest["spec"] = {
            "taints": [{"key": "bench", "value": "soft", "effect": "PreferNoSchedule"}],
        }
    return manifest


def _one_large_node(number: int) -> Manifest:
    manifest = node(number)
    if number == 0:
        manifest["status"]["allocatable"] = manifest["status"]["capacity"] = {
            "cpu": "90000",
            "memory": "320Ti",
            "pods": "90000",
        }
    return manifest


def pod(
    number: int,
    *,
    cpu: str = "100m",
    memory: str = "500Mi",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Return a pod of 100m and 500Mi."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"bench-pod-{number:06d}", "labels": labels or {"app": "bench"}},
        "spec": {
            "containers": [
                {
                    "name": "pause",
                    "image": "registry.k8s.io/pause:3.10.1",
                    "ports": [{"containerPort": 80}],
                    "resources": {
                        "limits": {"cpu": cpu, "memory": memory},
                        "requests": {"cpu": cpu, "memory": memory},
                    },
                }
            ],
            **spec,
        },
    }


def term(key: str, **labels: str) -> Manifest:
    """Return an affinity term about pods with these labels, by the topology key ``key``."""
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def required(kind: str, about: Manifest) -> Manifest:
    """Return an affinity with one required term; ``kind`` is podAffinity or podAntiAffinity."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [about]}}


def preferred(kind: str, about: Manifest) -> Manifest:
    """Return an affinity with one preferred term of weight 1."""
    return {
        kind: {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": about}
            ]
        }
    }


def node_affinity(key: str, *values: str) -> Manifest:
    """Return a required node affinity to nodes whose label ``key`` has one of the values."""
    requirement = {"key": key, "operator": "In", "values": list(values)}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [requirement]}]
            }
        }
    }


def _anti_affinity(number: int) -> Manifest:
    labels = {"color": f"green-{number % 10}"}
    affinity = required("podAntiAffinity", term(HOSTNAME, **labels))
    return pod(number, labels=labels, affinity=affinity)


def _affinity(number: int) -> Manifest:
    affinity = required("podAffinity", term(ZONE, color="blue"))
    return pod(number, labels={"color": "blue"}, affinity=affinity)


def _preferred_affinity(number: int) -> Manifest:
    affinity = preferred("podAffinity", term(HOSTNAME, color="red"))
    return pod(number, labels={"color": "red"}, affinity=affinity)


def _preferred_anti_affinity(number: int) -> Manifest:
    affinity = preferred("podAntiAffinity", term(HOSTNAME, color="yellow"))
    return pod(number, labels={"color": "yellow"}, affinity=affinity)


def _spread(number: int) -> Manifest:
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }
    return pod(number, labels={"color": "blue"}, topologySpreadConstraints=[constraint])


def _mixed(number: int) -> Manifest:
    kinds: tuple[Template, ...] = (
        pod, _affinity, _anti_affinity, _preferred_affinity, _preferred_anti_affinity,
    )  # fmt: skip
    return kinds[number % len(kinds)](number)


def hundred_kinds(number: int) -> Manifest:
    """Return a pod of one of 100 kinds in turn, each with another request and label."""
    kind = number % 100
    return pod(number, cpu=f"{50 + kind}m", labels={"app": f"bench-{kind}"})


def _distinct(number: int) -> Manifest:
    cpu, memory = f"{50 + number % 997}m", f"{400 + number % 1999}Mi"
    return pod(number, cpu=cpu, memory=memory, labels={"app": f"bench-{number}"})


def _to_first_node(number: int) -> Manifest:
    requirement = {"key": "metadata.name", "operator": "In", "values": ["bench-node-00000"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [requirement]}]
            }
        }
    }
    return pod(number, affinity=affinity)


SCHEDULER_PERF: tuple[Workload, ...] = (
    Workload(name="SchedulingBasic", about="identical pods, nothing special", node=node, pod=pod),
    Workload(
        name="HundredKinds", about="100 kinds of pod, one after another", node=node,
        pod=hundred_kinds, classes=100,
    ),
    Workload(
        name="AllDifferent", about="no two pods alike", node=node, pod=_distinct,
        measured=lambda nodes: min(2_000, nodes), classes=2_000,
    ),
    Workload(
        name="SchedulingNodeAffinity", about="required node affinity to one of three zones",
        node=node, pod=lambda n: pod(n, affinity=node_affinity(ZONE, "zone1", "zone2")),
    ),
    Workload(
        name="SchedulingTaintToleration", about="half of the nodes tainted, the others softly",
        node=_tainted_node,
        pod=lambda n: pod(n, tolerations=[{"key": "bench", "value": "odd"}]),
    ),
    Workload(
        name="SchedulingPodAntiAffinity", about="required anti-affinity by host, ten colours",
        node=node, pod=_anti_affinity, init_pod=_anti_affinity, init=lambda nodes: nodes // 5,
        classes=10,
    ),
    Workload(
        name="SchedulingPodAffinity", about="required affinity by zone", node=node, pod=_affinity,
        init_pod=_affinity, init=lambda nodes: nodes // 5,
    ),
    Workload(
        name="TopologySpreading", about="spread over zones, maxSkew 5, DoNotSchedule", node=node,
        pod=_spread, init_pod=pod, init=lambda nodes: nodes // 5,
    ),
    Workload(
        name="PreferredPodAffinity", about="preferred affinity by host", node=node,
        pod=_preferred_affinity, init_pod=_preferred_affinity, init=lambda nodes: nodes // 5,
    ),
    Workload(
        name="MixedSchedulingBasePod", about="plain pods among pods with affinity of all kinds",
        node=node, pod=pod, init_pod=_mixed, init=lambda nodes: nodes // 5,
    ),
    Workload(
        name="Unschedulable", about="plain pods while pods wait that fit nowhere", node=node,
        pod=pod, beside=200, beside_pod=lambda n: pod(n, cpu="9", labels={"app": "large"}),
    ),
    Workload(
        name="PreemptionBasic", about="full nodes, each pod must preempt", node=node,
        pod=lambda n: pod(n, cpu="3", memory="500Mi", priority=1000), preempts=True,
        init_pod=lambda n: pod(n, cpu="900m", memory="500Mi"), init=lambda nodes: 4 * nodes,
        measured=lambda nodes: min(500, nodes),
    ),
    Workload(
        name="SchedulingDaemonset", about="each pod may go to one large node only",
        node=_one_large_node, pod=_to_first_node,
    ),
)  # fmt: skip
