"""What only Stowage answers, as methods.

The documents are those of docs/simulations.md and docs/plans.md.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final
from urllib.parse import quote

from stowage.client import placing
from stowage.client.exchange import Exchange, Manifest
from stowage.client.placing import Placement

OWN: Final = "/apis/stowage.dev/v1"


def _document(kind: str, spec: Manifest) -> Manifest:
    return {"apiVersion": "stowage.dev/v1", "kind": kind, "spec": spec}


class AsyncClient(Exchange):
    """Submits pods, asks questions, reads and changes objects."""

    def place(
        self, pods: Iterable[Manifest], *, timeout: float | None = None, namespace: str = ""
    ) -> AsyncIterator[Placement]:
        """Submit pods; yield the place of each as soon as it has one (``placing.place``)."""
        return placing.place(self, pods, timeout=timeout, namespace=namespace)

    async def why(self, /, name: str, namespace: str = "", **params: Any) -> Manifest:
        """Return the Explanation of where a pod is, or why it waits, with remedies."""
        return await self._document(f"{OWN}{self._pod(name, namespace)}/why", **params)

    async def decisions(self, /, name: str = "", namespace: str = "", **params: Any) -> Manifest:
        """Return the decisions about a pod, without a name those of all pods, newest first."""
        path = f"/api/v1{self._pod(name, namespace)}" if name else OWN
        return await self._document(f"{path}/decisions", **params)

    async def waiting(self, /, namespace: str = "", **params: Any) -> list[Manifest]:
        """Return the pods that wait by what stands in their way (WaitingGroups)."""
        scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        found: list[Manifest] = (await self.get(f"{OWN}{scope}/waitinggroups", **params))["items"]
        return found

    async def simulate(self, spec: Manifest) -> Manifest:
        """Return where pods would go in the live cluster, or what else ``spec.base`` says."""
        return await self._ask_about("simulations", _document("Simulation", spec))

    async def headroom(self, pod: Manifest) -> Manifest:
        """Return how many more of a pod fit, and what stops the next one."""
        return await self._ask_about("headroom", _document("Headroom", {"pod": pod}))

    async def plan(self, /, *changes: Manifest, **spec: object) -> Manifest:
        """Return what changes would do (``{"drain": {"nodes": ["node-1"]}}``); nothing is kept."""
        whole = _document("Plan", {"changes": list(changes), **spec})
        return await self._ask_about("plans", whole, dryRun="All")

    async def configuration(self) -> Manifest:
        """Return the KubeSchedulerConfiguration in force."""
        return await self._document(f"{OWN}/schedulerconfiguration")

    def _pod(self, name: str, namespace: str) -> str:
        space = namespace or self.connection.namespace
        return f"/namespaces/{quote(space, safe='')}/pods/{quote(name, safe='')}"

    async def _document(self, path: str, **params: Any) -> Manifest:
        found: Any = await self.get(path, **params)
        assert isinstance(found, dict), path
        return found

    async def _ask_about(self, what: str, question: Manifest, **params: Any) -> Manifest:
        found: Any = await self.ask(f"{OWN}/{what}", question, **params)
        assert isinstance(found, dict), what
        return found


def nodes_of(explanation: Manifest) -> list[Manifest]:
    """Return the page of nodes of an Explanation as rows: a node's scores, or what rejects it.

    The fields are ``node``, ``total`` (``None`` if it is rejected), ``scores`` (weighted, of each
    plugin), ``rejected by`` and ``reason``.
    """
    page = explanation["status"].get("table") or {}
    rows = []
    for place, name in enumerate(page.get("name") or ()):
        totals, scores = page.get("total"), page.get("scores") or {}
        row: Manifest = {
            "node": name,
            "total": totals[place] if totals else None,
            "scores": {plugin: found["weighted"][place] for plugin, found in scores.items()},
            "rejected by": "",
            "reason": "",
        }
        for plugin, verdicts in (page.get("verdicts") or {}).items():
            if reasons := page["statuses"][verdicts[place]]["reasons"]:
                row["rejected by"] = row["rejected by"] or plugin
                row["reason"] = row["reason"] or "; ".join(reasons)
        rows.append(row)
    return rows
