"""What changes made of objects, and who asked for them: histories, differences, the audit log."""

import re
import uuid
from datetime import UTC, timedelta
from html import unescape
from typing import Any

import msgspec
import pytest
from django.test import Client

from clusterstate.actions import objects
from clusterstate.actions.past import audit_log
from clusterstate.actions.past.audit_log import AuditLine
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.queries.past import trail
from tests.clock import NOW, moment
from tests.clusterstate.support import new_pod
from tests.console.conftest import allow, text

AUDIT = "/console/audit/"
CHANGES = "/console/changes/"
LINK = re.compile(r'href="(/console/objects/[^"]+/changes/\d+)"')


def label(name: str, value: str) -> None:
    def change(node: Any) -> Any:
        labels = {**(node["metadata"].get("labels") or {}), "rack": value}
        return {**node, "metadata": {**node["metadata"], "labels": labels}}

    objects.update("Node", "", name, change, now=NOW)


def signs(page: str) -> dict[str, str]:
    """Return the lines that were added and removed."""
    lines = re.findall(r'<span class="(?:ok|bad)">([+-]) ([^<]*)\n</span>', page)
    return {line.strip(): sign for sign, line in lines}


def test_each_change_of_an_object_shows_what_it_changed(operator: Client, cluster: None) -> None:
    label("n1", "r1")
    label("n1", "r2")
    page = text(operator.get("/console/nodes/n1/"))
    newest, before, *_ = LINK.findall(page)
    assert signs(text(operator.get(newest))) == {"rack: r1": "-", "rack: r2": "+"}
    assert signs(text(operator.get(before))) == {"rack: r1": "+"}
    created = text(operator.get(LINK.findall(page)[-1]))
    assert signs(created)["name: n1"] == "+"
    objects.delete("Node", "", "n2", now=NOW)
    (gone,) = trail.trail_of(KINDS["Node"], "", "n2", limit=1).steps
    page = text(operator.get(f"/console/objects/Node/-/n2/changes/{gone.revision}"))
    assert signs(page)["name: n2"] == "-"


def test_a_difference_is_of_that_object_and_for_who_may_read_it(
    operator: Client, nobody: Client, cluster: None
) -> None:
    label("n1", "r1")
    (step,) = trail.trail_of(KINDS["Node"], "", "n1", limit=1).steps
    path = f"/console/objects/Node/-/n1/changes/{step.revision}"
    assert operator.get(path).status_code == 200
    assert nobody.get(path).status_code == 403
    for other in (
        f"/console/objects/Node/-/n3/changes/{step.revision}",
        f"/console/objects/Node/-/n1/changes/{step.revision - 1}",
        f"/console/objects/Node/-/n1/changes/{10**30}",
    ):
        assert operator.get(other).status_code == 404
    assert operator.get(f"{path}?at=10m").status_code == 400


def test_a_pods_timeline_and_the_past_lead_to_differences(operator: Client, cluster: None) -> None:
    new_pod("fresh")
    (created,) = LINK.findall(text(operator.get("/console/pods/default/fresh/")))
    assert "+ " in text(operator.get(created))
    page = text(operator.get("/console/nodes/n1/", {"at": moment(-1)}, follow=True))
    assert "at=" not in "".join(LINK.findall(page)), "a change stays what it is"


def line(number: int, address: str, **about: str) -> None:
    event = {
        "auditID": str(uuid.UUID(int=number)), "requestURI": "/", "sourceIPs": [address],
        "verb": "patch", "user": {"username": "ann"}, "stageTimestamp": moment(number),
        "objectRef": about, "responseStatus": {"code": 200},
    }  # fmt: skip
    at = NOW + timedelta(seconds=number)
    words = msgspec.json.encode(event).decode()
    name, space = about.get("name", "").replace("\0", "\ufffd"), about.get("namespace", "")
    audit_log.append(
        [
            AuditLine(
                at,
                uuid.UUID(int=number),
                "ann",
                "patch",
                about["resource"],
                space,
                name,
                200,
                words,
            )
        ]
    )


