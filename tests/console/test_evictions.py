"""Evictions: where each pod would land, what a brake holds back, and approving it."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from api import clock
from api.console.page import formatting
from clusterstate.actions import brakes as actions
from clusterstate.queries.evictions.brakes import Share, brakes
from clusterstate.queries.evictions.eviction_timers import Timer
from scheduling.controllers.evictions import timers
from tests.clock import after
from tests.console.conftest import ZONE, signed_in, text
from tests.controllers.support import make_node, make_pod, set_taints, taint

EVICTIONS = "/console/evictions/"
BRAKE = f"{EVICTIONS}brakes/zone.a/"


@pytest.fixture(autouse=True)
def leaving(db: None) -> None:
    """Two pods of three of zone a must leave; zone b has room."""
    for zone in ("a", "b"):
        make_node(f"{zone}0", labels={ZONE: zone})
    make_node("a1", labels={ZONE: "a"}, taints=[{"key": "closed", "effect": "NoSchedule"}])
    make_pod("stays", "a1")
    for name in ("one", "two"):
        make_pod(name, "a0")
    set_taints("a0", taint(), now=after(1))
    timers.follow(after(2))


def hold(leaving: int = 2) -> None:
    actions.settle([(Share("zone", "a", leaving, 3), 40.0)], now=after(2))


def test_timers_tell_where_each_pod_would_land(operator: Client) -> None:
    page = text(operator.get(EVICTIONS))
    assert page.count(">b0</td>") == 2
    assert "2 timers" in page
    assert "Evictions paused" not in page


def test_a_brake_is_seen_and_approved(operator: Client, viewer: Client) -> None:
    hold()
    page = text(operator.get(EVICTIONS))
    assert BRAKE in page
    assert "2 of 3" in page
    assert "Keep paused" not in text(viewer.get(BRAKE))
    assert viewer.post(BRAKE, {"seen": "2 of 3"}).status_code == 403
    page = text(operator.get(BRAKE))
    assert "Allow 2 of 3 evictions for 1 hour" in page
    assert page.count(">b0</td>") == 2
    hold(3)
    answer = operator.post(BRAKE, {"seen": "2 of 3"})
    assert answer.status_code == 409
    assert "Nothing was approved" in text(answer)
    assert [one.state for one in brakes()] == ["Held"]
    assert operator.post(BRAKE, {"seen": "3 of 3"})["Location"] == EVICTIONS
    (found,) = brakes()
    assert (found.state, found.approved_by) == ("Approved", "anna")
    assert "approved" in text(operator.get(EVICTIONS))
    assert 'id="confirm"' not in text(operator.get(BRAKE))


def test_the_fleet_says_what_holds_back_who_should_have_left(
    operator: Client, settings: Any
) -> None:
    settings.BRAKE_ZONE_PERCENT = 40
    hold()
    page = text(operator.get("/console/fleet/beside", HTTP_HX_REQUEST="true"))
    assert page.count("held back: brake zone.a") == 2
    page = text(operator.get(BRAKE))
    assert page.count("brake zone.a") == 2
    assert "also blocked by" not in page, "a brake is not among what blocks besides"


def test_a_brake_that_is_gone_is_said_to_be(operator: Client, settings: Any) -> None:
    hold()
    actions.settle([], now=after(3))
    assert operator.get(BRAKE).status_code == 404
    assert operator.post(BRAKE, {"seen": "2 of 3"}).status_code == 404


def test_who_may_not_list_brakes_sees_none(nobody: Client) -> None:
    hold()
    assert nobody.get(BRAKE).status_code == 403
    assert signed_in("noone").get(EVICTIONS).status_code == 403


def test_a_drawing_counts_down_to_who_leaves(operator: Client) -> None:
    page = text(operator.get(EVICTIONS))
    (drawn,) = re.findall(r'<figure class="countdown">.*?</figure>', page, re.DOTALL)
    assert 'aria-label="2 pods leave within' in drawn
    assert drawn.count("<rect") == 2
    assert "style=" not in drawn


def test_a_countdown_tells_later_due_and_held_apart() -> None:
    now = clock.now()

    def timer(seconds: float, held: str = "") -> Any:
        return (
            Timer(
                pod_id=1, pod_uid="", namespace="default", name="p", node_name="n", cause="taint",
                taint_key="k", taint_value="", taint_effect="NoExecute", seconds=0,
                started_at=now, due_at=now + timedelta(seconds=seconds), blocked_by=held,
                landing=None,
            ),
            "",
        )  # fmt: skip

    drawn = formatting.countdown([timer(600), timer(300), timer(-5), timer(-5, "a budget")])
    places = re.findall(r'class="(\w+)" x="(\d+)" y="(\d+)"', drawn)
    assert [one[0] for one in places] == ["later", "later", "due", "held"]
    assert [int(one[1]) for one in places] == [595, pytest.approx(300, abs=5), 0, 0]
    assert places[2][2] != places[3][2], "two of one moment stand one upon the other"
    assert re.search(r'"4 pods leave within (10m|9m\d+s), 1 held back"', drawn)
    assert formatting.countdown([timer(1)] * 500).count("<rect") == 12
