"""Pages that look at the same thing share one answer; how often they ask follows from its cost."""

import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from api.console.live import fragment_cache
from api.console.live.fragment_cache import LEAST_PAUSE, MOST_PAUSE, SHARE, Look, Looks
from clusterstate.actions import objects
from clusterstate.browser_sessions import SessionStore
from clusterstate.change_log import changes
from tests.clock import NOW
from tests.clusterstate.support import create_node
from tests.console.conftest import allow, give, signed_in, text

NODES, BESIDE = "/console/nodes/", "/console/fleet/beside"


class World:
    """A change log, a clock, and pages that look at it."""

    def __init__(self) -> None:
        self.revision = 5
        self.seconds = 1000.0
        self.made: list[float] = []
        self.looks = Looks(clock=lambda: self.seconds, mark=lambda: self.revision)

    def make(self) -> HttpResponse:
        self.made.append(self.seconds)
        return HttpResponse(f"as of {self.revision}")

    def ask(
        self, heard: int | None, *, person: str = "anna", pause: float = 1.0, has: str = "",
        **about: Any,
    ) -> Any:  # fmt: skip
        request = HttpRequest()
        request.META["HTTP_STOWAGE_HAS"] = has
        look = Look("/q", "/q", person, (("rights", "*"), ("s", person)), heard, **about)
        return self.looks.answer(look, self.make, pause, request)


def test_an_answer_serves_all_who_have_heard_of_nothing_later() -> None:
    world = World()
    first, second = world.ask(5), world.ask(4)
    assert (first.content, second.content, len(world.made)) == (b"as of 5", b"as of 5", 1)
    assert first.headers["Stowage-Mark"] == second.headers["Stowage-Mark"] == "5"
    world.revision = 6
    assert world.ask(6).content == b"as of 6"


def test_a_page_that_shows_the_answer_is_sent_nothing() -> None:
    world = World()
    tag = world.ask(5).headers["Stowage-Tag"]
    again = world.ask(5, has=tag)
    assert (again.status_code, again.content) == (204, b"")
    world.revision = 6
    assert world.ask(6, has=tag).status_code == 200


def test_how_long_ago_something_was_makes_no_other_answer() -> None:
    tags = {
        fragment_cache.tag_of(b'<b>1</b><time datetime="2026">%b</time>' % one)
        for one in (b"3s", b"4s ago")
    }
    assert len(tags) == 1
    assert fragment_cache.tag_of(b'<b>2</b><time datetime="2026">3s</time>') not in tags
    assert fragment_cache.tag_of(b'<b>1</b><time datetime="2027">3s</time>') not in tags


def test_who_waits_long_for_an_answer_is_given_the_one_of_before() -> None:
    world = World()
    world.ask(5)
    world.revision = 6
    may_answer, is_asked = threading.Event(), threading.Event()

    def slowly() -> HttpResponse:
        is_asked.set()
        assert may_answer.wait(60)
        return HttpResponse("as of 6")

    make, world.make = world.make, slowly  # type: ignore[method-assign]
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(world.ask(6)))
    thread.start()
    assert is_asked.wait(60)
    world.make = make  # type: ignore[method-assign]
    meanwhile = world.ask(6)
    assert meanwhile.content == b"as of 5"
    assert meanwhile.headers["Stowage-Mark"] == "5", "the page learns that it is behind"
    may_answer.set()
    thread.join(60)
    assert [one.content for one in found] == [world.ask(6).content] == [b"as of 6"]


def test_who_has_nothing_to_show_waits_a_moment_for_who_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fragment_cache, "_MOST_PATIENCE_SECONDS", 0.05)
    world = World()
    world.ask(5)
    world.seconds += 3600  # what was made then is too old to be shown
    world.revision = 6
    may_answer, is_asked = threading.Event(), threading.Event()

    def never() -> HttpResponse:
        is_asked.set()
        assert may_answer.wait(60)
        raise TimeoutError

    def fail() -> None:
        with pytest.raises(TimeoutError):
            world.looks.answer(look, never, 1.0, HttpRequest())

    look = Look("/q", "/q", "anna", (("rights", "*"), ("s", "anna")), 6)
    thread = threading.Thread(target=fail)
    thread.start()
    try:
        assert is_asked.wait(60)
        assert world.ask(6).content == b"as of 6"
    finally:
        may_answer.set()
        thread.join(60)


