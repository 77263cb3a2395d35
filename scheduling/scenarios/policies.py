"""Scheduler configurations with short names, for comparisons.

``default``        the default profile
``least``          NodeResourcesFit prefers empty nodes (LeastAllocated)
``most``           NodeResourcesFit prefers full nodes (MostAllocated); the rest as by default
``packing``        full nodes above all: no spreading of pods, no balance of resources
``fragmentation``  GPUFragmentation, with the script's own pods as the typical ones, over packing
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import QuantityError, value
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.plugins.catalogue import load_configuration
from scheduling.scenarios.script import Script
from scheduling.scenarios.traces import MODEL

_API: Final = "kubescheduler.config.k8s.io/v1"
_MOST_TASKS: Final = 50
_COMMON: Final = frozenset({"cpu", "memory"})
_SPREADING: Final = ("PodTopologySpread", "NodeResourcesBalancedAllocation", "ImageLocality")


class NoTypicalPods(ValueError):
    """No pod of the script requests GPUs in thousandths, so there are no typical ones."""


def document(name: str, script: Script) -> Manifest:
    """Return the ``KubeSchedulerConfiguration`` document with a short name.

    Raises:
        KeyError: there is no such name.
        NoTypicalPods: ``fragmentation`` for a script without GPUs in thousandths.
    """
    return {"apiVersion": _API, "kind": "KubeSchedulerConfiguration", **_POLICIES[name](script)}


def load(name: str, script: Script) -> KubeSchedulerConfiguration:
    """Return the parsed configuration with a short name.

    Raises:
        KeyError: there is no such name.
        NoTypicalPods: see ``document``.
    """
    return load_configuration(document(name, script))


def _default(_: Script) -> Manifest:
    return {}


def _fit(script: Script, strategy: str) -> Manifest:
    special = [name for name in script.scored if name not in _COMMON]
    resources = [{"name": name, "weight": 1} for name in sorted(_COMMON)]
    resources += [{"name": name, "weight": 3} for name in special]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    return {"name": "NodeResourcesFit", "args": args}


def _least(script: Script) -> Manifest:
    return {"profiles": [{"pluginConfig": [_fit(script, "LeastAllocated")]}]}


def _most(script: Script) -> Manifest:
    return {"profiles": [{"pluginConfig": [_fit(script, "MostAllocated")]}]}


def _packing(script: Script) -> Manifest:
    profile = {
        "plugins": {"score": {"disabled": [{"name": name} for name in _SPREADING]}},
        "pluginConfig": [_fit(script, "MostAllocated")],
    }
    return {"profiles": [profile]}


def _fragmentation(script: Script) -> Manifest:
    resource = script.scored[0]
    args = {"resource": resource, "modelLabel": MODEL, "tasks": typical_pods(script)}
    profile = {
        "plugins": {
            "score": {
                "disabled": [{"name": name} for name in _SPREADING],
                "enabled": [{"name": "GPUFragmentation", "weight": 100}],
            }
        },
        "pluginConfig": [
            _fit(script, "MostAllocated"),
            {"name": "GPUFragmentation", "args": args},
        ],
    }
    return {"profiles": [profile]}


def typical_pods(script: Script) -> list[Manifest]:
    """Return the most frequent requests of GPU pods, as arguments of GPUFragmentation.

    Raises:
        NoTypicalPods: no pod requests the script's first resource.
    """
    resource = script.scored[0]
    counts: Counter[tuple[str, str, int, tuple[str, ...]]] = Counter()
    for step in script.steps:
        for arrival in step.arrivals:
            shape = _shape(arrival.manifest, resource)
            if shape is not None:
                counts[shape] += 1
    if not counts:
        raise NoTypicalPods(f"no pod requests {resource}, so there are no typical pods to derive")
    found = []
    for (cpu, memory, gpu, models), weight in counts.most_common(_MOST_TASKS):
        task: Manifest = {"cpu": cpu, "memory": memory, "gpuMilli": gpu, "weight": weight}
        if models:
            task["models"] = list(models)
        found.append(task)
    return found


def _shape(pod: Manifest, resource: str) -> tuple[str, str, int, tuple[str, ...]] | None:
    """Return cpu, memory, GPU thousandths and models of a GPU pod; ``None`` for other pods."""
    spec: dict[str, Any] = pod.get("spec") or {}
    containers = spec.get("containers") or [{}]
    requests = (containers[0].get("resources") or {}).get("requests") or {}
    try:
        gpu = value(str(requests.get(resource, 0)))
    except QuantityError:
        return None
    if gpu <= 0:
        return None
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    )
    models = {
        model
        for term in terms or ()
        for expression in term.get("matchExpressions") or ()
        if expression.get("key") == MODEL and expression.get("operator") == "In"
        for model in expression.get("values") or ()
    }
    return (
        str(requests.get("cpu", "0")),
        str(requests.get("memory", "0")),
        gpu,
        tuple(sorted(models)),
    )


_POLICIES: Final[Mapping[str, Callable[[Script], Manifest]]] = {
    "default": _default,
    "least": _least,
    "most": _most,
    "packing": _packing,
    "fragmentation": _fragmentation,
}
NAMES: Final = tuple(_POLICIES)
