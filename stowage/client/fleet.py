"""Nodes, and what the pods on them ask for."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from stowage import _product
from stowage.client.exchange import Manifest
from stowage.client.questions import AsyncClient

_REFRESH_SECONDS: Final = 1.0
_PATHS: Final = ("/api/v1/nodes", "/api/v1/pods")


class Fleet:
    """Nodes, and what the pods on them ask for, kept up to date by watches."""

    def __init__(self) -> None:
        self._nodes: dict[str, Manifest] = {}
        self._pods: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
        resources = _product.module("clusterstate.objects.rules.resources")
        self._pod_type = _product.module("clusterstate.objects.values.pod").Pod
        self._requests: Callable[[Any], dict[str, int]] = resources.pod_request_ints
        quantity = _product.module("clusterstate.objects.values.quantity")
        self._milli: Callable[[str], int] = quantity.milli_value
        self._value: Callable[[str], int] = quantity.value

    async def read(self, client: AsyncClient, labels: str = "") -> None:
        """Read all pods, and the nodes with these labels (a selector), once."""
        for path, selector in zip(_PATHS, (labels, ""), strict=True):
            for one in (await client.list_all(path, labelSelector=selector))[0]:
                self.take(path, "ADDED", one)

    async def follow(self, client: AsyncClient, show: Callable[[], None]) -> None:
        """Read all nodes and pods, then each change; calls ``show`` each second, for ever."""

        async def following(path: str) -> None:
            async for event in client.watch(path):
                self.take(path, event.type, event.object)

        async with asyncio.TaskGroup() as tasks:
            for path in _PATHS:
                tasks.create_task(following(path))
            while True:
                show()
                await asyncio.sleep(_REFRESH_SECONDS)

    def take(self, path: str, kind: str, manifest: Manifest) -> None:
        """Apply a change of a node or a pod to this copy of the fleet."""
        meta = manifest["metadata"]
        place = meta.get("namespace") or "", meta["name"]
        if path.endswith("nodes"):
            self._nodes.pop(meta["name"], None)
            if kind != "DELETED":
                self._nodes[meta["name"]] = manifest
            return
        self._pods.pop(place, None)
        ended = (manifest.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if kind != "DELETED" and not ended:
            pod = msgspec.convert(manifest, self._pod_type, strict=False)
            node = (manifest.get("spec") or {}).get("nodeName") or ""
            self._pods[place] = node, self._requests(pod)

    def rows(self) -> list[Manifest]:
        """Return the nodes as rows, the fullest first."""
        used: dict[str, Counter[str]] = {name: Counter() for name in self._nodes}
        for node, requests in self._pods.values():
            if node in used:
                used[node].update({**requests, "pods": 1})
        found = [self._row(name, used[name]) for name in self._nodes]
        return sorted(found, key=lambda row: (-max(row["cpu %"], row["memory %"]), row["node"]))

    def _row(self, name: str, used: Counter[str]) -> Manifest:
        node = self._nodes[name]
        offers = (node.get("status") or {}).get("allocatable") or {}
        cpu, memory = self._milli(offers.get("cpu", "0")), self._value(offers.get("memory", "0"))
        conditions = (node.get("status") or {}).get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        cordoned = (node.get("spec") or {}).get("unschedulable")
        return {
            "node": name,
            "state": ("Ready" if ready else "NotReady") + (",Cordoned" if cordoned else ""),
            "pods": used["pods"],
            "cpu": f"{used['cpu'] / 1000:g}/{cpu / 1000:g}",
            "cpu %": 100.0 * used["cpu"] / cpu if cpu else 0.0,
            "memory": f"{used['memory'] >> 20}/{memory >> 20}Mi",
            "memory %": 100.0 * used["memory"] / memory if memory else 0.0,
        }

    def sentence(self) -> str:
        """Return a line with the numbers of nodes, pods and waiting pods."""
        waiting = sum(not node for node, _ in self._pods.values())
        return f"{len(self._nodes)} nodes, {len(self._pods)} pods, {waiting} of them wait"