@given(
    pause=st.sampled_from([LEAST_PAUSE, 2.5]),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(0, 2), st.integers(0, 3)), max_size=40),
)
def test_no_page_waits_longer_for_a_change_than_it_is_told(
    pause: float, steps: list[tuple[float, int, int]]
) -> None:
    """While few pages are open, none is given what it knows to be old; else what is that young."""
    world = World()
    history = [(world.seconds, world.revision)]
    for seconds, more, behind in steps:
        world.seconds += seconds
        world.revision += more
        history.append((world.seconds, world.revision))
        heard = world.revision - behind
        mark = int(world.ask(heard, pause=pause).headers["Stowage-Mark"])
        assert mark <= world.revision
        if pause <= LEAST_PAUSE:
            assert mark >= heard
        early = [one for at, one in history if at <= world.seconds - pause]
        assert mark >= max(early, default=0)
    if pause > LEAST_PAUSE:
        assert all(later - earlier >= pause for earlier, later in pairwise(world.made))


@pytest.mark.parametrize("counts", [(20,), (1,) * 20, (100, 1, 1, 1), (100,) * 10])
@pytest.mark.parametrize("is_same", [False, True])
def test_all_parts_that_are_looked_at_take_their_share_of_a_cpu(
    counts: tuple[int, ...], is_same: bool
) -> None:
    world, cost = World(), 0.02
    for person, count in enumerate(counts):
        for page in range(count):
            world.looks.note(f"p{person}", "/q" if is_same else f"/{person}/{page}", cost)
    pauses = [
        world.looks.pause(f"p{person}", count, sum(counts), len(counts))
        for person, count in enumerate(counts)
    ]
    assert all(LEAST_PAUSE <= one <= MOST_PAUSE for one in pauses)
    if is_same:
        taken = cost / min(pauses)
        alone = world.looks.pause("p0", 1, 1, 1)
        assert alone == LEAST_PAUSE
    else:
        each = [count * cost / pause for count, pause in zip(counts, pauses, strict=True)]
        taken = sum(each)
        if MOST_PAUSE not in pauses:
            assert max(each) <= SHARE / len(counts) * 2 + 1e-9 or max(pauses) < 2 * LEAST_PAUSE
    assert taken <= 2 * SHARE or MOST_PAUSE in pauses


@pytest.mark.parametrize(("is_personal", "least"), [(False, LEAST_PAUSE), (True, 8.0)])
def test_what_is_made_for_each_person_costs_as_often(is_personal: bool, least: float) -> None:
    world = World()

    def make() -> HttpResponse:
        world.seconds += 0.02
        return HttpResponse("of one")

    persons = [f"p{number}" for number in range(20)]
    for person in persons:
        request = HttpRequest()
        request.META[fragment_cache.PERSONAL] = is_personal
        look = Look("/q", "/q", person, (("rights", "*"), ("s", person)), 5)
        world.looks.answer(look, make, LEAST_PAUSE, request)
    pause = world.looks.pause("p0", 1, 20, 20)
    assert least <= pause <= 2 * least, "20 times 20 ms in a twentieth of a CPU take 8 s"


def test_only_so_many_addresses_of_a_person_are_remembered() -> None:
    world = World()
    for number in range(2 * fragment_cache._MOST_ADDRESSES):
        world.looks.note("anna", f"/?q={number}", 0.001)
    assert len(world.looks._requests["anna"]) == fragment_cache._MOST_ADDRESSES
    world.looks.pause("anna", 1, 1, 1)
    assert len(world.looks._seconds) == fragment_cache._MOST_ADDRESSES


def test_a_person_with_one_page_waits_for_no_pages_of_others() -> None:
    world = World()
    world.looks.note("anna", "/a", 0.02)
    for page in range(100):
        world.looks.note("bob", f"/{page}", 0.02)
    assert world.looks.pause("anna", 1, 101, 2) == LEAST_PAUSE
    assert world.looks.pause("bob", 100, 101, 2) > 20 * LEAST_PAUSE
    world.seconds += 1000
    assert world.looks.pause("bob", 1, 1, 1) == LEAST_PAUSE, "what nobody looks at costs nothing"


# As pages ask ---------------------------------------------------------------------------------


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """No time passes for the answers that are kept, unless the test says so."""
    clock = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(fragment_cache._looks, "_clock", lambda: clock.seconds)
    return clock


def ask(client: Client, address: str, heard: int | str, **headers: str) -> Any:
    headers = {"HX-Request": "true", "Stowage-Heard": str(heard), **headers}
    return client.get(address, headers=headers)


