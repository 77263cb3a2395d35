"""Easy pods, posted all the time: how long they take, and whether /readyz told the truth."""

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults import world
from tests.faults.wire import NoAnswer, Wire

UNTRUE_SECONDS = 8.0
"""So long may /readyz say ready while nothing is placed."""
_LOOK_SECONDS = 25.0


@dataclass
class Look:
    """One easy pod: when it was posted, and after how many seconds it was bound, None: not.

    ``claimed`` is for how many seconds without a break /readyz said ready while the pod waited.
    ``gone``: after its creation had been acknowledged the pod was not there any more.
    """

    began: float
    acknowledged: bool
    seconds: float | None
    claimed: float
    gone: bool = False


class Probe(threading.Thread):
    """Posts an easy pod every second or so through one of the ports, whichever answers."""

    def __init__(self, name: str, wires: Sequence[Wire], gate: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.looks: list[Look] = []
        self.resting = threading.Event()
        self._wires = itertools.cycle(wires)
        self._gate = gate
        self._number = 0
        self._left: list[str] = []
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(0.7):
            if not self._gate.is_set():
                self.resting.set()
                continue
            self.resting.clear()
            self.looks.append(self.look(next(self._wires), _LOOK_SECONDS))

    def stop(self) -> None:
        self._stopping.set()

    def ready(self, wire: Wire) -> bool:
        try:
            return wire.call("GET", "/readyz")[0] == 200
        except NoAnswer:
            return False

    def look(self, wire: Wire, seconds: float) -> Look:
        """Post an easy pod and watch what becomes of it for at most so long."""
        self._number += 1
        name = f"{world.CANARY}-{self.name}-{self._number}"
        began = time.monotonic()
        ready_since = began if self.ready(wire) else None
        acknowledged, gone, bound, claimed = False, False, None, 0.0
        try:
            acknowledged = wire.call("POST", world.PODS, world.canary(name))[0] == 201
            while acknowledged and time.monotonic() - began < seconds:
                status, pod = wire.call("GET", f"{world.PODS}/{name}")
                now = time.monotonic()
                if status == 404:  # nothing places what is not there; whether it was lost is judged
                    gone, claimed = True, 0.0
                    break
                if status == 200 and pod["spec"].get("nodeName"):
                    bound = now - began
                if not self.ready(wire):
                    ready_since = None
                elif ready_since is None:
                    ready_since = now
                else:
                    claimed = max(claimed, now - ready_since)
                if bound is not None:
                    break
                if self._stopping.wait(0.05):
                    break
        except NoAnswer:
            pass
        self._left.append(name)
        self._clean(wire)
        return Look(began, acknowledged, bound, claimed, gone)

    def _clean(self, wire: Wire) -> None:
        for name in list(self._left):
            try:
                status, _ = wire.call("DELETE", f"{world.PODS}/{name}?gracePeriodSeconds=0")
            except NoAnswer:
                return
            if status < 300 or status == 404:
                self._left.remove(name)
