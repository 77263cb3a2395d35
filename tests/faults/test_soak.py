"""Three minutes of `make soak` in each run of the tests; nothing that must not happen does."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import faults
from tests.faults import report, schedule
from tests.faults.living import Living

pytestmark = [*faults.MARKS, pytest.mark.timeout(480)]
MINUTES = 1.2


@pytest.mark.parametrize("number", [0, 1], ids=["own", "apart"])
def test_nothing_that_must_not_happen_does(number: int, tmp_path: Path) -> None:
    """Each life has the same faults in every run; how they meet the clients differs."""
    life = schedule.life("ci", number, MINUTES, small_disk=os.geteuid() == 0, clock=True)
    lines: list[str] = []
    say: Callable[[str], None] = lines.append
    outcome = Living(life, say=say, folder=tmp_path, patience=2).run()
    assert outcome.rounds > 0
    assert outcome.binds > 0
    assert outcome.violations == [], report.markdown([outcome]) + "\n".join(lines)
