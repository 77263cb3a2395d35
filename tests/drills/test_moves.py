"""Moves in random worlds, with kills in between."""

import os
from typing import Any

import pytest

from clusterstate.processes import steady_clock
from scheduling.controllers import operations
from tests.drills.moves import Moves
from tests.forms import many

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.drawn]
WORLDS = int(os.environ.get("MOVES") or many(1, 40))
FIRST = int(os.environ.get("MOVES_FROM", "0"))
ACTS = int(os.environ.get("MOVES_ACTS") or many(3, 12))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_nobody_moves_without_a_place_or_elsewhere_than_told(
    seed: int, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.REQUIRED_DURING_EXECUTION_RATE = 0
    world = Moves(seed, kills=0.1)
    monkeypatch.setattr(steady_clock, "now", lambda: world.now)
    # A batch of one operation in each round, as on a busy machine.
    monkeypatch.setattr(operations, "_ROUND_SECONDS", -1.0)
    for _ in range(ACTS):
        world.act()
    moved = world.audit()
    print(f"seed {seed}: {len(world.nodes)} nodes, {moved} moves, {dict(world.told)}")
    assert moved
