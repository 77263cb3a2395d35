"""The list of evictions: who leaves, when and why."""

import datetime as dt

import pytest
from django.test import Client

from clusterstate.admin import evictions as screen
from clusterstate.admin.clock import now
from scheduling.controllers.evictions import timers
from scheduling.processes import landings
from tests.admin.conftest import person
from tests.admin.pages import text
from tests.controllers.support import make_node, make_pod, set_labels, set_taints, taint, tolerates
from tests.controllers.test_budgets import during_execution

PAGE = "/admin/clusterstate/eviction/"


def leaving() -> None:
    """Two pods that must leave: one for a taint in an hour, one for a label at once."""
    moment = now()
    make_node("n1")
    make_node("n2", labels={"zone": "a"})
    make_pod("patient", "n1", tolerations=[tolerates("gone", seconds=3600)])
    make_pod("stays", "n1", tolerations=[tolerates("gone")])
    make_pod("picky", "n2", affinity=during_execution("zone", "a"))
    timers.follow(moment)
    set_taints("n1", taint("gone"), now=moment)
    set_labels("n2", now=moment, zone="b")
    timers.follow(moment)
    landings.foresee(moment + dt.timedelta(seconds=1))


def test_it_says_who_leaves_when_and_why(administrator: Client) -> None:
    leaving()
    page = text(administrator.get(PAGE))
    assert "picky" in page
    assert "node labels no longer match" in page
    assert "nowhere: 0/2 nodes are available" in page
    assert "taint gone:NoExecute" in page
    assert "stays" not in page
    assert page.index("picky") < page.index("patient"), "the earliest first"


def test_it_can_be_narrowed(administrator: Client) -> None:
    leaving()
    page = text(administrator.get(f"{PAGE}?cause=taint&q=n1"))
    assert "patient" in page
    assert "picky" not in page


def test_without_a_search_it_has_those_that_leave_first(
    administrator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving()
    monkeypatch.setattr(screen, "_MOST", 1)
    first = text(administrator.get(PAGE))
    assert "picky" in first
    assert "patient" not in first
    for query in ("cause=taint", "namespace=default&cause=taint", "q=patient"):
        assert "patient" in text(administrator.get(f"{PAGE}?{query}"))
    assert "patient" not in text(administrator.get(f"{PAGE}?namespace=default"))
    assert "patient" not in text(administrator.get(f"{PAGE}?namespace=elsewhere&cause=taint"))


def test_whoever_sees_pods_sees_it_and_nobody_changes_it(
    administrator: Client, viewer: Client
) -> None:
    leaving()
    assert "patient" in text(viewer.get(PAGE))
    assert "Evictions" in text(viewer.get("/admin/"))
    assert person("nils", "view_node").get(PAGE).status_code == 403
    assert administrator.get(f"{PAGE}add/").status_code == 403
    assert "Delete selected" not in text(administrator.get(PAGE))
