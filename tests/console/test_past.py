"""Pages as they were: what an address with ``at`` shows, and that nothing can be changed there."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.change_log import changes
from clusterstate.queries.pods import find_pod_id
from tests.clock import after, moment
from tests.clusterstate.support import manifest, node, pod
from tests.console.conftest import ZONE, text
from tests.creating import create_pod

THEN = moment(-1200)


@pytest.fixture
def story(operator: Client) -> Client:
    """A cluster of which half is gone: n1 got a label, n2 and web-1 left, web-2 came."""
    early, late = after(-1800), after(-600)
    for name in ("n1", "n2"):
        objects.create("Node", "", node(name, labels={ZONE: "a"}), now=early)
    for name, cpu in (("web-1", "3500m"), ("big", "64")):
        create_pod(pod(name, cpu=cpu), now=early)
    pod_id = find_pod_id("default", "web-1")
    assert pod_id is not None
    bind_pods([Binding(pod_id, "n1")], snapshot_revision=changes.watermark(), now=early)

    def label(stored: Any) -> Any:
        labels = {**stored["metadata"]["labels"], "team": "search"}
        return {**stored, "metadata": {**stored["metadata"], "labels": labels}}

    objects.update("Node", "", "n1", label, now=late)
    objects.delete("Node", "", "n2", now=late)
    objects.delete("Pod", "default", "web-1", {"gracePeriodSeconds": 0}, now=late)
    create_pod(pod("web-2"), now=late)
    return operator


def test_ages_on_a_page_of_the_past_count_from_that_moment(story: Client) -> None:
    """All was made 30 minutes before now; the page is about 20 minutes before now."""
    for path in ("nodes/", "nodes/n1/", "pods/", "pods/default/web-1/"):
        page = text(story.get(f"/console/{path}?at={THEN}"))
        banner, _, rest = page.partition("Nothing can be changed here.")
        assert re.findall(r">(\S+ ago)</time>", banner) == ["20m ago"]
        assert "data-past" in banner
        told = re.findall(r'data-form="(?:ago|age)">(.*?)</time>', rest)
        assert set(told) & {"10m", "10m ago"}, path
        assert not [one for one in told if one.startswith(("20m", "30m"))], path
    rows = text(story.get(f"/console/nodes/csv?columns=age&at={THEN}")).splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["10m", "10m"]


def test_pages_show_how_it_was(story: Client) -> None:
    now = text(story.get("/console/nodes/"))
    assert "node-n2" not in now
    assert "This is the past" not in now
    for path, words in {
        "/console/": ["This is the past", "of 2 nodes ready"],
        "/console/fleet/beside": ["default/big"],
        "/console/nodes/": ["node-n1", "node-n2", "3.5 / 4"],
        "/console/nodes/n2/": ["This is the past", "0 of 4"],
        "/console/nodes/n1/": ["default/web-1", "3.5 of 4"],
        "/console/pods/": ["default/web-1", "default/big"],
        "/console/pods/?q=web": ["default/web-1"],
        "/console/pods/?node=n1": ["default/web-1"],
        "/console/pods/?waiting=yes": ["default/big"],
        "/console/pods/default/web-1/": ["bound", "3.5 CPU", "n1"],
        "/console/waiting/": ["This is the past", "1 pending pod", "default/big", "not tried yet"],
        "/console/policies/": ["This is the past", "KubeSchedulerConfiguration"],
        "/console/objects/Node/": ["n2"],
        "/console/objects/Node/-/n2/": ["name: n2"],
    }.items():
        answer = story.get(f"{path}{'&' if '?' in path else '?'}at={THEN}")
        assert answer.status_code == 200, (path, text(answer)[:1500])
        for word in words:
            assert word in text(answer), (path, word)
        assert "web-2" not in text(answer)
        assert "team" not in text(answer)


def test_the_map_of_then_tells_what_was_asked_of_each_node(story: Client) -> None:
    found = story.get("/console/fleet/columns", {"at": THEN}).json()
    assert found["name"] == ["n1", "n2"]
    assert found["cpu"] == [[3500, 4000], [0, 4000]]
    assert found["whole"] is True
    found = story.get("/console/fleet/columns").json()
    assert (found["name"], found["cpu"]) == (["n1"], [[0, 4000]])


def test_nothing_can_be_changed_in_the_past(story: Client) -> None:
    for path in (
        "/console/",
        "/console/nodes/",
        "/console/nodes/n1/",
        "/console/pods/default/big/",
    ):
        page = text(story.get(path, {"at": THEN}))
        assert "do=" not in page, path
        assert "data-change" not in page, path
        assert "data-stream" not in page, path
        assert 'id="back-to-now"' in page
    before = manifest("Namespace", "", "default")
    page = "/console/objects/Namespace/-/default/"
    answer = story.post(f"{page}?at={moment(-1)}", {"text": "kind: Namespace"})
    assert answer.status_code == 400
    assert "nothing can be changed in the past" in text(answer)
    assert manifest("Namespace", "", "default") == before


def test_a_page_of_the_past_leads_on_in_the_past_and_back_to_now(story: Client) -> None:
    page = html.unescape(text(story.get("/console/nodes/", {"at": THEN, "sort": "-cpu"})))
    at = f"at={THEN.replace(':', '%3A')}"
    assert f'href="/console/nodes/n1/?{at}"' in page
    assert f'href="/console/pods/?{at}"' in page
    assert re.search(rf'href="\?sort=-?name&{at}"|href="\?{at}&sort=name"', page)
    assert f'name="at" value="{THEN}"' in page
    assert 'href="/console/evictions/"' in page, "which is about the present"
    assert 'href="/console/account"' in page
    (back,) = re.findall(r'id="back-to-now" data-now href="([^"]*)"', page)
    assert back == "?sort=-cpu"


def test_how_long_ago_is_led_to_the_time_itself(story: Client) -> None:
    answer = story.get("/console/nodes/", {"at": "20m", "q": "n1"})
    assert answer.status_code == 302
    found = re.fullmatch(r"/console/nodes/\?at=([^&]+)&q=n1", answer["Location"])
    assert found, answer["Location"]
    assert "node-n1" in text(story.get(answer["Location"]))
    assert story.get("/console/nodes/", {"at": ""})["Location"] == "/console/nodes/"


@pytest.mark.parametrize(
    ("path", "at", "code"),
    [
        ("/console/nodes/", "yesterday", 400),
        ("/console/nodes/", "2999-01-01T00:00:00Z", 400),
        ("/console/nodes/", "2001-01-01T00:00:00Z", 410),
        ("/console/evictions/", "10m", 400),
        ("/console/policies/plugins", "10m", 400),
        ("/console/change?do=cordon&node=n1", "10m", 400),
        ("/console/nodes/n9/", THEN, 404),
    ],
)
def test_a_moment_that_cannot_be_shown_is_refused(
    story: Client, path: str, at: str, code: int
) -> None:
    mark = "&" if "?" in path else "?"
    answer = story.get(f"{path}{mark}at={at}")
    assert answer.status_code == code, text(answer)[:2000]
    assert "<main" in text(answer)


def test_the_past_is_for_those_who_may_see_the_present(nobody: Client, story: Client) -> None:
    for path in ("/console/nodes/", "/console/nodes/n2/", "/console/pods/default/web-1/"):
        assert nobody.get(path, {"at": THEN}).status_code == 403
