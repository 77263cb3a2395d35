"""Questions to an advisor: their way through Redis, with advisors that come, go and are killed."""

import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pytest
from django.db import connection

from clusterstate.actions import objects
from clusterstate.actions.writing import transactions
from clusterstate.objects.values.errors import (
    Invalid,
    NotFound,
    ServiceUnavailable,
    StatusError,
    TooManyRequests,
)
from scheduling.answers import advising, advisor, live, registry
from tests.builders import make_node, make_pod
from tests.clock import NOW
from tests.creating import create_pod
from tests.waiting import until

SIMULATION = {"apiVersion": "stowage.dev/v1", "kind": "Simulation"}


@pytest.fixture(autouse=True)
def _asks(settings, monkeypatch, redis_client):
    """Let this process ask as a web process does, through an empty Redis."""
    settings.SERVES = True
    monkeypatch.setattr(advisor, "LOOK_SECONDS", 0.1)
    advisor.client.cache_clear()
    yield
    advisor.client.cache_clear()


@pytest.fixture
def asking():
    """Threads that ask, or take, while the test looks."""
    with ThreadPoolExecutor(4) as threads:
        yield lambda do, *arguments, **named: threads.submit(do, *arguments, **named)


@contextmanager
def an_advisor():
    """An advisor on threads of this process."""
    ended = threading.Event()

    def work():
        try:
            advising.run(stopping=ended.is_set, pause=ended.wait)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(lambda: not advisor.problem(), what="an advisor")
        yield
    finally:
        ended.set()
        thread.join(30)
        assert not thread.is_alive()
        live._live.forget()


def waiting(client):
    return sum(client.llen(name) for name in (advisor.SHORT, advisor.LONG))


def take(queues=(advisor.SHORT, advisor.LONG), presence=None):
    """Take the next question, as an advisor that says nothing of itself, or as ``presence``."""
    presence = presence or advisor.Presence()
    desk = advisor.Desk(presence.name, list(queues))
    while (taken := desk.take()) is None:
        pass
    return desk, taken[0], taken[1].name


@pytest.mark.django_db(transaction=True)
def test_an_asker_sees_its_own_writes():
    pod = make_pod("pod").asks(cpu="3").manifest

    def places():
        found = advisor.ask("simulation", {**SIMULATION, "spec": {"pods": [pod]}})
        return found["status"]["results"][0]["nodeName"]

    with an_advisor():
        assert places() == ""
        for number in range(5):
            objects.create(
                "Node", "", make_node(f"node-{number}").offers(cpu="4").manifest, now=NOW
            )
            assert places() == f"node-{number}"
            taken = make_pod(f"taken-{number}").asks(cpu="4").on(f"node-{number}")
            create_pod(taken.manifest, now=NOW)


@pytest.mark.django_db(transaction=True)
def test_a_refused_question_is_refused_at_the_asker():
    with an_advisor():
        with pytest.raises(Invalid, match=r"spec\.bse") as found:
            advisor.ask("simulation", {**SIMULATION, "spec": {"bse": 1}})
        assert found.value.details["causes"][0]["field"] == "spec.bse"
        with pytest.raises(NotFound, match="nobody"):
            advisor.ask("landings", [("default", "nobody")])
        with pytest.raises(StatusError, match=r"failed to answer \(landings\): ValidationError"):
            advisor.ask("landings", 7)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "posed", [b'{"name": "of-tomorrow", "document": {}}', b'{"name": 7, "new": []}', b"\x00\xff"]
)
def test_a_question_that_only_another_version_knows_is_refused_at_once(posed, redis_client):
    """As of a web process that was upgraded before the advisor; nobody waits for the deadline."""
    with an_advisor():
        redis_client.set("stowage:question:x", posed, px=20_000)
        redis_client.rpush(advisor.SHORT, "x")
        found = redis_client.blpop(["stowage:answer:x"], 10)
    assert found is not None
    assert found[1].startswith(b"-")
    failure = msgspec.json.decode(found[1][1:])
    assert failure["code"] == 503
    assert "of another version" in failure["message"]


