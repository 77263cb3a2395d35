"""When the reader of the change log looks: for each commit once, however often it hears of it."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from api.streaming import hub as streaming
from api.streaming.hub import Hub, Ring
from tests.waiting import until


def read_up_to(position: int | None) -> Hub:
    """Return a hub with a watch whose reader has read up to ``position`` and waits."""
    hub = Hub()
    hub._subscribed = (frozenset({"Pod"}), frozenset())
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
    threading.Timer(0.0, hub._request_read).start()
    hub._wait()
    until(lambda: hub._looks, what="the reader to look")


def test_a_commit_is_news_for_a_reader_that_has_not_read_yet_and_none_while_nobody_watches() -> (
    None
):
    hub = read_up_to(None)
    hub._hear(8)
    assert hub._wake.is_set()
    hub = read_up_to(None)
    hub._subscribed = (frozenset(), frozenset())
    hub._hear(8)
    assert not hub._wake.is_set()


def filled(*revisions: int, size: int = 1) -> Ring:
    """Return a ring that begins behind revision 0 and has read events of these revisions."""
    ring = Ring()
    ring.floor = 0
    for revision in revisions:
        event: Any = SimpleNamespace(change=SimpleNamespace(revision=revision), object=b"x" * size)
        ring.append([event], revision)
    return ring


def behind(ring: Ring, cursor: int) -> list[int] | None:
    found = ring.after(cursor)
    return None if found is None else [event.change.revision for event in found]


def test_a_ring_gives_what_came_behind_a_cursor_once() -> None:
    ring = filled(2, 5, 5, 9)
    assert behind(ring, 0) == [2, 5, 5, 9]
    assert behind(ring, 1) == [2, 5, 5, 9]
    assert behind(ring, 2) == [5, 5, 9]
    assert behind(ring, 4) == [5, 5, 9]
    assert behind(ring, 5) == [9]
    assert behind(ring, 9) == []


@pytest.mark.parametrize("limit", ["events", "bytes"])
def test_who_fell_behind_a_trimmed_ring_is_told_so_and_skips_nothing(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that is told ``None`` reads the log, or ends with 410 if that does not reach back."""
    if limit == "events":
        monkeypatch.setattr(streaming, "RING_EVENTS", 8)
    else:
        monkeypatch.setattr(streaming, "RING_BYTES", 800)
    revisions = list(range(10, 100, 10))
    ring = filled(*revisions, size=100 if limit == "bytes" else 1)
    kept = behind(ring, revisions[-1] - 1)
    assert kept == [90]
    trimmed = False
    for cursor in range(100):
        found = behind(ring, cursor)
        trimmed = trimmed or found is None
        assert found is None or found == [one for one in revisions if one > cursor]
    assert trimmed, "nothing was dropped"
    assert behind(ring, 0) is None
    assert behind(ring, 50) is not None, "the younger half is kept"
