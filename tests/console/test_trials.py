"""Configurations on trial: effective plugins, comparisons with pictures, canaries."""

import html
import re
import uuid
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
import time_machine
from django.test import Client

from api.console.scheduler import comparisons
from clusterstate.actions.scheduler import canaries, scheduler_configuration
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.canaries import find_canary
from scheduling.answers import advisor
from scheduling.answers.effective import differences, effective
from scheduling.scenarios import policies
from tests.clock import NOW, moment
from tests.console.conftest import signed_in, text
from tests.controllers.support import bind, make_node, make_pod

PLUGINS = "/console/policies/plugins"
COMPARISONS = "/console/policies/comparisons"
CANARIES = "/console/policies/canaries/"
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
TEXT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{name: ImageLocality}]
      enabled: [{name: TaintToleration, weight: 7}]
    score:
      disabled: [{name: NodeAffinity}]
      enabled: [{name: NodeResourcesFit, weight: 5}]
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""


def store(document: Any) -> int:
    checked, _ = scheduler_configuration.check(document)
    scheduler_configuration.store(document=checked, by="anna", now=NOW)
    found = decisions.configuration()
    assert found is not None
    return found.revision


PROFILE = {
    "schedulerName": "default-scheduler",
    "plugins": {
        "multiPoint": {
            "disabled": [{"name": "ImageLocality"}],
            "enabled": [{"name": "TaintToleration", "weight": 7}],
        },
        "score": {
            "disabled": [{"name": "NodeAffinity"}],
            "enabled": [{"name": "NodeResourcesFit", "weight": 5}],
        },
        "filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeName"}]},
    },
}


def test_a_profile_is_shown_as_it_acts_and_why() -> None:
    (found,) = effective({**HEAD, "profiles": [PROFILE]})
    assert found.disabled == ("NodeUnschedulable", "ImageLocality")
    rows = {row.plugin: row for row in found.rows}

    def use(plugin: str, point: str) -> Any:
        uses = [one for one in rows[plugin].uses if one and one.point == point]
        return [(bool(one.order), one.weight, one.origin) for one in uses]

    assert use("TaintToleration", "score") == [(True, 7, "multiPoint")]
    assert use("TaintToleration", "filter") == [(False, 0, "filter")], "off with all others"
    assert use("NodeResourcesFit", "score") == [(True, 5, "score")]
    assert use("NodeResourcesFit", "preFilter") == [(True, 0, "default")]
    assert use("NodeAffinity", "score") == [(False, 0, "score")]
    assert use("NodeName", "filter") == [(True, 0, "filter")]
    assert use("NodeName", "score") == [], "it never acts there"
    assert rows["TaintToleration"].origin == "multiPoint"


def test_differences_name_plugin_point_and_weight() -> None:
    score_only = {**PROFILE, "plugins": {"score": PROFILE["plugins"]["score"]}}  # type: ignore[index]
    before, after = effective(HEAD), effective({**HEAD, "profiles": [score_only]})
    assert differences(before, before) == []
    assert set(differences(before, after)) == {
        ("default-scheduler", "NodeResourcesFit", "score", "weight 1", "weight 5"),
        ("default-scheduler", "NodeAffinity", "score", "weight 2", "-"),
    }


def test_the_page_of_plugins_compares_revisions(operator: Client, nobody: Client) -> None:
    page = text(operator.get(PLUGINS))
    assert "0, the default configuration" in page
    assert "TaintToleration" in page
    first, second = store(HEAD), store({**HEAD, "profiles": [PROFILE]})
    page = text(operator.get(PLUGINS, {"old": first}))
    off = "NodeUnschedulable, ImageLocality"
    assert f"Switched off everywhere:</span> {off}" in page
    assert "<td>weight 3</td>" in page or "<td>weight 1</td><td>weight 5</td>" in page
    assert 'title="from multiPoint"' in page or 'title="from score"' in page
    assert ">off</span>" in page
    page = text(operator.get(PLUGINS, {"new": first, "old": second}))
    assert "<td>weight 5</td><td>weight 1</td>" in page
    assert operator.get(PLUGINS, {"new": "999"}).status_code == 404
    assert operator.get(PLUGINS, {"new": "x"}).status_code == 400
    assert nobody.get(PLUGINS).status_code == 403


# Comparisons -----------------------------------------------------------------------------------


@pytest.fixture
def past() -> None:
    """Two nodes, and three pods that went to the emptier one each time, within the last hour."""
    for name in ("a", "b"):
        make_node(name, now=NOW - timedelta(minutes=120))
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "1"}}}
    for number in range(3):
        came_at = NOW - timedelta(minutes=50 - number)
        pod = make_pod(f"p{number}", now=came_at, containers=[container])
        bind(pod, "ab"[number % 2], now=NOW - timedelta(minutes=49 - number))


