"""The loops of a worker: one duty that fails lets the others be done."""

import pytest
from django.db import DataError, OperationalError

from clusterstate.actions import decisions, history
from scheduling.processes import duties

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
