"""Which faults a life meets and when: drawn from a seed, stored as JSON, and cut for shrinking."""

import random
from dataclasses import asdict, dataclass
from typing import Any

from tests.faults.system import APART, OWN, PROCESSES, SERVERS

Round = list["Fault"]

PARTS = (*PROCESSES, *SERVERS)
"""What is killed and stopped: whatever the supervisor runs, and itself."""
_NAMELESS = ("beat", "standby", "timers-standby")
_PROXIED = (*(part for part in PROCESSES if part not in _NAMELESS), "")
"""By whose sessions a proxy tells them: beat has none, and those of one kind look alike."""


@dataclass(frozen=True)
class Fault:
    """One fault: what is done to which part, how many seconds into the round, and for how long.

    ``amount`` is the seconds of a clock's step, a share in percent, or how many at once.
    """

    kind: str
    part: str = ""
    at: float = 0.0
    seconds: float = 0.0
    amount: int = 0

    @property
    def title(self) -> str:
        return f"{self.kind} {self.part}".strip()


def draw(rng: random.Random, topology: str, *, small_disk: bool, clock: bool) -> Round:
    """Return the faults of one round: mostly one, sometimes two or three that overlap."""
    number = rng.choices((1, 2, 3), (6, 3, 1))[0]
    kinds = ["kill"] * 10 + ["stop"] * 8 + ["hostile"] * 3 + ["flush"] * 2 + ["starved"] * 2
    kinds += ["prepare", "restore"]
    if clock:
        kinds += ["clock"] * 2
    if topology == APART:
        kinds += ["silent"] * 6 + ["cut"] * 3 + ["rival"] * 2 + ["fail over"] * 2
    elif small_disk:
        kinds += ["full"] * 4
    return [_fault(rng.choice(kinds), rng) for _ in range(number)]


def _fault(kind: str, rng: random.Random) -> Fault:
    at = round(rng.uniform(0, 2), 1)
    seconds = round(rng.choice((1, 3, 6, 12)) * rng.uniform(0.7, 1.3), 1)
    if kind == "kill":
        return Fault(kind, rng.choice(PARTS), at)
    if kind == "stop":
        return Fault(kind, rng.choice(PARTS), at, seconds)
    if kind in ("silent", "cut"):
        if rng.random() < 0.3:
            return Fault(kind, "redis", at, seconds)
        part = rng.choice(_PROXIED)
        return Fault(kind, f"postgres {part}".strip(), at, seconds)
    if kind == "clock":
        return Fault(kind, "", at, seconds, rng.choice((-90, -30, -5, 5, 30, 90)))
    if kind == "prepare":
        return Fault(kind, "", at, 0, 3)
    if kind == "hostile":
        return Fault(kind, rng.choice(("deep", "flood", "slow", "large", "strange")), at, seconds)
    if kind == "fail over":
        return Fault(kind, "postgres", at)
    if kind == "restore":
        return Fault(kind, "", at, seconds)
    if kind == "full":
        return Fault(kind, "disk", at, seconds)
    if kind == "starved":
        return Fault(kind, "", at, 4 * seconds, rng.choice((10, 20)))
    if kind == "rival":
        return Fault(kind, "supervisor", at, 15)
    return Fault(kind, "redis" if kind == "flush" else "", at, seconds)


@dataclass
class Life:
    """One service from its start to its end: everything that chance decides about it."""

    seed: str
    topology: str
    rounds: list[Round]
    minutes: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Life":
        rounds = [[Fault(**fault) for fault in one] for one in value["rounds"]]
        return cls(value["seed"], value["topology"], rounds, value["minutes"])


def life(seed: str, number: int, minutes: float, *, small_disk: bool, clock: bool) -> Life:
    """Return the life of a number. It has more rounds than fit into its minutes."""
    rng = random.Random(f"{seed}/{number}")
    topology = (OWN, APART)[number % 2]
    rounds = [
        draw(rng, topology, small_disk=small_disk, clock=clock)
        for _ in range(max(3, int(minutes * 6)))
    ]
    return Life(f"{seed}/{number}", topology, rounds, minutes)