def test_the_past_is_compared_in_figures_and_pictures(operator: Client, past: None) -> None:
    page, found = asked(operator, {"hours": "1", "policy": ["packing", "least"]})
    assert re.search(r'packing" checked', page)
    assert "waiting for a free advisor" in page
    page = text(found)
    for words in ("recorded", "packing", "least", "median wait", "default/p0"):
        assert words in page
    assert page.count("<figure><figcaption>") >= 4
    assert 'role="img" aria-label="pods that wait"' in page
    assert "<style" not in page
    assert "style=" not in page
    assert "Nodes that differ most" in page
    again, _ = asked(operator, {"hours": "1", "policy": "packing", "until": moment(-1800)})
    assert f"until={quote(moment(-1800))}" in again, "a colleague sees the same stretch"


def asked(client: Client, query: dict[str, Any]) -> tuple[str, Any]:
    """Return a comparison's page, and the answer that the page then asks for."""
    answer = client.get(COMPARISONS, query, follow=True)
    assert answer.status_code == 200, text(answer)[:2000]
    (address,) = re.findall(r'id="found" data-asks hx-get="([^"]+)"', text(answer))
    part = client.get(html.unescape(address), headers={"HX-Request": "true"})
    return text(answer), part


def test_how_far_a_comparison_is_is_told_where_an_advisor_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, _ = asked(operator, {"policy": "packing"})
    (address,) = re.findall(r'hx-get="([^"]+progress=1)"', page)
    known = advisor.Progress("playing <packing>", 0.375)
    monkeypatch.setattr(advisor, "progress", lambda name, document: known)
    part = text(operator.get(html.unescape(address), headers={"HX-Request": "true"}))
    assert 'value="38"' in part
    assert "38 %: playing &lt;packing&gt;" in part


def test_the_baskets_configuration_is_compared_over_the_past(operator: Client, past: None) -> None:
    what_if = "/console/what-if/"
    assert "Add a KubeSchedulerConfiguration" in text(operator.get(what_if))
    assert operator.post(f"{what_if}add", {"text": TEXT}).status_code == 302
    page = text(operator.get(what_if))
    assert "the basket's configuration" in html.unescape(page)
    form = page.split('id="past-asks"')[1].split("</form>")[0]
    (given,) = re.findall(r'name="text" value="([^"]*)"', form)
    answer = operator.post(COMPARISONS, {"hours": "1", "text": html.unescape(given)})
    assert answer.status_code == 302
    shown = operator.get(answer["Location"])
    assert "weight: 7" in text(shown), "the address holds the configuration"
    part = operator.get(answer["Location"], headers={"HX-Request": "true"})
    assert ">yours</th>" in text(part)


def test_a_configuration_of_ones_own_is_compared(operator: Client, past: None) -> None:
    answer = operator.post(COMPARISONS, {"hours": "1", "text": TEXT + "nonsense: 1\n"})
    shown = operator.get(answer["Location"])
    assert "weight: 7" in text(shown), "what was typed stays"
    part = operator.get(answer["Location"], headers={"HX-Request": "true"})
    assert part.status_code == 422
    assert "nonsense" in text(part)
    long = TEXT + "".join(f"# {uuid.uuid4()}\n" for _ in range(400))
    assert ">yours</th>" in text(operator.post(COMPARISONS, {"hours": "1", "text": long}))
    alike = f"{TEXT}# {'a' * 300_000}\n"  # its address would be short, and hold too much
    assert ">yours</th>" in text(operator.post(COMPARISONS, {"hours": "1", "text": alike}))
    outside = TEXT + "extenders: [{urlPrefix: 'http://127.0.0.1:9', filterVerb: filter}]\n"
    answer = operator.get(COMPARISONS, {"hours": "1", "yours": comparisons.packed(outside)})
    assert answer.status_code == 400, "a link sends the advisor nowhere"
    assert "use the form" in text(answer)
    assert operator.post(COMPARISONS, {"hours": "1", "text": outside}).status_code != 302
    answer = operator.post(COMPARISONS, {"hours": "1", "text": "- a"})
    assert answer.status_code == 400
    assert 'role="alert"' in text(answer)


@pytest.mark.parametrize("given", ["x", "!!", "eJw", comparisons.packed("a" * 300_000)])
def test_an_address_that_was_changed_is_refused(operator: Client, given: str) -> None:
    answer = operator.get(COMPARISONS, {"yours": given})
    assert answer.status_code == 400
    assert comparisons.unpacked(comparisons.packed(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"policy": "packing", "hours": "soon"}, 400),
        ({"policy": "packing", "hours": "nan"}, 422),
        ({"policy": "packing", "until": "soon"}, 422),
        ({"policy": "packing", "hours": "9999"}, 422),
        ({"policy": "none-such"}, 422),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    operator: Client, query: dict[str, str], code: int
) -> None:
    answer = operator.get(COMPARISONS, query, follow=True)
    if code != 400:
        _, answer = asked(operator, query)
    assert answer.status_code == code
    assert 'role="alert"' in text(answer)


def test_the_page_offers_the_policies_that_there_are() -> None:
    assert tuple(name for name, _ in comparisons.POLICIES) == policies.NAMES


