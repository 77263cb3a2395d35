"""A PodGroup's page: its pods, where they are, what the group lacks, and what leads there."""

import re
from typing import Any

import pytest
from django.test import Client

from api.console.pods import pod_group
from clusterstate.actions import objects
from tests.clock import NOW
from tests.clusterstate.support import bind, create_node, new_pod
from tests.console.conftest import allow, text

RACK = "rack"
PAGE = "/console/groups/default/gang/"
MEMBER: Any = {"schedulingGroup": {"podGroupName": "gang"}}
SEES_GROUPS = {
    "apiGroups": ["scheduling.k8s.io"], "resources": ["podgroups"], "verbs": ["get"]
}  # fmt: skip


@pytest.fixture(autouse=True)
def gang(db: None) -> None:
    """A gang of four with two nodes of a rack, each with room for one more of its pods."""
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        create_node(name, labels={RACK: rack, "kubernetes.io/hostname": name})
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": RACK}]},
        "disruptionMode": {"all": {}},
    }
    objects.create("PodGroup", "default", {"metadata": {"name": "gang"}, "spec": spec}, now=NOW)
    assert bind(new_pod("gang-0", cpu="3", **MEMBER), "n1")
    new_pod("gang-1", cpu="3", **MEMBER)


def facts(page: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", page).split())


def test_it_shows_the_pods_where_they_are_and_what_is_missing(operator: Client) -> None:
    page = facts(text(operator.get(PAGE)))
    assert "at least 4 pods are placed at once" in page
    assert "1 placed, 1 waiting" in page
    assert "all pods leave together" in page
    assert "2 more pods must be created: 2 of 4 exist" in page
    assert re.search(r"rack required domain pods share nodes r1 1 2 r2 0 1", page), page
    assert "gang-0 Pending n1" in page


def test_of_many_pods_those_that_wait_have_the_first_lines(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_group, "_MOST_PODS", 1)
    page = facts(text(operator.get(PAGE)))
    assert "Pods 1 of 2, those that wait first" in page
    assert "gang-1 Pending" in page
    assert "gang-0 Pending" not in page
    assert "1 more is not listed" in page


def test_pods_and_waiting_groups_lead_to_it(operator: Client) -> None:
    for address in ("/console/pods/default/gang-1/", "/console/waiting/"):
        assert f'href="{PAGE}"' in text(operator.get(address)), address


def test_why_does_not_say_that_a_pod_fits_whose_group_cannot_be_placed(operator: Client) -> None:
    page = text(operator.get("/console/pods/default/gang-1/why"))
    assert "cannot be placed: 2 more pods must be created" in page
    assert f'href="{PAGE}"' in page
    assert "the pod fits" not in page


def test_rights_decide_what_is_shown_of_it() -> None:
    assert allow("nick", []).get(PAGE).status_code == 403
    page = facts(text(allow("olga", [SEES_GROUPS]).get(PAGE)))
    assert "your roles do not allow you to list the pods" in page
    assert "gang-0" not in page
    assert "n1" not in page
