"""What the stream tells a page of the changes; the open connection is tested in a browser."""

import asyncio
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from api.console.live import stream
from api.console.live.stream import Digest, Tape
from api.server.health_texts import Part, troubles
from clusterstate.change_log import changes, wake
from tests.clusterstate.support import bind, create_node, new_pod
from tests.console.conftest import text


def test_a_change_of_a_pod_names_the_pod_and_its_nodes(db: None) -> None:
    cursor = changes.watermark()
    create_node("n1")
    assert bind(new_pod("web-1"), "n1")
    digests = [stream.digest_of(one) for one in changes.read_since(cursor).items]
    news = stream.summary(digests, stream.shown_of("Node:n1 Pod@n1 Pod:default/web-1"))
    assert news == {"Node": ["n1"], "Pod": ["@n1", "default/web-1"]}


def test_many_changes_of_a_kind_are_told_without_names() -> None:
    digests = [Digest(one, "Pod", (f"default/p{one}",)) for one in range(stream.MOST_NAMES + 1)]
    names = frozenset(f"default/p{one}" for one in range(stream.MOST_NAMES + 1))
    shown = stream.Shown(frozenset(), {"Pod": names})
    assert stream.summary(digests, shown) == {"Pod": None}
    assert len(stream.summary(digests[1:], shown)["Pod"] or ()) == stream.MOST_NAMES


def test_a_tape_goes_on_where_a_page_stopped_and_says_where_it_cannot() -> None:
    tape = Tape()
    assert tape.after(5) is None
    tape.begin(10)
    tape.append([Digest(one, "Node", ("n",)) for one in (12, 15)], 20)
    assert [one.revision for one in tape.after(12) or ()] == [15]
    assert tape.after(9) is None
    many = [Digest(one, "Node", ("n",)) for one in range(21, 21 + 2 * stream._KEPT)]
    tape.append(many, many[-1].revision)
    assert tape.after(12) is None
    assert len(tape.after(many[-1].revision - 3) or ()) == 3


def test_a_stream_belongs_to_who_is_signed_in(db: None) -> None:
    assert stream.person_of([], secure=False) is None
    cookie = b"stowage-session=nonsense"
    assert stream.person_of([(b"cookie", cookie)], secure=False) is None
    client = Client()
    client.force_login(
        User.objects.create_user("anna", password="x"),
        backend="django.contrib.auth.backends.ModelBackend",
    )
    key = client.cookies["stowage-session"].value
    headers = [(b"cookie", f"a=b; stowage-session={key}".encode())]
    found = stream.person_of(headers, secure=False)
    assert found is not None
    assert (found.name, found.kinds) == ("anna", frozenset())
    assert stream.person_of(headers, secure=True) is None


def test_a_page_that_opens_while_the_reading_ends_has_a_reader(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, go_on = threading.Event(), threading.Event()

    class Slow(wake.Subscription):
        """Ends only when the test lets it."""

        def __exit__(self, *about: Any) -> None:
            ending.set()
            go_on.wait(30)
            super().__exit__(*about)

    monkeypatch.setattr(wake, "Subscription", Slow)

    async def pages() -> bool:
        follower = stream._Follower()
        before = {*threading.enumerate()}
        follower.enter("anna")
        follower.leave("anna")
        first = next(one for one in threading.enumerate() if one not in before)
        assert await asyncio.to_thread(ending.wait, 30)
        follower.enter("anna")  # a link was followed: one page is gone, the next is here
        go_on.set()
        await asyncio.to_thread(first.join, 30)
        second = follower._thread
        found = second is not None and second.is_alive()
        follower.leave("anna")
        if second is not None:
            await asyncio.to_thread(second.join, 30)
        return found

    assert asyncio.run(pages())


def test_nobody_takes_the_room_of_all_others() -> None:
    follower = stream._Follower()
    follower.of_persons["anna"] = stream.MOST_OF_ONE
    assert follower.is_full("anna")
    assert not follower.is_full("bob")
    follower.leave("anna")
    assert not follower.is_full("anna")


def test_a_page_is_told_of_what_it_shows() -> None:
    digests = [
        Digest(1, "Pod", ("default/web-1", "@n1")), Digest(2, "Pod", ("default/web-2",)),
        Digest(3, "Node", ("n1",)), Digest(4, "Event", ("default/web-1.7",)),
    ]  # fmt: skip
    told: dict[str, dict[str, list[str] | None]] = {
        "Node Pod": {"Node": None, "Pod": None},
        "Node:n1 Pod@n1": {"Node": ["n1"], "Pod": ["@n1"]},
        "Pod:default/web-2 Event": {"Pod": ["default/web-2"], "Event": None},
        "Pod:default/web-3 Node:n2 Pod@n2": {},
        "Pod Pod:default/web-2": {"Pod": None},
        "": {},
        "@ : Lease": {},
    }
    for shown, news in told.items():
        assert stream.summary(digests, stream.shown_of(shown)) == news
    may = stream.shown_of("Node:n1 Pod").of(frozenset({"Node"}))
    assert stream.summary(digests, may) == {"Node": ["n1"]}


def test_who_sees_some_namespaces_hears_of_these_alone() -> None:
    tina = stream.Person("tina", frozenset({"Pod"}), {"Pod": frozenset({"team-a"})})
    heard = [Digest(1, "Pod", ("team-a/web", "@n1")), Digest(2, "Pod", ("team-ab/web", "@n1"))]
    assert [one.revision for one in filter(tina.hears, heard)] == [1]


def test_a_page_hears_four_times_a_second_and_where_many_are_open_as_often_as_it_looks() -> None:
    assert stream.rest_of(1.0) == stream.EVERY_SECONDS
    assert stream.rest_of(5.0) == 5.0


def test_pages_are_told_of_parts_that_do_not_work_and_what_that_means() -> None:
    parts = [
        Part("web"), Part("redis", "does not answer (TimeoutError)", needed=False),
        Part("scheduler", "has not worked for 2349 s"), Part("timers"),
    ]  # fmt: skip
    found = [(one.name, one.problem, one.effect, one.needed) for one in troubles(parts)]
    assert found == [
        ("scheduler", "has not worked for 2349 s", "no pod is scheduled", True),
        ("redis", "does not answer (TimeoutError)", "", False),
    ]
    assert stream._Follower().about(7, "anna")["troubles"] == []


def test_a_page_is_told_of_what_changed_since_it_was_read(operator: Client) -> None:
    page = text(operator.get("/console/nodes/"))
    asked = f"after={changes.watermark()}"
    assert f'data-stream="/console/stream?{asked}"' in page
    scope: dict[str, Any] = {"query_string": asked.encode(), "headers": []}
    cursor = stream.cursor_of(scope)
    assert cursor is not None
    create_node("n1")
    read = changes.read_since(cursor)
    assert [one.name for one in read.items] == ["n1"]
    scope["headers"] = [(b"last-event-id", b"12")]
    assert stream.cursor_of(scope) == 12
    assert stream.cursor_of({"query_string": b"after=x", "headers": []}) is None
