"""The time by which things are done: what clocks that are set may do to it, and what not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.database import sql
from clusterstate.processes import steady_clock
from clusterstate.processes.steady_clock import (
    LOOK_SECONDS,
    PROBATION_SECONDS,
    STEP_SECONDS,
    SteadyClock,
)

BEGIN = 1_800_000_000.0
NEAR = STEP_SECONDS + 0.01
SHORT = PROBATION_SECONDS - 10


class World:
    """Time that passes, a clock that is set now and then, and who judges the clock."""

    def __init__(self, *, proven: float | None = None) -> None:
        self.passed = 500.0
        self.wrong = 0.0
        self.looks = 0
        self.proved: list[float] = []
        self.clock = SteadyClock(
            self._told, lambda: self.passed, proven=proven, on_proven=self.proved.append
        )
        self.now()

    def _told(self) -> float:
        self.looks += 1
        return self.true + self.wrong

    @property
    def true(self) -> float:
        return BEGIN + self.passed

    def now(self) -> float:
        """Return the time as it is judged after a look."""
        self.passed += LOOK_SECONDS + 0.001
        return self.clock.now()

    def stay(self, seconds: float) -> Iterator[float]:
        """Let time pass; return how far the judged time is from the true one, again and again."""
        end = self.passed + seconds
        while self.passed < end:
            yield self.now() - self.true
            self.passed += min(5.0, max(0.0, end - self.passed))
        yield self.now() - self.true


steps = st.floats(-7200, 7200, allow_nan=False)


@given(st.lists(st.tuples(steps, st.floats(0, SHORT), st.floats(0, 200)), max_size=6))
def test_a_clock_that_is_set_ahead_and_comes_back_hurries_nothing(
    excursions: list[tuple[float, float, float]],
) -> None:
    world = World()
    for step, wrong_for, right_for in excursions:
        world.wrong = step
        assert all(ahead <= NEAR for ahead in world.stay(wrong_for))
        world.wrong = 0.0
        assert all(abs(ahead) <= NEAR for ahead in world.stay(right_for))


@given(st.lists(st.tuples(steps, st.floats(0, 200)), max_size=8))
def test_time_is_never_ahead_of_the_clock_and_believes_it_where_it_stands(
    settings: list[tuple[float, float]],
) -> None:
    world = World()
    for wrong, seconds in settings:
        world.wrong = wrong
        for ahead in world.stay(seconds):
            assert ahead <= wrong + NEAR
        for ahead in world.stay(PROBATION_SECONDS + 5):
            last = ahead
        assert abs(last - wrong) <= NEAR
        assert abs(world.proved[-1] + world.passed - (world.true + wrong)) <= NEAR


@given(steps.filter(lambda step: step < 0))
def test_a_clock_that_is_set_back_is_believed_at_once(step: float) -> None:
    world = World()
    world.wrong = step
    assert abs(world.now() - world.true - step) <= NEAR


def test_a_process_that_starts_while_the_clock_is_wrong_believes_what_another_proved() -> None:
    before = World()
    (ahead,) = before.proved
    world = World(proven=ahead)
    world.wrong = 3600.0
    assert abs(world.now() - world.true) <= NEAR
    assert world.proved == []
    *_, last = world.stay(PROBATION_SECONDS + 5)
    assert abs(last - 3600) <= NEAR


def test_a_clock_that_runs_a_little_fast_is_followed() -> None:
    world = World()
    for _ in range(2000):
        world.wrong += 0.005  # 500 parts in a million over ten seconds
        world.passed += 10
        assert abs(world.now() - world.true - world.wrong) < 0.001


def test_the_clock_is_looked_at_a_few_times_a_second_at_most() -> None:
    world = World()
    looks = world.looks
    for _ in range(100):
        world.passed += 0.01
        world.clock.now()
    assert world.looks - looks <= 1 / LOOK_SECONDS + 1


def test_what_is_believed_is_kept_for_as_long_as_the_machine_runs(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STATE_DIR = tmp_path
    assert steady_clock._remembered() is None
    steady_clock._remember(123.456)
    assert steady_clock._remembered() == 123.456
    other = tmp_path / "boot"
    other.write_text("another start\n")
    monkeypatch.setattr(steady_clock, "_BOOT", other)
    assert steady_clock._remembered() is None
    for text in ("", "{}\n", "[]\n", "7\n", '{"boot": "another start", "ahead": "x"}\n'):
        (tmp_path / "clock").write_text(text)
        assert steady_clock._remembered() is None
    settings.STATE_DIR = tmp_path / "nowhere"
    steady_clock._remember(1.0)


@pytest.mark.django_db
@pytest.mark.real_clock
def test_it_is_the_databases_clock(tmp_path: Path, settings: Any) -> None:
    settings.STATE_DIR = tmp_path
    steady_clock._clock.cache_clear()
    row = sql.fetch_one("SELECT clock_timestamp()")
    assert row is not None
    assert abs((steady_clock.now() - row[0]).total_seconds()) < 5
    assert (tmp_path / "clock").exists()
    steady_clock._clock.cache_clear()
