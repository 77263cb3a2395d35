"""The loops of a worker: what fails lets the others be done, and nobody waits for nothing."""

import os
import subprocess
import threading
import time

import pytest
from django.db import DataError, OperationalError

from clusterstate.actions.loops import progress
from clusterstate.actions.past import history
from clusterstate.actions.scheduler import decisions
from clusterstate.processes import priority
from scheduling.processes import duties
from scheduling.processes.loop import Loop

pytestmark = pytest.mark.django_db


def test_a_table_that_cannot_be_trimmed_does_not_let_the_others_grow(monkeypatch):
    done = []

    def fails(*, now):
        raise DataError("a row that nobody can read")

    def works(*, now):
        done.append(now)

    monkeypatch.setattr(duties, "_DROPPED", (works, fails, works))
    with pytest.raises(DataError):
        duties.trim()
    assert len(done) == 2


def test_a_database_that_is_away_is_not_asked_for_each_table(monkeypatch):
    asked = []

    def away(*, now):
        asked.append(now)
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(duties, "_DROPPED", (away, away))
    with pytest.raises(OperationalError):
        duties.trim()
    assert len(asked) == 1


def test_what_grows_is_trimmed():
    assert {history.trim, decisions.trim} <= set(duties._DROPPED)
    duties.trim()


def test_a_thread_that_gives_way_yields_alone_and_only_once():
    def niceness():
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before, found = niceness(), []

    def work():
        for _ in range(2):
            priority.give_way()
            found.append(niceness())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [min(before + priority.NICENESS, 19)] * 2
    assert niceness() == before


def test_who_stands_by_goes_on_at_once_when_the_process_ends_that_works(monkeypatch):
    working = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(progress, "holder", lambda name: working.pid)
    standby = Loop("timers", lambda loop: None)
    standby.await_turn(0.0)
    working.kill()
    working.wait()
    began = time.monotonic()
    standby.pause(600)
    assert time.monotonic() - began < 60
    # A database that is away is found again by the next try.
    monkeypatch.setattr(progress, "holder", lambda name: 1 // 0)
    standby.await_turn(0.0)
    # The lock is free a little later, so it tries again and again for a moment.
    monkeypatch.setattr(progress, "holder", lambda name: 0)
    standby.await_turn(600)
    assert time.monotonic() - began < 60
