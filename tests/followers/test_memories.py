"""Another thread may empty what a process remembers at any moment: followers must bear it."""

import random

import pytest

from clusterstate.database import sql
from clusterstate.processes import memory
from scheduling.answers import registry
from tests.admin.conftest import person
from tests.controllers.support import after, make_node, make_pod, set_taints, taint, tolerates
from tests.followers import everybody
from tests.forms import many

pytestmark = pytest.mark.django_db


@pytest.mark.drawn
def test_followers_bear_that_memories_are_emptied_after_any_question(monkeypatch):
    """As when a restore is noticed by one thread while the others work.

    Once at each place; in the suite at every seventh, beginning anywhere.
    """
    for name in ("n1", "n2"):
        make_node(name)
    for number in range(3):
        make_pod(f"p{number}", "n1", tolerations=[tolerates(seconds=9)])
    set_taints("n1", taint())
    asked, last = 0, -1
    for name in ("fetch", "fetch_one"):
        ask = getattr(sql, name)

        def emptied(*parameters, ask=ask):
            nonlocal asked
            asked += 1
            found = ask(*parameters)
            if asked == last:
                memory.forget()
            return found

        monkeypatch.setattr(sql, name, emptied)
    everybody.follow(after(0))
    step = many(7, 1)
    place = random.randint(1, step)
    while last < asked:
        make_pod(f"later-{place}", "n2", now=after(place))
        asked, last = 0, place
        everybody.follow(after(place))
        place += step
    assert place > 50
    left = sql.fetch("SELECT DISTINCT node_name FROM pod WHERE deletion_at IS NULL")
    assert left == [("n2",)]


@pytest.mark.timeout(60)
def test_pages_and_answers_bear_that_memories_are_emptied_after_every_question(monkeypatch):
    """By the very thread that asks, which notices that the rows are another history's."""
    client = person("anna", superuser=True)
    for name in ("n1", "n2"):
        make_node(name)
    make_pod("p1", "n1")
    make_pod("p2")
    for name in ("fetch", "fetch_one", "fetch_together"):
        ask = getattr(sql, name)

        def emptied(*parameters, ask=ask, **named):
            found = ask(*parameters, **named)
            memory.forget()
            return found

        monkeypatch.setattr(sql, name, emptied)
    for path in ("", "nodes/", "nodes/n1/", "pods/", "waiting/", "evictions/", "find?q=n"):
        for _ in range(2):
            assert client.get(f"/console/{path}").status_code == 200
    for question, document in (
        ("room", {}),
        ("waiting-groups", {}),
        ("why", {"namespace": "default", "name": "p2"}),
        ("simulation", {"spec": {"base": "live", "pods": []}}),
    ):
        assert registry.answer(question, document)
