"""Another thread may empty what a process remembers at any moment: followers must bear it."""

import pytest

from clusterstate import memory, sql
from tests.controllers.support import NOW, after, make_node, make_pod, set_taints, taint, tolerates
from tests.followers import everybody

pytestmark = pytest.mark.django_db


def test_followers_bear_that_memories_are_emptied_after_each_question(monkeypatch):
    """As when a restore is noticed by one thread while the others work."""
    for name in ("n1", "n2"):
        make_node(name)
    for number in range(3):
        make_pod(f"p{number}", "n1", tolerations=[tolerates(seconds=9)])
    make_pod("stays", "n2")
    set_taints("n1", taint())
    asked = 0
    for name in ("fetch", "fetch_one"):
        ask = getattr(sql, name)

        def emptied(*parameters, ask=ask):
            nonlocal asked
            asked += 1
            found = ask(*parameters)
            memory.forget()
            return found

        monkeypatch.setattr(sql, name, emptied)
    for moment in (NOW, after(5), after(10)):
        everybody.follow(moment)
    assert asked > 50
    left = sql.fetch("SELECT name FROM pod WHERE deletion_at IS NULL ORDER BY name")
    assert left == [("stays",)]
