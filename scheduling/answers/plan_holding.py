"""Which pods of a plan have a replacement whose room can be reserved before any pod leaves."""

from collections.abc import Sequence
from typing import Final

from scheduling.answers.plan_leavers import BY_STEPS
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.types import HostPort, PodInfo
from scheduling.plugins.node_ports import conflict
from scheduling.simulation.foresight import NEVER, Foresight, Leaver

_NO_PLACE = "no room can be reserved for its replacement"
DEPENDS: Final = f"{_NO_PLACE}: the room is free only once other pods have left"
_LATE: Final = "it is created after the time that the plan covers"


def needs_place(leaver: Leaver) -> bool:
    """Return whether a pod leaves by a step of the plan and is replaced."""
    return leaver.cause in BY_STEPS and leaver.comes_again != NEVER


class RoomNow:
    """The present free amounts of a snapshot, and the host ports of pods that will leave."""

    def __init__(self, snapshot: Snapshot, leavers: Sequence[Leaver]) -> None:
        self._snapshot = snapshot
        self._free = snapshot.allocatable - snapshot.requested
        self._pods = snapshot.allowed_pods - snapshot.pod_count
        self._ports: dict[str, list[HostPort]] = {}
        self._movers = [
            (one.title, snapshot.node_of(one.key)) for one in leavers if needs_place(one)
        ]
        self._full_now: set[str] = set()
        for one in leavers:
            if (record := snapshot.pod(one.key)) is not None:
                node = snapshot.node_of(one.key) or ""
                self._ports.setdefault(node, []).extend(record.info.host_ports)

    def without_place(self, future: Foresight) -> dict[str, str]:
        """Return, by title, why no room can be reserved for the replacement of a pod that leaves.

        The replacement fits nowhere, or only after other pods have left. For all other replacements
        their room is subtracted from the free amounts.
        """
        landings = {one.waiter.replaces: one for one in future.landed.values()}
        found = {}
        for departure in future.departures:
            leaver = departure.leaver
            if departure.by or not needs_place(leaver):
                continue
            landed = landings.get(leaver.title)
            if departure.blocked_by or landed is None or not landed.node_name:
                why = departure.blocked_by or (landed.message if landed else _LATE)
                found[leaver.title] = f"{_NO_PLACE}: {why}"
            elif not self._takes(landed.node_name, landed.waiter.info):
                self._full_now.add(landed.node_name)
                text = f"node {landed.node_name} has room only once other pods have left"
                found[leaver.title] = f"{_NO_PLACE}: {text}"
        return found

    def movers(self) -> list[str]:
        """Return titles of the pods that need a place, first those whose node is full now."""
        ordered = sorted(self._movers, key=lambda one: one[1] not in self._full_now)
        return [title for title, _ in ordered]

    def _takes(self, node: str, info: PodInfo) -> bool:
        row = self._snapshot.row_of(node)
        if row is None or row >= len(self._free):
            return True  # the plan adds it
        if self._pods[row] < 1 or any(self._free[row, at] < much for at, much in info.amounts):
            return False
        if any(conflict(a, b) for a in info.host_ports for b in self._ports.get(node, ())):
            return False
        self._pods[row] -= 1
        for at, much in info.amounts:
            self._free[row, at] -= much
        return True
