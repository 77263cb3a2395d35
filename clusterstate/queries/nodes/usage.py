"""Usage reports of nodes: memory, disk and processes."""

from datetime import datetime
from typing import Any

import msgspec

from clusterstate.database import sql

UNJUDGED = "judged_at IS NULL OR judged_at < reported_at"


class Signal(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How much of a resource the node has left, in bytes or processes.

    Below ``threshold`` for longer than ``grace_period_seconds``, pods are evicted until
    ``minimum_reclaim`` above it is free.
    """

    available: int
    threshold: int
    minimum_reclaim: int = 0
    grace_period_seconds: float = 0


class PodUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of one pod; ``containers`` by name, in bytes of memory."""

    namespace: str
    name: str
    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    containers: dict[str, int] = {}


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node's report: what is left of ``memory``, ``disk`` and ``pid``, and the pods' use."""

    memory: Signal | None = None
    disk: Signal | None = None
    pid: Signal | None = None
    pods: tuple[PodUsage, ...] = ()

    @property
    def signals(self) -> dict[str, Signal]:
        """The reported signals, by the node condition that each sets (MemoryPressure, ...)."""
        found = (
            ("MemoryPressure", self.memory),
            ("DiskPressure", self.disk),
            ("PIDPressure", self.pid),
        )
        return {condition: signal for condition, signal in found if signal is not None}

    @property
    def pressures(self) -> list[str]:
        """The pressure conditions of resources below their thresholds."""
        return [name for name, one in self.signals.items() if one.available < one.threshold]


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node's last report, when it arrived, and the outcome of the one before."""

    node_name: str
    usage: Report
    reported_at: datetime
    outcome: dict[str, Any]


_REPORTED = "SELECT node_name, usage::text, reported_at, outcome::text FROM node_usage"


def unjudged_reports() -> list[NodeReport]:
    """Return the reports that the pressure controller has not judged. Queries once."""
    rows = sql.fetch(f"{_REPORTED} WHERE {UNJUDGED} ORDER BY reported_at")
    return [_reported(row) for row in rows]


def usage_of(node_name: str) -> NodeReport | None:
    """Return a node's last report, ``None`` if there is none. Queries once."""
    row = sql.fetch_one(f"{_REPORTED} WHERE node_name = %s", (node_name,))
    return None if row is None else _reported(row)


def _reported(row: sql.Row) -> NodeReport:
    return NodeReport(
        node_name=row[0],
        usage=msgspec.json.decode(row[1], type=Report),
        reported_at=row[2],
        outcome=msgspec.json.decode(row[3]),
    )