def test_without_an_advisor_the_asker_is_told(monkeypatch, redis_client):
    monkeypatch.setattr(advisor, "START_SECONDS", 0.0)
    with pytest.raises(ServiceUnavailable, match="no advisor is running") as found:
        advisor.ask("landings", [])
    assert found.value.details["retryAfterSeconds"] > 0
    assert redis_client.keys() == []
    assert advisor.problem() == "not running"


def test_a_question_waits_for_an_advisor_that_is_about_to_come(asking, redis_client):
    answer = asking(advisor.ask, "landings", [])
    until(lambda: waiting(redis_client) == 1, what="the question")
    presence = advisor.Presence()
    presence.tell()
    desk, id_, name = take(presence=presence)
    assert name == "landings"
    desk.give(id_, lambda: b"[1]")
    assert answer.result(20) == [1]
    assert advisor.problem() == ""


def test_what_a_killed_advisor_had_taken_is_asked_again(asking, redis_client):
    alive = advisor.Presence(seconds=60)
    alive.tell()
    answer = asking(advisor.ask, "landings", [])
    _, first, _ = take()  # says nothing of itself: as one that was killed a while ago
    desk, second, _ = take(presence=alive)
    assert first != second
    desk.give(second, lambda: b"[2]")
    assert answer.result(20) == [2]


def test_a_question_that_ends_advisors_is_not_asked_for_ever(asking):
    advisor.Presence(seconds=60).tell()
    answer = asking(advisor.ask, "landings", [])
    take()
    take()
    with pytest.raises(ServiceUnavailable, match="ended while it worked"):
        answer.result(20)


def test_a_question_is_asked_again_when_redis_was_emptied(asking, redis_client):
    answer = asking(advisor.ask, "landings", [])
    until(lambda: waiting(redis_client) == 1, what="the question")
    redis_client.flushdb()
    alive = advisor.Presence(seconds=60)
    alive.tell()
    desk, id_, _ = take(presence=alive)
    desk.give(id_, lambda: b"[3]")
    assert answer.result(20) == [3]


def test_a_frozen_redis_costs_no_more_than_a_few_seconds(settings):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        settings.REDIS_URL = f"redis://127.0.0.1:{deaf.getsockname()[1]}/0"
        advisor.client.cache_clear()
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable, match="Redis does not answer"):
            advisor.ask("landings", [])
        assert time.monotonic() - began < 15
        assert "Redis" in advisor.problem()


def test_a_late_answer_is_not_waited_for(asking, redis_client):
    alive = advisor.Presence(seconds=60)
    alive.tell()
    answer = asking(advisor.ask, "landings", [], deadline=0.3)
    take(presence=alive)
    with pytest.raises(ServiceUnavailable, match="in time"):
        answer.result(20)
    assert waiting(redis_client) == 0


def test_nobody_begins_with_a_question_whose_time_is_over(redis_client):
    asked = advisor._Asking(advisor.SHORT, b'{"name":"landings","document":[]}', time.monotonic())
    asked._pose()
    until(lambda: not redis_client.keys("stowage:question:*"), what="the deadline")
    assert advisor.Desk("one", [advisor.SHORT]).take() is None
    assert waiting(redis_client) == 0


def test_short_questions_go_before_long_ones():
    posed = msgspec.json.encode({"name": "simulation", "document": {}})
    short = msgspec.json.encode({"name": "landings", "document": []})
    end = time.monotonic() + 60
    advisor._Asking(advisor.LONG, posed, end)._pose()
    advisor._Asking(advisor.SHORT, short, end)._pose()
    assert [take()[2], take()[2]] == ["landings", "simulation"]


