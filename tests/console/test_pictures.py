"""What is drawn where a person would rather look than read."""

import re

import pytest
from django.template.loader import render_to_string
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from api.console.fleet import fleet_map
from api.console.page.outcomes import outcome_counts, zone_counts
from api.console.page.reasons_text import Hindrance, hindrances
from clusterstate.actions import objects
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.queries.nodes.fleet import FleetNode
from scheduling.framework.types import histogram_message
from tests.clock import NOW
from tests.clusterstate.support import create_node, new_pod
from tests.console.conftest import text
from tests.console.test_change import CHANGE, owned

_REASONS = st.sampled_from(
    [
        "Insufficient cpu",
        "Insufficient example.com/gpu",
        "node(s) had untolerated taint(s)",
        "node(s) didn't match Pod's node affinity/selector",
        "Too many pods",
        "rack, or row, is full",
    ]
)
_NO_CLAIMS = "no new claims to deallocate"
_FREED = "deallocation of ResourceClaim completed"
_AFTER = "preemption: 0/9 nodes are available: 8 Preemption is not helpful, 1 No victims found."


@given(
    st.dictionaries(_REASONS, st.integers(1, 5000), min_size=1),
    st.sampled_from(["", _AFTER, f"{_NO_CLAIMS}, {_AFTER}", _NO_CLAIMS, f"{_FREED}, {_AFTER}"]),
)
def test_the_scheduler_s_sentence_is_read_as_it_was_counted(
    counted: dict[str, int], after: str
) -> None:
    sentence = histogram_message(5000, list(counted.items()), post_filter_message=after)
    found = hindrances(sentence)
    assert {one.text: one.nodes for one in found} == counted
    assert [one.nodes for one in found] == sorted(counted.values(), reverse=True)
    assert {one.every for one in found} == {5000}


def test_a_sentence_that_counts_no_nodes_is_not_taken_apart() -> None:
    replaced = histogram_message(9, [], pre_filter_message="persistentvolumeclaim x not found")
    more = "0/3 nodes are available: 8 Insufficient cpu."
    for sentence in ("", "no nodes available to schedule pods", replaced, more):
        assert hindrances(sentence) == []
    assert hindrances("0/3 nodes are available: 2 rack is full.") == [
        Hindrance(2, "rack is full", 3)
    ]


def test_the_fleet_draws_what_stands_in_the_way_of_pods_that_wait(operator: Client) -> None:
    create_node("n1")
    waits = new_pod("big", cpu="64")
    sentence = "0/4 nodes are available: 1 node(s) were unschedulable, 3 Insufficient cpu."
    refusal = Unschedulable(pod_id=waits, message=sentence, rejected_by=("NodeResourcesFit",))
    set_unschedulable([refusal], now=NOW)
    page = text(operator.get("/console/fleet/beside", HTTP_HX_REQUEST="true"))
    drawn = re.findall(r'aria-label="(\d+ of \d+)".*?<b>\d+</b> ([^<]+)<', page)
    assert drawn == [("3 of 4", "Insufficient cpu"), ("1 of 4", "node(s) were unschedulable")]


def test_waiting_pods_are_grouped_by_cause_and_the_taint_is_named(operator: Client) -> None:
    """Two classes of the same cause are one line, with the age of the pod that waits longest."""
    create_node("n1", taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}])
    create_node("n2", taints=[{"key": "old", "effect": "NoExecute"}])
    tolerates = [{"key": "old", "operator": "Exists"}]
    waits = [
        new_pod("a", cpu="64", tolerations=tolerates), new_pod("b", cpu="65", tolerations=tolerates)
    ]  # fmt: skip
    sentence = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
    refusals = [
        Unschedulable(pod_id=one, message=sentence, rejected_by=("TaintToleration",))
        for one in waits
    ]
    set_unschedulable(refusals, now=NOW)
    new_pod("c", cpu="1")
    told = "node(s) had untolerated taint(s): dedicated=gpu:NoSchedule"
    for address in ("/console/fleet/beside", "/console/waiting/"):
        page = text(operator.get(address, HTTP_HX_REQUEST="true"))
        assert told in page
    page = text(operator.get("/console/fleet/beside", HTTP_HX_REQUEST="true"))
    assert "old:NoExecute" not in page
    assert re.findall(r'<td class="n"><b>(\d+)</b>', page) == ["2", "1"]
    assert "not tried yet" in page


@pytest.mark.parametrize(("lost", "state"), [(0, ""), (1, " warn"), (2, " bad")])
def test_nodes_that_are_lost_are_red_from_one_in_twenty_on(lost: int, state: str) -> None:
    nodes = [
        FleetNode(
            id=number, name=f"n{number}", revision=1, created_at=NOW, cordoned=False,
            terminating=False, labels={}, taints=(), ready="Unknown" if number < lost else "True",
            conditions=(), offered={}, requested={}, leaving=0,
        )
        for number in range(25)
    ]  # fmt: skip
    page = render_to_string("console/cards.html", {"cards": fleet_map._cards(nodes)})
    assert f'class="card{state}"' in page.split("<b>", 1)[0]


def test_the_first_figure_tells_of_nodes_that_nobody_reports_on(operator: Client) -> None:
    """kubectl calls such a node Unknown: it is neither ready nor is anything wrong with it."""
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    create_node("n1")
    page = text(operator.get("/console/"))
    assert "<b>0</b><span>of 1 node ready, 1 without a report</span>" in page
    objects.update(
        "Node", "", "n1", lambda one: {**one, "status": {"conditions": [condition]}},
        subresource="status", now=NOW,
    )  # fmt: skip
    assert "<b>1</b><span>of 1 node ready</span>" in text(operator.get("/console/"))


def test_a_preview_draws_what_becomes_of_all_pods_and_where_they_land(operator: Client) -> None:
    zone = "topology.kubernetes.io/zone"
    create_node("n1", labels={zone: "a"})
    create_node("n2", labels={zone: "b"})
    for number in range(3):
        owned(f"web-{number}", "n1", cpu="100m")
    owned("large", "n1", cpu="3")
    assert text(operator.get(f"{CHANGE}?do=drain&node=n1")).count('class="bar fates"') == 1
    create_node("n3", labels={zone: "b"}, unschedulable=True)
    page = text(operator.get(f"{CHANGE}?do=cordon&node=n2"))
    assert "bar fates" not in page
    assert "<dt>none</dt>" in page


def test_each_pod_that_leaves_has_one_fate_however_many_there_are() -> None:
    leaving = [
        *({"pod": f"a/{one}", "landing": {"nodeName": f"n{one % 3}"}} for one in range(900)),
        {"pod": "a/held", "blockedBy": "PodDisruptionBudget a/b", "landing": {"nodeName": "n1"}},
        {"pod": "a/lost", "replaced": "never"},
        {"pod": "a/stuck", "landing": {"nodeName": "", "message": "0/3 nodes are available"}},
        {"pod": "a/later"},
    ]
    found = {one.kind: one.pods for one in outcome_counts(leaving)}
    assert found == {"lands": 900, "unknown": 1, "held": 1, "nowhere": 1, "lost": 1}
    zones = zone_counts(leaving, {"n0": "a", "n1": "b", "n2": "b"})
    assert [(one.zone, one.pods, one.nodes) for one in zones] == [("b", 600, 2), ("a", 300, 1)]
