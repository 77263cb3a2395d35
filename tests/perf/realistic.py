"""Workloads as users bring them: many classes of pod, Services, churn, refusals, a full cluster.

scheduler_perf's workloads (``workloads``) consist of one class each, except two, and that flatters
an engine which works once per class. The workloads here have as many classes as real clusters have:

* most pods belong to a Deployment behind a Service, so the default topology spreading applies
  (``plugins/podtopologyspread``, system defaults, v1.36);
* a DaemonSet's pods each name a node of their own (``daemon_controller.go`` writes a
  ``metadata.name`` term into each pod);
* a class appears with few pods, and a few classes make up most pods: a heavy tail, as in the
  traces of Weng et al. (USENIX ATC 2023) and Tirmazi et al. (EuroSys 2020);
* pods leave, nodes' labels change, and pods that fit nowhere arrive, while others are placed.

Everything derives from the pod's number, so that two runs see the same pods in the same order.
"""

from collections.abc import Callable

from tests.perf.workloads import (
    HOSTNAME,
    ZONE,
    Manifest,
    Template,
    Workload,
    hundred_kinds,
    node,
    node_affinity,
    pod,
    preferred,
    required,
    term,
)

_SIZES = (
    ("100m", "128Mi"), ("100m", "256Mi"), ("250m", "256Mi"), ("250m", "512Mi"), ("500m", "512Mi"),
    ("50m", "64Mi"), ("200m", "1Gi"), ("300m", "384Mi"), ("150m", "192Mi"), ("400m", "768Mi"),
)  # fmt: skip
"""CPU and memory of small services: ten request shapes, whatever the number of Deployments."""


def _mix(number: int) -> int:
    """Return 64 bits that look random and depend on ``number`` alone (splitmix64)."""
    value = (number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


def _of_deployment(deployment: int, number: int) -> Manifest:
    cpu, memory = _SIZES[deployment % len(_SIZES)]
    labels = {"app": f"app-{deployment}", "pod-template-hash": f"{deployment:010x}"}
    return pod(number, cpu=cpu, memory=memory, labels=labels)


def service(number: int) -> Manifest:
    """Return the Service in front of Deployment ``number``."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"app-{number}", "namespace": "default"},
        "spec": {"selector": {"app": f"app-{number}"}, "ports": [{"port": 80}]},
    }


def _behind_services(deployments: int) -> Workload:
    return Workload(
        name=f"Deployments{deployments}",
        about=f"{deployments} Deployments behind Services, default spreading, their pods mixed",
        node=node,
        pod=lambda number: _of_deployment(_mix(number) % deployments, number),
        measured=lambda nodes: min(3 * deployments, 2 * nodes),
        classes=deployments,
        services=deployments,
        service=service,
        warms=False,
    )


def _own_node(nodes: int) -> Template:
    def template(number: int) -> Manifest:
        name = f"bench-node-{number % nodes:05d}"
        requirement = {"key": "metadata.name", "operator": "In", "values": [name]}
        terms = [{"matchFields": [requirement]}]
        affinity = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
        return pod(number, labels={"app": "daemon"}, affinity=affinity)

    return template


def _own_anti_affinity(number: int) -> Manifest:
    labels = {"app": f"exclusive-{number % 100}"}
    affinity = required("podAntiAffinity", term(HOSTNAME, **labels))
    return pod(number, labels=labels, affinity=affinity)


def _too_large(kinds: int) -> Template:
    def template(number: int) -> Manifest:
        kind = number % kinds
        return pod(number, cpu=f"{9 + kind}", labels={"app": f"large-{kind}"})

    return template


def _heavy_tail(number: int, classes: int) -> int:
    """Return a class number from 0: half of the pods belong to about the square root of all."""
    share = (_mix(number) >> 11) / (1 << 53)
    return int(classes**share) - 1


def _of_trace(number: int, classes: int = 4_000) -> Manifest:
    """Return a pod of one of ``classes`` classes, with what such a class asks for.

    Of ten classes six are Deployments, two prefer to be apart, one asks for a zone, one tolerates a
    taint and has a high priority; requests differ between classes.
    """
    kind = _heavy_tail(number, classes)
    shape = _mix(kind)
    cpu = f"{(50, 100, 100, 200, 250, 500, 750, 1000)[shape % 8] + shape % 7}m"
    memory = f"{(64, 128, 256, 256, 512, 1024, 2048)[(shape >> 8) % 7] + shape % 5}Mi"
    labels = {"app": f"app-{kind}"}
    match (shape >> 16) % 10:
        case 6 | 7:
            affinity = preferred("podAntiAffinity", term(HOSTNAME, **labels))
            return pod(number, cpu=cpu, memory=memory, labels=labels, affinity=affinity)
        case 8:
            affinity = node_affinity(ZONE, f"zone{shape % 3 + 1}")
            return pod(number, cpu=cpu, memory=memory, labels=labels, affinity=affinity)
        case 9:
            tolerations = [{"key": "bench", "operator": "Exists"}]
            return pod(
                number, cpu=cpu, memory=memory, labels=labels, priority=1000,
                tolerations=tolerations,
            )  # fmt: skip
        case _:
            return pod(number, cpu=cpu, memory=memory, labels=labels)


def _filling(share: float, cpu_milli: int = 190) -> Callable[[int], int]:
    """Return how many pods of ``cpu_milli`` fill so large a share of the nodes' 4 CPUs."""
    return lambda nodes: int(nodes * 4000 * share / cpu_milli)


REALISTIC: tuple[Workload, ...] = (
    _behind_services(300),
    _behind_services(900),
    _behind_services(3_000),
    Workload(
        name="OwnNode", about="each pod names a node of its own, as DaemonSets make them",
        node=node, pod=_own_node(500), pod_for=_own_node, warms=False,
        measured=lambda nodes: min(5_000, nodes), classes=5_000,
    ),
    Workload(
        name="OwnAntiAffinity", about="100 classes, each apart from its own pods by host",
        node=node, pod=_own_anti_affinity, warms=False, classes=100,
        measured=lambda nodes: min(2_000, 10 * nodes),
    ),
    Workload(
        name="Refused", about="pods of one class that fit nowhere", node=node, pod=_too_large(1),
        warms=False, refused=True, measured=lambda nodes: 1_000,
    ),
    Workload(
        name="RefusedOfFifty", about="pods of 50 classes that fit nowhere", node=node,
        pod=_too_large(50), warms=False, refused=True, classes=50, measured=lambda nodes: 1_000,
    ),
    Workload(
        name="LabelsChange", about="100 kinds; between 100 pods a label that nobody asks for"
        " changes on a node", node=node, pod=hundred_kinds, classes=100, relabel=True,
        measured=lambda nodes: min(5_000, 2 * nodes),
    ),
    Workload(
        name="NinetyPercentFull", about="100 kinds on nodes that are 90 % full", node=node,
        pod=hundred_kinds, init_pod=lambda number: pod(number, cpu="190m", memory="64Mi"),
        init=_filling(0.9), classes=100, warms=False, measured=lambda nodes: nodes,
    ),
    Workload(
        name="TraceMix", about="4,000 classes with a heavy tail; one pod leaves for two that come,"
        " nodes' labels change", node=node, pod=_of_trace, classes=4_000, services=400,
        service=service, warms=False, leave=0.5, relabel=True,
        measured=lambda nodes: min(10_000, 2 * nodes),
    ),
)  # fmt: skip
