"""Slices of devices as the allocator reads them, parsed once for a version of a slice.

A ``SliceView`` has its devices. Results of CEL selectors are cached with a device's ``Content``,
which devices that differ only in their names share: an expression is evaluated once for each.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from clusterstate.objects.cel.devices import (
    CompileError,
    Device,
    EvaluationError,
    compile_selector,
    device_value,
)
from clusterstate.objects.dra.capacity import unqualified
from clusterstate.objects.rules.matching import NodeSelectorMatcher, node_fields
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import NodeSelector
from clusterstate.objects.values.quantity import Quantity

DeviceId = tuple[str, str, str]
"""Driver, pool and name of a device."""
Counters = tuple[tuple[str, dict[str, Quantity]], ...]
"""Counter sets by name, and what is taken or there of each counter."""


class NodeView(msgspec.Struct, frozen=True):
    """The facts of a node that decide its access to devices: name and labels."""

    name: str
    labels: Mapping[str, str]


class NodeAccess:
    """Where a slice or a device can be used: one node, all nodes, or what a selector picks."""

    __slots__ = ("_matcher", "all_nodes", "node_name", "selector")

    def __init__(self, of: Mapping[str, Any]) -> None:
        self.node_name: str | None = of.get("nodeName") or None
        self.all_nodes = bool(of.get("allNodes"))
        self.selector: Manifest | None = of.get("nodeSelector")
        self._matcher: NodeSelectorMatcher | None = None
        if self.selector is not None:
            selector = msgspec.convert(self.selector, NodeSelector)
            self._matcher = NodeSelectorMatcher(selector, empty_term="none")

    @property
    def label_keys(self) -> set[str]:
        """The keys of the node labels on which the selector depends."""
        terms = (self.selector or {}).get("nodeSelectorTerms") or ()
        return {one["key"] for term in terms for one in term.get("matchExpressions") or ()}

    @property
    def is_set(self) -> bool:
        """Whether a node name, all nodes, or a selector is given."""
        return bool(self.node_name or self.all_nodes or self._matcher)

    def matches(self, node: NodeView) -> bool:
        """Return whether the node has access (``NodeMatches``)."""
        if self.node_name:
            return node.name == self.node_name
        if self.all_nodes:
            return True
        return self._matcher is not None and self._matcher.matches(
            node.labels, node_fields(node.name)
        )


_MOST_ANSWERS: Final = 256
"""So many expressions are remembered of a kind of device, of all that clients ever ask."""


class Content:
    """A device without its name, shared by equal devices; caches the results of CEL selectors."""

    __slots__ = ("__weakref__", "_answers", "_device", "_values")

    def __init__(self, driver: str, manifest: Manifest) -> None:
        self._device = Device(driver, manifest)
        self._values: dict[bool, dict[str, Any]] = {}
        self._answers: dict[tuple[str, bool], bool | str] = {}

    def matches(self, expression: str, *, lists: bool) -> bool:
        """Return whether a CEL selector matches; ``lists``: whether attributes may be lists.

        Raises:
            CompileError, EvaluationError: it cannot tell.
        """
        answer = self._answers.get((expression, lists))
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[expression, lists] = self._ask(expression, lists=lists)
        if isinstance(answer, str):
            raise EvaluationError(answer)
        return answer

    def _ask(self, expression: str, *, lists: bool) -> bool | str:
        selector = compile_selector(expression)
        try:
            if lists not in self._values:
                self._values[lists] = device_value(self._device, lists=lists)
            return selector.evaluate(self._values[lists])[0]
        except EvaluationError as error:
            return str(error)


_contents: WeakValueDictionary[bytes, Content] = WeakValueDictionary()
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def _content(driver: str, manifest: Manifest) -> Content:
    key = _encode((driver, {**manifest, "name": ""}))
    found = _contents.get(key)
    if found is None:
        found = _contents[key] = Content(driver, manifest)
    return found


class DeviceView:
    """One device of a slice."""

    __slots__ = (
        "capacities", "consumes", "content", "id", "manifest", "place", "shared", "taints",
    )  # fmt: skip

    def __init__(self, driver: str, pool: str, manifest: Manifest) -> None:
        self.id: DeviceId = (driver, pool, manifest["name"])
        self.manifest = manifest
        self.place = NodeAccess(manifest)
        self.shared = bool(manifest.get("allowMultipleAllocations"))
        self.capacities = unqualified(manifest.get("capacity") or {}, driver)
        self.taints: Sequence[Manifest] = manifest.get("taints") or ()
        self.consumes: Counters = _counters(
            manifest.get("consumesCounters") or (), name="counterSet"
        )
        self.content = _content(driver, manifest)

    def __str__(self) -> str:
        return "/".join(self.id)

    @property
    def is_plain(self) -> bool:
        """Whether the device is allocated as a whole, at once, and uses no counters."""
        return not (self.shared or self.consumes or self.manifest.get("bindingConditions"))

    def matches(self, expression: str, *, lists: bool) -> bool:
        """Return whether a CEL selector matches; ``lists``: whether attributes may be lists.

        Raises:
            CompileError, EvaluationError: it cannot tell.
        """
        return self.content.matches(expression, lists=lists)


class SliceView:
    """One ResourceSlice."""

    __slots__ = (
        "by_device", "count", "counter_sets", "devices", "driver", "generation", "has_conditions",
        "is_everywhere", "label_keys", "manifest", "name", "place", "pool", "shape",
    )  # fmt: skip

    def __init__(self, manifest: Manifest) -> None:
        spec = manifest["spec"]
        pool = spec.get("pool") or {}
        self.manifest = manifest
        self.name: str = (manifest.get("metadata") or {}).get("name", "")
        self.driver: str = spec.get("driver", "")
        self.pool: str = pool.get("name", "")
        self.generation: int = pool.get("generation") or 0
        self.count: int = pool.get("resourceSliceCount") or 0
        self.place = NodeAccess(spec)
        self.by_device: bool | None = spec.get("perDeviceNodeSelection")
        self.counter_sets = _counters(spec.get("sharedCounters") or (), name="name")
        self.devices = [
            DeviceView(self.driver, self.pool, each) for each in spec.get("devices") or ()
        ]
        self.shape = tuple([device.content for device in self.devices])
        self.is_everywhere = bool(self.counter_sets) or (
            self.place.all_nodes and not self.by_device
        )
        """Whether all nodes see it alike."""
        places = (self.place, *(d.place for d in self.devices if self.by_device))
        self.label_keys = frozenset(key for place in places for key in place.label_keys)
        self.has_conditions = any(d.manifest.get("bindingConditions") for d in self.devices)


def _counters(sets: Sequence[Manifest], *, name: str) -> Counters:
    return tuple(
        (
            one[name],
            {key: Quantity.parse(c["value"]) for key, c in (one.get("counters") or {}).items()},
        )
        for one in sets
    )


__all__ = [
    "CompileError",
    "DeviceId",
    "DeviceView",
    "EvaluationError",
    "NodeAccess",
    "NodeView",
    "SliceView",
]