def test_those_who_ask_long_questions_take_turns():
    posed = msgspec.json.encode({"name": "plan", "document": {}})
    end = time.monotonic() + 60
    asked = {}
    for asker in ("anna", "anna", "anna", "bob", "anna", "bob"):
        advisor.asking(asker)
        question = advisor._Asking(advisor.LONG, posed, end)
        question._pose()
        asked[question._id] = asker
    assert [asked[take()[1]] for _ in range(6)] == ["anna", "bob", "anna", "bob", "anna", "anna"]


def test_an_advisor_keeps_a_thread_for_others_than_one_who_asks_much():
    posed = msgspec.json.encode({"name": "plan", "document": {}})
    end = time.monotonic() + 60
    for asker in ("anna", "anna", "anna", "bob"):
        advisor.asking(asker)
        advisor._Asking(advisor.LONG, posed, end)._pose()
    turns = advisor.Turns(most=2)
    desks = [advisor.Desk("one", [advisor.LONG], turns) for _ in range(4)]

    def of_whom(desk):
        while desk.take() is None:
            pass
        return desk._asker

    assert [of_whom(one) for one in desks[:3]] == ["anna", "bob", "anna"]
    assert desks[3].take() is None, "anna has two already"
    desks[0].done()
    assert of_whom(desks[3]) == "anna"


def test_a_turn_that_a_killed_advisor_had_taken_comes_again(asking, redis_client):
    alive = advisor.Presence(seconds=60)
    alive.tell()
    answer = asking(advisor.ask, "plan", {})
    until(lambda: redis_client.llen(advisor.LONG) == 1, what="the question")
    redis_client.delete(advisor.LONG)  # killed when it had taken the turn and not the question
    desk, id_, _ = take(presence=alive)
    desk.give(id_, lambda: b"[4]")
    assert answer.result(20) == [4]


def test_who_lost_an_advisor_waits_no_longer_for_another_than_at_first(monkeypatch, asking):
    monkeypatch.setattr(advisor, "START_SECONDS", 0.5)
    advisor.Presence(seconds=0.5).tell()
    answer = asking(advisor.ask, "landings", [], deadline=20)
    take()  # it is stopped with the question in its hands, and nobody replaces it
    began = time.monotonic()
    with pytest.raises(ServiceUnavailable, match="no advisor is running"):
        answer.result(20)
    assert time.monotonic() - began < 8


def test_nobody_waits_for_an_advisor_in_a_dry_runs_transaction(db):
    """All followers of the change log would wait as long."""
    with transactions.rehearsal(), pytest.raises(RuntimeError, match="dry run"):
        advisor.ask("landings", [])


def test_too_many_questions_are_refused(monkeypatch, redis_client):
    monkeypatch.setattr(advisor, "MOST_WAITING", 2)
    end = time.monotonic() + 60
    posed = msgspec.json.encode({"name": "landings", "document": []})
    for _ in range(2):
        advisor._Asking(advisor.SHORT, posed, end)._pose()
    with pytest.raises(TooManyRequests, match="too many questions"):
        advisor.ask("landings", [])
    assert waiting(redis_client) == 2


def test_every_question_has_a_function():
    for question in registry.QUESTIONS.values():
        module, _, name = question.place.partition(":")
        assert callable(getattr(__import__(module, fromlist=[name]), name))


def test_how_far_a_question_is_reaches_who_asks_the_same(monkeypatch):
    monkeypatch.setattr(advisor, "_TELL_SECONDS", 3600.0)  # however slow Redis is
    document = {"spec": {"hours": 3.0, "policies": [{"name": secrets.token_hex(8)}]}}
    assert advisor.progress("comparison", document) is None
    tell = advisor.teller("comparison", msgspec.json.decode(msgspec.json.encode(document)))
    tell("playing packing", 0.5)
    tell("playing packing", 0.6)  # too soon after the first
    found = advisor.progress("comparison", document)
    assert (found.doing, found.share) == ("playing packing", 0.5)
    assert advisor.progress("comparison", {"spec": {"hours": 1.0}}) is None
