"""Rows for measurements: what the scheduler loads of them is what it would load of real ones."""

import pytest

from tests.perf import backlog, cold_start

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_cold_start_finds_all_copies_and_keeps_up() -> None:
    started, *followed = cold_start.run(nodes=7, bound=30, changes=20, say=lambda text: None)
    assert started["nodes"] == 7
    assert started["pods"] == 100 + 30
    assert [one["changes"] for one in followed] == [20, 22]


def test_a_backlog_is_bound_turn_after_turn() -> None:
    *turns, deleted = backlog.run(
        "HundredKinds", nodes=5, waiting=40, say=lambda text: None, times=2
    )
    assert [turn["pods"] for turn in turns] == [40, 40]
    written = [turns[0]["database"]["created"], turns[0]["database"]["bound"]]
    written.append(deleted["database"]["deleted"])
    assert all(step["wal_bytes"] > 0 for step in written)
