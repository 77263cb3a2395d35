"""Lives of `make soak`: a short one in the suite; another one and two of minutes in the long form.

In the long form every kind of fault is met. Nothing that must not happen does.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import report, schedule
from tests.faults.living import Living, Outcome
from tests.faults.schedule import Fault, Life
from tests.faults.system import APART, OWN
from tests.forms import few

ROUNDS = 5
SEED = "ci-30263"
"""One whose first rounds have every kind of fault there is; another list of parts needs another."""
KINDS = {
    *("kill", "stop", "flush", "prepare", "restore", "hostile", "clock", "full"),
    *("silent", "cut", "rival", "fail over", "starved"),
}
RATE = 12
"""Requests a second in the short lives: enough that several are under way in each fault."""
_LONGEST_MINUTES = 10.0
# Written down, not drawn: each kind once, few rounds, since each ends with a rest and an audit.
_SHORT = [
    Life(
        "short/own",
        OWN,
        [
            [
                Fault("kill", "scheduler"),
                Fault("stop", "timers", at=0.5, seconds=3),
                Fault("clock", at=1, seconds=3, amount=30),
                Fault("full", "disk", at=4.5, seconds=3),
                Fault("hostile", "flood", at=5, seconds=2),
            ],
        ],
        _LONGEST_MINUTES,
    ),
    Life(
        "short/apart",
        APART,
        [
            [
                Fault("silent", "postgres scheduler", seconds=3),
                Fault("cut", "redis", at=1, seconds=2),
                Fault("prepare", at=1, amount=1),
                Fault("rival", "supervisor", seconds=8),
            ],
            [Fault("fail over", "postgres", at=0.5), Fault("flush", "redis", at=2)],
            [Fault("restore", at=0.5, seconds=1)],
            [Fault("starved", seconds=12, amount=10)],
        ],
        _LONGEST_MINUTES,
    ),
]


def life(number: int, *, small_disk: bool) -> Life:
    """Return one of the two long lives; each has the same faults in every run, in all rounds."""
    drawn = schedule.life(SEED, number, 1, small_disk=small_disk, clock=True)
    return Life(drawn.seed, drawn.topology, drawn.rounds[:ROUNDS], _LONGEST_MINUTES)


@pytest.mark.parametrize(
    "lives",
    [_SHORT, [life(number, small_disk=True) for number in (0, 1)]],
    ids=["suite", "long"],
)
def test_the_two_lives_meet_every_kind_of_fault(lives: list[Life]) -> None:
    assert {fault.kind for one in lives for faults in one.rounds for fault in faults} == KINDS
    assert [one.topology for one in lives] == [OWN, APART]


def lived(one: Life, folder: Path, rate: float = 25) -> Outcome:
    """Live, with ``rate`` requests a second; how the faults meet them differs from run to run."""
    lines: list[str] = []
    say: Callable[[str], None] = lines.append
    outcome = Living(one, say=say, folder=folder, patience=2, rate=rate).run()
    print("\n".join(lines))
    assert outcome.rounds == len(one.rounds)
    assert outcome.binds > 0
    assert outcome.violations == [], report.markdown([outcome]) + "\n".join(lines)
    return outcome


@pytest.mark.db
@pytest.mark.slow
@pytest.mark.real_clock
@pytest.mark.timeout(480)
@pytest.mark.parametrize("one", few(_SHORT), ids=[OWN, APART])
def test_nothing_that_must_not_happen_does(one: Life, tmp_path: Path) -> None:
    outcome = lived(one, tmp_path, RATE)
    noted = {"clock": "left out: clock steps", "full disk": "left out: full disks"}
    impossible = {title for title, note in noted.items() if note in "\n".join(outcome.notes)}
    assert outcome.skipped.keys() <= impossible


@pytest.mark.long
@pytest.mark.db
@pytest.mark.slow
@pytest.mark.real_clock
@pytest.mark.timeout(480)
@pytest.mark.parametrize("number", [0, 1], ids=[OWN, APART])
def test_nothing_that_must_not_happen_does_for_longer(number: int, tmp_path: Path) -> None:
    lived(life(number, small_disk=os.geteuid() == 0), tmp_path)
