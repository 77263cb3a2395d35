"""Three minutes of `make soak` in each run of the tests; nothing that must not happen does."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import report, schedule
from tests.faults.living import Living
from tests.faults.schedule import Life

ROUNDS = 5
SEED = "ci-4162"
"""One whose first rounds have every kind of fault there is; another list of parts needs another."""
KINDS = {
    *("kill", "stop", "flush", "prepare", "restore", "hostile", "clock", "full"),
    *("silent", "cut", "rival", "fail over"),
}
_LONGEST_MINUTES = 10.0


def life(number: int, *, small_disk: bool) -> Life:
    """Return one of the two lives; each has the same faults in every run, in all its rounds."""
    drawn = schedule.life(SEED, number, 1, small_disk=small_disk, clock=True)
    return Life(drawn.seed, drawn.topology, drawn.rounds[:ROUNDS], _LONGEST_MINUTES)


def test_the_two_lives_meet_every_kind_of_fault() -> None:
    lives = [life(number, small_disk=True) for number in (0, 1)]
    assert {fault.kind for one in lives for faults in one.rounds for fault in faults} == KINDS


@pytest.mark.db
@pytest.mark.slow
@pytest.mark.real_clock
@pytest.mark.timeout(480)
@pytest.mark.parametrize("number", [0, 1], ids=["own", "apart"])
def test_nothing_that_must_not_happen_does(number: int, tmp_path: Path) -> None:
    """How the faults meet the clients differs from run to run."""
    lines: list[str] = []
    say: Callable[[str], None] = lines.append
    one = life(number, small_disk=os.geteuid() == 0)
    outcome = Living(one, say=say, folder=tmp_path, patience=2).run()
    print("\n".join(lines))
    assert outcome.rounds == ROUNDS
    assert outcome.binds > 0
    assert outcome.violations == [], report.markdown([outcome]) + "\n".join(lines)
