"""The audit log in the admin: read and searched by administrators, changed by nobody."""

import json
import uuid

from django.test import Client
from django.urls import reverse

from clusterstate.access.rules import Attributes
from clusterstate.actions import objects
from clusterstate.actions.past import audit_log
from clusterstate.actions.past.audit_log import AuditLine
from clusterstate.database import sql
from clusterstate.middleware import DID
from clusterstate.objects.values import actor
from tests.admin.pages import form_data
from tests.clock import NOW

LIST = "admin:clusterstate_auditline_changelist"


def written(number: int, user: str, verb: str, code: int, name: str) -> None:
    event = {
        "auditID": str(uuid.UUID(int=number)),
        "requestURI": f"/api/v1/nodes/{name}?<b>",
        "sourceIPs": [f"10.0.0.{number}"],
    }
    audit_log.append(
        [
            AuditLine(
                NOW, uuid.UUID(int=number), user, verb, "nodes", "", name, code, json.dumps(event)
            )
        ]
    )


def test_requests_are_listed_filtered_and_opened(administrator: Client) -> None:
    written(1, "ann", "delete", 200, "n1")
    written(2, "bob", "patch", 403, "n2")
    page = administrator.get(reverse(LIST)).content.decode()
    assert page.index("nodes n2") < page.index("nodes n1")
    assert "10.0.0.1" in page
    refused = administrator.get(reverse(LIST), {"outcome": "refused"}).content.decode()
    assert "nodes n2" in refused
    assert "nodes n1" not in refused
    found = administrator.get(reverse(LIST), {"q": "ann"}).content.decode()
    assert "nodes n1" in found
    assert "nodes n2" not in found
    url = reverse("admin:clusterstate_auditline_change", args=[1])
    opened = administrator.get(url).content.decode()
    assert "/api/v1/nodes/n1?&lt;b&gt;" in opened
    assert administrator.post(url, {"username": "eve"}).status_code == 403


def test_who_is_no_administrator_does_not_see_it(viewer: Client) -> None:
    assert viewer.get(reverse(LIST)).status_code == 403


def test_what_a_person_does_in_the_admin_is_theirs_in_the_change_log(administrator: Client) -> None:
    objects.create("Node", "", {"metadata": {"name": "n1"}}, now=NOW)
    ((node_id,),) = sql.fetch("SELECT id FROM node WHERE name = 'n1'")
    history = administrator.get(reverse("admin:clusterstate_node_history", args=[node_id]))
    assert actor.process_owner().name in history.content.decode()
    page = reverse("admin:clusterstate_node_change", args=[node_id])
    data = form_data(administrator, page) | {"labels": "by=anna"}
    assert administrator.post(page, data).status_code == 302
    rows = sql.fetch(
        "SELECT a.name, c.cause IS NOT NULL FROM change c JOIN actor a ON a.id = c.actor_id"
        " WHERE c.name = 'n1' AND c.verb = 2"
    )
    assert rows == [("anna", True)]


def test_what_a_form_of_the_admin_does_is_told_to_the_audit_log(administrator: Client) -> None:
    """As the request of the API that does the same, so that both are found together."""
    objects.create("Node", "", {"metadata": {"name": "n1"}}, now=NOW)
    ((node_id,),) = sql.fetch("SELECT id FROM node WHERE name = 'n1'")
    page = reverse("admin:clusterstate_node_change", args=[node_id])
    answer = administrator.post(page, {"labels": "x"})
    assert answer.wsgi_request.META[DID] == Attributes("update", "", "nodes", name="n1")
    listed = reverse("admin:clusterstate_priorityclass_changelist")
    chosen = {"action": "delete_selected", "_selected_action": ["1"]}
    answer = administrator.post(listed, chosen)
    group = "scheduling.k8s.io"
    assert answer.wsgi_request.META[DID] == Attributes("delete", group, "priorityclasses")
    assert DID not in administrator.get(page).wsgi_request.META