def test_the_audit_log_is_searched_by_address_and_time(operator: Client, cluster: None) -> None:
    line(1, "10.0.0.1", resource="nodes", name="n1")
    line(60, "10.0.0.11", resource="pods", namespace="default", name="10.0.0.1")
    line(120, "10.0.0.1", resource="nodes", name="n2")
    told = '"sourceIPs":["10.0.0.9"]'
    line(150, "10.0.0.8", resource="pods", namespace="default", name=f"\0{told}")

    def found(**query: str) -> list[str]:
        page = text(operator.get(AUDIT, query))
        return re.findall(r'<a href="(/console/[^"]*)">[^<]*</a></td><td class="n', page)

    node, pod = "/console/nodes/{}/", "/console/pods/default/10.0.0.1/"
    assert found(user="ann")[-3:] == [node.format("n2"), pod, node.format("n1")]
    assert found(address="10.0.0.1") == [node.format("n2"), node.format("n1")]
    assert found(address="10.0.0.11") == [pod]
    for nobodys in ("10.0.0", "10.0.0.9", '"', "\\"):
        assert found(address=nobodys) == []
    assert "sourceIPs" in text(operator.get(AUDIT, {"address": "10.0.0.8"})), "a NUL hides nobody"
    assert found(since=moment(30), until=moment(90)) == [pod]
    assert operator.get(AUDIT, {"since": "soon"}).status_code == 400
    part = text(operator.get(AUDIT, {"user": "ann"}, headers={"HX-Request": "true"}))
    assert "<form" not in part
    assert node.format("n2") in part
    page = text(operator.get(AUDIT, {"user": "ann"}))
    assert 'hx-get="/console/audit/?user=ann" hx-trigger="every' in page
    assert "hx-trigger" not in text(operator.get(AUDIT, {"before": "9"}))
    page = text(operator.get(AUDIT, {"address": "10.0.0.11"}))
    assert "hx-trigger" not in page, "a search that may read the whole log is not made again"
    assert 'value="10.0.0.11"' in page
    assert 'href="?address=10.0.0.11"' in page


def test_sign_ins_that_failed_are_told_with_the_name_that_was_tried(operator: Client) -> None:
    notes = {"stowage.dev/sign-in": "failed", "stowage.dev/username": "mallory"}
    event = {"requestURI": "/console/sign-in", "annotations": notes, "verb": "post"}
    written = msgspec.json.encode({**event, "responseStatus": {"code": 200}}).decode()
    audit_log.append([AuditLine(NOW, uuid.UUID(int=7), "", "post", "", "", "", 200, written)])
    page = text(operator.get(AUDIT))
    assert re.search(r"<td>mallory <span[^>]*>not signed in</span></td>", page)
    assert '<span class="bad">sign-in failed</span>' in page


@pytest.mark.django_db(transaction=True)
def test_what_changed_at_a_time_is_told_by_minute_and_user(
    operator: Client, nobody: Client, cluster: None
) -> None:
    label("n1", "r1")
    label("n1", "r2")
    page = text(operator.get(CHANGES))
    rows = [
        [re.sub(r"<[^>]+>", "", one).strip() for one in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(<td>.*?)</tr>", page)
    ]
    told = {(what, names) for _, _, what, _, names in rows}
    assert ("changed Node 2 times", "n1") in told
    assert ("created Node", "n1, n2, n3") in told
    assert ("changed Pod", "default/web-1, default/web-2") in told
    at = NOW.astimezone(UTC)
    for time in (f"{at:%H:%M:%S}", f"{at:%Y-%m-%dT%H:%M:%SZ}", "1m"):
        assert "changed Node" in text(operator.get(CHANGES, {"time": time, "kind": "Node"}))
    assert "changed Node" not in text(operator.get(CHANGES, {"kind": "Pod"}))
    assert "Nothing changed" in text(operator.get(CHANGES, {"namespace": "other"}))
    assert operator.get(CHANGES, {"time": "25:99"}).status_code == 400
    assert nobody.get(CHANGES).status_code == 403
    reader = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "get"]}
    page = text(allow("pia", [reader]).get(CHANGES))
    assert "changed Pod" in page
    assert "Node" not in page.partition("<tbody>")[2]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("pods/?ns=default", "Did you mean &quot;namespace&quot;"),
        ("pods/?namespaces=default", "Did you mean &quot;namespace&quot;"),
        ("objects/Pod/?l=app", "Did you mean &quot;labelSelector&quot;"),
        ("audit/?usr=ann", "Did you mean &quot;user&quot;"),
        ("nodes/?zone=a", "This page knows q."),
        ("decisions/?ns=x", "Did you mean &quot;namespace&quot;"),
    ],
)
def test_an_unknown_filter_is_refused_and_the_one_that_is_meant_named(
    operator: Client, address: str, says: str
) -> None:
    answer = operator.get(f"/console/{address}")
    assert answer.status_code == 400
    assert says.replace("&quot;", '"') in unescape(text(answer))