def test_people_with_the_same_rights_are_shown_what_was_made_once(
    cluster: None, still: SimpleNamespace
) -> None:
    anna, ben = signed_in("anna", superuser=True), signed_in("ben", superuser=True)
    heard = changes.watermark()
    first = ask(anna, NODES, heard)
    create_node("n4")
    again = ask(ben, NODES, heard)
    assert text(again) == text(first), "he has heard of nothing since"
    assert "n4" in text(ask(ben, NODES, changes.watermark()))
    has = {"Stowage-Has": first.headers["Stowage-Tag"]}
    assert ask(anna, NODES, heard, **has).status_code == 200, "it differs from what she shows"


def test_other_rights_and_other_questions_have_other_answers(
    cluster: None, still: SimpleNamespace
) -> None:
    anna = signed_in("anna", superuser=True)
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    vera, vic = allow("vera", [rule]), allow("vic", [rule])
    heard = changes.watermark()
    of_anna, of_vera = (
        ask(anna, "/console/fleet/beside", heard),
        ask(vera, "/console/fleet/beside", heard),
    )
    assert "Last decisions" in text(of_anna)
    assert "Last decisions" not in text(of_vera)
    assert ask(vic, BESIDE, heard).content == of_vera.content
    assert ask(vic, "/console/pods/", heard).status_code == 403
    assert ask(anna, NODES + "?q=n1", heard).content != ask(anna, NODES, heard).content
    vic.logout()
    assert ask(vic, NODES, heard).status_code == 401


def test_who_loses_a_right_is_shown_nothing_of_before(
    cluster: None, still: SimpleNamespace
) -> None:
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    vera = allow("vera", [rule])
    heard = changes.watermark()
    assert ask(vera, NODES, heard).status_code == 200
    objects.delete("ClusterRoleBinding", "", "vera", now=NOW)
    assert ask(vera, NODES, heard).status_code == 403


def test_what_was_made_while_roles_changed_is_kept_for_nobody(
    cluster: None, still: SimpleNamespace
) -> None:
    """Else who has no more rights than both had before would be shown what the other may see."""
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    for name in ("vera", "vic"):
        allow(name, [rule])

    def shown_to(name: str, make: fragment_cache.Make) -> bytes:
        request = RequestFactory().get(NODES, headers={"Stowage-Heard": "1"})
        request.user = User.objects.get(username=name)
        request.session = SessionStore(f"of-{name}")
        look = fragment_cache.of(request, is_alike=True, lasts=0.0)
        assert look is not None
        return fragment_cache.serve(request, look, make, 1.0).content

    def more() -> HttpResponse:
        give("more", "vera", "cluster-admin")
        return HttpResponse("what vera may see")

    assert shown_to("vera", more) == b"what vera may see"
    assert shown_to("vic", lambda: HttpResponse("what vic may see")) == b"what vic may see"
    assert shown_to("vic", lambda: HttpResponse("again")) == b"what vic may see"


def test_a_sentence_that_names_a_person_is_for_that_person(
    cluster: None, still: SimpleNamespace
) -> None:
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    heard = changes.watermark()
    for name in ("vera", "vic"):
        shown = text(ask(allow(name, [rule]), "/console/waiting/", heard))
        assert f"User &quot;{name}&quot;" in shown or f"{name}" in shown
        assert ("vera" in shown) == (name == "vera")


def test_the_map_is_given_what_changed_since_and_says_as_of_when(
    cluster: None, still: SimpleNamespace
) -> None:
    anna = signed_in("anna", superuser=True)
    heard = changes.watermark()
    whole = ask(anna, "/console/fleet/columns", heard)
    create_node("n4")
    since = f"/console/fleet/columns?since={whole.json()['revision']}"
    found = ask(anna, since, changes.watermark())
    assert found.json()["name"] == ["n4"]
    assert int(found.headers["Stowage-Mark"]) <= found.json()["revision"]


def test_latency_and_throughput_are_made_every_few_seconds(
    cluster: None, still: SimpleNamespace
) -> None:
    anna, ben = signed_in("anna", superuser=True), signed_in("ben", superuser=True)
    headers = {"HX-Request": "true"}
    marks = []
    for client in (anna, ben, anna):
        marks.append(client.get("/console/fleet/pace", headers=headers).headers["Stowage-Mark"])
        create_node(f"m{len(marks)}")
        still.seconds += 6
    assert marks[0] == marks[1] != marks[2]
