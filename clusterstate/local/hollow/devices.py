"""Devices of hollow nodes: a small file, and the ResourceSlices made from it for each node.

The file is a YAML list of drivers. ``devices`` and ``sharedCounters`` are entries of a
ResourceSlice's spec; ``count`` repeats one, with ``{n}`` in its texts from 0 on, and ``{node}`` is
the node's name. ``nodes``: the number of nodes, the first of the fleet, that have the driver; all
if absent. ``allNodes: true``: one pool for the whole cluster, published once::

    - driver: gpu.nvidia.com
      nodes: 4
      devices:
      - {count: 8, name: "gpu-{n}", attributes: {index: {int: "{n}"}}, capacity: {memory: ...}}

Each driver has one pool on a node, named after it; ``pool`` names that of the whole cluster. Slices
have at most 64 devices; counters are in a slice of their own, as the API requires.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import yaml

Manifest = dict[str, Any]
API: Final = "/apis/resource.k8s.io/v1/resourceslices"
_MOST_DEVICES: Final = 64
_MOST_REPEATS: Final = 1024


class DevicesError(ValueError):
    """The file cannot be used; the text names the field."""


class Driver(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One driver of the file."""

    driver: str
    devices: list[Manifest]
    shared_counters: list[Manifest] = []
    nodes: int | None = None
    pool: str = ""
    """With ``allNodes``: the pool's name; if empty, the driver's."""
    all_nodes: bool = False

    def contradiction(self) -> str:
        """Return which field would have no effect, and why; empty if every field has one."""
        if self.nodes is not None and self.nodes < 0:
            return "nodes: must be 0 or more"
        if self.all_nodes and self.nodes is not None:
            return "nodes: must be left out with allNodes, whose pool is published once"
        if self.pool and not self.all_nodes:
            return "pool: needs allNodes; without it, each pool has the name of its node"
        return ""

    def is_on(self, number: int) -> bool:
        """Return whether a node publishes the driver's devices."""
        if self.all_nodes:
            return number == 0
        return self.nodes is None or number < self.nodes


def read(text: str) -> list[Driver]:
    """Return the drivers in a file's text.

    Raises:
        DevicesError: the text is no YAML, or not of the form that the module describes.
    """
    try:
        found = msgspec.convert(yaml.safe_load(text), list[Driver])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DevicesError(str(error)) from None
    for place, driver in enumerate(found):
        if problem := driver.contradiction():
            raise DevicesError(f"[{place}].{problem}")
        slices_of(driver, "node")  # every entry can be repeated
    return found


def slices_of(driver: Driver, node: str) -> list[Manifest]:
    """Return a driver's slices for a node, or for all nodes if ``allNodes`` is set.

    Raises:
        DevicesError: an entry's count is no positive integer, or is too large.
    """
    counters = list(_repeated(driver.shared_counters, node, "sharedCounters"))
    devices = list(_repeated(driver.devices, node, "devices"))
    parts: list[Manifest] = [{"sharedCounters": counters}] if counters else []
    parts += [
        {"devices": devices[at : at + _MOST_DEVICES]}
        for at in range(0, len(devices), _MOST_DEVICES)
    ]
    owner = driver.pool or driver.driver if driver.all_nodes else node
    where: Manifest = {"allNodes": True} if driver.all_nodes else {"nodeName": node}
    pool = {"name": owner, "generation": 1, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{owner}-{driver.driver}-{number}".lower()},
            "spec": {"driver": driver.driver, "pool": pool, **where, **part},
        }
        for number, part in enumerate(parts)
    ]


def _repeated(entries: Sequence[Manifest], node: str, field: str) -> Iterator[Manifest]:
    for place, entry in enumerate(entries):
        count = entry.get("count", 1)
        if not isinstance(count, int) or not 1 <= count <= _MOST_REPEATS:
            text = f"{field}[{place}].count: must be a number from 1 to {_MOST_REPEATS}"
            raise DevicesError(text)
        rest = {name: value for name, value in entry.items() if name != "count"}
        for number in range(count):
            yield _filled(rest, {"{n}": str(number), "{node}": node})


def _filled(value: Any, names: dict[str, str]) -> Any:
    """Return a value with placeholders filled in; a text of ``{n}`` alone becomes a number."""
    if isinstance(value, dict):
        return {_filled_text(key, names): _filled(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, names) for one in value]
    if value == "{n}":
        return int(names[value])
    return _filled_text(value, names) if isinstance(value, str) else value


def _filled_text(text: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text
