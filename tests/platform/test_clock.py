"""The tests' clock: one for all that happens in a test; moved, it finds who has another."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from api import clock
from clusterstate.admin.clock import now as admin_now
from clusterstate.database import sql
from tests.clock import NOW, VARIABLE
from tests.live import ROOT

PLANTED = """
from datetime import UTC, datetime, timedelta
from api import clock
from tests.clock import after

def test_a_row_of_a_fixed_day_is_less_than_a_year_old():
    assert clock.now() - datetime(2026, 11, 1, tzinfo=UTC) < timedelta(days=365)

def test_a_minute_later_is_the_same_day():
    assert clock.now().day == after(60).day
"""


def test_all_who_ask_for_the_time_are_told_that_of_the_test() -> None:
    for told in (clock.now(), admin_now(), timezone.now(), datetime.now(UTC)):  # noqa: TID251
        assert NOW <= told < NOW + timedelta(minutes=1)


@pytest.mark.django_db
def test_postgresql_has_another_clock_so_that_a_statement_which_asks_for_it_is_found() -> None:
    told = sql.fetch_one("SELECT now()")
    assert told is not None
    assert abs(told[0] - clock.now()) > timedelta(minutes=2)


@pytest.mark.long
def test_a_test_that_depends_on_the_day_fails_when_the_clock_is_moved(tmp_path: Path) -> None:
    """To another year, to the last second of a day."""
    planted = tmp_path / "test_planted.py"
    planted.write_text(PLANTED)

    def failed(at: str) -> int:
        run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        done = subprocess.run(
            [*run, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(planted)],
            cwd=ROOT, env=os.environ | {VARIABLE: at}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout.count("FAILED ")

    assert failed("2026-11-21T12:00:00Z") == 0
    assert failed("2028-02-29T23:59:59Z") == 2