# Canaries --------------------------------------------------------------------------------------


def test_a_canary_is_tried_reported_switched_and_returned(operator: Client, past: None) -> None:
    store(HEAD)
    form = text(operator.get(CANARIES))
    assert "kind: KubeSchedulerConfiguration" in form, "begun with the one in force"
    given = {"name": "packing", "text": TEXT, "guardSeconds": "900", "mostFailures": "5"}
    answer = operator.post(CANARIES, given)
    page_of = f"{CANARIES}packing/"
    assert answer["Location"] == page_of
    found = find_canary("packing")
    assert (found.state, found.guard_seconds, found.most_failures) == ("Observing", 900, 5)
    assert found.created_by == "anna"
    page = text(operator.get(page_of))
    assert "+ " in page
    assert "weight: 7" in page
    assert page_of in text(operator.get(CANARIES))
    assert "waiting for a free advisor" in text(operator.get(page_of, {"report": "1"}))
    before = decisions.configuration()
    assert before is not None
    assert operator.post(f"{page_of}act", {"what": "switch"})["Location"] == page_of
    page = text(operator.get(page_of))
    assert "Roll back" in page
    assert f"revision {before.revision}, which it replaced" in page
    operator.post(f"{page_of}act", {"what": "return"})
    page = text(operator.get(page_of))
    assert "Returned" in page
    assert "anna asked for it" in page
    assert 'id="confirm"' not in page
    assert operator.post(f"{page_of}act", {"what": "cancel"}).status_code == 409
    assert operator.get(f"{page_of}act").status_code == 400


def test_a_canarys_report_comes_as_a_part_and_tells_how_far_it_is(
    operator: Client, past: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, _ = scheduler_configuration.check({**HEAD, "profiles": [PROFILE]})
    canaries.create(
        name="old", document=checked, guard_seconds=60, most_failures=1, slow_seconds=1, by="x",
        now=NOW - timedelta(days=8),
    )  # fmt: skip
    told: list[Any] = []

    def progress(name: str, document: object) -> advisor.Progress:
        told.append(document)
        return advisor.Progress("playing it", 0.25)

    monkeypatch.setattr(advisor, "progress", progress)
    hour = NOW.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    parts = {"headers": {"HX-Request": "true"}}
    with time_machine.travel(hour + timedelta(minutes=59), tick=False):
        page = text(operator.get(f"{CANARIES}old/", {"report": "1"}))
        (address,) = re.findall(r'hx-get="([^"]+progress=1)"', page)
        assert "25 %: playing it" in text(operator.get(html.unescape(address), **parts))
    asked_for: list[Any] = []
    ask = advisor.ask

    def asking(name: str, document: object) -> Any:
        asked_for.append(document)
        return ask(name, document)

    monkeypatch.setattr(advisor, "ask", asking)
    with time_machine.travel(hour, tick=False):
        found = operator.get(f"{CANARIES}old/", {"report": "1"}, **parts)
    assert found.status_code == 200, text(found)
    assert "Figures" in text(found)
    assert told == asked_for, "how far it is is told of the question that is asked"
    state = text(operator.get(f"{CANARIES}old/", **parts))
    assert "Observing" in state
    assert "Figures" not in state, "what is read again every few seconds is the state alone"


def test_what_is_wrong_with_a_canary_stands_on_the_page(operator: Client) -> None:
    answer = operator.post(CANARIES, {"name": "Big Name", "text": TEXT})
    assert answer.status_code == 400
    assert "lower case" in text(answer)
    assert 'value="Big Name"' in text(answer)
    for more, code, words in (
        ({"guardSeconds": "soon"}, 400, "guardSeconds: must be a number"),
        ({"guardSeconds": "5"}, 400, "Canary cannot be handled"),
        ({"text": "kind: Pod"}, 422, "kind"),
        ({"text": "- "}, 400, "not an object"),
        ({"text": f"{TEXT}\nkind: Pod"}, 400, "repeats"),
    ):
        answer = operator.post(CANARIES, {"text": TEXT, **more})
        assert answer.status_code == code, text(answer)[:500]
        assert words in text(answer)


def test_who_may_only_look_at_canaries_has_no_button(viewer: Client) -> None:
    checked, _ = scheduler_configuration.check(HEAD)
    canaries.create(
        name="one", document=checked, guard_seconds=60, most_failures=1, slow_seconds=1, by="x",
        now=NOW,
    )  # fmt: skip
    page = viewer.get(f"{CANARIES}one/")
    assert page.status_code == 200
    assert 'name="what"' not in text(page)
    assert "Start the canary" not in text(viewer.get(CANARIES))
    assert viewer.post(CANARIES, {"text": TEXT}).status_code == 403
    assert viewer.post(f"{CANARIES}one/act", {"what": "switch"}).status_code == 403
    assert find_canary("one").state == "Observing"
    stranger = signed_in("noone")
    for path in (CANARIES, f"{CANARIES}one/", f"{CANARIES}one/?report=1", COMPARISONS):
        assert stranger.get(path).status_code == 403
