"""When the reader of the change log looks: for each commit once, however often it hears of it."""

import threading

from api.streaming.hub import Hub
from tests.waiting import until


def read_up_to(position: int | None) -> Hub:
    """Return a hub with a watch whose reader has read up to ``position`` and waits."""
    hub = Hub()
    hub._wanted = (frozenset({"Pod"}), frozenset())
    hub._looks = False
    hub._position = position
    return hub


def heard(hub: Hub) -> bool:
    """Return whether the reader goes and looks before it polls."""
    looks = threading.Event()

    def wait() -> None:
        hub._wait()
        looks.set()

    hub._listening = True
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(60)
    assert looks.is_set()
    return hub._is_behind()


def test_what_was_read_wakes_nobody_when_it_is_heard_of_again() -> None:
    hub = read_up_to(7)
    hub._committed(None, revision=7)
    assert not hub._wake.is_set()
    hub._hear(6)
    assert not hub._wake.is_set()
    hub._hear(8)
    assert hub._wake.is_set()


def test_what_was_heard_while_it_was_read_is_not_looked_for_again() -> None:
    hub = read_up_to(7)
    hub._hear(9)  # while the log is read up to 9
    hub._position = 9
    assert not heard(hub)
    assert not hub._wake.is_set()


def test_a_commit_below_what_was_heard_is_looked_for_while_the_mark_is_below_it() -> None:
    hub = read_up_to(7)
    hub._hear(9)  # the writer of 8 has not committed: the log is read up to 7
    hub._wake.clear()
    hub._hear(8)
    hub._wait()
    assert hub._is_behind()


def test_a_change_of_what_is_followed_is_looked_at_without_news() -> None:
    hub = read_up_to(7)
    threading.Timer(0.0, hub._look).start()
    hub._wait()
    until(lambda: hub._looks, what="the reader to look")


def test_a_commit_is_news_for_a_reader_that_has_not_read_yet_and_none_while_nobody_watches() -> (
    None
):
    hub = read_up_to(None)
    hub._hear(8)
    assert hub._wake.is_set()
    hub = read_up_to(None)
    hub._wanted = (frozenset(), frozenset())
    hub._hear(8)
    assert not hub._wake.is_set()
