"""Objects for tests, built by sentences: ``make_pod().tolerates("gpu").asks(cpu="2")``.

A builder is immutable: every method returns a new one, so a common start can be shared.
``manifest`` is the JSON object, ``build()`` the lens over it.
"""

from typing import Any, Generic, Self, TypeVar

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod

T = TypeVar("T")


class _Builder(Generic[T]):
    kind: type[T]

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    @property
    def manifest(self) -> Manifest:
        """A JSON object of its own."""
        copy: Manifest = msgspec.json.decode(msgspec.json.encode(self._manifest))
        return copy

    def build(self) -> T:
        """The lens."""
        return msgspec.convert(self._manifest, self.kind)

    def with_(self, *path: str, value: Any) -> Self:
        """Put a value at a path of the manifest."""
        manifest = self.manifest
        inner = manifest
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
        return type(self)(manifest)

    def append(self, *path: str, value: Any) -> Self:
        """Append a value to a list at a path of the manifest."""
        inner: Any = self._manifest
        for name in path:
            inner = inner.get(name, {}) if isinstance(inner, dict) else {}
        return self.with_(*path, value=[*(inner or []), value])

    def named(self, name: str) -> Self:
        return self.with_("metadata", "name", value=name)

    def labelled(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Add labels; keys that are Python names may be keywords."""
        before = self._manifest["metadata"].get("labels", {})
        return self.with_("metadata", "labels", value={**before, **(labels or {}), **more})

    def deleted(self, at: str = "2026-01-01T00:00:00Z") -> Self:
        return self.with_("metadata", "deletionTimestamp", value=at)


class NodeBuilder(_Builder[Node]):
    """A node of 4 CPU, 32 GiB and 110 pods unless told otherwise."""

    kind = Node

    def offers(self, **amounts: str | int) -> Self:
        """Replace allocatable amounts; underscores stand for dashes: ``ephemeral_storage``."""
        return self.offers_also({k.replace("_", "-"): str(v) for k, v in amounts.items()})

    def offers_also(self, amounts: dict[str, str]) -> Self:
        """Add allocatable amounts by their full names: ``{"nvidia.com/gpu": "2"}``."""
        allocatable = {**self._manifest["status"]["allocatable"], **amounts}
        node = self.with_("status", "allocatable", value=allocatable)
        return node.with_("status", "capacity", value=allocatable)

    def tainted(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        return self.append("spec", "taints", value={"key": key, "value": value, "effect": effect})

    def cordoned(self) -> Self:
        return self.with_("spec", "unschedulable", value=True)

    def in_zone(self, zone: str) -> Self:
        return self.labelled({"topology.kubernetes.io/zone": zone})


class PodBuilder(_Builder[Pod]):
    """A pod with one container that asks for nothing."""

    kind = Pod

    def in_namespace(self, namespace: str) -> Self:
        return self.with_("metadata", "namespace", value=namespace)

    def on(self, node: str) -> Self:
        return self.with_("spec", "nodeName", value=node)

    def asks(self, **amounts: str | int) -> Self:
        """Request amounts in the first container; underscores stand for dashes."""
        return self.asks_also({k.replace("_", "-"): str(v) for k, v in amounts.items()})

    def asks_also(self, amounts: dict[str, str]) -> Self:
        """Request amounts by their full names in the first container."""
        first, *others = self._manifest["spec"]["containers"]
        before = first.get("resources", {}).get("requests", {})
        first = {**first, "resources": {"requests": {**before, **amounts}}}
        return self.with_("spec", "containers", value=[first, *others])

    def image(self, name: str) -> Self:
        first, *others = self._manifest["spec"]["containers"]
        return self.with_("spec", "containers", value=[{**first, "image": name}, *others])

    def host_port(self, port: int, protocol: str = "TCP", ip: str = "") -> Self:
        first, *others = self._manifest["spec"]["containers"]
        entry = {"containerPort": port, "hostPort": port, "protocol": protocol, "hostIP": ip}
        first = {**first, "ports": [*first.get("ports", []), entry]}
        return self.with_("spec", "containers", value=[first, *others])

    def tolerates(self, key: str = "", value: str | None = None, effect: str = "") -> Self:
        """Tolerate a taint: any value of it unless one is given; any taint without a key."""
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        if value is not None:
            toleration |= {"operator": "Equal", "value": value}
        return self.append("spec", "tolerations", value=toleration)

    def selects(self, labels: dict[str, str] | None = None, **more: str) -> Self:
        """Add pairs to the node selector."""
        before = self._manifest["spec"].get("nodeSelector", {})
        return self.with_("spec", "nodeSelector", value={**before, **(labels or {}), **more})

    def requires_node(self, *expressions: tuple[str, str, list[str]]) -> Self:
        """Add a required term, ORed with the others: ``("zone", "In", ["a"])``."""
        where = ("spec", "affinity", "nodeAffinity")
        term = {"matchExpressions": [_expression(*e) for e in expressions]}
        rule = "requiredDuringSchedulingIgnoredDuringExecution"
        return self.append(*where, rule, "nodeSelectorTerms", value=term)

    def prefers_node(self, weight: int, *expressions: tuple[str, str, list[str]]) -> Self:
        where = ("spec", "affinity", "nodeAffinity")
        preference = {"matchExpressions": [_expression(*e) for e in expressions]}
        rule = "preferredDuringSchedulingIgnoredDuringExecution"
        return self.append(*where, rule, value={"weight": weight, "preference": preference})

    def near(self, topology_key: str, weight: int | None = None, **labels: str) -> Self:
        """Want pods with these labels in the same domain; required unless it has a weight."""
        return self._around("podAffinity", topology_key, weight, labels)

    def away_from(self, topology_key: str, weight: int | None = None, **labels: str) -> Self:
        """Want no pods with these labels in the same domain; required unless it has a weight."""
        return self._around("podAntiAffinity", topology_key, weight, labels)

    def _around(self, kind: str, key: str, weight: int | None, labels: dict[str, str]) -> Self:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
        where = ("spec", "affinity", kind)
        if weight is None:
            rule = "requiredDuringSchedulingIgnoredDuringExecution"
            return self.append(*where, rule, value=term)
        rule = "preferredDuringSchedulingIgnoredDuringExecution"
        return self.append(*where, rule, value={"weight": weight, "podAffinityTerm": term})

    def spread(
        self, topology_key: str, max_skew: int = 1, *, hard: bool = True, **labels: str
    ) -> Self:
        """Spread pods with these labels over the domains of a key."""
        constraint = {
            "maxSkew": max_skew,
            "topologyKey": topology_key,
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        }
        return self.append("spec", "topologySpreadConstraints", value=constraint)

    def priority(self, value: int) -> Self:
        return self.with_("spec", "priority", value=value)

    def started(self, at: str) -> Self:
        return self.with_("status", "startTime", value=at)


def _expression(key: str, operator: str, values: list[str]) -> Manifest:
    return {"key": key, "operator": operator, "values": values}


def make_node(name: str = "node-1") -> NodeBuilder:
    """Return a node that carries its hostname label."""
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return NodeBuilder(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
    )


def make_pod(name: str = "pod-1") -> PodBuilder:
    """Return a pod in namespace default."""
    return PodBuilder(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "app"}]},
        }
    )
