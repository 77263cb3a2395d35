"""Open pages share what an advisor said, for a few seconds."""

import threading
from typing import Any

import pytest

from api.console.live.shared_answers import EVERY_SECONDS, SharedQuestion
from clusterstate.objects.values.errors import ServiceUnavailable


class World:
    """An advisor, a change log and a clock; the advisor answers with how often it was asked."""

    def __init__(self) -> None:
        self.revision = 5
        self.seconds = 1000.0
        self.asked: list[Any] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.is_asked = threading.Event()
        self.question = SharedQuestion(
            "waiting-groups",
            deadline=1.0,
            ask=self.ask,
            mark=lambda: self.revision,
            clock=lambda: self.seconds,
        )

    def ask(self, name: str, document: object, *, deadline: float) -> int:
        self.asked.append(document)
        self.is_asked.set()
        assert self.may_answer.wait(60)
        if document == "wrong":
            raise ServiceUnavailable("no advisor is running")
        return len(self.asked)

    def answer(self) -> int:
        found: int = self.question.answer({}).value
        return found


def test_an_answer_serves_everybody_until_something_changes() -> None:
    world = World()
    assert [world.answer() for _ in range(3)] == [1, 1, 1]
    world.seconds += 10
    found = world.question.answer({})
    assert (found.value, found.age, found.is_behind) == (1, 10, False)
    world.seconds += 6
    assert world.answer() == 2, "it is not kept for ever"
    world.revision += 1
    found = world.question.answer({})
    assert (found.value, found.is_behind) == (2, True)
    world.seconds += EVERY_SECONDS
    found = world.question.answer({})
    assert (found.value, found.is_behind) == (3, False)
    assert len(world.asked) == 3


def test_an_answer_says_what_it_answers() -> None:
    question = World().question
    question.answer(["a"])
    assert question.answer(["b"]).document == ["a"]


def test_a_failure_is_not_asked_for_again_at_once() -> None:
    world = World()
    for _ in range(3):
        with pytest.raises(ServiceUnavailable):
            world.question.answer("wrong")
    world.revision += 1
    world.seconds += EVERY_SECONDS
    with pytest.raises(ServiceUnavailable):
        world.question.answer("wrong")
    assert len(world.asked) == 1, "busy advisors are not asked at every change"
    world.seconds += 20
    assert world.answer() == 2


def test_who_has_an_older_answer_does_not_wait_for_the_next() -> None:
    world = World()
    assert world.answer() == 1
    world.seconds += 20
    world.is_asked.clear()
    world.may_answer.clear()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(world.answer()))
    thread.start()
    assert world.is_asked.wait(60)
    assert world.answer() == 1
    world.may_answer.set()
    thread.join(60)
    assert found == [2]
    assert world.answer() == 2
